"""One group: its members, generations and rebalances, moved on by the calls of its members."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from ..engine.formatting import topic_name
from ..engine.traffic import ClientConnection, Cluster
from .group_calls import (
    FENCED_INSTANCE_ID,
    GONE_CODES,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    Call,
    rows,
)
from .group_members import Assignment, Member, State, Step, assignment_of, settings, subscription

GONE = 64
"""Members of a group that are kept after they left."""


class Cause(StrEnum):
    """What makes a group rebalance, in words."""

    FIRST = "its first member joined"
    JOIN = "a new member joined"
    LEAVE = "a member left"
    TIMEOUT = "a member was silent for its session timeout"
    SUBSCRIPTION = "a member changed its subscription"
    REJOIN = "a member joined again (its leader saw other partitions, or a cooperative rebalance went on)"
    UNSEEN = "something that was not captured"


@dataclass(slots=True, eq=False)
class Rebalance:
    """A rebalance: why it began, who came when, how long each part of it took. Times are nanoseconds since the epoch, 0 for not yet
    (or not seen).

    `who`: the member that caused it, in words, "" if unknown; `said`: the reason it gave. `expected`: the ids of the
    members that had to join again and have not. `joins`: when each member joined. `formed_ns`: the coordinator
    answered; `leader_sync_ns`: the leader sent the assignments; `synced_ns`: the last member got its own. `size`: of
    the generation.
    """

    began_ns: int
    cause: Cause
    who: str
    said: str
    expected: set[str]
    conn: ClientConnection | None = None
    generation: int = -1
    size: int = 0
    first_join_ns: int = 0
    formed_ns: int = 0
    leader_sync_ns: int = 0
    synced_ns: int = 0
    joins: dict[str, int] = field(default_factory=dict)

    def joined(self, member_id: str, time_ns: int) -> None:
        """A member has joined (again)."""
        if member_id:
            self.expected.discard(member_id)
            self.joins[member_id] = time_ns

    @property
    def duration_ns(self) -> int:
        """From the first JoinGroup to the last SyncGroup answer; 0 as long as it is not through."""
        return self.synced_ns - self.first_join_ns if self.synced_ns and self.first_join_ns else 0


class Group:
    """A group. `members`: by id, those that are gone too until there are too many; `live` are the others.

    `generation`: the newest that was seen (epoch for the newer protocols). `assignor`: the protocol name that the
    coordinator chose. `leader`: a member id. `assignments`: what the leader gave to whom in this generation.
    `rebalances`: the last ones, the newest at the end. `waiting`: JoinGroups without an answer.
    """

    def __init__(self, group_id: str, cluster: Cluster) -> None:
        self.id, self.cluster = group_id, cluster
        self.protocol = self.protocol_type = self.assignor = self.leader = ""
        self.generation = -1
        self.members: dict[str, Member] = {}
        self.assignments: dict[str, Assignment] = {}
        self.rebalances: deque[Rebalance] = deque(maxlen=64)
        self.rebalance: Rebalance | None = None
        self.waiting: dict[int, Call] = {}

    @property
    def live(self) -> list[Member]:
        """The members that the coordinator has, as far as was seen."""
        return [m for m in self.members.values() if m.live]

    @property
    def state(self) -> str:
        """As Kafka names it (``ConsumerGroupState``): Empty, PreparingRebalance, CompletingRebalance or Stable."""
        live = [m for m in self.live if m.state is not State.PENDING]
        if not live:
            return "Empty"
        if self.rebalance is not None:
            return "PreparingRebalance"
        behind = any(m.state in (State.JOINED, State.SYNCING) for m in live)
        return "CompletingRebalance" if behind else "Stable"

    def begin(self, time_ns: int, cause: Cause, who: Member | None, said: str | None = None) -> Rebalance:
        """A rebalance begins, unless one is under way."""
        if self.rebalance is None:
            expected = {m.member_id for m in self.live if m is not who and m.state is not State.JOINING}
            self.rebalance = Rebalance(time_ns, cause, who.who if who else "", said or "", expected)
            self.rebalance.conn = who.conn if who else None
            self.rebalances.append(self.rebalance)
        return self.rebalance

    def formed(self, time_ns: int, generation: int, leader: str) -> None:
        """The coordinator has formed a generation."""
        if generation <= self.generation:
            return
        self.generation, self.assignments, self.leader = generation, {}, leader
        now = self.rebalance or self.begin(time_ns, Cause.UNSEEN, None)
        now.generation, now.formed_ns, now.size = generation, time_ns, len(self.live)
        self.rebalance = None

    def last_formed(self) -> Rebalance | None:
        """The rebalance that the present generation came from."""
        return next((r for r in reversed(self.rebalances) if r.generation == self.generation), None)

    def gone(self, member: Member, time_ns: int, state: State, step: Step, code: int = 0) -> None:
        """A member is one no longer."""
        member.state, member.gone_ns = state, time_ns
        member.step(time_ns, step, code)
        if self.rebalance:
            self.rebalance.expected.discard(member.member_id)
        gone = [m.member_id for m in self.members.values() if not m.live]
        for member_id in gone[:-GONE]:
            del self.members[member_id]

    # asked

    def asked(self, call: Call) -> None:
        """A request of a member."""
        now = call.asked_ns
        member = call.member
        if call.leaves:
            self._leave(call)
            return
        if call.joins:
            self._join(call)
        elif member is None:
            return
        elif call.api == "SyncGroup":
            member.state = State.SYNCING
            member.step(now, Step.SYNC)
            self._leaders_sync(call)
        elif call.commits:
            member.step(now, Step.COMMIT)
        else:
            member.heartbeat_ns = now
            member.step(now, Step.HEARTBEAT)
            topics = call.topics() if call.heartbeat else None
            if topics is not None and member.topics not in (None, topics):
                self.begin(now, Cause.SUBSCRIPTION, member)
            member.topics = topics or member.topics
            if member.state is State.PENDING:  # seen from the middle on
                member.state = State.STABLE
                member.generation = call.generation
                self.generation = max(self.generation, call.generation)

    def _join(self, call: Call) -> None:
        member, now = call.member, call.asked_ns
        if call.asks_for_an_id:
            return
        if not call.heartbeat:
            self.waiting[id(call.exchange)] = call
        self.protocol_type = call.asked.get("protocol_type") or self.protocol_type
        static = next((m for m in self.live if m.instance_id and m.instance_id == call.instance_id), None)
        known = member if member and member.state is not State.PENDING and member.live else static
        cause = Cause.JOIN if any(m is not member for m in self.live) else Cause.FIRST
        if known is not None:
            cause = Cause.SUBSCRIPTION if known.subscription != subscription(call) else Cause.REJOIN
        if member is not None:
            settings(member, call)
            member.state = State.JOINING
            member.step(now, Step.JOIN)
        if static is None or member is static:  # a static member that comes back costs no rebalance (KIP-345)
            rebalance = self.begin(now, cause, member)
            rebalance.conn = rebalance.conn or call.conn
            rebalance.who = rebalance.who or call.conn.who
            rebalance.first_join_ns = rebalance.first_join_ns or now
            rebalance.joined(call.member_id, now)

    def _leave(self, call: Call) -> None:
        for member_id, instance_id, reason in call.leaving():
            member = self.members.get(member_id) or next(
                (m for m in self.live if instance_id and m.instance_id == instance_id), None
            )
            if member is None or not member.live:
                continue
            member.seen_ns = call.asked_ns
            self.gone(member, call.asked_ns, State.LEFT, Step.LEAVE)
            if self.live:
                self.begin(call.asked_ns, Cause.LEAVE, member, reason)
            else:
                self.rebalance = None

    def _leaders_sync(self, call: Call) -> None:
        message = call.exchange.request_view
        if message is None or not call.asked["assignments"]:
            return
        last = self.last_formed()
        if last is not None:
            last.leader_sync_ns = last.leader_sync_ns or call.asked_ns
        self.assignments = {
            row["member_id"]: found
            for row in rows(message, "assignments")
            if (found := assignment_of(row["assignment"], self.protocol_type)) is not None
        }

    # answered

    def answered(self, call: Call) -> None:
        """The coordinator's answer, or that none will come."""
        self.waiting.pop(id(call.exchange), None)
        member, now = call.member, call.answered_ns
        if not call.answer or call.leaves:
            return
        if call.error:
            self._refused(call)
        elif member is None:
            return
        elif call.api == "JoinGroup":
            self._joined(call, member)
        elif call.api == "SyncGroup":
            member.state, member.synced_ns, member.seen_ns = State.STABLE, now, now
            member.step(now, Step.SYNCED)
            member.assignment = assignment_of(call.answer["assignment"], self.protocol_type)
            last = self.last_formed()
            if last is not None:
                last.synced_ns = max(last.synced_ns, now)
        elif call.heartbeat:
            self._heartbeat(call, member)

    def _refused(self, call: Call) -> None:
        member, now = call.member, call.answered_ns
        if call.error == REBALANCE_IN_PROGRESS and member is not None:
            member.step(now, Step.TOLD)
            member.state = State.STABLE if member.waits else member.state
            if self.rebalance is None and not call.commits and member.generation >= self.generation:
                self.begin(now, *self._unseen_cause(member, now))
        elif call.error == MEMBER_ID_REQUIRED or member is None:
            return
        elif (call.error in GONE_CODES or call.error == FENCED_INSTANCE_ID) and not call.commits:
            self.gone(member, now, State.DROPPED, Step.ERROR, call.error)
        else:
            member.step(now, Step.ERROR, call.error)
            if call.api == "JoinGroup":
                member.state = State.PENDING

    def _unseen_cause(self, told: Member, now: int) -> tuple[Cause, Member | None]:
        for member in self.live:
            limit = member.session_timeout_ms * 900_000
            if member is not told and not member.waits and 0 < limit < now - member.seen_ns:
                return Cause.TIMEOUT, member
        return Cause.UNSEEN, None

    def _joined(self, call: Call, member: Member) -> None:
        answer, now = call.answer, call.answered_ns
        if member.state is State.PENDING:
            settings(member, call)
        member.state, member.generation, member.seen_ns = State.JOINED, answer["generation_id"], now
        member.step(now, Step.JOINED)
        if self.rebalance:
            self.rebalance.joined(member.member_id, call.asked_ns)
        for other in self.live:
            if member.instance_id and other.instance_id == member.instance_id and other is not member:
                self.gone(other, now, State.DROPPED, Step.DROPPED)
        self.assignor = answer.get("protocol_name") or self.assignor
        self.protocol = "classic"
        self.formed(now, answer["generation_id"], answer["leader"])
        message = call.exchange.response_view
        if message is None or not answer["members"]:
            return
        # The leader is told everybody: who is not among them was left behind.
        told = {row["member_id"] for row in rows(message, "members")}
        last = self.last_formed()
        if last is not None:
            last.size = len(told)
        for other in self.live:
            if other.member_id not in told and not other.waits and other.generation < self.generation:
                self.gone(other, now, State.DROPPED, Step.DROPPED)

    def _heartbeat(self, call: Call, member: Member) -> None:
        answer, now = call.answer, call.answered_ns
        member.heartbeat_interval_ms = answer["heartbeat_interval_ms"]
        self.protocol = call.protocol
        if member.state is not State.STABLE:
            member.state = State.STABLE
            member.step(now, Step.JOINED)
        member.generation = answer["member_epoch"]
        self.formed(now, member.generation, "")
        given = answer.get("assignment")
        message = call.exchange.response_view
        if given is not None and message is not None:
            member.synced_ns = now
            member.step(now, Step.SYNCED)
            member.assignment = {
                topic_name(call.exchange, row["topic_id"].bytes): tuple(row["partitions"] or ())
                for row in message["assignment"]["topic_partitions"] or ()
            }
