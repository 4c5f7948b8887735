"""Explain errors, APIs, drafts, KIPs, settings, fields and the words for their values: ``find("UNSUPPORTED_VERSION")``.

The texts are in ``explanations/``. Numbers, names, versions, fields, releases and what may be retried come from the schema and
its tables.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

from ..errors import DecoderError
from ..schema import facts
from ..schema.facts import FormerName
from ..schema.notation import NO_VERSIONS, Definition, FieldLine, VersionRange, snake_case
from . import fields, releases
from .definitions import drafts
from .explanations import texts
from .explanations.blocks import TextBlock
from .fields import SchemaField

_LIKE = 0.75  # of difflib's ratio: words that are less alike are not suggested
_FIELD = re.compile(r"[a-z][a-z0-9_]*")
_LIBRDKAFKA = ("RD_KAFKA_RESP_ERR_", "ERR_")


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of an error; `api`: of that API alone."""

    api: str | None
    text: str


@dataclass(frozen=True, slots=True)
class ErrorIn:
    """What differs where an error comes from one API: `what` is "" and `do` empty if the general text holds."""

    api: str
    what: str
    do: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error code explained. `apis`: whose responses can have it; `every`: all of them, and `apis` is empty; `differs`: APIs in which it
    means something else; `alias`: names that clients give it; `former`: names that Kafka gave it."""

    code: int
    name: str
    retriable: bool
    what: str
    every: bool
    apis: tuple[str, ...]
    causes: tuple[Cause, ...]
    do: tuple[str, ...]
    differs: tuple[ErrorIn, ...]
    kips: tuple[str, ...]
    see: tuple[str, ...]
    alias: tuple[str, ...]
    former: tuple[FormerName, ...]

    def of(self, api: str) -> ErrorText:
        """The same, with the texts that hold for one API. Its own causes are all, if it has any."""
        own = next((each for each in self.differs if each.api == api), ErrorIn(api, "", ()))
        causes = [each for each in self.causes if each.api == api] or [each for each in self.causes if each.api is None]
        return replace(self, what=own.what or self.what, causes=tuple(causes), do=own.do or self.do)


@dataclass(frozen=True, slots=True)
class VersionFact:
    """A version of an API, the first release with it, and the release that dropped it (None if none has)."""

    version: int
    since: str | None
    removed: str | None


@dataclass(frozen=True, slots=True)
class FieldFact:
    """A field over all versions. `versions` is "" if all have it; `depth` counts from 0; `text` is "" if undescribed."""

    name: str
    type: str
    versions: str
    depth: int
    text: str


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
    former: tuple[FormerName, ...]


@dataclass(frozen=True, slots=True)
class KipText:
    """A KIP explained. `apis`: (name, versions or ""). `issues`: the issues that brought it into Kafka."""

    number: int
    name: str
    title: str
    since: str
    what: str
    apis: tuple[tuple[str, str], ...]
    errors: tuple[str, ...]
    issues: tuple[str, ...]
    see: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DraftText:
    """A message that was proposed and never shipped in that form, explained. `today`: the APIs that do this."""

    name: str
    purpose: str
    today: tuple[str, ...]
    request: tuple[FieldFact, ...]
    response: tuple[FieldFact, ...]


@dataclass(frozen=True, slots=True)
class SettingText:
    """A setting explained. `today`: the setting that took its place, or ""; `errors`: those whose explanations name it."""

    name: str
    of: tuple[str, ...]
    today: str
    default: str
    what: str
    same: str
    wire: str
    errors: tuple[str, ...]
    see: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldText:
    """The fields of a name that mean the same. `text`: what they mean, or "" if undescribed; `values`: the meanings of values."""

    name: str
    text: str
    places: tuple[SchemaField, ...]
    values: tuple[tuple[int | str, str], ...]


Explanation = ErrorText | ApiText | DraftText | KipText | SettingText | FieldText


class UnknownTerm(DecoderError, KeyError):
    """Nothing has that name; `near` has the nearest names."""

    def __init__(self, word: str, near: tuple[str, ...]) -> None:
        super().__init__(word)
        self.word, self.near = word, near


# --- finding -----------------------------------------------------------------------------------------------


def find(word: str) -> list[Explanation]:
    """Everything that `word` may mean. Raises `UnknownTerm`.

    A number is an error code and an API key, or else a KIP. Fields count by their exact name, also a former one; in another
    spelling only if nothing else is meant, and values by their words after that.
    """
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
        if not found or _FIELD.fullmatch(word):  # reading every API's fields takes a moment
            found += field(word) or ([] if found else field(_spelled(word)) or _valued(word))
    if not found:
        raise UnknownTerm(word, _near(word))
    return found


def _folded(word: str) -> str:
    """Letters and digits only, so that NotLeaderOrFollower, NOT_LEADER_OR_FOLLOWER and kip 896 are found."""
    for prefix in _LIBRDKAFKA:
        word = word.removeprefix(prefix)
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _spelled(word: str) -> str:
    """The name of a field in the spelling of messages: ``"config_key"`` for ``"ConfigKey"`` and ``"config key"``."""
    plain = snake_case(word.replace(" ", "_"))
    return next((name for name in fields.by_former_name() if name.lower() == plain or name == word.replace(" ", "")), plain)


def former(word: str) -> list[FormerName]:
    """The former names of APIs, errors and fields that a word means, as `find` reads it."""
    word = word.strip()
    wanted = _folded(word)
    return [
        each
        for each in facts.former_names()
        if (each.name in (word, _spelled(word)) if each.kind == "field" else wanted in map(_folded, _variants(each.kind, each.name)))
    ]


def _variants(kind: str, name: str) -> list[str]:
    """A name as others write it: ``NotControllerException`` in Java, ``NotControllerError`` in Python, ``FetchRequest``."""
    endings = ("", "Exception", "Error") if kind == "error" else ("", "Request", "Response")
    return [name + ending for ending in endings]


class _Meaning(NamedTuple):
    """One of the functions below, and its argument."""

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
            for variant in _variants("error", name):
                add(variant, error, code)
    for key in facts.api_keys():
        for variant in _variants("api", facts.api_name(key)):
            add(variant, api, key)
    for once in facts.former_names():
        for variant in _variants(once.kind, once.name):
            if once.kind == "error":
                add(variant, error, facts.error_code(once.today))
            elif once.kind == "api":
                add(variant, api, facts.api_key(once.today))
    for name in texts.kips():
        add(name, kip, name)
        for issue in texts.kips()[name].words("issues"):
            add(issue, kip, name)
    for name in texts.drafts():
        short = name.partition(".")[2]
        add(name, draft, name)
        if _folded(short) not in out:  # others have the name of an API that shipped
            for each in dict.fromkeys((short, short.removesuffix("s"))):
                for variant in _variants("api", each):
                    add(variant, draft, name)
    for name in texts.settings():
        add(name, setting, name)
    return out


def names() -> list[str]:
    """The names of everything that is explained, for completion and suggestions."""
    errors = [fact.name for fact in facts.errors().values()]
    return [*errors, *map(facts.api_name, facts.api_keys()), *texts.kips(), *texts.settings(), *texts.drafts()]


def _near(word: str) -> tuple[str, ...]:
    """The names most like a word, or whose beginning is (``NOT_LEDER``), and those that contain it."""
    folded = _folded(word)
    ranked = []
    for name in (*names(), *(field_names() if _FIELD.fullmatch(word) else ())):
        full = _folded(name)
        like = max(difflib.SequenceMatcher(None, folded, part).ratio() for part in (full, full[: len(folded) + 1]))
        if len(folded) >= 4 and folded in full:
            like = max(like, 0.95)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(folded, full, strict=False)))
        ranked.append((-like, -alike, name))
    return tuple(name for like, _, name in sorted(ranked)[:4] if like <= -_LIKE)


# --- the kinds ---------------------------------------------------------------------------------------------


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
        what=next(entry.text for entry in block.all("what") if entry.argument is None),
        every=every,
        apis=apis,
        causes=tuple(Cause(entry.argument, entry.text) for entry in block.all("cause")),
        do=tuple(entry.text for entry in block.all("do") if entry.argument is None),
        differs=_differs(block),
        kips=tuple(name for name, kip_ in texts.kips().items() if fact.name in kip_.words("errors")),
        see=tuple(block.words("see")),
        alias=tuple(block.words("alias")),
        former=_former("error", fact.name),
    )


def _differs(block: TextBlock) -> tuple[ErrorIn, ...]:
    entries = [entry for field in ("what", "do") for entry in block.all(field) if entry.argument is not None]

    def own(field: str, api: str) -> tuple[str, ...]:
        return tuple(entry.text for entry in entries if (entry.field, entry.argument) == (field, api))

    return tuple(ErrorIn(api, " ".join(own("what", api)), own("do", api)) for api in dict.fromkeys(entry.argument or "" for entry in entries))


def _former(kind: str, today: str) -> tuple[FormerName, ...]:
    return tuple(each for each in facts.former_names() if (each.kind, each.today) == (kind, today))


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
        request=tuple(_fields(known.request, known.name)),
        response=tuple(_fields(known.response, known.name)),
        errors=tuple(e.name for e in map(error, facts.errors()) if known.name in e.apis),
        kips=tuple(name for name, kip_ in texts.kips().items() if any(a == known.name for a, _ in texts.touched(kip_))),
        see=tuple(block.words("see")),
        former=_former("api", known.name),
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
        issues=tuple(block.words("issues")),
        see=tuple(block.words("see")),
    )


@cache
def draft(name: str) -> DraftText:
    """The explanation of a draft by its full name, ``"kip-4.AlterTopic"``. Raises KeyError if there is none."""
    block = texts.drafts()[name]
    return DraftText(
        name=name,
        purpose=block.text("purpose"),
        today=tuple(block.words("today")),
        request=tuple(_fields(drafts.definition(name, "request"), name)),
        response=tuple(_fields(drafts.definition(name, "response"), name)),
    )


@cache
def setting(name: str) -> SettingText:
    """The explanation of a setting by its full name. Raises KeyError if there is none."""
    block = texts.settings()[name]
    return SettingText(
        name=name,
        of=tuple(block.words("of")),
        today=block.text("today"),
        default=block.text("default"),
        what=block.text("what"),
        same=block.text("same"),
        wire=block.text("wire"),
        errors=tuple(e.name for e in map(error, facts.errors()) if name in e.see),
        see=tuple(block.words("see")),
    )


def field(name: str) -> list[FieldText]:
    """The fields of that name, also a former one, a `FieldText` for each meaning, described ones first."""
    found: dict[tuple[str, str, tuple[tuple[int | str, str], ...]], list[SchemaField]] = {}
    for each in (*fields.by_name().get(name, ()), *fields.by_former_name().get(name, ())):
        today = each.path.rpartition(".")[2]
        found.setdefault((today, each.text, tuple(_values(each).items())), []).append(each)
    ordered = sorted(found.items(), key=lambda item: not item[0][1])
    return [FieldText(today, text, tuple(places), values) for (today, text, values), places in ordered]


def _values(of: SchemaField) -> dict[int | str, str]:
    name = of.path.rpartition(".")[2]
    return texts.values().get((of.api, name)) or texts.values().get(("", name)) or {}


def _valued(word: str) -> list[FieldText]:
    """The fields that have a value of that name, such as READ_COMMITTED or AwaitingSync."""
    names = {name for (_, name), table in texts.values().items() if word in table or word in table.values()}
    return [each for name in sorted(names) for each in field(name) if word in dict(each.values) or word in dict(each.values).values()]


def field_names() -> list[str]:
    """The names of all fields."""
    return list(fields.by_name())


_OPERATIONS = "authorized_operations"
"""The end of the names of fields with a bit for each operation of ACLs."""


def meaning(api_name: str, field: str, value: object) -> str:
    """The word for a number in the field `field` of an API's message, or ""."""
    if not isinstance(value, int) or isinstance(value, bool):
        return ""
    if field in ("api_key", "request_api_key"):
        return facts.api_name(value)
    if field.endswith("error_code"):
        return facts.error_name(value)
    if field.endswith(_OPERATIONS):
        return _operations(value)
    table = texts.values().get((api_name, field)) or texts.values().get(("", field))
    return table.get(value, "") if table else ""


def _operations(bits: int) -> str:
    if bits == -(1 << 31):
        return "(not requested)"
    names = texts.values()["DescribeAcls", "operation"]
    return ", ".join(names.get(bit, f"bit {bit}") for bit in range(31) if bits >> bit & 1)


def _version(key: int, version: int) -> VersionFact:
    removal = releases.removed(key, version)
    return VersionFact(version, releases.since(key, version), removal.release if removal else None)


def _fields(of: Definition, api_name: str) -> Iterator[FieldFact]:
    described = fields.fields(api_name)

    def walk(lines: tuple[FieldLine, ...], depth: int, around: VersionRange, prefix: str) -> Iterator[FieldFact]:
        for field in lines:
            path = prefix + snake_case(field.name)
            versions = field.versions if field.versions != NO_VERSIONS else field.tagged
            some = not all(v in versions for v in of.versions.every() if v in around)
            kind = ("[]" if field.array else "") + field.type + ("?" if field.nullable != NO_VERSIONS else "")
            text = described[of.kind, path].text
            yield FieldFact(snake_case(field.name), kind, str(versions) if some else "", depth, text)
            inner = field.fields or dict(of.structs).get(field.type, ())
            if depth < 3:
                yield from walk(inner, depth + 1, versions, f"{path}.")

    yield from walk(of.fields, 0, of.versions, "")


@cache
def error_meaning(api: str, code: int) -> tuple[str, str]:
    """What an error means in an API's response, with its most frequent causes, and what to do. Texts for a finding."""
    if code not in facts.errors():
        return (
            "no known Kafka release has this error code: the broker is newer, or it is not Kafka.",
            "look the code up in the documentation of the broker's software",
        )
    text = error(code).of(api)
    causes = "; ".join(cause.text for cause in text.causes[:2])
    why = f"{text.what} Most frequent causes: {causes}." if causes else text.what
    return why, "; ".join(text.do[:2]) or f"barnabas explain {text.name}"


def check() -> None:
    """Read all explanations and check their references. Raises `BlockError`."""
    known = set(names())
    for blocks in (texts.errors(), texts.apis(), texts.kips(), texts.settings(), texts.drafts()):
        for block in blocks.values():
            texts.check_words(block, "see", known)
    texts.values()
    fields.by_name()
    fields.by_former_name()
    for code in facts.errors():
        error(code)
