"""Values of fields in rules: whether they fit the fields, and error codes by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...decoder import EncodeError, encode_body
from ...decoder.codec.message import is_error_code
from ...decoder.schema import facts
from ...decoder.schema.plan import FieldPlan, StructPlan, plan
from ..answers.leaves import pattern
from ..conditions.input_value import InputValue

Place = tuple[str, int, int]
"""``"request"`` or ``"response"``, api key, version."""


def value_of(path: str, given: InputValue, places: Iterable[Place]) -> Any:
    """The value of a field, with codes instead of names of errors; raises `InvalidInput` if it fits none of the messages
    that have the field. `path`: as in `Message.replace`, or without indexes."""
    value, why = given.value, ""
    for side, key, version in places:
        chain = _chain(plan(side, key, version).root, pattern(path).split("."))
        if not chain or (path.endswith("]") and chain[-1].array):
            continue
        value = _coded(chain[-1], given.value, given)
        body = {chain[-1].name: value}
        for field in reversed(chain[:-1]):
            body = {field.name: [body] if field.array else body}
        try:
            encode_body(side, key, version, body)
        except EncodeError as error:
            where, _, text = str(error).partition(": ")
            if pattern(where).startswith(pattern(path)):
                why = why or f"{pattern(where)}: {text}"
                continue
        return value
    if why:
        given.invalid(why)
    return value


def _chain(struct: StructPlan, names: list[str]) -> list[FieldPlan]:
    """The fields along a path; empty if it leads nowhere."""
    found: list[FieldPlan] = []
    at: StructPlan | None = struct
    for name in names:
        field = next((each for each in at.fields if each.name == name), None) if at is not None else None
        if field is None:
            return []
        found.append(field)
        at = field.struct
    return found


def _coded(field: FieldPlan, value: Any, given: InputValue) -> Any:
    if isinstance(value, list):
        return [_coded(field, item, given) for item in value]
    if field.struct is not None and isinstance(value, Mapping):
        fields = {each.name: each for each in field.struct.fields}
        return {name: _coded(fields[name], item, given) if name in fields else item for name, item in value.items()}
    if is_error_code(field) and isinstance(value, str):
        try:
            return facts.error_code(value)
        except KeyError as error:
            given.invalid(str(error.args[0]))
    return value
