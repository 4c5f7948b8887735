"""The field paths of the messages of one side, with all values that each had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ...decoder import Direction, Message
from ...decoder.codec.message_view import view_of
from ...decoder.schema.plan import StructPlan
from .flattener import Flattener, Value
from .sides import SeenExchange


def message_of(seen: SeenExchange, side: str) -> Message | None:
    """The message of a side, as its definition promises it and with secrets masked."""
    exchange, way = seen.exchange, Direction.REQUEST if side == "request" else Direction.RESPONSE
    view = exchange.response_view if way else exchange.request_view
    masked = exchange.masked_message(way) if view is not None else None
    return masked and view_of(masked)


def places(
    seen: list[SeenExchange], side: str, flattener: Flattener
) -> tuple[dict[str, dict[tuple[Any, Value], int]], frozenset[str]]:
    """By path: its values, each with the number of an exchange; and the generic paths that some version has."""
    out: dict[str, dict[tuple[Any, Value], int]] = defaultdict(dict)
    known: set[str] = set()
    seen_bodies: set[int] = set()  # the same bytes again have nothing to add
    for each in seen:
        message = message_of(each, side)
        if message is None or (side == "response" and each.again):
            continue
        known |= generic_paths(message)
        body = hash((message.plan.kind, message.plan.version, message.frame[message.body_start :]))
        if body in seen_bodies:
            continue
        seen_bodies.add(body)
        refused = side == "response" and failed(message)
        for path, value in flattener.flat(message).items():
            if refused and not path.endswith("error_code"):
                continue  # the rest of a refusal means nothing
            out[path].setdefault((value.value, value), each.number)
    return out, frozenset(known)


def failed(message: Message) -> bool:
    root = message.plan.root
    return any(
        bool(value) for field, value in zip(root.fields, message.values, strict=False) if field.name == "error_code"
    )


def generic_paths(message: Message) -> frozenset[str]:
    """All paths that this message's version has."""
    found = _GENERIC.get(id(message.plan))
    if found is None:
        found = _GENERIC[id(message.plan)] = frozenset(_walk(message.plan.root, ""))
    return found


_GENERIC: dict[int, frozenset[str]] = {}  # plans are cached for good


def _walk(of: StructPlan, prefix: str) -> Iterable[str]:
    for field in of.fields:
        path = prefix + field.name + ("[*]" if field.array else "")
        if field.struct is None:
            yield path
        else:
            yield from _walk(field.struct, path + ".")


def item_of(path: str) -> str:
    """The name of the outermost item of a path, in brackets: ``[orders]``; "" without one."""
    start = path.find("[")
    return path[start : path.find("]", start) + 1] if start >= 0 else ""
