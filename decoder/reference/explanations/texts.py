"""Read and check the files of this folder: every name that they use must be known."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from functools import cache
from importlib import resources

from ...schema import facts
from ...schema.notation import VersionRange
from .. import releases
from ..definitions import drafts as draft_messages
from .blocks import BlockEntry, BlockError, NotationRule, TextBlock, parse

_TEXTS = resources.files(__package__)
_ONCE, _BY_API = NotationRule(needed=True), NotationRule(needed=True, many=True, argument="may")
_ERRORS = {
    "what": _BY_API, "apis": _ONCE, "cause": _BY_API, "do": _BY_API,
    "see": NotationRule(), "alias": NotationRule(),
}  # fmt: skip
_SETS = {"apis": _ONCE}
_APIS = {"purpose": _ONCE, "from": _ONCE, "waits": NotationRule(), "note": NotationRule(many=True), "see": NotationRule()}
_DRAFTS = {"purpose": _ONCE, "today": NotationRule(), "see": NotationRule()}
_KIPS = {"title": _ONCE, "since": _ONCE, "what": _ONCE, "apis": _ONCE, "errors": NotationRule(), "issues": NotationRule(), "see": NotationRule()}
_SETTINGS = {"of": _ONCE, "today": NotationRule(), "default": NotationRule(), "what": _ONCE, "same": NotationRule(), "wire": NotationRule(), "see": NotationRule()}
_VALUES = {"in": NotationRule(), "also": NotationRule(), "value": NotationRule(needed=True, many=True, argument="must")}
_SENDERS = ("clients", "brokers", "controllers")
_OWNERS = ("broker", "topic", "producer", "consumer", "admin", "client")


def read_text(file: str) -> str:
    """The text of a file of this folder."""
    return _TEXTS.joinpath(file).read_text("utf-8")


def _read(name: str, rules: dict[str, NotationRule], repeated: bool = False) -> list[TextBlock]:
    file = f"{name}.txt"
    return parse(read_text(file), file, rules, repeated)


@cache
def _error_file() -> tuple[dict[str, TextBlock], dict[str, TextBlock]]:
    """The blocks of errors, and those of sets of APIs."""
    # Sets of APIs have fewer fields than errors, so needed fields are checked here.
    blocks = {block.name: block for block in _read("errors", {n: r._replace(needed=False) for n, r in _ERRORS.items()})}
    sets = {name: block for name, block in blocks.items() if name.startswith("@")}
    errors = {name: block for name, block in blocks.items() if name not in sets}
    for block in blocks.values():
        wanted = _SETS if block.name in sets else _ERRORS
        for field, rule in wanted.items():
            if rule.needed and not block.all(field):
                raise BlockError(block.source, block.line, 1, f"{block.name} has no {field}")
    _same_names("error", errors, [fact.name for fact in facts.errors().values()], "errors.txt")
    for block in sets.values():
        for name in block.words("apis"):
            _check_api(block, name)
    for block in errors.values():
        for entry in block.entries:
            if entry.argument is not None:
                _check_api(block, entry.argument, entry)
        meanings = [entry.argument for entry in block.all("what")]
        if meanings.count(None) != 1 or len(set(meanings)) != len(meanings):
            raise BlockError(block.source, block.line, 1, f"{block.name} needs one what, and at most one for each API")
    return errors, sets


def errors() -> dict[str, TextBlock]:
    return _error_file()[0]


def carriers(block: TextBlock) -> tuple[tuple[str, ...], bool]:
    """The APIs that an error's block names, in the order of their keys, and whether it names "every" API."""
    words = block.words("apis")
    if words in (["every"], ["none"]):
        return (), words == ["every"]
    found: set[str] = set()
    sets = _error_file()[1]
    for word in words:
        if word.startswith("@"):
            if word not in sets:
                raise BlockError(block.source, block.all("apis")[0].line, 3, f"there is no set {word}")
            found.update(sets[word].words("apis"))
        else:
            _check_api(block, word)
            found.add(word)
    return tuple(sorted(found, key=facts.api_key)), False


@cache
def apis() -> dict[str, TextBlock]:
    blocks = {block.name: block for block in _read("apis", _APIS)}
    _same_names("API", blocks, [facts.api_name(key) for key in facts.api_keys()], "apis.txt")
    for block in blocks.values():
        check_words(block, "from", _SENDERS)
    return blocks


@cache
def drafts() -> dict[str, TextBlock]:
    blocks = {block.name: block for block in _read("drafts", _DRAFTS)}
    _same_names("draft", blocks, draft_messages.names(), "drafts.txt")
    for block in blocks.values():
        for name in block.words("today"):
            _check_api(block, name)
    return blocks


@cache
def kips() -> dict[str, TextBlock]:
    blocks = {block.name: block for block in _read("kips", _KIPS)}
    known = releases.releases()
    codes = {fact.name for fact in facts.errors().values()}
    for block in blocks.values():
        if not re.fullmatch(r"KIP-[1-9]\d*", block.name):
            raise BlockError(block.source, block.line, 1, f"{block.name} is not a KIP")
        check_words(block, "since", known)
        check_words(block, "errors", codes)
        list(touched(block))
    return dict(sorted(blocks.items(), key=lambda item: int(item[0][4:])))


def touched(block: TextBlock) -> Iterator[tuple[str, str]]:
    """(API, versions) that a KIP's block names."""
    line = block.all("apis")[0]
    for words in (word.split() for word in block.words("apis")):
        name, versions = words[0], words[1] if len(words) > 1 else ""
        _check_api(block, name, line)
        if versions:
            try:
                asked = VersionRange.parse(versions)
            except ValueError as fault:
                raise BlockError(block.source, line.line, 3, f"{block.name}: {fault}") from None
            known = facts.api(facts.api_key(name)).versions
            if asked.low not in known or (asked.high is not None and asked.high not in known):
                raise BlockError(
                    block.source, line.line, 3, f"{block.name}: {name} has versions {known}, not {versions}"
                )
        yield name, versions


@cache
def settings() -> dict[str, TextBlock]:
    blocks = {block.name: block for block in _read("settings", _SETTINGS)}
    for block in blocks.values():
        check_words(block, "of", _OWNERS)
        check_words(block, "today", blocks)
    return blocks


@cache
def values() -> dict[tuple[str, str], dict[int | str, str]]:
    """Words by number, or what a word means, by (API or "", field)."""
    out: dict[tuple[str, str], dict[int | str, str]] = {}
    for block in _read("values", _VALUES, repeated=True):
        table: dict[int | str, str] = {}
        for entry in block.all("value"):
            value = int(entry.argument or 0) if re.fullmatch(r"-?\d+", entry.argument or "") else entry.argument or ""
            if value in table:
                raise BlockError(block.source, entry.line, 9, f"{entry.argument} is given twice")
            table[value] = entry.text
        for name in block.words("in") or [""]:
            if name and name not in draft_messages.names():
                _check_api(block, name)
            for field in (block.name, *block.words("also")):
                if (name, field) in out:
                    raise BlockError(block.source, block.line, 1, f"{field} of {name or 'all'} is given twice")
                out[name, field] = table
    return out


def _same_names(what: str, blocks: dict[str, TextBlock], wanted: list[str], file: str) -> None:
    for name, block in blocks.items():
        if name not in wanted:
            raise BlockError(block.source, block.line, 1, f"there is no {what} {name}")
    missing = [name for name in wanted if name not in blocks]
    if missing:
        raise BlockError(file, 1, 1, f"no block for {', '.join(missing)}")


def check_words(block: TextBlock, field: str, known: Container[str]) -> None:
    for word in block.words(field):
        if word not in known:
            raise BlockError(
                block.source, block.all(field)[0].line, 3, f"{block.name}: {field} names {word!r}, unknown"
            )


def _check_api(block: TextBlock, name: str, entry: BlockEntry | None = None) -> None:
    try:
        exact = facts.api_name(facts.api_key(name)) == name
    except KeyError:
        exact = False
    if not exact:
        raise BlockError(block.source, (entry or block).line, 3, f"{block.name}: there is no API {name}")
