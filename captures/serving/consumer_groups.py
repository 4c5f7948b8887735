"""Consumer groups of the new protocol (KIP-848), kept up with live members: the coordinator assigns partitions.

The assignment is uniform over the partitions of the recorded topics. A partition moves when the member that has it has
said that it gave it up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ...decoder import facts
from ...decoder.filter.patterns import PatternError, PatternTimeout, pattern, within
from .asked import Ask, Missed, Outcomes, Reply
from .logs import Logs
from .memory import Memory
from .offsets import NATURAL

UNKNOWN_MEMBER = facts.error_code("UNKNOWN_MEMBER_ID")
INVALID_REGULAR_EXPRESSION = facts.error_code("INVALID_REGULAR_EXPRESSION")
SEARCH_SECONDS = 0.05
"""How long the topics that a member's expression names may be looked for."""
_JOIN, _LEAVE, _LEAVE_FOR_NOW = 0, -1, -2
_SILENT_SECONDS = 45.0

Owned = set[tuple[str, int]]
"""topic, partition"""


@dataclass(slots=True)
class _Member:
    id: str
    seen: float
    topics: list[str] = field(default_factory=list)
    pattern: str = ""
    epoch: int = 0
    told: Owned | None = None
    has: Owned = field(default_factory=set)


@dataclass
class _Group:
    epoch: int = 0
    members: dict[str, _Member] = field(default_factory=dict)
    target: dict[str, Owned] = field(default_factory=dict)


class ConsumerGroups:
    """All groups of the recording that speak ConsumerGroupHeartbeat."""

    def __init__(self, memory: Memory, logs: Logs) -> None:
        self._memory, self._logs = memory, logs
        self._groups: dict[str, _Group] = {}
        self.known: set[str] = set()
        self._interval = 5000
        self._errors = Outcomes(NATURAL)
        self._made_up = 0
        for kept in memory.of("ConsumerGroupHeartbeat"):
            assert kept.answered is not None
            self.known.add(kept.asked["group_id"])
            self._interval = kept.answered["heartbeat_interval_ms"] or self._interval
            self._errors.add(kept.asked["group_id"], kept.answered["error_code"], kept)

    def heartbeat(self, ask: Ask) -> Reply:
        """ConsumerGroupHeartbeat: join, leave, and everything between."""
        fields = ask.fields
        name = fields["group_id"]
        if name not in self.known:
            raise Missed(f"{ask.api} v{ask.version} for group {name}")
        error = self._errors.next_error(name)
        if error:
            return self._answer(fields["member_id"], fields["member_epoch"], None, error[0])
        group = self._groups.setdefault(name, _Group())
        self._expire(group, ask.now)
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
                member_id = f"{ask.client_id}-{self._made_up}"
            member = group.members[member_id] = _Member(member_id, ask.now)
        elif member is None:
            return self._answer(member_id, epoch, None, UNKNOWN_MEMBER)
        member.seen = ask.now
        if self._subscribed(member, fields) or epoch == _JOIN:
            self._assign(group)
        if fields["topic_partitions"] is not None:
            member.has = self._named(fields["topic_partitions"])
        return self._reconcile(group, member)

    def _reconcile(self, group: _Group, member: _Member) -> Reply:
        target = group.target[member.id]
        taken: Owned = set()
        for other in group.members.values():
            if other is not member:
                taken |= other.has | (other.told or set())
        if member.has - target or (member.told or set()) - target:
            may_have = member.has & target  # first it gives up what is to be another's
        else:
            may_have = target - taken
            member.epoch = group.epoch
        news = may_have if may_have != member.told else None
        member.told = may_have
        return self._answer(member.id, max(member.epoch, 1), news)

    def _answer(self, member_id: str, epoch: int, assignment: Owned | None, code: int = 0) -> Reply:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(assignment or ()):
            topics.setdefault(topic, []).append(partition)
        told = [
            {"topic_id": UUID(bytes=self._memory.topic_ids[topic]), "partitions": partitions}
            for topic, partitions in topics.items()
        ]
        return Reply(
            {
                "error_code": code, "member_id": member_id, "member_epoch": epoch,
                "heartbeat_interval_ms": self._interval,
                "assignment": None if assignment is None else {"topic_partitions": told},
            }
        )  # fmt: skip

    def _subscribed(self, member: _Member, fields: dict[str, Any]) -> bool:
        """Take a member's subscription; whether it is another one now."""
        before = member.topics, member.pattern
        if fields["subscribed_topic_names"] is not None:
            member.topics = fields["subscribed_topic_names"]
        if fields.get("subscribed_topic_regex") is not None:
            member.pattern = fields["subscribed_topic_regex"]
        return before != (member.topics, member.pattern)

    def _named(self, topics: list[dict[str, Any]]) -> Owned:
        return {(self._memory.topic_of(topic), partition) for topic in topics for partition in topic["partitions"]}

    def _expire(self, group: _Group, now: float) -> None:
        silent = [member.id for member in group.members.values() if now > member.seen + _SILENT_SECONDS]
        for member_id in silent:
            del group.members[member_id]
        if silent:
            self._assign(group)

    def _assign(self, group: _Group) -> None:
        group.epoch += 1
        target: dict[str, Owned] = {member_id: set() for member_id in group.members}
        wanted = {member.id: self._topics(member) for member in group.members.values()}
        for topic in sorted(set().union(*wanted.values()) if wanted else ()):
            interested = [member_id for member_id, topics in wanted.items() if topic in topics]
            for partition in range(self._logs.partitions.get(topic, 0)):
                # Whoever has it keeps it, as long as nobody has much less.
                least = min(len(target[member_id]) for member_id in interested)
                keeper = next((m for m in interested if (topic, partition) in (group.members[m].told or ())), None)
                if keeper is None or len(target[keeper]) > least:
                    keeper = next(m for m in interested if len(target[m]) == least)
                target[keeper].add((topic, partition))
        group.target = target

    def _topics(self, member: _Member) -> set[str]:
        known = set(self._memory.topic_ids)
        found = set(member.topics) & known
        if member.pattern:
            try:
                with within(SEARCH_SECONDS, time.monotonic):
                    found |= {topic for topic in known if pattern(member.pattern).matches(topic)}
            except PatternTimeout:
                pass  # no client may hold up the others
        return found
