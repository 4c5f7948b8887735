"""Verifying a redaction: the result's bytes are searched for replaced text, plain, in base64 and in hexadecimal, and so are its
frames and the batches in them, decompressed.

The search covers all replaced names of 4 bytes or more, and contents of records of 8 or more that cannot occur by chance. Names
that are also words of Kafka's own (a group called ``consumer``) cannot be distinguished from these; they are counted as unsure.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from ...decoder import ExchangeDone, RequestSeen, records
from ...decoder.codec.message import Message
from ...decoder.records.errors import RecordsError
from ..pcap.regular_files import open_file
from ..reading.events import EventReader
from .fields import Replacement, RuleTree, rule_tree
from .free_text import is_kafka_word
from .pseudonyms import KEPT
from .search import NeedleSearch

_NAME, _CONTENT = 4, 8
_SURE = 8  # shorter names are only meant where they stand alone
_CHUNK = 1 << 20
_LARGE = 60_000  # frames that may lie in several packets
_LIMIT = 256 << 20
_ALNUM = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_SHOWN = 20


@dataclass
class Verification:
    """`searched` originals; `unsure` of them also words of Kafka's; `skipped` not searched for; `left`: original ->
    where it was found, and how often."""

    searched: int = 0
    unsure: int = 0
    skipped: int = 0
    left: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, original: str, where: str) -> None:
        places = self.left.setdefault(original, {})
        places[where] = places.get(where, 0) + 1


class Verifier:
    """Searches what was made for the originals. `replaced`: names and what they became; `contents`: the beginnings of
    records' contents; `kept`: words that were left on purpose."""

    def __init__(self, replaced: dict[str, str], contents: Iterable[bytes] = (), kept: Collection[str] = ()) -> None:
        self.verdict = Verification()
        self._pseudonyms = {text for made in replaced.values() for text in (made, *_tokens(made))}
        self._needles: dict[bytes, tuple[str, str]] = {}
        words = "\n".join(kept)
        for name in replaced:
            data = name.encode()
            if len(data) < _NAME:
                continue
            if name in KEPT or (is_kafka_word(name) and not _long_number(name)) or name in words:
                self.verdict.unsure += 1
                continue
            self._look_for(name, data)
        for data in contents:
            if len(data) >= _CONTENT and len(set(data)) >= 6 and not is_kafka_word(data.decode("latin-1")):
                text = data.decode("utf-8", "backslashreplace")
                if not any(text in word for word in kept):
                    self._look_for(text, data)
        self._search = NeedleSearch(self._needles)
        self.verdict.skipped = self._search.skipped

    def _look_for(self, original: str, data: bytes) -> None:
        self.verdict.searched += 1
        self._needles.setdefault(data, (original, "plain"))
        for shown in (data.hex().encode(), data.hex().upper().encode()):
            self._needles.setdefault(shown, (original, "hexadecimal"))
        for needle in _base64(data):
            self._needles.setdefault(needle, (original, "base64"))

    def file(self, path: Path, tick: Callable[[int], None] = lambda done: None) -> None:
        """Search the bytes of a file."""
        with open_file(path) as file:
            rest = b""
            while data := file.read(_CHUNK):
                tick(len(data))
                self._bytes(rest + data, len(rest))
                rest = (rest + data)[-max(self._search.longest, 1) - 1 :]

    def frames(self, path: Path, tick: Callable[[int], None] = lambda done: None) -> None:
        """Search large frames as a whole, and what is compressed inside of any."""
        reader = EventReader(path)
        for event in chain(reader.read(), reader.end()):
            tick(reader.bytes_read)
            if not isinstance(event, RequestSeen | ExchangeDone):
                continue
            exchange = event.exchange
            request = isinstance(event, RequestSeen)
            frame = exchange.request if request else exchange.response
            if frame is None:
                continue
            if len(frame) > _LARGE:
                self._bytes(frame)
            message = exchange.request_message if request else exchange.response_message
            for area in _areas(message) if message is not None else ():
                for inside in _decompressed(area):
                    self._bytes(inside)

    def _bytes(self, data: bytes, known: int = 0) -> None:
        """`known`: bytes at the front that were searched before."""
        for needle, at in self._search.found(data):
            end = at + len(needle)
            if end <= known:
                continue
            original, where = self._needles[needle]
            if where == "plain" and self._by_chance(data, at, end):
                continue
            self.verdict.add(original, where)

    def _by_chance(self, data: bytes, at: int, end: int) -> bool:
        """A short name inside of another word, or one that is also a pseudonym."""
        before, behind = at > 0 and data[at - 1] in _ALNUM, end < len(data) and data[end] in _ALNUM
        if end - at < _SURE and (before or behind):
            return True
        return not before and not behind and data[at:end].decode("utf-8", "replace") in self._pseudonyms


def _long_number(name: str) -> bool:
    """Somebody's number; shorter ones are counts and times as well."""
    return name.isdigit() and len(name) >= _SURE


def _tokens(text: str) -> list[str]:
    """The parts of a name that may stand alone."""
    return [part for mark in "-./:" for part in text.split(mark)]


def _base64(data: bytes) -> Iterator[bytes]:
    """The base64 text common to all data that contains these bytes, for each of the three alignments."""
    for front in range(3):
        padded = bytes(front) + data
        padded += bytes(-len(padded) % 3)
        first = (front * 8 + 5) // 6
        last = (front + len(data)) * 8 // 6
        for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
            core = encode(padded)[first:last]
            if len(core) > 5:
                yield core


def _areas(message: Message) -> Iterator[bytes]:
    yield from _records(rule_tree(message.plan.root), message.values)


def _records(of: RuleTree, values: tuple[object, ...]) -> Iterator[bytes]:
    for branch in of.branches:
        value = values[branch.at]
        if value is None:
            continue
        if branch.inside is not None:
            for item in value if branch.field.array else (value,):  # type: ignore[attr-defined]
                yield from _records(branch.inside, item)
        elif branch.rule is not None and branch.rule.replacement is Replacement.RECORDS and isinstance(value, bytes):
            yield value


def _decompressed(area: bytes) -> Iterator[bytes]:
    try:
        for entry in records.batches(area):
            if isinstance(entry, records.Batch) and entry.codec:
                yield entry.payload(limit=_LIMIT)
            elif isinstance(entry, records.Message) and entry.codec and entry.value:
                yield records.decompress(entry.codec, entry.value, limit=_LIMIT, magic=entry.magic)
    except RecordsError:
        pass  # what was blanked cannot be read
