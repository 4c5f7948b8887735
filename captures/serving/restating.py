"""The same fields at another version, where nothing is lost.

What the other version does not have is left out if it holds its default, or may be left out by the schema's own word
(*ignorable*); what only the other version has takes its default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from uuid import UUID

from ...decoder.codec.encode import UNKNOWN_TAGS
from ...decoder.codec.plan import FieldPlan, StructPlan, plan, snake_case
from ...decoder.schema import facts
from ...decoder.schema.notation import Field


class NotExpressible(Exception):
    """The other version has no place for something; the text names the field."""


def convert(kind: str, api_key: int, given: int, wanted: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` of a request or response at version `given`, as they are at `wanted`. Raises `NotExpressible`."""
    source, target = plan(kind, api_key, given).root, plan(kind, api_key, wanted).root
    return _struct(source, target, fields, "", _ignorable(kind, api_key))


def convert_item(api_key: int, field: str, given: int, wanted: int, item: Mapping[str, Any]) -> dict[str, Any]:
    """One item of the array `field` of a response, restated."""
    inside = []
    for version in (given, wanted):
        root = plan("response", api_key, version).root
        inside.append(next((f.struct for f in root.fields if f.name == field), None))
    source, target = inside
    if source is None or target is None:
        raise NotExpressible(f"{field} is not in version {given if source is None else wanted}")
    return _struct(source, target, item, f"{field}.", _ignorable("response", api_key))


def fitting(kind: str, api_key: int, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` without those that the version does not have: for answers that are made, and say more than some
    versions can carry."""
    return _fitting(plan(kind, api_key, version).root, fields)


def _fitting(of: StructPlan, fields: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in of.fields:
        if field.name in fields:
            value = fields[field.name]
            if field.struct is not None and value is not None:
                inside = field.struct
                value = [_fitting(inside, item) for item in value] if field.array else _fitting(inside, value)
            if value is None and not field.nullable and field.type != "records":
                value = () if field.array else field.default
            out[field.name] = value
    return out


def _struct(
    source: StructPlan, target: StructPlan, fields: Mapping[str, Any], prefix: str, ignorable: frozenset[str]
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    known = {field.name: field for field in target.fields}
    for field in source.fields:
        if field.name not in fields:
            continue
        value = fields[field.name]
        there = known.get(field.name)
        if there is None:
            if not _empty(field, value) and prefix + field.name not in ignorable and not _only_if_asked(field):
                raise NotExpressible(f"{prefix}{field.name} = {value!r} has no place in that version")
        elif value is None and not there.nullable and there.type != "records":
            if not there.array:
                raise NotExpressible(f"{prefix}{field.name} is null, which that version cannot say")
            out[field.name] = []
        elif field.struct is not None and there.struct is not None and value is not None:
            inner = f"{prefix}{field.name}."
            if field.array:
                out[field.name] = [_struct(field.struct, there.struct, item, inner, ignorable) for item in value]
            else:
                out[field.name] = _struct(field.struct, there.struct, value, inner, ignorable)
        else:
            out[field.name] = value
    if target.flexible and fields.get(UNKNOWN_TAGS):
        out[UNKNOWN_TAGS] = fields[UNKNOWN_TAGS]
    return out


def _only_if_asked(field: FieldPlan) -> bool:
    """Whether brokers tell this only to requests that want it, as a version without the field cannot (KIP-430)."""
    return field.name.endswith("authorized_operations")


def _empty(field: FieldPlan, value: Any) -> bool:
    """Whether a value says no more than leaving the field out would."""
    if isinstance(value, UUID):
        return value.int == 0
    if field.array:
        return not value
    if field.struct is not None:
        return value is None or all(_empty(inner, value.get(inner.name)) for inner in field.struct.fields)
    return value is None or value == field.default


@cache
def _ignorable(kind: str, api_key: int) -> frozenset[str]:
    api = facts.api(api_key)
    definition = api.request if kind == "request" else api.response
    structs = dict(definition.structs)

    def walk(fields: tuple[Field, ...], prefix: str) -> Iterator[str]:
        for field in fields:
            path = prefix + snake_case(field.name)
            if field.ignorable:
                yield path
            yield from walk(field.fields or structs.get(field.type, ()), path + ".")

    return frozenset(walk(definition.fields, ""))
