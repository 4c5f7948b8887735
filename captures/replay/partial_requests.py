"""Produce requests that brokers accepted only in part.

What the target refused is sent again alone, as a client would. What was refused when recorded is not sent: its client sent it
again itself, in another request.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from typing import Any

from ...decoder.codec.message import Message
from ...decoder.schema import facts
from .rewrite import with_values

PRODUCE = facts.api_key("Produce")
Place = tuple[Any, int]
"""A topic's name or id, whichever the message has, and a partition."""


@cache
def is_retriable(code: int) -> bool:
    """Whether clients retry on an error."""
    fact = facts.errors().get(code)
    return fact is not None and fact.retriable


def retriable_partitions(answer: Message) -> frozenset[Place]:
    """The partitions that were refused with a retriable error, whatever became of the others."""
    codes = _rows(answer, "responses", "partition_responses", "error_code")
    return frozenset(place for place, code in codes.items() if is_retriable(code))


def partitions_to_retry(answer: Message) -> set[Place]:
    """The partitions that were refused with a retriable error; empty if any was refused with another error."""
    codes = _rows(answer, "responses", "partition_responses", "error_code")
    if any(code and not is_retriable(code) for code in codes.values()):
        return set()
    return {place for place, code in codes.items() if code}


def partitions_of(message: Message) -> set[Place]:
    """The partitions of a Produce request or answer."""
    if message.plan.kind == "request":
        return set(_rows(message, "topic_data", "partition_data", "index"))
    return set(_rows(message, "responses", "partition_responses", "index"))


def with_partitions(request: Message, places: Set[Place]) -> Message:
    """The request for these partitions only."""
    return _filtered(request, "topic_data", "partition_data", places)


def without_partitions(answer: Message, places: Set[Place]) -> Message:
    """An answer without these partitions."""
    return _filtered(answer, "responses", "partition_responses", partitions_of(answer) - places)


def merged_answers(taken: Message, later: Message) -> Message:
    """Two answers to parts of one request merged; the frame is the later one's."""
    at, inside, _ = _inner(taken, "responses", "partition_responses")
    topics: dict[Any, tuple[Any, ...]] = {}
    for topic in (*taken.values[at], *later.values[at]):
        before = topics.get(topic[0])
        rows = topic[inside] if before is None else (*before[inside], *topic[inside])
        topics[topic[0]] = (*topic[:inside], rows, *topic[inside + 1 :])
    values = list(later.values)
    values[at] = tuple(topics.values())
    return Message(later.plan, tuple(values), later.frame, later.body_start, later.header, later.trailing)


def _at(message: Message, name: str) -> int:
    return next(i for i, f in enumerate(message.plan.root.fields) if f.name == name)


def _inner(message: Message, outer: str, inner: str) -> tuple[int, int, list[str]]:
    at = _at(message, outer)
    struct = message.plan.root.fields[at].struct
    assert struct is not None
    inside = next(i for i, f in enumerate(struct.fields) if f.name == inner)
    rows = struct.fields[inside].struct
    assert rows is not None
    return at, inside, [f.name for f in rows.fields]


def _rows(message: Message, outer: str, inner: str, field: str) -> dict[Place, Any]:
    at, inside, names = _inner(message, outer, inner)
    index, wanted = names.index("index"), names.index(field)
    return {(topic[0], row[index]): row[wanted] for topic in message.values[at] for row in topic[inside]}


def _filtered(message: Message, outer: str, inner: str, places: Set[Place]) -> Message:
    at, inside, names = _inner(message, outer, inner)
    index = names.index("index")
    topics = []
    for topic in message.values[at]:
        rows = tuple(row for row in topic[inside] if (topic[0], row[index]) in places)
        if rows:
            topics.append((*topic[:inside], rows, *topic[inside + 1 :]))
    return with_values(message, (*message.values[:at], tuple(topics), *message.values[at + 1 :]))
