"""The notation of this folder's files: blocks of named texts. The parser is strict, and every error has its place.

    # a comment
    NAME                         a block's head, at the line's start
      field: a text that may      two spaces, the field's name, a colon
        go on in further lines    four spaces or more
      field argument: a text      for fields that take an argument

A blank line ends a block. The reader of the file knows which fields there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import DecoderError

_HEAD = re.compile(r"@?[A-Za-z0-9][A-Za-z0-9_.-]*")
_FIELD = re.compile(r"  ([a-z]+)(?: ([A-Za-z0-9_-]+))?:(?: (\S.*))?")


class BlockError(DecoderError):
    """A file of explanations is wrong; `line` and `column` count from 1."""

    def __init__(self, source: str, line: int, column: int, text: str) -> None:
        super().__init__(f"{source}:{line}:{column}: {text}")
        self.source, self.line, self.column = source, line, column


class NotationRule(NamedTuple):
    """The rule of a field: `needed` at least once, allowed `many` times, with an `argument` ("no", "may", "must")."""

    needed: bool = False
    many: bool = False
    argument: str = "no"


class BlockEntry(NamedTuple):
    """One field of a block. `line` is where it begins."""

    field: str
    argument: str | None
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class TextBlock:
    """One block. Texts have no line breaks."""

    source: str
    name: str
    line: int
    entries: tuple[BlockEntry, ...]

    def all(self, field: str) -> list[BlockEntry]:
        """Every entry of a field, in order."""
        return [entry for entry in self.entries if entry.field == field]

    def text(self, field: str) -> str:
        """The text of a field that stands once at most; "" if it does not."""
        return next((entry.text for entry in self.entries if entry.field == field), "")

    def words(self, field: str) -> list[str]:
        """The comma-separated words of a field. BlockError for an empty or repeated one."""
        found: list[str] = []
        for entry in self.all(field):
            for word in (word.strip() for word in entry.text.split(",")):
                if not word or word in found:
                    what = f"{word!r} is given twice" if word else "a word is missing between commas"
                    raise BlockError(self.source, entry.line, 3, f"{what} in {field} of {self.name}")
                found.append(word)
        return found


def parse(text: str, source: str, rules: Mapping[str, NotationRule], repeated_names: bool = False) -> list[TextBlock]:
    """The blocks of a file. Raises `BlockError` for whatever breaks the notation or `rules`."""
    blocks: list[TextBlock] = []
    seen: dict[str, int] = {}
    for start, lines in _groups(text, source):
        name = lines[0]
        if not _HEAD.fullmatch(name):
            raise BlockError(source, start, 1, f"{name!r} is not the name of a block")
        if not repeated_names and name in seen:
            raise BlockError(source, start, 1, f"{name} is already explained in line {seen[name]}")
        seen[name] = start
        block = TextBlock(source, name, start, tuple(_entries(lines, start, source, rules)))
        for field, rule in rules.items():
            count = len(block.all(field))
            if rule.needed and not count:
                raise BlockError(source, start, 1, f"{name} has no {field}")
            if count > 1 and not rule.many:
                raise BlockError(source, block.all(field)[1].line, 3, f"{name} has {field} twice")
        blocks.append(block)
    return blocks


def _groups(text: str, source: str) -> Iterable[tuple[int, list[str]]]:
    """(number of the first line, lines) of every block; comments and blank lines left out."""
    lines: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line != line.rstrip() or "\t" in line:
            raise BlockError(source, number, len(line.rstrip()) + 1, "a tab, or spaces at the end of the line")
        if line.startswith("#"):
            continue
        if line:
            if not lines and line.startswith(" "):
                raise BlockError(source, number, 1, "a field outside a block")
            if lines and not line.startswith(" "):
                raise BlockError(source, number, 1, "a blank line is missing before a block")
            start = start if lines else number
            lines.append(line)
        elif lines:
            yield start, lines
            lines = []


def _entries(lines: list[str], start: int, source: str, rules: Mapping[str, NotationRule]) -> Iterable[BlockEntry]:
    field, argument, texts, at = "", None, [""], 0
    for number, line in enumerate(lines[1:], start + 1):
        if line.startswith("    "):
            if not field:
                raise BlockError(source, number, 5, "a continuation line without a field before it")
            texts.append(line.strip())
            continue
        if field:
            yield _entry(field, argument, texts, at, source)
        match = _FIELD.fullmatch(line)
        if not match:
            raise BlockError(source, number, 3, "not a field: two spaces, its name, a colon, a text")
        field, argument, texts, at = match[1], match[2], [match[3] or ""], number
        rule = rules.get(field)
        if rule is None:
            raise BlockError(source, number, 3, f"there is no field {field}; there are {', '.join(rules)}")
        if rule.argument == "must" and argument is None:
            raise BlockError(source, number, 3 + len(field), f"{field} needs an argument")
        if rule.argument == "no" and argument is not None:
            raise BlockError(source, number, 4 + len(field), f"{field} takes no argument")
    if field:
        yield _entry(field, argument, texts, at, source)


def _entry(field: str, argument: str | None, texts: list[str], line: int, source: str) -> BlockEntry:
    text = " ".join(part for part in texts if part)
    if not text:
        raise BlockError(source, line, 3, f"{field} has no text")
    return BlockEntry(field, argument, text, line)
