"""The table `groups`: what members of groups do, and what becomes of it; heartbeats only where they tell something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...decoder import Exchange, Message, facts
from .columns import KEY, Column, Table

TABLE = Table(
    "groups",
    "JoinGroup, SyncGroup and LeaveGroup, and ConsumerGroupHeartbeat that joins, leaves, fails or brings a new epoch",
    (
        *KEY,
        Column("group_id", "string", "the group"),
        Column("event", "string", "`join`, `sync`, `leave` or `heartbeat`"),
        Column("member_id", "string", "as the broker says it, or else the request; null if neither does", null=True),
        Column("group_instance_id", "string", "of a static member", null=True),
        Column("generation", "int32", "the generation, or the member's epoch, that the answer tells", null=True),
        Column("protocol", "string", "the assignor that was chosen", null=True),
        Column("members", "int32", "how many there are: the leader of a group is told when it joins", null=True),
        Column("latency_ns", "int64", "how long the answer took; a join waits for the others", null=True),
        Column("error_code", "int16", "of the answer as a whole"),
        Column("error", "string", "its name; null for 0", null=True),
    ),
)
_EVENTS = {"JoinGroup": "join", "SyncGroup": "sync", "LeaveGroup": "leave", "ConsumerGroupHeartbeat": "heartbeat"}
APIS = frozenset(facts.api_key(name) for name in _EVENTS)
_JOINS_OR_LEAVES = (0, -1, -2)  # the member epochs of KIP-848 that are no epochs


def rows(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """The columns behind those of `KEY`."""
    asked, said = exchange.request_message, exchange.response_message
    if asked is None:
        return
    event, generation, members = _EVENTS[exchange.api], None, None
    error = _value(said, "error_code") or 0
    if event == "join":
        generation, members = _value(said, "generation_id"), len(_value(said, "members") or ()) or None
    elif event == "sync":
        generation = _value(asked, "generation_id")
    elif event == "heartbeat":
        generation = _value(said, "member_epoch")
        before = asked["member_epoch"]
        if not error and before not in _JOINS_OR_LEAVES and generation in (None, before):
            return
        event = "leave" if before < 0 else "join" if before == 0 else event
    yield {
        "group_id": asked["group_id"],
        "event": event,
        "member_id": _value(said, "member_id") or _value(asked, "member_id") or None,
        "group_instance_id": _value(asked, "group_instance_id") or _value(asked, "instance_id"),
        "generation": generation,
        "protocol": _value(said, "protocol_name") or None,
        "members": members,
        "latency_ns": exchange.latency_ns,
        "error_code": error,
        "error": facts.error_name(error) if error else None,
    }


def _value(message: Message | None, name: str) -> Any:
    """A field at the top of a message; None where this version does not have it."""
    if message is None:
        return None
    for field, value in zip(message.plan.root.fields, message.values, strict=False):
        if field.name == name:
            return value
    return None
