"""The page of ``barnabas report``: its order, what is folded, and how a browser shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from barnabas.captures.reports import Report
from barnabas.ui.cli.fleet.report_page import html, intervals
from harness.browsing.chromium import CHROMIUM, browser
from harness.browsing.html_page import Page

HOUR = 3600 * 10**9
START = 1_789_999_200 * 10**9  # 2026-09-21 14:00:00
EVIL = "<script>alert(1)</script>\x1b[31m"


def a_report(name: str, rows: list[dict[str, Any]], **options: Any) -> Report:
    return Report(name, name.capitalize(), f"About `{name}`.", tuple(rows[0]), rows, **options)


def finding(id_: str, severity: str) -> dict[str, Any]:
    return {
        "id": id_, "severity": severity, "findings": 1, "captures": 1, "times": 3, "such_as": EVIL, "first_ns": START, "last_ns": START + HOUR,
    }  # fmt: skip


def use(client_id: str, version: int, software: str = "3.0.0") -> dict[str, Any]:
    return {
        "client_id": client_id, "software_name": "apache-kafka-java", "software_version": software, "api": "Fetch", "api_key": 1,
        "api_version": version, "requests": 10, "errors": 1, "refused": 0, "hosts": 1, "first_ns": START, "last_ns": START + HOUR,
    }  # fmt: skip


@pytest.fixture
def fleet() -> list[Report]:
    """Reports of a day with a gap."""
    busy = [0, 1, 2, 9, 10, 11]
    requests = [{"start_ns": START + hour * HOUR, "requests": 100 + hour, "errors": hour, "request_bytes": 5000, "response_bytes": 70_000} for hour in busy]
    errors = [
        {"start_ns": START + hour * HOUR, "error": f"{name}_IN_A_LONG_ERROR_CODE_{number}", "errors": 1 + number}
        for hour in busy for number, name in enumerate(("REBALANCE", "COORDINATOR", "UNKNOWN", "LEADER", "FENCED", "REPLICA", "OFFSET", "TOPIC"))
    ]  # fmt: skip
    recorded = [(START, START + 3 * HOUR - 1), (START + 9 * HOUR, START + 12 * HOUR - 1)]
    over: dict[str, Any] = {"over": "start_ns", "interval_ns": HOUR, "recorded": recorded}
    talkers = [
        {"client_id": f"{'a-client-id-that-is-very-long-' * 4}{number}", "host": "10.0.0.1", "request_bytes": number + 1, "response_bytes": 10}
        for number in range(40)
    ]
    return [
        a_report("clients", [use(f"orders-{number}", 12) for number in range(30)] + [use(EVIL, 4)]),
        a_report("throughput", requests, **over),
        a_report("errors-over-time", errors, **over),
        a_report("talkers", talkers),
        a_report("findings", [finding("produce-refused", "high"), finding("acks-1", "info")]),
    ]


def test_the_verdict_and_findings_come_first_then_charts_then_tables(fleet: list[Report]) -> None:
    page = html(fleet, "tables")
    places = [page.index(part) for part in ("2 kinds of problems: 1 high, 1 info", 'id="findings"', 'id="charts"', "<svg", 'id="clients"', "<table")]
    assert places == sorted(places)


def test_clients_of_one_kind_are_folded(fleet: list[Report]) -> None:
    text = Page(html(fleet, "tables")).text
    assert "30 clients of apache-kafka-java 3.0.0, 1 API version, 300 requests: orders-0, orders-1, orders-10" in text and "and 24 more" in text
    assert f"1 client of apache-kafka-java 3.0.0, 1 API version, 10 requests: {EVIL[:-5]}\\x1b[31m" in text


def test_intervals_that_no_capture_covers_are_gaps(fleet: list[Report]) -> None:
    over = intervals(fleet[1])
    assert over.gaps() == [(START + 3 * HOUR, START + 9 * HOUR)] and len(over.starts()) == 12
    assert "2026-09-21 17:00:00.000 to 23:00:00.000Z: not recorded" in Page(html(fleet[1:2], "tables")).text


def test_without_the_table_of_files_nothing_is_a_gap(fleet: list[Report]) -> None:
    fleet[1].recorded = []
    assert intervals(fleet[1]).gaps() == []


def test_too_many_intervals_are_not_drawn(fleet: list[Report]) -> None:
    fleet[1].interval_ns = 10**9
    page = html(fleet[1:2], "tables")
    assert "<svg" not in page and "choose longer ones with --stretch" in page


def test_clusters_are_named_where_there_are_several(fleet: list[Report]) -> None:
    for number, row in enumerate(fleet[3].rows):
        row["cluster_id"] = f"cluster-{number % 2}"
    text = Page(html(fleet[3:4], "tables")).text
    assert "10.0.0.1 cluster-0: " in text and "10.0.0.1 cluster-1: " in text
    for row in fleet[3].rows:
        row["cluster_id"] = "cluster-0"
    assert "10.0.0.1 cluster-0: " not in Page(html(fleet[3:4], "tables")).text


def change(what: str, name: str, unit: str, previous: float | None, latest: float | None) -> dict[str, Any]:
    return {"cluster_id": None, "what": what, "name": name, "unit": unit, "previous": previous, "latest": latest}


def test_what_got_worse_is_in_the_overview() -> None:
    rows = [
        change("error rate", "Produce", "share", 0.001, 0.05),
        change("error rate", "Fetch", "share", 0.0001, 0.0004),
        change("p99 latency", "Produce", "ns", 20e6, 250e6),
        change("p99 latency", "Metadata", "ns", 20e6, 30e6),
        change("error", "Produce REQUEST_TIMED_OUT", "errors", 0, 12),
        change("requests of a client", "new-one", "requests", 0, 5),
        change("requests of a client", "old-one", "requests", 5, 0),
    ]
    page = html([a_report("changes", rows)], "tables")
    overview = Page(page[: page.index("<nav>")]).text
    assert "Higher error rate: Produce (0.10 % → 5.00 %)." in overview and "Fetch" not in overview
    assert "Higher p99 latency: Produce (20.0 ms → 250.0 ms)." in overview and "Metadata" not in overview
    assert "New errors: Produce REQUEST_TIMED_OUT (0 → 12)." in overview
    assert "New clients: new-one." in overview and "Clients that are gone: old-one." in overview
    assert "Nothing is worse" in html([a_report("changes", rows[1:2])], "tables")


def test_rates_are_of_the_time_that_was_recorded(fleet: list[Report]) -> None:
    """The recording ends in the middle of the third hour: as many requests in half of the time are twice as many each second."""
    rows = [{"start_ns": START + hour * HOUR, "requests": 3600, "errors": 0, "request_bytes": 1, "response_bytes": 1} for hour in range(3)]
    fleet[1].rows, fleet[1].recorded = rows, [(START, START + 5 * HOUR // 2)]
    text = Page(html(fleet[1:2], "tables")).text
    assert "16:00:00Z: 2" in text and "15:00:00Z: 1" in text


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.slow)])
def test_a_browser_shows_all_of_it_and_loads_nothing(fleet: list[Report], tmp_path: Path, width: int) -> None:
    file = tmp_path / "page.html"
    file.write_text(html(fleet, EVIL), "utf-8")
    with browser() as page:
        page.set_viewport_size({"width": width, "height": 900})
        asked, said = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(file.as_uri())
        assert asked == [file.as_uri()] and said == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        outside = """[...document.querySelectorAll("figure")].flatMap(figure => {
            const box = figure.getBoundingClientRect();
            return [...figure.querySelectorAll("text")].filter(text => text.getClientRects().length && text.textContent).filter(text => {
                const its = text.getBoundingClientRect();
                return its.left < box.left || its.right > box.right || its.top < box.top || its.bottom > box.bottom;
            }).map(text => text.textContent)})"""
        assert page.evaluate(outside) == []
        overlapping = """[...document.querySelectorAll("figure svg")].flatMap(svg => {
            const boxes = [...svg.querySelectorAll(".role-legend-label text")].map(text => [text.textContent, text.getBoundingClientRect()]);
            return boxes.flatMap(([name, a], i) => boxes.slice(i + 1).filter(([_, b]) =>
                a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom).map(([other]) => name + " / " + other));
        })"""
        assert page.evaluate(overlapping) == []
        small = """[...document.querySelectorAll("figure svg")].filter(svg => svg.getClientRects().length).flatMap(svg => {
            const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            return [...svg.querySelectorAll("text")].map(text => parseFloat(getComputedStyle(text).fontSize) * scale);
        }).filter(size => size < 7.5)"""
        assert page.evaluate(small) == []
        drawn = page.evaluate("[...document.querySelectorAll('figure svg')].filter(svg => svg.getClientRects().length).length")
        assert drawn == page.evaluate("document.querySelectorAll('figure').length") >= 4
