"""Groups that rebalance too often or wait too long."""

from __future__ import annotations

from collections import Counter, deque

from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, some, times
from ...models.group import Group, Member, MemberState, Rebalance, RebalanceCause, Step
from ...models.group_calls import JOIN_GROUP, JOINING_APIS, Call
from ...models.groups import GroupDetector

GROUPS = 2000
"""Most groups that a detector keeps state of."""


def laggards(group: Group, rebalance: Rebalance) -> list[Member]:
    """The members that a rebalance has waited, or waits, for: those that did not come, else the one that came last.

    Members whose connections are gone are not among them: nothing is to be had from those but their session's end.
    Neither are those that were silent for their session timeout before it began: how they left was not captured.
    """
    missing = [group.members[m] for m in rebalance.expected if m in group.members]
    if missing or not rebalance.joins:
        began = rebalance.began_ns
        return [m for m in missing if not m.closed_ns and began - m.seen_ns <= m.session_timeout_ms * 1e6]
    last = max(rebalance.joins, key=lambda m: rebalance.joins[m])
    late = rebalance.joins[last] - rebalance.first_join_ns >= HeldUpJoin.WAIT_NS
    return [group.members[last]] if late and last in group.members else []


_REMEDIES = {
    RebalanceCause.FIRST: "keep consumers open instead of creating one per task: the group is empty each time, and its first member "
    "forms a new generation",
    RebalanceCause.JOIN: "find out why members keep joining: consumers that are created per task, processes that restart or crash, an "
    "autoscaler; give stable members a group.instance.id (KIP-345), and use cooperative-sticky or group.protocol=consumer (KIP-848)",
    RebalanceCause.LEAVE: "find out why members keep leaving: the application closes its consumers or stops polling "
    "(max.poll.interval.ms), processes that restart, an autoscaler; give stable members a group.instance.id (KIP-345), and use "
    "cooperative-sticky or group.protocol=consumer (KIP-848)",
    RebalanceCause.TIMEOUT: "find out why members send no heartbeats (long pauses, processing in the thread that sends them, no CPU), "
    "and raise session.timeout.ms (Java and librdkafka: 45000)",
    RebalanceCause.SUBSCRIPTION: "let all members of the group subscribe to the same topics once, and give consumers of other topics "
    "a group.id of their own; a pattern makes members subscribe anew whenever topics that match come and go",
    RebalanceCause.EMPTY: "run no more members than there are partitions, or upgrade the client: a member without "
        "partitions must stay in the group; one that joins again at once makes all others rejoin (kafka-go#200)",
    RebalanceCause.REJOIN: "find out why members join again: the leader sees other partitions each time (topics that are created, "
    "Metadata that changes between brokers), or an assignor that never settles; upgrade the client, or use group.protocol=consumer "
    "(KIP-848)",
    RebalanceCause.UNSEEN: "look for the members that cause it: they are not in this capture",
}
"""What to do, by the most frequent cause."""
_UNSYNCED = (
    "find out why the client does not use the answer to JoinGroup: it gives up before it comes (its timeout for "
    "requests, or its session, which it must not count meanwhile: kafka-python#1522), or fails on it; its log says so. "
    "Upgrade its library"
)


class RebalanceStorm(GroupDetector):
    id = "rebalance-storm"
    severity = Severity.MEDIUM
    title = "a group rebalances repeatedly"
    why = (
        "each new generation revokes partitions and assigns them again: with the eager protocol, all members stop "
        "reading meanwhile, and records that were read but not committed are read again."
    )
    apis = JOINING_APIS

    WINDOW_NS = 300 * SECOND
    """A rolling restart of all members takes minutes."""
    GENERATIONS = 8
    PER_MEMBER = 4
    """A member that stops and starts costs two generations, with the cooperative protocol four."""

    def setup(self) -> None:
        self._formed: BoundedDict[Group, deque[Rebalance]] = BoundedDict(GROUPS)

    def answered(self, call: Call) -> None:
        if call.error:
            return
        last = call.group.last_formed()
        known = self._formed.get(call.group)
        if last is None or (known and known[-1] is last):
            return
        if known is None:
            known = self._formed[call.group] = deque(maxlen=1000)
        known.append(last)
        while last.formed_ns - known[0].formed_ns > self.WINDOW_NS:
            known.popleft()
        members = max(r.size for r in known)
        if len(known) < self.GENERATIONS + self.PER_MEMBER * members:
            return
        causes = Counter(str(r.cause) for r in known)
        clients = Counter(r.conn.who for r in known if r.conn)
        span = last.formed_ns - known[0].formed_ns
        why = ", ".join(f"{cause} ({count})" for cause, count in causes.most_common(4))
        by = f"; most often by {clients.most_common(1)[0][0]}" if clients else ""
        seen = (
            f"group {call.group_id!r} with up to {members} member{'s' * (members > 1)} formed {len(known)} "
            f"generations in {duration(span)} (now {call.group.generation}), because {why}{by}"
        )
        unsynced = all(not r.leader_sync_ns for r in list(known)[:-1])
        if unsynced:
            seen += "; no member sent SyncGroup after its answer to JoinGroup"
        group = call.group
        finding = self.report(group, call.exchange, group=call.group_id)
        finding.seen = seen
        finding.remedy = _UNSYNCED if unsynced else _REMEDIES[RebalanceCause(causes.most_common(1)[0][0])]
        finding.count = max(finding.count, len(known))
        finding.about |= {
            "generation": group.generation,
            "generations": len(known),
            "seconds": round(span / SECOND, 1),
            "causes": dict(causes),
            "apis": ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"],
            "error": "REBALANCE_IN_PROGRESS",
        }


class HeldUpJoin(GroupDetector):
    id = "held-up-join"
    severity = Severity.MEDIUM
    title = "a group's members wait in JoinGroup for one that does not rejoin"
    explains = ("unknown-member", "stale-commit", "commit-failed", "slow-rebalance")
    usual_apis = frozenset({JOIN_GROUP})
    why = (
        "a generation is formed only when every member has rejoined, or when the longest rebalance timeout of the "
        "members (Java, librdkafka: max.poll.interval.ms) is over. Until then, no member gets partitions. A member "
        "rejoins in its next poll, so one that takes long to process its records holds up all others."
    )
    remedy = (
        "make the named client poll more often: less work per poll (Java, kafka-python: max.poll.records; librdkafka: "
        "smaller consume batches), or process records in another thread with pause(); lower max.poll.interval.ms "
        "(kafka-python, aiokafka: max_poll_interval_ms) so that others wait less, or use group.protocol=consumer "
        "(KIP-848), where members do not wait for each other."
    )

    WAIT_NS = 10 * SECOND
    """Members learn of a rebalance within heartbeat.interval.ms (3 s) and then finish the records they hold."""
    NEAR = 0.9
    TOLD_NS = 60 * SECOND

    def setup(self) -> None:
        self._reported: deque[Rebalance] = deque(maxlen=200)

    def asked(self, call: Call) -> None:
        self._look(call.group, call.asked_ns, call)

    def answered(self, call: Call) -> None:
        if call.api == "JoinGroup" and not call.error and call.is_answered:
            last = call.group.last_formed()
            if last is not None:
                self._judge(call.group, last, last.formed_ns, call)

    def finish(self, now_ns: int) -> None:
        self._for_now.clear()
        for group in self.groups.all():
            if group.waiting:
                self._look(group, now_ns, None)
            elif group.rebalance is not None and not group.rebalance.joins:
                self._told(group, group.rebalance.began_ns)

    def _told(self, group: Group, began_ns: int) -> None:
        """Members that are told to join again, while those that wait for them are not in the capture."""
        for member in group.live:
            told = [at.time_ns for at in member.timeline if at.step is Step.REBALANCE and at.time_ns >= began_ns]
            if told and told[-1] - told[0] >= self.TOLD_NS:
                self._for_now[group, member.member_id] = finding = self.finding(
                    f"{member.who} of group {group.id!r} is told {times(len(told))} in {duration(told[-1] - told[0])} "
                    "that the group rebalances (REBALANCE_IN_PROGRESS), sends heartbeats, and does not join again",
                    self.why,
                    f"look at the client's rebalance callback: the client joins when it has returned; or {self.remedy}",
                    Severity.HIGH,
                    apis=["Heartbeat"],
                    group=group.id,
                    **member.conn.facts,
                )
                finding.add_evidence(None, told[0])

    def _look(self, group: Group, now_ns: int, call: Call | None) -> None:
        if group.waiting and group.rebalance is not None:
            self._judge(group, group.rebalance, now_ns, call)

    def _judge(self, group: Group, rebalance: Rebalance, now_ns: int, call: Call | None) -> None:
        begin = rebalance.first_join_ns
        waited = now_ns - begin
        if not begin or waited < self.WAIT_NS:
            return
        late = laggards(group, rebalance)
        if not late:
            return
        limit = max((m.rebalance_timeout_ms for m in group.members.values()), default=-1)
        over = rebalance.generation >= 0
        out = over and any(m.member_id not in rebalance.joins for m in late)
        timed_out = over and waited >= limit * self.NEAR * 1e6 > 0
        seen = (
            f"{'in' if over else 'for'} a rebalance of group {group.id!r} members "
            f"{'waited' if over else 'have been waiting'} {duration(waited)} in JoinGroup for "
            f"{some((self._state(m, now_ns) for m in late), 2)}. It began because {rebalance.cause}. The rebalance "
            f"timeout is {duration(limit * 1e6)}{'; then the group continued without it' if out else ''}"
        )
        member = late[0]
        if rebalance in self._reported:
            finding = self._found[group]
        else:
            self._reported.append(rebalance)
            exchange = call.exchange if call else next(iter(group.waiting.values()))
            finding = self.report(
                group,
                exchange,
                group=group.id,
                member=member.member_id,
                api="JoinGroup",
                rebalance_timeout_ms=limit,
                facts=member.conn.facts,
            )
        finding.seen = seen
        finding.about["waited_ms"] = max(finding.about.get("waited_ms", 0), waited // 1_000_000)
        finding.about["timed_out"] = timed_out or finding.about.get("timed_out", False)
        finding.severity = Severity.HIGH if finding.about["timed_out"] or not over else Severity.MEDIUM

    @staticmethod
    def _state(member: Member, now_ns: int) -> str:
        silent = now_ns - member.seen_ns
        # One heartbeat may be late; a member from which two are missing is silent.
        if member.heartbeat_ns and silent < 2 * max(member.heartbeat_every_ns, 3 * SECOND):
            return f"{member.who}, which still sends heartbeats"
        return f"{member.who}, silent for {duration(silent)}"


class NotWaitedFor(GroupDetector):
    id = "members-not-waited-for"
    severity = Severity.HIGH
    title = "a coordinator forms generations without members that it has just shown to be in the group"
    why = (
        "a coordinator that begins a rebalance tells every member so (REBALANCE_IN_PROGRESS) and waits for all of "
        "them, at "
        "most for the longest rebalance timeout. This one goes on without them, and each member that joins throws out "
        "the others."
    )
    remedy = "report it to the developers of the broker, or of the product that answers in its place"
    explains = ("unknown-member", "rebalance-storm", "stale-commit", "commit-failed", "missed-heartbeats")
    apis = facts.api_key_set("JoinGroup")

    TIMES = 2
    NEAR = 0.9
    """Of the timeout: capture and coordinator do not count from the same moment."""

    def setup(self) -> None:
        self._dropped: BoundedDict[Group, int] = BoundedDict(GROUPS)

    def answered(self, call: Call) -> None:
        group, now = call.group, call.answered_ns
        if call.error or not call.is_answered or not call.answer["members"]:
            return
        gone = [m for m in group.members.values() if m.gone_ns == now and m.state is MemberState.DROPPED]
        dropped = [m for m in gone if self._due(m, now)]
        if not dropped:
            return
        count = self._dropped[group] = self._dropped.get(group, 0) + len(dropped)
        if count < self.TIMES:
            return
        member = dropped[0]
        why, remedy = self.why, self.remedy
        if call.exchange.api_version == 0:
            why += " JoinGroup v0 has no rebalance timeout: Kafka takes the session timeout, others may take none."
            remedy += "; meanwhile, use a client with JoinGroup v1 or newer (KIP-62)"
        finding = self.report(group, call.exchange, why, remedy, group=group.id, member=member.member_id)
        finding.count = count
        finding.seen = (
            f"{call.conn.where} formed generation {call.answer['generation_id']} of group {group.id!r} without "
            f"{member.who}, though it had shown that member to be in the group {duration(now - member.stable_ns)} "
            f"before, and its rebalance timeout is {duration(member.rebalance_timeout_ms * 1e6)}; so it did "
            f"{times(count)}"
        )

    def _due(self, member: Member, now: int) -> bool:
        """Whether the coordinator had to wait for a member."""
        limit = min(member.session_timeout_ms, member.rebalance_timeout_ms) * 1e6 * self.NEAR
        there = not member.closed_ns and not member.instance_id
        return there and bool(member.stable_ns) and now - member.stable_ns < limit


class SlowRebalance(GroupDetector):
    id = "slow-rebalance"
    severity = Severity.LOW
    title = "a group's rebalances take a long time"
    apis = facts.api_key_set("SyncGroup")

    JOIN_NS = 10 * SECOND
    """Every new group waits group.initial.rebalance.delay.ms (3 s), then a heartbeat interval or two."""
    SYNC_NS = 5 * SECOND
    """An assignor works in memory: a second is long."""
    BAD_NS = 30 * SECOND

    def setup(self) -> None:
        self._reported: deque[Rebalance] = deque(maxlen=200)

    def answered(self, call: Call) -> None:
        if call.error or not call.is_answered:
            return
        group = call.group
        last = group.last_formed()
        if last is None or last in self._reported or not last.first_join_ns:
            return
        joining = last.formed_ns - last.first_join_ns
        assigning = last.leader_sync_ns - last.formed_ns if last.leader_sync_ns else 0
        unexplained = joining >= self.JOIN_NS and not laggards(group, last) and not last.expected
        if not unexplained and assigning < self.SYNC_NS:
            return
        self._reported.append(last)
        leader = group.members.get(group.leader)
        if assigning >= self.SYNC_NS:
            who = leader.who if leader else "its leader"
            part = f"{duration(assigning)} of it for the assignment by {who}"
            remedy = (
                "check what the leader does between JoinGroup and SyncGroup: a slow assignor, a Metadata request for "
                "very many topics, a callback; group.protocol=consumer (KIP-848) assigns on the broker"
            )
        else:
            part = f"{duration(joining)} of it in JoinGroup, waiting for members that were not captured"
            remedy = (
                "find the member that joins last (look at every client of the group), and lower its "
                "max.poll.interval.ms or the work per poll; with group.protocol=consumer (KIP-848), members do not "
                "wait for each other"
            )
        seen = f"a rebalance of group {group.id!r} took {duration(last.duration_ns)}, {part}"
        finding = self.report(
            group,
            call.exchange,
            "from the first JoinGroup to the last SyncGroup answer, members that revoked their partitions cannot read "
            "(eager protocol: all of them).",
            remedy,
            group=group.id,
            generation=last.generation,
            facts=(leader.conn if leader else call.conn).facts_of(call.exchange),
        )
        worst = max(finding.about.get("ms", 0), last.duration_ns // 1_000_000)
        if worst == last.duration_ns // 1_000_000:
            finding.seen = seen
        finding.about["ms"] = worst
        if last.duration_ns >= self.BAD_NS:
            finding.severity = Severity.MEDIUM
