"""Offset commits that fail or come too often."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ....connection.exchange import Exchange
from ....reference import explain
from ....schema import facts
from ...engine.counters import BoundedDict, RateCounter
from ...engine.detector import Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, number, some
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.group import Group
from ...models.group_calls import (
    COMMIT_APIS,
    COORDINATOR_ERRORS,
    FENCED_INSTANCE_ID,
    GONE_CODES,
    REBALANCE_IN_PROGRESS,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    Call,
)
from ...models.groups import GroupDetector

PARTITIONS = 20_000
"""Most partitions of groups whose offset is kept."""
Place = tuple[Group, str, int]
OFFSET_COMMIT = facts.api_key("OffsetCommit")
DELETE_TOPICS = facts.api_key("DeleteTopics")


def from_outside(call: Call) -> bool:
    """Whether the committer is not a member and does not claim to be one."""
    return call.generation < 0 and not call.member_id and not call.instance_id


def is_stale(call: Call) -> bool:
    """Whether a refused commit belongs to a generation that is over, or to a member that has gone, as far as known."""
    if call.error not in GONE_CODES or from_outside(call):
        return False
    gone = call.member is not None and not call.member.live
    return gone or 0 <= call.generation < call.group.generation


def often(counts: BoundedDict[object, RateCounter], key: object, call: Call) -> int:
    """How often this happened within a minute, this call included."""
    pace = counts.get(key)
    if pace is None:
        pace = counts[key] = RateCounter(60)
    pace.add(call.answered_ns)
    return pace.total


class StaleCommit(GroupDetector):
    id = "stale-commit"
    severity = Severity.MEDIUM
    title = "a commit is refused because it has an old generation or the id of a removed member"
    why = (
        "the group has another generation by now, and partitions may have moved, so the coordinator refuses. The commit is "
        "lost: records of partitions that moved are read again by the member that has them now."
    )
    remedy = (
        "commit in the callback for revoked partitions (Java onPartitionsRevoked, librdkafka rebalance_cb, aiokafka "
        "and kafka-python on_partitions_revoked), do not keep offsets across a rebalance, and do less work per poll "
        "if the member was removed because of max.poll.interval.ms"
    )
    apis = COMMIT_APIS

    RETRIED = 3
    """Within a minute: consumers of KIP-848 try a commit with a stale epoch again with the new one."""
    SOON_NS = 30 * SECOND
    """A consumer commits every few seconds (auto.commit.interval.ms 5000); within this time after the rebalance it has caught up."""

    def setup(self) -> None:
        self._retried: BoundedDict[object, RateCounter] = BoundedDict(2000)
        self._lost: BoundedDict[tuple[Group, ClientIdentity], _Lost] = BoundedDict(2000)

    def answered(self, call: Call) -> None:
        if not call.error:
            if self._lost and call.is_answered:
                self._caught_up(call)
            return
        if not is_stale(call):
            return
        group, member = call.group, call.member
        key = group, call.conn.identity
        if call.error == STALE_MEMBER_EPOCH and often(self._retried, key, call) < self.RETRIED:
            return
        name = facts.error_name(call.error)
        if member is not None and not member.live:
            late = f"{duration(call.asked_ns - member.gone_ns)} after its member had {member.state}"
        else:
            late = f"the group is at generation {group.generation}"
        refused = {(c.topic, c.partition) for c in call.offsets()}
        finding = self.report(
            key,
            call.exchange,
            seen=f"{call.conn.who} commits in group {group.id!r} for generation {call.generation}, {late}: {name} to "
            f"{call.api} v{call.exchange.api_version} of {some(f'{topic}-{number}' for topic, number in refused)}",
            generation=call.generation,
            error=name,
            group=call.group_id
        )
        lost = self._lost.of(key, lambda: _Lost(finding, finding.seen))
        lost.since_ns = lost.since_ns if lost.partitions else call.answered_ns
        lost.partitions |= set(list(refused)[: PARTITIONS - len(lost.partitions)])
        finding.severity, finding.seen = self.severity, lost.seen

    def _caught_up(self, call: Call) -> None:
        """A commit was accepted: the partitions that the member still has may all be in it."""
        lost = self._lost.get((call.group, call.conn.identity))
        if lost is None or not lost.partitions:
            return
        lost.partitions -= {(c.topic, c.partition) for c in call.offsets()}
        if call.member is not None and call.member.assignment is not None:
            mine = call.member.assignment
            lost.partitions = {(topic, number) for topic, number in lost.partitions if number in mine.get(topic, ())}
        after = call.answered_ns - lost.since_ns
        if not lost.partitions and after <= self.SOON_NS:
            lost.finding.severity = Severity.LOW
            lost.finding.seen = f"{lost.seen}; its next commit, {duration(after)} later, has the partitions that it kept"


@dataclass(slots=True)
class _Lost:
    """Refused commits of one client. `seen`: of its finding, without what came later. `partitions`: those of refused commits that no
    later one has had, `since_ns`: when the first of them was refused."""

    finding: Finding
    seen: str
    since_ns: int = 0
    partitions: set[tuple[str, int]] = field(default_factory=set)


class OutsiderCommit(GroupDetector):
    id = "outsider-commit"
    severity = Severity.HIGH
    title = "a client that is not a member commits to a group that has members"
    why = (
        "a consumer with assign() instead of subscribe() commits without a generation. The coordinator accepts this "
        "only while the group has no members; otherwise, the two ways of reading would overwrite each other's offsets."
    )
    remedy = (
        "give the client that uses assign() its own group.id; to change a group's offsets, stop its members first "
        "(kafka-consumer-groups.sh --reset-offsets)"
    )
    apis = COMMIT_APIS
    wanted = Wanted.FAILED

    def answered(self, call: Call) -> None:
        if call.error != UNKNOWN_MEMBER_ID or not from_outside(call):
            return
        group = call.group
        members = some({m.conn.who for m in group.live})
        self.report(
            (group, call.conn.identity),
            call.exchange,
            seen=f"{call.conn.who} commits to group {group.id!r} without being a member, and is refused with "
            f"UNKNOWN_MEMBER_ID ({call.api} v{call.exchange.api_version}): the group has members"
            + (f", {members}" if members else ""),
            error="UNKNOWN_MEMBER_ID",
            group=call.group_id
        )


_SEVERITIES = {
    "OFFSET_METADATA_TOO_LARGE": Severity.HIGH,
    "INVALID_COMMIT_OFFSET_SIZE": Severity.HIGH,
    "REBALANCE_IN_PROGRESS": Severity.LOW,
}
_OF_TRANSACTIONS = frozenset({
    *_SEVERITIES, "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "UNKNOWN_MEMBER_ID", "REQUEST_TIMED_OUT",
})  # fmt: skip
"""Codes of TxnOffsetCommit that are about groups, not about producer ids and epochs."""


class CommitFailed(GroupDetector):
    id = "commit-failed"
    severity = Severity.MEDIUM
    title = "offset commits are refused"
    apis = COMMIT_APIS
    wanted = Wanted.FAILED

    DURING_REBALANCE = 3
    """Within a minute: REBALANCE_IN_PROGRESS once or twice is a commit that met a rebalance; clients try again."""

    def setup(self) -> None:
        self._met: BoundedDict[object, RateCounter] = BoundedDict(2000)

    def answered(self, call: Call) -> None:
        if not call.error or call.error in COORDINATOR_ERRORS or call.error == FENCED_INSTANCE_ID:
            return
        if is_stale(call) or (from_outside(call) and call.error == UNKNOWN_MEMBER_ID):
            return
        name = facts.error_name(call.error)
        if call.api == "TxnOffsetCommit" and name not in _OF_TRANSACTIONS:
            return
        key = call.group, call.conn.identity, call.error
        passing = call.error in (REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH)
        if passing and often(self._met, key, call) < self.DURING_REBALANCE:
            return
        refused = [c for c in call.offsets() if c.error == call.error]
        self.report(
            key,
            call.exchange,
            "offsets that are not committed are read again after the next rebalance or restart.",
            explain.error_meaning(call.api, call.error)[1],
            severity=_SEVERITIES.get(name),
            seen=f"{call.conn.where} refuses commits of {call.conn.who} in group {call.group_id!r} with {name} "
            f"({call.api} v{call.exchange.api_version}): {some(f'{c.topic}-{c.partition}' for c in refused)}",
            topic=refused[0].topic if refused else None,
            partition=refused[0].partition if refused else None,
            error=name,
            group=call.group_id,
        )


@dataclass(slots=True)
class _Streak:
    """Commits of one partition, each one record further. `count`: of commits since `first_ns`."""

    offset: int
    first_ns: int
    count: int = 0


class CommitPerRecord(GroupDetector):
    id = "commit-per-record"
    severity = Severity.LOW
    title = "a consumer commits after every record"
    why = (
        "every commit is a request to the coordinator and a record in __consumer_offsets that all in-sync replicas "
        "must acknowledge: a consumer that waits for each commit reads no faster than that round trip allows."
    )
    remedy = (
        "commit once per poll or batch, or every few seconds (enable.auto.commit with auto.commit.interval.ms 5000; "
        "librdkafka: with enable.auto.offset.store=false and store_offsets() per record); the application must "
        "tolerate reading records twice after a failure anyway"
    )
    apis = frozenset({OFFSET_COMMIT})

    COMMITS = 20
    """In a row, of one partition."""
    STEP = 2
    """Transactions end with a marker, which takes an offset."""
    PER_SECOND = 2.0
    """At a lower rate the topic is slow, and it costs little."""
    FAST = 50.0
    """Per second: a coordinator handles some thousand commits per second of all its groups together."""

    def setup(self) -> None:
        self._streaks: BoundedDict[Place, _Streak] = BoundedDict(PARTITIONS)

    def answered(self, call: Call) -> None:
        if call.error or not call.is_answered:
            return
        now = call.answered_ns
        for commit in call.offsets():
            place = call.group, commit.topic, commit.partition
            streak = self._streaks.get(place)
            if streak is None:
                self._streaks[place] = _Streak(commit.offset, now)
            elif commit.offset != streak.offset:
                near = 0 < commit.offset - streak.offset <= self.STEP
                streak.offset = commit.offset
                if not near:
                    streak.first_ns, streak.count = now, 0
                    continue
                streak.count += 1
                rate = streak.count / max((now - streak.first_ns) / SECOND, 1e-3)
                if streak.count >= self.COMMITS and rate >= self.PER_SECOND:
                    self._report(call, commit.topic, commit.partition, streak, rate)

    def _report(self, call: Call, topic: str, partition: int, streak: _Streak, rate: float) -> None:
        seen = (
            f"{call.conn.who} commits after every record in group {call.group_id!r}: {streak.count} commits of "
            f"{topic}-{partition} in a row, one or two records each, {number(rate)} per second"
        )
        finding = self.report(
            (call.group, call.conn.identity), call.exchange, topic=topic, partition=partition, group=call.group_id
        )
        finding.count = max(finding.count, streak.count)
        if streak.count >= finding.about.get("commits", 0):
            finding.seen = seen
            finding.about |= {"commits": streak.count, "per_second": round(rate, 1)}
        if rate >= self.FAST and streak.count >= self.FAST * 10:
            finding.severity = Severity.MEDIUM


class _Committed(NamedTuple):
    """The last offset of a partition that a group has committed: by whom, in which generation, and when that was answered."""

    offset: int
    conn: ClientConnection
    generation: int
    answered_ns: int


class CommitBackwards(GroupDetector):
    id = "commit-backwards"
    severity = Severity.LOW
    title = "a group's committed offset goes backwards"
    apis = frozenset({OFFSET_COMMIT, DELETE_TOPICS})
    request_apis = frozenset({DELETE_TOPICS})

    def setup(self) -> None:
        self._last: BoundedDict[Place, _Committed] = BoundedDict(PARTITIONS)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        self._last.clear()  # a recreated topic begins at 0

    def answered(self, call: Call) -> None:
        if not call.is_answered:
            return
        for commit in call.offsets():
            if commit.error:
                continue
            place = call.group, commit.topic, commit.partition
            last = self._last.get(place)
            self._last[place] = _Committed(commit.offset, call.conn, call.generation, call.answered_ns)
            if last is not None and commit.offset < last.offset:
                self._report(call, commit.topic, commit.partition, last, commit.offset)

    def _report(self, call: Call, topic: str, partition: int, committed: _Committed, offset: int) -> None:
        tool = from_outside(call)
        last, before = committed.offset, committed.conn
        other = f", {before.who} had committed {last}" if before.identity != call.conn.identity else f" after {last}"
        seen = (
            f"{call.conn.who} commits offset {offset} of {topic}-{partition} in group {call.group_id!r}{other}: "
            f"{last - offset:,} lower"
        )
        finding = self.report(
            (call.group, tool),
            call.exchange,
            "",
            "",
            severity=Severity.INFO if tool else None,
            topic=topic,
            partition=partition,
            group=call.group_id,
        )
        if last - offset > finding.about.get("back", 0):
            finding.seen = seen
            finding.why, finding.remedy = _backwards(call, committed, tool)
            finding.about |= {"topic": topic, "partition": partition, "offset": offset, "before": last}
            finding.about["back"] = last - offset


def _backwards(call: Call, last: _Committed, tool: bool) -> tuple[str, str]:
    """Why an offset went back, as far as the two commits show it, and what to do."""
    if tool:
        return "a client outside the group reset its offsets; its members read these records again.", "nothing, if this was intended"
    again = "records between the two offsets are read again after the next rebalance or restart."
    if call.asked_ns < last.answered_ns:
        return (
            f"{again} The lower one was sent before the higher one was answered: commits overtake each other (commitAsync, several "
            "threads).",
            "commit each partition from one thread, and only higher offsets than before",
        )
    if call.generation != last.generation:
        return (
            f"{again} There was a rebalance in between (generation {last.generation}, then {call.generation}): a member kept its "
            "positions from before it, or took the partition over before the last commit of the member that had it.",
            "discard positions when partitions are revoked, and commit in the callback for revoked partitions",
        )
    return (
        f"{again} Both are of one generation, and one followed the other's answer: the application sought back (seek()), or commits "
        "what it finishes in another order than it read it.",
        "nothing after an intended seek(); otherwise commit only higher offsets than before, per partition",
    )
