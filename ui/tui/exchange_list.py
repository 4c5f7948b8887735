"""The exchange list, drawn by line: it asks only for the rows that are on the screen, however many there are."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from ...captures import Row
from .columns import layout
from .palette import Palette
from .rows import RowView
from .safe import fit


class ColumnTitles(Widget):
    """The line of column titles above the list."""

    DEFAULT_CSS = "ColumnTitles { height: 1; }"

    def __init__(self, palette: Palette):
        super().__init__()
        self.palette = palette

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        # The list below gives one cell to its scrollbar.
        columns = layout(width, width - 1)
        text = " " + "".join(fit(c.title, w, c.right) + " " for c, w in columns)
        return Strip([Segment(fit(text, width), self.rich_style + self.palette.muted + Style(underline=True))])


class ExchangeList(ScrollView, can_focus=True):
    """Rows of a `RowView` with a cursor. While `following`, the cursor stays on the newest row."""

    DEFAULT_CSS = """
    ExchangeList { height: 1fr; overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("g,home", "first", "First", show=False),
        Binding("G,end", "last", "Last", show=False),
        Binding("enter", "open", "Open", show=False),
    ]

    class Opened(Message):
        """Enter or a click on the cursor row: open the exchange at this position of the view."""

        def __init__(self, position: int):
            super().__init__()
            self.position = position

    class Moved(Message):
        """The cursor is on another row, or the row under it has changed."""

    def __init__(self, view: RowView, palette: Palette):
        super().__init__()
        self.view, self.palette = view, palette
        self.cursor = 0
        self.following = False
        self._painted: dict[int, Row] = {}
        self._shown = -1

    # --- painting ------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        position = self.scroll_offset.y + y
        base = self.rich_style
        if not 0 <= position < len(self.view):
            return Strip.blank(width, base)
        row = self.view.row(position)
        self._painted[position] = row
        marker = " "
        if position == self.cursor:
            base += self.palette.cursor if self.has_focus else self.palette.cursor_away
            marker = ">"
        segments = [Segment(marker, base)]
        number = self.view.number(position) + 1
        for column, cells in layout(self.app.size.width, width):
            text, role = column.cell(number, row)
            segments.append(Segment(fit(text, cells, column.right) + " ", base + self.palette.of(role)))
        return Strip(segments).crop_extend(0, width, base)

    def rows_changed(self) -> bool:
        """Take in that the view may have grown or rows have changed; repaints only what shows. True if anything did."""
        count = len(self.view)
        changed = count != self._shown
        if changed:
            self._shown = count
            self.virtual_size = Size(0, count)
            if self.following or self.cursor >= count:
                self.move_to(count - 1, keep_following=True)
        top, bottom = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        self._painted = {p: row for p, row in self._painted.items() if top <= p < bottom}
        for position in range(top, min(bottom, count)):
            row = self.view.row(position)
            if self._painted.get(position) != row:
                self.refresh_line(position)
                changed = True
                if position == self.cursor:
                    self.post_message(self.Moved())
        return changed

    def restart(self) -> None:
        """The view shows something else now: start again, at its end when following."""
        self._painted.clear()
        self._shown = len(self.view)
        self.virtual_size = Size(0, self._shown)
        self.refresh()
        self.move_to(self._shown - 1 if self.following else 0, keep_following=True)

    # --- moving --------------------------------------------------------------------------------------------

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self.view.row(self.cursor) if self.cursor < len(self.view) else None

    def move_to(self, position: int, keep_following: bool = False) -> None:
        """Put the cursor on a position and bring it into sight; moving by hand ends following."""
        position = max(0, min(position, len(self.view) - 1))
        if not keep_following:
            self.following = False
        old, self.cursor = self.cursor, position
        height = max(self.size.height, 1)
        top = self.scroll_offset.y
        if position < top:
            self.scroll_to(y=position, animate=False)
        elif position >= top + height:
            self.scroll_to(y=position - height + 1, animate=False)
        self.refresh_line(old)
        self.refresh_line(position)
        self.post_message(self.Moved())

    def action_move(self, lines: int) -> None:
        self.move_to(self.cursor + lines)

    def action_page(self, pages: int) -> None:
        self.move_to(self.cursor + pages * max(self.size.height - 1, 1))

    def action_first(self) -> None:
        self.move_to(0)

    def action_last(self) -> None:
        self.move_to(len(self.view) - 1)

    def action_open(self) -> None:
        if len(self.view):
            self.post_message(self.Opened(self.cursor))

    def on_click(self, event: events.Click) -> None:
        position = self.scroll_offset.y + event.y
        if position >= len(self.view):
            return
        if position == self.cursor or event.chain > 1:
            self.move_to(position)
            self.action_open()
        else:
            self.move_to(position)

    def on_mouse_scroll_up(self) -> None:
        self.following = False
        self.post_message(self.Moved())

    def on_resize(self) -> None:
        self.refresh()
        self.move_to(len(self.view) - 1 if self.following else self.cursor, keep_following=True)

    def on_focus(self) -> None:
        self.refresh_line(self.cursor)

    def on_blur(self) -> None:
        self.refresh_line(self.cursor)
