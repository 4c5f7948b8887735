"""What every page needs: the session, the address of other pages, and the frame with the header and the navigation."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import Request
from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, PlainTextResponse, Response

from ...captures.export import NoProgram
from ...decoder.values import SchemaSource
from ..safe import visible
from ..tui.exchange.exporting import ExportFormat
from ..tui.model.held_queue import held_cells
from ..tui.model.session import Session
from ..tui.model.settings import ScreenSettings
from ..tui.views import PLACES
from ..tui.views.exchanges import nothing_yet
from .queries import Queries
from .work import Work

THEME = "barnabas-theme"
"""The cookie with the theme that was chosen in the browser."""
TICK_SECONDS = 1.0
FAULT = "! "
"""Stands in a status line before the reason why the proxy does not answer."""


class Place(NamedTuple):
    """A page of the navigation. `key`: opens it, as in the terminal."""

    key: str
    name: str
    path: str


PAGES = (
    *(Place(str(number), place.name, place.name.lower()) for number, place in enumerate(PLACES, 1)),
    Place("0", "Throughput", "throughput"),
    Place("P", "Partitions", "partitions"),
)


@dataclass(frozen=True)
class Site:
    """One application. `folder`: the secret path that all pages are below, with slashes around it."""

    session: Session
    queries: Queries
    work: Work
    settings: ScreenSettings
    schemas: SchemaSource | None
    folder: str

    def url(self, path: str, **parameters: object) -> str:
        """The address of a page, without the parameters that are empty."""
        given = {name: str(value) for name, value in parameters.items() if value not in ("", None, False)}
        return self.folder + quote(path) + (f"?{urlencode(given)}" if given else "")

    def exchanges(self, filter: str) -> str:
        """The address of the exchanges that a filter selects."""
        return self.url("exchanges", filter=filter)

    def go(self, address: str) -> None:
        """Have the browser open another page."""
        ui.run_javascript(f"location.assign({json.dumps(address)})")

    @contextmanager
    def frame(self, request: Request, name: str, *, title: str = "", needs_rows: bool = True) -> Iterator[None]:
        """The header, the navigation with the page `name` marked, and around the page's own elements a box.

        `needs_rows`: without an exchange there is nothing on this page, so it says why instead."""
        session = self.session
        ui.page_title(f"{title or name} · {session.title} · Barnabas")
        if request.cookies.get(THEME) in ("dark", "light"):
            ui.dark_mode(request.cookies[THEME] == "dark")
        ui.add_head_html(
            f'<link rel="stylesheet" href="{self.folder}static/page.css"><script src="{self.folder}static/page.js"></script>'
        )
        with ui.element("header").classes("top"):
            link("Barnabas", self.url("exchanges")).classes("brand")
            badge = text("LIVE" if session.grows else "FILE", "badge")
            text(session.title, "title grow").props["title"] = session.title
            status = text("")
            held = link("", self.url("held")).classes("held")
            if session.control is not None:
                text("EDIT" if session.allow_edit else "READ-ONLY", "badge " + ("warning" if session.allow_edit else ""))
            link("Protocol", f"{self.folder}protocol/").classes("muted").props("target=_blank")
            button("◐", "Light or dark").props("data-script=theme")
            button("?", "Keys").props("data-script=keys data-key=?")
        with ui.element("nav").classes("views"):
            for place in PAGES:
                shown = link("", self.url(place.path)).props(f'data-key="{place.key}"')
                if place.name == name:
                    shown.classes("here").props('aria-current="page"')
                with shown:
                    text(place.key, "key")
                    text(place.name)
                    if place.name == "Problems":
                        problems = text("", "count error")

        box = ui.element("div").classes("page")
        with box:
            nothing = text("", "nothing", "div")
        blank = [False]

        def show() -> None:
            words = self.status()
            lost = FAULT in words
            status.set_text(words)
            status.classes(replace="error" if lost else "muted")
            if session.grows:
                badge.set_text("LOST" if lost else "LIVE")
                badge.classes(replace="badge lost" if lost else "badge")
            if needs_rows and (none := not len(session.capture.rows())) != blank[0]:
                blank[0] = none
                nothing.set_text(nothing_yet(session) if none else "")
                box.classes(add="blank") if none else box.classes(remove="blank")
            held.set_text("".join(word for word, _ in held_cells(session.held)).strip() if session.control is not None else "")
            if session.has_analysis and (found := session.analysis.result):
                problems.set_text(f"{found.high + found.medium}" if found.high + found.medium else "")

        show()
        ui.timer(TICK_SECONDS, show)
        ui.run_javascript("barnabas.here()")
        with box:
            yield

    def status(self) -> str:
        """What was lost, or the proxy's status line."""
        session = self.session
        if session.status is not None:
            return visible(session.status())
        return f"lost {session.lost} B" if session.lost else ""

    def may_edit(self) -> str:
        """Why traffic may not be changed, or ""."""
        if self.session.control is not None and not self.session.allow_edit:
            return "Read-only: start barnabas ui --web with --allow-edit to change traffic."
        return self.session.read_only()


def text(words: str, classes: str = "", tag: str = "span") -> TextElement:
    """An element that holds text alone: NiceGUI sets it as such, so that it cannot be markup."""
    return TextElement(text=words, tag=tag).classes(classes)


def link(words: str, href: str) -> TextElement:
    """A link with text."""
    found = text(words, tag="a")
    found.props["href"] = href
    return found


def button(words: str, hint: str = "") -> TextElement:
    """A button with text."""
    found = text(words, "button", "button")
    found.props["type"] = "button"
    if hint:
        found.props["title"] = hint
    return found


def note(words: str) -> None:
    """A paragraph in place of a view that has nothing to show."""
    for line in words.split("\n"):
        text(line, "note", "p")


def grid(
    columns: Iterable[Mapping[str, Any]], rows: list[dict[str, Any]], *, classes: str = "fill", row_id: str = "id", first: Sequence[str] = ()
) -> ui.aggrid:
    """A table that can be sorted. A row with `href` opens it; its `role` and a cell's `NAME_role` colour it.

    `first`: the columns that a narrow window shows first."""
    return ui.aggrid(
        {
            ":defaultColDef": "barnabas.column",
            "columnDefs": [dict(column) for column in columns],
            "rowData": rows,
            ":getRowId": f"(params) => String(params.data[{row_id!r}])",
            ":onRowClicked": "barnabas.open",
            ":onCellKeyDown": "barnabas.key",
            ":onGridReady": "barnabas.ordered",
            ":onSortChanged": "barnabas.sorted",
            ":getRowClass": "barnabas.rowClass",
            "rowHeight": 26, "headerHeight": 28, "enableCellTextSelection": True, "ensureDomOrder": True,
            "tooltipShowMode": "whenTruncated", "tooltipShowDelay": 300, "context": {"first": list(first)},
            "suppressMovableColumns": False, "animateRows": False,
        },
        auto_size_columns=False, theme="balham",
    ).classes(classes)  # fmt: skip


async def download(formats: Sequence[ExportFormat], chosen: int) -> Response:
    """The file of one of these formats, made now and removed when it was sent; 404 if there is no such format."""
    if not 0 <= chosen < len(formats):
        return PlainTextResponse("barnabas: there is no such format\n", 404)
    format = formats[chosen]
    folder = tempfile.mkdtemp(prefix="barnabas-export-")
    path = Path(folder, format.name)
    remove = BackgroundTask(rmtree, folder, ignore_errors=True)
    try:
        await asyncio.to_thread(format.make, path) if format.long else format.make(path)
    except (NoProgram, ValueError, OSError) as error:
        return PlainTextResponse(f"barnabas: it cannot be exported: {visible(str(error))}\n", 422, background=remove)
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    return FileResponse(path, filename=format.name, media_type="application/octet-stream", background=remove)
