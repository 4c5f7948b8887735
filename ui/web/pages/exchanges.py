"""The list of exchanges: a virtual table, the filter line with its carets and completions, and the columns."""

from __future__ import annotations

import json

from fastapi import Request, Response
from nicegui import app, ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from ....decoder.filter import Candidate, FilterError, complete
from ...safe import visible
from ...times import heading
from ...tui.exchange.exporting import list_formats
from ...tui.model.columns import COLUMNS as EVERY
from ...tui.model.columns import INFO
from ...tui.model.filter_terms import PROBLEMS, cell_term, combine, negate
from ...tui.model.rows import SORTS, is_slow
from ..queries import COLUMNS, Query, chosen_columns
from ..site import Site, button, download, link, text

GREW_SECONDS = 0.5
CANDIDATES = 12
_CELL = 8.2
"""Pixels of a letter in the table."""
_CELLS = {"Client": 14, "API": 17}
"""Letters of columns that have other widths here."""
_TYPED = "(event) => emit({text: event.target.value, at: event.target.selectionStart})"
_COMPLETE = "(event) => { event.preventDefault(); emit({text: event.target.value, at: event.target.selectionStart}) }"


def register(site: Site) -> None:
    """Add the pages and the data that their table asks for."""

    @app.get("/data/rows")
    def rows(filter: str = "", order: str = "", start: int = 0, stop: int = 100, info: str = "") -> Response:
        query = Query.of(filter, order)
        try:
            view = site.queries.view(query)
        except FilterError as error:
            return Response(str(error), 400, media_type="text/plain")
        if info:
            site.work.want("infos")
        found = {"total": len(view), "rows": site.queries.rows(query, start, stop, bool(info))}
        return Response(json.dumps(found), media_type="application/json")

    @app.get("/exchanges/files/{format}")
    async def file(format: int, filter: str = "") -> Response:
        try:
            shown = site.queries.filter_of(filter)
        except FilterError as error:
            return Response(f"barnabas: {visible(str(error))}\n", 400, media_type="text/plain")
        return await download(list_formats(site.session.capture, shown, 0), format)

    @ui.page("/")
    @ui.page("/exchanges")
    def page(request: Request, filter: str = "", order: str = "") -> None:
        with site.frame(request, "Exchanges"):
            _ExchangesPage(site, filter, order)


class _ExchangesPage:
    """The elements of one open page, and the filter that is typed there."""

    def __init__(self, site: Site, filter: str, order: str) -> None:
        self.site, self.filter = site, filter.strip()
        self._shown: tuple[object, ...] = ()
        with ui.element("div").classes("bar"):
            line = ui.element("input").classes("line wide").props(
                'id=filter type=text autocomplete=off spellcheck=false autocapitalize=off placeholder="api == Produce and err" aria-label=Filter'
            )
            line.on("input", self._typed, js_handler=_TYPED)
            line.on("keydown.enter", self._entered, js_handler=_TYPED)
            line.on("keydown.tab", self._completed, js_handler=_COMPLETE)
            button("Filter", "Type a filter").props("data-script=filter data-key=/")
            errors = site.exchanges(combine(self.filter, PROBLEMS) if self.filter else PROBLEMS)
            link("Errors", errors).classes("button").props('data-key=E title="Errors only"')
            link("All", site.url("exchanges")).classes("button").props('data-key=Escape title="All exchanges"')
            link("Ladder", site.url("ladder", filter=self.filter)).classes("button").props('data-key=S title="As a ladder diagram"')
            if site.session.live:
                button("Follow", "Stay on the newest row").classes("follow").props("data-script=follow data-key=F")
            button("Export", "Download these exchanges").props("data-key=x").on("click", self._export)
            button("Columns", "Choose columns").props("data-key=c").on("click", self._choose_columns)
            self.count = text("", "muted")
        self.hints = ui.element("div").classes("hints")
        self._table(order)
        ui.on("narrow", self._narrow)
        self._hint(self.filter, len(self.filter), quiet=True)
        self._grow()
        ui.timer(GREW_SECONDS, self._grow)
        if site.session.grows and not self.filter:
            ui.run_javascript("barnabas.following(true)")

    def _table(self, order: str) -> None:
        wanted = chosen_columns(self.site.settings)
        sorted_by = Query.of("", order).order
        right = {column.title for column in EVERY if column.right}
        columns = []
        for column, width in COLUMNS:
            title = column.title
            if title == INFO and not self.site.session.capture.has_frames:
                continue
            columns.append({
                **({":cellClass": "barnabas.resultClass"} if title == "Result" else {}),
                "field": title, "headerName": heading(title) if column.field == "time" else title, "hide": title not in wanted,
                "width": round(max(_CELLS.get(title, width), len(title) + 1) * _CELL) + 22,
                "flex": {"Result": 2, INFO: 3}.get(title), "minWidth": {"Result": 150, INFO: 170}.get(title, 52), "sortable": title in SORTS, "type": "rightAligned" if title in right else None,
                "initialSort": None if sorted_by is None or sorted_by.title != title else "desc" if sorted_by.descending else "asc",
            })  # fmt: skip
        ui.aggrid(
            {
                ":defaultColDef": "barnabas.plainColumn", "columnDefs": columns, "rowModelType": "infinite", ":datasource": "barnabas.rows",
                "cacheBlockSize": 200, "maxBlocksInCache": 4, "maxConcurrentDatasourceRequests": 2, "blockLoadDebounceMillis": 30,
                "rowHeight": 26, "headerHeight": 28, "rowBuffer": 2, ":getRowClass": "barnabas.rowClass", "animateRows": False,
                ":onRowClicked": "barnabas.open", ":onCellKeyDown": "barnabas.key", ":onGridReady": "barnabas.ready",
                "enableCellTextSelection": True, "ensureDomOrder": False,
                "overlayNoRowsTemplate": "No exchange matches the filter",
            },
            auto_size_columns=False, theme="balham",
        ).classes("fill")  # fmt: skip

    def _grow(self) -> None:
        """Show how many rows there are now, and have the table take them."""
        session, query = self.site.session, Query(self.filter)
        try:
            view = self.site.queries.view(query)
        except FilterError:
            return
        rows = len(session.capture.rows())
        share = self.site.queries.searching(query)
        state = len(view), rows, share
        if state == self._shown:
            return
        first = not self._shown
        self._shown = state
        found = f"{len(view):,} of " if self.filter else ""
        self.count.set_text(f"{found}{rows:,} exchange{'s' * (rows != 1)}{'' if share is None else f', searched {share:.0%}'}")
        if not first:
            ui.run_javascript(f"barnabas.grew({len(view)}, {json.dumps(session.grows)})")

    # --- the filter line -----------------------------------------------------------------------------------

    def _typed(self, event: GenericEventArguments) -> None:
        words = str(event.args["text"])
        wanted = self._hint(words, int(event.args["at"] or 0))
        if wanted is not None and not (wanted and is_slow(wanted, self.site.session.capture)):
            self._apply(words, done=False)

    def _entered(self, event: GenericEventArguments) -> None:
        words = str(event.args["text"])
        if self._hint(words, len(words), quiet=True) is not None:
            self._apply(words, done=True)

    def _apply(self, words: str, done: bool) -> None:
        self.filter, self._shown = words.strip(), ()
        ui.run_javascript(f"barnabas.filter({json.dumps(self.filter)}, {json.dumps(done)})")
        self._grow()
        self._shown = ()

    def _completed(self, event: GenericEventArguments) -> None:
        words, at = str(event.args["text"]), int(event.args["at"] or 0)
        if found := self._candidates(words, at):
            self._take(words, found[0])

    def _take(self, words: str, candidate: Candidate) -> None:
        text_before = words[: candidate.start] + candidate.text
        words = text_before + words[candidate.end :]
        ui.run_javascript(f"barnabas.type({json.dumps(words)}, {len(text_before)})")
        wanted = self._hint(words, len(text_before))
        if wanted is not None and not (wanted and is_slow(wanted, self.site.session.capture)):
            self._apply(words, done=False)

    def _candidates(self, words: str, at: int) -> list[Candidate]:
        saved = self.site.settings.filters
        if words.startswith("@"):
            return [Candidate("@" + name, 0, len(words), "saved", wanted) for name, wanted in saved.items() if name.startswith(words[1:])]
        return complete(words, at)

    def _hint(self, words: str, at: int, quiet: bool = False) -> str | None:
        """Show the fault with carets, or completions. Returns the filter that the words mean, None if it is wrong."""
        fault = None
        wanted = ""
        try:
            wanted = self.site.queries.filter_of(words)
        except FilterError as error:
            fault = error
        self.hints.clear()
        with self.hints:
            if fault is not None:
                caret = "^" * max(1, min(fault.end - fault.start, 20))
                text(f"{' ' * fault.start}{caret} {visible(fault.message)}", "caret error", "div")
            elif wanted and wanted != words.strip():
                text(f"means {visible(wanted)}", "muted", "div")
            elif wanted and is_slow(wanted, self.site.session.capture) and not quiet:
                text("decodes messages: Enter begins", "muted", "div")
            if not quiet:
                with ui.element("div").classes("candidates"):
                    for each in self._candidates(words, at)[:CANDIDATES]:
                        chosen = button(visible(each.text), visible(each.meaning))
                        chosen.on("click", lambda each=each: self._take(words, each))
        return None if fault is not None else wanted

    def _narrow(self, event: GenericEventArguments) -> None:
        """Only, or without, the rows with the value of a cell."""
        row = self.site.session.capture.rows()[int(event.args["row"]) - 1]
        field = next((column.field for column, _ in COLUMNS if column.title == event.args["column"]), "")
        if not (term := self.site.queries.infos(row).term if field == "info" else cell_term(row, field)):
            ui.notify("There is no filter for this column.")
            return
        wanted = combine(self.filter, negate(term) if event.args["hide"] else term)
        self.site.go(self.site.exchanges(wanted))

    def _export(self) -> None:
        try:
            shown, count = self.site.queries.filter_of(self.filter), len(self.site.queries.view(Query(self.filter)))
        except FilterError:
            return
        with ui.dialog() as dialog, ui.card():
            text("JSON lines and CSV have a line for each exchange; a capture has the messages, as they were recorded.", "muted", "p")
            for at, each in enumerate(list_formats(self.site.session.capture, shown, count)):
                link(each.words, self.site.url(f"exchanges/files/{at}", filter=self.filter)).props(f"download={each.name}")
            ui.button("Close", on_click=dialog.close)
        dialog.open()

    def _choose_columns(self) -> None:
        chosen = set(chosen_columns(self.site.settings))
        with ui.dialog() as dialog, ui.card():
            boxes: dict[str, Element] = {}

            def changed() -> None:
                names = [name for name, box in boxes.items() if box.value]  # type: ignore[attr-defined]
                ui.run_javascript(f"barnabas.columns({json.dumps(names)}, true)")

            for column, _ in COLUMNS:
                boxes[column.title] = ui.checkbox(column.title, value=column.title in chosen, on_change=changed)
            ui.button("Close", on_click=dialog.close)
        dialog.open()
