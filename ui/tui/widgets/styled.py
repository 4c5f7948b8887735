"""Widgets that are drawn by line from texts with roles: one-line bars, tabs, titles, panes of text; and graphs of block characters.

`AsciiFilter` (``--ascii``) turns everything on the screen into ASCII: frames, scroll bars, graphs and texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from ...safe import fit
from ..keys import Words
from .palette import DARK, Palette

if TYPE_CHECKING:
    from .palette import Cell

class StyledWidget(Widget):
    """A widget whose styles come from `palette`, by role."""

    @property
    def palette(self) -> Palette:
        """The palette of the current theme."""
        found: Palette = getattr(self.app, "palette", DARK)
        return found


def scroll_to_line(widget: ScrollView, line: int) -> None:
    """Scroll so that a line is on the screen."""
    top, height = widget.scroll_offset.y, max(widget.size.height, 1)
    if line < top:
        widget.scroll_to(y=line, animate=False)
    elif line >= top + height:
        widget.scroll_to(y=line - height + 1, animate=False)


class Bar(StyledWidget):
    """One line of cells: some at the left edge, some at the right."""

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
    """The keys of the screen. Those that do not fit are left out, but not help and quit at the right edge."""

    def __init__(self) -> None:
        super().__init__()
        self._pairs: Words = ()

    def keys(self, *pairs: tuple[str, str]) -> None:
        """Show pairs of (key, word); the last two at the right edge."""
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


class TabLine(StyledWidget):
    """The views by number, with the current one marked. A count may follow a name."""

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
        """Show a count after a view's name."""
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


class TitleLine(StyledWidget):
    """One underlined line."""

    DEFAULT_CSS = "TitleLine { height: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def show(self, text: str) -> None:
        """Show another text."""
        if text != self.text:
            self.text = text
            self.refresh()

    def render_line(self, y: int) -> Strip:
        style = self.rich_style + self.palette.muted + Style(underline=True)
        return Strip([Segment(fit(self.text, self.size.width), style)])


class TextPane(StyledWidget):
    """Lines of cells, cut to the width."""

    DEFAULT_CSS = "TextPane { height: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: list[list[Cell]] = []

    def show(self, lines: list[list[Cell]]) -> None:
        """Show other lines. Only those that changed are redrawn."""
        old, self.lines = self.lines, lines
        for y in range(max(len(old), len(lines))):
            if (old[y] if y < len(old) else None) != (lines[y] if y < len(lines) else None):
                self.refresh_line(y)

    def refresh_line(self, y: int) -> None:
        """Redraw a line."""
        if 0 <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        cells = self.lines[y] if y < len(self.lines) else []
        strip = Strip([Segment(text, base + self.palette.of(role)) for text, role in cells])
        return strip.crop_extend(0, self.size.width, base)


EIGHTHS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], width: int, height: int) -> list[str]:
    """A bar chart of `height` lines of `width` cells, the highest line first; a column for each value."""
    if not values or not width or not height:
        return [" " * width] * height
    top = max(values)
    lines = []
    cells = [v / top * height if top > 0 else 0.0 for v in values]
    for line in range(height, 0, -1):
        text = []
        for cell in cells[:width]:
            filled = cell - (line - 1)
            eighth = 8 if filled >= 1 else 0 if filled <= 0 else max(int(filled * 8 + 0.5), 1 if line == 1 else 0)
            text.append(EIGHTHS[eighth])
        lines.append("".join(text).ljust(width))
    return lines


def side_bar(share: float, width: int) -> str:
    """A bar of `width` cells, filled to `share` (0 to 1) in eighths."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)


_LIKE = {"…": "~", "·": ".", "→": ">", "─": "-", "│": "|", "▔": "-", "▁": "_", "•": "*", "━": "=", "▸": ">", "▾": "v", "░": ".", "▒": ":", "▓": "*"}


@lru_cache(4096)
def ascii_text(text: str) -> str:
    """The same number of cells, in ASCII: corners are ``+``, blocks ``#``, dots of graphs ``:``, other letters ``?``."""
    return text if text.isascii() else "".join(_letter(letter) for letter in text)


def _letter(letter: str) -> str:
    if letter.isascii():
        return letter
    code = ord(letter)
    if letter in _LIKE:
        return _LIKE[letter]
    if 0x2500 <= code < 0x2580:
        return "+"
    if 0x2580 <= code < 0x25A0:
        return "#"
    if 0x2800 <= code < 0x2900:
        dots = (code - 0x2800).bit_count()
        return " .::||##"[min(dots, 7)]
    return "?" * cell_len(letter)


class AsciiFilter(LineFilter):
    """Turns each line into ASCII before it goes to the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(ascii_text(s.text), s.style, s.control) for s in segments]
