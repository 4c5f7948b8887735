"""A list of any length that is drawn by line, from the rows on the screen only."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...safe import fit
from ..keys import bindings
from .palette import Cell, Role
from .styled import StyledWidget, scroll_to_line


class Lines(Protocol):
    """What a `LineList` shows."""

    def count(self) -> int:
        """How many rows there are."""

    def cells(self, position: int, width: int, chosen: bool) -> list[Cell]:
        """The row as (text, role); texts must be `safe.visible`. `chosen`: the cursor is on it."""

    def state(self, position: int, width: int) -> object:
        """The values that the row is drawn from: when they differ, it is redrawn."""

    def tint(self, position: int) -> Role:
        """The role of the whole row's background; "" for none."""
        return ""


class LineList(ScrollView, StyledWidget, can_focus=True):
    """The rows of `source`, with a cursor. `following`: the cursor stays on the last row."""

    DEFAULT_CSS = """
    LineList { height: 1fr; overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("list")

    class Opened(Message):
        """Enter, or a click on the cursor row: open what is at this position."""

        def __init__(self, lines: LineList, position: int):
            super().__init__()
            self.lines, self.position = lines, position

    class Moved(Message):
        """The cursor is on another row, or the row under it has changed."""

        def __init__(self, lines: LineList):
            super().__init__()
            self.lines = lines

    def __init__(self, source: Lines, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.source = source
        self.cursor = 0
        self.following = False
        self._drawn: dict[int, object] = {}
        self._base = Style()
        self._styles: dict[tuple[int, Role], Style] = {}
        self._kept: list[Style] = []
        self._shown = -1

    def count(self) -> int:
        """How many rows there are."""
        return self.source.count()

    # --- painting ------------------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        # Adding styles is the most expensive part of a line, so it is done once for all lines.
        self._base, self._styles, self._kept = self.rich_style, {}, []
        return super().render_lines(crop)

    def _style(self, base: Style, role: Role) -> Style:
        found = self._styles.get((id(base), role))
        if found is None:
            found = self._styles[id(base), role] = base + self.palette.of(role)
            self._kept.append(base)
        return found

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        position = self.scroll_offset.y + y
        base = self._base
        if not 0 <= position < self.count():
            return Strip.blank(width, base)
        self._drawn[position] = self.source.state(position, self.size.width)
        marker, tint = " ", self.source.tint(position)
        if tint:
            base += self.palette.of(tint)
        if position == self.cursor:
            base += self.palette.cursor if self.has_focus else self.palette.cursor_away
            marker = ">"
        segments = [Segment(marker, base)]
        segments += [Segment(text, self._style(base, role)) for text, role in self.source.cells(position, width - 1, position == self.cursor)]
        strip = Strip(segments)
        if strip.cell_length > width:
            return Strip([*strip.crop(0, width - 1), Segment(fit("…", 1), base)])
        return strip.extend_cell_length(width, base)

    def rows_changed(self) -> bool:
        """Redraw the rows on the screen that are new or have changed. Returns whether there were any."""
        count = self.count()
        changed = count != self._shown
        if changed:
            self._shown = count
            self.virtual_size = Size(0, count)
            if self.following or self.cursor >= count:
                self.move_to(count - 1, keep_following=True)
                self._drawn.clear()  # every line has moved
                self.refresh()
                return True
        top, bottom = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        self._drawn = {p: state for p, state in self._drawn.items() if top <= p < min(bottom, count)}
        for position in range(top, min(bottom, count)):
            if position not in self._drawn or self._drawn[position] != self.source.state(position, self.size.width):
                self.refresh_line(position)
                changed = True
                if position == self.cursor:
                    self.post_message(self.Moved(self))
        return changed

    def restart(self) -> None:
        """The source has other rows: go to the first one, or to the last when following."""
        self._drawn.clear()
        self._shown = self.count()
        self.virtual_size = Size(0, self._shown)
        self.refresh()
        self.move_to(self._shown - 1 if self.following else 0, keep_following=True)

    # --- moving --------------------------------------------------------------------------------------------

    def move_to(self, position: int, keep_following: bool = False) -> None:
        """Put the cursor on a position and scroll to it. Ends following, unless `keep_following`."""
        position = max(0, min(position, self.count() - 1))
        if not keep_following:
            self.following = False
        old, self.cursor = self.cursor, position
        scroll_to_line(self, position)
        self.refresh_line(old)
        self.refresh_line(position)
        self.post_message(self.Moved(self))

    def move_to_next(self, step: int, wanted: Callable[[int], bool]) -> bool:
        """Go to the next position that is `wanted`, after the last one to the first. Returns whether there is one."""
        count = self.count()
        for i in range(1, count + 1):
            position = (self.cursor + step * i) % count
            if wanted(position):
                self.move_to(position)
                return True
        return False

    def shift(self, rows: int) -> None:
        """`rows` rows were inserted at the start: the cursor and the scroll position stay on their rows."""
        self._drawn.clear()
        self._shown = self.count()
        self.virtual_size = Size(0, self._shown)
        self.cursor += rows
        self.scroll_to(y=self.scroll_offset.y + rows, animate=False)
        self.refresh()

    def action_move(self, lines: int) -> None:
        self.move_to(self.cursor + lines)

    def action_page(self, pages: int) -> None:
        self.move_to(self.cursor + pages * max(self.size.height - 1, 1))

    def action_first(self) -> None:
        self.move_to(0)

    def action_last(self) -> None:
        self.move_to(self.count() - 1)

    def action_open(self) -> None:
        if self.count():
            self.post_message(self.Opened(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        position = self.scroll_offset.y + event.y
        if position >= self.count():
            return
        again = position == self.cursor or event.chain > 1
        self.move_to(position)
        if again:
            self.action_open()

    def on_mouse_scroll_up(self) -> None:
        self.following = False
        self.post_message(self.Moved(self))

    def on_resize(self) -> None:
        self.refresh()
        self.move_to(self.count() - 1 if self.following else self.cursor, keep_following=True)

    def on_focus(self) -> None:
        self.refresh_line(self.cursor)

    def on_blur(self) -> None:
        self.refresh_line(self.cursor)


class TableLines(Lines):
    """The rows of a `Table`."""

    def __init__(self) -> None:
        self.rows: list[list[Cell]] = []

    def count(self) -> int:
        return len(self.rows)

    def cells(self, position: int, width: int, chosen: bool) -> list[Cell]:
        return self.rows[position]

    def state(self, position: int, width: int) -> object:
        return self.rows[position]


class Table(LineList):
    """A `LineList` of rows that were made beforehand."""

    source: TableLines

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(TableLines(), id=id)

    @property
    def rows(self) -> list[list[Cell]]:
        """What is shown."""
        return self.source.rows

    def show(self, rows: list[list[Cell]]) -> None:
        """Show other rows; the cursor stays at its position if there is one."""
        if rows == self.rows and self._shown >= 0:
            return
        self.source.rows = rows
        self._shown = len(rows)
        self.virtual_size = Size(0, len(rows))
        self.refresh()
        self.move_to(self._shown - 1 if self.following else self.cursor, keep_following=True)
