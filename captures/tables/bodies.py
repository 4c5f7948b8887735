"""Fields inside message bodies, each with its context: the topic, partition, group or resource around it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from ...decoder import Exchange, Message
from ...decoder.codec.message import jsonable, shown_value
from ...decoder.errors import DecodeError
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import FieldPlan, StructPlan, plan

ABOUT: dict[Meaning | None, str] = {
    Meaning.TOPIC: "topic",
    Meaning.TOPIC_ID: "topic_id",
    Meaning.PARTITION: "partition",
    Meaning.GROUP: "group_id",
    Meaning.TRANSACTIONAL_ID: "resource",
    Meaning.COORDINATOR_KEY: "resource",
    Meaning.RESOURCE_NAME: "resource",
}
HIGH_WATERMARK = "high_watermark"
"""A field of Fetch responses; -1 with an error."""


class BodyLeaf(NamedTuple):
    """A field: its path and value, the names around it by column, and the error message beside it."""

    path: str
    value: Any
    about: dict[str, Any]
    message: str | None


class Shape(NamedTuple):
    """The fields of interest in a struct: positions of the fields that name something, of the wanted leaves, of the error
    message, and of the structs that have any of these inside."""

    names: tuple[tuple[int, FieldPlan, str], ...]
    leaves: tuple[tuple[int, str], ...]
    message: int | None
    inside: tuple[tuple[int, FieldPlan, Shape], ...]


def errors(message: Message) -> Iterator[BodyLeaf]:
    """Every error code that is not 0."""
    shape = _shape(message.plan.kind, message.api_key, message.plan.version, Meaning.ERROR)
    return (leaf for leaf in _walk(shape, message.values, "", {}) if leaf.value)


def record_shape(kind: str, api_key: int, version: int) -> Shape:
    """The places of records in such a message, and of the fields that name them."""
    return _shape(kind, api_key, version, Meaning.RECORDS)


def record_areas(message: Message) -> Iterator[BodyLeaf]:
    """Every field that holds records."""
    shape = _shape(message.plan.kind, message.api_key, message.plan.version, Meaning.RECORDS)
    return (leaf for leaf in _walk(shape, message.values, "", {}) if leaf.value)


def has_records(kind: str, api_key: int, version: int) -> bool:
    """Whether such a message may hold records; if it is not known, it may."""
    try:
        shape = _shape(kind, api_key, version, Meaning.RECORDS)
    except DecodeError:
        return True
    return bool(shape.leaves or shape.inside)


def topic_columns(about: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    """The columns of the set `topic`: ids as text, and the name of an id that was seen."""
    topic, topic_id = about.get("topic"), about.get("topic_id")
    if topic is None and topic_id is not None and exchange.topics is not None:
        topic = exchange.topics.name(topic_id.bytes)
    shown = shown_id(topic_id.bytes) if topic_id is not None else None
    return {"topic": topic, "topic_id": shown, "partition": about.get("partition")}


def shown_id(topic_id: bytes) -> str | None:
    """The 16 bytes as text; None for the id that is none."""
    return jsonable(UUID(bytes=topic_id)) if any(topic_id) else None


@cache
def _shape(kind: str, api_key: int, version: int, wanted: Meaning) -> Shape:
    return _of(plan(kind, api_key, version).root, wanted)


def _of(struct: StructPlan, wanted: Meaning) -> Shape:
    names, leaves, inside, message = [], [], [], None
    for at, field in enumerate(struct.fields):
        if field.struct is not None:
            shape = _of(field.struct, wanted)
            if shape.leaves or shape.inside:
                inside.append((at, field, shape))
        elif not field.array:
            if field.meaning in ABOUT:
                names.append((at, field, ABOUT[field.meaning]))
            elif wanted is Meaning.RECORDS and field.name == HIGH_WATERMARK:
                names.append((at, field, HIGH_WATERMARK))
            if field.meaning is Meaning.MESSAGE:
                message = at
            if field.meaning is wanted:
                leaves.append((at, field.name))
    return Shape(tuple(names), tuple(leaves), message, tuple(inside))


def _walk(shape: Shape, values: tuple[Any, ...], path: str, about: dict[str, Any]) -> Iterator[BodyLeaf]:
    here = {name: shown_value(field, values[at]) for at, field, name in shape.names if values[at] is not None}
    if here:
        about = {**about, **here}
    message = values[shape.message] if shape.message is not None else None
    for at, name in shape.leaves:
        yield BodyLeaf(path + name, values[at], about, message)
    for at, field, inner in shape.inside:
        value = values[at]
        if value is None:
            continue
        if not field.array:
            yield from _walk(inner, value, f"{path}{field.name}.", about)
            continue
        for number, item in enumerate(value):
            yield from _walk(inner, item, f"{path}{field.name}[{number}].", about)
