"""Names of topic ids, learned from responses: newer requests name a topic by its id alone (KIP-516)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..codec.message import MessagePair
from ..codec.project import values_at
from ..schema import facts

# By API: where its response holds pairs of name and id.
_SOURCES = {"Metadata": "topics", "CreateTopics": "topics", "DescribeTopicPartitions": "topics"}
_KEYS = {facts.api_key(name): path for name, path in _SOURCES.items()}
NAMING_APIS = frozenset(_KEYS)
"""The APIs whose responses name topics beside their ids."""


class Topics:
    """Topic names by id. Many connections to the same cluster may share one. `names`: those that are known, by id."""

    def __init__(self, names: Mapping[bytes, str] | None = None) -> None:
        self._names: dict[bytes, str] = dict(names or {})

    def learn(self, exchange: MessagePair) -> None:
        """Take the names and ids from a response."""
        path = _KEYS.get(exchange.api_key)
        message = exchange.response_message if path is not None and exchange.response is not None else None
        if path is None or message is None:
            return
        struct = next((f.struct for f in message.plan.root.fields if f.name == path), None)
        if struct is None or not {"name", "topic_id"} <= {f.name for f in struct.fields}:
            return
        names, ids = values_at(message.plan, message.frame, message.body_start, (f"{path}.name", f"{path}.topic_id"))
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
