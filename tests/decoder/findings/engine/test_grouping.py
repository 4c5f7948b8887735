"""Findings that are alike for several clients are one."""

from __future__ import annotations

from typing import Any

from barnabas.decoder.findings import Finding, Severity
from barnabas.decoder.findings.engine.grouping import grouped
from barnabas.proxy.observers.finding_reports import FindingReports
from traffic.conversations import Conversations


def finding(client_id: str, count: int = 1, severity: Severity = Severity.LOW, host: str = "10.0.0.5", **about: Any) -> Finding:
    about = {"client_id": client_id, "software": "", "client": f"{host}:40001", "topic": "orders", **about}
    return Finding("acks-0", severity, f"client {client_id} did it", "why", "remedy", count, about=about, first_ns=count, last_ns=count, others=1)


def test_the_worst_stands_for_all() -> None:
    (one,) = grouped([finding("a", 3), finding("b", 1, Severity.HIGH), finding("c", 2)])
    assert (one.severity, one.count, one.first_ns, one.last_ns, one.others) == (Severity.HIGH, 6, 1, 3, 3)
    assert one.seen == "3 clients ('a', 'b', 'c'), for example: client b did it"
    assert [client["client_id"] for client in one.about["clients"]] == ["b", "c", "a"], "in the order in which they were seen"


def test_clients_with_one_id_are_named_with_their_hosts() -> None:
    (one,) = grouped([finding("app", 1), finding("app", 2, host="10.0.0.6")])
    assert one.seen.startswith("2 clients ('app' at 10.0.0.5, 'app' at 10.0.0.6), ")


def test_what_differs_in_more_than_the_client_stays_apart() -> None:
    plain = finding("a")
    others = [finding("b", topic="payments"), finding("b", partition=3), finding("a", 2), Finding("acks-0", Severity.LOW, "", "why", "remedy")]
    injected = finding("c")
    injected.rules, injected.others = ["rule"], 0
    for other in (*others, injected):
        assert len(grouped([plain, other])) == 2, other
    measured = grouped([finding("a", per_second=3.5), finding("b", per_second=7)])
    assert len(measured) == 1, "measured numbers may differ"


def test_one_finding_of_the_inspector_for_two_clients() -> None:
    traffic = Conversations("unsupported-version")
    for client_id in ("shop", "billing"):
        conn = traffic.open()
        traffic.ask(conn, "Heartbeat", 4, {"group_id": "g"}, {"error_code": 35}, client_id=client_id)
    (found,) = traffic.inspector.findings()
    assert found.count == 2 and {client["client_id"] for client in found.about["clients"]} == {"shop", "billing"}
    assert [exchange.client_id for exchange in found.exchanges] == ["shop", "billing"]
    assert found.to_dict()["about"]["clients"] == found.about["clients"]


def test_a_live_report_stays_the_same_when_another_client_joins() -> None:
    reports = FindingReports(Severity.INFO)
    numbers = []
    for findings in ([finding("a", 1)], [finding("a", 1), finding("b", 2, Severity.HIGH)], [finding("a", 1), finding("b", 2), finding("c", 9)]):
        for due in reports.due(grouped(findings)):
            reports.reported(due)
            numbers.append(due.number)
    assert numbers == [1, 1, 1]
