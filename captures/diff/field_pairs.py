"""Two messages of one API side by side: every field by its path, with both values.

Items of lists are named by what they are about (`topics[orders].partitions[0]`), so that their order does not matter. Fields
that differ between any two runs (ids, epochs, times: `..replay.roles`) are marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from ...decoder import Direction, Exchange, Message
from ...decoder.codec.message import jsonable
from ...decoder.codec.secrets import shown
from ...decoder.reference.explain import meaning
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import StructPlan
from ..replay.roles import NAMES, RoleTree, tree

_NAMES = NAMES | {Meaning.PARTITION}
_ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class FieldPair:
    """A field of both messages, as text; "(absent)" where one has no such field. `volatile`: it differs between any two runs."""

    path: str
    a: str
    b: str
    volatile: bool

    @property
    def same(self) -> bool:
        """Whether there is no difference."""
        return self.a == self.b


def both(a: Exchange, b: Exchange) -> list[tuple[str, list[FieldPair]]]:
    """`pairs` of the requests and of the responses of two exchanges."""
    found = ((way.name.capitalize(), [each.masked_message(way) for each in (a, b)]) for way in Direction)
    return [(name, pairs(*messages)) for name, messages in found]


def pairs(a: Message | None, b: Message | None) -> list[FieldPair]:
    """All fields of two messages, in the order of the first; None has none. Secrets are masked, bytes and
    records are described by their size and a digest."""
    of_a, of_b = flat(a), flat(b)
    behind: dict[str, list[str]] = {}  # what only the second has, by the field that it follows there
    last = ""
    for path in of_b:
        if path in of_a:
            last = path
        else:
            behind.setdefault(last, []).append(path)
    paths = [*behind.get("", ()), *(each for path in of_a for each in (path, *behind.get(path, ())))]
    missing = (_ABSENT, False)
    found: list[FieldPair] = []
    for path in paths:
        (text_a, moves_a), (text_b, moves_b) = of_a.get(path, missing), of_b.get(path, missing)
        found.append(FieldPair(path, text_a, text_b, moves_a or moves_b))
    return found


def flat(message: Message | None) -> dict[str, tuple[str, bool]]:
    """Every field's text by its path, and whether it is volatile."""
    if message is None:
        return {}
    of = message.plan
    found: dict[str, tuple[str, bool]] = {}
    for path, text, volatile in _struct(of.api, tree(of.kind, of.api_key, of.version), of.root, shown(message), ""):
        while path in found:  # two items with one name
            path += "'"
        found[path] = text, volatile
    return found


def _struct(
    api: str, roles: RoleTree | None, of: StructPlan, values: dict[str, Any], prefix: str
) -> Iterator[tuple[str, str, bool]]:
    branches = {} if roles is None else {branch.at: branch for branch in roles.branches}
    for at, field in enumerate(of.fields):
        if field.name not in values:
            continue
        value, branch, path = values[field.name], branches.get(at), prefix + field.name
        volatile = branch is not None and branch.volatile
        if field.struct is None or value is None:
            if field.type in ("records", "bytes") and not field.array and value is not None:
                yield path, _digest(value), False
            else:
                known = "" if field.array else meaning(api, field.name, value)
                yield path, f"{value} {known}" if known else _text(value), volatile
        elif not field.array:
            yield from _struct(api, branch.inside if branch else None, field.struct, value, path + ".")
        else:
            if not value:
                yield path, "[]", volatile
            inside = branch.inside if branch else None
            for number, item in enumerate(value):
                name = _about(inside, field.struct, item)
                yield from _struct(api, inside, field.struct, item, f"{path}[{number if name is None else name}].")


def _about(roles: RoleTree | None, of: StructPlan, item: dict[str, Any]) -> str | None:
    """The name of a list's item; None if only its position identifies it."""
    for branch in roles.branches if roles is not None else ():
        value = item.get(branch.field.name)
        if branch.role in _NAMES and not branch.field.array and value not in (None, ""):
            return _text(value)
    for field in of.fields:
        if field.struct is None and not field.array and (field.map_key or field.name in ("api_key", "key", "name")):
            return _text(item.get(field.name))
    return None


def _text(value: Any) -> str:
    plain = jsonable(value)
    if plain is None:
        return "null"
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, list):
        return ", ".join(_text(item) for item in plain) or "[]"
    return str(plain)


def _digest(data: bytes) -> str:
    return f"{len(data)} bytes, {crc32(data):08x}"
