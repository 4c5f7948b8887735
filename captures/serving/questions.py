"""What a request asks for, apart from ids, times and versions: the same question at two versions is equal here.

`identity` is a request without what another run has otherwise (`..replay.roles`) and without fields that hold their
default, so that a question is equal to itself at every version that can ask it. Topics are named, also where a newer
version gives their id. `touches` are the names in it: what two requests have in common when one changes what the
other reads. `entries` are the parts of a request that ask for one thing each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ...decoder import Message
from ...decoder.codec.plan import FieldPlan, StructPlan
from ...decoder.schema import facts
from ..replay.roles import VOLATILE, Role, paths

Named = Callable[[bytes], str | None]
"""The name of a topic by the 16 bytes of its id; None if it is not known."""

_NAMES = frozenset(
    {Role.TOPIC, Role.TOPIC_ID, Role.GROUP, Role.TRANSACTIONAL_ID, Role.RESOURCE_NAME, Role.COORDINATOR_KEY}
)
_TOPIC = frozenset({Role.TOPIC, Role.TOPIC_ID})
_ASKING = ("Describe", "List", "Find", "Get", "Fetch", "Metadata", "OffsetFetch", "OffsetForLeaderEpoch", "ApiVersions")
_ASKING_ENDS = ("Describe", "Offsets")
_VERBS = ("Alter", "Delete")


@cache
def only_reads(api_key: int) -> bool:
    """Whether an API only asks, so that asking twice changes nothing. By the words that Kafka's names begin with."""
    name = facts.api_name(api_key)
    return name.startswith(_ASKING) or (name.endswith(_ASKING_ENDS) and not name.startswith(_VERBS))


def identity(message: Message, named: Named) -> tuple[Any, ...]:
    """What a request asks for; hashable, and equal for the same question at another version."""
    return _struct(message.plan.root, message.values, "", _roles(message), named)


def touches(message: Message, named: Named) -> frozenset[str]:
    """The names (topics, groups, transactional ids, resources) in a request or response."""
    return frozenset(_names(message.plan.root, message.values, "", _roles(message), named))


def entries(message: Message, named: Named) -> tuple[str, list[tuple[Any, frozenset[str]]]] | None:
    """The one array of a request that names things: its field, and (identity, names) of each item. None where a request
    has no such array, or several."""
    roles = _roles(message)
    found = []
    for field, value in zip(message.plan.root.fields, message.values, strict=False):
        if field.array and value:
            items = [
                (_value(field, v, field.name, roles, named), frozenset(_in(field, v, field.name, roles, named)))
                for v in value
            ]
            if all(names for _, names in items):
                found.append((field.name, items))
    return found[0] if len(found) == 1 else None


def items_of(message: Message, named: Named) -> Iterator[tuple[str, int, frozenset[str]]]:
    """Every item of the arrays of structs of a response: (field, position, the names in it)."""
    roles = _roles(message)
    for field, value in zip(message.plan.root.fields, message.values, strict=False):
        if field.array and field.struct is not None:
            for at, item in enumerate(value or ()):
                yield field.name, at, frozenset(_in(field, item, field.name, roles, named))


def _roles(message: Message) -> dict[str, Role]:
    return paths(message.plan.kind, message.api_key, message.plan.version)


def _struct(
    plan: StructPlan, values: tuple[Any, ...], prefix: str, roles: dict[str, Role], named: Named
) -> tuple[Any, ...]:
    out: list[tuple[str, Any]] = []
    for field, value in zip(plan.fields, values, strict=False):
        path = prefix + field.name
        role = roles.get(path + ("[*]" if field.array else ""))
        if role in _TOPIC and not field.array:
            name = _topic(role, value, named)
            if name:
                out.append(("topic", name))
        elif role not in VOLATILE and value != field.default:
            if not field.array:
                out.append((field.name, _value(field, value, path, roles, named)))
            elif value is not None:
                # Clients list topics and partitions as they come: the order says nothing.
                parts = [_value(field, item, path, roles, named) for item in value]
                out.append((field.name, tuple(sorted(parts, key=repr))))
    return tuple(sorted(out, key=lambda pair: pair[0]))


def _value(field: FieldPlan, value: Any, path: str, roles: dict[str, Role], named: Named) -> Any:
    if field.struct is None or value is None:
        role = roles.get(path + "[*]") if field.array else None
        return _topic(role, value, named) if role in _TOPIC else value
    return _struct(field.struct, value, path + ("[*]." if field.array else "."), roles, named)


def _names(
    plan: StructPlan, values: tuple[Any, ...], prefix: str, roles: dict[str, Role], named: Named
) -> Iterator[str]:
    for field, value in zip(plan.fields, values, strict=False):
        for item in (value or ()) if field.array else (value,):
            yield from _in(field, item, prefix + field.name, roles, named)


def _in(field: FieldPlan, value: Any, path: str, roles: dict[str, Role], named: Named) -> Iterator[str]:
    """The names in one value of a field."""
    if value is None:
        return
    if field.struct is not None:
        yield from _names(field.struct, value, path + ("[*]." if field.array else "."), roles, named)
        return
    role = roles.get(path + ("[*]" if field.array else ""))
    if role in _NAMES:
        name = _topic(role, value, named) if role in _TOPIC else value
        if name:
            yield name


def _topic(role: Role | None, value: Any, named: Named) -> str | None:
    if role is Role.TOPIC_ID:
        # An id that nobody named still tells one topic from another.
        return (named(value) or value.hex()) if any(value) else None
    name: str | None = value
    return name
