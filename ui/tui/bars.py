"""The one-line bars of a screen: text in roles, cut to the width, drawn only when it changed."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from .columns import Cell
from .palette import Palette
from .safe import fit


class Bar(Widget):
    """One line of cells, the last ones of which stand at the right edge."""

    DEFAULT_CSS = "Bar { height: 1; background: $panel; }"

    def __init__(self, palette: Palette, *, id: str | None = None):
        super().__init__(id=id)
        self.palette = palette
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
