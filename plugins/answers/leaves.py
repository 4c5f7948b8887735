"""The plain fields of a message with their paths and topic-partitions, for actions that change fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from ...decoder import Topics
from ...decoder.codec.message import Message
from ...decoder.filter.entities import MessagePart, TopicPartition
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import ZERO_UUID, FieldPlan, StructPlan

NOWHERE = TopicPartition(None, None, None, None, None)


class Leaf(NamedTuple):
    """One field. `path`: as in `Message.replace`; `struct`: the path of its struct; `depth`: number of arrays around it;
    `part`: its entry, with the topic-partition as far as that is known."""

    path: str
    struct: str
    field: FieldPlan
    value: Any
    depth: int
    part: MessagePart


def leaves(message: Message, topics: Topics | None = None) -> Iterator[Leaf]:
    """All plain fields, in the order of the message."""
    yield from _walk(whole_part(message, topics), "", 0, topics)


def whole_part(message: Message, topics: Topics | None = None) -> MessagePart:
    """A message as the outermost part."""
    root, values = message.plan.root, message.values
    return MessagePart(message.plan.kind, _pair(root, values, NOWHERE, topics), (("", root, values),))


def _walk(part: MessagePart, prefix: str, depth: int, topics: Topics | None) -> Iterator[Leaf]:
    _, plan, values = part.around[-1]
    for field, value in zip(plan.fields, values, strict=False):
        path = prefix + field.name
        if field.struct is None:
            yield Leaf(path, prefix, field, value, depth, part)
        elif value is not None and field.array:
            for number, item in enumerate(value):
                yield from _walk(inside(part, field, item, topics), f"{path}[{number}].", depth + 1, topics)
        elif value is not None:
            yield from _walk(inside(part, field, value, topics), f"{path}.", depth, topics)


def inside(part: MessagePart, field: FieldPlan, values: tuple[Any, ...], topics: Topics | None) -> MessagePart:
    """The part in a field of another part: a struct, or an entry of an array of structs."""
    struct = field.struct
    assert struct is not None
    steps = f"{part.around[-1][0]}{field.name}."
    pair = _pair(struct, values, part.pair, topics)
    return MessagePart(part.side, pair, (*part.around, (steps, struct, values)))


def _pair(plan: StructPlan, values: tuple[Any, ...], pair: TopicPartition, topics: Topics | None) -> TopicPartition:
    """The topic-partition of the structs around a struct, completed by the struct itself."""
    for at, meaning in _naming(plan):
        value = values[at]
        if meaning is Meaning.TOPIC:
            if value:
                pair = pair._replace(topic=value)
        elif meaning is Meaning.TOPIC_ID:
            if value != ZERO_UUID:
                name = topics.name(value) if topics is not None else None
                pair = pair._replace(topic_id=value, topic=name or pair.topic)
        elif pair.topic or pair.topic_id:
            pair = pair._replace(partition=value)
    return pair


@cache
def _naming(plan: StructPlan) -> tuple[tuple[int, Meaning], ...]:
    """Where a struct names a topic or a partition."""
    wanted = (Meaning.TOPIC, Meaning.TOPIC_ID, Meaning.PARTITION)
    single = ((at, field.meaning) for at, field in enumerate(plan.fields) if not field.array)
    return tuple((at, meaning) for at, meaning in single if meaning in wanted)


_INDEX = re.compile(r"\[(?:\d+|\*)\]")


def pattern(path: str) -> str:
    """A path without its indexes: the same for all elements of an array."""
    return _INDEX.sub("", path)
