"""The detail screen: one exchange, its request and its response as field trees, and the bytes."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen

from ...captures import Capture, Row
from ...decoder import Exchange, facts
from .bars import Bar, KeyBar
from .columns import Cell, api, client_name, clock, duration, result
from .field_tree import FieldTree
from .fields import Tree, request_tree, response_tree
from .help import DETAIL_KEYS, HelpScreen
from .hex_view import HexView
from .palette import Palette
from .rows import RowView
from .safe import visible

STACKED_BELOW = 100
"""Columns; narrower than this, the response stands below the request."""


class DetailScreen(Screen[int]):
    """Shows the exchange at a position of a `RowView`; gives back the position it was left at."""

    DEFAULT_CSS = """
    DetailScreen { layout: vertical; }
    DetailScreen #panes { layout: horizontal; height: 1fr; }
    DetailScreen FieldTree { width: 1fr; height: 1fr; }
    DetailScreen #bytes { height: 40%; display: none; }
    DetailScreen.stacked #panes { layout: vertical; }
    DetailScreen.hex #bytes { display: block; }
    DetailScreen.stacked.hex #panes FieldTree { display: none; }
    DetailScreen.stacked.hex #panes FieldTree.chosen { display: block; }
    DetailScreen #reason { display: none; }
    DetailScreen.explained #reason { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "Back", show=False),
        Binding("h", "bytes", "Bytes", show=False),
        Binding("v", "values", "Values", show=False),
        Binding("left_square_bracket", "step(-1)", "Previous", show=False),
        Binding("right_square_bracket", "step(1)", "Next", show=False),
        Binding("exclamation_mark", "next_error", "Error", show=False),
        Binding("tab", "pane(1)", "Pane", show=False, priority=True),
        Binding("shift+tab", "pane(-1)", "Pane", show=False, priority=True),
        Binding("question_mark", "help", "Help", show=False),
    ]

    def __init__(self, capture: Capture, view: RowView, position: int, palette: Palette):
        super().__init__()
        self.capture, self.view, self.position, self.palette = capture, view, position, palette
        self.values_shown = False
        self.row: Row | None = None
        self.exchange = Exchange()
        self.title_bar, self.reason = Bar(palette, id="headline"), Bar(palette, id="reason")
        self.request = FieldTree(palette, "Request", id="request")
        self.response = FieldTree(palette, "Response", id="response")
        self.bytes = HexView(palette, id="bytes")
        self.key_bar = KeyBar(palette)
        self.chosen = self.response

    def compose(self) -> ComposeResult:
        yield self.title_bar
        yield self.reason
        with Container(id="panes"):
            yield self.request
            yield self.response
        yield self.bytes
        yield self.key_bar

    def on_mount(self) -> None:
        self.key_bar.keys(
            ("Tab", "pane"),
            ("Enter", "fold"),
            ("h", "bytes"),
            ("v", "values"),
            ("[ ]", "next"),
            ("!", "error"),
            ("Esc", "back"),
            ("?", "help"),
        )
        self.set_class(self.app.size.width < STACKED_BELOW, "stacked")
        self.open(self.position)

    def on_resize(self) -> None:
        self.set_class(self.app.size.width < STACKED_BELOW, "stacked")

    # --- what is shown -------------------------------------------------------------------------------------

    def open(self, position: int) -> None:
        """Read the exchange at `position` and show it."""
        self.position = position
        self.row = self.view.row(position)
        self.exchange = self.capture.exchange(self.row)
        self._show(keep_place=False)
        request_only = not self.response.tree_shown.frame or self.request.tree_shown.fault
        self.choose(self.request if request_only else self.response)
        self.chosen.focus()
        if self.row.error:
            self.action_next_error()
        elif self.chosen.tree_shown.fault:
            self.chosen.move_to_field(len(self.chosen.tree_shown.fields) - 1)

    def _show(self, keep_place: bool) -> None:
        row = self.row
        if row is None:
            return
        request = request_tree(self.exchange, self.values_shown)
        response = response_tree(self.exchange, self.values_shown)
        self.request.show(request, keep_place)
        self.response.show(response, keep_place)
        version = f"v{row.api_version}"
        self.request.border_title = f"Request {version}{_octets(request)}"
        said = self.exchange.response_message
        fallback = said is not None and said.api_version != row.api_version
        answered = f"v{said.api_version} (fallback)" if fallback and said is not None else version
        self.response.border_title = f"Response {answered if response.frame else ''}{_octets(response)}"
        self._headline(row)
        reason = self._reason(row, request, response)
        self.reason.show(reason)
        self.set_class(bool(reason), "explained")
        self._bytes_of(self.chosen)

    def _headline(self, row: Row) -> None:
        number = self.view.number(self.position) + 1
        outcome, role = result(row)
        latency = "" if row.latency_ns is None else f"  {duration(row.latency_ns)}"
        left: list[Cell] = [
            (f" #{number} ", "label"),
            (f" {api(row)} v{row.api_version} ", "title"),
            (f" {outcome.strip()}", role),
            (f"{latency}  {client_name(row)}", ""),
            (f"  {visible(row.client)} -> {visible(row.broker)}", "muted"),
            (f"  {clock(row.time_ns)}  correlation id {row.correlation_id}", "muted"),
        ]
        self.title_bar.show(left, [(" VALUES SHOWN ", "warning")] if self.values_shown else [])

    def _reason(self, row: Row, request: Tree, response: Tree) -> list[Cell]:
        """Why this exchange needs explaining: what was not understood, the error, what a rule did."""
        cells: list[Cell] = []
        for side, tree in (("request", request), ("response", response)):
            if tree.fault:
                cells.append((f" ? {side} undecoded: {tree.fault} ", "undecoded"))
        said = self.exchange.response_message
        errors = list(said.errors()) if said is not None else []
        if row.error:
            fact = facts.errors().get(row.error)
            again = "clients may try again" if fact and fact.retriable else "trying again gives the same"
            kind = (
                "not in any known release" if fact is None else f"{'' if fact.retriable else 'not '}retriable: {again}"
            )
            cells.append((f" ! {facts.error_name(row.error)} ({row.error})", "error"))
            cells.append((f" {kind}", ""))
        marks = self.exchange.marks
        notes = [
            note
            for name in ("notes", "broker_request_notes", "broker_response_notes")
            for note in marks.get(name) or ()
        ]
        if notes:
            cells.append((f"  {visible('; '.join(map(str, notes)))}", "waiting"))
        elif row.changed:
            cells.append(("  changed on the way: client and broker saw different bytes", "waiting"))
        if row.surplus:
            sides = [
                f"{n} B behind the {s}"
                for n, s in zip(self.exchange.surplus, ("request", "response"), strict=True)
                if n
            ]
            cells.append((f" ? surplus: {', '.join(sides)}", "undecoded"))
        if errors:
            more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
            cells.append((f"  at {errors[0][0]}{more}", "muted"))
        return cells

    # --- panes ---------------------------------------------------------------------------------------------

    def choose(self, pane: FieldTree) -> None:
        """Make a tree the one whose bytes are shown."""
        self.chosen = pane
        self.request.set_class(pane is self.request, "chosen")
        self.response.set_class(pane is self.response, "chosen")
        self._bytes_of(pane)

    def _bytes_of(self, pane: FieldTree) -> None:
        if not self.has_class("hex"):
            return
        tree = pane.tree_shown
        if self.bytes.frame is not tree.frame or self.bytes.hidden != sorted(tree.hidden):
            self.bytes.show(tree.frame, tree.hidden)
        side = "request" if pane is self.request else "response"
        hidden = "  ·· record bytes hidden, v shows them" if tree.hidden else ""
        self.bytes.border_title = f"Bytes of the {side} (without the 4 size bytes){hidden}"
        field = pane.current
        self.bytes.mark(field.span if field else None)
        self.bytes.border_subtitle = (
            f"{field.path or field.name} @{field.span[0]}+{field.span[1] - field.span[0]}"
            if field and field.span
            else ""
        )

    def on_field_tree_moved(self, event: FieldTree.Moved) -> None:
        if event.field_tree is not self.chosen and event.field_tree.has_focus:
            self.choose(event.field_tree)
        elif event.field_tree is self.chosen:
            self._bytes_of(self.chosen)

    def action_pane(self, step: int) -> None:
        panes: list[FieldTree | HexView] = [self.request, self.response]
        if self.has_class("hex"):
            panes.append(self.bytes)
        at = next((i for i, pane in enumerate(panes) if pane.has_focus), 0)
        pane = panes[(at + step) % len(panes)]
        if isinstance(pane, FieldTree):
            self.choose(pane)
        pane.focus()

    def action_bytes(self) -> None:
        self.toggle_class("hex")
        if not self.has_class("hex") and self.bytes.has_focus:
            self.chosen.focus()
        # The pane gets its size first, so that the marked bytes come into sight.
        self.call_after_refresh(self._bytes_of, self.chosen)

    def action_values(self) -> None:
        self.values_shown = not self.values_shown
        self._show(keep_place=True)

    def action_step(self, step: int) -> None:
        position = self.position + step
        if 0 <= position < len(self.view):
            self.open(position)
        else:
            self.notify("This is the first exchange." if step < 0 else "This is the last exchange.", timeout=2)

    def action_next_error(self) -> None:
        """The next field with an error code that is not 0, around the end."""
        tree = self.response
        fields = tree.tree_shown.fields
        errors = [i for i, field in enumerate(fields) if field.error]
        if not errors:
            self.notify("No error code in this response.", timeout=2)
            return
        following = [i for i in errors if i > tree.position]
        self.choose(tree)
        tree.focus()
        tree.move_to_field((following or errors)[0])

    def action_back(self) -> None:
        self.dismiss(self.position)

    def action_help(self) -> None:
        self.app.push_screen(HelpScreen(self.palette, "Keys: one exchange", DETAIL_KEYS))

    def look_again(self) -> None:
        """Something may have been added to a live recording: read this exchange again if its row is another now."""
        row = self.view.row(self.position)
        if row != self.row:
            self.row, self.exchange = row, self.capture.exchange(row)
            self._show(keep_place=True)


def _octets(tree: Tree) -> str:
    return f"  {len(tree.frame)} B" if tree.frame else "  none"
