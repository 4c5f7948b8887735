"""What a request means by a field that is null or empty. The facts are in ``definitions/null_and_empty.txt``; its head
says how to read them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from . import facts
from .notation import VersionRange
from .plan import Plan, StructPlan, field_paths


class EmptyMeaning(NamedTuple):
    """Of a field, in words; "" for one that means nothing else than it says."""

    field: str
    null: str
    empty: str

    def of(self, value: object) -> str:
        """What this value of the field means."""
        return self.null if value is None else "" if value else self.empty


class _Line(NamedTuple):
    versions: VersionRange
    values: frozenset[str]
    text: str


@cache
def _table() -> dict[tuple[str, str], list[_Line]]:
    """By API and path."""
    found: dict[tuple[str, str], list[_Line]] = {}
    for line in facts.schema_folder().joinpath("null_and_empty.txt").read_text("utf-8").splitlines():
        words = line.split("#", 1)[0].split(None, 4)
        if not words:
            continue
        apis, paths, versions, values, text = words
        each = _Line(VersionRange.parse(versions), frozenset(values.split(",")), text)
        for api in apis.split(","):
            for path in paths.split(","):
                found.setdefault((api, path), []).append(each)
    return found


@cache
def meanings(plan: Plan) -> Mapping[StructPlan, tuple[EmptyMeaning, ...]]:
    """By struct of a message: its fields that mean more than "nothing" where they are null or empty."""
    found: dict[StructPlan, tuple[EmptyMeaning, ...]] = {}
    if plan.kind != "request":
        return found
    structs = {"": plan.root}
    for path, field, _ in field_paths(plan.root):
        if field.struct is not None:
            structs[path] = field.struct
        lines = [line for line in _table().get((plan.api, path), ()) if plan.version in line.versions]
        if lines:
            null, empty = ("".join(line.text for line in lines if value in line.values) for value in ("null", "empty"))
            inside = structs[path.rpartition(".")[0]]
            found[inside] = (*found.get(inside, ()), EmptyMeaning(field.name, null, empty))
    return found
