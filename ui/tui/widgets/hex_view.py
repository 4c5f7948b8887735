"""Bytes of a frame as hexadecimal and ASCII, 16 or 8 to a line. One range is marked; hidden ones are shown as dots."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..keys import bindings
from .styled import StyledWidget, scroll_to_line

Range = tuple[int, int]


class HexView(ScrollView, StyledWidget, can_focus=True):
    """`show` a frame, then `mark` a range of it; positions count from its first byte. While the view has the focus it has a
    cursor, whose moves are `Pointed` messages."""

    DEFAULT_CSS = """
    HexView {
        border-title-color: $text-muted; border-subtitle-color: $text-muted; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; border: round $border-blurred; }
    HexView:focus { border: round $primary; border-title-color: $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("hex")

    class Pointed(Message):
        """The cursor is on this byte; `chosen`: Enter, or a second click."""

        def __init__(self, at: int, chosen: bool = False):
            super().__init__()
            self.at, self.chosen = at, chosen

    def __init__(self, id: str):
        super().__init__(id=id)
        self.frame = b""
        self.hidden: list[Range] = []
        self.marked: Range | None = None
        self.cursor = 0

    @property
    def per_line(self) -> int:
        """Bytes in a line: 16 where they fit."""
        return 16 if self.size.width >= 6 + 16 * 4 + 3 else 8

    def show(self, frame: bytes, hidden: list[Range]) -> None:
        """Show another frame, without the byte ranges in `hidden`."""
        self.frame, self.hidden, self.marked = frame, sorted(hidden), None
        self.cursor = 0
        self._measure()

    def _measure(self) -> None:
        lines = -(-len(self.frame) // self.per_line)
        self.virtual_size = Size(0, lines)
        self.refresh()

    def mark(self, span: Range | None) -> None:
        """Mark a range, scroll to its start, and put the cursor there unless it is in the range."""
        if span == self.marked:
            return
        old, self.marked = self.marked, span
        if span is not None:
            if not (span[0] <= self.cursor < max(span[1], span[0] + 1)):
                self._redraw((self.cursor, self.cursor + 1))
                self.cursor = span[0]
            self._scroll_to_range(span)
        for each in (old, span):
            if each is not None:
                self._redraw(each)

    def _redraw(self, span: Range) -> None:
        """Redraw the lines of a range that are on the screen."""
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        first, last = span[0] // self.per_line, max(span[1] - 1, span[0]) // self.per_line
        for line in range(max(first, top), min(last, top + height) + 1):
            self.refresh_line(line)

    def _scroll_to_range(self, span: Range) -> None:
        first, last = span[0] // self.per_line, max(span[1] - 1, span[0]) // self.per_line
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if first < top or (last >= top + height and not top <= self.cursor // self.per_line < top + height):
            self.scroll_to(y=max(first - (1 if height > 3 else 0), 0), animate=False)

    def point(self, at: int, chosen: bool = False) -> None:
        """Put the cursor on a byte."""
        if not self.frame:
            return
        at = max(0, min(at, len(self.frame) - 1))
        old, self.cursor = self.cursor, at
        scroll_to_line(self, at // self.per_line)
        self._redraw((old, old + 1))
        self._redraw((at, at + 1))
        self.post_message(self.Pointed(at, chosen))

    def on_resize(self) -> None:
        self._measure()
        marked, self.marked = self.marked, None
        self.mark(marked)

    def on_focus(self) -> None:
        self._redraw((self.cursor, self.cursor + 1))

    def on_blur(self) -> None:
        self._redraw((self.cursor, self.cursor + 1))

    def action_line(self, lines: int) -> None:
        self.point(self.cursor + lines * self.per_line)

    def action_byte(self, step: int) -> None:
        self.point(self.cursor + step)

    def action_page(self, pages: int) -> None:
        self.point(self.cursor + pages * max(self.size.height - 1, 1) * self.per_line)

    def action_end(self, end: int) -> None:
        self.point(len(self.frame) if end else 0)

    def action_field(self) -> None:
        self.point(self.cursor, chosen=True)

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        per_line, column = self.per_line, offset.x - 6
        letters = per_line * 3 + per_line // 8
        within = column - letters if column >= letters else (column - (column > 24)) // 3
        if 0 <= within < per_line:
            self.point((self.scroll_offset.y + offset.y) * per_line + within, chosen=event.chain > 1)

    def render_line(self, y: int) -> Strip:
        width, base, palette = self.size.width, self.rich_style, self.palette
        per_line = self.per_line
        start = (self.scroll_offset.y + y) * per_line
        if start >= len(self.frame) and start:
            return Strip.blank(width, base)
        low, high = self.marked or (0, 0)
        hidden = [(a, b) for a, b in self.hidden if a < start + per_line and b > start]
        segments = [Segment(f"{start:05x} ", base + palette.muted)]
        text: list[Segment] = []
        for i in range(per_line):
            at = start + i
            style = base + palette.span if low <= at < high else base
            gap_style = style if low <= at + 1 < high and i + 1 < per_line else base
            if at >= len(self.frame):
                segments.append(Segment("   " if i % 8 != 7 else "    ", base))
                continue
            byte = self.frame[at]
            if any(a <= at < b for a, b in hidden):
                pair, letter, role = "··", "·", palette.muted
                style = style if low <= at < high else base + palette.muted
            elif 0x20 <= byte < 0x7F:
                pair, letter, role = f"{byte:02x}", chr(byte), palette.string
            else:
                pair, letter, role = f"{byte:02x}", ".", palette.muted
            pointed = palette.label if at == self.cursor and self.has_focus else None
            segments.append(Segment(pair, base + pointed if pointed else style))
            segments.append(Segment(" " if i % 8 != 7 else "  ", gap_style if i % 8 != 7 else base))
            text.append(Segment(letter, base + pointed if pointed else style if low <= at < high else base + role))
        return Strip([*segments, *text]).crop_extend(0, width, base)
