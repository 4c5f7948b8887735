"""Connections, one to a row, or clients with all of theirs."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from nicegui import ui

from ...safe import visible
from ...times import clock, heading
from ...tui.model.columns import duration
from ...tui.model.filter_terms import quoted
from ...tui.model.statistics import ConnectionCount
from ...tui.views.connections import by_client, total_of
from ..site import TICK_SECONDS, Site, grid, link, text

MOST = 5000
_COUNTS = (
    {"field": "requests", "headerName": "Requests", "width": 95, "type": "rightAligned"},
    {"field": "errors", "headerName": "Errors", "width": 78, "type": "rightAligned"},
    {"field": "sent", "headerName": "Sent B", "width": 98, "type": "rightAligned"},
    {"field": "received", "headerName": "Received B", "width": 108, "type": "rightAligned"},
    {"field": "slowest", "headerName": "Slowest", "width": 85, "type": "rightAligned", ":comparator": "(a, b, x, y) => x.data.slowest_ns - y.data.slowest_ns"},
)
_CONNECTIONS = (
    {"field": "number", "headerName": "Conn", "width": 68, "type": "rightAligned"},
    {"field": "client_id", "headerName": "Client", "width": 132},
    {"field": "client", "headerName": "Address", "width": 160},
    {"field": "broker", "headerName": "Broker", "width": 155},
    *_COUNTS,
    {"field": "opened", "headerName": heading("Opened"), "width": 102},
    {"field": "ended", "headerName": "Ended", "flex": 1, "minWidth": 135},
)
_CLIENTS = (
    {"field": "client_id", "headerName": "Client", "width": 150},
    {"field": "software", "headerName": "Software", "flex": 1, "minWidth": 180},
    {"field": "host", "headerName": "Host", "width": 125},
    {"field": "connections", "headerName": "Connections", "width": 115, "type": "rightAligned"},
    {"field": "brokers", "headerName": "Brokers", "width": 90, "type": "rightAligned"},
    *_COUNTS,
)


def register(site: Site) -> None:
    """Add the page."""

    @ui.page("/connections")
    def page(request: Request, by: str = "") -> None:
        with site.frame(request, "Connections"):
            clients = by == "client"
            with ui.element("div").classes("bar"):
                shown = link("By connection" if clients else "By client", site.url("connections", by="" if clients else "client"))
                shown.classes("button").props("data-key=v")
                link("Ladder", site.url("ladder")).classes("button").props('data-key=S title="All of them as a ladder diagram"')
                state = text("", "muted")
            columns = _CLIENTS if clients else _CONNECTIONS
            table = grid(columns, [], first=("client_id", "requests", "errors"))
            known: list[Any] = [None]

            def show() -> None:
                site.work.want("statistics", "analysis")
                statistics = site.session.statistics
                count = len(statistics.connections)
                reading = "".join(words for words, _ in statistics.progress_cells())
                state.set_text(f"{count:,} connection{'s' * (count != 1)}{reading}")
                now = statistics.done, site.session.analysis.result.read
                if now != known[0]:
                    known[0] = now
                    table.run_grid_method("setGridOption", "rowData", _clients(site) if clients else _connections(site))

            show()
            ui.timer(0.1, show, once=True)
            ui.timer(TICK_SECONDS, show)


def _connections(site: Site) -> list[dict[str, Any]]:
    links = site.session.analysis.result.connections
    found = []
    newest = sorted(site.session.statistics.connections.items(), key=lambda item: item[1].first_ns)[-MOST:]
    for (recording, number), each in newest:
        end = links.get(each.number) if recording == 0 else None
        ended, role = ("", "muted") if end is None else ("open", "ok")
        if end is not None and end.closed_ns is not None:
            ended, role = f"{end.how or 'unknown'}{f' by {end.by}' if end.by else ''}", "error" if end.how == "rst" else "muted"
        found.append({
            "id": f"{recording}/{number}", "href": site.exchanges(f"conn == {each.number}"), "number": each.number,
            "client_id": visible(each.client_id or "(no id)"), "client_id_role": "" if each.client_id else "muted",
            "client": visible(each.client), "broker": visible(each.broker), **_counts(each),
            "opened": clock(each.first_ns, 0), "ended": visible(ended), "ended_role": role,
        })  # fmt: skip
    return found


def _clients(site: Site) -> list[dict[str, Any]]:
    groups = by_client(site.session.statistics, site.session.analysis.result.connections)
    return [
        {
            "id": "/".join(map(visible, key)), "href": site.exchanges(f"client == {quoted(key[0])}" if key[0] else "not client"),
            "client_id": visible(key[0] or "(no id)"), "client_id_role": "" if key[0] else "muted", "software": visible(key[1] or "unknown"),
            "software_role": "" if key[1] else "muted", "host": visible(key[2]), "connections": len(of),
            "brokers": len({each.broker for each in of}), **_counts(total_of(of)),
        }
        for key, of in sorted(groups.items())[:MOST]
    ]  # fmt: skip


def _counts(each: ConnectionCount) -> dict[str, Any]:
    return {
        "requests": each.requests, "errors": each.errors, "errors_role": "error" if each.errors else "muted", "sent": each.sent,
        "received": each.received, "slowest": duration(each.slowest_ns), "slowest_ns": each.slowest_ns,
    }  # fmt: skip
