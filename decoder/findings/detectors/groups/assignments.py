"""Assignments that leave some members with much and others with little or nothing."""

from __future__ import annotations

from ...engine.counters import BoundedDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, some
from ...engine.traffic import Traffic
from ...models.group import Group
from ...models.group_calls import Call
from ...models.groups import GroupDetector


class _Assigned(GroupDetector):
    """Judges every assignment once, when it has stood for a while: a cooperative rebalance goes on at once."""

    SETTLED_NS = 5 * SECOND

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._new: BoundedDict[Group, Call] = BoundedDict(2000)

    def asked(self, call: Call) -> None:
        self._due(call.group, call.asked_ns)

    def answered(self, call: Call) -> None:
        if not call.error and call.answer:
            given = call.answer.get("assignment")
            if call.api == "SyncGroup" or (call.heartbeat and given is not None):
                self._new[call.group] = call
            elif call.joins or call.leaves:
                self._new.pop(call.group, None)

    def finish(self, now_ns: int) -> None:
        for group in list(self._new):
            self._due(group, now_ns)

    def _due(self, group: Group, now_ns: int) -> None:
        call = self._new.get(group)
        if call is None:
            return
        if group.rebalance is not None:
            del self._new[group]
        elif now_ns - call.answered_ns >= self.SETTLED_NS:
            del self._new[group]
            given = group.assignments or {m.member_id: m.assignment for m in group.live if m.assignment is not None}
            counts = {member: sum(len(numbers) for numbers in parts.values()) for member, parts in given.items()}
            if len(counts) > 1 and any(counts.values()):
                self.judge(group, counts, call)

    def judge(self, group: Group, counts: dict[str, int], call: Call) -> None:
        """`counts`: partitions by member id, two members at least."""

    def report_group(
        self, group: Group, counts: dict[str, int], call: Call, seen: str, why: str, remedy: str
    ) -> Finding:
        """One finding per group; it says how it is now."""
        finding = self.report(group, call.exchange, why, remedy, seen=seen, assignor=group.assignor, **call.facts)
        finding.seen = seen
        finding.about |= {"generation": group.generation, "partitions": counts}
        return finding

    @staticmethod
    def name(group: Group, member_id: str) -> str:
        """A member by its client id where it was seen."""
        member = group.members.get(member_id)
        return (member.conn.client_id if member and member.conn.client_id else "") or member_id


class AssignmentSkew(_Assigned):
    id = "assignment-skew"
    severity = Severity.LOW
    title = "a member of a group has far more partitions than the others"

    FACTOR = 2
    """Times the average."""
    MORE = 3
    """Partitions more than the member with the fewest: less is rounding."""

    def judge(self, group: Group, counts: dict[str, int], call: Call) -> None:
        most, least = max(counts.values()), min(counts.values())
        average = sum(counts.values()) / len(counts)
        if most <= self.FACTOR * average or most - least < self.MORE:
            return
        member = max(counts, key=lambda m: counts[m])
        topics = {m.topics for m in group.live if m.topics is not None}
        finding = self.report_group(
            group,
            counts,
            call,
            f"in group {group.id!r} member {self.name(group, member)} has {most} of {sum(counts.values())} partitions, "
            f"the average of {len(counts)} members is {average:.1f}, the least {least} "
            f"(generation {group.generation}, assignor {group.assignor or 'of the broker'})",
            "the range assignor deals out every topic for itself and always begins with the same member: many topics "
            "with few partitions all go to it. That member lags while others have nothing to do."
            if group.assignor == "range"
            else "the member with the most partitions sets the pace of the group.",
            "use partition.assignment.strategy=cooperative-sticky (kafka-python, aiokafka: sticky or round robin), or "
            "group.protocol=consumer with the assignor uniform; or give the topics more partitions",
        )
        # Members that subscribe to different topics cannot be given the same.
        finding.severity = Severity.INFO if len(topics) > 1 else Severity.LOW


class IdleMembers(_Assigned):
    id = "idle-members"
    severity = Severity.INFO
    title = "a group has more members than partitions"

    def judge(self, group: Group, counts: dict[str, int], call: Call) -> None:
        idle = [m for m, count in counts.items() if not count]
        total = sum(counts.values())
        if not idle or len(counts) <= total:
            return
        self.report_group(
            group,
            counts,
            call,
            f"group {group.id!r} has {len(counts)} members for {total} partition{'s' * (total > 1)}: "
            f"{some(self.name(group, m) for m in idle)} without any",
            "a partition is read by one member of a group at a time; members without one only wait for others to fail.",
            "nothing if they are spares; otherwise run fewer members, give the topic more partitions, or use a share "
            "group (KIP-932), whose members share partitions",
        )
