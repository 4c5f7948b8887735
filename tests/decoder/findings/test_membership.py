"""Detectors of silent, paused, lost and refused members on recorded groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from barnabas.decoder import Exchange, ExchangeDone, RequestSeen, facts
from barnabas.decoder.frame import Direction
from barnabas.decoder.happening import Closed, Happening, Missing
from retold.groups import answered, copied, edited, findings, stretched, summary, told


def test_a_process_that_stood_still() -> None:
    (silent,) = findings(told("stopped"), "missed-heartbeats")
    assert silent.count == 2 and "client 'billing-frozen'" in silent.seen and "taken" not in silent.why
    assert "was silent for 8.0 s" in silent.seen and "took it for dead" in silent.seen
    assert silent.about["session_timeout_ms"] == 6000 and silent.about["silent_ms"] > 7000


def test_a_gap_of_less_than_the_session_timeout_is_low_and_half_of_it_nothing() -> None:
    # the longest gap is 8.0 s, the session timeout 6 s
    assert summary(findings(stretched(told("stopped"), 0.6), "missed-heartbeats")) == {("missed-heartbeats", "low")}
    assert findings(stretched(told("stopped"), 0.45), "missed-heartbeats") == []


def test_silence_says_nothing_where_bytes_were_not_captured() -> None:
    happenings: list[Happening] = []
    for happening in told("stopped"):
        if isinstance(happening, RequestSeen) and happening.exchange.api == "Heartbeat":
            exchange = happening.exchange
            happenings.append(Missing(exchange.connection, Direction.REQUEST, 100, exchange.request_time_ns or 0))
        happenings.append(happening)
    assert findings(happenings, "missed-heartbeats") == []


def without_the_end_of(client_id: str) -> list[Happening]:
    """A recording without anything that a client says to the coordinator after its first SyncGroup."""
    kept: list[Happening] = []
    link = None
    for happening in told("too-many-members"):
        exchange = happening.exchange if isinstance(happening, RequestSeen | ExchangeDone) else None
        if exchange and exchange.connection == link:
            continue
        if isinstance(happening, Closed) and happening.connection == link:
            continue
        kept.append(happening)
        if exchange and exchange.api == "SyncGroup" and exchange.client_id == client_id and exchange.response:
            link = exchange.connection
    return kept


def test_a_member_that_is_never_heard_of_again() -> None:
    happenings = without_the_end_of("billing-1")
    (silent,) = findings(happenings, "missed-heartbeats")
    assert "nothing was heard for" in silent.seen and "client 'billing-1'" in silent.seen
    assert findings(told("too-many-members"), "missed-heartbeats") == []


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
    (found,) = findings(told(name), "poll-interval-exceeded")
    assert f"client '{client}" in found.seen and "joined again" in found.seen
    assert found.about["max_poll_interval_ms"] == limit
    assert 3_400 < found.about["pause_ms"] < 9_000
    assert "max.poll.records" in found.remedy and "max_poll_interval_ms" in found.remedy


def test_a_consumer_that_unsubscribes_and_comes_back_is_not_meant() -> None:
    assert findings(told("unsubscribed"), "poll-interval-exceeded") == []


def test_a_consumer_that_stays_away_is_told_with_doubt() -> None:
    # the recording ends after LeaveGroup, except for the time that passes
    happenings: list[Happening] = []
    for happening in told("poll-librdkafka"):
        happenings.append(happening)
        if isinstance(happening, ExchangeDone) and happening.exchange.api == "LeaveGroup":
            break
    left = happenings[-1]
    assert isinstance(left, ExchangeDone) and findings(happenings, "poll-interval-exceeded") == []
    later = copied(
        left.exchange,
        connection=999,
        client="127.0.0.1:1",
        client_id="other",
        request_time_ns=(left.exchange.request_time_ns or 0) + 11_000_000_000,
        response=None,
        response_time_ns=None,
    )
    (found,) = findings([*happenings, RequestSeen(later)], "poll-interval-exceeded")
    assert found.severity == "low" and "or it unsubscribed" in found.seen


def test_java_says_why_it_leaves() -> None:
    (found,) = findings(told("poll-java"), "poll-interval-exceeded")
    assert "with the reason 'consumer poll timeout has expired.'" in found.seen and found.count == 1


def test_the_reason_of_a_leave_group_is_enough() -> None:
    # Java's words (KIP-800) put into the LeaveGroup of a kafka-python consumer that closes at once
    def said(exchange: Exchange, reason: str) -> Exchange:
        message = exchange.request_message
        if exchange.api != "LeaveGroup" or message is None:
            return exchange
        request = message.replace({"members[0].reason": reason}).encode()
        return copied(exchange, request=request)

    happenings = list(told("poll-kafka-python"))
    leaves = [i for i, h in enumerate(happenings) if isinstance(h, ExchangeDone) and h.exchange.api == "LeaveGroup"]
    short = happenings[: leaves[0] + 1]
    assert findings(short, "poll-interval-exceeded") == []
    reason = "consumer poll timeout has expired."
    (found,) = findings(edited(short, lambda e: said(e, reason)), "poll-interval-exceeded")
    assert reason in found.seen
    assert findings(edited(short, lambda e: said(e, "the consumer is being closed")), "poll-interval-exceeded") == []


def test_a_killed_member_and_what_it_cost() -> None:
    (found,) = findings(told("killed"), "closed-without-leaving")
    assert "client 'billing-doomed'" in found.seen and "(1 partition)" in found.seen
    assert 5_000 < found.about["cost_ms"] < 7_000


@pytest.mark.parametrize("change", [{"how": ""}, {"by": "broker"}])
def test_a_capture_that_ends_and_a_broker_that_closes_are_no_death(change: dict[str, Any]) -> None:
    happenings = [replace(h, **change) if isinstance(h, Closed) else h for h in told("killed")]
    assert findings(happenings, "closed-without-leaving") == []


def test_a_member_that_connects_again_has_not_gone() -> None:
    # the coordinator connection of a member that lives is told to end, and its next request to come on another
    closed: set[int] = set()

    def moved(exchange: Exchange) -> Exchange:
        return copied(exchange, connection=exchange.connection + 1000) if exchange.connection in closed else exchange

    def every() -> list[Happening]:
        out: list[Happening] = []
        for happening in told("too-many-members"):
            exchange = happening.exchange if isinstance(happening, RequestSeen | ExchangeDone) else None
            if isinstance(happening, Closed) and happening.connection in closed:
                continue
            if exchange is not None and exchange.connection in closed:
                happening = replace(happening, exchange=moved(exchange))
            out.append(happening)
            if isinstance(happening, ExchangeDone) and happening.exchange.api == "Heartbeat" and len(closed) < 1:
                out.append(
                    Closed(happening.exchange.connection, happening.exchange.response_time_ns or 0, "rst", "client")
                )
                closed.add(happening.exchange.connection)
        return out

    assert findings(every(), "closed-without-leaving") == []
    assert closed


def test_one_unknown_member_id_is_a_normal_life() -> None:
    assert findings(told("stopped"), "unknown-member") == []
    (found,) = findings(told("unknown-member"), "unknown-member")
    assert found.count == 12 and "12 times" in found.seen and found.about["error"] == "UNKNOWN_MEMBER_ID"
    happenings = list(stretched(told("unknown-member"), 3000))  # one in five minutes
    assert findings(happenings, "unknown-member") == []


def test_both_processes_of_an_instance_id_are_named() -> None:
    (classic,) = findings(told("same-instance"), "fenced-instance")
    assert "client 'host-1'" in classic.seen and "client 'host-2'" in classic.seen and "'billing-a'" in classic.seen
    assert "FENCED_INSTANCE_ID" in classic.seen and classic.about["instance_id"] == "billing-a"
    (new,) = findings(told("same-instance-new-protocol"), "fenced-instance")
    assert "UNRELEASED_INSTANCE_ID" in new.seen and "kept out of" in new.seen


def test_a_newcomer_that_waits_for_a_dead_session_is_no_second_process() -> None:
    # as if the first process had died: its connection ends before the second one joins
    out: list[Happening] = []
    first = None
    for happening in told("same-instance-new-protocol"):
        exchange = happening.exchange if isinstance(happening, RequestSeen | ExchangeDone) else None
        if exchange and exchange.api == "ConsumerGroupHeartbeat" and exchange.client_id == "host-1":
            first = exchange
        if isinstance(happening, RequestSeen) and exchange and exchange.client_id == "host-2" and first:
            out.append(Closed(first.connection, first.response_time_ns or 0, "rst", "client"))
            break
        out.append(happening)
    rest = list(told("same-instance-new-protocol"))[len(out) - 1 :]
    assert first is not None
    for happening in rest:
        exchange = happening.exchange if isinstance(happening, RequestSeen | ExchangeDone) else None
        if (exchange is None or exchange.client_id != "host-1") and not isinstance(happening, Closed):
            out.append(happening)
    assert summary(findings(out, "fenced-instance")) == {("fenced-instance", "low")}


def test_assignors_of_both_sides_are_named() -> None:
    (found,) = findings(told("two-assignors"), "inconsistent-group-protocol")
    assert "It has cooperative-sticky" in found.seen and "client 'old-release'" in found.seen
    assert found.about["assignors"] == ["cooperative-sticky"]


@pytest.mark.parametrize(
    "error", ["GROUP_MAX_SIZE_REACHED", "UNSUPPORTED_ASSIGNOR", "INVALID_GROUP_ID", "INVALID_SESSION_TIMEOUT"]
)
def test_refusals_to_join(error: str) -> None:
    # the recorded refusal with another error code
    def refused(exchange: Exchange) -> Exchange:
        if exchange.api == "JoinGroup" and exchange.error:
            return answered(exchange, {"error_code": facts.error_code(error)})
        return exchange

    (found,) = findings(edited(told("session-too-short"), refused), "group-refused")
    assert error in found.seen and found.severity == "high" and ("900 ms" in found.seen) == ("SESSION" in error)
    assert findings(told("rolling"), "group-refused") == []


def test_a_group_id_that_not_even_find_coordinator_takes() -> None:
    def refused(exchange: Exchange) -> Exchange:
        if exchange.api == "FindCoordinator" and exchange.response is not None:
            return answered(exchange, {"error_code": facts.error_code("INVALID_GROUP_ID")})
        return exchange

    (found,) = findings(edited(told("session-too-short"), refused), "group-refused")[:1]
    assert "INVALID_GROUP_ID to FindCoordinator" in found.seen
