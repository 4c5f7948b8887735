"""Fields of one version converted to those of another, derived from the schema alone.

A field that the target version lacks may be dropped if the definition calls it ignorable or if it holds its default;
anything else is a loss, which is reported. A field that the source lacks gets its default in `decoder.encode_request`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from ...decoder.codec.encode import UNKNOWN_TAGS
from ...decoder.codec.message import is_error_code, shown_value
from ...decoder.schema import facts
from ...decoder.schema.notation import Definition, FieldLine, snake_case
from ...decoder.schema.plan import FieldPlan, StructPlan, plan

Fields = dict[str, Any]


class Fact(NamedTuple):
    """A field as in every version that has it. `struct`: the facts of its own fields."""

    ignorable: bool
    default: Any
    struct: Mapping[str, Fact]


class FieldLoss(NamedTuple):
    """A value that the target version cannot hold. `path` names no indexes: ``"topics.partitions.timestamp"``."""

    path: str
    value: Any


def fit(kind: str, api_key: int, version: int, fields: Mapping[str, Any], losses: list[FieldLoss]) -> Fields:
    """The fields that a ``"request"`` or ``"response"`` has at `version`; values that are lost are added to `losses`."""
    return _fit(plan(kind, api_key, version).root, _facts(kind, api_key), fields, "", losses)


def _fit(
    target: StructPlan, known: Mapping[str, Fact], fields: Mapping[str, Any], prefix: str, losses: list[FieldLoss]
) -> Fields:
    places = _places(target)
    out: Fields = {}
    for name, value in fields.items():
        place = places.get(name)
        fact = known.get(name)
        if place is None:
            if name == UNKNOWN_TAGS:
                if target.flexible:
                    out[name] = value
            elif fact is None or not (fact.ignorable or value == fact.default):
                losses.append(FieldLoss(prefix + name, value))
        elif value is None and not place.nullable and place.type != "records":
            out[name] = _empty(place)
            if fact is None or not fact.ignorable:
                losses.append(FieldLoss(prefix + name, None))
        elif place.struct is None or value is None:
            out[name] = value
        else:
            inner = fact.struct if fact is not None else {}
            if place.array:
                out[name] = [_fit(place.struct, inner, item, f"{prefix}{name}.", losses) for item in value]
            else:
                out[name] = _fit(place.struct, inner, value, f"{prefix}{name}.", losses)
    return out


def error_codes(struct: StructPlan, fields: Fields, change: Mapping[int, int]) -> None:
    """Replace error codes in place, wherever a response has them."""
    for field in struct.fields:
        value = fields.get(field.name)
        if value is None:
            continue
        if field.struct is not None:
            for item in value if field.array else (value,):
                error_codes(field.struct, item, change)
        elif is_error_code(field) and value in change:
            fields[field.name] = change[value]


def lost_by_definition(kind: str, api_key: int, source: int, target: int) -> list[str]:
    """Paths of fields that `source` has, `target` lacks, and that are not ignorable: lost unless they hold their
    default."""
    return list(_missing(plan(kind, api_key, source).root, plan(kind, api_key, target).root, _facts(kind, api_key), ""))


def _missing(source: StructPlan, target: StructPlan, known: Mapping[str, Fact], prefix: str) -> list[str]:
    found: list[str] = []
    places = _places(target)
    for field in source.fields:
        fact = known[field.name]
        place = places.get(field.name)
        if place is None:
            if not fact.ignorable:
                found.append(prefix + field.name)
        elif field.struct is not None and place.struct is not None:
            found += _missing(field.struct, place.struct, fact.struct, f"{prefix}{field.name}.")
    return found


@cache
def _places(struct: StructPlan) -> dict[str, FieldPlan]:
    return {field.name: field for field in struct.fields}


def _empty(field: FieldPlan) -> Any:
    if field.array:
        return []
    return "" if field.type == "string" else b""


@cache
def _facts(kind: str, api_key: int) -> dict[str, Fact]:
    """The fields of all versions by name; within one message a name has one meaning."""
    api = facts.api(api_key)
    definition = api.request if kind == "request" else api.response
    newest = [plan(kind, api_key, version).root for version in reversed(api.versions.every())]
    return _union(definition, definition.fields, newest)


def _union(definition: Definition, fields: tuple[FieldLine, ...], plans: list[StructPlan]) -> dict[str, Fact]:
    found: dict[str, Fact] = {}
    for field in fields:
        name = snake_case(field.name)
        places = [place for struct in plans if (place := _places(struct).get(name)) is not None]
        if not places:
            continue
        inner: dict[str, Fact] = {}
        if places[0].struct is not None:
            of = field.fields or definition.struct(field.type)
            inner = _union(definition, of, [place.struct for place in places if place.struct is not None])
        found[name] = Fact(field.ignorable, shown_value(places[0], places[0].default), inner)
    return found
