"""Uneven assignments: some members have much, others little or nothing."""

from __future__ import annotations

from collections.abc import Callable

from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, some
from ...engine.traffic import Traffic
from ...models.group import Group
from ...models.group_calls import JOINING_APIS, LEAVE_GROUP, Call
from ...models.groups import GroupDetector

_SETTLED_NS = 5 * SECOND
_ASSIGNING = JOINING_APIS | {LEAVE_GROUP, facts.api_key("SyncGroup")}
"""APIs whose answers change what members have."""


class _SettledAssignments:
    """Calls `judge` with every assignment to two members or more once, after it has stood for a while: a cooperative rebalance goes on at
    once. With partitions by member id."""

    def __init__(self, judge: Callable[[Group, dict[str, int], Call], None]) -> None:
        self._judge = judge
        self._new: BoundedDict[Group, Call] = BoundedDict(2000)

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
            if len(counts) > 1 and any(counts.values()):
                self._judge(group, counts, call)


def _report_latest(
    detector: GroupDetector, group: Group, counts: dict[str, int], call: Call, seen: str, why: str, remedy: str
) -> Finding:
    """One finding per group, about its latest assignment."""
    conn, exchange = call.conn, call.exchange
    finding = detector.report(
        group, exchange, why, remedy, facts=conn.facts_of(exchange), assignor=group.assignor, group=call.group_id
    )
    finding.seen = seen
    finding.about |= {"generation": group.generation, "partitions": counts}
    return finding


def _name(group: Group, member_id: str) -> str:
    """A member by its client id where it was seen."""
    member = group.members.get(member_id)
    return (member.conn.client_id if member and member.conn.client_id else "") or member_id


class AssignmentSkew(GroupDetector):
    id = "assignment-skew"
    usual_apis = _ASSIGNING
    severity = Severity.LOW
    title = "a member of a group has far more partitions than the others"

    FACTOR = 2
    """Times the average."""
    MORE = 3
    """Partitions more than the member with the fewest: less is rounding."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._assignments = _SettledAssignments(self._judge)

    def answered(self, call: Call) -> None:
        self._assignments.answered(call)

    def asked(self, call: Call) -> None:
        self._assignments.asked(call)

    def finish(self, now_ns: int) -> None:
        self._assignments.finish(now_ns)

    def _judge(self, group: Group, counts: dict[str, int], call: Call) -> None:
        most, least = max(counts.values()), min(counts.values())
        average = sum(counts.values()) / len(counts)
        if most <= self.FACTOR * average or most - least < self.MORE:
            return
        member = max(counts, key=lambda m: counts[m])
        topics = {m.topics for m in group.live if m.topics is not None}
        finding = _report_latest(
            self,
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


class IdleMembers(GroupDetector):
    id = "idle-members"
    usual_apis = _ASSIGNING
    severity = Severity.INFO
    title = "a group has more members than partitions"

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._assignments = _SettledAssignments(self._judge)

    def answered(self, call: Call) -> None:
        self._assignments.answered(call)

    def asked(self, call: Call) -> None:
        self._assignments.asked(call)

    def finish(self, now_ns: int) -> None:
        self._assignments.finish(now_ns)

    def _judge(self, group: Group, counts: dict[str, int], call: Call) -> None:
        idle = [m for m, count in counts.items() if not count]
        total = sum(counts.values())
        if not idle or len(counts) <= total:
            return
        _report_latest(
            self,
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
