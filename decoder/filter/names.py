"""The names that filters ask for most, of one exchange: topics, groups and transactional ids.

To know them, both messages must be decoded. They recur: thousands of exchanges have the same ones. So a capture remembers them as
one number per exchange (`captures.recording.names`), and a filter is evaluated once for each distinct `Names`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import repeat
from typing import Any, NamedTuple, Protocol

from ..codec.message import Message
from ..codec.project import values_at
from ..connection.exchange import Exchange
from ..connection.topics import NAMING_APIS, Topics, naming_paths
from ..schema.plan import ZERO_UUID, Plan, field_paths
from . import analysis, entities, evaluate, values
from .entities import TopicPartition
from .language import tree


class Names(NamedTuple):
    """`topics`: (name, id) of each, as the messages have them; `taught`: topic ids whose names are in the response (`Topics`). All but
    those are sorted, since the same ones come in any order."""

    topics: tuple[tuple[str | None, bytes | None], ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    taught: tuple[tuple[bytes, str], ...] = ()


NONE = Names()
UNKNOWN_ID, NONE_ID = 0, 1
"""The id of exchanges that were not decoded yet, and of those without names."""


class NameColumn(Protocol):
    """The names of a segment's exchanges."""

    @property
    def ids(self) -> Any:
        """Of each exchange: its `Names` in `sets`, or `UNKNOWN_ID`. Ids that are known never change."""

    @property
    def sets(self) -> list[Names]:
        """`Names` by id; it grows."""


@cache
def apis(*fields: str) -> frozenset[int]:
    """The APIs whose exchanges have names, or values of these fields; those of all others are `NONE`."""
    sides = (entities.apis(side, name) for side in ("request", "response") for name in fields or analysis.NAMED)
    return frozenset().union(*sides)


def names_of(exchange: Exchange) -> Names:
    """The names in an exchange."""
    key = exchange.api_key
    taught = Topics()
    if key in NAMING_APIS:
        taught.learn(exchange)
    topics: set[tuple[str | None, bytes | None]] = set()
    if key in apis("topic"):
        for message in (exchange.request_message, exchange.response_message):
            if message is not None:
                topics.update(_topics(message))
    return Names(
        tuple(sorted(topics, key=_order)),
        tuple(sorted(set(values.MANY["group"](exchange)))) if key in apis("group") else (),
        tuple(sorted(set(values.MANY["txn"](exchange)))) if key in apis("txn") else (),
        tuple(taught.names.items()),
    )


def _topics(message: Message) -> Iterator[tuple[str | None, bytes | None]]:
    """The topics of a message: those of its `values.pairs_as_sent`, without its partitions."""
    of = message.plan
    places = entities.topic_paths(of.root)
    asked = tuple(path for place in places for path in place if path is not None)
    found = dict(zip(asked, values_at(of, message.frame, message.body_start, asked), strict=True))
    for name, identity in places:
        if identity is None:
            assert name is not None
            yield from zip(values.flattened(of, name, found[name]), repeat(None))
            continue
        ids = [None if each == ZERO_UUID else each for each in found[identity]]
        yield from zip(repeat(None) if name is None else found[name], ids)


def _order(topic: tuple[str | None, bytes | None]) -> tuple[bool, str, bytes]:
    return topic[0] is None, topic[0] or "", topic[1] or b""


@cache
def paths(of: Plan) -> tuple[str, ...] | None:
    """The paths (without indexes) of a message's fields that decide its part of the names: exchanges of the same APIs and versions
    with the same values there have the same `Names`. None: some of the fields are in tags, which may be absent."""
    topics = (path for place in entities.topic_paths(of.root) for path in place if path is not None)
    found = {*topics, *naming_paths(of), *entities.paths_of(of, "group"), *entities.paths_of(of, "txn")}
    if of.api_key == entities.FIND_COORDINATOR:
        found.update(entities.COORDINATOR_PATHS)
    known = {path: field for path, field, _ in field_paths(of.root)}
    steps = {path[:end] for path in found & known.keys() for end in (*(at for at, sign in enumerate(path) if sign == "."), None)}
    return None if any(known[step].tag is not None for step in steps) else tuple(sorted(found & known.keys()))


def function(node: tree.Node, topics: Topics | None) -> Callable[[Names], bool]:
    """The function from names to whether a filter matches that asks for nothing else (`analysis.asks_names`)."""

    def pairs(names: Names) -> Iterator[TopicPartition]:
        sent = (TopicPartition(name, identity, None, None, None) for name, identity in names.topics)
        return values.named(sent, topics)

    fields = {"group": lambda names: names.groups, "txn": lambda names: names.transactional_ids}
    decide: Callable[[Any], bool] = evaluate.Builder(None, None, pairs, lambda field: fields[field.name]).build(node)
    return decide
