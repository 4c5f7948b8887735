"""Throughput over time: bytes, exchanges and errors by API, records by topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import Request
from nicegui import ui
from nicegui.events import EChartPointClickEventArguments

from ....decoder.schema import facts
from ...safe import visible
from ...times import clock, iso
from ...tui.model.filter_terms import combine, quoted
from ..charts import AXIS, LEGEND, TOOLTIP, Options, nothing, times_axis, zoom
from ..site import TICK_SECONDS, Site, link, text

MOST_SERIES = 8
_OTHERS = "others"
_COLOURS = ["#2f8fd0", "#d98324", "#2ea36b", "#9a6fd0", "#e0503a", "#b0a020", "#3fb5b5", "#d06fa8", "#7d8b99"]


class _Quantity(NamedTuple):
    """What a chart shows: `field` of the counts of each API, or with `records` of each topic."""

    words: str
    field: str
    records: bool = False


WHAT = {
    "sent": _Quantity("Bytes sent", "sent"), "received": _Quantity("Bytes received", "received"),
    "produced": _Quantity("Records produced", "produced", True), "fetched": _Quantity("Records fetched", "fetched", True),
    "count": _Quantity("Exchanges", "count"), "errors": _Quantity("Errors", "errors"),
}  # fmt: skip
"""By the value of `what` in the address."""


class _Series(NamedTuple):
    """A line of the legend: the values of each period by its number, and the filter for its exchanges."""

    name: str
    filter: str
    values: dict[int, int]


def register(site: Site) -> None:
    """Add the page."""

    @ui.page("/throughput")
    def page(request: Request, what: str = "sent") -> None:
        what = what if what in WHAT else "sent"
        quantity = WHAT[what]
        counter, name = (site.work.records, "records") if quantity.records else (site.work.traffic, "traffic")
        with site.frame(request, "Throughput"):
            with ui.element("div").classes("bar"):
                for other, each in WHAT.items():
                    chosen = link(each.words, site.url("throughput", what=other)).classes("button")
                    if other == what:
                        chosen.classes("on")
                state = text("", "muted")
            if quantity.records and not site.session.capture.has_frames:
                text("There are summaries only, no messages, so records cannot be counted.", "note", "p")
                return
            chart = ui.echart(over_time(site, quantity), on_point_click=lambda event: _opened(site, quantity, event))
            chart.style("width: 100%; min-height: 340px").classes("throughput fill")
            shown = [-1]

            def show() -> None:
                site.work.want(name)
                done, pending = counter.done, counter.pending
                state.set_text(f"{done:,} exchange{'s' * (done != 1)}{f', read {done / (done + pending):.0%}' if pending else ''}")
                if done != shown[0]:
                    shown[0] = done
                    chart.options.clear()
                    chart.options.update(over_time(site, quantity))
                    chart.update()

            site.work.want(name)
            ui.timer(0.2, show, once=True)
            ui.timer(2 * TICK_SECONDS, show)


def over_time(site: Site, quantity: _Quantity) -> Options:
    """Stacked bars per second, by API or by topic, as ECharts has it."""
    bins = site.work.records.over_time if quantity.records else site.work.traffic.over_time
    periods, seconds = bins.periods(), bins.step_ns / 1e9
    times = [clock(period * bins.step_ns, 0 if bins.step_ns >= 1_000_000_000 else 2) for period in periods]
    series = [
        {
            "name": each.name, "type": "bar", "stack": "all", "barCategoryGap": "0%",
            "data": [round(each.values.get(period, 0) / seconds, 2) for period in periods],
        }
        for each in _series(site, quantity)
    ]  # fmt: skip
    return {
        **nothing("" if series else f"{quantity.words}: none"),
        "animation": False, "color": _COLOURS, "legend": LEGEND, "tooltip": TOOLTIP | {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "grid": {"left": 12, "right": 36, "top": 56, "bottom": 62, "containLabel": True},
        "xAxis": times_axis() | {"type": "category", "data": times, "splitLine": {"show": False}},
        "yAxis": AXIS | {"type": "value", "name": f"{quantity.words} per second", "axisLabel": AXIS["axisLabel"] | {":formatter": "barnabas.amount"}}, "dataZoom": zoom("x"), "series": series,
    }  # fmt: skip


def _series(site: Site, quantity: _Quantity) -> list[_Series]:
    """The `MOST_SERIES` largest, and the others together."""
    found: dict[str, _Series] = {}

    def add(period: int, name: str, filter: str, counts: object) -> None:
        if amount := getattr(counts, quantity.field):
            values = found.setdefault(name, _Series(name, filter, {})).values
            values[period] = values.get(period, 0) + amount

    if quantity.records:
        for period, topics in site.work.records.over_time.bins.items():
            for partition, records in topics.items():
                add(period, visible(partition.topic) or _OTHERS, f"topic == {quoted(partition.topic)}", records)
    else:
        for period, apis in site.work.traffic.over_time.bins.items():
            for key, traffic in apis.items():
                name = facts.api_name(key)
                add(period, name, f"api == {name}", traffic)
    ranked = sorted(found.values(), key=lambda each: (each.name == _OTHERS, -sum(each.values.values())))
    others: dict[int, int] = {}
    for each in ranked[MOST_SERIES:]:
        for period, amount in each.values.items():
            others[period] = others.get(period, 0) + amount
    return [*ranked[:MOST_SERIES], *([_Series(_OTHERS, "", others)] if others else [])]


def _opened(site: Site, quantity: _Quantity, event: EChartPointClickEventArguments) -> None:
    bins = site.work.records.over_time if quantity.records else site.work.traffic.over_time
    periods = bins.periods()
    if not 0 <= event.data_index < len(periods):
        return
    start = periods[event.data_index] * bins.step_ns
    only: Mapping[str, Any] = {each.name: each.filter for each in _series(site, quantity)}
    site.go(site.exchanges(combine(only.get(event.series_name, ""), f"time in {iso(start)}..{iso(start + bins.step_ns - 1)}")))
