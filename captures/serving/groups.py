"""Consumer groups, simulated with live members.

Classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup): members get the recorded member ids in order, and generations
continue from the recorded first one. The live leader's own assignment is passed on. Errors that follow from the state of a
group come from its state; others come where they came in the recording.

New protocol (KIP-848): the coordinator assigns partitions, uniformly over those of the recorded topics. A partition moves when
the member that owns it has reported giving it up.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

from ...decoder.filter.language.patterns import PatternError, PatternTimeout, pattern, within
from ...decoder.schema import facts
from .answers import DelayedReply, LiveRequest, NotRecorded, Outcomes, Reply
from .logs import Logs
from .offsets import NATURAL
from .recorded_exchanges import RecordedExchanges

_code = facts.error_code
UNKNOWN_MEMBER, ILLEGAL_GENERATION = _code("UNKNOWN_MEMBER_ID"), _code("ILLEGAL_GENERATION")
REBALANCING, MEMBER_ID_REQUIRED = _code("REBALANCE_IN_PROGRESS"), _code("MEMBER_ID_REQUIRED")
INCONSISTENT = _code("INCONSISTENT_GROUP_PROTOCOL")
INVALID_REGULAR_EXPRESSION = _code("INVALID_REGULAR_EXPRESSION")


class GroupState(Enum):
    """The states of a classic group, by Kafka's names: Empty -> PreparingRebalance when a member joins -> CompletingRebalance
    when all have joined -> Stable when the leader has sent its assignment; back to PreparingRebalance when a member joins,
    changes or leaves, to Empty when the last one has left."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class ClassicMember:
    """One live member. `joined`: it waits for the generation that is being formed. Times are in seconds."""

    id: str
    instance: str | None
    protocols: dict[str, bytes]
    session_timeout: float
    rebalance_timeout: float
    seen: float
    joined: bool = False
    assignment: bytes = b""


@dataclass
class ClassicGroup:
    """One group with its members, in the order of their first JoinGroup."""

    generation: int
    state: GroupState = GroupState.EMPTY
    kind: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, ClassicMember] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    forming_until: float = 0.0

    def form(self, now: float) -> None:
        """Begin a new generation: all members have to join again."""
        if self.state != GroupState.PREPARING_REBALANCE:
            self.state = GroupState.PREPARING_REBALANCE
            for member in self.members.values():
                member.joined = False
            longest = max((m.rebalance_timeout for m in self.members.values()), default=0.0)
            self.forming_until = now + longest

    def remove(self, member_id: str, now: float) -> None:
        """A member went away."""
        if self.members.pop(member_id, None) is not None:
            if not self.members:
                self.state, self.leader = GroupState.EMPTY, ""
                self.generation += 1
            else:
                self.form(now)

    def expire(self, now: float) -> None:
        """Remove members that sent no heartbeat, and those that did not join in time."""
        for member in list(self.members.values()):
            late = self.state == GroupState.PREPARING_REBALANCE and not member.joined and now > self.forming_until
            silent = now > member.seen + member.session_timeout and not (self.state == GroupState.PREPARING_REBALANCE and member.joined)
            if late or silent:
                self.remove(member.id, now)

    def complete(self) -> bool:
        """Whether all members have joined; the new generation then waits for the leader's assignment."""
        if self.state == GroupState.PREPARING_REBALANCE and self.members and all(member.joined for member in self.members.values()):
            self.generation += 1
            if self.leader not in self.members:
                self.leader = next(iter(self.members))
            shared = set.intersection(*(set(member.protocols) for member in self.members.values()))
            preferred = self.members[self.leader].protocols
            self.protocol = next((name for name in preferred if name in shared), "")
            self.state = GroupState.COMPLETING_REBALANCE
        return self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


class ClassicGroups:
    """The classic groups of the recording."""

    def __init__(self, recorded: RecordedExchanges) -> None:
        self._groups: dict[str, ClassicGroup] = {}
        self._ids: dict[str, list[str]] = defaultdict(list)
        self._first: dict[str, int] = {}
        self._made_up = 0
        self.errors: Outcomes[tuple[str, str]] = Outcomes(NATURAL)
        for exchange in recorded.of("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"):
            group = exchange.request["group_id"]
            self.errors.add((exchange.api, group), exchange.response["error_code"], exchange)
            ids = self._ids[group]
            if exchange.api == "JoinGroup":
                member_id, generation = exchange.response["member_id"], exchange.response["generation_id"]
                if member_id and member_id not in ids:
                    ids.append(member_id)
                if generation > 0:
                    self._first.setdefault(group, generation)

    @property
    def known(self) -> set[str]:
        """The groups that the recording has."""
        return set(self._ids)

    def learn(self, names: set[str]) -> None:
        """Groups that the recording names elsewhere."""
        for name in names:
            _ = self._ids[name]

    def judge(self, fields: dict[str, Any]) -> int:
        """The error for a commit with this member id and generation; 0 if it may."""
        group = self._groups.get(fields["group_id"])
        generation = fields.get("generation_id_or_member_epoch", -1)
        if group is None or generation < 0:
            return 0
        member = group.members.get(fields.get("member_id", ""))
        if member is None:
            return UNKNOWN_MEMBER
        if generation != group.generation:
            return ILLEGAL_GENERATION
        return REBALANCING if group.state == GroupState.COMPLETING_REBALANCE else 0

    def _group(self, request: LiveRequest) -> ClassicGroup:
        name = request.fields["group_id"]
        if name not in self._ids:
            raise NotRecorded(f"{request.api} v{request.version} for group {name}")
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = ClassicGroup(self._first.get(name, 1) - 1)
        group.expire(request.now)
        return group

    def _recorded_error(self, request: LiveRequest) -> int:
        error = self.errors.next_error((request.api, request.fields["group_id"]))
        return error[0] if error else 0

    def _new_id(self, request: LiveRequest, group: ClassicGroup) -> str:
        for known in self._ids[request.fields["group_id"]]:
            if known not in group.members and known not in group.pending:
                return known
        self._made_up += 1
        return f"{request.client_id}-00000000-0000-4000-8000-{self._made_up:012x}"

    def join(self, request: LiveRequest) -> Reply | DelayedReply:
        """JoinGroup: waits until all members have joined."""
        group, fields = self._group(request), request.fields
        code = self._recorded_error(request)
        if code:
            return self._join_error(request, code, fields["member_id"])
        member_id, instance = fields["member_id"], fields.get("group_instance_id")
        if not member_id and instance is None and request.version >= 4:
            new = self._new_id(request, group)
            group.pending.add(new)
            return self._join_error(request, MEMBER_ID_REQUIRED, new)
        if not member_id:
            same = next((m.id for m in group.members.values() if instance and m.instance == instance), None)
            if same:
                group.members.pop(same)
            member_id = self._new_id(request, group)
        elif member_id not in group.members and member_id not in group.pending:
            return self._join_error(request, UNKNOWN_MEMBER, member_id)
        group.pending.discard(member_id)
        protocols = {item["name"]: item["metadata"] for item in fields["protocols"]}
        others = [set(m.protocols) for m in group.members.values() if m.id != member_id]
        if others and not set.intersection(set(protocols), *others):
            return self._join_error(request, INCONSISTENT, member_id)
        group.kind = fields["protocol_type"]
        member = group.members.get(member_id)
        if member is None:
            member = group.members[member_id] = ClassicMember(
                member_id, instance, protocols, fields["session_timeout_ms"] / 1000,
                max(fields.get("rebalance_timeout_ms", -1), fields["session_timeout_ms"]) / 1000, request.now,
            )  # fmt: skip
            group.form(request.now)
        elif member.protocols != protocols or (group.state == GroupState.STABLE and group.leader == member_id):
            member.protocols = protocols
            group.form(request.now)
        elif group.state == GroupState.EMPTY:
            group.form(request.now)
        member.seen, member.joined = request.now, True

        def poll(now: float, last: bool) -> Reply | None:
            group.expire(now)
            if group.members.get(member_id) is not member:
                return self._join_error(request, UNKNOWN_MEMBER, member_id)
            return self._joined(request, group, member, now) if group.complete() else None

        return poll(request.now, False) or DelayedReply(max(group.forming_until, request.now) + 0.05, poll)

    def _join_error(self, request: LiveRequest, code: int, member_id: str) -> Reply:
        none = {"generation_id": -1, "leader": "", "members": [], "protocol_name": ""}
        return request.reply({"error_code": code, "member_id": member_id, **none})

    def _joined(self, request: LiveRequest, group: ClassicGroup, member: ClassicMember, now: float) -> Reply:
        member.seen = now
        leads = group.leader == member.id
        body = {
            "error_code": 0, "generation_id": group.generation, "protocol_type": group.kind,
            "protocol_name": group.protocol, "leader": group.leader, "member_id": member.id,
            "members": [
                {"member_id": m.id, "group_instance_id": m.instance, "metadata": m.protocols.get(group.protocol, b"")}
                for m in group.members.values()
            ] if leads else [],
        }  # fmt: skip
        return request.reply(body)

    def _fault(self, group: ClassicGroup, fields: dict[str, Any]) -> int:
        if fields["member_id"] not in group.members:
            return UNKNOWN_MEMBER
        return ILLEGAL_GENERATION if fields["generation_id"] != group.generation else 0

    def sync(self, request: LiveRequest) -> Reply | DelayedReply:
        """SyncGroup: waits for the leader's assignment."""
        group, fields = self._group(request), request.fields
        code = self._recorded_error(request) or self._fault(group, fields)
        if not code and group.state == GroupState.PREPARING_REBALANCE:
            code = REBALANCING
        if code:
            return request.reply({"error_code": code, "assignment": b""})
        member, generation = group.members[fields["member_id"]], group.generation
        member.seen = request.now
        if member.id == group.leader and group.state == GroupState.COMPLETING_REBALANCE:
            given = {item["member_id"]: item["assignment"] for item in fields["assignments"]}
            for each in group.members.values():
                each.assignment = given.get(each.id, b"")
            group.state = GroupState.STABLE

        def poll(now: float, last: bool) -> Reply | None:
            group.expire(now)
            body: dict[str, Any] = {"error_code": 0, "protocol_type": group.kind, "protocol_name": group.protocol}
            if group.generation != generation or group.state == GroupState.PREPARING_REBALANCE or member.id not in group.members:
                body |= {"error_code": REBALANCING, "assignment": b""}
            elif group.state == GroupState.STABLE:
                member.seen = now
                body["assignment"] = member.assignment
            elif last:
                body |= {"error_code": REBALANCING, "assignment": b""}
            else:
                return None
            return request.reply(body)

        return poll(request.now, False) or DelayedReply(request.now + member.rebalance_timeout, poll)

    def heartbeat(self, request: LiveRequest) -> Reply:
        """Heartbeat: answers REBALANCE_IN_PROGRESS when a new generation is being formed, so that the member joins again."""
        group = self._group(request)
        code = self._recorded_error(request) or self._fault(group, request.fields)
        if not code:
            group.members[request.fields["member_id"]].seen = request.now
            code = REBALANCING if group.state == GroupState.PREPARING_REBALANCE else 0
        return request.reply({"error_code": code})

    def leave(self, request: LiveRequest) -> Reply:
        group, code = self._group(request), self._recorded_error(request)
        leaving = request.fields.get("members")
        results = []
        for item in leaving if leaving is not None else [request.fields]:
            instance = item.get("group_instance_id")
            member = next((m for m in group.members.values() if instance and m.instance == instance), None)
            member_id = member.id if member else item["member_id"]
            there = member_id in group.members
            if not code:
                group.remove(member_id, request.now)
            error = 0 if there else UNKNOWN_MEMBER
            results.append({"member_id": item["member_id"], "group_instance_id": instance, "error_code": error})
        body = {"error_code": code if leaving is not None or code else results[0]["error_code"], "members": results}
        return request.reply(body)


SEARCH_SECONDS = 0.05
"""How long the topics that a member's expression names may be looked for."""
_JOIN, _LEAVE, _LEAVE_FOR_NOW = 0, -1, -2
_SILENT_SECONDS = 45.0

Owned = set[tuple[str, int]]
"""topic, partition"""


@dataclass(slots=True)
class ConsumerMember:
    id: str
    seen: float
    topics: list[str] = field(default_factory=list)
    pattern: str = ""
    epoch: int = 0
    last_assignment: Owned | None = None
    has: Owned = field(default_factory=set)


@dataclass
class ConsumerGroup:
    epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, Owned] = field(default_factory=dict)


class ConsumerGroups:
    """The groups of the recording that use ConsumerGroupHeartbeat."""

    def __init__(self, recorded: RecordedExchanges, logs: Logs) -> None:
        self._recorded, self._logs = recorded, logs
        self._groups: dict[str, ConsumerGroup] = {}
        self.known: set[str] = set()
        self._interval = 5000
        self._errors: Outcomes[str] = Outcomes(NATURAL)
        self._made_up = 0
        for exchange in recorded.of("ConsumerGroupHeartbeat"):
            self.known.add(exchange.request["group_id"])
            self._interval = exchange.response["heartbeat_interval_ms"] or self._interval
            self._errors.add(exchange.request["group_id"], exchange.response["error_code"], exchange)

    def heartbeat(self, request: LiveRequest) -> Reply:
        """ConsumerGroupHeartbeat: join, leave, and everything between."""
        fields = request.fields
        name = fields["group_id"]
        if name not in self.known:
            raise NotRecorded(f"{request.api} v{request.version} for group {name}")
        error = self._errors.next_error(name)
        if error:
            return self._answer(fields["member_id"], fields["member_epoch"], None, error[0])
        group = self._groups.setdefault(name, ConsumerGroup())
        self._expire(group, request.now)
        member_id, epoch = fields["member_id"], fields["member_epoch"]
        try:
            pattern(fields.get("subscribed_topic_regex") or "")
        except PatternError:
            return self._answer(member_id, epoch, None, INVALID_REGULAR_EXPRESSION)
        if epoch in (_LEAVE, _LEAVE_FOR_NOW):
            if group.members.pop(member_id, None):
                self._assign(group)
            return self._answer(member_id, epoch, None)
        member = group.members.get(member_id)
        if epoch == _JOIN:
            if not member_id:
                self._made_up += 1
                member_id = f"{request.client_id}-{self._made_up}"
            member = group.members[member_id] = ConsumerMember(member_id, request.now)
        elif member is None:
            return self._answer(member_id, epoch, None, UNKNOWN_MEMBER)
        member.seen = request.now
        if self._subscribed(member, fields) or epoch == _JOIN:
            self._assign(group)
        if fields["topic_partitions"] is not None:
            member.has = self._named(fields["topic_partitions"])
        return self._reconcile(group, member)

    def _reconcile(self, group: ConsumerGroup, member: ConsumerMember) -> Reply:
        target = group.target[member.id]
        taken: Owned = set()
        for other in group.members.values():
            if other is not member:
                taken |= other.has | (other.last_assignment or set())
        if member.has - target or (member.last_assignment or set()) - target:
            may_have = member.has & target  # first it gives up what another member is to get
        else:
            may_have = target - taken
            member.epoch = group.epoch
        news = may_have if may_have != member.last_assignment else None
        member.last_assignment = may_have
        return self._answer(member.id, max(member.epoch, 1), news)

    def _answer(self, member_id: str, epoch: int, assignment: Owned | None, code: int = 0) -> Reply:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(assignment or ()):
            topics.setdefault(topic, []).append(partition)
        topic_partitions = [
            {"topic_id": UUID(bytes=self._recorded.topic_ids[topic]), "partitions": partitions}
            for topic, partitions in topics.items()
        ]
        return Reply(
            {
                "error_code": code, "member_id": member_id, "member_epoch": epoch,
                "heartbeat_interval_ms": self._interval,
                "assignment": None if assignment is None else {"topic_partitions": topic_partitions},
            }
        )  # fmt: skip

    def _subscribed(self, member: ConsumerMember, fields: dict[str, Any]) -> bool:
        """Take a member's subscription; whether it is another one now."""
        before = member.topics, member.pattern
        if fields["subscribed_topic_names"] is not None:
            member.topics = fields["subscribed_topic_names"]
        if fields.get("subscribed_topic_regex") is not None:
            member.pattern = fields["subscribed_topic_regex"]
        return before != (member.topics, member.pattern)

    def _named(self, topics: list[dict[str, Any]]) -> Owned:
        return {(self._recorded.topic_of(topic), partition) for topic in topics for partition in topic["partitions"]}

    def _expire(self, group: ConsumerGroup, now: float) -> None:
        silent = [member.id for member in group.members.values() if now > member.seen + _SILENT_SECONDS]
        for member_id in silent:
            del group.members[member_id]
        if silent:
            self._assign(group)

    def _assign(self, group: ConsumerGroup) -> None:
        group.epoch += 1
        target: dict[str, Owned] = {member_id: set() for member_id in group.members}
        wanted = {member.id: self._topics(member) for member in group.members.values()}
        for topic in sorted(set().union(*wanted.values()) if wanted else ()):
            interested = [member_id for member_id, topics in wanted.items() if topic in topics]
            for partition in range(self._logs.partitions.get(topic, 0)):
                # A member keeps its partitions, as long as no other has fewer.
                least = min(len(target[member_id]) for member_id in interested)
                keeper = next((m for m in interested if (topic, partition) in (group.members[m].last_assignment or ())), None)
                if keeper is None or len(target[keeper]) > least:
                    keeper = next(m for m in interested if len(target[m]) == least)
                target[keeper].add((topic, partition))
        group.target = target

    def _topics(self, member: ConsumerMember) -> set[str]:
        known = set(self._recorded.topic_ids)
        found = set(member.topics) & known
        if member.pattern:
            try:
                with within(SEARCH_SECONDS, time.monotonic):
                    found |= {topic for topic in known if pattern(member.pattern).matches(topic)}
            except PatternTimeout:
                pass  # no client may hold up the others
        return found
