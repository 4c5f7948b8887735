"""Who leads a partition according to Metadata, compared with the broker that refused a request for it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..engine.traffic import ClientConnection


class Named(Enum):
    """Which broker Metadata names as the leader."""

    UNKNOWN = "not seen"
    NOBODY = "none"
    ITSELF = "the broker that refused"
    ANOTHER = "another broker"


class NamedLeader(NamedTuple):
    """The leader that Metadata names, and that as text ("" if it was not seen)."""

    named: Named
    text: str


def named_leader(conn: ClientConnection, topic: str, partition: int) -> NamedLeader:
    """The leader of a partition, as seen from a connection to a broker that refused a request for it."""
    cluster = conn.cluster
    leader, node = cluster.leaders.get((topic, partition)), cluster.node_at(conn.broker)
    if leader is None or (node is None and leader.node >= 0):
        return NamedLeader(Named.UNKNOWN, "")
    if leader.node < 0:
        return NamedLeader(Named.NOBODY, "Metadata names no leader")
    if leader.node == node:
        return NamedLeader(Named.ITSELF, "though Metadata names this very broker as the leader")
    return NamedLeader(Named.ANOTHER, f"Metadata names broker {leader.node} as the leader")
