"""Requests that a plugin or rule has changed so that the client cannot use the answer: it waits forever, or misses what
it asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ...decoder.codec.message import Message
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import StructPlan, plan

PRODUCE = facts.api_key("Produce")
NAMES = frozenset({Meaning.TOPIC, Meaning.GROUP, Meaning.TRANSACTIONAL_ID})
"""Names that responses repeat."""


def why(before: Message, after: Message, renames_back: bool = False) -> str:
    """What is wrong with a changed request; empty if nothing is. `renames_back`: whether the plugin gets the responses
    and can change them."""
    if before.api_key == PRODUCE and (before["acks"] == 0) is not (after["acks"] == 0):
        if after["acks"] == 0:
            return "acks is 0 now: the broker does not answer, and the client waits for its response"
        return "acks was 0: the client expects no response, and gets one"
    if renames_back:
        return ""
    gone = sorted(set(names(before)) - set(names(after)))
    if not gone:
        return ""
    what, name = gone[0]
    more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
    return f"{what} {name!r}{more} is no longer requested, so no response names it: the client gets no answer about it"


def names(request: Message) -> Iterator[tuple[str, str]]:
    """The names in a request that its response repeats: (kind, name)."""
    repeated = repeated_in(request.api_key, request.api_version)
    yield from _in(request.plan.root, request.values, repeated)


@cache
def repeated_in(api_key: int, api_version: int) -> frozenset[Meaning]:
    """The kinds of names (`NAMES`) in the responses of a version."""

    def inside(struct: StructPlan) -> Iterator[Meaning]:
        for field in struct.fields:
            if field.meaning in NAMES:
                yield field.meaning
            if field.struct is not None:
                yield from inside(field.struct)

    return frozenset(inside(plan("response", api_key, api_version).root))


def _in(struct: StructPlan, values: tuple[Any, ...], repeated: frozenset[Meaning]) -> Iterator[tuple[str, str]]:
    for field, value in zip(struct.fields, values, strict=False):
        if value is None:
            continue
        if field.struct is not None:
            for item in value if field.array else (value,):
                yield from _in(field.struct, item, repeated)
        elif field.meaning in repeated:
            for each in value if field.array else (value,):
                yield field.meaning, each
