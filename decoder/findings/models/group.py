"""A consumer group as its coordinator sees it: members with their timelines, rebalances and generations."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ...connection.exchange import Exchange
from ..engine.clusters import Cluster
from ..engine.traffic import ClientConnection

STEPS = 512
"""Steps of a member's timeline that are kept."""

GONE = 64
"""Members of a group kept after they left."""

ASSIGNMENTS = 32
"""Assignments of a member that are kept."""

Assignment = dict[str, tuple[int, ...]]
"""Partitions by topic."""


class Step(StrEnum):
    """A step of a timeline, one letter each. Lowercase j and s: the response."""

    JOIN = "J"
    JOINED = "j"
    SYNC = "S"
    SYNCED = "s"
    HEARTBEAT = "h"
    REBALANCE = "r"
    """a response reported that the group rebalances"""
    COMMIT = "c"
    ERROR = "!"
    LEAVE = "L"
    CLOSED = "x"
    """its connection ended"""
    DROPPED = "d"
    """the next generation was formed without it"""


class MemberState(StrEnum):
    """The state of a member."""

    PENDING = "pending"
    """it has an id and has not joined with it"""
    JOINING = "joining"
    JOINED = "joined"
    """it knows its generation, not its assignment"""
    SYNCING = "syncing"
    STABLE = "stable"
    LEFT = "left"
    DROPPED = "dropped"
    """the coordinator no longer knows it"""


class Moment(NamedTuple):
    """One step of a timeline; `code` is the error's, 0 for none."""

    time_ns: int
    step: Step
    code: int = 0


class GivenAssignment(NamedTuple):
    """What a member was given, and when it got to know."""

    time_ns: int
    partitions: Assignment


class Member:
    """A member of a group.

    Times are nanoseconds since the epoch, 0 for never; timeouts are milliseconds as the member or its coordinator
    sent them, -1 for unknown. `generation`: or member epoch. `seen_ns`: the last sign of life. `heartbeat_every_ns`: the shortest time
    between two heartbeats. `stable_ns`: when a SyncGroup or Heartbeat last showed no rebalance. `assignment`: None as
    long as none was seen; `assigned`: the last ones, each that differs from the one before. `topics`: what it
    subscribes to, None if unknown.
    """

    def __init__(self, member_id: str, conn: ClientConnection, time_ns: int, protocol: str) -> None:
        self.member_id, self.conn, self.protocol = member_id, conn, protocol
        self.instance_id: str | None = None
        self.state = MemberState.PENDING
        self.session_timeout_ms = self.rebalance_timeout_ms = self.heartbeat_interval_ms = -1
        self.generation = -1
        self.assignors: tuple[str, ...] = ()
        self.topics: tuple[str, ...] | None = None
        self.subscription: object = None
        self.assignment: Assignment | None = None
        self.first_ns = self.seen_ns = time_ns
        self.lost = conn.lost
        self.synced_ns = self.heartbeat_ns = self.stable_ns = self.gone_ns = self.closed_ns = 0
        self.heartbeat_every_ns = 0
        self.assigned: deque[GivenAssignment] = deque(maxlen=ASSIGNMENTS)
        self.timeline: deque[Moment] = deque(maxlen=STEPS)

    @property
    def live(self) -> bool:
        """Whether the coordinator counts it as a member, as far as seen."""
        return self.state not in (MemberState.LEFT, MemberState.DROPPED)

    @property
    def waits(self) -> bool:
        """Whether it waits for the response to its JoinGroup or SyncGroup: it is silent then."""
        return self.state in (MemberState.JOINING, MemberState.SYNCING)

    @property
    def has_gap(self) -> bool:
        """Whether bytes of its connection were not captured since it was last seen: it may have sent anything."""
        return self.conn.lost != self.lost

    @property
    def who(self) -> str:
        """The member as text."""
        static = f", group.instance.id {self.instance_id!r}" if self.instance_id else ""
        return f"{self.conn.who} (member {self.member_id or 'without an id yet'}{static})"

    @property
    def streams(self) -> bool:
        """Whether it is a Kafka Streams thread."""
        return "stream" in self.assignors or self.protocol == "streams"

    def assign(self, time_ns: int, partitions: Assignment | None) -> None:
        """It was given these partitions; None: they cannot be read."""
        last = self.assigned[-1] if self.assigned else None
        if partitions is not None and (last is None or partitions != last.partitions or last.time_ns < self.gone_ns):
            self.assigned.append(GivenAssignment(time_ns, partitions))
        self.assignment = partitions

    def step(self, time_ns: int, step: Step, code: int = 0) -> None:
        """Add to the timeline."""
        self.timeline.append(Moment(time_ns, step, code))


class RebalanceCause(StrEnum):
    """Why a group rebalances, as text."""

    FIRST = "its first member joined"
    JOIN = "a new member joined"
    LEAVE = "a member left"
    TIMEOUT = "a member was silent for its session timeout"
    SUBSCRIPTION = "a member changed its subscription"
    EMPTY = "a member that got no partitions joined again at once"
    REJOIN = "a member rejoined (its leader saw other partitions, or a cooperative rebalance continued)"
    UNSEEN = "of an event that was not captured"


@dataclass(slots=True, eq=False)
class Rebalance:
    """A rebalance: why it began, who came when, how long each part of it took. Times are nanoseconds since the epoch, 0 for not yet
    (or not seen).

    `who`: the member that caused it, in words, "" if unknown; `reason`: what it gave as one. `expected`: the ids of the
    members that had to join again and have not. `joins`: when each member joined. `formed_ns`: the coordinator
    answered; `leader_sync_ns`: the leader sent the assignments; `synced_ns`: the last member got its own. `size`: of
    the generation.
    """

    began_ns: int
    cause: RebalanceCause
    who: str
    reason: str
    expected: set[str]
    conn: ClientConnection | None = None
    generation: int = -1
    size: int = 0
    first_join_ns: int = 0
    formed_ns: int = 0
    leader_sync_ns: int = 0
    synced_ns: int = 0
    joins: dict[str, int] = field(default_factory=dict)

    def refused(self, member_id: str) -> None:
        """A member's JoinGroup was refused: nobody waits because of it."""
        self.joins.pop(member_id, None)
        self.first_join_ns = min(self.joins.values(), default=0)

    def joined(self, member_id: str, time_ns: int) -> None:
        """A member has joined (again)."""
        if member_id:
            self.expected.discard(member_id)
            self.joins[member_id] = time_ns

    @property
    def duration_ns(self) -> int:
        """From the first JoinGroup to the last SyncGroup response; 0 until it is complete."""
        return self.synced_ns - self.first_join_ns if self.synced_ns and self.first_join_ns else 0


class Group:
    """A group. `members`: by id, those that are gone too until there are too many; `live` are the others.

    `generation`: the newest that was seen (epoch for the newer protocols). `assignor`: the protocol name that the
    coordinator chose. `leader`: a member id. `assignments`: what the leader gave to whom in this generation.
    `rebalances`: the last ones, the newest at the end. `waiting`: JoinGroups without an answer,
    by identity.
    """

    def __init__(self, group_id: str, cluster: Cluster) -> None:
        self.id, self.cluster = group_id, cluster
        self.protocol = self.protocol_type = self.assignor = self.leader = ""
        self.generation = -1
        self.members: dict[str, Member] = {}
        self.assignments: dict[str, Assignment] = {}
        self.rebalances: deque[Rebalance] = deque(maxlen=64)
        self.rebalance: Rebalance | None = None
        self.waiting: dict[Exchange, Exchange] = {}

    @property
    def live(self) -> list[Member]:
        """The coordinator's members, as far as seen."""
        return [m for m in self.members.values() if m.live]

    @property
    def state(self) -> str:
        """As Kafka names it (``ConsumerGroupState``): Empty, PreparingRebalance, CompletingRebalance or Stable."""
        live = [m for m in self.live if m.state is not MemberState.PENDING]
        if not live:
            return "Empty"
        if self.rebalance is not None:
            return "PreparingRebalance"
        behind = any(m.state in (MemberState.JOINED, MemberState.SYNCING) for m in live)
        return "CompletingRebalance" if behind else "Stable"

    def begin(self, time_ns: int, cause: RebalanceCause, who: Member | None, reason: str | None = None) -> Rebalance:
        """Begin a rebalance, unless one is under way."""
        if self.rebalance is None:
            expected = {m.member_id for m in self.live if m is not who and m.state is not MemberState.JOINING}
            self.rebalance = Rebalance(time_ns, cause, who.who if who else "", reason or "", expected)
            self.rebalance.conn = who.conn if who else None
            self.rebalances.append(self.rebalance)
        return self.rebalance

    def formed(self, time_ns: int, generation: int, leader: str) -> None:
        """The coordinator has formed a generation."""
        if generation <= self.generation:
            alone = self.rebalance is not None and len(self.rebalance.joins) == 1 and not self.waiting
            if self.rebalance is not None and alone and generation == self.generation:
                # A member that joins again as it was gets the generation that it knows.
                self.rebalances.remove(self.rebalance)
                self.rebalance = None
            return
        self.generation, self.assignments, self.leader = generation, {}, leader
        now = self.rebalance or self.begin(time_ns, RebalanceCause.UNSEEN, None)
        now.generation, now.formed_ns, now.size = generation, time_ns, len(self.live)
        self.rebalance = None

    def last_formed(self) -> Rebalance | None:
        """The rebalance that formed the current generation."""
        return next((r for r in reversed(self.rebalances) if r.generation == self.generation), None)

    def gone(self, member: Member, time_ns: int, state: MemberState, step: Step, code: int = 0) -> None:
        """A member left or was dropped."""
        member.state, member.gone_ns = state, time_ns
        member.step(time_ns, step, code)
        if self.rebalance:
            self.rebalance.expected.discard(member.member_id)
        gone = [m.member_id for m in self.members.values() if not m.live]
        for member_id in gone[:-GONE]:
            del self.members[member_id]
