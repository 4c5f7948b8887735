"""Detectors of rebalances, assignments and coordinators on recorded groups."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from barnabas.decoder import Exchange, ExchangeDone, RequestSeen
from barnabas.decoder.connection.events import ConnectionEvent
from barnabas.decoder.connection.exchange import State
from barnabas.decoder.findings.detectors.groups.rebalances import HeldUpJoin
from barnabas.decoder.findings.engine.traffic import ClientConnection, Traffic
from barnabas.decoder.findings.models.group import Member, MemberState
from barnabas.decoder.findings.models.group_protocol import on_request
from traffic.edited_exchanges import SECOND, answered, copied, edited, exchange_of, failed, position, refused, time_of
from traffic.recordings import GROUPS, findings, one, recording, summary

EXPECTED = {
    "storm": {("rebalance-storm", "medium")},
    "poll-librdkafka": {("poll-interval-exceeded", "medium")},
    "poll-kafka-python": {("poll-interval-exceeded", "medium")},
    "poll-aiokafka": {("poll-interval-exceeded", "medium")},
    "poll-new-protocol": {("poll-interval-exceeded", "medium")},
    "poll-java": {("poll-interval-exceeded", "medium")},
    "poll-java-new-protocol": {("poll-interval-exceeded", "medium")},
    "unsubscribed": set(),
    "same-instance": {("fenced-instance", "high")},
    "same-instance-new-protocol": {("fenced-instance", "high")},
    "killed": {("closed-without-leaving", "medium")},
    "killed-new-protocol": {("closed-without-leaving", "low")},
    "static-member-closes": set(),
    "stopped": {("missed-heartbeats", "medium")},
    "held-up": {("held-up-join", "high")},
    "rolling": set(),
    "two-assignors": {("inconsistent-group-protocol", "high")},
    "session-too-short": {("group-refused", "high")},
    "outsider-commits": {("outsider-commit", "high")},
    "skewed": {("assignment-skew", "low")},
    "too-many-members": {("idle-members", "info")},
    "commit-per-record": {("commit-per-record", "low")},
    "commit-per-batch": set(),
    "backwards": {("commit-backwards", "low")},
    "reset-by-tool": {("commit-backwards", "info")},
    "commit-refused": {("commit-failed", "high"), ("commit-failed", "medium")},
    "unknown-member": {("unknown-member", "high")},
    "late-commit": {("stale-commit", "medium")},
    "slow-leader": {("slow-rebalance", "low")},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_recording_has_its_findings_and_no_other(name: str) -> None:
    found = findings(f"groups-{name}", *GROUPS)
    assert summary(found) == EXPECTED[name], [f.seen for f in found]
    for finding in found:
        assert {"client_id", "software", "client", "broker", "group"} <= finding.about.keys()
        assert finding.first_ns and finding.count >= 1 and finding.why.endswith(".") and finding.remedy


@pytest.mark.parametrize(("seconds", "storms"), [(10, 1), (290, 1), (400, 0)])
def test_twelve_generations_within_five_minutes_are_a_storm(seconds: float, storms: int) -> None:
    took = one("groups-storm", "rebalance-storm").about["seconds"]  # 13 generations, one about as long as the other
    happened = edited(recording("groups-storm"), stretch=seconds / took)
    assert len(findings(happened, "rebalance-storm")) == storms


def test_the_same_rebalances_over_an_hour_are_no_storm() -> None:
    assert findings(edited(recording("groups-storm"), stretch=500), "rebalance-storm") == []


def test_a_join_that_still_waits_is_reported_when_asked() -> None:
    # the same recording, cut in the middle of the wait
    happened = recording("groups-held-up")
    joined = exchange_of(happened[position(happened, RequestSeen, "JoinGroup", "billing-new")])
    assert joined is not None
    waits = [
        n for n, h in enumerate(happened) if isinstance(h, ExchangeDone) and (h.exchange.latency_ns or 0) > 5 * SECOND
    ]

    def until(seconds: float) -> list[ConnectionEvent]:
        end = (joined.request_time_ns or 0) + int(seconds * SECOND)
        late = next(n for n, h in enumerate(happened) if exchange_of(h) and time_of(h) > end)
        return happened[: min(late, waits[0])]  # before the answer to the join that waits

    held = one(until(10.98), "held-up-join")
    assert "have been waiting 11.0 s in JoinGroup" in held.seen and held.severity == "high"
    assert findings(until(9.5), "held-up-join") == []


def test_a_slow_leader_is_named_and_a_quick_one_is_not() -> None:
    slow = one("groups-slow-leader", "slow-rebalance")
    assert "client 'ponderous'" in slow.seen and 5_400 < slow.about["ms"] < 7_000
    assert findings(edited(recording("groups-slow-leader"), stretch=0.8), "slow-rebalance") == []
    assert [
        str(f.severity) for f in findings(edited(recording("groups-slow-leader"), stretch=6), "slow-rebalance")
    ] == ["medium"]


def test_skew_and_spare_members() -> None:
    (skew,) = findings(recording("groups-skewed"), "assignment-skew", "idle-members")
    assert "has 4 of 4 partitions" in skew.seen and "assignor range" in skew.seen
    assert sorted(skew.about["partitions"].values()) == [0, 0, 4] and "cooperative-sticky" in skew.remedy
    (idle,) = findings(recording("groups-too-many-members"), "assignment-skew", "idle-members")
    assert "2 members for 1 partition;" in idle.seen


def test_an_assignment_that_does_not_last_is_not_judged() -> None:
    assert findings(edited(recording("groups-skewed"), stretch=0.5), "assignment-skew") == []


def heartbeats_refused(slower: float, every: int = 1) -> list[tuple[str, str]]:
    """Recorded heartbeats, all (or of `every` so many all but one) answered NOT_COORDINATOR, over more time."""
    number = itertools.count()
    happened = edited(recording("groups-too-many-members"), stretch=slower)
    not_here = refused("NOT_COORDINATOR", when=lambda _: every == 1 or next(number) % every != 0)
    found = findings(edited(happened, not_here, "Heartbeat"), "coordinator-unavailable")
    for finding in found:
        assert "NOT_COORDINATOR" in finding.seen and finding.about["seconds"] >= 10
    return sorted(summary(found))


def test_a_coordinator_that_is_not_there_for_long() -> None:
    assert heartbeats_refused(2) == [("coordinator-unavailable", "medium")]
    assert heartbeats_refused(12) == [("coordinator-unavailable", "high")]
    # for less time, or with answers between, it is a restart
    assert heartbeats_refused(1) == heartbeats_refused(2, every=4) == []


def moving(every: int) -> list[tuple[str, str]]:
    number = itertools.count()
    moved = answered(lambda _: {"node_id": 1 + next(number) // every % 2}, when=lambda e: not failed(e))
    found = findings(edited(recording("groups-too-many-members"), moved, "FindCoordinator"), "coordinator-moved")
    return sorted(summary(found))


def test_a_coordinator_that_moves_once_or_again_and_again() -> None:
    # recorded FindCoordinator answers that name another node
    assert moving(1) == [("coordinator-moved", "medium")]
    assert moving(3) == [("coordinator-moved", "info")]
    assert moving(1000) == []


def test_missing_responses_and_a_start_in_the_middle_are_no_alarm() -> None:
    def unanswered(exchange: Exchange) -> Exchange:
        return copied(exchange, response=None, response_time_ns=None, state=State.NO_RESPONSE)

    for name in ("rolling", "commit-per-batch", "static-member-closes", "unsubscribed"):
        happened = recording(f"groups-{name}")
        parts = [happened[at:] for at in range(0, len(happened), 25)]
        parts += [happened[:at] for at in range(0, len(happened), 25)]
        for number, part in enumerate([*parts, edited(happened, unanswered)]):
            found = [f for f in findings(part, *GROUPS) if f.severity.rank]
            assert found == [], (name, number, [f.seen for f in found])


@pytest.mark.parametrize("every", [1, 3, 10])
def test_a_member_is_silent_when_two_of_its_heartbeats_are_missing(every: int) -> None:
    conn = ClientConnection(Traffic(), 1, "10.0.0.1:50000", "broker:9092", 0)
    member = Member("a", conn, SECOND, "consumer")
    member.session_timeout_ms, member.state = 45_000, MemberState.STABLE
    beat = {"group": None, "member": member, "api": "Heartbeat", "leaves": False, "joins": False, "commits": False, "heartbeat": False}
    for at in range(1, 5):
        on_request(SimpleNamespace(**beat, asked_ns=at * every * SECOND))  # type: ignore[arg-type]
    member.seen_ns = 4 * every * SECOND
    for silent in (1, 5, 17, 44):
        text = HeldUpJoin._state(member, member.seen_ns + silent * SECOND)
        beats = silent < 2 * max(every, 3)
        assert text.endswith(", which still sends heartbeats" if beats else f", silent for {silent}.0 s"), text
