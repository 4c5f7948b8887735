"""Visiting the fields of a message that have a role: to change them, to list them, or to pair two messages.

A *scope* is where a field stands: the topic, partition, group, member and producer that the structs around it name.
Values are in plan form (see `decoder.schema.plan`). Unchanged values stay the same objects, so that `decoder.codec.splice` keeps
their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from ...decoder.codec.message import Message
from ...decoder.codec.splice import BodySplicer, changed_fields
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import FieldPlan, PlanValue, StructPlan, Values
from .roles import Branch, RoleTree, tree

Scope = Mapping[Meaning, Any]
Change = Callable[[Meaning, Any, Scope, str], Any]
"""(role, value, scope, the field's name) -> the value instead; the same object for no change."""

_SCOPE_ROLES = frozenset(
    {
        Meaning.TOPIC,
        Meaning.TOPIC_ID,
        Meaning.PARTITION,
        Meaning.GROUP,
        Meaning.MEMBER_ID,
        Meaning.PRODUCER_ID,
        Meaning.PRODUCER_EPOCH,
        Meaning.TRANSACTIONAL_ID,
        Meaning.COORDINATOR_KEY,
        Meaning.RESOURCE_NAME,
    }
)


def tree_of(message: Message) -> RoleTree:
    """The roles of a message."""
    return tree(message.plan.kind, message.api_key, message.api_version)


def changed(message: Message, change: Change) -> Message:
    """The message with every value that has a role given to `change`; the same object when nothing changes."""
    values = rewrite(tree_of(message), message.values, change, {})
    if values is message.values:
        return message
    return with_values(message, values)


def with_values(message: Message, values: Values) -> Message:
    """The message with these values; fields that are the same objects keep their bytes."""
    frame = BodySplicer(message.frame, message.body_start).root(message.plan.root, message.values, values)
    return Message(message.plan, values, frame, message.body_start, message.header, message.trailing)


def rewrite(of: RoleTree, values: Values, change: Change, scope: Scope) -> Values:
    """The values of a struct after `change`."""
    scope = _widened(of, values, scope)

    def rewritten(branch: Branch, old: Any) -> Any:
        if branch.inside is not None:
            return rewrite(branch.inside, old, change, scope)
        return old if branch.role is None else change(branch.role, old, scope, branch.field.name)

    return changed_fields(values, of.branches, rewritten)


class RoleValue(NamedTuple):
    """A value with a role, and where it stands. name: the field's."""

    role: Meaning
    value: Any
    scope: Scope
    name: str


def visit(of: RoleTree, values: Values, scope: Scope | None = None) -> Iterator[RoleValue]:
    """Every value with a role that is not null."""
    scope = _widened(of, values, scope or {})
    for branch in of.branches:
        value = values[branch.at]
        if value is None:
            continue
        items: Sequence[Any] = value if branch.field.array else (value,)
        for item in items:
            if branch.inside is not None:
                yield from visit(branch.inside, item, scope)
            elif branch.role is not None:
                yield RoleValue(branch.role, item, scope, branch.field.name)


def _widened(of: RoleTree, values: Values, scope: Scope) -> Scope:
    naming = _naming_fields(of)
    if not naming:
        return scope
    wider = dict(scope)
    for at, role, type_field in naming:
        if values[at] is not None:
            wider[role] = values[at]
            if type_field is not None:
                wider[Meaning.RESOURCE_NAME] = (values[type_field], values[at])
    return wider


@cache
def _naming_fields(of: RoleTree) -> tuple[tuple[int, Meaning, int | None], ...]:
    """The fields of a struct that are the scope of the others; with a resource's name the field of its type."""
    names = [field.name for field in of.of.fields]
    types = next((names.index(name) for name in ("resource_type", "resource_type_filter", "key_type") if name in names), None)
    return tuple(
        (b.at, b.role, types if b.role in (Meaning.RESOURCE_NAME, Meaning.COORDINATOR_KEY) else None)
        for b in of.branches
        if b.role in _SCOPE_ROLES and not (b.field.array and b.inside is None)
    )


# --- two messages side by side -----------------------------------------------------------------------------------


class ValuePair:
    """Two values that stand at the same place of two messages of one API. `missing`: one side lacks it (a row of an
    array; `missing` names the side)."""

    __slots__ = ("field", "got", "missing", "path", "recorded", "role", "scope", "volatile")

    def __init__(
        self,
        path: str,
        field: FieldPlan,
        role: Meaning | None,
        volatile: bool,
        recorded: PlanValue,
        got: PlanValue,
        scope: Scope,
        missing: str = "",
    ) -> None:
        self.path, self.field, self.role, self.volatile = path, field, role, volatile
        self.recorded, self.got, self.scope, self.missing = recorded, got, scope, missing


Translate = Callable[[Meaning, Any, Scope], Any]
"""(role, recorded value, scope) -> what it is called at the target."""


def pairs(recorded: Message, got: Message, translate: Translate, scope: Scope | None = None) -> Iterator[ValuePair]:
    """Every pair of values of two responses (or requests), which may be of different versions: fields that only one
    version has are left out. Rows of arrays are matched by what names them (a topic, a partition, a map key), else by
    position. `scope`: what the request named (a group, say) and the answers do not repeat."""
    yield from _struct_pairs(
        recorded.plan.root, tree_of(recorded), recorded.values, got.plan.root, got.values, "", scope or {}, translate
    )


def _struct_pairs(
    plan: StructPlan,
    roles: RoleTree | None,
    values: Values,
    other: StructPlan,
    others: Values,
    prefix: str,
    scope: Scope,
    translate: Translate,
) -> Iterator[ValuePair]:
    if roles is not None:
        scope = _widened(roles, values, scope)
    branches, positions = _branches(roles), _positions(other)
    for at, field in enumerate(plan.fields):
        there = positions.get(field.name)
        if there is None or other.fields[there].array != field.array:
            continue
        theirs = other.fields[there]
        branch = branches.get(at)
        a, b, path = values[at], others[there], prefix + field.name
        role, volatile = (branch.role, branch.volatile) if branch else (None, False)
        if field.struct is None or theirs.struct is None or a is None or b is None:
            yield ValuePair(path, field, role, volatile, a, b, scope)
        elif not field.array:
            inside = branch.inside if branch else None
            yield from _struct_pairs(field.struct, inside, a, theirs.struct, b, path + ".", scope, translate)
        else:
            yield from _rows(field, branch.inside if branch else None, a, theirs.struct, b, path, scope, translate)


def _rows(
    field: FieldPlan,
    roles: RoleTree | None,
    rows: Sequence[Any],
    other: StructPlan,
    others: Sequence[Any],
    path: str,
    scope: Scope,
    translate: Translate,
) -> Iterator[ValuePair]:
    assert field.struct is not None
    keys = _keys(field.struct, roles, other)
    if not keys:
        if len(rows) != len(others):
            yield ValuePair(path, field, None, False, len(rows), len(others), scope, "count")
        for number, (a, b) in enumerate(zip(rows, others, strict=False)):
            yield from _struct_pairs(field.struct, roles, a, other, b, f"{path}[{number}].", scope, translate)
        return
    found: dict[tuple[Any, ...], list[Any]] = {}
    for b in others:
        found.setdefault(tuple(b[there] for _, there, _ in keys), []).append(b)
    for number, a in enumerate(rows):
        key = tuple(a[at] if role is None else translate(role, a[at], scope) for at, _, role in keys)
        twins = found.get(key)
        if not twins and len(rows) == len(others) == 1:
            twins = found.popitem()[1]  # what is not known by name yet may be learnt from being the only one
        if twins:
            b = twins.pop(0)
            yield from _struct_pairs(field.struct, roles, a, other, b, f"{path}[{number}].", scope, translate)
        else:
            yield ValuePair(f"{path}[{number}]", field, None, False, key, None, scope, "answer")
    for key, left in found.items():
        for _ in left:
            yield ValuePair(path, field, None, False, None, key, scope, "recording")


@cache
def _branches(roles: RoleTree | None) -> dict[int, Branch]:
    return {branch.at: branch for branch in roles.branches} if roles is not None else {}


@cache
def _positions(plan: StructPlan) -> dict[str, int]:
    return {field.name: at for at, field in enumerate(plan.fields)}


# What names a row, the first that is there. Brokers are not named by their ids, which other clusters have otherwise.
_NAMING = (
    Meaning.TOPIC,
    Meaning.TOPIC_ID,
    Meaning.PARTITION,
    Meaning.GROUP,
    Meaning.TRANSACTIONAL_ID,
    Meaning.COORDINATOR_KEY,
    Meaning.RESOURCE_NAME,
    Meaning.MEMBER_ID,
)


@cache
def _keys(plan: StructPlan, roles: RoleTree | None, other: StructPlan) -> tuple[tuple[int, int, Meaning | None], ...]:
    """The fields that name a row: (position here, position there, role)."""
    there = _positions(other)
    branches = _branches(roles)
    for role in _NAMING:
        for at, field in enumerate(plan.fields):
            branch = branches.get(at)
            if branch is not None and branch.role is role and not field.array and field.name in there:
                return ((at, there[field.name], role),)
    return tuple(
        (at, there[field.name], None)
        for at, field in enumerate(plan.fields)
        if field.map_key and field.struct is None and at not in branches and field.name in there
    )


def read(message: Message | None) -> Iterator[RoleValue]:
    """`visit` over a message; nothing for None."""
    return visit(tree_of(message), message.values) if message is not None else iter(())


__all__ = ["Change", "RoleValue", "Scope", "ValuePair", "changed", "pairs", "read", "rewrite", "tree_of", "visit", "with_values"]
