"""APIs, versions and error codes by name and number, from ``definitions/``.

Schema files are named ``NNN-Name.kafka`` (API key, API name), so that a key is found without reading every file. Each file is
parsed on first use.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from ..errors import UnknownName
from .notation import Definition, VersionRange, parse

_SCHEMA = resources.files(f"{__package__}.definitions")


class ErrorFact(NamedTuple):
    """One of Kafka's error codes (``org.apache.kafka.common.protocol.Errors``)."""

    code: int
    name: str
    retriable: bool


@dataclass(frozen=True, slots=True)
class FormerName:
    """A former name of an API, an error code or a field (`kind`: "api", "error", "field"). `today`: of a field,
    ``"Produce,Fetch:records"``. `where`: the releases or the draft that used it."""

    kind: str
    name: str
    today: str
    where: str


class Api(NamedTuple):
    """One API: key, name, and the definitions of its request and response."""

    key: int
    name: str
    request: Definition
    response: Definition

    @property
    def versions(self) -> VersionRange:
        """The versions that the schema has."""
        return self.request.versions


def schema_folder() -> Traversable:
    """The folder of the schema files."""
    return _SCHEMA


@cache
def _files() -> dict[int, str]:
    names = [entry.name for entry in _SCHEMA.iterdir() if entry.name[:3].isdigit() and entry.name.endswith(".kafka")]
    return {int(name[:3]): name for name in sorted(names)}


@cache
def _names() -> dict[str, int]:
    return {name[4:].removesuffix(".kafka"): key for key, name in _files().items()}


def api_keys() -> list[int]:
    """All known API keys, ascending."""
    return list(_files())


def api_name(key: int) -> str:
    """``"Metadata"`` for 3; ``"Api(1234)"`` for a key that no release has."""
    name = _files().get(key)
    return name[4:].removesuffix(".kafka") if name else f"Api({key})"


@cache
def former_names() -> tuple[FormerName, ...]:
    """Every former name of an API, an error code or a field."""
    lines = _SCHEMA.joinpath("former_names.txt").read_text("utf-8").splitlines()
    return tuple(FormerName(*line.split(maxsplit=3)) for line in lines if not line.startswith("#"))


@cache
def _former() -> dict[tuple[str, str], FormerName]:
    return {(former.kind, former.name.lower()): former for former in former_names()}


def former_name(kind: str, name: str) -> FormerName | None:
    """The API or error code that had this name once, in any case; None if there was none."""
    return _former().get((kind, name.lower()))


def api_key(name: str) -> int:
    """3 for ``"Metadata"``, in any case; former names are accepted too. Raises `UnknownName`, a KeyError, with the nearest
    name."""
    found = _names().get(name)
    if found is None:
        found = {n.lower(): k for n, k in _names().items()}.get(name.lower())
    if found is None and (former := former_name("api", name)) is not None:
        found = _names()[former.today]
    if found is None:
        raise _unknown("api", "API", name, list(_names()))
    return found


def api_key_set(*names: str) -> frozenset[int]:
    """The API keys of these names. Raises `UnknownName`."""
    return frozenset(map(api_key, names))


@cache
def api(key: int) -> Api:
    """The definitions of an API key. Raises KeyError if no release has it."""
    name = _files()[key]
    blocks = {d.kind: d for d in parse(_SCHEMA.joinpath(name).read_text("utf-8"), name)}
    return Api(key, api_name(key), blocks["request"], blocks["response"])


@cache
def extra_files() -> tuple[str, ...]:
    """The files of definitions that do not belong to an API, as `extra` accepts them."""
    embedded = (entry.name for entry in _SCHEMA.joinpath("embedded").iterdir())
    names = sorted(name.removesuffix(".kafka") for name in embedded if name.endswith(".kafka"))
    return ("headers", "data", *(f"embedded/{name}" for name in names))


@cache
def extra(file: str) -> dict[str, Definition]:
    """Definitions that do not belong to an API, by name. `file`: ``"headers"``, ``"data"``, ``"embedded/consumer_offsets"``
    ..."""
    name = f"{file}.kafka"
    return {d.name: d for d in parse(_SCHEMA.joinpath(name).read_text("utf-8"), name)}


@cache
def errors() -> dict[int, ErrorFact]:
    """Kafka's error table, by code."""
    table = {}
    for line in _SCHEMA.joinpath("errors.txt").read_text("utf-8").splitlines():
        words = line.split("#", 1)[0].split()
        if words:
            table[int(words[0])] = ErrorFact(int(words[0]), words[1], "retriable" in words[2:])
    return table


def is_retriable(code: int) -> bool:
    """Whether Kafka's clients try again after an error; False if the code is unknown."""
    fact = errors().get(code)
    return fact is not None and fact.retriable


def error_name(code: int) -> str:
    """``"NOT_LEADER_OR_FOLLOWER"`` for 6; ``"ERROR(1234)"`` for a code that no release has."""
    fact = errors().get(code)
    return fact.name if fact else f"ERROR({code})"


def error_code(name: str) -> int:
    """6 for ``"NOT_LEADER_OR_FOLLOWER"``, in any case; former names are accepted too.

    Raises `UnknownName`, a KeyError, with the nearest name.
    """
    former = former_name("error", name)
    wanted = former.today if former is not None else name.upper()
    for fact in errors().values():
        if fact.name == wanted:
            return fact.code
    raise _unknown("error", "error", name.upper(), [f.name for f in errors().values()])


def error_code_set(*names: str) -> frozenset[int]:
    """The error codes of these names. Raises `UnknownName`."""
    return frozenset(map(error_code, names))


def _unknown(kind: str, what: str, name: str, today: list[str]) -> UnknownName:
    known = [*today, *(former.name for former in former_names() if former.kind == kind)]
    # Beginnings of long names count: NOT_LEADR means NOT_LEADER_OR_FOLLOWER and not NOT_CONTROLLER.
    begun = {each[: len(name)]: each for each in reversed(known)}
    near = [begun[each] for each in difflib.get_close_matches(name, begun, 1, 0.8)]
    near = near or difflib.get_close_matches(name, known, 1, 0.5)
    former = former_name(kind, near[0]) if near else None
    meant = [former.today] if former is not None else near
    return UnknownName(f"unknown {what} {name!r}" + (f", did you mean {meant[0]}?" if meant else ""))
