"""Where a response has a certain error, and what it has around it. The facts are in ``schema/definitions/error_places.txt`` and
``error_fields.txt``.

They are tested against Kafka's `getErrorResponse` and real brokers (tests/real/kafka_classes/test_error_answers.py,
test_error_places.py and test_error_fields.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from . import facts
from .meaning import Meaning
from .plan import FieldPlan, StructPlan, plan

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


class BrokerKind(NamedTuple):
    """A broker by its release, as ``(2, 2)``, and whether it uses ZooKeeper."""

    release: tuple[int, ...]
    zookeeper: bool


class FieldRow(NamedTuple):
    """A line of ``error_fields.txt``. `error_code`: None for every error. `before`: a release, empty for all."""

    values: dict[str, str]
    error_code: int | None
    before: tuple[int, ...] = ()
    zookeeper: bool = False

    @property
    def of_some(self) -> bool:
        """Whether it holds for some brokers only."""
        return bool(self.before) or self.zookeeper

    def holds(self, broker: BrokerKind | None) -> bool:
        """Whether it holds for this broker."""
        if not self.of_some:
            return True
        return broker is not None and (not self.before or broker.release < self.before) and (not self.zookeeper or broker.zookeeper)


@lru_cache(4096)
def fields(api_key: int, error_code: int, broker: BrokerKind | None = None) -> dict[str, str]:
    """What stands around an error, by field: the table's word for the value. `broker`: None for one of today."""
    found: dict[str, str] = {}
    for row in _rows().get(api_key, ()):
        if row.error_code in (None, error_code) and row.holds(broker):
            found |= row.values
    return found


def depends_on_broker(api_key: int, error_code: int) -> bool:
    """Whether what stands around an error is not the same with all brokers."""
    return any(row.of_some and row.error_code in (None, error_code) for row in _rows().get(api_key, ()))


@cache
def _rows() -> dict[int, list[FieldRow]]:
    """By api key; of two rows that set the same field the later one counts."""
    found: dict[int, list[FieldRow]] = {}
    for line in facts.schema_folder().joinpath("error_fields.txt").read_text("utf-8").splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        apis, names, value, *errors = words
        values = dict.fromkeys(names.split(","), value)
        before: tuple[int, ...] = ()
        if errors and errors[-1].startswith("<"):
            before = tuple(map(int, errors.pop()[1:].split(".")))
        zookeeper = bool(errors) and errors[-1] == "zk"
        codes: list[int | None] = [facts.error_code(error) for error in errors[: len(errors) - zookeeper]]
        for key in map(facts.api_key, apis.split(",")):
            found.setdefault(key, []).extend(FieldRow(values, code, before, zookeeper) for code in codes or [None])
    for rows in found.values():
        rows.sort(key=lambda row: (row.error_code is not None, row.of_some))
    return found


def error_field(struct: StructPlan) -> FieldPlan | None:
    """The first error code of a struct."""
    return next((field for field in struct.fields if field.meaning is Meaning.ERROR and field.tag is None), None)


def has_errors(struct: StructPlan) -> bool:
    """Whether a struct, or one inside it, has an error code."""
    return any(f.meaning is Meaning.ERROR or (f.struct is not None and has_errors(f.struct)) for f in struct.fields)


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
