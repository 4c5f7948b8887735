"""Exchanges as a ladder diagram: a line for each client and broker, an arrow for each message, time from top to bottom.

Messages are equally far apart, with pauses marked, or to the scale of time. Between a request and its response the broker's
line is thick; thinner, in another color, for a long poll.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from fastapi import Request
from nicegui import ui
from nicegui.events import EChartPointClickEventArguments

from ....captures import Row
from ....decoder.filter import FilterError
from ....decoder.findings.models.response_times import LONG_POLLS
from ...safe import visible
from ...times import clock, moment
from ...tui.exchange.conversation import PAUSE_NS, lines_of
from ...tui.model.columns import api, client_name, duration, expected, is_problem, result
from ..charts import AXIS, BLUE, GREEN, GREY, LEGEND, ORANGE, RED, TOOLTIP, VIOLET, Options, zoom
from ..queries import Query
from ..site import Site, link, note, text

MOST = 500
"""Exchanges of one diagram."""
_AT_FIRST = 36
"""Messages that are shown before one zooms."""
_LABELLED = 40
"""To scale, so many arrows at most have words on them from top to bottom; the others would lie on these."""
MOST_ENDS = 12
"""Clients, and brokers, with a line of their own; the others share one."""
_OTHERS = "(others)"
_END = 112
"""Pixels for the name of a client or broker; where there are fewer, names are turned."""


def register(site: Site) -> None:
    """Add the page."""

    @ui.page("/ladder")
    def page(request: Request, filter: str = "", start: int = 0, row: int = 0, scale: str = "") -> None:
        with site.frame(request, "Connections", title="Ladder"):
            try:
                view = site.queries.view(Query(filter.strip()))
            except FilterError as error:
                note(f"The filter is wrong: {visible(str(error))}")
                return
            if row and (at := view.position(row - 1)) is not None:
                start = max(at - _AT_FIRST // 2, 0)
            total = len(view)
            start = max(0, min(start, total - 1))
            rows = [view.row(at) for at in range(start, min(start + MOST, total))]
            with ui.element("div").classes("bar"):
                link("List", site.exchanges(filter)).classes("button").props("data-key=q")
                if start:
                    before = link("‹ Earlier", site.url("ladder", filter=filter, start=max(start - MOST, 0), scale=scale))
                    before.classes("button").props('data-key="["')
                if start + MOST < total:
                    link("Later ›", site.url("ladder", filter=filter, start=start + MOST, scale=scale)).classes("button").props('data-key="]"')
                other = site.url("ladder", filter=filter, start=start, scale="" if scale else "time")
                link("Equal distances" if scale else "To scale", other).classes("button").props("data-key=t")
                words = f" of {visible(filter)}" if filter.strip() else ""
                text(f"#{start + 1:,} to #{start + len(rows):,} of {total:,} exchange{'s' * (total != 1)}{words}" if rows else f"No exchange{words}", "muted")
                if rows:
                    text(f"since {moment(rows[0].time_ns, 3)}", "muted")
                    text("A click opens an exchange; scroll or pinch to zoom.", "muted optional")
            if not rows:
                return
            chart = ui.echart(ladder(rows, bool(scale)), on_point_click=lambda event: _open(site, filter, event)).classes("fill ladder")
            chart.props('role=img aria-label="Ladder diagram: the list has the same exchanges as text"')


def _open(site: Site, filter: str, event: EChartPointClickEventArguments) -> None:
    if isinstance(event.data, dict) and isinstance(event.data.get("row"), int):
        site.go(site.url(f"exchanges/{event.data['row']}", filter=filter))


def ladder(rows: list[Row], to_scale: bool = False) -> Options:
    """The diagram of some exchanges, as ECharts has it. Times are since the first request."""
    began = min(row.time_ns for row in rows)
    clients = _ends([client_name(row) for row in rows])
    brokers = _ends([visible(row.broker) for row in rows])
    names = [*(f"{name} " for name in clients), *brokers]  # a client and a broker of one name are two lines
    places, times = _places(rows, began)
    series: dict[str, list[Options]] = {"request": [], "response": [], "error": [], "work": [], "wait": []}
    for row in rows:
        client = clients.get(client_name(row), clients.get(_OTHERS, 0))
        broker = len(clients) + brokers.get(visible(row.broker), brokers.get(_OTHERS, 0))
        took, outcome = row.latency_ns, result(row)[0].strip()
        start: float | None = places.get((row.number, False))
        end: float | None = places.get((row.number, True))
        if to_scale:
            start, end = (row.time_ns - began) / 1e6, (row.time_ns - began + (took or 0)) / 1e6 if end is not None else None
        name = f"{api(row)} v{row.api_version}"
        about = f"#{row.number + 1} {name}  {outcome}{'' if took is None else f'  {duration(took)}'}\n{clock(row.time_ns)}  connection {row.connection}"
        item = {"row": row.number + 1, "value": about}
        if start is not None:
            series["request"].append(item | {"name": name, "coords": [[client, start], [broker, start]]})
        if end is not None:
            failed = is_problem(row) and not expected(row)
            words = f"{outcome} {'' if took is None else duration(took)}"
            series["error" if failed else "response"].append(item | {"name": words, "coords": [[broker, end], [client, end]]})
        if start is not None and end is not None:
            series["wait" if row.api_key in LONG_POLLS else "work"].append(item | {"name": name, "coords": [[broker, start], [broker, end]]})
    if to_scale:
        _label(series["error"] + series["request"] + series["response"])
    lines = [
        _lines("Requests", series["request"], BLUE, 1.3, arrow=True, labels=True),
        _lines("Responses", series["response"], GREEN, 1.3, arrow=True, labels=True),
        _lines("Errors", series["error"], RED, 2.2, arrow=True, labels=True),
        _lines("Broker at work", series["work"], ORANGE, 7),
        _lines("Long poll", series["wait"], VIOLET, 2.5),
    ]
    down: Options = {"type": "value", "min": 0, "max": ceil(max(row.time_ns + (row.latency_ns or 0) - began for row in rows) / 1e6) or 1}
    if to_scale:
        down["axisLabel"] = AXIS["axisLabel"] | {"formatter": "{value} ms", "hideOverlap": True}
    else:
        down = {"type": "category", "data": times, "axisLabel": AXIS["axisLabel"] | {"interval": "auto"}}
    shown = 100.0 if to_scale else min(100.0, 100 * _AT_FIRST / max(len(times), 1))
    ends: Options = AXIS["axisLabel"] | {"interval": 0, "width": 150, "overflow": "truncate", "hideOverlap": False}
    grid: Options = {"left": 12, "right": 80, "top": 30, "bottom": 36, "containLabel": True}
    crowded = {"xAxis": {"axisLabel": {"rotate": 60}}, "grid": {"right": 60}}
    return {
        "animation": False, "tooltip": TOOLTIP | {"formatter": "{c}"}, "legend": LEGEND | {"top": None, "bottom": 0}, "grid": grid,
        "xAxis": AXIS | {
            "type": "category", "data": names, "position": "top", "boundaryGap": False, "splitLine": {"show": True, "lineStyle": {"color": GREY}},
            "axisLine": {"show": False}, "axisTick": {"show": False}, "axisLabel": ends,
        },
        "yAxis": AXIS | {"inverse": True, "splitLine": {"show": False}} | down,
        "dataZoom": [each | {"start": 0, "end": shown} for each in zoom("y", "none")],
        "series": lines,
        "media": [{"query": {"maxWidth": len(names) * _END}, "option": crowded}, {"option": {"xAxis": {"axisLabel": {"rotate": 0}}, "grid": grid}}],
    }  # fmt: skip


def _label(arrows: list[Options]) -> None:
    """Leave words on arrows that are far enough from those before them in the list."""
    places = [arrow["coords"][0][1] for arrow in arrows]
    room = (max(places, default=0) - min(places, default=0)) / _LABELLED
    taken: set[int] = set()
    for arrow, place in zip(arrows, places, strict=True):
        slot = int(place / room) if room else 0
        if taken & {slot - 1, slot, slot + 1}:
            arrow["label"] = {"show": False}
        else:
            taken.add(slot)


def _places(rows: list[Row], began: int) -> tuple[dict[tuple[int, bool], int], list[str]]:
    """The place of each message, by row number and whether it is the response; and the label of each place."""
    places: dict[tuple[int, bool], int] = {}
    labels: list[str] = [""]  # room for the words on the first arrow
    for line in lines_of(rows):
        if line.pause_ns >= PAUSE_NS:
            labels.append(f"⋮ {duration(line.pause_ns)}")
        places[line.number, line.response] = len(labels)
        labels.append(f"+{(line.time_ns - began) / 1e6:,.1f} ms")
    return places, labels


def _ends(names: list[str]) -> dict[str, int]:
    """The place of each name, those with most exchanges first."""
    often: dict[str, int] = {}
    for name in names:
        often[name] = often.get(name, 0) + 1
    chosen = sorted(often, key=lambda name: -often[name])
    if len(chosen) > MOST_ENDS:
        chosen = [*chosen[: MOST_ENDS - 1], _OTHERS]
    return {name: at for at, name in enumerate(chosen)}


def _lines(name: str, data: list[Options], color: str, width: float, *, arrow: bool = False, labels: bool = False) -> Options:
    found: dict[str, Any] = {
        "name": name, "type": "lines", "coordinateSystem": "cartesian2d", "data": data, "clip": True, "color": color,
        "lineStyle": {"color": color, "width": width, "opacity": 0.9, "curveness": 0}, "emphasis": {"lineStyle": {"width": width + 2}},
    }  # fmt: skip
    if arrow:
        found |= {"symbol": ["none", "arrow"], "symbolSize": 7}
    if labels:
        found["label"] = {"show": True, "position": "middle", "formatter": "{b}", "fontSize": 10, "color": color, "distance": 2}
    return found
