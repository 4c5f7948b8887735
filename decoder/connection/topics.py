"""Names of topic ids, learned from responses: newer requests name a topic by its id alone (KIP-516)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from ..codec.message import MessagePair
from ..codec.project import values_at
from ..schema import facts
from ..schema.meaning import Meaning
from ..schema.plan import Plan, field_paths

NAMING_APIS = facts.api_key_set("Metadata", "CreateTopics", "DescribeTopicPartitions")
"""The APIs whose responses name topics beside their ids."""


@cache
def naming_paths(of: Plan) -> tuple[str, ...]:
    """The paths of a response's topic names and ids; empty if it has no such pairs."""
    if of.api_key not in NAMING_APIS or of.kind != "response":
        return ()
    named = (Meaning.TOPIC, Meaning.TOPIC_ID)
    found = [path for path, field, _ in field_paths(of.root) if field.meaning in named and path.count(".") == 1]
    return tuple(found) if len(found) == len(named) else ()


class Topics:
    """Topic names by id. Many connections to the same cluster may share one. `names`: those that are known, by id."""

    def __init__(self, names: Mapping[bytes, str] | None = None) -> None:
        self._names: dict[bytes, str] = dict(names or {})

    def learn(self, exchange: MessagePair) -> None:
        """Take the names and ids from a response."""
        named = exchange.api_key in NAMING_APIS and exchange.response is not None
        message = exchange.response_message if named else None
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
