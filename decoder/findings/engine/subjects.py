"""What the parts of a message are about: topics, partitions, groups, by the names in the structs around them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from ...codec.message import is_error_code
from ...connection.exchange import Exchange
from ...schema.meaning import Meaning
from ...schema.plan import StructPlan
from .formatting import topic_name

_NAMING = frozenset((Meaning.TOPIC, Meaning.TOPIC_ID, Meaning.PARTITION, Meaning.GROUP))
_SUBJECTS = frozenset(("name", "key", "resource_name", "user"))
_ASKED = ("group_id", "transactional_id", "v3_and_below_transactional_id", "key")

Subject = tuple[Any, ...]
"""What an error is about: the names of its structs from the outside in, and the partition; () where only the request names it."""


class _Places(NamedTuple):
    """Where the fields of a struct stand: names, a partition's number, the wanted fields, and structs with such inside."""

    names: tuple[int, ...]
    wanted: tuple[int, ...]
    structs: tuple[tuple[int, bool, StructPlan], ...]


@cache
def _places(plan: StructPlan, name: str | None) -> _Places:
    single = [(i, f) for i, f in enumerate(plan.fields) if not f.array and f.struct is None]
    inner = [(i, f.array, f.struct) for i, f in enumerate(plan.fields) if f.struct is not None]
    return _Places(
        tuple(i for i, f in single if f.name in _SUBJECTS or f.meaning in _NAMING),
        tuple(i for i, f in single if (is_error_code(f) if name is None else f.name == name)),
        tuple((i, array, struct) for i, array, struct in inner if _has_wanted(struct, name)),
    )


@cache
def _has_wanted(plan: StructPlan, name: str | None) -> bool:
    places = _places(plan, name)
    return bool(places.wanted or places.structs)


def _wanted(plan: StructPlan, values: tuple[Any, ...], around: Subject, name: str | None) -> Iterator[tuple[Subject, Any]]:
    """Every field `name` of a struct (error codes for None), and what it is about."""
    places = _places(plan, name)
    names = [values[i] for i in places.names if values[i] not in (None, "")]
    if any(isinstance(each, str) for each in names):
        names = [each for each in names if not isinstance(each, bytes)]  # the id of something that is named as well
    subject = (*around, *names)
    for at in places.wanted:
        yield subject, values[at]
    for at, array, struct in places.structs:
        value = values[at]
        for item in (value or ()) if array else (value,):
            if item is not None:
                yield from _wanted(struct, item, subject, name)


def requested(exchange: Exchange, name: str) -> Iterator[tuple[Subject, Any]]:
    """Every field `name` of a request, and what it is about."""
    message = exchange.request_view
    return _wanted(message.plan.root, message.values, (), name) if message is not None else iter(())


def answers(exchange: Exchange) -> Iterator[tuple[Subject, int]]:
    """Every error code of a response, 0 too, and what it is about."""
    message, asked = exchange.response_view, exchange.request_view
    if message is None:
        if exchange.error:
            yield (), exchange.error  # of a truncated frame
        return
    around: Subject = ()
    if asked is not None:
        around = tuple(
            value
            for field, value in zip(asked.plan.root.fields, asked.values, strict=False)
            if field.name in _ASKED and value
        )
    yield from _wanted(message.plan.root, message.values, around, None)


def subject_text(exchange: Exchange, subject: Subject) -> str:
    """``orders-3``, ``billing``: a subject as text: the innermost name and the partition."""
    names: list[str] = []
    number = ""
    for part in subject:
        if isinstance(part, bytes):
            if any(part):
                names.append(topic_name(exchange, part))
        elif isinstance(part, str):
            names.append(part)
        else:
            number = f"-{part}"
    return f"{names[-1]}{number}" if names else ""
