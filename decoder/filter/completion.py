"""Completion while a filter is typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ..schema import facts
from .language import fields, literals, paths
from .language.check import CODECS
from .language.errors import FilterError
from .language.fields import NUMBERS, Field, ValueKind
from .language.lexer import Token, TokenKind, tokens
from .language.parser import KEYWORDS, SIGNS, WORDS
from .language.paths import Path

MAX_CANDIDATES = 200
"""More candidates are of no help."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """`text` may replace ``[start:end]`` of the filter. `kind`: field, path, operator, word, API, error, state, codec, flag or
    unit. `meaning`: a short description."""

    text: str
    start: int
    end: int
    kind: str
    meaning: str


class _Expect(StrEnum):
    TEST = "test"
    OPERATOR = "operator"
    VALUE = "value"
    AFTER = "after"


@dataclass(slots=True)
class _Context:
    """What is expected after some tokens, and what is not closed yet."""

    expect: _Expect = _Expect.TEST
    field: Field | Path | None = None
    operator: str = ""
    in_set: bool = False
    parentheses: int = 0
    negated: bool = False


_WORD_END = re.compile(r"(?:\[(?:\*|\d*)\]|[^\s()\[\]{},\"'=!<>~&|.]|\.(?!\.))*")
_OPERATORS = {
    "==": "equal", "!=": "not equal", "<": "less than", "<=": "less than or equal to", ">": "greater than",
    ">=": "greater than or equal to",
    "in": "one of a set {a, b} or a range a..b", "not in": "none of a set or range", "~": "matches a regular expression",
    "!~": "does not match", "contains": "contains this text", "startswith": "begins with", "endswith": "ends with",
}  # fmt: skip
_ORDERED = ("==", "!=", ">", "<", ">=", "<=", "in", "not in")
_NAMES = ("==", "!=", "in", "not in", "~", "!~", "contains", "startswith", "endswith")


def complete(text: str, cursor: int | None = None) -> list[Candidate]:
    """What may come at the cursor, by default the end, the best first. Empty if anything may, as inside quotes."""
    at = len(text) if cursor is None else max(0, min(cursor, len(text)))
    try:
        found = tokens(text[:at])[:-1]
    except FilterError:
        return []  # inside of quotes
    part, start = "", at
    if found and found[-1].kind is TokenKind.WORD and found[-1].end == at:
        part, start = found[-1].value, found[-1].start
        found.pop()
    rest = _WORD_END.match(text, at)
    end = rest.end() if rest is not None else at
    context = _context(found)
    matching = _best(part, _candidates(context, part, text))[:MAX_CANDIDATES]
    return [Candidate(offer.text, start, end, offer.kind, offer.meaning) for offer in matching]


def _context(found: list[Token]) -> _Context:
    context = _Context()
    for token in found:
        word = token.value.lower() if token.kind is TokenKind.WORD else ""
        if token.is_sign("("):
            context.parentheses += 1
            context.expect = _Expect.TEST
        elif token.is_sign(")"):
            context.parentheses = max(0, context.parentheses - 1)
            context.expect = _Expect.AFTER
        elif context.expect in (_Expect.AFTER, _Expect.OPERATOR) and (word in ("and", "or") or token.is_sign("&&", "||")):
            context.expect, context.negated = _Expect.TEST, False
        elif context.expect is _Expect.TEST:
            _test(context, token, word)
        elif context.expect is _Expect.OPERATOR:
            if word == "not":
                context.negated = True
            elif token.value in SIGNS or word in WORDS or word == "in":
                context.expect, context.operator, context.in_set = _Expect.VALUE, word or token.value, False
        elif token.is_sign("{"):
            context.in_set = True
        elif token.is_sign("}"):
            context.in_set, context.expect = False, _Expect.AFTER
        elif token.is_sign(",", ".."):
            context.expect = _Expect.VALUE
        else:
            context.expect = _Expect.AFTER
    return context


def _test(context: _Context, token: Token, word: str) -> None:
    if token.kind is TokenKind.STRING:
        context.expect = _Expect.AFTER
    elif word and word not in KEYWORDS:
        context.field = fields.lookup(token.value)
        if context.field is None and paths.is_path(token.value):
            context.field = paths.lookup(token.value)
        context.expect, context.negated = _Expect.OPERATOR, False


class Offer(NamedTuple):
    """A `Candidate` without its place."""

    text: str
    kind: str
    meaning: str


def _candidates(context: _Context, part: str, text: str) -> Iterator[Offer]:
    if context.expect is _Expect.TEST:
        if paths.is_path(part):
            yield from _steps(part, text)
            return
        for field in fields.FIELDS:
            yield Offer(field.name, "field", f"{field.kind}: {field.meaning}")
        yield Offer("req.", "path", "a field of the request")
        yield Offer("resp.", "path", "a field of the response")
        yield Offer("not", "word", "the opposite")
        yield Offer("any(", "word", "at least one value at a path, such as any(resp.topics[*].error_code != 0)")
        yield Offer("all(", "word", "every value at a path")
        if part:
            for name, field in fields.BY_NAME.items():
                if name != field.name:
                    yield Offer(name, "field", f"the same as {field.name}")
    elif context.expect is _Expect.OPERATOR:
        if context.negated:
            yield Offer("in", "operator", _OPERATORS["in"])
            return
        for sign in _operators(context.field):
            yield Offer(sign, "operator", _OPERATORS[sign])
        yield from _after(context)
    elif context.expect is _Expect.VALUE:
        yield from _values(context, part)
    elif context.in_set:
        yield Offer(",", "operator", "another value")
        yield Offer("}", "operator", "the end of the set")
    else:
        yield from _after(context)


def _after(context: _Context) -> Iterator[Offer]:
    if context.parentheses:
        yield Offer(")", "operator", "the end of the parentheses")
    yield Offer("and", "word", "both")
    yield Offer("or", "word", "either")


def _operators(field: Field | Path | None) -> Iterable[str]:
    if field is None:
        return _OPERATORS
    if field.kind in (ValueKind.STRUCT, ValueKind.FLAG):
        return ()
    if field.kind in NUMBERS:
        return _ORDERED
    return _NAMES if field.kind not in (ValueKind.ADDRESS, ValueKind.UUID) else _NAMES[:4]


def _values(context: _Context, part: str) -> Iterator[Offer]:
    kind = context.field.kind if context.field is not None else None
    if context.operator == "in" and not context.in_set and not part:
        yield Offer("{", "operator", "a set: {a, b}")
    if kind is ValueKind.API:
        for key in facts.api_keys():
            yield Offer(facts.api_name(key), "API", f"key {key}, versions {facts.api(key).versions}")
        yield from _former("api", "API", part)
    elif kind is ValueKind.ERROR:
        for fact in facts.errors().values():
            yield Offer(fact.name, "error", f"{fact.code}{', retriable' if fact.retriable else ''}")
        yield from _former("error", "error", part)
    elif kind is ValueKind.STATE:
        for state in fields.STATES:
            yield Offer(state, "state", "")
    elif kind is ValueKind.CODEC:
        for name in CODECS:
            yield Offer(name, "codec", "")
    elif kind is ValueKind.FLAG:
        yield Offer("true", "flag", "")
        yield Offer("false", "flag", "")
    elif part and literals.number(part) is not None and kind in NUMBERS:
        units: Iterable[str] = ()
        if kind in (ValueKind.DURATION, ValueKind.MILLISECONDS):
            units = literals.DURATIONS
        elif kind is ValueKind.SIZE:
            units = literals.SIZES
        for unit in units:
            yield Offer(part + unit, "unit", "time" if unit in literals.DURATIONS else "bytes")
    if kind in NUMBERS and not part.isdecimal() and isinstance(context.field, Field):
        for field in fields.FIELDS:
            same = (field.kind is ValueKind.TIME) is (kind is ValueKind.TIME)
            if field is not context.field and field.kind is kind and not field.many and same:
                yield Offer(field.name, "field", field.meaning)


def _former(kind: str, offered: str, part: str) -> Iterator[Offer]:
    """The former names that were begun, with today's name beside them."""
    for former in facts.former_names():
        if part and former.kind == kind and former.name.lower().startswith(part.lower()):
            yield Offer(former.name, offered, f"now called {former.today}")


def _steps(part: str, text: str) -> Iterator[Offer]:
    """The next steps of a path, of the APIs that the filter names."""
    plain = re.sub(r"\[[*\d]*\]", "", part)
    side, _, steps = plain.partition(".")
    head = steps.rpartition(".")[0]
    written = part[: part.rindex(".") + 1]
    try:
        words = {token.value.lower() for token in tokens(text) if token.kind is TokenKind.WORD}
    except FilterError:
        words = set()
    named = frozenset(key for key in facts.api_keys() if facts.api_name(key).lower() in words)
    for path in paths.known(paths.SIDES[side.lower()], named or None):
        parent, _, step = path.steps.rpartition(".")
        if parent == head:
            array = "[*]" if path.array else ""
            apis = sorted(facts.api_name(key) for key in path.apis)
            shown = ", ".join(apis[:3]) + (f" and {len(apis) - 3} more" if len(apis) > 3 else "")
            yield Offer(f"{written}{step}{array}", "path", f"{path.kind}: {shown}")


def _best(part: str, offers: Iterable[Offer]) -> list[Offer]:
    """The offers that begin with `part`, then those that contain it."""
    if not part:
        return list(offers)
    wanted = part.lower()
    begins, within = [], []
    for offer in offers:
        name = offer.text.lower()
        if name.startswith(wanted):
            begins.append(offer)
        elif wanted in name:
            within.append(offer)
    return begins + within
