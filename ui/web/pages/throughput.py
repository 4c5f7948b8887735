"""Throughput over time in bytes, exchanges and errors, by API; and the leaders of partitions as Metadata names them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import Request
from nicegui import ui
from nicegui.events import EChartPointClickEventArguments

from ....decoder.schema import facts
from ...safe import visible
from ...times import clock, iso
from ...tui.model.columns import size
from ..charts import AXIS, LEGEND, TOOLTIP, Options, zoom
from ..site import TICK_SECONDS, Site, link, text

MOST_APIS = 8
_OTHERS = "others"
WHAT = {"sent": "Bytes sent", "received": "Bytes received", "count": "Exchanges", "errors": "Errors"}
_COLOURS = ["#2f8fd0", "#d98324", "#2ea36b", "#9a6fd0", "#e0503a", "#b0a020", "#3fb5b5", "#d06fa8", "#7d8b99"]


def register(site: Site) -> None:
    """Add the page."""

    @ui.page("/throughput")
    def page(request: Request, what: str = "sent") -> None:
        what = what if what in WHAT else "sent"
        with site.frame(request, "Throughput"):
            with ui.element("div").classes("bar"):
                for name, words in WHAT.items():
                    chosen = link(words, site.url("throughput", what=name)).classes("button")
                    if name == what:
                        chosen.classes("on")
                state = text("", "muted")
            chart = ui.echart(over_time(site, what), on_point_click=lambda event: _opened(site, event))
            chart.style("width: 100%; height: 340px; flex: none").classes("throughput")
            holder = ui.element("div")
            shown: list[Any] = [None]

            def show() -> None:
                site.work.want("traffic", "analysis", "statistics")
                done, pending = site.work.traffic.done, site.work.traffic.pending
                state.set_text(f"{done:,} exchanges{f', read {done / (done + pending):.0%}' if pending else ''}")
                now = done, site.session.analysis.result.read
                if now == shown[0]:
                    return
                shown[0] = now
                chart.options.clear()
                chart.options.update(over_time(site, what))
                chart.update()
                holder.clear()
                with holder:
                    _leaders(site)

            site.work.want("traffic", "analysis", "statistics")
            ui.timer(0.2, show, once=True)
            ui.timer(2 * TICK_SECONDS, show)


def over_time(site: Site, what: str) -> Options:
    """Stacked bars per second, by API, as ECharts has it."""
    traffic = site.work.traffic
    periods = traffic.periods()
    totals: Counter[int] = Counter()
    for found in traffic.bins.values():
        for key, each in found.items():
            totals[key] += getattr(each, what)
    keys = [key for key, total in totals.most_common(MOST_APIS) if total]
    seconds = traffic.step_ns / 1e9
    series: list[Options] = []
    for name, chosen in [*((facts.api_name(key), {key}) for key in keys), (_OTHERS, set(totals) - set(keys))]:
        values = [
            round(sum(getattr(each, what) for key, each in traffic.bins.get(period, {}).items() if key in chosen) / seconds, 2) for period in periods
        ]
        if any(values):
            series.append({"name": name, "type": "bar", "stack": "all", "barCategoryGap": "0%", "data": values})
    times = [clock(period * traffic.step_ns, 0 if traffic.step_ns >= 1_000_000_000 else 2) for period in periods]
    return {
        "animation": False, "color": _COLOURS, "legend": LEGEND, "tooltip": TOOLTIP | {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "grid": {"left": 12, "right": 16, "top": 44, "bottom": 62, "containLabel": True},
        "xAxis": AXIS | {"type": "category", "data": times, "splitLine": {"show": False}},
        "yAxis": AXIS | {"type": "value", "name": f"{WHAT[what]} per second"}, "dataZoom": zoom("x"), "series": series,
    }  # fmt: skip


def _opened(site: Site, event: EChartPointClickEventArguments) -> None:
    traffic = site.work.traffic
    periods = traffic.periods()
    if not 0 <= event.data_index < len(periods):
        return
    start = periods[event.data_index] * traffic.step_ns
    wanted = f"time in {iso(start)}..{iso(start + traffic.step_ns - 1)}"
    site.go(site.exchanges(wanted if event.series_name == _OTHERS else f"api == {event.series_name} and {wanted}"))


def _leaders(site: Site) -> None:
    """How partitions, requests and bytes are spread over brokers."""
    result = site.session.analysis.result
    clusters = {id(cluster): cluster for conn in result.connections.values() if (cluster := conn.cluster).leaders}
    by_broker: dict[str, list[int]] = {}
    for each in site.session.statistics.connections.values():
        counts = by_broker.setdefault(each.broker, [0, 0, 0])
        counts[0] += each.requests
        counts[1] += each.sent
        counts[2] += each.received
    text("Brokers", "", "h2")
    with ui.element("div").classes("scroll"), ui.element("table").classes("sheet"):
        with ui.element("tr"):
            for title in ("Broker", "Requests", "Bytes sent", "Bytes received"):
                text(title, tag="th")
        for broker, (requests, sent, received) in sorted(by_broker.items(), key=lambda item: -item[1][0]):
            with ui.element("tr"):
                with ui.element("td"):
                    link(visible(broker), site.exchanges(f"broker == {broker}"))
                for words in (f"{requests:,}", size(sent), size(received)):
                    text(words, tag="td")
    for cluster in clusters.values():
        led = Counter(leader.node for leader in cluster.leaders.values())
        topics: dict[str, Counter[int]] = {}
        for (topic, _), leader in cluster.leaders.items():
            topics.setdefault(topic, Counter())[leader.node] += 1
        nodes = sorted(set(led) | set(cluster.nodes))
        text(f"Leaders of partitions{f' in cluster {visible(cluster.id)}' if cluster.id else ''}", "", "h2")
        with ui.element("div").classes("scroll"), ui.element("table").classes("sheet"):
            with ui.element("tr"):
                text("Topic", tag="th")
                for node in nodes:
                    text("no leader" if node < 0 else f"{node} ({visible(cluster.nodes.get(node, 'unknown'))})", tag="th")
            for name, leads in [("all topics", led), *sorted(topics.items())]:
                with ui.element("tr"):
                    text(visible(name), "title" if leads is led else "", "td")
                    even = sum(leads.values()) / max(len(cluster.nodes), 1)
                    for node in nodes:
                        many = leads[node] > 1.5 * even + 1 or (node < 0 and leads[node])
                        text(str(leads[node] or ""), "warning" if many else "", "td")
