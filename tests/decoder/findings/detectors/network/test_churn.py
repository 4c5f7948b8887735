"""Connection detectors on recordings of real clients and brokers."""

from __future__ import annotations

from barnabas.decoder.connection.events import Closed, Opened
from barnabas.decoder.connection.exchange import State
from barnabas.decoder.findings import Severity
from traffic.conversations import Conversations
from traffic.edited_exchanges import SECOND, copied
from traffic.recordings import exchanges, findings, one


def test_many_connections_of_one_client() -> None:
    # A recorded connection, repeated as many that stay open.
    recorded = exchanges("fetching-lists-topics-seldom", "Metadata")[0]
    found = one([copied(recorded, connection=1000 + n) for n in range(60)], "many-connections")
    assert found.severity is Severity.INFO and "holds 60 connections" in found.seen
    assert findings([copied(recorded, connection=1000 + n) for n in range(40)], "many-connections") == []
    more = one([copied(recorded, connection=1000 + n) for n in range(300)], "many-connections")
    assert more.severity is Severity.LOW and more.about["connections"] == 300


def test_a_request_lost_to_an_idle_close() -> None:
    # The race with the broker's close is not to be had on purpose: the last request of a recording stays unanswered.
    recorded = exchanges("fetching-lists-topics-seldom", "Metadata")
    first = recorded[0]
    lost = copied(recorded[3], after=300, connection=7, state=State.NO_RESPONSE, response_time_ns=None, response=None)
    happened = [
        Opened(7, first.client, first.broker, first.request_time_ns or 0),
        *(copied(exchange, connection=7) for exchange in recorded[:3]),
        lost,
        Closed(7, (lost.request_time_ns or 0) + SECOND // 100, "rst", "broker"),
    ]
    found = one(happened, "closed-without-answer")
    assert found.severity is Severity.LOW and found.about["idle"]
    assert "had been idle for 5 min and left 1 request (Metadata) without an answer" in found.seen
    assert "connections.max.idle.ms" in found.remedy


def test_an_unknown_api_and_an_unknown_version() -> None:
    found = findings("fetching-unknown-api", "undecodable-frame")
    assert [(f.severity, f.about["api_key"], f.about["newest_known"]) for f in found] == [
        (Severity.INFO, 999, None),
        (Severity.INFO, 3, 13),
    ]
    assert "Metadata v99; the newest known to this version of Barnabas is v13" in found[1].seen and "barnabas schema import" in found[1].remedy


def test_damaged_bytes() -> None:
    recorded = exchanges("fetching-lists-topics-seldom", "Metadata")[1]
    cut = copied(recorded)
    cut.response = (recorded.response or b"")[:-9]
    found = one([cut], "undecodable-frame")
    assert found.severity is Severity.LOW and "cannot be decoded" in found.seen


def ended_together(*idle_s: int, refused: bool = False) -> list[str]:
    """What is said of connections that were idle for so long when their broker ended all of them."""
    talk = Conversations()
    asked = [(talk.open(), idle) for idle in idle_s]
    for waited in range(max(idle_s), -1, -1):
        for conn, idle in asked:
            if idle == waited:
                talk.ask(conn, "Metadata", 1, {"topics": None}, {"brokers": [], "controller_id": -1, "topics": []})
        talk.wait(1)
    for conn, _ in asked:
        talk.close(conn, by="broker")
    if refused:
        talk.wait(2)
        talk.close(talk.open(established=False), by="", how="refused")
    return [f"{f.severity}: {f.remedy}" for f in talk.findings() if f.id == "closed-without-answer"]


def test_a_broker_that_stops_is_not_taken_for_one_that_ends_idle_connections() -> None:
    (idle,) = ended_together(60)
    assert "info: let the client close first: connections.max.idle.ms" in idle
    assert ended_together(60, 60) == [idle]
    assert ended_together(60, 12) == [], "idle for different times: the broker stopped"
    assert ended_together(60, refused=True) == [], "it accepts no connections right after that: it stopped"
