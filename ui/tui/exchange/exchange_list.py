"""The exchange list: rows of a capture through a `RowView`, with a chosen column, marks, highlights and colour rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from ....captures import Row
from ...safe import fit
from ...times import heading
from ..model.columns import INFO, USUAL, ListColumn, layout
from ..model.rows import RowView, SortOrder
from ..widgets.line_list import LineList
from ..widgets.palette import Cell, Role
from ..widgets.styled import StyledWidget


class ColumnTitles(StyledWidget):
    """The line of column titles above the list. The chosen column is marked; the one that is sorted by has an arrow."""

    DEFAULT_CSS = "ColumnTitles { height: 1; }"

    class Clicked(Message):
        """A click on a title."""

        def __init__(self, column: int):
            super().__init__()
            self.column = column

    def __init__(self, lines: ExchangeList):
        super().__init__()
        self.lines = lines

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        base = self.rich_style + self.palette.muted + Style(underline=True)
        segments = [Segment(" ", base)]
        for i, (column, cells) in enumerate(self.lines.columns()):
            title = heading(column.title) if column.field == "time" else column.title
            if self.lines.sorted_by and self.lines.sorted_by.title == column.title:
                title = ("v" if self.lines.sorted_by.descending else "^") + title
            style = base + self.palette.title if i == self.lines.source.cell else base
            segments += [Segment(fit(title, cells, column.right), style), Segment(" ", base)]
        return Strip(segments).crop_extend(0, width, base)

    def on_click(self, event: events.Click) -> None:
        at = 1
        for i, (_, cells) in enumerate(self.lines.columns()):
            if at <= event.x <= at + cells:
                self.post_message(self.Clicked(i))
            at += cells + 1


class ExchangeLines:
    """Rows of a capture. `tint_of(row)`: the role of the row's background, or ""; `comment(row)`: the comment on a marked row,
    None for others; `info(row)`: the text of `INFO`, None for a capture without messages; `cell`: the chosen column, -1 for
    none."""

    def __init__(self, view: RowView):
        self.view = view
        self.wanted: Sequence[str] = USUAL
        self.cell = -1
        self.tint_of: Callable[[Row], Role] = lambda row: ""
        self.comment: Callable[[Row], str | None] = lambda row: None
        self.info: Callable[[Row], str] | None = None

    def columns(self, width: int) -> tuple[tuple[ListColumn, int], ...]:
        """The columns with their widths, `width` cells together, without the scroll bar and the marker."""
        return layout(width + 2, width + 1, self.wanted, self.info is not None)

    def count(self) -> int:
        return len(self.view)

    def state(self, position: int, width: int) -> object:
        row = self.view.row(position)
        return row, self.tint_of(row), self.comment(row)

    def tint(self, position: int) -> Role:
        return self.tint_of(self.view.row(position))

    def cells(self, position: int, width: int, chosen: bool) -> list[Cell]:
        row, number = self.view.row(position), self.view.number(position) + 1
        found: list[Cell] = []
        comment = self.comment(row)
        columns = self.columns(width)
        for i, (column, cells) in enumerate(columns):
            text, role = column.cell(number, row)
            if column.title == INFO and self.info is not None:
                text = self.info(row)
            if comment is not None and column is columns[-1][0]:
                text = f"{text.rstrip()}  * {comment}"
            mark = comment is not None and column.title == "No"
            if chosen and i == self.cell:
                found += [(fit(text, cells, column.right), "cell"), (" ", "")]
            else:
                found.append((fit(text, cells, column.right) + " ", "marked" if mark else role))
        return found


class ExchangeList(LineList):
    """The list of exchanges."""

    source: ExchangeLines

    def __init__(self, view: RowView):
        super().__init__(ExchangeLines(view))
        self.view = view
        self.sorted_by: SortOrder | None = None

    def columns(self) -> tuple[tuple[ListColumn, int], ...]:
        """The columns with their widths, without the cells of the scroll bar and the marker."""
        return self.source.columns(self.app.size.width - 2)

    @property
    def column(self) -> ListColumn | None:
        """The chosen column; while none is chosen the result, or else the last one."""
        columns = [column for column, _ in self.columns()]
        if columns and self.source.cell < 0:
            return next((column for column in columns if column.field == "err"), columns[-1])
        return columns[min(self.source.cell, len(columns) - 1)] if columns else None

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self.view.row(self.cursor) if self.cursor < len(self.view) else None

    def move_cell(self, step: int) -> None:
        """Choose the next column."""
        last, cell = len(self.columns()) - 1, self.source.cell
        self.source.cell = max(0, min((last if cell < 0 and step < 0 else cell) + step, last))
        self.refresh_line(self.cursor)
        self.post_message(self.Moved(self))
