"""The exchanges view: the list of exchanges, live or of a file, with its filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from ...safe import visible
from ..exchange import actions
from ..exchange.exchange_list import ColumnTitles, ExchangeList
from ..keys import bindings
from ..model.columns import INFO, TITLES, is_problem
from ..model.filter_terms import PROBLEMS, cell_term, combine, negate, resolve_filter
from ..model.rows import SORTS, RowTint, RowTints, RowView, SortOrder, is_slow, row_details, row_finder, sort
from ..model.session import Session
from ..model.settings import ColourRule
from ..widgets.filter_bar import FilterBar
from ..widgets.line_list import LineList
from ..widgets.palette import Cell
from .view import View

if TYPE_CHECKING:
    from ....captures import Row
    from ..model.exchange_info import ExchangeInfo, ExchangeInfos

LEARN_SECONDS = 0.004
"""Of a slice of work, for names of topic ids."""


class ExchangesScreen(View):
    """The rows of the capture that pass the filter."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("exchanges")
    AUTO_FOCUS = "ExchangeList"
    number = 1
    context = "exchanges"

    def __init__(self) -> None:
        super().__init__()
        self.errors_only = False
        self._highlight = ""
        self._began = 0.0

    def body(self) -> Iterable[Widget]:
        session, settings = self.session, self.barnabas.settings
        self.capture = session.capture
        self.view = RowView(self.capture.rows())
        self.list = ExchangeList(self.view)
        self.list.following = session.grows
        self.list.source.wanted = settings.columns or self.list.source.wanted
        self.list.source.comment = self._comment
        self.infos: ExchangeInfos | None = None
        if self.capture.has_frames:
            self.list.source.info = self._info_text
            self.call_after_refresh(self._load_infos)
        self.list.source.tint_of = self._row_tints()
        self.titles, self.bar = ColumnTitles(self.list), FilterBar(settings.filters, self._is_slow)
        return self.bar, self.titles, self.list

    def _is_slow(self, wanted: str) -> bool:
        return is_slow(wanted, self.capture)

    def _load_infos(self) -> None:
        """Once the first rows are there: what reads messages takes a while to import."""
        from ..model.exchange_info import ExchangeInfos

        self.infos = ExchangeInfos(self.capture)
        self.list.refresh()
        self._about()
        self.barnabas.work()

    def _info(self, row: Row) -> ExchangeInfo | None:
        return self.infos(row) if self.infos is not None else None

    def _info_text(self, row: Row) -> str:
        found = self._info(row)
        return found.text if found is not None else ""

    def _comment(self, row: Row) -> str | None:
        """The text after a row: that a frame of it is held, or the comment on it."""
        held = self.session.held.of_row(row.connection, row.correlation_id)
        if held is not None:
            return f"HELD {held.age():.0f}s: {held.side}"
        text = self.session.marks.comment(row)
        return None if text is None else visible(text)

    def _row_tints(self) -> RowTint:
        rules = [ColourRule(self._highlight, "lit")] if self._highlight else []
        return RowTints(self.capture, [*rules, *self.barnabas.settings.colours])

    # --- what is new ---------------------------------------------------------------------------------------

    def update_rows(self) -> None:
        self.view.search_waiting()
        if self.view.searching:
            self._found(self.view.search(0.01))
            self.barnabas.work()
        self.list.rows_changed()

    def work_slice(self) -> bool:
        infos = self.infos
        if infos is not None and infos.unlearned and infos.learn(LEARN_SECONDS):
            self.list.refresh()
            self._about()
        if self.view.searching:
            self._found(self.view.search())
            self.list.rows_changed()
            self.describe()
        return self.view.searching or (infos is not None and infos.unlearned)

    def _found(self, before: int) -> None:
        if before:
            self.list.shift(before)

    def describe(self) -> None:
        super().describe()
        self._about()

    def state_cells(self) -> list[Cell]:
        total = len(self.view.rows)
        count = f"{total:,} exchanges" if total != 1 else "1 exchange"
        if self.view.find is not None:
            count = f"{len(self.view):,} of {count}"
            if self.view.searching:
                done = self.view.searched / max(total, 1)
                left = (perf_counter() - self._began) * (1 - done) / max(done, 0.001)
                count += f" {int(100 * done)}%" + (f", {left:.0f} s left" if left >= 1 else "")
        right: list[Cell] = [(count, "")]
        if self.errors_only:
            right.append((" errors only", "error"))
        if self.wanted and not self.bar.open:
            right.append((f" {visible(self.wanted)[:60]}", "key"))
        if len(self.session.marks):
            right.append((f" {len(self.session.marks)} marked", "marked"))
        if self.session.grows:
            on = self.list.following
            right.append(("  follow ON " if on else "  follow off ", "ok" if on else "muted"))
        return right

    def _about(self) -> None:
        """Draw the line below the list: the row under the cursor in full, or why there is none."""
        note = visible(self.capture.note or self.session.marks.fault or "")
        row = self.list.current
        if row is not None:
            self.about.show(row_details(row, self._info_text(row)), [(f" ? {note} ", "undecoded")] if note else [])
        elif self.view.find is not None:
            more = "so far. Esc shows all" if self.view.searching else "no match. Esc shows all again."
            self.about.show([(f" {self.view.searched:,} exchanges searched, {more}", "waiting")])
        else:
            self.about.show([(f" {note}", "undecoded")] if note else [])

    def empty_text(self) -> str:
        if len(self.capture.rows()):
            return ""
        return nothing_yet(self.session)

    # --- rows ----------------------------------------------------------------------------------------------

    def on_line_list_moved(self) -> None:
        self._about()

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        if not self.capture.has_frames:
            self.notify("A feed has summaries only. Messages are in recordings: barnabas ui --attach newest.", timeout=4)
            return
        self.list.following = False
        self.barnabas.open_exchange(self.view, event.position, self._came_back)

    def _came_back(self, position: int | None) -> None:
        if position is not None:
            self.list.move_to(position)

    def action_follow(self) -> None:
        self.list.following = not self.list.following
        if self.list.following:
            if self.list.sorted_by is not None:
                self._sort(None)
            self.list.move_to(len(self.view) - 1, keep_following=True)
        self.describe()

    def action_pause(self) -> None:
        self.session.paused = not self.session.paused
        self.describe()

    def _here(self) -> int | None:
        return self.view.number(self.list.cursor) if self.list.current is not None else None

    def action_cell(self, step: int) -> None:
        self.list.move_cell(step)
        self.titles.refresh()

    def on_column_titles_clicked(self, event: ColumnTitles.Clicked) -> None:
        self.list.source.cell = event.column
        self.action_order()

    def action_order(self) -> None:
        if self.list.source.cell < 0:
            self.list.source.cell = 0
        column = self.list.column
        if column is not None and column.title not in SORTS:
            self.notify("Rows are not sorted by this column.", timeout=2)
            return
        if column is None or self.view.searching:
            self.notify("Still searching: sort when the search is done.", timeout=2)
            return
        now = self.list.sorted_by
        if now is None or now.title != column.title:
            self._sort(SortOrder(column.title, descending=False))
        else:
            self._sort(None if now.descending else SortOrder(column.title, descending=True))

    def _sort(self, by: SortOrder | None) -> None:
        here = self._here()
        sort(self.view, self.capture, by)
        self.list.sorted_by = by
        self.list.following = False
        self.list.restart()
        self.titles.refresh()
        if here is not None:
            self.list.move_to(self.view.position(here) or 0)
        self.describe()

    def action_columns(self) -> None:
        from ..dialogs.dialogs import Choose

        def chosen(titles: list[str] | None) -> None:
            if titles:
                self.list.source.wanted = titles
                self.list.source.cell = -1
                self.list.refresh()
                self.titles.refresh()

        self.app.push_screen(Choose("Columns", TITLES, [column.title for column, _ in self.list.columns()]), chosen)

    # --- marks and highlights ------------------------------------------------------------------------------

    def action_mark(self) -> None:
        row = self.list.current
        if row is not None:
            self.session.marks.set(row, None if self.session.marks.comment(row) is not None else "")
            self.list.rows_changed()
            self.describe()

    def action_comment(self) -> None:
        from ..dialogs.dialogs import AskDialog

        row = self.list.current
        if row is None:
            return

        def commented(text: str | None) -> None:
            if text is not None:
                self.session.marks.set(row, text)
                self.list.rows_changed()
                self.describe()

        self.app.push_screen(AskDialog(f"Comment on #{row.number + 1}", self.session.marks.comment(row) or ""), commented)

    def action_next_mark(self) -> None:
        self._go(1, lambda row: self.session.marks.comment(row) is not None, "No marked row.")

    def action_next(self, step: int) -> None:
        if self._highlight:
            self._go(step, lambda row: self.list.source.tint_of(row) == "lit", "No highlighted row.")
        else:
            self._go(step, is_problem, "No error here.")

    def _go(self, step: int, test: Callable[[Row], bool], nothing: str) -> None:
        """Go to the next row that passes, after the last one to the first; give up after half a second."""
        count, until = len(self.view), perf_counter() + 0.5
        for i in range(1, count + 1):
            position = (self.list.cursor + step * i) % count
            if test(self.view.row(position)):
                self.list.move_to(position)
                return
            if perf_counter() > until:
                self.notify(f"None among the next {i:,} rows: filter for it with /.", timeout=3)
                return
        self.notify(nothing, timeout=2)

    def action_highlight(self) -> None:
        self.bar.begin("highlight", self._highlight)

    # --- the filter ----------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # The filter's key has priority, so that keys typed right after it go into the filter and not to the list.
        return not (action == "filter" and self.bar.open)

    def action_filter(self) -> None:
        self.bar.begin("filter", self.wanted)

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        self.wanted = event.text
        self.apply()

    def on_filter_bar_kept(self, event: FilterBar.Kept) -> None:
        self.set_focus(self.list)
        if event.mode == "highlight":
            self._highlight = resolve_filter(event.text, self.bar.saved) if event.text else ""
            self.list.source.tint_of = self._row_tints()
            self.list.refresh()
            self.bar.leave(False)
        else:
            changed = self.wanted != event.text or self.view.find is None
            self.wanted = event.text
            self.bar.leave(bool(event.text))
            if changed:
                self.apply()
        self.describe()

    def on_filter_bar_given_up(self) -> None:
        self.action_clear()

    def action_clear(self) -> None:
        """Leave the filter line, and show everything again."""
        was_open, lighting = self.bar.open, self.bar.mode == "highlight"
        self.set_focus(self.list)
        if was_open and lighting:
            self.bar.leave(False)
            return
        if self._highlight and not self.wanted and not self.errors_only:
            self._highlight = ""
            self.list.source.tint_of = self._row_tints()
            self.list.refresh()
        self.errors_only, self.wanted = False, ""
        self.bar.set_text("")
        self.bar.leave(False)
        self.apply()

    def action_errors(self) -> None:
        self.errors_only = not self.errors_only
        self.apply()

    def action_narrow(self, exclude: bool) -> None:
        """Show only rows with the value under the cursor, or only those without it."""
        row, column = self.list.current, self.list.column
        if row is None or column is None:
            return
        if column.field == "":
            self.notify("Select a column first, with left and right.", timeout=2)
            return
        info = self._info(row) if column.title == INFO else None
        term = info.term if info is not None else cell_term(row, column.field)
        if not term:
            self.notify("There is no filter for this value.", timeout=2)
            return
        self.show_filter(combine(self.wanted, negate(term) if exclude else term), None)

    def action_stream(self) -> None:
        row = self.list.current
        if row is not None:
            self.show_filter(f"conn == {row.connection}", None)

    def action_dialogue(self) -> None:
        actions.show_conversation(self, self.list.current)

    def action_compare(self) -> None:
        actions.compare(self, self.list.current)

    def action_resend(self) -> None:
        actions.send_again(self, self.list.current)

    def action_export(self) -> None:
        actions.export_row(self, self.list.current, False, self._resolved(), len(self.view))

    def action_copy(self) -> None:
        """Copy the value in the chosen column; the line below the list while no column is chosen."""
        from ..exchange.copying import CopyFormat, copy, of_cell

        row, column = self.list.current, self.list.column
        if row is not None and column is not None:
            line = "".join(text for text, _ in row_details(row, self._info_text(row))).strip()
            copy(self.app, of_cell(row, column, self._info(row))[0] if self.list.source.cell >= 0 else CopyFormat("line", line))

    def action_copy_as(self) -> None:
        from ..exchange.copying import of_cell

        row, column = self.list.current, self.list.column
        actions.copy_row(self, row, False, [] if row is None or column is None else of_cell(row, column, self._info(row)))

    def show_filter(self, text: str, number: int | None) -> None:
        """Show the rows that `text` selects ("" changes nothing), with the cursor on row `number` of the capture."""
        if text:
            self.wanted, self.errors_only = text, False
            self.bar.history.add(text)
        elif number is not None and self.view.position(number) is None:
            self.wanted, self.errors_only = "", False
        else:
            text = self.wanted
        self.bar.set_text(self.wanted)
        self.bar.display = bool(self.wanted)
        self.apply(number)
        if number is not None:
            self.list.move_to(self.view.position(number) or 0)

    def _with_errors(self, text: str) -> str:
        return combine(PROBLEMS, text) if self.errors_only and text else PROBLEMS if self.errors_only else text

    def _resolved(self) -> str:
        """The filter of the rows that are shown; "" for all rows."""
        return self._with_errors(resolve_filter(self.wanted, self.bar.saved) if self.wanted and self.view.find is not None else "")

    def apply(self, around: int | None = None) -> None:
        """Start the search for the filter and the errors switch. The cursor stays on its exchange where possible."""
        from ....decoder.filter import FilterError

        here = around if around is not None else self._here()
        try:
            text = resolve_filter(self.wanted, self.bar.saved) if self.wanted else ""
        except FilterError as fault:
            self.notify(visible(str(fault)), severity="error", timeout=4)
            return
        if text and not self.capture.has_frames and is_slow(text, self.capture):
            self.notify("This filter needs messages, but a feed has summaries only.", severity="error", timeout=4)
            return
        text = self._with_errors(text)
        following = self.list.following
        start = len(self.view.rows) if following else here or 0
        self._began = perf_counter()
        self.list.sorted_by = None
        self.view.show(row_finder(self.capture, text) if text else None, start)
        self.view.search(0.006)  # rows near the cursor at once, the others between keys
        self.list.restart()
        if not following and here is not None:
            self.list.move_to(self.view.nearest(here))
        self.update_view()
        if self.view.searching:
            self.barnabas.work()


def nothing_yet(session: Session) -> str:
    """The text for a proxy without traffic so far, or a capture without an exchange."""
    if session.live and not session.grows and session.capture.live:
        return f"No exchanges so far; still reading.\n\n{visible(str(session.capture.path))}"
    if session.grows:
        return (
            f"Listening, 0 exchanges so far.\n\n{session.title}\n\n"
            "Set your client's bootstrap.servers to the proxy's address.\n"
            "Responses that name brokers are rewritten, so clients stay on the proxy.\n"
            "Plain TCP only, unless the proxy was given certificates: a client that\n"
            "uses TLS on a plaintext port is listed as not Kafka."
        )
    silent = sum(len(each.index.connections) for each in session.capture.segments)
    why = f"\n\nIt has {silent} connection{'s' * (silent != 1)} without a Kafka request; what they carried instead is under Problems." if silent else ""
    damage = f"\n\n{visible(session.capture.note)}" if session.capture.note else ""
    return f"No exchanges in this capture.\n\n{visible(str(session.capture.path))}{why}{damage}"
