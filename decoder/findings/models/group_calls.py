"""Requests of members to their group's coordinator, in one form for all group protocols and versions.

Classic groups have an API per step (JoinGroup, SyncGroup, Heartbeat, LeaveGroup); the groups of KIP-848, KIP-932 and
KIP-1071 have one heartbeat that joins with epoch 0 and leaves with -1 (a static member that will be back: -2).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from ... import embedded
from ...codec.message_view import MessageView
from ...connection.exchange import Exchange
from ...errors import DecodeError
from ...schema import facts
from ...schema.plan import Plan
from ..engine.formatting import topic_name
from ..engine.layout import layout, partition_places, rows, top
from ..engine.traffic import ClientConnection
from .group import Group, Member

PROTOCOLS = {
    "JoinGroup": "classic",
    "SyncGroup": "classic",
    "Heartbeat": "classic",
    "LeaveGroup": "classic",
    "ConsumerGroupHeartbeat": "consumer",
    "ShareGroupHeartbeat": "share",
    "StreamsGroupHeartbeat": "streams",
}
"""The protocol that an API belongs to."""

COMMITS = ("OffsetCommit", "TxnOffsetCommit")
COMMIT_APIS = frozenset(facts.api_key(name) for name in COMMITS)
GROUP_APIS = COMMIT_APIS | {facts.api_key(name) for name in PROTOCOLS}
JOINING_APIS = GROUP_APIS - COMMIT_APIS - {facts.api_key(name) for name in ("SyncGroup", "Heartbeat", "LeaveGroup")}
"""APIs that members join with; in the newer protocols they leave with them, too."""
JOIN_GROUP, LEAVE_GROUP = facts.api_key("JoinGroup"), facts.api_key("LeaveGroup")

UNKNOWN_MEMBER_ID = facts.error_code("UNKNOWN_MEMBER_ID")
ILLEGAL_GENERATION = facts.error_code("ILLEGAL_GENERATION")
REBALANCE_IN_PROGRESS = facts.error_code("REBALANCE_IN_PROGRESS")
MEMBER_ID_REQUIRED = facts.error_code("MEMBER_ID_REQUIRED")
FENCED_INSTANCE_ID = facts.error_code("FENCED_INSTANCE_ID")
UNRELEASED_INSTANCE_ID = facts.error_code("UNRELEASED_INSTANCE_ID")
FENCED_MEMBER_EPOCH = facts.error_code("FENCED_MEMBER_EPOCH")
STALE_MEMBER_EPOCH = facts.error_code("STALE_MEMBER_EPOCH")
COORDINATOR_ERRORS = facts.error_code_set("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
GONE_CODES = frozenset({UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH})
"""The coordinator does not know this member, or not in this generation (epoch)."""


class Commit(NamedTuple):
    """One partition's offset of an OffsetCommit or TxnOffsetCommit; `error` is 0 before the answer."""

    topic: str
    partition: int
    offset: int
    error: int


class _Kind(NamedTuple):
    """What the API of a call is, and where a version's requests have the fields that every call needs, by position in their values."""

    api: str
    protocol: str
    group_id: int
    member_id: int | None
    instance_id: int | None
    generation: int | None


@cache
def _kind(plan: Plan) -> _Kind:
    at = layout(plan.root)
    instance = at.get("group_instance_id", at.get("instance_id"))
    named = [at[name] for name in ("generation_id", "member_epoch", "generation_id_or_member_epoch") if name in at]
    return _Kind(plan.api, PROTOCOLS.get(plan.api, ""), at["group_id"], at.get("member_id"), instance, named[-1] if named else None)


class Call:
    """One exchange of a member with its coordinator.

    `protocol`: of `PROTOCOLS`, "" for commits. `generation`: the generation or member epoch that the request names, -1 if none.
    `heartbeat`: whether it is the one heartbeat of the newer protocols. `joins`: whether it asks to become, or to stay in the next
    generation, a member. `leaves`: whether it leaves the group. `commits`: whether it commits offsets. `is_answered`: whether there
    is a response that can be read. `group`, `member`: what they are of, as `groups.Groups` knows them; `member` is None as long as
    it has no id. `silence_ns`: how long the member had not been heard of before, 0 where silence was right.
    """

    group: Group
    member: Member | None = None
    answered_ns = 0
    error = 0
    silence_ns = 0
    is_answered = False
    _offsets: list[Commit] | None = None

    def __init__(self, conn: ClientConnection, exchange: Exchange, message: MessageView) -> None:
        kind, values = _kind(message.plan), message.values
        self.conn, self.exchange, self.api, self.protocol = conn, exchange, kind.api, kind.protocol
        self.group_id: str = values[kind.group_id] or ""
        self.member_id: str = (values[kind.member_id] or "") if kind.member_id is not None else ""
        self.instance_id: str | None = values[kind.instance_id] if kind.instance_id is not None else None
        self.generation: int = values[kind.generation] if kind.generation is not None else -1
        self.commits = not self.protocol
        self.heartbeat = not self.commits and self.protocol != "classic"
        self.joins = self.api == "JoinGroup" or (self.heartbeat and self.generation == 0)
        self.leaves = self.api == "LeaveGroup" or (self.heartbeat and self.generation < 0)
        self.asked_ns = exchange.request_time_ns or 0

    def answered(self) -> None:
        """Take the response, if there is one."""
        self.answered_ns = self.exchange.response_time_ns or 0
        if self.exchange.response_view is not None:
            self.is_answered = True
            self.error = self.exchange.error
            if self.error:
                self._offsets = None  # they have errors now

    @property
    def asked(self) -> dict[str, Any]:
        """The top fields of the request, as the plan holds them."""
        message = self.exchange.request_view
        return top(message) if message is not None else {}

    @property
    def answer(self) -> dict[str, Any]:
        """The top fields of the response, as the plan holds them; empty without one."""
        message = self.exchange.response_view if self.is_answered else None
        return top(message) if message is not None else {}

    @property
    def given_id(self) -> str:
        """The member id of the response, "" without one."""
        message = self.exchange.response_view if self.is_answered else None
        at = layout(message.plan.root).get("member_id") if message is not None else None
        return (message.values[at] or "") if message is not None and at is not None else ""

    @property
    def without_an_id(self) -> bool:
        """Whether it is a JoinGroup of a client that has no member id yet."""
        return self.api == "JoinGroup" and not self.asked.get("member_id")

    @property
    def asks_for_an_id(self) -> bool:
        """Whether it is a JoinGroup to which brokers only answer a member id (KIP-394). Some, such as librdkafka's mock
        brokers, let the client join at once."""
        return self.without_an_id and self.exchange.api_version >= 4 and self.instance_id is None

    def assignors(self) -> tuple[str, ...]:
        """The names of the protocols that a JoinGroup offers."""
        message = self.exchange.request_view
        offered = self.asked.get("protocols")
        return tuple(p["name"] for p in rows(message, "protocols")) if message and offered else ()

    def topics(self) -> tuple[str, ...] | None:
        """The topics that a JoinGroup or heartbeat subscribes to, sorted; None if it names none, or they cannot be
        read."""
        if self.heartbeat:
            named = self.asked.get("subscribed_topic_names")
            return tuple(sorted(named)) if named is not None else None
        message = self.exchange.request_view
        if message is None or self.api != "JoinGroup":
            return None
        offered = rows(message, "protocols")
        try:
            subscribed = embedded.subscription(offered[0]["metadata"], self.asked["protocol_type"]) if offered else {}
        except (DecodeError, KeyError):
            return None
        return tuple(sorted(subscribed["topics"])) if subscribed.get("topics") is not None else None

    @property
    def subscription(self) -> object:
        """What identifies a subscription: topics and assignors. Its bytes do not: custom assignors add the previous assignment."""
        return self.topics(), self.assignors()

    def leaving(self) -> list[tuple[str, str | None, str | None]]:
        """(member id, instance id, reason) of all members that leave."""
        if self.heartbeat:
            return [(self.member_id, self.instance_id, None)]
        message = self.exchange.request_view
        if message is None or "members" not in self.asked:
            return [(self.member_id, None, None)]
        return [(r["member_id"], r.get("group_instance_id"), r.get("reason")) for r in rows(message, "members")]

    def offsets(self) -> list[Commit]:
        """The offsets it commits, by partition, with the errors of the response."""
        if self._offsets is None:
            message, answer = self.exchange.request_view, self.exchange.response_view
            # The response of nearly all commits has no error, and need not be read again.
            places = _partition_fields(self.exchange, answer, "error_code") if answer is not None and self.exchange.error else ()
            errors = {(topic, number): error for topic, number, error in places}
            sent = _partition_fields(self.exchange, message, "committed_offset") if message is not None else ()
            self._offsets = [Commit(topic, number, offset, errors.get((topic, number), 0)) for topic, number, offset in sent]
        return self._offsets


def read_call(conn: ClientConnection, exchange: Exchange) -> Call | None:
    """The call that an exchange is, None if its request cannot be read or it belongs to no group."""
    message = exchange.request_view if exchange.api_key in GROUP_APIS else None
    return Call(conn, exchange, message) if message is not None else None


def _partition_fields(exchange: Exchange, message: MessageView, field: str) -> Iterator[tuple[str, int, int]]:
    """Topic, number and one field of every partition."""
    places = partition_places(message.plan.root, "topics", "partitions")
    number_at, field_at = places.fields["partition_index"], places.fields[field]
    for topic in message.values[places.topics] or ():
        name = topic_name(exchange, topic[places.name])
        for partition in topic[places.partitions] or ():
            yield name, partition[number_at], partition[field_at]


def offsets_answered(exchange: Exchange) -> Iterator[tuple[str, str, int, int]]:
    """Group, topic, partition and offset of every item of an OffsetFetch response without an error."""
    asked, answered = exchange.request_view, exchange.response_view
    if asked is None or answered is None or exchange.error:
        return
    root = answered.plan.root
    path: tuple[str, ...] = ("topics",)
    groups: list[tuple[str, Any]] = []
    if "groups" in layout(root):
        fields, path = layout(root, "groups"), ("groups", "topics")
        groups = [(each[fields["group_id"]], each[fields["topics"]]) for each in answered.values[layout(root)["groups"]] or ()]
    else:
        groups = [(top(asked)["group_id"], answered.values[layout(root)["topics"]])]
    topic_at, part_at = layout(root, *path), layout(root, *path, "partitions")
    name_at = topic_at.get("name", topic_at.get("topic_id", -1))
    for group, topics in groups:
        for topic in topics or ():
            name = topic_name(exchange, topic[name_at])
            for part in topic[topic_at["partitions"]] or ():
                if not part[part_at["error_code"]]:
                    yield group, name, part[part_at["partition_index"]], part[part_at["committed_offset"]]
