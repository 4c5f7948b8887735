"""What a request can have to do with answers that other connections had before it.

In the recorded order a request waits for every answer on which its own may depend. Most depend on few: records of one
partition have nothing to do with those of another, and no heartbeat with either. `touched` says which things a
request reads or changes; two requests without a common one may be under way together. Whatever is not known to be
harmless touches everything.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ...decoder import Exchange, facts
from .rewriting import read
from .roles import Role

Touched = frozenset[Hashable]

_PARTITIONS = frozenset(map(facts.api_key, ("Produce", "ListOffsets", "OffsetForLeaderEpoch")))
_GROUPS = frozenset(map(facts.api_key, ("Heartbeat", "OffsetCommit", "OffsetFetch")))
_NOTHING = frozenset(map(facts.api_key, ("ApiVersions", "Metadata", "FindCoordinator")))
"""Requests that only ask, and whose answers change with nothing but what touches everything (topics are created)."""


def touched(exchange: Exchange, topics: Mapping[bytes, str]) -> Touched | None:
    """The partitions and groups that an exchange is about; None: everything. `topics`: names by id."""
    key = exchange.api_key
    if key not in _PARTITIONS and key not in _GROUPS and key not in _NOTHING:
        return None
    if exchange.response is None or exchange.response_message is None or exchange.error:
        return None  # asking may have changed something: a topic is made by the first Metadata request
    if key in _NOTHING:
        return frozenset()
    found: set[Hashable] = set()
    for role, value, scope, _ in read(exchange.request_message):
        if role is Role.PARTITION and key in _PARTITIONS:
            topic = scope.get(Role.TOPIC) or topics.get(scope.get(Role.TOPIC_ID, b""))
            if not topic:
                return None
            found.add((topic, value))
        elif role is Role.GROUP and key in _GROUPS:
            found.add(value)
        elif role is Role.TRANSACTIONAL_ID and value:
            return None
    return frozenset(found) or None
