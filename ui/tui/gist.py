"""What a message is about, in a few words: topics, groups, transactions it names, and its error codes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ...decoder import Message, facts
from ...decoder.plan import StructPlan
from .safe import visible

_ENTITIES = frozenset({"topicName", "groupId", "transactionalId"})
_MOST = 3
_LOOKED_AT = 64
"""Names that are looked at; the rest of a long list says nothing new."""


def gist(message: Message | None) -> tuple[str, str]:
    """(names, errors), each "" where there are none; safe for the terminal."""
    if message is None:
        return "", ""
    names = list(dict.fromkeys(islice(_names(message.plan.root, message.values), _LOOKED_AT)))
    codes = list(dict.fromkeys(facts.error_name(code) for _, code in islice(message.errors(), _LOOKED_AT)))
    return visible(_few(names)), visible(_few(codes))


def _few(words: list[str]) -> str:
    more = len(words) - _MOST
    return ", ".join(words[:_MOST]) + (f", {more} more" if more > 0 else "")


def _names(of: StructPlan, values: tuple[Any, ...]) -> Iterator[str]:
    for field, value in zip(of.fields, values, strict=False):
        if value is None:
            continue
        if field.struct is not None:
            for item in value if field.array else (value,):
                yield from _names(field.struct, item)
        elif field.type == "string" and field.entity in _ENTITIES:
            yield from (item for item in (value if field.array else (value,)) if item)
