"""The names that filters ask for most, of one exchange: topics, groups and transactional ids.

To know them, both messages must be decoded. They recur: thousands of exchanges have the same ones. So a capture remembers them as
one number per exchange (`captures.recording.names`), and a filter is evaluated once for each distinct `Names`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, Protocol

from ..codec.plan import Plan, field_paths
from ..connection.exchange import Exchange
from ..connection.topics import NAMING_APIS, Topics, naming_paths
from . import analysis, entities, evaluate, values
from .entities import TopicPartition
from .language import tree


class Names(NamedTuple):
    """`topics`: (name, id) of each, as the messages have them; `taught`: topic ids whose names are in the response (`Topics`)."""

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
    pairs = values.pairs_as_sent(exchange) if key in apis("topic") else ()
    return Names(
        tuple(dict.fromkeys((pair.topic, pair.topic_id) for pair in pairs)),
        tuple(dict.fromkeys(values.MANY["group"](exchange))) if key in apis("group") else (),
        tuple(dict.fromkeys(values.MANY["txn"](exchange))) if key in apis("txn") else (),
        tuple(taught.names.items()),
    )


@cache
def paths(of: Plan) -> tuple[str, ...] | None:
    """The paths (without indexes) of a message's fields that decide its part of the names: exchanges of the same APIs and versions
    with the same values there, in the same order, have the same `Names`. None: some of the fields are in tags, which may be absent."""
    found = {*entities.topic_paths(of.root), *naming_paths(of), *entities.paths_of(of, "group"), *entities.paths_of(of, "txn")}
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
