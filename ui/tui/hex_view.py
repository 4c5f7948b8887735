"""Bytes of a frame, sixteen or eight to a line, as hexadecimal and ASCII; one span stands out, hidden ones are dotted."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from .palette import Palette

Range = tuple[int, int]


class HexView(ScrollView, can_focus=True):
    """``show(frame, hidden)`` then ``mark(span)``: positions count from the frame's first byte."""

    DEFAULT_CSS = """
    HexView {
        border-title-color: $text-muted; border-subtitle-color: $text-muted; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; border: round $border-blurred; }
    HexView:focus { border: round $primary; border-title-color: $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_lines(-1)", "Up", show=False),
        Binding("down,j", "scroll_lines(1)", "Down", show=False),
        Binding("g,home", "scroll_home", "First", show=False),
        Binding("G,end", "scroll_end", "Last", show=False),
    ]

    def __init__(self, palette: Palette, id: str):
        super().__init__(id=id)
        self.palette = palette
        self.frame = b""
        self.hidden: list[Range] = []
        self.marked: Range | None = None

    @property
    def per_line(self) -> int:
        """Bytes in a line: 16 where they fit."""
        return 16 if self.size.width >= 6 + 16 * 4 + 3 else 8

    def show(self, frame: bytes, hidden: list[Range]) -> None:
        """Take another frame; byte ranges in `hidden` are not shown."""
        self.frame, self.hidden, self.marked = frame, sorted(hidden), None
        self._measure()

    def _measure(self) -> None:
        lines = -(-len(self.frame) // self.per_line)
        self.virtual_size = Size(0, lines)
        self.refresh()

    def mark(self, span: Range | None) -> None:
        """Let a span stand out, and bring its start into sight."""
        if span == self.marked:
            return
        self.marked = span
        if span is not None:
            first, last = span[0] // self.per_line, max(span[1] - 1, span[0]) // self.per_line
            top, height = self.scroll_offset.y, max(self.size.height, 1)
            if first < top or last >= top + height:
                self.scroll_to(y=max(first - (1 if height > 3 else 0), 0), animate=False)
        self.refresh()

    def on_resize(self) -> None:
        self._measure()
        marked, self.marked = self.marked, None
        self.mark(marked)

    def action_scroll_lines(self, lines: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + lines, animate=False)

    def action_scroll_home(self) -> None:
        self.scroll_to(y=0, animate=False)

    def action_scroll_end(self) -> None:
        self.scroll_to(y=self.virtual_size.height, animate=False)

    def _is_hidden(self, at: int) -> bool:
        return any(start <= at < end for start, end in self.hidden)

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
            segments.append(Segment(pair, style))
            segments.append(Segment(" " if i % 8 != 7 else "  ", gap_style if i % 8 != 7 else base))
            text.append(Segment(letter, style if low <= at < high else base + role))
        return Strip([*segments, *text]).crop_extend(0, width, base)
