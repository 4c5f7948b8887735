"""What fields mean: a line of text for every field of the APIs that clients send most, of drafts, and of what all frames and
records have, from ``explanations/fields.txt``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

from ..schema import facts
from ..schema.notation import NO_VERSIONS, Definition, FieldLine, snake_case
from .definitions import drafts
from .explanations.blocks import BlockError

_FILE = "fields.txt"
_LINE = re.compile(r"(?:((?:kip-\d+\.)?[A-Z][A-Za-z,]*) )?(?:(request|response) )?([a-z0-9_.]+): (\S.*)")
INDEX = re.compile(r"\[[^\]]*\]")
"""The indexes of a path, which `describe_field` ignores."""
HEADER = "header."
"""The paths of header fields begin so."""
_APIS = "@apis: "
_PARTS = {"header": "every API", "frame": "every API", "batch": "record batches", "record": "record batches"}
"""The paths of what is in no API's definition begin so; and where it is."""


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
    """Every field of an API or a draft, by side and path. Raises `UnknownName`, or `UnknownApi` for a draft."""
    if drafts.is_draft(api):
        name = drafts.named(api)
        both = (drafts.definition(name, "request"), drafts.definition(name, "response"))
    else:
        known = facts.api(facts.api_key(api))
        name, both = known.name, (known.request, known.response)
    described = drafts.is_draft(name) or name in _file().apis
    found: dict[tuple[str, str], SchemaField] = {}
    for of in both:
        for path, line in _walk(of):
            place = place_of(name, of.kind, path) if described else None
            versions = line.versions if line.versions != NO_VERSIONS else line.tagged
            shown = "" if all(version in versions for version in of.versions.every()) else str(versions)
            text = _file().lines[place] if place is not None else ""
            found[of.kind, path] = SchemaField(name, of.kind, path, shown, text)
    return found


@cache
def _parts(name: str) -> tuple[SchemaField, ...]:
    """The fields of the header, the frame, a batch or a record."""
    lines = ((place.path.partition("."), text) for place, text in _file().lines.items() if not place.api)
    return tuple(SchemaField(_PARTS[name], name, path, "", text) for (first, _, path), text in lines if first == name and path)


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
    """All fields by their names, the last step of their paths: of all APIs, of headers and records, and of drafts."""
    found: dict[str, list[SchemaField]] = {}
    apis = [*map(facts.api_name, facts.api_keys()), *drafts.names()]
    for each in (*(each for part in _PARTS for each in _parts(part)), *(each for api in apis for each in fields(api).values())):
        found.setdefault(each.path.rpartition(".")[2], []).append(each)
    return {name: tuple(uses) for name, uses in found.items()}


@cache
def by_former_name() -> dict[str, tuple[SchemaField, ...]]:
    """Today's fields by the names that they had. Raises `BlockError` for a line that names no field."""
    found: dict[str, list[SchemaField]] = {}
    for former in facts.former_names():
        if former.kind != "field":
            continue
        apis, _, end = former.today.rpartition(":")
        for api in apis.split(","):
            known = _parts(api) if api in _PARTS else fields(api).values()
            today = [each for each in known if f".{each.path}".endswith(f".{end}")]
            if not today:
                raise BlockError("former_names.txt", 1, 1, f"{former.name}: {api} has no field {end}")
            found.setdefault(former.name, []).extend(today)
    return {name: tuple(dict.fromkeys(uses)) for name, uses in found.items()}
