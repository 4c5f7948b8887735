"""Latencies: percentiles per API, a heat map over time, and a histogram; the broker's work apart from long polls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import Request
from nicegui import ui
from nicegui.events import EChartPointClickEventArguments

from ....decoder.findings.models.response_times import LONG_POLLS, ResponseTimes, own_time_ns
from ....decoder.schema import facts
from ...times import clock, iso
from ...tui.model.columns import duration
from ...tui.model.filter_terms import combine
from ...tui.model.statistics import ALL, EDGES, LatencySteps
from ..charts import AXIS, BLUE, GREY, TOOLTIP, Options, nothing, times_axis, zoom
from ..site import TICK_SECONDS, Site, grid, link, text
from ..traffic import ApiTraffic

WORK, WAITS = "work", "waits"
"""Values of ``api`` in the address: all APIs without long polls, and only these."""
_COLUMNS: tuple[dict[str, Any], ...] = (
    {"field": "api", "headerName": "API", "flex": 1, "minWidth": 160},
    {"field": "waits", "headerName": "", "width": 100},
    {"field": "requests", "headerName": "Requests", "width": 105, "type": "rightAligned"},
    {"field": "errors", "headerName": "Errors", "width": 85, "type": "rightAligned"},
    *(
        {"field": name, "headerName": name, "width": 90, "type": "rightAligned",
         ":comparator": f"(a, b, x, y) => (x.data.{name}_ns ?? -1) - (y.data.{name}_ns ?? -1)"}
        for name in ("p50", "p90", "p99", "max")
    ),
    *(
        {"field": name, "headerName": name.replace("_", ": "), "width": 105, "type": "rightAligned", "headerTooltip": "without the time that a long poll waits",
         ":comparator": f"(a, b, x, y) => (x.data.{name}_ns ?? -1) - (y.data.{name}_ns ?? -1)"}
        for name in ("work_p50", "work_p99")
    ),
)  # fmt: skip


def _short(ns: int) -> str:
    return duration(ns).replace(".0", "")


BUCKETS = [f"<{_short(EDGES[0])}", *map(_short, EDGES)]


def register(site: Site) -> None:
    """Add the page."""

    @ui.page("/latency")
    def page(request: Request, api: str = WORK) -> None:
        with site.frame(request, "Latency"):
            with ui.element("div").classes("bar"):
                for name, words in ((WORK, "Broker's work"), (WAITS, "Long polls"), ("all", "All")):
                    chosen = link(words, site.url("latency", api=name)).classes("button")
                    if api == name:
                        chosen.classes("on")
                if api not in (WORK, WAITS, "all"):
                    text(api, "title")
                state = text("", "muted")
            heat = ui.echart(heat_map(site, api), on_point_click=lambda event: _opened(site, api, event)).classes("heat").style("width: 100%; height: 300px; flex: none")
            bars = ui.echart(histogram(site, api)).style("width: 100%; height: 190px; flex: none").classes("histogram")
            table = grid(_COLUMNS, [], classes="half", first=("api", "requests", "p50", "p99"))
            shown: list[Any] = [None]

            def show() -> None:
                site.work.want("statistics", "traffic", "analysis")
                now = site.session.statistics.done, site.work.traffic.done, site.session.analysis.result.read
                done, pending = site.work.traffic.done, site.work.traffic.pending
                state.set_text(f"{done:,} exchange{'s' * (done != 1)}{f', read {done / (done + pending):.0%}' if pending else ''}")
                if now == shown[0]:
                    return
                shown[0] = now
                heat.options.clear()
                heat.options.update(heat_map(site, api))
                heat.update()
                bars.options.clear()
                bars.options.update(histogram(site, api))
                bars.update()
                table.run_grid_method("setGridOption", "rowData", _rows(site))

            site.work.want("statistics", "traffic", "analysis")
            ui.timer(0.2, show, once=True)
            ui.timer(2 * TICK_SECONDS, show)


def _opened(site: Site, api: str, event: EChartPointClickEventArguments) -> None:
    """The exchanges of a cell of the heat map."""
    if not isinstance(event.value, list) or len(event.value) < 3:
        return
    traffic = site.work.traffic.over_time
    periods = traffic.periods()
    at, bucket = int(event.value[0]), int(event.value[1])
    if not (0 <= at < len(periods) and 0 <= bucket <= len(EDGES)):
        return
    start = periods[at] * traffic.step_ns
    wanted = f"time in {iso(start)}..{iso(start + traffic.step_ns - 1)}"
    if bucket:
        wanted = combine(wanted, f"latency >= {EDGES[bucket - 1] // 1000}us")
    if bucket < len(EDGES):
        wanted = combine(wanted, f"latency < {EDGES[bucket] // 1000}us")
    if api not in (WORK, WAITS, "all"):
        wanted = combine(wanted, f"api == {api}")
    site.go(site.exchanges(wanted))


def _chosen(api: str, found: Mapping[int, ApiTraffic]) -> Iterable[ApiTraffic]:
    for key, each in found.items():
        if api == "all" or api == (WAITS if key in LONG_POLLS else WORK) or facts.api_name(key) == api:
            yield each


def heat_map(site: Site, api: str) -> Options:
    """How many exchanges had which latency when, as ECharts has it."""
    traffic = site.work.traffic.over_time
    periods, cells = traffic.periods(), []
    lowest, highest, most = len(EDGES), 0, 1
    for at, period in enumerate(periods):
        total = LatencySteps()
        for each in _chosen(api, traffic.bins.get(period, {})):
            total.take(each.latencies)
        for bucket, count in enumerate(total.counts):
            if count:
                lowest, highest = min(lowest, bucket), max(highest, bucket)
                when = clock(period * traffic.step_ns, 0 if traffic.step_ns >= 1_000_000_000 else 2)
                words = f"{when}, {BUCKETS[bucket]} to {BUCKETS[bucket + 1] if bucket < len(EDGES) else 'more'}\n{count:,} exchange{'s' * (count != 1)}"
                cells.append({"value": [at, bucket, count], "name": words})
                most = max(most, count)
    times = [clock(period * traffic.step_ns, 0 if traffic.step_ns >= 1_000_000_000 else 2) for period in periods]
    return {
        **nothing("" if cells else f"No response{'' if api == 'all' else ' here'}, so no latency"),
        "animation": False, "grid": {"left": 12, "right": 36, "top": 30, "bottom": 62, "containLabel": True},
        "tooltip": TOOLTIP | {"formatter": "{b}"},
        "xAxis": times_axis() | {"type": "category", "data": times, "splitLine": {"show": False}},
        "yAxis": AXIS | {"type": "category", "data": BUCKETS, "axisLabel": AXIS["axisLabel"] | {"hideOverlap": True}, "min": max(lowest - 1, 0) if cells else 0, "max": min(highest + 1, len(EDGES)) if cells else 10,
                         "splitLine": {"show": False}},
        "visualMap": {"type": "continuous", "min": 0, "max": most, "calculable": False, "orient": "horizontal", "right": 36, "top": 0, "itemWidth": 10, "itemHeight": 90,
                      "text": [f"{most:,} exchange{'s' * (most != 1)}", "1"], "textStyle": {"color": GREY},
                      "inRange": {"color": ["#2f8fd033", "#2f8fd0", "#d98324", "#e0503a"]}},
        "dataZoom": zoom("x"),
        "series": [{"type": "heatmap", "data": cells, "itemStyle": {"borderColor": "transparent"}, "emphasis": {"itemStyle": {"borderColor": GREY, "borderWidth": 1}}}],
    }  # fmt: skip


def histogram(site: Site, api: str) -> Options:
    """The latencies of the whole capture in buckets, as ECharts has it."""
    total = LatencySteps()
    for each in _chosen(api, site.work.traffic.over_time.total()):
        total.take(each.latencies)
    steps = total.steps()
    return {
        "animation": False, "grid": {"left": 12, "right": 36, "top": 30, "bottom": 6, "containLabel": True},
        "tooltip": TOOLTIP | {"formatter": "{b}: {c}"},
        "xAxis": AXIS | {"type": "category", "data": [f"{_short(step.start_ns)} to {_short(step.end_ns)}" for step in steps], "splitLine": {"show": False}},
        "yAxis": AXIS | {"type": "value", "name": "exchanges", "splitNumber": 3, "minInterval": 1},
        "series": [{"type": "bar", "barCategoryGap": "4%", "data": [step.exchanges for step in steps], "itemStyle": {"color": BLUE},
                    "label": {"show": True, "position": "top", "fontSize": 10, "color": GREY}, "labelLayout": {"hideOverlap": True}}],
    }  # fmt: skip


def _rows(site: Site) -> list[dict[str, Any]]:
    apis = site.session.statistics.apis
    work = site.session.analysis.result.traffic.model(ResponseTimes).by_api()
    found = []
    for key in [ALL, *sorted((key for key in apis if key != ALL), key=lambda key: -apis[key].requests)]:
        count, name = apis[key], "all" if key == ALL else facts.api_name(key)
        row: dict[str, Any] = {
            "id": name, "api": name, "api_role": "title", "href": site.url("latency", api=name), "requests": count.requests,
            "errors": count.errors, "errors_role": "error" if count.errors else "muted", "waits": "long poll" if key in LONG_POLLS else "",
            "waits_role": "muted",
        }  # fmt: skip
        for share, title in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max")):
            value = count.latencies.highest if share == 1.0 and count.latencies.count else count.latencies.percentile(share)
            row[title], row[f"{title}_ns"] = ("-" if value is None else duration(value)), value
        held = work.get(None if key == ALL else key)
        for share, title in ((0.5, "work_p50"), (0.99, "work_p99")):
            worked = own_time_ns(held, share)
            row[title], row[f"{title}_ns"] = ("-" if worked is None else duration(worked)), worked
        found.append(row)
    return found
