"""Partitions: their leaders, and how records and bytes are spread over partitions and brokers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import Request
from nicegui import ui

from ...safe import visible
from ...tui.model.columns import size
from ...tui.model.filter_terms import quoted
from ..site import TICK_SECONDS, Site, grid, link, text
from ..traffic import OTHERS

MOST = 5_000
_RIGHT: dict[str, Any] = {"width": 125, "type": "rightAligned"}
_COLUMNS: tuple[dict[str, Any], ...] = (
    {"field": "topic", "headerName": "Topic", "flex": 1, "minWidth": 130},
    {"field": "partition", "headerName": "Partition", **_RIGHT, "width": 95},
    {"field": "leader", "headerName": "Leader", **_RIGHT, "width": 90},
    {"field": "produced", "headerName": "Records produced", **_RIGHT, "width": 150},
    {"field": "fetched", "headerName": "Records fetched", **_RIGHT, "width": 145},
    {"field": "produced_bytes", "headerName": "Bytes produced", **_RIGHT, "width": 135},
    {"field": "fetched_bytes", "headerName": "Bytes fetched", **_RIGHT, "width": 130},
    {"field": "share", "headerName": "% of topic", **_RIGHT, "headerTooltip": "of the topic's bytes, produced and fetched"},
)  # fmt: skip


def register(site: Site) -> None:
    """Add the page."""

    @ui.page("/partitions")
    def page(request: Request) -> None:
        with site.frame(request, "Partitions"):
            state = text("", "muted", "div")
            table = grid(_COLUMNS, [], classes="half", first=("topic", "partition", "produced", "fetched")) if site.session.capture.has_frames else None
            holder = ui.element("div").classes("contents")
            shown: list[Any] = [None]

            def show() -> None:
                site.work.want("records", "analysis", "statistics")
                records = site.work.records
                now = records.done, site.session.analysis.result.read, site.session.statistics.done
                if now == shown[0]:
                    return
                shown[0] = now
                rows = _rows(site)
                read = f", read {records.done / (records.done + records.pending):.0%}" if records.pending else ""
                none = "No partition: no Metadata, Produce or Fetch in this traffic names one."
                state.set_text(f"{len(rows):,} partition{'s' * (len(rows) != 1)}{read}" if rows or read else none)
                if table is not None:
                    table.set_visibility(bool(rows))
                    table.run_grid_method("setGridOption", "rowData", rows[:MOST])
                holder.clear()
                with holder:
                    _brokers(site)
                    _leaders(site)

            site.work.want("records", "analysis", "statistics")
            ui.timer(0.2, show, once=True)
            ui.timer(2 * TICK_SECONDS, show)


def _clusters(site: Site) -> list[Any]:
    connections = site.session.analysis.result.connections.values()
    return list({id(conn.cluster): conn.cluster for conn in connections if conn.cluster.leaders}.values())


def _rows(site: Site) -> list[dict[str, Any]]:
    """Partitions that Metadata names or that have records, those with most bytes first."""
    leaders = {(topic, number): leader.node for cluster in _clusters(site) for (topic, number), leader in cluster.leaders.items()}
    total = {(each.topic, each.number): counts for each, counts in site.work.records.over_time.total().items()}
    topics: Counter[str] = Counter()
    partitions: Counter[str] = Counter()
    for topic, _ in leaders.keys() | total.keys():
        partitions[topic] += 1
    for (topic, _), each in total.items():
        topics[topic] += each.produced_bytes + each.fetched_bytes
    found = []
    for topic, number in sorted(leaders.keys() | total.keys()):
        counts = total.get((topic, number))
        octets = counts.produced_bytes + counts.fetched_bytes if counts is not None else 0
        share = octets / topics[topic] if topics[topic] else 0.0
        leader = leaders.get((topic, number))
        row: dict[str, Any] = {
            "id": f"{visible(topic)}-{number}", "topic": "others" if (topic, number) == OTHERS else visible(topic), "topic_role": "title",
            "partition": number, "href": site.exchanges(f"topic == {quoted(topic)} and partition == {number}"), "leader": leader,
            "share": round(100 * share), "share_role": "warning" if partitions[topic] > 1 and share > 1.5 / partitions[topic] + 0.05 else "",
            "octets": octets,
        }  # fmt: skip
        for name in ("produced", "fetched", "produced_bytes", "fetched_bytes"):
            row[name] = getattr(counts, name) if counts is not None else 0
        found.append(row)
    return sorted(found, key=lambda row: -row["octets"])


def _brokers(site: Site) -> None:
    by_broker: dict[str, list[int]] = {}
    for each in site.session.statistics.connections.values():
        counts = by_broker.setdefault(each.broker, [0, 0, 0])
        counts[0] += each.requests
        counts[1] += each.sent
        counts[2] += each.received
    if not by_broker:
        return
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


def _leaders(site: Site) -> None:
    """How many partitions of each topic each broker leads."""
    for cluster in _clusters(site):
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
