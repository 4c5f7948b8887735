"""Uneven assignments: some members have much, others little or nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, several, some
from ...engine.traffic import ClientConnection
from ...models.group import Group, Member
from ...models.group_calls import GROUP_APIS, JOINING_APIS, LEAVE_GROUP, Call
from ...models.groups import GroupDetector

_METADATA = facts.api_key("Metadata")
_SETTLED_NS = 5 * SECOND
_ASSIGNING = JOINING_APIS | {LEAVE_GROUP, facts.api_key("SyncGroup")}
"""APIs whose answers change what members have."""


class _AssignmentDetector(GroupDetector):
    """A detector of assignments that have stood for a while (a cooperative rebalance goes on): override `judge`."""

    def setup(self) -> None:
        self._new: BoundedDict[Group, Call] = BoundedDict(2000)

    def judge(self, group: Group, counts: dict[str, int], call: Call) -> None:
        """An assignment; `counts`: partitions by member id."""

    def answered(self, call: Call) -> None:
        if not call.error and call.is_answered:
            if call.api == "SyncGroup" or (call.heartbeat and call.answer.get("assignment") is not None):
                self._new[call.group] = call
            elif call.joins or call.leaves:
                self._new.pop(call.group, None)

    def asked(self, call: Call) -> None:
        self._settle(call.asked_ns, call.group)

    def finish(self, now_ns: int) -> None:
        self._settle(now_ns, *list(self._new))

    def _settle(self, now_ns: int, *groups: Group) -> None:
        for group in groups:
            call = self._new.get(group)
            if call is None or (group.rebalance is None and now_ns - call.answered_ns < _SETTLED_NS):
                continue
            del self._new[group]
            if group.rebalance is not None:
                continue
            given = group.assignments or {m.member_id: m.assignment for m in group.live if m.assignment is not None}
            counts = {member: sum(len(numbers) for numbers in parts.values()) for member, parts in given.items()}
            self.judge(group, counts, call)

    def report_latest(
        self, group: Group, counts: dict[str, int], call: Call, seen: str, why: str, remedy: str
    ) -> Finding:
        """One finding per group, about its latest assignment."""
        facts, assignor = call.conn.facts_of(call.exchange), group.assignor
        finding = self.report(group, call.exchange, why, remedy, facts=facts, assignor=assignor, group=call.group_id)
        finding.seen = seen
        finding.about |= {"generation": group.generation, "partitions": counts}
        return finding


def _name(group: Group, member_id: str) -> str:
    """A member by its client id where it was seen."""
    member = group.members.get(member_id)
    return (member.conn.client_id if member and member.conn.client_id else "") or member_id


class AssignmentSkew(_AssignmentDetector):
    id = "assignment-skew"
    usual_apis = _ASSIGNING
    severity = Severity.LOW
    title = "a member of a group has far more partitions than the others"

    FACTOR = 2
    """Times the average."""
    MORE = 3
    """Partitions more than the member with the fewest: less is rounding."""

    def judge(self, group: Group, counts: dict[str, int], call: Call) -> None:
        most, least = max(counts.values(), default=0), min(counts.values(), default=0)
        if most - least < self.MORE:
            return
        average = sum(counts.values()) / len(counts)
        if most <= self.FACTOR * average:
            return
        member = max(counts, key=lambda m: counts[m])
        topics = {m.topics for m in group.live if m.topics is not None}
        finding = self.report_latest(
            group,
            counts,
            call,
            f"in group {group.id!r} member {_name(group, member)} has {most} of {sum(counts.values())} partitions; "
            f"the average of {len(counts)} members is {average:.1f}, the minimum {least} (generation "
            f"{group.generation}, assignor {group.assignor or 'of the broker'})",
            "the range assignor assigns each topic separately and always begins with the same member, so that member "
            "gets all topics with few partitions. It lags while others have nothing to do."
            if group.assignor == "range"
            else "the member with the most partitions sets the pace of the group.",
            "use partition.assignment.strategy=cooperative-sticky (kafka-python, aiokafka: sticky or round robin), or "
            "group.protocol=consumer with the uniform assignor; or give the topics more partitions",
        )
        # Members with different subscriptions cannot get equal shares.
        finding.severity = Severity.INFO if len(topics) > 1 else Severity.LOW


class IdleMembers(_AssignmentDetector):
    id = "idle-members"
    usual_apis = _ASSIGNING
    severity = Severity.INFO
    title = "a group has more members than partitions"

    def judge(self, group: Group, counts: dict[str, int], call: Call) -> None:
        idle = [m for m, count in counts.items() if not count]
        total = sum(counts.values())
        if not idle or not total or len(counts) <= total:
            return
        self.report_latest(
            group,
            counts,
            call,
            f"group {group.id!r} has {len(counts)} members for {total} partition{'s' * (total > 1)}; without any: "
            f"{some(_name(group, m) for m in idle)}",
            "a partition is read by one member of a group at a time; members without a partition only stand by in "
            "case others fail.",
            "nothing if they are spares; otherwise run fewer members, give the topic more partitions, or use a share "
            "group (KIP-932), whose members share partitions",
        )


@dataclass(slots=True)
class _Unread:
    """A topic without readers. `call`: of its assignment. `told_ns`: when Metadata showed it to the leader, or 0."""

    call: Call
    told_ns: int = 0


class TopicAssignedToNobody(_AssignmentDetector):
    id = "topic-assigned-to-nobody"
    severity = Severity.MEDIUM
    title = "members of a group subscribe to a topic, and its leader assigns no partition of it to anybody"
    apis = GROUP_APIS | {_METADATA}

    LATE_NS = 10 * SECOND
    """From when the leader's client is told of a new topic; it joins again at its next poll."""

    def setup(self) -> None:
        super().setup()
        self._unread: BoundedDict[tuple[Group, str], _Unread] = BoundedDict(2000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        super().done(conn, exchange)
        if exchange.api_key == _METADATA and self._unread and exchange.state is State.PAIRED:
            answer = exchange.response_view
            topics = (answer.to_dict()["topics"] if answer is not None else None) or ()
            known = {topic["name"] for topic in topics if topic["partitions"]}
            for (group, topic), unread in self._unread.items():
                leader = group.members.get(group.leader)
                if topic in known and leader is not None and leader.conn.identity == conn.identity:
                    unread.told_ns = unread.told_ns or exchange.response_time_ns or 0

    def judge(self, group: Group, counts: dict[str, int], call: Call) -> None:
        for key in [key for key in self._unread if key[0] is group]:
            del self._unread[key]
        if group.assignments:
            read = {topic for parts in group.assignments.values() for topic, numbers in parts.items() if numbers}
            for topic in {topic for member in group.live for topic in member.topics or ()} - read:
                self._unread[group, topic] = _Unread(call)

    def finish(self, now_ns: int) -> None:
        super().finish(now_ns)
        self._for_now.clear()
        for key, unread in self._unread.items():
            (group, topic), leaders = key, key[0].cluster.leaders
            known, leader = leaders.get((topic, 0)), group.members.get(group.leader)
            if known is None or leader is None or group.rebalance is not None:
                continue
            late = known.time_ns > unread.call.asked_ns
            if not late or (unread.told_ns and now_ns - unread.told_ns >= self.LATE_NS):
                self._for_now[key] = self._state(group, topic, unread, now_ns if late else 0)

    def _state(self, group: Group, topic: str, unread: _Unread, now_ns: int) -> Finding:
        """`now_ns`: 0 if the topic was known before the leader assigned."""
        call, leaders = unread.call, group.cluster.leaders
        count = next(n for n in range(1, len(leaders) + 1) if (topic, n) not in leaders)
        readers = some(_name(group, m.member_id) for m in group.live if topic in (m.topics or ()))
        finding = self.finding(
            f"group {group.id!r} subscribes to topic {topic!r} ({several(count, 'partition')}), and its leader "
            f"{_name(group, group.leader)} has assigned none of it to anybody (generation {group.generation}); "
            f"subscribed: {readers}"
            + f"; its client knows it for {duration(now_ns - unread.told_ns)} and has not joined again" * bool(now_ns),
            *(_LATE if now_ns else _NOT_KNOWN),
            group=group.id,
            topic=topic,
            generation=group.generation,
            **call.conn.facts_of(call.exchange),
        )
        finding.add_evidence(call.exchange)
        return finding


_LATE = (
    "the topic was made after the group had assigned its partitions. A leader must join again when Metadata shows it "
    "new partitions, as Java's and librdkafka's do; this one does not (kafka-go without WatchPartitionChanges, "
    "kafka-go#1314).",
    "restart the group's consumers; create topics before them; upgrade the client (kafka-go: WatchPartitionChanges)",
)
_NOT_KNOWN = (
    "a leader assigns the partitions that its own Metadata shows, and Metadata had shown this topic before. Likeliest "
    "first: it asks only for the topics of its own subscription; its Metadata was old; it may not describe the topic "
    "(an ACL).",
    "give consumers of different topics a group.id of their own; restart the leader, upgrade its client, and allow it "
    "to describe the topic",
)


class PartitionOfTwoMembers(GroupDetector):
    id = "partition-of-two-members"
    severity = Severity.HIGH
    title = "a coordinator gives a partition to a member while another one still has it (group.protocol=consumer)"
    why = (
        "the coordinator assigns partitions itself here (KIP-848): it takes one from a member, waits until the "
        "member confirms that, and only then gives it to another. Both members read its records now, so the "
        "application processes them twice, and each commits over the other."
    )
    remedy = (
        "it is the broker's fault: upgrade it (Apache Kafka: KAFKA-16147, January 2024), or report it to its "
        "developers; until then, restart the member that got the partition first, or use group.protocol=classic"
    )
    apis = facts.api_key_set("ConsumerGroupHeartbeat")

    AFTER_NS = 3 * SECOND
    """The member that had the partition goes on with it."""

    def setup(self) -> None:
        # By the group and the member that had the partitions: the member that got them, too, and with which heartbeat.
        self._given: BoundedDict[tuple[Group, str], tuple[Member, Call]] = BoundedDict(2000)

    def answered(self, call: Call) -> None:
        member, group = call.member, call.group
        if call.error or not call.is_answered or member is None:
            return
        if call.answer.get("assignment") is not None and member.assignment:
            for other in group.live:
                if other is not member and not other.has_gap and _shared(member, other):
                    self._given[group, other.member_id] = member, call
        given = self._given.get((group, member.member_id))
        if given is None:
            return
        later, cause = given
        shared = _shared(later, member) if later.live else []
        if not shared:
            del self._given[group, member.member_id]
        elif call.answered_ns - cause.answered_ns >= self.AFTER_NS:
            key, who = (group, member.member_id), later.member_id
            finding = self.report(key, cause.exchange, facts=cause.conn.facts, group=group.id, member=who)
            finding.seen = (
                f"{cause.conn.where} gave {some(shared)} of group {group.id!r} to {later.who}, though {member.who} "
                f"has not been told to give "
                f"it up; {duration(call.answered_ns - cause.answered_ns)} later both still have it"
            )


def _shared(one: Member, other: Member) -> list[str]:
    """The partitions that two members have been given."""
    theirs = other.assignment or {}
    mine = (one.assignment or {}).items()
    return [f"{topic}-{n}" for topic, numbers in mine for n in sorted(set(numbers) & set(theirs.get(topic, ())))]
