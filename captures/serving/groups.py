"""Consumer groups of the classic protocol, kept up with live members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Members get the recorded member ids in their order, and generations go on from the recorded first one. The live leader's
own assignment is passed on. Errors that follow from the state of a group come from its state; others come where they
came in the recording.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ...decoder import facts
from .asked import Ask, Later, Missed, Outcomes, Reply
from .memory import Memory
from .offsets import NATURAL
from .restating import fitting

_code = facts.error_code
UNKNOWN_MEMBER, ILLEGAL_GENERATION = _code("UNKNOWN_MEMBER_ID"), _code("ILLEGAL_GENERATION")
REBALANCING, MEMBER_ID_REQUIRED = _code("REBALANCE_IN_PROGRESS"), _code("MEMBER_ID_REQUIRED")
INCONSISTENT = _code("INCONSISTENT_GROUP_PROTOCOL")
_EMPTY, _JOINING, _SYNCING, _STABLE = "empty", "joining", "syncing", "stable"


@dataclass(slots=True)
class Member:
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
class Group:
    """One group with its members, in the order of their first JoinGroup."""

    generation: int
    state: str = _EMPTY
    kind: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    forming_until: float = 0.0

    def form(self, now: float) -> None:
        """Begin a new generation: everybody has to join again."""
        if self.state != _JOINING:
            self.state = _JOINING
            for member in self.members.values():
                member.joined = False
            longest = max((m.rebalance_timeout for m in self.members.values()), default=0.0)
            self.forming_until = now + longest

    def remove(self, member_id: str, now: float) -> None:
        """A member went away."""
        if self.members.pop(member_id, None) is not None:
            if not self.members:
                self.state, self.leader = _EMPTY, ""
                self.generation += 1
            else:
                self.form(now)

    def expire(self, now: float) -> None:
        """Take out members that were not heard of, and those that did not join in time."""
        for member in list(self.members.values()):
            late = self.state == _JOINING and not member.joined and now > self.forming_until
            silent = now > member.seen + member.session_timeout and not (self.state == _JOINING and member.joined)
            if late or silent:
                self.remove(member.id, now)

    def complete(self) -> bool:
        """Whether everybody has joined; the generation is then there, and waits for the leader's assignment."""
        if self.state == _JOINING and self.members and all(member.joined for member in self.members.values()):
            self.generation += 1
            if self.leader not in self.members:
                self.leader = next(iter(self.members))
            shared = set.intersection(*(set(member.protocols) for member in self.members.values()))
            liked = self.members[self.leader].protocols
            self.protocol = next((name for name in liked if name in shared), "")
            self.state = _SYNCING
        return self.state in (_SYNCING, _STABLE)


class Groups:
    """All groups of the recording."""

    def __init__(self, memory: Memory) -> None:
        self._groups: dict[str, Group] = {}
        self._ids: dict[str, list[str]] = defaultdict(list)
        self._first: dict[str, int] = {}
        self._made_up = 0
        self.errors = Outcomes(NATURAL)
        for kept in memory.of("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"):
            assert kept.answered is not None
            group = kept.asked["group_id"]
            self.errors.add((kept.api, group), kept.answered["error_code"], kept)
            ids = self._ids[group]
            if kept.api == "JoinGroup":
                member_id, generation = kept.answered["member_id"], kept.answered["generation_id"]
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
        return REBALANCING if group.state == _SYNCING else 0

    def _group(self, ask: Ask) -> Group:
        name = ask.fields["group_id"]
        if name not in self._ids:
            raise Missed(f"{ask.api} v{ask.version} for group {name}")
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(self._first.get(name, 1) - 1)
        group.expire(ask.now)
        return group

    def _recorded_error(self, ask: Ask) -> int:
        error = self.errors.next_error((ask.api, ask.fields["group_id"]))
        return error[0] if error else 0

    def _new_id(self, ask: Ask, group: Group) -> str:
        for known in self._ids[ask.fields["group_id"]]:
            if known not in group.members and known not in group.pending:
                return known
        self._made_up += 1
        return f"{ask.client_id}-00000000-0000-4000-8000-{self._made_up:012x}"

    def join(self, ask: Ask) -> Reply | Later:
        """JoinGroup: waits until all members have joined."""
        group, fields = self._group(ask), ask.fields
        code = self._recorded_error(ask)
        if code:
            return self._joined_badly(ask, code, fields["member_id"])
        member_id, instance = fields["member_id"], fields.get("group_instance_id")
        if not member_id and instance is None and ask.version >= 4:
            new = self._new_id(ask, group)
            group.pending.add(new)
            return self._joined_badly(ask, MEMBER_ID_REQUIRED, new)
        if not member_id:
            same = next((m.id for m in group.members.values() if instance and m.instance == instance), None)
            if same:
                group.members.pop(same)
            member_id = self._new_id(ask, group)
        elif member_id not in group.members and member_id not in group.pending:
            return self._joined_badly(ask, UNKNOWN_MEMBER, member_id)
        group.pending.discard(member_id)
        protocols = {item["name"]: item["metadata"] for item in fields["protocols"]}
        others = [set(m.protocols) for m in group.members.values() if m.id != member_id]
        if others and not set.intersection(set(protocols), *others):
            return self._joined_badly(ask, INCONSISTENT, member_id)
        group.kind = fields["protocol_type"]
        member = group.members.get(member_id)
        if member is None:
            member = group.members[member_id] = Member(
                member_id, instance, protocols, fields["session_timeout_ms"] / 1000,
                max(fields.get("rebalance_timeout_ms", -1), fields["session_timeout_ms"]) / 1000, ask.now,
            )  # fmt: skip
            group.form(ask.now)
        elif member.protocols != protocols or (group.state == _STABLE and group.leader == member_id):
            member.protocols = protocols
            group.form(ask.now)
        elif group.state == _EMPTY:
            group.form(ask.now)
        member.seen, member.joined = ask.now, True

        def poll(now: float, last: bool) -> Reply | None:
            group.expire(now)
            if group.members.get(member_id) is not member:
                return self._joined_badly(ask, UNKNOWN_MEMBER, member_id)
            return self._joined(ask, group, member, now) if group.complete() else None

        return poll(ask.now, False) or Later(max(group.forming_until, ask.now) + 0.05, poll)

    def _joined_badly(self, ask: Ask, code: int, member_id: str) -> Reply:
        body = {
            "error_code": code,
            "generation_id": -1,
            "leader": "",
            "member_id": member_id,
            "members": [],
            "protocol_name": "",
        }
        return Reply(fitting("response", ask.api_key, ask.version, body))

    def _joined(self, ask: Ask, group: Group, member: Member, now: float) -> Reply:
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
        return Reply(fitting("response", ask.api_key, ask.version, body))

    def _fault(self, group: Group, fields: dict[str, Any]) -> int:
        if fields["member_id"] not in group.members:
            return UNKNOWN_MEMBER
        return ILLEGAL_GENERATION if fields["generation_id"] != group.generation else 0

    def sync(self, ask: Ask) -> Reply | Later:
        """SyncGroup: waits for the leader's assignment."""
        group, fields = self._group(ask), ask.fields
        code = self._recorded_error(ask) or self._fault(group, fields)
        if not code and group.state == _JOINING:
            code = REBALANCING
        if code:
            return Reply(fitting("response", ask.api_key, ask.version, {"error_code": code, "assignment": b""}))
        member, generation = group.members[fields["member_id"]], group.generation
        member.seen = ask.now
        if member.id == group.leader and group.state == _SYNCING:
            given = {item["member_id"]: item["assignment"] for item in fields["assignments"]}
            for each in group.members.values():
                each.assignment = given.get(each.id, b"")
            group.state = _STABLE

        def poll(now: float, last: bool) -> Reply | None:
            group.expire(now)
            body: dict[str, Any] = {"error_code": 0, "protocol_type": group.kind, "protocol_name": group.protocol}
            if group.generation != generation or group.state == _JOINING or member.id not in group.members:
                body |= {"error_code": REBALANCING, "assignment": b""}
            elif group.state == _STABLE:
                member.seen = now
                body["assignment"] = member.assignment
            elif last:
                body |= {"error_code": REBALANCING, "assignment": b""}
            else:
                return None
            return Reply(fitting("response", ask.api_key, ask.version, body))

        return poll(ask.now, False) or Later(ask.now + member.rebalance_timeout, poll)

    def heartbeat(self, ask: Ask) -> Reply:
        """Heartbeat: tells a member to join again when a new generation is being formed."""
        group = self._group(ask)
        code = self._recorded_error(ask) or self._fault(group, ask.fields)
        if not code:
            group.members[ask.fields["member_id"]].seen = ask.now
            code = REBALANCING if group.state == _JOINING else 0
        return Reply(fitting("response", ask.api_key, ask.version, {"error_code": code}))

    def leave(self, ask: Ask) -> Reply:
        """LeaveGroup at every version."""
        group, code = self._group(ask), self._recorded_error(ask)
        leaving = ask.fields.get("members")
        results = []
        for item in leaving if leaving is not None else [ask.fields]:
            instance = item.get("group_instance_id")
            member = next((m for m in group.members.values() if instance and m.instance == instance), None)
            member_id = member.id if member else item["member_id"]
            there = member_id in group.members
            if not code:
                group.remove(member_id, ask.now)
            results.append(
                {
                    "member_id": item["member_id"],
                    "group_instance_id": instance,
                    "error_code": 0 if there else UNKNOWN_MEMBER,
                }
            )
        body = {"error_code": code if leaving is not None or code else results[0]["error_code"], "members": results}
        return Reply(fitting("response", ask.api_key, ask.version, body))
