"""What a person types for a field, as the value that the field takes; and a value as it is shown for typing.

Numbers are checked against their type, error codes are taken by name, bytes as hexadecimal, lists as YAML writes them.
"""

from __future__ import annotations

import difflib
import uuid
from typing import Any

import yaml

from ...decoder import facts
from ...decoder.encode import value_from
from ...decoder.errors import EncodeError
from ...decoder.message import is_error_code
from ...decoder.plan import FieldPlan

RANGES: dict[str, tuple[int, int]] = {
    **{f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
}


class BadValue(ValueError):
    """The text is no value for the field; it says what would be."""


def kind(field: FieldPlan) -> str:
    """What may be typed, in a few words."""
    one = {
        "string": "text", "bytes": "bytes in hexadecimal", "uuid": "a UUID", "bool": "true or false",
        "float64": "a number",
    }.get(field.type, "")  # fmt: skip
    if is_error_code(field):
        one = "an error code, by name or number"
    elif field.type in RANGES:
        low, high = RANGES[field.type]
        one = f"a whole number, {low:,} to {high:,}"
    return (f"[a, b]: a list, each {one}" if field.array else one) + (", or null" if field.nullable else "")


def shown(field: FieldPlan, value: Any) -> str:
    """A value of `Message.to_json` for typing."""
    if value is None:
        return "null"
    if field.array:
        items = [facts.error_name(item) if is_error_code(field) else item for item in value]
        return yaml.safe_dump(items, default_flow_style=True, width=1 << 30, allow_unicode=True).strip()
    if is_error_code(field):
        return facts.error_name(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and (value == "null" or value != value.strip() or value[:1] in ("'", '"')):
        return f'"{value}"'
    return str(value)


def typed(field: FieldPlan, text: str) -> Any:
    """The value that `text` stands for, with JSON's types. Raises `BadValue`."""
    if text.strip() == "null":
        if not field.nullable:
            raise BadValue(f"{field.name} cannot be null at this version: {kind(field)}")
        return None
    if not field.array:
        return checked(field, _one(field, text))
    try:
        items = yaml.safe_load(text)
    except yaml.YAMLError:
        raise BadValue(f"this is no list: {kind(field)}") from None
    if not isinstance(items, list):
        raise BadValue(f"expected a list in [ ]: {kind(field)}")
    return checked(field, items)


def _one(field: FieldPlan, text: str) -> Any:
    if field.type == "string":
        if len(text) > 1 and text[0] == text[-1] == '"':
            return text[1:-1]
        return text
    word = text.strip()
    if field.type == "bool":
        if word.lower() not in ("true", "false"):
            raise BadValue("true or false")
        return word.lower() == "true"
    return word


def checked(field: FieldPlan, value: Any) -> Any:
    """A value as YAML or a person gives it, as JSON can hold it and the field can take it. Raises `BadValue`."""
    if value is None:
        if not (field.nullable or field.type == "records"):
            raise BadValue(f"{field.name} cannot be null at this version: {kind(field)}")
        return None
    if field.array:
        if not isinstance(value, list):
            raise BadValue(f"expected a list: {kind(field)}")
        return [_item(field, item) for item in value]
    return _item(field, value)


def _item(field: FieldPlan, value: Any) -> Any:
    if is_error_code(field) and isinstance(value, str) and not _is_whole(value):
        return _code(value.strip())
    if field.type in RANGES:
        return _whole(field, value)
    if field.type == "float64":
        try:
            return float(value)
        except (TypeError, ValueError):
            raise BadValue(f"{value!r} is no number") from None
    if field.type == "string" and not isinstance(value, str):
        raise BadValue(f"expected text, got {value!r}: put it in quotes")
    if field.type == "bool" and not isinstance(value, bool):
        raise BadValue(f"expected true or false, got {value!r}")
    if field.type in ("bytes", "uuid"):
        value = str(value).strip()
    try:
        one = value_from(field, [value] if field.array else value, field.name)
    except EncodeError as error:
        raise BadValue(f"{error}: {kind(field)}") from None
    if field.type == "uuid":
        del one  # it was only to be checked
        return str(uuid.UUID(value)) if len(value) > 22 else value
    return value


def _is_whole(text: str) -> bool:
    return text.strip().lstrip("+-").replace("_", "").isdecimal()


def _whole(field: FieldPlan, value: Any) -> int:
    low, high = RANGES[field.type]
    if isinstance(value, str):
        try:
            value = int(value.strip(), 0)
        except ValueError:
            raise BadValue(f"{value!r} is no whole number: {kind(field)}") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(f"{value!r} is no whole number: {kind(field)}")
    if not low <= value <= high:
        raise BadValue(f"{value} does not fit an {field.type}: {low:,} to {high:,}")
    return value


def _code(name: str) -> int:
    names = {fact.name: code for code, fact in facts.errors().items()}
    found = names.get(name.upper())
    if found is None:
        near = difflib.get_close_matches(name.upper(), list(names), 1)
        raise BadValue(f"no error is called {name!r}" + (f", did you mean {near[0]}?" if near else ""))
    return found
