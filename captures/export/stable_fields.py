"""The fields of a response that another broker would answer alike: no ids, epochs, offsets, times and addresses.

They follow from the schema (`..replay.roles`). Exported test cases compare by them.
"""

from __future__ import annotations

from typing import Any

from ...decoder import Message
from ...decoder.codec.message import jsonable, shown_value
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import StructPlan
from ..replay.roles import NAMES, RoleTree, tree

_NAMES = NAMES - {Meaning.TOPIC_ID} | {Meaning.PARTITION}
# Of the roles whose values mean the same again, those that a log's content and its members move.
_MOVING = frozenset({Meaning.OFFSET, Meaning.RECORDS, Meaning.SUBSCRIPTION, Meaning.ASSIGNMENT})


def stable(message: Message) -> dict[str, Any]:
    """Every such field by its path, with JSON's types. Items of lists are named by what they are about:
    ``topics[orders].partitions[0].error_code``."""
    found: dict[str, Any] = {}
    _struct(
        tree(message.plan.kind, message.api_key, message.plan.version), message.plan.root, message.values, "", found
    )
    return found


def _struct(roles: RoleTree | None, of: StructPlan, values: tuple[Any, ...], path: str, found: dict[str, Any]) -> None:
    branches = {} if roles is None else {branch.at: branch for branch in roles.branches}
    for at, (field, value) in enumerate(zip(of.fields, values, strict=False)):
        branch = branches.get(at)
        if branch is not None and (branch.volatile or branch.role in _MOVING):
            continue
        if field.struct is None:
            if field.type not in ("bytes", "records", "uuid"):
                found[path + field.name] = jsonable(shown_value(field, value))
            continue
        inside = None if branch is None else branch.inside
        if value is None:
            found[path + field.name] = None
        elif not field.array:
            _struct(inside, field.struct, value, f"{path}{field.name}.", found)
        else:
            for number, item in enumerate(value):
                name = _about(inside, field.struct, item)
                _struct(inside, field.struct, item, f"{path}{field.name}[{number if name is None else name}].", found)


def _about(roles: RoleTree | None, of: StructPlan, values: tuple[Any, ...]) -> str | None:
    for branch in roles.branches if roles is not None else ():
        value = values[branch.at]
        if branch.role in _NAMES and not branch.field.array and value is not None:
            return str(value)
    for field, value in zip(of.fields, values, strict=False):
        if field.struct is None and not field.array and (field.map_key or field.name in ("api_key", "name")):
            return str(value)
    return None
