"""Findings while the traffic runs: the inspector process beside the observer, and what it reports when."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from barnabas.decoder.connection.events import Closed
from barnabas.decoder.findings import Finding, Inspector, Severity
from barnabas.proxy import Proxy
from barnabas.proxy.events import (
    ConnectionClosed,
    Counts,
    Event,
    FindingSeen,
    NotInspected,
    ProcessFailed,
    decode,
    encode,
)
from barnabas.proxy.observers.finding_reports import FindingReports
from barnabas.proxy.observers.ring_feed import ConnectionEnds
from barnabas.proxy.observers.traffic_decoder import TrafficDecoder
from barnabas.proxy.processes import children
from harness import wire
from harness.recordings import metadata_answer, metadata_request
from harness.scripted import answering
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE
from harness.wire import with_size
from traffic.conversations import Conversations

SECOND = 1_000_000_000
MALFORMED = "malformed-api-versions-fallback"
WRONG = b"\x00\x23" + bytes(15)
"""UNSUPPORTED_VERSION in no known form: what librdkafka's mock brokers once answered ApiVersions v3 with."""
CLIENT, BROKER = ("10.0.0.1", 50001), ("10.0.0.2", 9092)


REFUSING = answering(WRONG)
"""A broker that refuses every ApiVersions request in a form that clients cannot read."""


def ask(client: socket.socket, number: int) -> None:
    assert wire.ask(client, wire.request(18, 3, number, b"\0"))


def next_of(proxy: Proxy) -> FindingSeen:
    while (found := next_event(proxy, FindingSeen)).finding != MALFORMED:
        pass
    return found


@pytest.fixture
def patient(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Proxy]:
    """Starts a proxy that waits for its last findings as long as a busy machine takes, not only some seconds."""
    monkeypatch.setattr(children, "REST_SECONDS", (PATIENCE, PATIENCE))
    monkeypatch.setattr(children, "READER_SECONDS", PATIENCE)
    return partial(testbed.proxy, findings=True, drain_seconds=PATIENCE)


def rest(proxy: Proxy) -> list[Event]:
    proxy.stop()
    return list(proxy.events())


def test_a_finding_is_reported_while_the_traffic_runs(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(REFUSING).address, findings=True)
    client = testbed.client(proxy.address)
    ask(client, 1)
    found = next_of(proxy)
    assert (found.severity, found.count) == ("high", 1)
    assert found.why and found.remedy
    assert found.about["api"] == "ApiVersions"
    assert found.text.startswith("finding (high, malformed-api-versions-fallback): broker 127.0.0.1")
    assert decode(encode(found)) == found


def test_a_finding_is_reported_again_when_doubled_and_at_the_end(
    testbed: Testbed, patient: Callable[..., Proxy]
) -> None:
    proxy = patient(testbed.broker(REFUSING).address)
    client = testbed.client(proxy.address)
    ask(client, 1)
    found = [next_of(proxy)]
    assert found[0].count == 1
    for number in range(2, 11):
        ask(client, number)
    found.append(next_of(proxy))
    assert found[1].count in range(2, 11)
    ask(client, 11)
    found += [e for e in rest(proxy) if isinstance(e, FindingSeen) and e.finding == MALFORMED]
    assert found[-1].count == 11
    assert len(found) <= 5
    assert {e.number for e in found} == {found[0].number}


def test_lower_severities_than_wanted_are_not_reported(testbed: Testbed, patient: Callable[..., Proxy]) -> None:
    def found(severity: str) -> list[Event]:
        broker = testbed.broker(answering(bytes(6) + b"surplus"))
        proxy = patient(broker.address, findings_from=severity)
        client = testbed.client(proxy.address)
        for number in (1, 2):  # the client goes on after the first one: it does not mind
            client.sendall(wire.request(12, 0, number, b"\0\1g" + bytes(4) + b"\0\1m"))  # Heartbeat v0
            assert wire.read_frame(client)
        return [e for e in rest(proxy) if isinstance(e, FindingSeen) and e.finding == "surplus-bytes"]

    assert [e.severity for e in found("low") if isinstance(e, FindingSeen)] == ["low"]
    assert found("medium") == []


def test_without_findings_there_is_no_inspector(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(REFUSING).address)
    assert set(proxy._children) == {"relay", "observer"}
    ask(testbed.client(proxy.address), 1)
    assert not [e for e in rest(proxy) if isinstance(e, FindingSeen)]


def test_a_dead_inspector_is_reported_and_all_else_goes_on(testbed: Testbed, tmp_path: Path) -> None:
    proxy = testbed.proxy(testbed.broker(REFUSING).address, findings=True, record=tmp_path)
    client = testbed.client(proxy.address)
    ask(client, 1)
    proxy._children["inspector"].kill()
    failed = next_event(proxy, ProcessFailed)
    assert failed.process == "inspector"
    assert "traffic continues" in failed.text
    ask(client, 2)
    counts = [e for e in rest(proxy) if isinstance(e, Counts)]
    assert counts[-1].exchanges == 2


@pytest.mark.parametrize("lossless", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_hung_inspector_costs_nobody_anything(testbed: Testbed, tmp_path: Path, lossless: bool) -> None:
    """It is stopped while 60 MB pass; then it reports how much it has not seen."""

    broker = testbed.broker(answering(bytes(4 << 20)))
    proxy = testbed.proxy(broker.address, findings=True, lossless=lossless, record=tmp_path)
    inspector = proxy._children["inspector"].pid
    client = testbed.client(proxy.address)
    assert len(wire.ask(client, wire.request(18, 3, 0, b"\0"))) > 4 << 20
    os.kill(inspector, signal.SIGSTOP)
    try:
        for number in range(1, 16):
            assert len(wire.ask(client, wire.request(18, 3, number, b"\0"))) == 8 + (4 << 20)
    finally:
        os.kill(inspector, signal.SIGCONT)
    events = [next_event(proxy, NotInspected), *rest(proxy)]
    missed = [e for e in events if isinstance(e, NotInspected)]
    assert missed[-1].lost_bytes > 20 << 20
    assert "findings may be missing" in missed[-1].text
    if lossless:
        assert [e.lost_bytes for e in events if isinstance(e, Counts)][-1] == 0


def test_it_ends_with_the_supervisor(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(REFUSING).address, findings=True)
    process = proxy._children["inspector"]
    assert process.poll() is None
    proxy.stop()
    assert process.returncode == 0


def test_a_connection_in_vain_and_a_reset_reach_the_detectors() -> None:
    seen: list[object] = []
    traffic = TrafficDecoder(seen.append)
    traffic.opened(1, 100, ConnectionEnds(CLIENT, BROKER, failed="refused"))
    traffic.closed(1, 200, "rst", "broker")
    traffic.opened(2, 300, ConnectionEnds(CLIENT, BROKER))
    traffic.lost(2, 1, 50)
    traffic.closed(2, 400, "lost")
    words = [(type(h).__name__, getattr(h, "how", ""), getattr(h, "by", "")) for h in seen]
    assert words == [
        ("Opened", "", ""),
        ("Closed", "refused", "broker"),
        ("Opened", "", ""),
        ("Missing", "", ""),
        ("Closed", "", ""),
    ]


@pytest.mark.parametrize("side", [0, 1])
def test_an_end_of_one_side_is_an_end_after_a_moment(side: int) -> None:
    seen: list[object] = []
    traffic = TrafficDecoder(seen.append)
    traffic.opened(1, SECOND, ConnectionEnds(CLIENT, BROKER))
    traffic.data(1, 0, SECOND, wire.request(18, 0, 1))
    traffic.ended(1, side, 2 * SECOND)
    # No answer can come after the broker's end; after the client's it still may.
    assert [type(each).__name__ for each in seen] == ["Opened", "RequestSeen", "ExchangeDone"][: 2 + side]
    by = ("client", "broker")[side]
    assert traffic.half_closed(3 * SECOND - 1) == []
    assert traffic.half_closed(3 * SECOND) == [Closed(1, 2 * SECOND, "fin", by, half=True)]
    assert traffic.half_closed(9 * SECOND) == []
    assert [exchange.correlation_id for exchange in traffic.in_flight()] == [1] * (1 - side)
    traffic.closed(1, 10 * SECOND, "rst", by)
    assert seen[-1] == Closed(1, (10, 2)[side] * SECOND, "fin", by)
    assert traffic.half_closed(20 * SECOND) == []


@pytest.mark.parametrize("side", [0, 1])
def test_what_comes_behind_one_end_is_found_as_without_it(side: int) -> None:
    """An answer that comes 4 s after the client's end; a request 20 s after the broker ended an idle connection, unnoticed."""

    def found(live: bool) -> list[tuple[str, str, str]]:
        inspector = Inspector()
        traffic = TrafficDecoder(inspector.feed)
        for number in range(1, 7):
            start = number * 100 * SECOND
            traffic.opened(number, start, ConnectionEnds(("10.0.0.1", 50000 + number), BROKER))
            traffic.data(number, 0, start, metadata_request(1))
            traffic.data(number, 1, start + 1, metadata_answer(1))
            if side == 0:
                traffic.data(number, 0, start + 2, metadata_request(2))
            at = start + (30 * SECOND if side else 3)
            if live:
                traffic.ended(number, side, at)
                for closed in traffic.half_closed(at + SECOND):
                    inspector.feed(closed)
            if side:
                traffic.data(number, 0, start + 50 * SECOND, metadata_request(2))
            else:
                traffic.data(number, 1, start + 4 * SECOND, metadata_answer(2))
            traffic.closed(number, start + 50 * SECOND + 1, "rst", ("client", "broker")[side])
        return [(each.id, str(each.severity), each.seen) for each in inspector.findings() if each.id != "no-api-versions"]

    assert found(live=True) == found(live=False)
    assert [(id_, severity) for id_, severity, _ in found(live=True)] == [("closed-without-answer", "medium")] * side


def test_both_sides_end_at_once() -> None:
    traffic = TrafficDecoder()
    traffic.opened(1, SECOND, ConnectionEnds(CLIENT, BROKER))
    traffic.ended(1, 0, 2 * SECOND)
    traffic.closed(1, 2 * SECOND + 5, "fin", "client")
    assert traffic.half_closed(9 * SECOND) == []


def test_faults_of_ours_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a fault")

    seen: list[str] = []
    traffic = TrafficDecoder(fail, lambda event: seen.append(type(event).__name__))
    traffic.opened(1, 100, ConnectionEnds(CLIENT, BROKER))
    traffic.data(1, 0, 200, wire.request(18, 3, 1, b"\0"))
    assert traffic.faults == 2 and seen == ["Opened", "RequestSeen"]
    with monkeypatch.context() as patch:
        patch.setattr("barnabas.decoder.Connection.receive_from_broker", fail)
        traffic.data(1, 1, 300, wire.response(1, WRONG))
    assert traffic.faults == 3
    traffic.data(1, 1, 300, wire.response(1, WRONG))
    assert traffic.faults == 3
    traffic.closed(1, 400)
    assert seen == ["Opened", "RequestSeen", "Closed"]


def test_the_other_leg_of_a_changed_frame() -> None:
    inspector = Inspector()
    traffic = TrafficDecoder(inspector.feed)
    traffic.opened(1, 100, ConnectionEnds(CLIENT, BROKER))
    from barnabas.decoder import encode_request, encode_response

    def found(port: int) -> bytes:
        brokers = [{"node_id": 7, "host": "10.0.0.2", "port": port}]
        return with_size(encode_response(3, 8, {"brokers": brokers}, correlation_id=1))

    traffic.data(1, 0, 200, with_size(encode_request(3, 8, {}, correlation_id=1, client_id="t")))
    traffic.broker_leg(1, 1, 300, found(9092), "addresses")
    traffic.data(1, 1, 300, found(40001))
    cluster = inspector.traffic.connections[1].cluster
    assert cluster.nodes == {7: "10.0.0.2:40001"}
    assert cluster.node_at("10.0.0.2:9092") == 7


def finding(count: int, severity: Severity = Severity.LOW, **about: Any) -> Finding:
    return Finding("some-id", severity, "seen", "why", "remedy", count, about={"client_id": "c", **about})


def reported(reports: FindingReports, *findings: Finding, everything: bool = False) -> list[tuple[int, int]]:
    """(number, count) of what is reported."""
    found = []
    for due in reports.due(findings, everything):
        reports.reported(due)
        found.append((due.number, due.finding.count))
    return found


def test_what_is_reported() -> None:
    reports = FindingReports(Severity.LOW)
    assert reported(reports, finding(1)) == [(1, 1)]
    assert reported(reports, finding(1)) == []
    assert reported(reports, finding(2)) == [(1, 2)]
    assert reported(reports, finding(3)) == []
    assert reported(reports, finding(3), finding(1, client_id="other")) == [(2, 1)]
    assert reported(reports, finding(3, Severity.HIGH), finding(1, client_id="other")) == [(1, 3)]
    assert reported(reports, finding(3), finding(1, client_id="other")) == []  # less severe than before
    assert reported(reports, finding(5), everything=True) == [(1, 5)]
    assert reported(reports, finding(9, Severity.INFO)) == []


def test_the_same_client_from_another_port_is_the_same_finding() -> None:
    reports = FindingReports(Severity.LOW)
    assert reported(reports, finding(1, client="10.0.0.1:5000")) == [(1, 1)]
    assert reported(reports, finding(1, client="10.0.0.1:5001")) == []
    assert reported(reports, finding(1, client="10.0.0.2:5001")) == [(2, 1)]
    # two at the same time that look alike are two
    assert reported(reports, finding(1, client="10.0.0.1:5000"), finding(1, client="10.0.0.1:5001")) == [(3, 1)]


def test_what_was_not_sent_is_reported_later() -> None:
    reports = FindingReports(Severity.LOW)
    assert len(list(reports.due([finding(1)]))) == 1
    assert len(list(reports.due([finding(1)]))) == 1


def test_connections_close_before_the_last_findings(testbed: Testbed, patient: Callable[..., Proxy]) -> None:
    """The last findings come after the last connection has ended."""
    proxy = patient(testbed.broker(REFUSING).address)
    client = testbed.client(proxy.address)
    ask(client, 1)
    client.close()
    events = rest(proxy)
    assert [e for e in events if isinstance(e, ConnectionClosed)]
    assert [e.count for e in events if isinstance(e, FindingSeen) and e.finding == MALFORMED] == [1]


def test_large_messages_are_not_kept_decoded() -> None:
    """Detectors keep exchanges; decoded, one of 20,000 topics takes 20 MB."""
    talk = Conversations()
    connection = talk.open()
    partition = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}
    topics = [{"name": f"topic-{number}", "partitions": [partition]} for number in range(10_000)]
    for _ in range(2):
        talk.ask(connection, "Metadata", 9, {"topics": None}, {"brokers": [], "topics": topics})
    assert [exchange._answered for exchange in talk.exchanges] == [None, None]
    assert len(talk.exchanges[0].response_message["topics"]) == 10_000  # type: ignore[index]
