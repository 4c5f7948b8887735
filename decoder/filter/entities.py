"""Where requests and responses have groups, topics, partitions and other entities, by the meanings of their fields.

Nothing is listed by API except coordinator keys, whose meaning depends on another field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ..codec.message import is_error_code
from ..schema import facts
from ..schema.meaning import Meaning
from ..schema.plan import ZERO_UUID, FieldPlan, Plan, PlanValue, StructPlan, Values, field_paths, plan

NAMES = {
    "group": Meaning.GROUP,
    "member": Meaning.MEMBER_ID,
    "instance": Meaning.INSTANCE_ID,
    "txn": Meaning.TRANSACTIONAL_ID,
    "producer.id": Meaning.PRODUCER_ID,
    "acks": Meaning.ACKS,
    "throttle": Meaning.THROTTLE,
}
"""By field of the catalogue: what the fields that have it are."""
_MEANINGS = NAMES | {"errors": Meaning.ERROR, "record areas": Meaning.RECORDS}
TOPIC_FIELDS = frozenset({"topic", "topic.id", "partition", "partition.err", "topic.err"})
RECORD_FIELDS = frozenset({"codec", "magic", "records"})
COORDINATOR_KEYS = {0: "group", 1: "txn"}
"""What FindCoordinator asks for, by its key type (KIP-98)."""
FIND_COORDINATOR = facts.api_key("FindCoordinator")
COORDINATOR_PATHS = ("key_type", "key", "coordinator_keys", "coordinators.key")
"""The fields of its request and its response with these keys, and their type."""
_ALIKE = frozenset(
    {
        Meaning.TOPIC,
        Meaning.PARTITION,
        Meaning.GROUP,
        Meaning.TRANSACTIONAL_ID,
        Meaning.PRODUCER_ID,
        Meaning.BROKER_ID,
    }
)
"""What means the same in a request and its response under any name."""


class TopicPartition(NamedTuple):
    """A topic-partition of a body, or a topic alone (`partition` None). Unknown values are None."""

    topic: str | None
    topic_id: bytes | None
    partition: int | None
    partition_error: int | None
    topic_error: int | None


@dataclass(frozen=True, slots=True)
class MessagePart:
    """An entry of an array of a message, with the values that filters can test.

    `around`: (path without indexes, plan, values) of the structs around it, beginning with the message, and of itself. `side`:
    ``"request"`` or ``"response"``.
    """

    side: str
    pair: TopicPartition
    around: tuple[tuple[str, StructPlan, Values], ...]

    def named(self, name: str) -> list[PlanValue] | None:
        """Its values of a field of the catalogue; None if it has no such field."""
        found = [
            values[at] for _, struct, values in self.around[1:] for at in _catalogued(struct, name) if values[at] is not None
        ]
        known = found or any(_catalogued(struct, name) for _, struct, _ in self.around[1:])
        return found if known else None

    def at(self, side: str, steps: str, field: FieldPlan) -> list[PlanValue] | None:
        """Its values at a path that ends at `field`; None if it has none. A path of the other side gives the field that means
        the same here."""
        for prefix, struct, values in self.around[1:]:
            for own, value in zip(struct.fields, values, strict=False):
                if own.struct is not None or own.array:
                    continue
                if prefix + own.name == steps if side == self.side else _same(own, field):
                    return [] if value is None else [value]
        return None


@cache
def _catalogued(struct: StructPlan, name: str) -> tuple[int, ...]:
    """The positions of a struct's own plain fields that have a field of the catalogue."""
    return tuple(at for at, field in enumerate(struct.fields) if not field.array and field.meaning is NAMES[name])


def _same(own: FieldPlan, other: FieldPlan) -> bool:
    """Whether a field of one side means the same as a field of the other side."""
    if own.type != other.type:
        return False
    if own.meaning in _ALIKE or other.meaning in _ALIKE:
        return own.meaning is other.meaning
    return own.name == other.name


@cache
def paths_of(of: Plan, name: str) -> tuple[str, ...]:
    """The paths of a plan that have values of the catalogue's field `name`."""
    return tuple(path for path, field, _ in field_paths(of.root) if field.meaning is _MEANINGS[name])


@cache
def apis(side: str, name: str) -> frozenset[int]:
    """The API keys that in some version have values of the catalogue's field `name` in their ``"request"`` or ``"response"``."""
    return frozenset(
        key
        for key in facts.api_keys()
        if any(_holds(plan(side, key, version), name) for version in facts.api(key).versions.every())
    )


def _holds(of: Plan, name: str) -> bool:
    if name in TOPIC_FIELDS:
        return topic_partitions_of(of) is not None
    if name in RECORD_FIELDS:
        return bool(paths_of(of, "record areas"))
    if of.api_key == FIND_COORDINATOR and name in COORDINATOR_KEYS.values():
        return True
    return bool(paths_of(of, name)) or (name == "producer.id" and bool(paths_of(of, "record areas")))


@cache
def topic_partitions_of(of: Plan) -> Callable[[Values], Iterator[TopicPartition]] | None:
    """A function from a body's values to its topic-partitions; None if bodies of this plan have no topics."""
    return _struct(of.root, False)


class _TopicFields(NamedTuple):
    """Where a struct itself names topics: the positions of its topic name, its topic id, and its lists of names."""

    name: int | None
    identity: int | None
    listed: tuple[int, ...]


@cache
def _topic_fields(struct: StructPlan) -> _TopicFields:
    name = identity = None
    listed: list[int] = []
    for number, field in enumerate(struct.fields):
        if field.meaning is Meaning.TOPIC:
            if field.array:
                listed.append(number)
            else:
                name = number
        elif field.meaning is Meaning.TOPIC_ID and not field.array:
            identity = number
    return _TopicFields(name, identity, tuple(listed))


class TopicPaths(NamedTuple):
    """The paths (without indexes) of a topic's name and id in a struct that has one of them or both."""

    name: str | None
    identity: str | None


@cache
def topic_paths(struct: StructPlan, prefix: str = "") -> tuple[TopicPaths, ...]:
    """Where a struct names topics. Lists of names are names alone."""
    found = _topic_fields(struct)
    paths = [prefix + field.name for field in struct.fields]
    own = [TopicPaths(paths[number], None) for number in found.listed]
    if found.name is not None or found.identity is not None:
        own.append(TopicPaths(*(None if number is None else paths[number] for number in (found.name, found.identity))))
    inside = (topic_paths(field.struct, path + ".") for field, path in zip(struct.fields, paths, strict=True) if field.struct)
    return (*own, *(each for several in inside for each in several))


def _struct(struct: StructPlan, in_topic: bool) -> Callable[..., Iterator[TopicPartition]] | None:
    """A generator function over a struct's values: ``(values, topic, topic id, topic's error)``."""
    error = partition = None
    several: list[int] = []
    name, identity, listed = _topic_fields(struct)
    introduces = name is not None or identity is not None
    inside = in_topic or introduces
    for number, field in enumerate(struct.fields):
        if inside and field.meaning is Meaning.PARTITION:
            if field.array:
                several.append(number)
            else:
                partition = number
        elif is_error_code(field) and error is None:
            error = number
    below = [
        (number, field.array, deeper)
        for number, field in enumerate(struct.fields)
        if field.struct is not None and (deeper := _struct(field.struct, inside)) is not None
    ]
    if not (introduces or listed or several or below or partition is not None):
        return None

    def walk(
        values: Values, topic: str | None = None, topic_id: bytes | None = None, topic_error: int | None = None
    ) -> Iterator[TopicPartition]:
        if introduces:
            topic = values[name] if name is not None else None
            topic_id = values[identity] if identity is not None else None
            topic_id = None if topic_id == ZERO_UUID else topic_id
            topic_error = values[error] if error is not None and partition is None else None
            if partition is None:
                yield TopicPartition(topic, topic_id, None, None, topic_error)
        if partition is not None:
            code = values[error] if error is not None else None
            yield TopicPartition(topic, topic_id, values[partition], code, topic_error)
        for number in several:
            for each in values[number] or ():
                yield TopicPartition(topic, topic_id, each, None, topic_error)
        for number in listed:
            for each in values[number] or ():
                yield TopicPartition(each, None, None, None, None)
        for number, array, inner in below:
            value = values[number]
            if value is not None:
                for item in value if array else (value,):
                    yield from inner(item, topic, topic_id, topic_error)

    return walk
