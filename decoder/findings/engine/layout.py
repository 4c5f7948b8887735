"""Where the fields of messages stand in their values, by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from ...codec.message_view import MessageView
from ...schema.plan import StructPlan


@cache
def layout(struct: StructPlan, *path: str) -> Mapping[str, int]:
    """The positions of a struct's fields, or of those of the struct that these nested fields lead to."""
    for name in path:
        inner = next(f.struct for f in struct.fields if f.name == name)
        assert inner is not None
        struct = inner
    return {f.name: i for i, f in enumerate(struct.fields)}


class PartitionPlaces(NamedTuple):
    """Where a message that is about partitions has them: its array of topics; of a topic its name (or id) and its partitions; and the
    fields of a partition, by name."""

    topics: int
    name: int
    partitions: int
    fields: Mapping[str, int]


@cache
def partition_places(message: StructPlan, topics: str, partitions: str) -> PartitionPlaces:
    """`topics`, `partitions`: the names of the arrays."""
    topic = layout(message, topics)
    name = next(topic[name] for name in ("name", "topic", "topic_id") if name in topic)
    return PartitionPlaces(layout(message)[topics], name, topic[partitions], layout(message, topics, partitions))


def top(message: MessageView) -> dict[str, Any]:
    """The top fields of a message by name; structs stay tuples."""
    return dict(zip(layout(message.plan.root), message.values, strict=False))


def rows(message: MessageView, name: str) -> list[dict[str, Any]]:
    """The items of a top array of structs, each by its fields' names."""
    names = layout(message.plan.root, name)
    items = message.values[layout(message.plan.root)[name]]
    return [dict(zip(names, item, strict=False)) for item in items or ()]
