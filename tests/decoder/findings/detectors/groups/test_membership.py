"""Detectors of silent, paused, lost and refused members on recorded groups."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas.decoder import ExchangeDone, RequestSeen
from barnabas.decoder.connection.events import Closed, ConnectionEvent, Missing
from barnabas.decoder.wire.frame import Direction
from traffic.conversations import Conversations
from traffic.edited_exchanges import (
    changed,
    copied,
    edited,
    exchange_of,
    failed,
    later,
    only,
    position,
    refused,
    time_of,
)
from traffic.recordings import findings, one, recording, summary


def connection_of(event: ConnectionEvent) -> int:
    exchange = exchange_of(event)
    return exchange.connection if exchange is not None else event.connection


def test_a_process_that_stood_still() -> None:
    silent = one("groups-stopped", "missed-heartbeats")
    assert silent.count == 2 and "client 'billing-frozen'" in silent.seen and "taken" not in silent.why
    assert "was silent for 8.0 s" in silent.seen and "considered it dead" in silent.seen
    assert silent.about["session_timeout_ms"] == 6000 and silent.about["silent_ms"] > 7000


def test_a_gap_of_less_than_the_session_timeout_is_low_and_half_of_it_nothing() -> None:
    # the longest gap is 8.0 s, the session timeout 6 s
    assert summary(findings(edited(recording("groups-stopped"), stretch=0.6), "missed-heartbeats")) == {
        ("missed-heartbeats", "low")
    }
    assert findings(edited(recording("groups-stopped"), stretch=0.45), "missed-heartbeats") == []


def test_silence_proves_nothing_where_bytes_were_not_captured() -> None:
    torn: list[ConnectionEvent] = []
    for event in recording("groups-stopped"):
        if isinstance(event, RequestSeen) and (e := event.exchange).api == "Heartbeat":
            torn.append(Missing(e.connection, Direction.REQUEST, 100, e.request_time_ns or 0))
        torn.append(event)
    assert findings(torn, "missed-heartbeats") == []


def test_a_member_that_is_never_heard_of_again() -> None:
    # nothing that a client says to the coordinator after its first SyncGroup
    happened = recording("groups-too-many-members")
    synced = position(happened, ExchangeDone, "SyncGroup", "billing-1")
    connection = connection_of(happened[synced])
    rest = [h for h in happened[synced + 1 :] if connection_of(h) != connection]
    silent = one([*happened[: synced + 1], *rest], "missed-heartbeats")
    assert "was silent for" in silent.seen and "client 'billing-1'" in silent.seen
    assert findings("groups-too-many-members", "missed-heartbeats") == []


@pytest.mark.parametrize(
    ("name", "client", "limit"),
    [
        ("poll-librdkafka", "billing-1", 6000),
        ("poll-kafka-python", "billing-2", 2500),
        ("poll-aiokafka", "billing-3", None),
        ("poll-new-protocol", "billing-4", 6000),
        ("poll-java", "java-slow", 2000),
        ("poll-java-new-protocol", "java-slow", 2000),
    ],
)
def test_a_consumer_that_is_not_polled(name: str, client: str, limit: int | None) -> None:
    found = one(f"groups-{name}", "poll-interval-exceeded")
    assert f"client '{client}" in found.seen and "joined again" in found.seen
    assert found.about["max_poll_interval_ms"] == limit
    assert 3_400 < found.about["pause_ms"] < 9_000
    assert "max.poll.records" in found.remedy and "max_poll_interval_ms" in found.remedy


def test_a_consumer_that_unsubscribes_and_comes_back_is_not_meant() -> None:
    assert findings("groups-unsubscribed", "poll-interval-exceeded") == []


def test_a_consumer_that_stays_away_is_reported_with_doubt() -> None:
    # the recording ends after LeaveGroup, except for the time that passes
    happened = recording("groups-poll-librdkafka")
    left = happened[: position(happened, ExchangeDone, "LeaveGroup") + 1]
    assert findings(left, "poll-interval-exceeded") == []
    found = one(later(left, 11), "poll-interval-exceeded")
    assert found.severity == "low" and "or it unsubscribed" in found.seen


def test_the_reason_of_a_leave_group_is_enough() -> None:
    # Java's words (KIP-800) put into the LeaveGroup of a kafka-python consumer that closes at once
    def left(reason: str) -> list[ConnectionEvent]:
        fields = {"members[0].reason": reason}
        return edited(short, lambda e: copied(e, request=fields), "LeaveGroup")

    happened = recording("groups-poll-kafka-python")
    short = happened[: position(happened, ExchangeDone, "LeaveGroup") + 1]
    assert findings(short, "poll-interval-exceeded") == []
    reason = "consumer poll timeout has expired."
    assert reason in one(left(reason), "poll-interval-exceeded").seen
    assert findings(left("the consumer is being closed"), "poll-interval-exceeded") == []


@pytest.mark.parametrize("change", [{"how": ""}, {"by": "broker"}])
def test_a_capture_that_ends_and_a_broker_that_closes_are_no_death(change: dict[str, Any]) -> None:
    assert findings(changed(recording("groups-killed"), Closed, **change), "closed-without-leaving") == []


def test_a_member_that_connects_again_has_not_gone() -> None:
    # the coordinator connection of a member that lives ends, and its next request comes on another
    happened = recording("groups-too-many-members")
    end = position(happened, ExchangeDone, "Heartbeat") + 1
    beat = exchange_of(happened[end - 1])
    assert beat is not None
    rest = [h for h in happened[end:] if not (isinstance(h, Closed) and h.connection == beat.connection)]
    moved = edited(rest, lambda e: copied(e, connection=9000) if e.connection == beat.connection else e)
    closed = Closed(beat.connection, beat.response_time_ns or 0, "rst", "client")
    assert findings([*happened[:end], closed, *moved], "closed-without-leaving") == []


def test_one_unknown_member_id_is_a_normal_life() -> None:
    assert findings("groups-stopped", "unknown-member") == []
    found = one("groups-unknown-member", "unknown-member")
    assert found.count == 12 and "12 times" in found.seen and found.about["error"] == "UNKNOWN_MEMBER_ID"
    slow = edited(recording("groups-unknown-member"), stretch=3000)  # one in five minutes
    assert findings(slow, "unknown-member") == []


def test_a_newcomer_that_waits_for_a_dead_session_is_no_second_process() -> None:
    # as if the first process had died: its connection ends before the second one joins
    happened = recording("groups-same-instance-new-protocol")
    second = next(n for n, h in enumerate(happened) if (e := exchange_of(h)) is not None and e.client_id == "host-2")
    first = exchange_of(happened[position(happened, RequestSeen, "ConsumerGroupHeartbeat", "host-1")])
    assert first is not None
    before = happened[:second]
    died = Closed(first.connection, max(map(time_of, before)), "rst", "client")
    rest = only(happened[second:], lambda e: e.client_id != "host-1")
    after = [h for h in rest if not isinstance(h, Closed)]
    assert summary(findings([*before, died, *after], "fenced-instance")) == {("fenced-instance", "medium")}


@pytest.mark.parametrize(
    "error", ["GROUP_MAX_SIZE_REACHED", "UNSUPPORTED_ASSIGNOR", "INVALID_GROUP_ID", "INVALID_SESSION_TIMEOUT"]
)
def test_refusals_to_join(error: str) -> None:
    # the recorded refusal with another error code
    happened = edited(recording("groups-session-too-short"), refused(error, when=failed), "JoinGroup")
    found = one(happened, "group-refused")
    assert error in found.seen and found.severity == "high" and ("900 ms" in found.seen) == ("SESSION" in error)
    assert findings("groups-rolling", "group-refused") == []


def test_a_group_id_that_not_even_find_coordinator_takes() -> None:
    happened = edited(recording("groups-session-too-short"), refused("INVALID_GROUP_ID"), "FindCoordinator")
    assert "INVALID_GROUP_ID to FindCoordinator" in findings(happened, "group-refused")[0].seen


def silent_around(by: str, broker: str) -> list[str]:
    """A member heartbeats, its connection is ended (`by`) and 8 s later it is back at a broker: findings of its silence."""
    made = Conversations("missed-heartbeats")
    name = {"group_id": "billing", "generation_id": 1, "member_id": "m"}
    conn = made.open()
    joining = {"group_id": "billing", "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000, "protocol_type": "consumer",
               "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
    joined = {"generation_id": 1, "protocol_name": "range", "leader": "m", "member_id": "m",
              "members": [{"member_id": "m", "metadata": b""}]}  # fmt: skip
    made.ask(conn, "JoinGroup", 3, joining, joined)
    made.wait(0.1)
    made.ask(conn, "SyncGroup", 1, name, {})
    made.wait(1)
    made.ask(conn, "Heartbeat", 1, name, {})
    made.wait(0.1)
    made.close(conn, by=by)
    made.wait(8)
    made.ask(made.open(broker), "Heartbeat", 1, name, {})
    return [f.id for f in made.findings()]


def test_a_member_is_not_silent_while_its_coordinator_is_away() -> None:
    assert silent_around(by="broker", broker="") == [], "the broker restarted"
    assert silent_around(by="client", broker="10.0.0.9:9092") == [], "the coordinator moved"
    assert silent_around(by="client", broker="") == ["missed-heartbeats"]
