"""The `match` of a rule: `api == NAME`, then optionally `and topic == NAME`, `and partition == NUMBER`.

A small tokenizer with positions, so that an error points at the character.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from ..decoder import facts

FIELDS = ("api", "topic", "partition")
POSSIBLE = "a match reads: api == NAME [and topic == NAME] [and partition == NUMBER]"

_TOKEN = re.compile(r"""\s*(?:(?P<word>[\w.\-]+)|"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<sign>==|\S))""")


class MatchError(ValueError):
    """`offset`: where in the text, from 0."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a rule means: an api key, and perhaps a topic and a partition."""

    api_key: int
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    offset: int
    quoted: bool


def nearest(word: str, known: list[str]) -> str:
    """`", did you mean X?"`, or nothing."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), list(by_lower), 1, 0.5)
    return f", did you mean {by_lower[close[0]]}?" if close else ""


def parse_match(text: str) -> Match:
    """A match from its text; MatchError says where and what is possible."""
    tokens = list(_tokens(text))
    values: dict[str, _Token] = {}
    at = 0
    while True:
        field = _take(tokens, at, text, "a field: " + ", ".join(FIELDS))
        if field.quoted or field.text not in FIELDS:
            raise MatchError(
                f"unknown field {field.text!r}{nearest(field.text, list(FIELDS))} ({POSSIBLE})", field.offset
            )
        if field.text in values:
            raise MatchError(f"{field.text!r} stands here twice ({POSSIBLE})", field.offset)
        sign = _take(tokens, at + 1, text, "==")
        if sign.quoted or sign.text != "==":
            raise MatchError(f"expected == and not {sign.text!r} ({POSSIBLE})", sign.offset)
        values[field.text] = _take(tokens, at + 2, text, "a value")
        at += 3
        if at == len(tokens):
            break
        if tokens[at].quoted or tokens[at].text != "and":
            raise MatchError(f"expected 'and' and not {tokens[at].text!r} ({POSSIBLE})", tokens[at].offset)
        at += 1
    if "api" not in values:
        raise MatchError(f"no api ({POSSIBLE})", 0)
    return Match(_api(values["api"]), _topic(values.get("topic")), _partition(values.get("partition")))


def _tokens(text: str) -> list[_Token]:
    found = []
    at = 0
    while match := _TOKEN.match(text, at):
        kind = match.lastgroup or ""
        found.append(_Token(match[kind], match.start(kind), kind in ("double", "single")))
        at = match.end()
    return found


def _take(tokens: list[_Token], at: int, text: str, expected: str) -> _Token:
    if at >= len(tokens):
        raise MatchError(f"expected {expected} ({POSSIBLE})", len(text))
    return tokens[at]


def _api(token: _Token) -> int:
    try:
        return facts.api_key(token.text)
    except KeyError as error:
        raise MatchError(str(error.args[0]), token.offset) from None


def _topic(token: _Token | None) -> str | None:
    if token is None:
        return None
    if not token.quoted and token.text in ("==", "and"):
        raise MatchError(f"expected a topic name ({POSSIBLE})", token.offset)
    return token.text


def _partition(token: _Token | None) -> int | None:
    if token is None:
        return None
    if not token.text.isascii() or not token.text.isdigit():
        raise MatchError(f"partition is a whole number from 0 and not {token.text!r}", token.offset)
    return int(token.text)
