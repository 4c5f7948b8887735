"""The one-line bars of a screen: text in roles, cut to the width, drawn only when it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip

from .keys import Words
from .painted import Painted
from .safe import fit

if TYPE_CHECKING:
    from .columns import Cell


class Bar(Painted):
    """One line of cells, the last ones of which stand at the right edge."""

    DEFAULT_CSS = "Bar { height: 1; background: $panel; }"

    def __init__(self, *, id: str | None = None):
        super().__init__(id=id)
        self.left: list[Cell] = []
        self.right: list[Cell] = []

    def show(self, left: list[Cell], right: list[Cell] | None = None) -> None:
        """Cells are (text, role); their text must be `safe.visible`."""
        if (left, right or []) != (self.left, self.right):
            self.left, self.right = left, right or []
            self.refresh()

    def render_line(self, y: int) -> Strip:
        base, width = self.rich_style, self.size.width
        right = Strip([Segment(text, base + self.palette.of(role)) for text, role in self.right])
        left = Strip([Segment(text, base + self.palette.of(role)) for text, role in self.left])
        room = max(width - right.cell_length, 0)
        if left.cell_length > room:
            cut = left.crop(0, max(room - 2, 0))
            left = Strip([*cut, Segment(fit("…", max(room - cut.cell_length, 0)), base)])
        return Strip([*left.extend_cell_length(room, base), *right]).crop_extend(0, width, base)


class KeyBar(Bar):
    """The keys of the screen; those that no longer fit are left out, help and quit at the right edge stay."""

    def __init__(self) -> None:
        super().__init__()
        self._pairs: Words = ()

    def keys(self, *pairs: tuple[str, str]) -> None:
        """Pairs of (key, what it does); the last two stand at the right."""
        self._pairs = pairs
        self.refresh()

    def render_line(self, y: int) -> Strip:
        last = sum(len(k) + len(w) + 3 for k, w in self._pairs[-2:])
        self.left, self.right = [], []
        room = self.size.width - last
        for key, word in self._pairs[:-2]:
            room -= len(key) + len(word) + 3
            if room < 0:
                break
            self.left += _key(key, word)
        for key, word in self._pairs[-2:]:
            self.right += _key(key, word)
        return super().render_line(y)


def _key(key: str, word: str) -> list[Cell]:
    return [(f" {key}", "key"), (f" {word} ", "muted")]


class TabLine(Painted):
    """The views by number; the one that is shown stands out, and a count may follow a name."""

    DEFAULT_CSS = "TabLine { height: 1; background: $panel; }"

    class Chosen(Message):
        """A click on a view's name."""

        def __init__(self, number: int):
            super().__init__()
            self.number = number

    def __init__(self, names: tuple[tuple[str, str], ...], number: int):
        """`names`: (long, short) of every view, from 1."""
        super().__init__()
        self._names, self._number = names, number
        self._counts: dict[int, Cell] = {}
        self._places: list[tuple[int, int, int]] = []

    def count(self, number: int, cell: Cell) -> None:
        """Say something behind a view's name."""
        if self._counts.get(number) != cell:
            self._counts[number] = cell
            self.refresh()

    def render_line(self, y: int) -> Strip:
        base, width = self.rich_style, self.size.width
        for short, gap in ((0, "  "), (1, " "), (1, "")):
            segments, self._places, at = [], [], 0
            for number, names in enumerate(self._names, 1):
                text, role = self._counts.get(number, ("", ""))
                label = f" {number} {names[short]} "
                own = self.palette.label if number == self._number else self.palette.muted
                segments.append(Segment(label, base + own))
                if text:
                    segments.append(Segment(text, base + self.palette.of(role)))
                segments.append(Segment(gap, base))
                self._places.append((at, at + len(label) + len(text), number))
                at += len(label) + len(text) + len(gap)
            if at <= width:
                break
        return Strip(segments).crop_extend(0, width, base)

    def on_click(self, event: events.Click) -> None:
        for start, end, number in self._places:
            if start <= event.x < end:
                self.post_message(self.Chosen(number))
