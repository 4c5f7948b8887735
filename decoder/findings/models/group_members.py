"""The members of a group: what is known of each, and the timeline of what it did."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Any, NamedTuple

from ... import embedded
from ...wire.errors import DecodeError
from ..engine.traffic import ClientConnection
from .group_calls import Call

STEPS = 512
"""Steps of a member's timeline that are kept."""

Assignment = dict[str, tuple[int, ...]]
"""Partitions by topic."""


class Step(StrEnum):
    """What a timeline shows, a letter each. Small letters of J and S: the answer came."""

    JOIN = "J"
    JOINED = "j"
    SYNC = "S"
    SYNCED = "s"
    HEARTBEAT = "h"
    TOLD = "r"
    """told that the group rebalances"""
    COMMIT = "c"
    ERROR = "!"
    LEAVE = "L"
    CLOSED = "x"
    """its connection ended"""
    DROPPED = "d"
    """the next generation was formed without it"""


class State(StrEnum):
    """Where a member stands."""

    PENDING = "pending"
    """it has got an id and has not joined with it"""
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


class Member:
    """A member of a group.

    Times are nanoseconds since the epoch, 0 for never; timeouts are milliseconds as the member or its coordinator
    told them, -1 for unknown. `generation`: or member epoch. `seen_ns`: the last sign of life. `assignment`: None as
    long as none was seen. `topics`: what it subscribes to, None if unknown.
    """

    def __init__(self, member_id: str, conn: ClientConnection, time_ns: int, protocol: str) -> None:
        self.member_id, self.conn, self.protocol = member_id, conn, protocol
        self.instance_id: str | None = None
        self.state = State.PENDING
        self.session_timeout_ms = self.rebalance_timeout_ms = self.heartbeat_interval_ms = -1
        self.generation = -1
        self.assignors: tuple[str, ...] = ()
        self.topics: tuple[str, ...] | None = None
        self.subscription: object = None
        self.assignment: Assignment | None = None
        self.first_ns = self.seen_ns = time_ns
        self.lost = conn.lost
        self.synced_ns = self.heartbeat_ns = self.gone_ns = self.closed_ns = 0
        self.timeline: deque[Moment] = deque(maxlen=STEPS)

    @property
    def live(self) -> bool:
        """Whether the coordinator has it as a member, as far as was seen."""
        return self.state not in (State.LEFT, State.DROPPED)

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer to its JoinGroup or SyncGroup: silence is right then."""
        return self.state in (State.JOINING, State.SYNCING)

    @property
    def has_gap(self) -> bool:
        """Whether bytes of its connection went uncaptured since the last sign of life: nobody knows what it said."""
        return self.conn.lost != self.lost

    @property
    def who(self) -> str:
        """The member in words."""
        static = f", group.instance.id {self.instance_id!r}" if self.instance_id else ""
        return f"{self.conn.who} (member {self.member_id or 'without an id yet'}{static})"

    @property
    def streams(self) -> bool:
        """Whether it is a Kafka Streams thread."""
        return "stream" in self.assignors or self.protocol == "streams"

    def step(self, time_ns: int, step: Step, code: int = 0) -> None:
        """Add to the timeline."""
        self.timeline.append(Moment(time_ns, step, code))


def settings(member: Member, call: Call) -> None:
    """What a joining call tells of its member."""
    asked = call.asked
    member.protocol = call.protocol
    member.instance_id = call.instance_id
    member.session_timeout_ms = asked.get("session_timeout_ms", -1)
    rebalance = asked.get("rebalance_timeout_ms", -1)
    # JoinGroup v0 has no timeout of its own for rebalances: the session's counts.
    member.rebalance_timeout_ms = rebalance if rebalance >= 0 else member.session_timeout_ms
    member.subscription = subscription(call)
    if call.heartbeat:
        member.topics = call.topics() or member.topics
        member.assignors = (asked["server_assignor"],) if asked.get("server_assignor") else ()
        return
    member.assignors, member.topics = call.assignors(), call.topics()


def subscription(call: Call) -> object:
    """What to compare two subscriptions by. Assignors of their own put what a member had into the same bytes, so it is
    the topics and the assignors that count."""
    return call.topics(), call.assignors()


def assignment_of(data: bytes | None, protocol_type: str) -> Assignment | None:
    try:
        told: dict[str, Any] = embedded.assignment(data, protocol_type or "consumer") if data else {}
    except (DecodeError, KeyError):
        return None
    parts = told.get("assigned_partitions")
    return (
        {p["topic"]: tuple(p["partitions"] or ()) for p in parts} if parts is not None else ({} if not data else None)
    )
