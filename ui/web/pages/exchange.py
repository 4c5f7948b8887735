"""One exchange: both messages as trees of fields, their bytes, records with full values, what it means, and what is related."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from fastapi import Request, Response
from nicegui import app, ui
from nicegui.events import GenericEventArguments

from ....captures import Row
from ....captures.diff.field_pairs import both
from ....decoder.filter import FilterError
from ....decoder.reference.fields import INDEX, describe_field
from ....errors import BarnabasError
from ....proxy.control import ControlError
from ...safe import visible
from ...times import moment
from ...tui.exchange.body_editor import from_yaml, to_yaml
from ...tui.exchange.comparison import before_it
from ...tui.exchange.detail import reason_cells, related, why
from ...tui.exchange.exporting import export_formats
from ...tui.exchange.fields import request_tree, response_tree
from ...tui.exchange.resend import listener, send, warning, why_not
from ...tui.model.columns import api, client_name, duration, result
from ...tui.model.filter_terms import api_term, combine, field_term
from ...tui.model.rows import row_details, row_summary
from ...tui.widgets.field_tree import Tree, field_at
from ...tui.widgets.palette import DARK
from ..markup import hex_html, tree_html
from ..queries import Query
from ..site import Site, button, download, link, note, text

MOST_RECORDS = 500
"""Records that are shown in full."""
MOST_VALUE = 1 << 16
"""Characters of one key or value."""
_WIDTH = 92
_SIDES = ("request", "response")


def register(site: Site) -> None:
    """Add the pages, and the files that exchanges are exported to."""

    @ui.page("/exchanges/{number}")
    def page(request: Request, number: int, filter: str = "", order: str = "", values: str = "", field: str = "") -> None:
        with site.frame(request, "Exchanges", title=f"#{number}", needs_rows=False):
            if (row := _row(site, number)) is None:
                note(f"There is no exchange #{number}: this capture has {len(site.session.capture.rows()):,}.")
                link("List", site.url("exchanges")).classes("button self").props("data-key=q")
            else:
                _ExchangePage(site, row, Query.of(filter, order), bool(values), field)

    @ui.page("/exchanges/{number}/compare")
    def compare(request: Request, number: int, other: int = 0) -> None:
        with site.frame(request, "Exchanges", title=f"#{number} compared", needs_rows=False):
            _compare(site, number, other)

    @app.get("/exchanges/{number}/files/{format}")
    async def file(number: int, format: int, values: str = "") -> Response:
        if (row := _row(site, number)) is None:
            return Response("barnabas: there is no such exchange\n", 404, media_type="text/plain")
        capture = site.session.capture
        formats = export_formats(capture, row, capture.exchange(row), bool(values), "", 1)[:_FORMATS]
        return await download(formats, format)


_FORMATS = 5
"""Of `export_formats`, those of one exchange."""


def _row(site: Site, number: int) -> Row | None:
    rows = site.session.capture.rows()
    return rows[number - 1] if 0 < number <= len(rows) else None


class _ExchangePage:
    """One open page. `chosen`: the field that is chosen first, such as `response.error_code`."""

    def __init__(self, site: Site, row: Row, query: Query, values: bool, chosen: str) -> None:
        self.site, self.row, self.query, self.values = site, row, query, values
        self.exchange, self.done = site.session.capture.exchange(row), site.session.capture.done
        self.trees: dict[str, Tree] = {}
        self._make_trees()
        self.side, self.at = "response" if self.trees["response"].frame else "request", -1
        self._head()
        self._tools()
        self.described = text("", "muted", "div")
        self.panes: dict[str, Any] = {}
        with ui.element("div").classes("panes"):
            for side in _SIDES:
                self._pane(side)
        self._bytes_pane()
        if values:
            self._records()
        self._about()
        ui.on("field", self._field)
        ui.on("byte", self._byte)
        ui.on("later", self._later)
        ui.on("say", lambda event: ui.notify(visible(str(event.args["words"]))))
        self._first(chosen)
        if site.session.live:
            ui.timer(1.0, self._grow)

    def _make_trees(self) -> None:
        schemas = self.site.schemas
        self.trees = {
            "request": request_tree(self.exchange, self.values, schemas), "response": response_tree(self.exchange, self.values, schemas)
        }  # fmt: skip

    # --- the frame -----------------------------------------------------------------------------------------

    def _address(self, number: int, **more: object) -> str:
        order = self.query.order
        sorted_by = "" if order is None else f"{'-' * order.descending}{order.title}"
        given: dict[str, object] = {"filter": self.query.filter, "order": sorted_by, "values": 1 if self.values else ""}
        return self.site.url(f"exchanges/{number}", **given | more)

    def _neighbors(self) -> tuple[int | None, int | None]:
        """The numbers of the exchanges before and after it in its list."""
        number = self.row.number
        try:
            view = self.site.queries.view(self.query)
            at = view.position(number)
        except FilterError:
            at = None
        if at is None:
            last = len(self.site.session.capture.rows()) - 1
            return (number if number > 0 else None), (number + 2 if number < last else None)
        before = view.number(at - 1) + 1 if at > 0 else None
        return before, (view.number(at + 1) + 1 if at + 1 < len(view) else None)

    def _head(self) -> None:
        row = self.row
        outcome, role = result(row)
        with ui.element("div").classes("bar"):
            text(f"#{row.number + 1}", "badge")
            text(f"{api(row)} v{row.api_version}", "title")
            text(outcome.strip(), role)
            if row.latency_ns is not None:
                text(duration(row.latency_ns))
            text(client_name(row))
            text(f"{visible(row.client)} → {visible(row.broker)}", "muted")
            text(f"{moment(row.time_ns, 3)}, connection {row.connection}, correlation id {row.correlation_id}", "muted")
            comment = self.site.session.marks.comment(row)
            if comment is not None:
                text(f"★ {visible(comment)}", "marked")
        reason = reason_cells(self.exchange, row, self.trees["request"], self.trees["response"])
        if reason:
            with ui.element("div").classes("reason"):
                for words, kind in reason:
                    text(words, kind)

    def _tools(self) -> None:
        site, row, number = self.site, self.row, self.row.number + 1
        before, after = self._neighbors()
        with ui.element("div").classes("bar"):
            link("List", site.url("exchanges", filter=self.query.filter)).classes("button").props('data-key=q title="Back to the list"')
            if before:
                link("‹ Previous", self._address(before)).classes("button").props('data-key="[" title="The previous exchange"')
            if after:
                link("Next ›", self._address(after)).classes("button").props('data-key="]" title="The next exchange"')
            shown = link("Hide values" if self.values else "Values", self._address(number, values="" if self.values else 1))
            shown.classes("button on" if self.values else "button").props('data-key=v title="Show or hide keys and values of records"')
            link("Connection", site.exchanges(f"conn == {row.connection}")).classes("button").props('data-key=s title="Only its connection"')
            ladder = site.url("ladder", filter=f"conn == {row.connection}", row=number)
            link("Ladder", ladder).classes("button").props('data-key=S title="Its connection as a ladder diagram"')
            link("Compare", site.url(f"exchanges/{number}/compare")).classes("button").props(
                'data-key=d title="Compare with the previous one of its API"'
            )
            button("Mark", "Mark it, with a comment").props("data-key=m").on("click", self._mark)
            button("Only this", "Only exchanges with the value of the chosen field").props('data-key="="').on("click", self._only)
            button("Export", "Download it").props("data-key=x").on("click", self._export)
            button("Copy link", "Copy the address of this page").props("data-script=link")
            if site.session.control is not None and not site.may_edit():
                button("Resend", "Send the request again").props("data-key=R").on("click", self._resend)

    # --- fields and bytes ----------------------------------------------------------------------------------

    def _pane(self, side: str) -> None:
        tree = self.trees[side]
        message = self.exchange.request_message if side == "request" else self.exchange.response_message
        version = f" v{message.api_version}" if message is not None else ""
        with ui.element("section").classes("pane").props(f"data-side={side}"):
            text(f"{side.capitalize()}{version}{tree.octets}", "muted", "h2")
            # `tree_html` escapes every text
            self.panes[side] = ui.html(tree_html(tree), sanitize=False)

    def _bytes_pane(self) -> None:
        with ui.element("section").classes("pane"):
            self.bytes_title = text("", "muted", "h2")
            self.bytes = ui.html("", sanitize=False).classes("hex")  # `hex_html` writes digits and escaped letters
        self._show_bytes()

    def _show_bytes(self) -> None:
        tree = self.trees[self.side]
        field = tree.fields[self.at] if 0 <= self.at < len(tree.fields) else None
        hidden = "; bytes of records are hidden, Values shows them" if tree.hidden else ""
        where = f"; {field.path or field.name} at {field.span[0]}, {field.span[1] - field.span[0]} B" if field and field.span else ""
        self.bytes_title.set_text(visible(f"Bytes of the {self.side} (without the 4 size bytes){where}{hidden}"))
        self.bytes.set_content(hex_html(tree.frame, tree.hidden, field.span if field else None))

    def _first(self, chosen: str) -> None:
        """Choose a field; if there is none such, the first error, or the place of a fault."""
        tree, at = self.trees[self.side], None
        side, _, path = chosen.partition(".")
        if side in _SIDES and (named := self.trees[side].reveal(path)) is not None:
            self.side, at = side, named
            self.panes[side].set_content(tree_html(self.trees[side]))
        elif self.row.error:
            message = self.exchange.response_message
            at = self.trees["response"].next_error(-1, message.errors() if message is not None else ())
            self.side = "response"
            self.panes["response"].set_content(tree_html(self.trees["response"]))
        elif tree.fault:
            at = len(tree.fields) - 1
        if at is not None:
            self._choose(at)

    def _choose(self, at: int) -> None:
        self.at = at
        field = self.trees[self.side].fields[at]
        name = INDEX.sub("", field.path).rpartition(".")[2]
        meaning = describe_field(self.exchange.api, field.path, self.side)
        self.described.set_text(visible(f"{name}: {meaning}") if meaning else "")
        self._show_bytes()
        ui.run_javascript(f"barnabas.show({json.dumps(self.side)}, {at})")

    def _field(self, event: GenericEventArguments) -> None:
        side, at = event.args["side"], int(event.args["at"])
        if side in _SIDES and 0 <= at < len(self.trees[side].fields):
            self.side = side
            self._choose_here(at)

    def _choose_here(self, at: int) -> None:
        """Choose a field, which the address names from then on."""
        self._choose(at)
        path = self.trees[self.side].fields[at].path
        ui.run_javascript(f"barnabas.remember('field', {json.dumps(f'{self.side}.{path}' if path else '')}, false)")

    def _byte(self, event: GenericEventArguments) -> None:
        tree = self.trees[self.side]
        before = len(tree.fields)
        at = field_at(tree, int(event.args["at"]))
        if len(tree.fields) != before:
            self.panes[self.side].set_content(tree_html(tree))
        if at is not None:
            self._choose_here(at)

    def _later(self, event: GenericEventArguments) -> None:
        side, at = event.args["side"], int(event.args["at"])
        tree = self.trees.get(side)
        if tree is not None and 0 <= at < len(tree.fields):
            tree.open(at)
            tree.fields[at].folded = False
            self.panes[side].set_content(tree_html(tree))

    def _grow(self) -> None:
        """Show the response when it has come: the exchange may have another number by then."""
        rows = self.site.session.capture.rows()
        if self.row.waiting_ns is not None:
            row = rows.again(self.row, self.done)
            if row is not None and row.waiting_ns is None:
                self.site.go(self._address(row.number + 1))
        elif rows[self.row.number] != self.row:
            ui.navigate.reload()

    # --- records -------------------------------------------------------------------------------------------

    def _records(self) -> None:
        found = self.exchange.to_dict(bodies=True, values=True, schemas=self.site.schemas)
        records = list(_records_in(found.get("request"), "")) + list(_records_in(found.get("response"), ""))
        if not records:
            note("This exchange has no records, so there are no keys and values to show.")
            return
        text(f"{len(records):,} record{'s' * (len(records) != 1)}", "", "h2")
        for where, record in records[:MOST_RECORDS]:
            with ui.element("section").classes("pane record"):
                at = record.get("timestamp")
                when = moment(at * 1_000_000, 3) if isinstance(at, int) and at >= 0 else "no timestamp"
                text(f"{visible(where)} offset {record.get('offset')}, {when}", "muted", "h2")
                for name in ("key", "value", "headers"):
                    if record.get(name) not in (None, []):
                        text(name, "name", "div")
                        text(_full(record[name]), "", "pre")
        if len(records) > MOST_RECORDS:
            note(f"{MOST_RECORDS} of {len(records):,} are shown; export the exchange as JSON for all of them.")

    # --- what it means -------------------------------------------------------------------------------------

    def _about(self) -> None:
        site = self.site
        with ui.element("section").classes("pane"):
            text("What it means", "muted", "h2")
            text(why(self.exchange, DARK, _WIDTH).plain, "", "pre")
            with ui.element("p"):
                link(f"The protocol: {self.exchange.api}", f"{site.folder}protocol/{self.exchange.api}").props("target=_blank data-key=w")
        found = related(site.session.capture, self.row)
        if found:
            with ui.element("section").classes("pane"):
                text("Related", "muted", "h2")
                rows = site.session.capture.rows()
                for each in found:
                    with ui.element("div"), link("", self._address(each.number + 1)):
                        text(f"{each.relation}: ")
                        for words, role in row_summary(rows[each.number]):
                            text(words, role)

    # --- tools ---------------------------------------------------------------------------------------------

    def _only(self) -> None:
        """Only exchanges with the value of the chosen field."""
        tree = self.trees[self.side]
        field = tree.fields[self.at] if 0 <= self.at < len(tree.fields) else None
        message = self.exchange.request_message if self.side == "request" else self.exchange.response_message
        value = None
        try:
            if message is not None and field is not None and field.path:
                header = field.path.removeprefix("header.")
                value = message.header[header] if header != field.path else message[field.path]
        except (KeyError, IndexError, TypeError):
            pass
        term = field_term("req" if self.side == "request" else "resp", field.path, value) if field is not None and value is not None else ""
        if not term:
            ui.notify("Choose a field with a value first.")
            return
        term = combine(api_term(self.row.api_key), term) if term.startswith(("req.", "resp.", "any(", "not ")) else term
        self.site.go(self.site.exchanges(term))

    def _mark(self) -> None:
        marks = self.site.session.marks
        comment = marks.comment(self.row)
        with ui.dialog() as dialog, ui.card():
            words = ui.input("Comment", value=comment or "")

            def put(wanted: str | None) -> None:
                marks.set(self.row, wanted)
                if marks.fault:
                    ui.notify(visible(marks.fault), type="negative")
                    return
                ui.navigate.reload()

            with ui.row():
                ui.button("Mark", on_click=lambda: put(visible(words.value or "")))
                if comment is not None:
                    ui.button("Remove the mark", on_click=lambda: put(None))
                ui.button("Cancel", on_click=dialog.close)
        dialog.open()

    def _export(self) -> None:
        capture, number = self.site.session.capture, self.row.number + 1
        formats = export_formats(capture, self.row, self.exchange, self.values, "", 1)[:_FORMATS]
        with ui.dialog() as dialog, ui.card():
            text("Secrets are masked. " + ("Keys and values are included." if self.values else "Keys and values are left out."), "muted", "p")
            for at, each in enumerate(formats):
                link(each.words, self.site.url(f"exchanges/{number}/files/{at}", values=1 if self.values else "")).props(f"download={each.name}")
            ui.button("Close", on_click=dialog.close)
        dialog.open()

    def _resend(self) -> None:
        message, reason = self.exchange.request_message, why_not(self.exchange)
        if reason or message is None:
            ui.notify(visible(reason or "its request cannot be decoded"), type="warning")
            return
        from ....decoder.present import present

        what, shown = ("request", message.api_key, message.api_version), present(message, False)
        with ui.dialog() as dialog, ui.card().style("width: 46rem; max-width: 95vw"):
            text(f"Send #{self.row.number + 1} {message.api} v{message.api_version} again", "title")
            if about := warning(message.api_key):
                text(f"! {about}", "warning")
            body = ui.textarea("Fields that you leave out keep their bytes", value=to_yaml(*what, shown, {})).classes("yaml").style("width: 100%")
            fault = text("", "error")

            async def go() -> None:
                control = self.site.session.control
                assert control is not None and message is not None
                try:
                    edits = from_yaml(*what, shown, body.value)
                    wanted = message.replace(edits) if edits else message
                    done = await asyncio.to_thread(lambda: send(listener(control.brokers(), self.row), wanted))
                except (BarnabasError, ControlError, KeyError, IndexError, OverflowError) as error:
                    fault.set_text(visible(str(error)))
                    return
                outcome = (f"! {done.error}" if done.error else "ok") if done.answered else "no response expected"
                words = f"#{self.row.number + 1} sent again from {done.client}: {outcome}, {duration(done.latency_ns)}"
                self.site.session.add_to_log(words)
                dialog.clear()
                with dialog, ui.card():
                    text(words)
                    link("Its exchange", self.site.exchanges(f"addr == {done.client}"))
                    ui.button("Close", on_click=dialog.close)

            with ui.row():
                ui.button("Send", on_click=go)
                ui.button("Cancel", on_click=dialog.close)
        dialog.open()


def _records_in(found: object, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Records inside of a message as JSON, each with the topic and partition that it is in."""
    if isinstance(found, list):
        for each in found:
            yield from _records_in(each, where)
    elif isinstance(found, dict):
        if "offset" in found and "value" in found and "key" in found:
            yield where, found
            return
        for name in ("name", "topic", "topic_id"):
            if isinstance(found.get(name), str):
                where = found[name]
        for name in ("index", "partition_index", "partition"):
            if isinstance(found.get(name), int):
                where = f"{where}-{found[name]}"
        for each in found.values():
            if isinstance(each, list | dict):
                yield from _records_in(each, where)


def _full(value: object) -> str:
    words = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    more = f"\n… {len(words) - MOST_VALUE:,} more characters" if len(words) > MOST_VALUE else ""
    return "\n".join(visible(line) for line in words[:MOST_VALUE].split("\n")) + more


def _compare(site: Site, number: int, other: int) -> None:
    capture = site.session.capture
    row = _row(site, number)
    second = None if row is None else _row(site, other) if other else before_it(capture, row)
    if row is None or second is None:
        note("There is no exchange to compare it with: none of its API comes before it.")
        return
    with ui.element("div").classes("bar"):
        for each in (second, row):
            with link("", site.url(f"exchanges/{each.number + 1}")):
                text("".join(words for words, _ in row_details(each)))
    one, two = capture.exchange(second), capture.exchange(row)
    for name, found in both(one, two):
        differing = [pair for pair in found if not pair.same]
        text(f"{name}: {len(differing):,} of {len(found):,} fields differ", "", "h2")
        if not differing:
            continue
        with ui.element("div").classes("scroll"), ui.element("table").classes("sheet"):
            with ui.element("tr"):
                for title in ("Field", f"#{second.number + 1}", f"#{number}"):
                    text(title, tag="th")
            for pair in differing[:MOST_RECORDS]:
                with ui.element("tr").classes("muted" if pair.volatile else ""):
                    for words in (pair.path, pair.a, pair.b):
                        text(visible(words), tag="td")
