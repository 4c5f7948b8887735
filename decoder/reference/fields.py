"""What fields mean: a line of text for every field of the APIs that clients send most, from ``explanations/fields.txt``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

from ..codec.plan import snake_case
from ..schema import facts
from ..schema.notation import NO_VERSIONS, Definition, FieldLine
from .explanations.blocks import BlockError

_FILE = "fields.txt"
_LINE = re.compile(r"(?:([A-Z][A-Za-z,]*) )?(?:(request|response) )?([a-z0-9_.]+): (\S.*)")
INDEX = re.compile(r"\[[^\]]*\]")
"""The indexes of a path, which `describe_field` ignores."""
HEADER = "header."
"""The paths of header fields begin so."""
_APIS = "@apis: "


class Place(NamedTuple):
    """Where a line of the file applies: an API and a side ("request", "response"), each "" for all; and the end of a path."""

    api: str
    side: str
    path: str


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field of one API over all versions. `path` has its snake_case names without indexes; `versions` is "" if all have it;
    `text` is "" if undescribed."""

    api: str
    side: str
    path: str
    versions: str
    text: str


class _File(NamedTuple):
    apis: tuple[str, ...]
    lines: dict[Place, str]


@cache
def _file() -> _File:
    apis: list[str] = []
    lines: dict[Place, str] = {}
    text = resources.files(f"{__package__}.explanations").joinpath(_FILE).read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith(_APIS):
            apis += line.removeprefix(_APIS).split(", ")
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise BlockError(_FILE, number, 1, "not a line of the form: [API] [request|response] field: text")
        for api in (match[1] or "").split(","):
            place = Place(api, match[2] or "", match[3])
            if place in lines:
                raise BlockError(_FILE, number, 1, f"{' '.join(filter(None, place))} is described twice")
            lines[place] = match[4]
    return _File(tuple(apis), lines)


def described_apis() -> tuple[str, ...]:
    """The APIs whose fields are all described."""
    return _file().apis


def places() -> dict[Place, str]:
    """Every line of the file."""
    return _file().lines


def place_of(api: str, side: str, path: str) -> Place | None:
    """The line that describes a field: the longest path counts, then an API's own line, then one for a side. None if there
    is none."""
    lines, end = _file().lines, path
    while end:
        for place in (Place(api, side, end), Place(api, "", end), Place("", side, end), Place("", "", end)):
            if place in lines:
                return place
        end = end.partition(".")[2]
    return None


@cache
def fields(api: str) -> dict[tuple[str, str], SchemaField]:
    """Every field of an API, by side and path. Raises `UnknownName`."""
    known = facts.api(facts.api_key(api))
    found: dict[tuple[str, str], SchemaField] = {}
    for of in (known.request, known.response):
        for path, line in _walk(of):
            place = place_of(known.name, of.kind, path) if known.name in _file().apis else None
            versions = line.versions if line.versions != NO_VERSIONS else line.tagged
            shown = "" if all(version in versions for version in of.versions.every()) else str(versions)
            text = _file().lines[place] if place is not None else ""
            found[of.kind, path] = SchemaField(known.name, of.kind, path, shown, text)
    return found


def _walk(of: Definition) -> Iterator[tuple[str, FieldLine]]:
    shared = dict(of.structs)

    def walk(lines: tuple[FieldLine, ...], prefix: str, around: tuple[str, ...]) -> Iterator[tuple[str, FieldLine]]:
        for line in lines:
            path = prefix + snake_case(line.name)
            yield path, line
            if line.type not in around:  # a struct may hold itself
                yield from walk(line.fields or shared.get(line.type, ()), f"{path}.", (*around, line.type))

    return walk(of.fields, "", ())


def describe_field(api: str, path: str, side: str = "") -> str | None:
    """What a field means, in one line; None for a field that is unknown or not described.

    `path`: ``"topics.partitions.partition_max_bytes"``, ``"header.client_id"``; indexes are ignored. `side`: "request" or
    "response"; the first one that has the field if left out.
    """
    if path.startswith(HEADER):
        return _file().lines.get(Place("", "", path))
    try:
        known = fields(api)
    except KeyError:
        return None
    plain = INDEX.sub("", path)
    for each in (side,) if side else ("request", "response"):
        found = known.get((each, plain))
        if found is not None:
            return found.text or None
    return None


@cache
def by_name() -> dict[str, tuple[SchemaField, ...]]:
    """All fields of all APIs by their names, the last step of their paths."""
    found: dict[str, list[SchemaField]] = {}
    for key in facts.api_keys():
        for each in fields(facts.api_name(key)).values():
            found.setdefault(each.path.rpartition(".")[2], []).append(each)
    return {name: tuple(uses) for name, uses in found.items()}
