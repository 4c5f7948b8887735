"""Known client software: the names it sends, what it wraps, which releases it works with.

The facts are in ``schema/definitions/clients.txt``, each with its source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import NamedTuple

from ..schema import facts
from .releases import release_order

Version = tuple[int, ...]


class KnownVersion(NamedTuple):
    """A `version` of the client that belongs to a `release` of Kafka, and the `source` of that."""

    release: str
    version: str
    source: str


class Note(NamedTuple):
    """A hint and its source."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Client:
    """One client software. `works`: from `version` on it works with brokers of `release` and newer, until the next entry.
    `asks`: "always", or "once" for all its connections. `brokers`: from `version` on it needs brokers of `release` or newer."""

    name: str
    called: str
    asks: str
    ids: tuple[str, ...]
    wraps: str
    wrapped_version: str
    works: tuple[KnownVersion, ...]
    brokers: tuple[KnownVersion, ...]
    notes: tuple[Note, ...]

    def needed_for(self, release: str) -> KnownVersion | None:
        """The oldest version known to work with a release; None if nothing is known."""
        fitting = [k for k in self.works if release_order(k.release) <= release_order(release)]
        return max(fitting, key=lambda k: release_order(k.release), default=None)

    def oldest_broker(self, version: str) -> KnownVersion | None:
        """The oldest brokers that this version is known to work with; None if nothing is known."""
        mine = parse_version(version) if self.brokers else ()
        fitting = [k for k in self.brokers if mine and parse_version(k.version) <= mine]
        return max(fitting, key=lambda k: parse_version(k.version), default=None)


class Software(NamedTuple):
    """A recognised client and its version, of a wrapper that of the wrapped library.

    `guessed`: by its client id; `version` is then "".
    """

    client: Client
    version: str
    guessed: bool = False

    @property
    def text(self) -> str:
        """``"librdkafka 2.16.0"``, ``"probably kafka-python"``."""
        return f"probably {self.client.called}" if self.guessed else f"{self.client.called} {self.version}".strip()


@cache
def clients() -> dict[str, Client]:
    """All known client software, by the name it sends or is known by."""
    return read(facts.schema_folder().joinpath("clients.txt").read_text("utf-8"))


def software(name: str, version: str, client_id: str | None = None) -> Software | None:
    """Recognise a client by the name and version it sends (KIP-511), or else by its client id; None if it is unknown."""
    found = clients().get(name)
    if found is None:
        if name or not client_id:
            return None
        for client in clients().values():
            if any(fnmatchcase(client_id, pattern) for pattern in client.ids):
                return Software(client, "", True)
        return None
    if found.wraps:
        inner = re.search(found.wrapped_version, version)
        return Software(clients()[found.wraps], inner[1] if inner else "")
    return Software(found, version)


@lru_cache(1024)
def parse_version(text: str) -> Version:
    """The leading numbers: ``(2, 16, 0)`` of "v2.16.0-rc1"; () when there are none."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(map(int, match[1].split("."))) if match else ()


def read(text: str) -> dict[str, Client]:
    """The clients of ``clients.txt`` by name. Raises ValueError with the line that is wrong."""
    found: dict[str, dict[str, list[Note]]] = {}
    block: dict[str, list[Note]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fact, _, source = (part.strip() for part in line.partition("  #"))
        word, _, rest = fact.partition(" ")
        if word == "client" and not line.startswith(" "):
            block = found.setdefault(rest, {})
        elif block is not None and word in _WORDS:
            block.setdefault(word, []).append(Note(rest, source))
        else:
            raise ValueError(f"clients.txt line {number}: {line!r} is not a fact about a client")
    return {name: _client(name, facts_) for name, facts_ in found.items()}


_WORDS = {"called", "sends", "asks", "ids", "wraps", "works", "brokers", "note"}


def _client(name: str, of: dict[str, list[Note]]) -> Client:
    def one(word: str, default: str = "") -> str:
        return of[word][0].text if word in of else default

    def known(word: str) -> tuple[KnownVersion, ...]:
        entries = []
        for text, source in of.get(word, ()):
            release, _, version = text.partition(" from ")
            entries.append(KnownVersion(release, version, source))
        return tuple(entries)

    wraps, _, pattern = one("wraps").partition(" ")
    return Client(
        name=name,
        called=one("called", name),
        asks=one("asks", "always"),
        ids=tuple(pattern.strip() for pattern in one("ids").split(",") if pattern.strip()),
        wraps=wraps,
        wrapped_version=pattern,
        works=known("works"),
        brokers=known("brokers"),
        notes=tuple(of.get("note", ())),
    )
