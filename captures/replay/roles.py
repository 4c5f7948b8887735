"""The fields of messages that replay and comparison work on: names, ids, epochs, offsets, times.

`places` lists them for one message kind at one version, by what they are (`decoder.schema.meaning`); `tree` has them as
a tree, for `rewrite`. Correlation id and client id are in the header, not in the body, and are not covered here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...decoder.schema import meaning
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import FieldPlan, StructPlan, plan

NAMES = frozenset(
    {
        Meaning.TOPIC,
        Meaning.TOPIC_ID,
        Meaning.GROUP,
        Meaning.TRANSACTIONAL_ID,
        Meaning.RESOURCE_NAME,
        Meaning.COORDINATOR_KEY,
    }
)
"""What a message is about. Ids of topics differ between clusters, but stand for names."""
STABLE = frozenset(
    {
        *(NAMES - {Meaning.TOPIC_ID}),
        Meaning.PARTITION,
        Meaning.OFFSET,
        Meaning.RECORDS,
        Meaning.SUBSCRIPTION,
        Meaning.ASSIGNMENT,
    }
)
"""The roles whose values are the same again, except for renaming and other positions."""
VOLATILE = meaning.volatile()
"""The roles whose values two runs, or two clusters, have differently although nothing is different."""


@dataclass(frozen=True, slots=True)
class RolePlace:
    """A field with a role. `path` is as `decoder.codec.project` takes it: ``topics[*].partitions[*].base_offset``; an array
    of plain values has the role for its items and ends with ``[*]``. `steps` are the fields' positions in the plan's
    tuples. `volatile`: two answers that mean the same may differ here."""

    path: str
    role: Meaning
    volatile: bool
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RoleTree:
    """The fields of a struct that have a role, or hold structs that have one: (position in the plan, field, its role or
    None, the tree inside or None)."""

    of: StructPlan
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """One field of a `RoleTree`."""

    at: int
    field: FieldPlan
    role: Meaning | None
    volatile: bool
    inside: RoleTree | None


@cache
def tree(kind: str, api_key: int, version: int) -> RoleTree:
    """The roles of ``"request"`` or ``"response"`` at a version; UnknownApi or UnknownVersion as `decoder.schema.plan`."""
    root = plan(kind, api_key, version).root
    return _tree(root) or RoleTree(root, ())


@cache
def places(kind: str, api_key: int, version: int) -> tuple[RolePlace, ...]:
    """The fields that have a role, in the order of the plan."""
    out: list[RolePlace] = []
    _list(tree(kind, api_key, version), "", (), out)
    return tuple(out)


@cache
def paths(kind: str, api_key: int, version: int) -> dict[str, Meaning]:
    """The roles by path; see `RolePlace`."""
    return {place.path: place.role for place in places(kind, api_key, version)}


def _list(of: RoleTree, prefix: str, steps: tuple[int, ...], out: list[RolePlace]) -> None:
    for branch in of.branches:
        path = prefix + branch.field.name + ("[*]" if branch.field.array else "")
        here = (*steps, branch.at)
        if branch.role is not None:
            out.append(RolePlace(path, branch.role, branch.volatile, here))
        if branch.inside is not None:
            _list(branch.inside, path + ".", here, out)


def _tree(of: StructPlan) -> RoleTree | None:
    branches = []
    for at, field in enumerate(of.fields):
        inside = None if field.struct is None else _tree(field.struct)
        role = field.meaning if field.volatile or field.meaning in STABLE else None
        if role is not None or inside is not None:
            branches.append(Branch(at, field, role, field.volatile, inside))
    return RoleTree(of, tuple(branches)) if branches else None
