"""Explain errors, APIs, KIPs and settings: ``find("UNSUPPORTED_VERSION")``.

The texts are in ``explanations/``. Numbers, names, versions, fields, releases and what may be retried come from the schema and
its tables.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

from ..codec.plan import snake_case
from ..errors import DecoderError
from ..schema import facts
from ..schema.notation import NO_VERSIONS, Definition, FieldLine, VersionRange
from . import releases
from .explanations import texts

_LIKE = 0.75  # of difflib's ratio: words that are less alike are not suggested
_LIBRDKAFKA = ("RD_KAFKA_RESP_ERR_", "ERR_")


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of an error; `api`: of that API alone."""

    api: str | None
    text: str


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error code explained. `apis`: whose responses can have it; `every`: all of them, and `apis` is empty."""

    code: int
    name: str
    retriable: bool
    what: str
    every: bool
    apis: tuple[str, ...]
    causes: tuple[Cause, ...]
    do: tuple[str, ...]
    kips: tuple[str, ...]
    see: tuple[str, ...]
    alias: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VersionFact:
    """A version of an API, the first release with it, and the release that dropped it (None if none has)."""

    version: int
    since: str | None
    removed: str | None


@dataclass(frozen=True, slots=True)
class FieldFact:
    """A field over all versions. `versions` is "" if all have it; `depth` counts from 0."""

    name: str
    type: str
    versions: str
    depth: int


@dataclass(frozen=True, slots=True)
class ApiText:
    """An API explained. `errors`: those that its responses can have, besides those of every API."""

    key: int
    name: str
    purpose: str
    senders: tuple[str, ...]
    waits: str
    notes: tuple[str, ...]
    versions: tuple[VersionFact, ...]
    flexible: str
    request: tuple[FieldFact, ...]
    response: tuple[FieldFact, ...]
    errors: tuple[str, ...]
    kips: tuple[str, ...]
    see: tuple[str, ...]
    alias: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KipText:
    """A KIP explained. `apis`: (name, versions or "")."""

    number: int
    name: str
    title: str
    since: str
    what: str
    apis: tuple[tuple[str, str], ...]
    errors: tuple[str, ...]
    see: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingText:
    """A setting explained. `errors`: those whose explanations name it."""

    name: str
    of: tuple[str, ...]
    default: str
    what: str
    same: str
    wire: str
    errors: tuple[str, ...]
    see: tuple[str, ...]


Explanation = ErrorText | ApiText | KipText | SettingText


class UnknownTerm(DecoderError, KeyError):
    """Nothing has that name; `near` has the nearest names."""

    def __init__(self, word: str, near: tuple[str, ...]) -> None:
        super().__init__(word)
        self.word, self.near = word, near


# --- finding -----------------------------------------------------------------------------------------------


def find(word: str) -> list[Explanation]:
    """Everything that `word` may mean; a number is an error code and an API key, or else a KIP. Raises `UnknownTerm`."""
    word = word.strip()
    if re.fullmatch(r"-?\d+", word):
        number = int(word)
        found: list[Explanation] = []
        if number in facts.errors():
            found.append(error(number))
        if number in facts.api_keys():
            found.append(api(number))
        if not found and f"KIP-{word}" in texts.kips():
            found.append(kip(f"KIP-{word}"))
    else:
        found = [meaning.explain(meaning.key) for meaning in _names().get(_folded(word), ())]
    if not found:
        raise UnknownTerm(word, _near(word))
    return found


def _folded(word: str) -> str:
    """Letters and digits only, so that NotLeaderOrFollower, NOT_LEADER_OR_FOLLOWER and kip 896 are found."""
    for prefix in _LIBRDKAFKA:
        word = word.removeprefix(prefix)
    return re.sub(r"[^a-z0-9]", "", word.lower())


class _Meaning(NamedTuple):
    """One of the four functions below, and its argument."""

    explain: Callable[[Any], Explanation]
    key: int | str


@cache
def _names() -> dict[str, list[_Meaning]]:
    """Every known name, folded, and its meanings."""
    out: dict[str, list[_Meaning]] = {}

    def add(name: str, explain: Callable[[Any], Explanation], key: int | str) -> None:
        known = out.setdefault(_folded(name), [])
        if _Meaning(explain, key) not in known:
            known.append(_Meaning(explain, key))

    for code, fact in facts.errors().items():
        for name in (fact.name, *texts.errors()[fact.name].words("alias")):
            # Java: NotLeaderOrFollowerException, Python: NotLeaderOrFollowerError
            for variant in (name, f"{name}Exception", f"{name}Error"):
                add(variant, error, code)
    for key in facts.api_keys():
        for name in (facts.api_name(key), *texts.apis()[facts.api_name(key)].words("alias")):
            for variant in (name, f"{name}Request", f"{name}Response"):
                add(variant, api, key)
    for name in texts.kips():
        add(name, kip, name)
    for name in texts.settings():
        add(name, setting, name)
    return out


def names() -> list[str]:
    """The names of everything that is explained, for completion and suggestions."""
    errors = [fact.name for fact in facts.errors().values()]
    return [*errors, *map(facts.api_name, facts.api_keys()), *texts.kips(), *texts.settings()]


def _near(word: str) -> tuple[str, ...]:
    """The names most like a word, or whose beginning is (``NOT_LEDER``), and those that contain it."""
    folded = _folded(word)
    ranked = []
    for name in names():
        full = _folded(name)
        like = max(difflib.SequenceMatcher(None, folded, part).ratio() for part in (full, full[: len(folded) + 1]))
        if len(folded) >= 4 and folded in full:
            like = max(like, 0.95)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(folded, full, strict=False)))
        ranked.append((-like, -alike, name))
    return tuple(name for like, _, name in sorted(ranked)[:4] if like <= -_LIKE)


# --- the four kinds ----------------------------------------------------------------------------------------


@cache
def error(code: int) -> ErrorText:
    """The explanation of an error code. Raises KeyError if there is none."""
    fact = facts.errors()[code]
    block = texts.errors()[fact.name]
    apis, every = texts.carriers(block)
    return ErrorText(
        code=code,
        name=fact.name,
        retriable=fact.retriable,
        what=block.text("what"),
        every=every,
        apis=apis,
        causes=tuple(Cause(entry.argument, entry.text) for entry in block.all("cause")),
        do=tuple(entry.text for entry in block.all("do")),
        kips=tuple(name for name, kip_ in texts.kips().items() if fact.name in kip_.words("errors")),
        see=tuple(block.words("see")),
        alias=tuple(block.words("alias")),
    )


@cache
def api(key: int) -> ApiText:
    """The explanation of an API. Raises KeyError if there is none."""
    known = facts.api(key)
    block = texts.apis()[known.name]
    return ApiText(
        key=key,
        name=known.name,
        purpose=block.text("purpose"),
        senders=tuple(block.words("from")),
        waits=block.text("waits"),
        notes=tuple(entry.text for entry in block.all("note")),
        versions=tuple(_version(key, version) for version in known.versions.every()),
        flexible="" if known.request.flexible == NO_VERSIONS else str(known.request.flexible),
        request=tuple(_fields(known.request)),
        response=tuple(_fields(known.response)),
        errors=tuple(e.name for e in map(error, facts.errors()) if known.name in e.apis),
        kips=tuple(name for name, kip_ in texts.kips().items() if any(a == known.name for a, _ in texts.touched(kip_))),
        see=tuple(block.words("see")),
        alias=tuple(block.words("alias")),
    )


@cache
def kip(name: str) -> KipText:
    """The explanation of a KIP by its name, ``"KIP-848"``. Raises KeyError if there is none."""
    block = texts.kips()[name]
    return KipText(
        number=int(name[4:]),
        name=name,
        title=block.text("title"),
        since=block.text("since"),
        what=block.text("what"),
        apis=tuple(texts.touched(block)),
        errors=tuple(block.words("errors")),
        see=tuple(block.words("see")),
    )


@cache
def setting(name: str) -> SettingText:
    """The explanation of a setting by its full name. Raises KeyError if there is none."""
    block = texts.settings()[name]
    return SettingText(
        name=name,
        of=tuple(block.words("of")),
        default=block.text("default"),
        what=block.text("what"),
        same=block.text("same"),
        wire=block.text("wire"),
        errors=tuple(e.name for e in map(error, facts.errors()) if name in e.see),
        see=tuple(block.words("see")),
    )


def meaning(api_name: str, field: str, value: object) -> str:
    """The word for a number in the field `field` of an API's message, or ""."""
    if not isinstance(value, int):
        return ""
    if field in ("api_key", "request_api_key"):
        return facts.api_name(value)
    table = texts.values().get((api_name, field)) or texts.values().get(("", field))
    return table.get(value, "") if table else ""


def _version(key: int, version: int) -> VersionFact:
    removal = releases.removed(key, version)
    return VersionFact(version, releases.since(key, version), removal.release if removal else None)


def _fields(of: Definition) -> Iterator[FieldFact]:
    def walk(fields: tuple[FieldLine, ...], depth: int, around: VersionRange) -> Iterator[FieldFact]:
        for field in fields:
            versions = field.versions if field.versions != NO_VERSIONS else field.tagged
            some = not all(v in versions for v in of.versions.every() if v in around)
            kind = ("[]" if field.array else "") + field.type + ("?" if field.nullable != NO_VERSIONS else "")
            yield FieldFact(snake_case(field.name), kind, str(versions) if some else "", depth)
            inner = field.fields or dict(of.structs).get(field.type, ())
            if depth < 3:
                yield from walk(inner, depth + 1, versions)

    yield from walk(of.fields, 0, of.versions)


def check() -> None:
    """Read all explanations and check their references. Raises `BlockError`."""
    known = set(names())
    for blocks in (texts.errors(), texts.apis(), texts.kips(), texts.settings()):
        for block in blocks.values():
            texts.check_words(block, "see", known)
    texts.values()
    for code in facts.errors():
        error(code)
