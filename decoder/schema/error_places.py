"""Where a response has a certain error, and what it has around it. The facts are in ``schema/definitions/error_places.txt`` and
``error_fields.txt``.

They are tested against Kafka's `getErrorResponse` and real brokers (tests/real/kafka_classes/test_error_answers.py,
test_error_places.py and test_error_fields.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ..codec.message import is_error_code
from ..codec.plan import FieldPlan, StructPlan, plan
from . import facts

RESPONSE, EVERYWHERE = "response", "everywhere"
"""Words of the table that are no name of an array."""


class ErrorPlace(NamedTuple):
    """Where an error is in the responses of one version.

    `arrays`: the arrays whose entries have it; empty: the response itself. `field`: of an entry; empty: its first error code.
    `whole`: it is about the whole request. `parts`: it is repeated in the outermost parts that have an error code. `alone`: it
    never is, and the session has ended.
    """

    arrays: frozenset[str] = frozenset()
    field: str = ""
    whole: bool = False
    parts: bool = False
    alone: bool = False


class _Table(NamedTuple):
    places: dict[tuple[int, int], str]
    """By api key and error code: the table's word for the place."""
    everywhere: dict[int, tuple[int, int]]
    """By api key: the versions at which errors of the whole are repeated."""


@cache
def _table() -> _Table:
    found = _Table({}, {})
    for line in facts.schema_folder().joinpath("error_places.txt").read_text("utf-8").splitlines():
        words = line.split("#", 1)[0].split()
        for name in words[0].split(",") if words else ():
            key = facts.api_key(name)
            if words[1] == EVERYWHERE:
                low, _, high = (words[2] if len(words) > 2 else "0-32767").partition("-")
                found.everywhere[key] = int(low), int(high)
                continue
            for error in words[2:]:
                if found.places.setdefault((key, facts.error_code(error)), words[1]) != words[1]:
                    raise ValueError(f"error_places.txt: {name} gives {error} two places")
    return found


@cache
def fields(api_key: int, error_code: int) -> dict[str, str]:
    """What stands around an error, by field: the table's word for the value."""
    usual, own = _fields()
    return usual.get(api_key, {}) | own.get((api_key, error_code), {})


@cache
def _fields() -> tuple[dict[int, dict[str, str]], dict[tuple[int, int], dict[str, str]]]:
    """By api key; by api key and error code."""
    usual: dict[int, dict[str, str]] = {}
    own: dict[tuple[int, int], dict[str, str]] = {}
    for line in facts.schema_folder().joinpath("error_fields.txt").read_text("utf-8").splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        apis, names, value, *errors = words
        values = dict.fromkeys(names.split(","), value)
        for key in map(facts.api_key, apis.split(",")):
            if not errors:
                usual.setdefault(key, {}).update(values)
            for error in errors:
                own.setdefault((key, facts.error_code(error)), {}).update(values)
    return usual, own


def error_field(struct: StructPlan) -> FieldPlan | None:
    """The first error code of a struct."""
    return next((field for field in struct.fields if is_error_code(field) and field.tag is None), None)


def has_errors(struct: StructPlan) -> bool:
    """Whether a struct, or one inside it, has an error code."""
    return any(is_error_code(f) or (f.struct is not None and has_errors(f.struct)) for f in struct.fields)


@cache
def of(api_key: int, api_version: int, error_code: int) -> ErrorPlace:
    """Where the responses of an API at a version have an error."""
    root = plan("response", api_key, api_version).root
    word = _table().places.get((api_key, error_code), "")
    own = error_field(root) is not None
    name, _, field = word.partition(".")
    if name and name != RESPONSE:
        found = next((struct for array, struct in _arrays(root) if array == name), None)
        if found is not None and (not field or any(each.name == field for each in found.fields)):
            return ErrorPlace(frozenset({name}), field)
    if own:
        low, high = _table().everywhere.get(api_key, (0, -1))
        return ErrorPlace(whole=True, parts=name != RESPONSE and low <= api_version <= high, alone=name == RESPONSE)
    return ErrorPlace(frozenset(_outermost(root)), whole=True)


def _arrays(struct: StructPlan) -> Iterator[tuple[str, StructPlan]]:
    """All arrays of structs inside a struct, by name."""
    for field in struct.fields:
        if field.struct is not None:
            if field.array:
                yield field.name, field.struct
            yield from _arrays(field.struct)


def _outermost(struct: StructPlan) -> Iterator[str]:
    """The arrays whose entries have an error code, and which are not in an entry that has one."""
    for field in struct.fields:
        if field.struct is not None and field.tag is None:
            if field.array and error_field(field.struct) is not None:
                yield field.name
            else:
                yield from _outermost(field.struct)
