"""How an API came to its newest version: which fields each version added, removed and changed, and which KIPs brought it."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import NamedTuple

from ..schema import facts
from ..schema.notation import VersionRange
from ..schema.plan import FieldPath, FieldPlan, field_paths, plan
from . import explain
from .explain import KipText


class ChangeKind(StrEnum):
    """What happened to a field."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class FieldChange(NamedTuple):
    """A field that differs from the version before. `what`: its type now and, if that changed, before."""

    kind: ChangeKind
    path: str
    what: str


def layout(kind: str, api_key: int, version: int) -> dict[str, FieldPath]:
    """All fields of a ``"request"`` or ``"response"``, by path without indexes."""
    return {each.path: each for each in field_paths(plan(kind, api_key, version).root)}


def changes(kind: str, api_key: int, version: int) -> list[FieldChange]:
    """What differs from the version before; nothing for the first one. Fields inside an added or removed struct are left out,
    and so is a new encoding of all fields (see `became_flexible`)."""
    if version - 1 not in facts.api(api_key).versions:
        return []
    before, after = layout(kind, api_key, version - 1), layout(kind, api_key, version)
    found = [FieldChange(ChangeKind.ADDED, path, type_text(after[path].field)) for path in after if _outermost(path, before)]
    found += [FieldChange(ChangeKind.REMOVED, path, type_text(before[path].field)) for path in before if _outermost(path, after)]
    for path in after.keys() & before.keys():
        was, now = _properties(before[path].field), _properties(after[path].field)
        if was != now:
            found.append(FieldChange(ChangeKind.CHANGED, path, f"{was} → {now}"))
    places = {path: at for at, path in enumerate([*after, *before])}
    return sorted(found, key=lambda change: (list(ChangeKind).index(change.kind), places[change.path]))


def became_flexible(kind: str, api_key: int, version: int) -> bool:
    """Whether this version is the first one with compact lengths and tagged fields (KIP-482)."""
    def flexible(at: int) -> bool:
        return plan(kind, api_key, at).root.flexible

    return flexible(version) and version - 1 in facts.api(api_key).versions and not flexible(version - 1)


@cache
def first_versions(kind: str, api_key: int) -> dict[str, int]:
    """The first version that has each field, by path without indexes."""
    found: dict[str, int] = {}
    for version in facts.api(api_key).versions.every():
        for path in layout(kind, api_key, version):
            found.setdefault(path, version)
    return found


def kips_of(api_key: int, version: int) -> tuple[KipText, ...]:
    """The KIPs that are known to have brought this version."""
    name = facts.api_name(api_key)
    kips = map(explain.kip, explain.api(api_key).kips)
    return tuple(kip for kip in kips if any(api == name and _starts(versions, version) for api, versions in kip.apis))


def type_text(field: FieldPlan) -> str:
    """``"[]int32"``, ``"string, nullable"``, ``"[]Topic, tag 1"``: a field's type without its encoding."""
    name = ("[]" if field.array else "") + (field.struct.name if field.struct else field.type)
    return name + ", nullable" * field.nullable + (f", tag {field.tag}" if field.tag is not None else "")


def _properties(field: FieldPlan) -> str:
    default = "" if field.struct or field.array or field.default in ("", b"", 0, bytes(16)) else f", default {field.default}"
    return type_text(field) + default.replace("None", "null")


def _outermost(path: str, other: dict[str, FieldPath]) -> bool:
    """Whether `other` lacks this field, and has the struct that it is in."""
    around = path.rpartition(".")[0]
    return path not in other and (not around or around in other)


def _starts(versions: str, version: int) -> bool:
    return bool(versions) and VersionRange.parse(versions).low == version
