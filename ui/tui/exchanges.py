"""The first screen: the list of exchanges, live or of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Center, Middle
from textual.screen import Screen
from textual.widgets import Input, Static

from ...captures import Capture, Row
from ...decoder import facts
from .bars import Bar, KeyBar
from .columns import Cell, api, client_name, is_problem, result, search_text, sizes
from .detail import DetailScreen
from .exchange_list import ColumnTitles, ExchangeList
from .help import LIST_KEYS, HelpScreen
from .palette import Palette
from .rows import RowView, Test
from .safe import visible

LIVE_SECONDS = 0.1
STATUS_SECONDS = 1.0


class ExchangesScreen(Screen[None]):
    """Rows of a capture; see `BarnabasApp` for the arguments."""

    DEFAULT_CSS = """
    ExchangesScreen { layout: vertical; }
    ExchangesScreen #search { display: none; height: 1; border: none; padding: 0 1; background: $panel; }
    ExchangesScreen #empty { display: none; height: 1fr; }
    ExchangesScreen #empty Static { width: auto; max-width: 90%; }
    ExchangesScreen.empty #empty { display: block; }
    ExchangesScreen.empty ExchangeList, ExchangesScreen.empty ColumnTitles { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("F", "follow", "Follow", show=False),
        Binding("E", "errors", "Errors", show=False),
        Binding("slash", "search", "Search", show=False),
        Binding("escape", "clear", "Clear", show=False),
        Binding("q", "leave", "Quit", show=False),
        Binding("question_mark", "help", "Help", show=False),
    ]
    AUTO_FOCUS = "ExchangeList"

    def __init__(self, capture: Capture, palette: Palette, *, title: str, live: bool, status: Callable[[], str] | None):
        super().__init__()
        self.capture, self.palette, self.live = capture, palette, live
        self.headline, self.status = visible(title), status
        self.view = RowView(capture.rows())
        self.errors_only = False
        self.wanted = ""
        self.status_bar = Bar(palette, id="status")
        self.header, self.about, self.key_bar = Bar(palette, id="header"), Bar(palette, id="about"), KeyBar(palette)
        self.list = ExchangeList(self.view, palette)
        self.list.following = live

    def compose(self) -> ComposeResult:
        yield self.header
        if self.status is not None:
            yield self.status_bar
        yield Input(placeholder="search in API, client, broker, result", id="search")
        yield ColumnTitles(self.palette)
        yield self.list
        with Middle(id="empty"), Center():
            yield Static(self._empty_text(), markup=False)
        yield self.about
        yield self.key_bar

    def on_mount(self) -> None:
        self.key_bar.keys(
            ("Enter", "open"),
            ("F", "follow"),
            ("E", "errors"),
            ("/", "search"),
            ("g G", "ends"),
            ("?", "help"),
            ("Q", "quit"),
        )
        self.query_one("#search", Input).can_focus = False
        self._read_status()
        if self.live:
            self.set_interval(LIVE_SECONDS, self._refresh_live)
            self.set_interval(STATUS_SECONDS, self._read_status)
        # Not a repeating timer: a finished search of a file must cost nothing.
        self._searching = self.set_interval(0.03, self._search_on, pause=True)
        self._take_in()

    # --- what is new ---------------------------------------------------------------------------------------

    def _refresh_live(self) -> None:
        if not self.capture.refresh() and not self.view.searching:
            return
        self._take_in()

    def _read_status(self) -> None:
        if self.status is not None:
            self.status_bar.show([(f" {visible(self.status())}", "muted")])
        self._describe()

    def _search_on(self) -> None:
        self._take_in()
        if not self.view.searching:
            self._searching.pause()

    def _take_in(self) -> None:
        """Search new rows, and repaint what changed."""
        if self.view.searching:
            self.view.search()
            if self.view.searching:
                self._searching.resume()
        self.set_class(not len(self.capture.rows()), "empty")
        self.list.rows_changed()
        self._describe()
        if isinstance(self.app.screen, DetailScreen):
            self.app.screen.look_again()

    def _describe(self) -> None:
        """The header line: live or file, counts, filter, follow, losses."""
        total = len(self.view.rows)
        left: list[Cell] = [(" LIVE " if self.live else " FILE ", "label"), (f" {self.headline}", "title")]
        if self.live and not self.capture.live:
            left.append((" (recording ended)", "muted"))
        count = f"{total:,} exchanges" if total != 1 else "1 exchange"
        if self.view.test is not None:
            share = f" {100 * self.view.searched // max(total, 1)}%" if self.view.searching else ""
            count = f"{len(self.view):,} of {count}{share}"
        right: list[Cell] = [(f"  {count}", "")]
        if self.errors_only:
            right.append((" errors only", "error"))
        if self.wanted:
            right.append((f' "{visible(self.wanted)}"', "key"))
        if self.status is None:
            lost = sum(octets for _, _, octets in self.capture.lost)
            right.append((f"  lost {lost} B" if lost else "  lost 0", "error" if lost else "muted"))
        if self.live:
            right.append(
                ("  follow ON " if self.list.following else "  follow off ", "ok" if self.list.following else "muted")
            )
        note = self.capture.note
        self.header.show(left, [*right, (" ", "")])
        self._about(visible(note) if note else "")

    def _about(self, note: str) -> None:
        """The line below the list: everything about the row under the cursor, or why there is none."""
        row = self.list.current
        if row is not None:
            self.about.show(_about_row(row), [(f" ? {note} ", "undecoded")] if note else [])
        elif self.view.test is not None:
            searched = f" {self.view.searched:,} exchanges searched, none matches. Esc shows all again."
            self.about.show([(searched, "waiting")])
        else:
            self.about.show([(f" {note}", "undecoded")] if note else [])

    def _empty_text(self) -> str:
        if self.live:
            return (
                f"Listening, 0 exchanges so far.\n\n{self.headline}\n\n"
                "Set your client's bootstrap.servers to the proxy's address.\n"
                "Answers that name brokers are rewritten, so clients stay on the proxy.\n"
                "Plain TCP only: a client that speaks TLS shows up as not Kafka."
            )
        return f"No exchange in this capture.\n\n{visible(str(self.capture.path))}"

    # --- keys ----------------------------------------------------------------------------------------------

    def on_exchange_list_moved(self) -> None:
        self._describe()

    def on_exchange_list_opened(self, event: ExchangeList.Opened) -> None:
        self.list.following = False
        self.app.push_screen(DetailScreen(self.capture, self.view, event.position, self.palette), self._came_back)

    def _came_back(self, position: int | None) -> None:
        if position is not None:
            self.list.move_to(position)

    def action_follow(self) -> None:
        self.list.following = not self.list.following
        if self.list.following:
            self.list.move_to(len(self.view) - 1, keep_following=True)
        self._describe()

    def action_errors(self) -> None:
        self.errors_only = not self.errors_only
        self._show_only()

    def action_search(self) -> None:
        box = self.query_one("#search", Input)
        # Not by a class: it must be there at once to get the letters that follow.
        box.display, box.can_focus = True, True
        self.set_focus(box)

    @on(Input.Changed, "#search")
    def _search_typed(self, event: Input.Changed) -> None:
        self.wanted = event.value.strip()
        self._show_only()

    @on(Input.Submitted, "#search")
    def _search_kept(self) -> None:
        self._leave_search()

    def _leave_search(self) -> None:
        box = self.query_one("#search", Input)
        self.set_focus(self.list)
        box.display, box.can_focus = bool(self.wanted), False

    def action_clear(self) -> None:
        """Leave the search line, and show everything again."""
        self.errors_only, self.wanted = False, ""
        self.query_one("#search", Input).value = ""
        self._leave_search()
        self._show_only()

    def _show_only(self) -> None:
        """Show what passes the search and the errors switch, with the cursor on the same exchange where possible."""
        here = self.view.number(self.list.cursor) if self.list.current is not None else None
        self.view.show(_test(self.errors_only, self.wanted.lower()))
        self.view.search()
        self.list.restart()
        if here is not None and not self.list.following:
            self.list.move_to(self.view.position(here) or 0)
        self._take_in()

    def action_leave(self) -> None:
        if self.live:
            self.notify("This view is live. Q quits.", timeout=2)
        else:
            self.app.exit()

    def action_help(self) -> None:
        self.app.push_screen(HelpScreen(self.palette, "Keys: exchanges", LIST_KEYS))


def _test(errors_only: bool, wanted: str) -> Test | None:
    if not errors_only and not wanted:
        return None

    def passes(row: Row) -> bool:
        return (not errors_only or is_problem(row)) and (not wanted or wanted in search_text(row))

    return passes


def _about_row(row: Row) -> list[Cell]:
    outcome, role = result(row)
    fact = facts.errors().get(row.error) if row.error else None
    retriable = "" if fact is None else " (retriable)" if fact.retriable else " (not retriable)"
    return [
        (f" #{row.number + 1} ", "muted"),
        (f"{api(row)} v{row.api_version} ", "title"),
        (f"{outcome.strip()}{retriable} ", role),
        (f" {client_name(row)} ", ""),
        (f" {visible(row.client)} -> {visible(row.broker)}  {sizes(row)} B", "muted"),
        (f"  conn {row.connection}  correlation id {row.correlation_id}", "muted"),
    ]
