"""Connection detectors on recordings of real clients and brokers."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.decoder.connection import ExchangeDone, RequestSeen
from barnabas.decoder.exchange import State
from barnabas.decoder.findings import Finding, Inspector, Severity
from barnabas.decoder.happening import Closed, Opened
from retold.exchanges import SECOND, again, look, recorded

Replay = Callable[..., list[Finding]]


def test_a_client_for_each_record(replay: Replay) -> None:
    (found,) = replay("fetching-client-per-record", only=["connection-churn"])
    assert (found.severity, found.count) == (Severity.MEDIUM, 13)
    assert "makes a new client for every record or two" in found.seen and "client 'throwaway'" in found.seen
    assert found.about["pattern"] == "a client per record" and found.about["api"] == "Produce"
    assert "one producer" in found.remedy


def test_some_short_jobs_are_none(replay: Replay) -> None:
    assert replay("fetching-client-per-batch-job", only=["connection-churn"]) == []
    assert replay("fetching-throttled-producer", only=["connection-churn"]) == []


def test_short_connections(replay: Replay) -> None:
    (found,) = replay("fetching-short-connections", only=["connection-churn"])
    assert (found.severity, found.count) == (Severity.LOW, 31)
    assert found.about["pattern"] == "short connections" and "client 'probe'" in found.seen


def test_connections_that_are_never_used(replay: Replay) -> None:
    (found,) = replay("fetching-never-used", only=["unused-connections"])
    assert (found.severity, found.count) == (Severity.INFO, 7)
    assert "opened 7 connections" in found.seen
    assert replay("fetching-short-connections", only=["unused-connections"]) == []


def test_many_connections_of_one_client() -> None:
    # A recorded connection, told as many that stay open.
    told = recorded("fetching-lists-topics-seldom", "Metadata")[0]
    (found,) = look([again(told, connection=1000 + n) for n in range(60)], "many-connections")
    assert found.severity is Severity.INFO and "holds 60 connections" in found.seen
    assert look([again(told, connection=1000 + n) for n in range(40)], "many-connections") == []
    (more,) = look([again(told, connection=1000 + n) for n in range(300)], "many-connections")
    assert more.severity is Severity.LOW and more.about["connections"] == 300


def test_requests_that_end_the_connection(replay: Replay) -> None:
    (found,) = replay("fetching-request-too-large", only=["closed-without-answer"])
    assert (found.severity, found.count) == (Severity.MEDIUM, 3)
    assert "left 1 request (OffsetCommit) without an answer" in found.seen and not found.about["idle"]


def test_an_idle_connection_that_is_closed(replay: Replay) -> None:
    (found,) = replay("fetching-idle-connection", only=["closed-without-answer"])
    assert found.severity is Severity.INFO and "nothing was lost" in found.seen and found.about["idle"]


def test_a_request_lost_to_an_idle_close() -> None:
    # The race with the broker's close is not to be had on purpose: the last request of a recording stays unanswered.
    told = recorded("fetching-lists-topics-seldom", "Metadata")
    inspector = Inspector(["closed-without-answer"])
    first = told[0]
    inspector.feed(Opened(7, first.client, first.broker, first.request_time_ns or 0))
    for exchange in told[:3]:
        inspector.look(again(exchange, connection=7))
    lost = again(told[3], after=300, connection=7, state=State.NO_RESPONSE, response_time_ns=None)
    lost.response = None
    inspector.feed(RequestSeen(lost))
    inspector.feed(ExchangeDone(lost))
    inspector.feed(Closed(7, (lost.request_time_ns or 0) + SECOND // 100, "rst", "broker"))
    (found,) = inspector.findings()
    assert found.severity is Severity.LOW and found.about["idle"]
    assert "had been idle for 5 min and left 1 request (Metadata) without an answer" in found.seen
    assert "connections.max.idle.ms" in found.remedy


def test_clients_that_go_are_no_loss(replay: Replay) -> None:
    for name in ("no-answer", "closes-in-a-long-poll", "short-connections", "client-per-record"):
        assert replay(f"fetching-{name}", only=["closed-without-answer"]) == []


def test_an_unknown_api_and_an_unknown_version(replay: Replay) -> None:
    found = replay("fetching-unknown-api", only=["undecodable-frame"])
    assert [(f.severity, f.about["api_key"], f.about["newest_known"]) for f in found] == [
        (Severity.INFO, 999, None),
        (Severity.INFO, 3, 13),
    ]
    assert "Metadata v99; the newest known here is v13" in found[1].seen and "barnabas schema import" in found[1].remedy


def test_damaged_bytes(replay: Replay) -> None:
    told = recorded("fetching-lists-topics-seldom", "Metadata")[1]
    cut = again(told)
    cut.response = (told.response or b"")[:-9]
    (found,) = look([cut], "undecodable-frame")
    assert found.severity is Severity.LOW and "cannot be decoded" in found.seen
    assert replay("fetching-lists-topics-seldom", only=["undecodable-frame"]) == []
