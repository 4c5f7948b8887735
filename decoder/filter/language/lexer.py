"""From text to tokens with positions.

Names, numbers with units, times, addresses and paths are one kind of word: their meaning depends on the field, which the lexer
does not know. A word ends at white space, at one of ``( ) { } , " '``, at an operator's character, and at two dots, the
sign of a range.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from .errors import FilterError

MAX_FILTER = 1 << 16
"""Characters that a filter may have."""


class TokenKind(StrEnum):
    WORD = "word"
    STRING = "string"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """``text[start:end]`` of the filter. `value` of a string is the text between the quotes, escapes resolved."""

    kind: TokenKind
    value: str
    start: int
    end: int

    def is_sign(self, *signs: str) -> bool:
        return self.kind is TokenKind.SIGN and self.value in signs

    def is_word(self, *words: str) -> bool:
        """One of these words, in any case."""
        return self.kind is TokenKind.WORD and self.value.lower() in words


_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<sign>==|!=|<=|>=|!~|&&|\|\||\.\.|[<>~!(){},])
    | (?P<word>(?:\[[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.%]*\]|\[(?:\*|\d*)\]|[^\s()\[\]{},"'=!<>~&|.]|\.(?!\.))+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)", re.DOTALL)
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t", "r": "\r"}
_SINGLE = {"=": "==", "&": "&&", "|": "||"}


def tokens(text: str) -> list[Token]:
    """All tokens, the last one of kind END. Raises `FilterError`."""
    if len(text) > MAX_FILTER:
        raise FilterError(f"a filter may have at most {MAX_FILTER} characters, but this one has {len(text)}", text, MAX_FILTER)
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unexpected(text, at)
        start, at = at, match.end()
        group = match.lastgroup
        if group == "string":
            found.append(Token(TokenKind.STRING, _ESCAPE.sub(_unescape, match[0][1:-1]), start, at))
        elif group != "space":
            found.append(Token(TokenKind(group or ""), match[0], start, at))
    found.append(Token(TokenKind.END, "", len(text), len(text)))
    return found


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        number = int(code[1:], 16)
        letter = chr(number) if number < 0x110000 else "."
        return match[0] if letter.isprintable() else letter  # as screens show what cannot be printed
    # Any other backslash is kept, so that regular expressions need no escapes.
    return _ESCAPES.get(code, match[0])


def _unexpected(text: str, at: int) -> FilterError:
    sign = text[at]
    if sign in "\"'":
        return FilterError(f"a text that begins with {sign} must end with it", text, at, len(text))
    if sign in _SINGLE:
        return FilterError(f"{sign!r} alone has no meaning; did you mean {_SINGLE[sign]}?", text, at)
    return FilterError(f"{sign!r} has no meaning here; put texts with special characters in quotes", text, at)
