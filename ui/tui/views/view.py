"""The base of all views: the header, the tabs, the line about the cursor, and the key bar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Center, Middle
from textual.widget import Widget
from textual.widgets import Static

from ...safe import visible
from ..application import AppScreen
from ..keys import bar_words, bindings
from ..model.held_queue import held_cells
from ..model.session import Session
from ..widgets.styled import Bar, KeyBar, TabLine
from . import PLACES

if TYPE_CHECKING:
    from ..widgets.palette import Cell


class View(AppScreen[None]):
    """A screen behind a number key. A subclass gives its `number`, the `context` of its keys, and its widgets (`body`)."""

    DEFAULT_CSS = """
    View { layout: vertical; }
    View #empty { display: none; height: 1fr; }
    View #empty Static { width: auto; max-width: 90%; }
    View.empty #empty { display: block; }
    View.empty .body { display: none; }
    View.empty .body.keep { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("view")
    number: ClassVar[int] = 1
    needs_analysis: ClassVar[bool] = False
    """Whether the view shows `Session.analysis`, which then gets longer slices."""
    needs_statistics: ClassVar[bool] = False
    wanted: str = ""
    """The filter as it was typed, in a view with one."""

    def __init__(self) -> None:
        super().__init__()
        self.header, self.about, self.key_bar = Bar(id="header"), Bar(id="about"), KeyBar()
        self.empty_note = Static(Text(""), markup=False)
        self.tabs: TabLine | None = None
        self._panes: list[Widget] = []

    # --- what views replace --------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        """The widgets between the tabs and the line about the cursor."""
        return ()

    def update_rows(self) -> None:
        """Show the rows as they are now: called when the view is shown, and when something may have changed."""

    def work_slice(self) -> bool:
        """Do a slice of the view's own work. Returns whether there is more."""
        return False

    def empty_text(self) -> str:
        """The text in place of the view when it has nothing to show; "" when it has."""
        return ""

    def state_cells(self) -> list[Cell]:
        """Cells at the right of the header: counts, filter, follow."""
        return []

    # --- the frame -----------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        self.tabs = TabLine(tuple((p.name, p.short) for p in PLACES), self.number)
        yield self.header
        yield self.tabs
        self._panes = list(self.body())
        for widget in self._panes:
            widget.add_class("body")
            yield widget
        with Middle(id="empty"), Center():
            yield self.empty_note
        yield self.about
        yield self.key_bar

    def on_mount(self) -> None:
        self.key_bar.keys(*bar_words((self.context, "list", "app"), self.barnabas.settings.keys))
        self.update_view()

    def on_screen_resume(self) -> None:
        self.update_view()

    def update_view(self) -> None:
        """Show the view as it is now."""
        text = self.empty_text()
        self.set_class(bool(text), "empty")
        if text:
            self.empty_note.update(Text(text))
        self.update_rows()
        self.describe()

    def describe(self) -> None:
        """Draw the header and the tabs."""
        session = self.session
        capture = session.capture
        left: list[Cell] = [(" LIVE " if session.grows else " FILE ", "label"), (f" {session.title}", "title")]
        if session.grows and not capture.live:
            left.append((" (recording ended)", "muted"))
        right = [("  ", ""), *self.state_cells()]
        if session.status is None:
            lost = session.lost
            right.append((f"  lost {lost} B" if lost else "  lost 0", "error" if lost else "muted"))
        else:
            status, room = visible(session.status()), max(self.size.width // 2 - 20, 20)
            right.append((f"  {status if len(status) <= room else status[: room - 1] + '…'}", "muted"))
        if session.paused:
            right.append(("  PAUSED", "warning"))
        if session.control is not None:
            right += held_cells(session.held)
            right.append(
                ("  EDIT " if session.allow_edit else "  READ-ONLY ", "warning" if session.allow_edit else "muted")
            )
        self.header.show(left, [*right, (" ", "")])
        if self.tabs is not None and session.has_analysis:
            self.tabs.count(5, problems_count(session))
        if self.tabs is not None and session.control is not None:
            self.tabs.count(9, (f"={len(session.held)} ", "waiting") if len(session.held) else ("", ""))

    def on_tab_line_chosen(self, event: TabLine.Chosen) -> None:
        self.barnabas.action_view(event.number)

    def action_leave(self) -> None:
        if self.number != 1:
            self.barnabas.action_view(1)
        elif self.session.grows:
            self.notify("This view is live. Q quits.", timeout=2)
        else:
            self.app.exit()

    def action_pane(self) -> None:
        """The next of the panes that can have the focus."""
        self.screen.focus_next()


def problems_count(session: Session) -> Cell:
    """How many findings are high and medium, for the tab line."""
    result = session.analysis.result
    high, medium = result.high, result.medium
    if high:
        return f"!{high + medium} ", "error"
    return (f"{medium} ", "waiting") if medium else ("", "")
