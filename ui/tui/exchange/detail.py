"""The detail screen: the request and the response of one exchange as field trees, what the field under the cursor means, and
their bytes; an explanation of its error and API; and related exchanges, such as retries.
"""

from __future__ import annotations

import textwrap
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from ....captures import Capture, Row
from ....captures.reading.selection import select
from ....decoder import Exchange
from ....decoder.filter import compile
from ....decoder.reference import explain
from ....decoder.reference.fields import HEADER, INDEX, describe_field
from ....decoder.schema import facts
from ...safe import fit, visible
from ...times import clock
from ..application import AppScreen
from ..dialogs.dialogs import AskDialog, Pick, TextPages
from ..keys import bar_words, bindings
from ..model.columns import api, client_name, duration, expected, result
from ..model.filter_terms import api_term, combine, field_term
from ..model.rows import RowView, notes_on, row_summary
from ..widgets.field_tree import FieldTree, Tree, field_at
from ..widgets.hex_view import HexView
from ..widgets.palette import Cell, Palette
from ..widgets.styled import Bar, KeyBar
from . import actions
from .fields import request_tree, response_tree

AROUND = 3000
"""Rows before and after an exchange among which related ones are searched."""
_API_VERSIONS = facts.api_key("ApiVersions")


class Related(NamedTuple):
    """A related exchange: how it is related, and its row number."""

    relation: str
    number: int


def related(capture: Capture, row: Row) -> list[Related]:
    """Exchanges that are related to a row, the most important first."""
    rows = capture.rows()
    before = rows[max(row.number - AROUND, 0) : row.number]
    behind = rows[row.number + 1 : row.number + 1 + AROUND]
    found: list[Related] = []

    def add(what: str, row_found: Row | None) -> None:
        if row_found is not None and row_found.number not in (each.number for each in found):
            found.append(Related(what, row_found.number))

    same = [r for r in behind if r.api_key == row.api_key and r.client_id == row.client_id]
    later = [r for r in same if r.time_ns > row.time_ns]
    if row.error or row.state == "no_response":
        for again in later[:1]:
            add(f"retried{'' if again.error or again.state != 'paired' else ' successfully'}", again)
        add("retried successfully", next((r for r in later if not r.error and r.state == "paired"), None))
        if row.api_key != _API_VERSIONS:
            add("retried with another version", next((r for r in later if r.api_version != row.api_version), None))
    else:
        failed = [r for r in before if r.error and r.api_key == row.api_key and r.client_id == row.client_id]
        add("failed before", failed[-1] if failed else None)
    on = row.connection
    add("previous on this connection", next((r for r in reversed(before) if r.connection == on), None))
    add("next on this connection", next((r for r in behind if r.connection == on), None))
    add("the previous error, anywhere", next((r for r in reversed(before) if r.error), None))
    add("the next error, anywhere", next((r for r in behind if r.error), None))
    first = next(iter(select(capture, compile(f"conn == {on} and api == ApiVersions"))), None)
    if first is not None and first != row.number:
        add("versions offered on this connection", rows[first])
    return found


def why(exchange: Exchange, palette: Palette, width: int) -> Text:
    """The explanation, wrapped to `width` cells; the texts are those of ``barnabas explain``."""
    text = Text()
    codes = dict.fromkeys([exchange.error, *_codes(exchange)])
    for code in [c for c in codes if c][:4]:
        _error(text, code, exchange.api, palette, width)
    if exchange.api_key in facts.api_keys():
        found = explain.api(exchange.api_key)
        text.append(f"{found.name}", palette.title)
        text.append(f"  API {found.key}, sent by {', '.join(found.senders)}\n", palette.muted)
        text.append(_wrapped(found.purpose, width))
        for note in (*([found.waits] if found.waits else []), *found.notes):
            text.append(_wrapped(note, width, "  - "))
        of = {fact.version: fact for fact in found.versions}.get(exchange.api_version)
        if of is not None:
            since = f"since Kafka {of.since}" if of.since else "in no release"
            text.append(f"  - v{of.version}: {since}{f', gone in {of.removed}' if of.removed else ''}\n")
    else:
        text.append(f"API {exchange.api_key} is unknown: a newer Kafka, or not Kafka.\n")
    return text


def _codes(exchange: Exchange) -> list[int]:
    message = exchange.response_message
    return [code for _, code in message.errors()] if message is not None else []


def _error(text: Text, code: int, api: str, palette: Palette, width: int) -> None:
    if code not in facts.errors():
        text.append(f"{code}: an error code unknown to all releases\n\n", palette.error)
        return
    found = explain.error(code).of(api)
    text.append(f"{found.name} ({code})", palette.error)
    again = "clients may retry" if found.retriable else "retrying will not help"
    text.append(f"  {again}\n", palette.muted)
    text.append(_wrapped(found.what, width))
    for title, lines in (("Causes", [c.text for c in found.causes]), ("What to do", found.do)):
        if lines:
            text.append(f"{title}\n", palette.name)
            for line in lines:
                text.append(_wrapped(line, width, "  - "))
    if found.kips:
        text.append(f"  see {', '.join(found.kips)}\n", palette.muted)
    text.append("\n")


def _wrapped(text: str, width: int, mark: str = "") -> str:
    lines = textwrap.wrap(visible(text), width, initial_indent=mark, subsequent_indent=" " * len(mark))
    return "\n".join(lines) + "\n"


def reason_cells(exchange: Exchange, row: Row, request: Tree, response: Tree) -> list[Cell]:
    """What is unusual about the exchange: bytes that cannot be decoded, an error, changes by rules."""
    cells: list[Cell] = []
    for side, tree in (("request", request), ("response", response)):
        if tree.fault:
            word = "" if exchange.cut else " undecoded"
            cells.append((f" ? {side}{word}: {tree.fault} ", "undecoded"))
    message = exchange.response_message
    errors = list(message.errors()) if message is not None else []
    if row.error:
        fact = facts.errors().get(row.error)
        again = "clients may retry" if fact and fact.retriable else "retrying will not help"
        kind = (
            "not in any known release" if fact is None else f"{'' if fact.retriable else 'not '}retriable: {again}"
        )
        name = f"{facts.error_name(row.error)} ({row.error})"
        cells.append((f" < {name}", "waiting") if expected(row) else (f" ! {name}", "error"))
        cells.append((f" {expected(row) or kind}", ""))
    notes = notes_on(exchange)
    if notes:
        cells.append((f"  {visible('; '.join(map(str, notes)))}", "waiting"))
    elif row.changed:
        cells.append(("  changed by the proxy: client and broker saw different bytes", "waiting"))
    if row.surplus:
        both = zip(exchange.surplus, ("request", "response"), strict=True)
        sides = [f"{n} B after the {s}" for n, s in both if n]
        cells.append((f" ? surplus: {', '.join(sides)}", "undecoded"))
    if errors:
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        cells.append((f"  at {errors[0][0]}{more}", "muted"))
    return cells


STACKED_BELOW = 100
"""Columns of the screen below which the response stands below the request."""


class DetailScreen(AppScreen[int]):
    """Shows the exchange at a position of a `RowView`. Its result is the position that was shown last."""

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
    BINDINGS: ClassVar[list[BindingType]] = bindings("detail")
    context = "detail"
    contexts = ("detail", "tree", "hex", "app")

    def __init__(self, capture: Capture, view: RowView, position: int):
        super().__init__()
        self.capture, self.view, self.position = capture, view, position
        self.values_shown = False
        self.row: Row | None = None
        self._done = 0
        self.exchange = Exchange()
        self.title_bar, self.reason = Bar(id="headline"), Bar(id="reason")
        self.request = FieldTree("Request", id="request")
        self.response = FieldTree("Response", id="response")
        self.bytes, self.described = HexView(id="bytes"), Bar(id="described")
        self.key_bar = KeyBar()
        self.chosen = self.response
        self._wanted = ""

    def compose(self) -> ComposeResult:
        yield self.title_bar
        yield self.reason
        with Container(id="panes"):
            yield self.request
            yield self.response
        yield self.bytes
        yield self.described
        yield self.key_bar

    def on_mount(self) -> None:
        words = bar_words(("detail",), self.barnabas.settings.keys)
        self.key_bar.keys(*words, ("?", "help"))
        self.set_class(self.app.size.width < STACKED_BELOW, "stacked")
        self.open(self.position)

    def on_resize(self) -> None:
        self.set_class(self.app.size.width < STACKED_BELOW, "stacked")

    # --- what is shown -------------------------------------------------------------------------------------

    def open(self, position: int) -> None:
        """Read the exchange at `position` and show it."""
        self.position = position
        self.row, self._done = self.view.row(position), self.capture.done
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
        request = request_tree(self.exchange, self.values_shown, self.barnabas.schemas)
        response = response_tree(self.exchange, self.values_shown, self.barnabas.schemas)
        self.request.show(request, keep_place)
        self.response.show(response, keep_place)
        version = f"v{row.api_version}"
        self.request.border_title = f"Request {version}{request.octets}"
        message = self.exchange.response_message
        fallback = message is not None and message.api_version != row.api_version
        answered = f"v{message.api_version} (fallback)" if fallback and message is not None else version
        self.response.border_title = f"Response {answered if response.frame else ''}{response.octets}"
        self._headline(row)
        reason = reason_cells(self.exchange, row, request, response)
        self.reason.show(reason)
        self.set_class(bool(reason), "explained")
        self._describe(self.chosen)

    def _headline(self, row: Row) -> None:
        number = row.number + 1
        outcome, role = result(row)
        took = row.latency_ns if row.waiting_ns is None else row.waiting_ns
        latency = "" if took is None else f"  {duration(took)}"
        left: list[Cell] = [
            (f" #{number} ", "label"),
            (f" {api(row)} v{row.api_version} ", "title"),
            (f" {outcome.strip()}", role),
            (f"{latency}  {client_name(row)}", ""),
            (f"  {visible(row.client)} -> {visible(row.broker)}", "muted"),
            (f"  {clock(row.time_ns)}  correlation id {row.correlation_id}", "muted"),
        ]
        self.title_bar.show(left, [(" VALUES SHOWN ", "warning")] if self.values_shown else [])

    # --- panes ---------------------------------------------------------------------------------------------

    def choose(self, pane: FieldTree) -> None:
        """Show the bytes of this tree."""
        self.chosen = pane
        self.request.set_class(pane is self.request, "chosen")
        self.response.set_class(pane is self.response, "chosen")
        self._describe(pane)

    def _describe(self, pane: FieldTree) -> None:
        """Show what the field under the cursor means, and its bytes."""
        field = pane.current
        side = "request" if pane is self.request else "response"
        text = describe_field(self.exchange.api, field.path, side) if field is not None else None
        name = INDEX.sub("", field.path).rpartition(".")[2] if field is not None else ""
        self.described.show([(f" {name}: ", "name"), (text, "muted")] if text else [])
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

    def on_hex_view_pointed(self, event: HexView.Pointed) -> None:
        """Move the cursor to the field that has this byte."""
        tree = self.chosen
        position = field_at(tree.tree_shown, event.at)
        if position is None:
            return
        if position != tree.position:
            tree.move_to_field(position)
        self.bytes.mark(tree.tree_shown.fields[position].span)
        if event.chosen:
            tree.focus()

    def on_field_tree_moved(self, event: FieldTree.Moved) -> None:
        if event.field_tree is not self.chosen and event.field_tree.has_focus:
            self.choose(event.field_tree)
        elif event.field_tree is self.chosen:
            self._describe(self.chosen)

    def on_field_tree_opened(self, event: FieldTree.Opened) -> None:
        """Show all of a record's key, value or header."""
        from .value_screen import ValueScreen

        tree, field = event.field_tree.tree_shown, event.field
        if field.whole is None or field.data is None:
            if field.role == "masked" and field.name in ("key", "value"):
                self.notify("v shows keys, values and headers of records.", timeout=2)
            return
        around = reversed(tree.fields[: tree.fields.index(field)])
        record = next(each for each in around if each.depth < field.depth)
        self.app.push_screen(ValueScreen(f"{record.name} {field.name}", field.data, field.whole))

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
        # After the pane has its size, so that it scrolls to the marked bytes.
        self.call_after_refresh(self._bytes_of, self.chosen)

    def action_values(self) -> None:
        self.values_shown = not self.values_shown
        self._show(keep_place=True)

    def schemas_loaded(self) -> None:
        if self.values_shown:
            self._show(keep_place=True)

    def action_step(self, step: int) -> None:
        position = self.position + step
        if 0 <= position < len(self.view):
            self.open(position)
        else:
            self.notify("This is the first exchange." if step < 0 else "This is the last exchange.", timeout=2)

    def action_next_error(self) -> None:
        """Go to the next error code, after the last one to the first."""
        tree = self.response
        message = self.exchange.response_message
        found = tree.tree_shown.next_error(tree.position, message.errors() if message is not None else ())
        if found is None:
            self.notify("No error code in this response.", timeout=2)
            return
        self.choose(tree)
        tree.focus()
        tree.move_to_field(found)

    def action_back(self) -> None:
        self.dismiss(self.position)

    # --- from here to elsewhere ----------------------------------------------------------------------------

    def action_why(self) -> None:
        self.app.push_screen(
            TextPages("Why", why(self.exchange, self.request.palette, min(self.app.size.width * 9 // 10, 100) - 8))
        )

    def action_related(self) -> None:
        row = self.row
        if row is None:
            return
        found = related(self.capture, row)
        if not found:
            self.notify("No related exchange.", timeout=2)
            return
        rows = self.capture.rows()

        def go(chosen: int | None) -> None:
            if chosen is not None:
                number = found[chosen].number
                if self.view.position(number) is None:
                    self.view = RowView(rows)
                self.open(self.view.position(number) or 0)

        lines = [[(fit(each.relation, 34), "name"), *row_summary(rows[each.number])] for each in found]
        self.app.push_screen(Pick(f"Related to #{row.number + 1}", lines), go)

    def action_only(self, wanted: int) -> None:
        """Show only exchanges with this field's value, or with 0 only those without it."""
        term, row = self._term(), self.row
        if row is None:
            return
        if not term:
            self.notify("There is no filter for this field.", timeout=2)
            return
        text = combine(api_term(row.api_key), term) if term.startswith(("req.", "resp.", "any(", "not ")) else term
        self.barnabas.show_exchanges(text if wanted else f"not ({term})", row.number)

    def _term(self) -> str:
        """The filter for the value of the field under the cursor; "" where there is none."""
        field = self.chosen.current
        is_request = self.chosen is self.request
        message = self.exchange.request_message if is_request else self.exchange.response_message
        try:
            if message is None or field is None or not field.path:
                value = None
            elif field.path.startswith(HEADER):
                value = message.header[field.path.removeprefix(HEADER)]
            else:
                value = message[field.path]
        except (KeyError, IndexError, TypeError):
            value = None
        if field is None or value is None:
            return ""
        return field_term("req" if is_request else "resp", field.path, value)

    def action_stream(self) -> None:
        """Show only exchanges of its connection, with the cursor on it."""
        if self.row is not None:
            self.barnabas.show_exchanges(f"conn == {self.row.connection}", self.row.number)

    def action_dialogue(self) -> None:
        actions.show_conversation(self, self.row)

    def action_compare(self) -> None:
        actions.compare_here(self, self.row)

    def action_resend(self) -> None:
        actions.send_again(self, self.row)

    def action_export(self) -> None:
        actions.export_row(self, self.row, self.values_shown, "", len(self.session.capture.rows()))

    def action_copy_as(self) -> None:
        from .copying import of_field

        actions.copy_row(self, self.row, self.values_shown, of_field(self.chosen.current, self._term()))

    def action_copy(self) -> None:
        """Copy the field's value. Hidden values are not copied."""
        from .copying import copy, of_field

        found = of_field(self.chosen.current, "")
        if found:
            copy(self.app, found[0])

    def action_find(self) -> None:
        def found(text: str | None) -> None:
            if text:
                self._wanted = text.lower()
                self.action_match(1)

        self.app.push_screen(AskDialog("Find in names and values", self._wanted), found)

    def action_match(self, step: int) -> None:
        tree, wanted = self.chosen, self._wanted
        if not wanted:
            self.notify("/ finds text first.", timeout=2)
            return
        here = tree.current
        tree.tree_shown.complete()
        fields = tree.tree_shown.fields
        if here is not None and tree.current is not here:
            tree.move_to_field(fields.index(here))
        for i in range(1, len(fields) + 1):
            at = (tree.position + step * i) % len(fields)
            if wanted in f"{fields[at].name}: {fields[at].value}".lower():
                tree.move_to_field(at)
                return
        self.notify(f"{visible(wanted)!r} is not in this pane.", timeout=2)

    def capture_grew(self) -> None:
        rows, before = self.capture.rows(), self.row
        if before is not None and before.waiting_ns is not None:
            row = rows.again(before, self._done)  # it has another number now, and may have been answered
        else:
            row = self.view.row(self.position)
        if row is not None and row != before:
            self.row, self.exchange, self._done = row, self.capture.exchange(row), rows.done
            at = self.view.position(row.number)
            self.position = min(self.position, max(len(self.view) - 1, 0)) if at is None else at
            self._show(keep_place=True)
