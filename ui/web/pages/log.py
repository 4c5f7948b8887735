"""The log: messages of the proxy, and of these pages."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from ...safe import visible
from ...times import clock
from ..site import TICK_SECONDS, Site, grid, note

_COLUMNS = (
    {"field": "time", "headerName": "Time", "width": 110}, {"field": "text", "headerName": "Message", "flex": 1, "wrapText": True, "autoHeight": True},
)  # fmt: skip


def register(site: Site) -> None:
    """Add the page."""

    @ui.page("/log")
    def page(request: Request) -> None:
        with site.frame(request, "Log", needs_rows=False):
            session = site.session
            if not (session.log or session.capture.note or session.live):
                note(session.nothing_to_report())
                return
            table = grid(_COLUMNS, [])
            shown = [-1]

            def show() -> None:
                if shown[0] == len(session.log):
                    return
                shown[0] = len(session.log)
                lines = [
                    {"id": at, "time": clock(line.time_ns), "text": line.text, "text_role": "error" if line.warning else ""}
                    for at, line in enumerate(session.log)
                ]
                if session.capture.note:
                    lines.append({"id": len(lines), "time": "capture", "text": visible(session.capture.note), "text_role": "undecoded"})
                table.run_grid_method("setGridOption", "rowData", lines[::-1])

            ui.timer(0.1, show, once=True)
            ui.timer(TICK_SECONDS, show)
