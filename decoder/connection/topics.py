"""Names of topic ids, learned from responses: newer requests name a topic by its id alone (KIP-516)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from ..codec.message import MessagePair
from ..codec.plan import Plan
from ..codec.project import values_at
from ..schema import facts

# By API: where its response holds pairs of name and id.
_SOURCES = {"Metadata": "topics", "CreateTopics": "topics", "DescribeTopicPartitions": "topics"}
_KEYS = {facts.api_key(name): path for name, path in _SOURCES.items()}
NAMING_APIS = frozenset(_KEYS)
"""The APIs whose responses name topics beside their ids."""


@cache
def naming_paths(of: Plan) -> tuple[str, ...]:
    """The paths of a response's topic names and ids; empty if it has no such pairs."""
    path = _KEYS.get(of.api_key) if of.kind == "response" else None
    struct = next((field.struct for field in of.root.fields if field.name == path), None)
    if struct is None or not {"name", "topic_id"} <= {field.name for field in struct.fields}:
        return ()
    return f"{path}.name", f"{path}.topic_id"


class Topics:
    """Topic names by id. Many connections to the same cluster may share one. `names`: those that are known, by id."""

    def __init__(self, names: Mapping[bytes, str] | None = None) -> None:
        self._names: dict[bytes, str] = dict(names or {})

    def learn(self, exchange: MessagePair) -> None:
        """Take the names and ids from a response."""
        message = exchange.response_message if exchange.api_key in _KEYS and exchange.response is not None else None
        paths = naming_paths(message.plan) if message is not None else ()
        if message is None or not paths:
            return
        names, ids = values_at(message.plan, message.frame, message.body_start, paths)
        self._names.update((i, n) for n, i in zip(names, ids, strict=True) if n and any(i))

    def add(self, names: Iterable[tuple[bytes, str]]) -> None:
        """Take names by id that another `Topics` has learned."""
        self._names.update(names)

    def name(self, topic_id: bytes) -> str | None:
        """The name of a topic; None if it is not known. `topic_id`: its 16 bytes."""
        return self._names.get(topic_id)

    @property
    def names(self) -> Mapping[bytes, str]:
        """All names by id."""
        return self._names

    def __len__(self) -> int:
        return len(self._names)
