"""Connection detectors on recordings of real clients and brokers."""

from __future__ import annotations

from barnabas.decoder.exchange import State
from barnabas.decoder.findings import Severity
from barnabas.decoder.happening import Closed, Opened
from retold.edited_exchanges import SECOND, copied
from retold.recorded import exchanges, findings, one


def test_a_client_for_each_record() -> None:
    found = one("fetching-client-per-record", "connection-churn")
    assert (found.severity, found.count) == (Severity.MEDIUM, 13)
    assert "makes a new client for every record or two" in found.seen and "client 'throwaway'" in found.seen
    assert found.about["pattern"] == "a client per record" and found.about["api"] == "Produce"
    assert "one producer" in found.remedy


def test_some_short_jobs_are_none() -> None:
    assert findings("fetching-client-per-batch-job", "connection-churn") == []
    assert findings("fetching-throttled-producer", "connection-churn") == []


def test_short_connections() -> None:
    found = one("fetching-short-connections", "connection-churn")
    assert (found.severity, found.count) == (Severity.LOW, 31)
    assert found.about["pattern"] == "short connections" and "client 'probe'" in found.seen


def test_connections_that_are_never_used() -> None:
    found = one("fetching-never-used", "unused-connections")
    assert (found.severity, found.count) == (Severity.INFO, 7)
    assert "opened 7 connections" in found.seen
    assert findings("fetching-short-connections", "unused-connections") == []


def test_many_connections_of_one_client() -> None:
    # A recorded connection, told as many that stay open.
    told = exchanges("fetching-lists-topics-seldom", "Metadata")[0]
    found = one([copied(told, connection=1000 + n) for n in range(60)], "many-connections")
    assert found.severity is Severity.INFO and "holds 60 connections" in found.seen
    assert findings([copied(told, connection=1000 + n) for n in range(40)], "many-connections") == []
    more = one([copied(told, connection=1000 + n) for n in range(300)], "many-connections")
    assert more.severity is Severity.LOW and more.about["connections"] == 300


def test_requests_that_end_the_connection() -> None:
    found = one("fetching-request-too-large", "closed-without-answer")
    assert (found.severity, found.count) == (Severity.MEDIUM, 3)
    assert "left 1 request (OffsetCommit) without an answer" in found.seen and not found.about["idle"]


def test_an_idle_connection_that_is_closed() -> None:
    found = one("fetching-idle-connection", "closed-without-answer")
    assert found.severity is Severity.INFO and "nothing was lost" in found.seen and found.about["idle"]


def test_a_request_lost_to_an_idle_close() -> None:
    # The race with the broker's close is not to be had on purpose: the last request of a recording stays unanswered.
    told = exchanges("fetching-lists-topics-seldom", "Metadata")
    first = told[0]
    lost = copied(told[3], after=300, connection=7, state=State.NO_RESPONSE, response_time_ns=None, response=None)
    happened = [
        Opened(7, first.client, first.broker, first.request_time_ns or 0),
        *(copied(exchange, connection=7) for exchange in told[:3]),
        lost,
        Closed(7, (lost.request_time_ns or 0) + SECOND // 100, "rst", "broker"),
    ]
    found = one(happened, "closed-without-answer")
    assert found.severity is Severity.LOW and found.about["idle"]
    assert "had been idle for 5 min and left 1 request (Metadata) without an answer" in found.seen
    assert "connections.max.idle.ms" in found.remedy


def test_clients_that_go_are_no_loss() -> None:
    for name in ("no-answer", "closes-in-a-long-poll", "short-connections", "client-per-record"):
        assert findings(f"fetching-{name}", "closed-without-answer") == []


def test_an_unknown_api_and_an_unknown_version() -> None:
    found = findings("fetching-unknown-api", "undecodable-frame")
    assert [(f.severity, f.about["api_key"], f.about["newest_known"]) for f in found] == [
        (Severity.INFO, 999, None),
        (Severity.INFO, 3, 13),
    ]
    assert "Metadata v99; the newest known here is v13" in found[1].seen and "barnabas schema import" in found[1].remedy


def test_damaged_bytes() -> None:
    told = exchanges("fetching-lists-topics-seldom", "Metadata")[1]
    cut = copied(told)
    cut.response = (told.response or b"")[:-9]
    found = one([cut], "undecodable-frame")
    assert found.severity is Severity.LOW and "cannot be decoded" in found.seen
    assert findings("fetching-lists-topics-seldom", "undecodable-frame") == []
