"""Kafka's releases: which versions of which API their brokers serve, and when a version was introduced and dropped.

The tables are in ``schema/definitions/releases.txt``; the comments at its beginning explain them and have their sources.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import NamedTuple

from ..errors import UnknownName
from ..schema import facts
from ..schema.error_places import BrokerKind

ROLES = ("zk", "kraft", "controller")
_FIRST_KRAFT = (3, 3)  # KRaft brokers are ready for production (KIP-833); a bare release name means them from here on
_ENTRY = re.compile(r"(\w+)(\??) (?:gone|(?:(\d+)/)?(\d+)(?:-(\d+))?)")
_HEAD = re.compile(r"(\d+(?:\.\d+)+) (zk|kraft|controller)")
_WIDTH = 118


class Offer(NamedTuple):
    """One API of a release: the range in ApiVersions, the lowest version that is really served (4.x offers Produce 0 and
    serves 3 and up, KAFKA-18659), and whether brokers offer it only with certain settings."""

    low: int
    high: int
    served_from: int
    optional: bool = False


class Removal(NamedTuple):
    """`release` dropped a version, `last` is the newest that has it, `kip` the reason ("" if no KIP is known)."""

    release: str
    last: str
    kip: str


@dataclass(frozen=True, slots=True)
class Release:
    """One release in one role. `number` is ``"3.9"``, `role` one of `ROLES`, `offers` by api key, ascending."""

    number: str
    role: str
    offers: Mapping[int, Offer]
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Why APIs lost versions in this release: KIP by API key, -1 for all others."""

    @property
    def name(self) -> str:
        """``"3.9"`` for the usual role of its brokers, ``"3.9-zk"``, ``"3.9-controller"`` for the others."""
        return self.number if self.role == usual_role(self.number) else f"{self.number}-{self.role}"

    @property
    def offered(self) -> dict[int, tuple[int, int]]:
        """The response to ApiVersions with default settings: (min, max) by API key. Before 0.10.0, which had no ApiVersions, what
        the broker serves."""
        return {key: (offer.low, offer.high) for key, offer in self.offers.items() if not offer.optional}

    def range(self, api_key: int) -> tuple[int, int] | None:
        """(min, max) as offered, also if that takes certain settings; None if it has no such API."""
        offer = self.offers.get(api_key)
        return None if offer is None else (offer.low, offer.high)

    def served(self, api_key: int) -> tuple[int, int] | None:
        """(min, max) of the versions that are served; differs from `range` for Produce of 4.x alone."""
        offer = self.offers.get(api_key)
        return None if offer is None else (offer.served_from, offer.high)

    def serves(self, api_key: int, version: int) -> bool:
        """Whether a request of this version is served."""
        offer = self.offers.get(api_key)
        return offer is not None and offer.served_from <= version <= offer.high

    @property
    def negotiates(self) -> bool:
        """Whether it has ApiVersions at all (0.10.0, KIP-35)."""
        return facts.api_key("ApiVersions") in self.offers


class Match(NamedTuple):
    """How well a release fits what a broker offers. `differs`: API key -> (offered, of the release), None if absent."""

    name: str
    differs: dict[int, tuple[tuple[int, int] | None, tuple[int, int] | None]]

    @property
    def exact(self) -> bool:
        """Nothing differs."""
        return not self.differs

    @property
    def distance(self) -> tuple[int, int]:
        """How many APIs are offered otherwise than by the release, and how many of the release's are not offered."""
        absent = sum(offered is None for offered, _ in self.differs.values())
        return len(self.differs) - absent, absent


def release_order(name: str) -> tuple[int, ...]:
    """A sort key by age: ``(0, 10, 2)`` of "0.10.2", ``(3, 9)`` of "3.9-zk"."""
    return _order(name.partition("-")[0])


def usual_role(number: str) -> str:
    """The usual role of a broker of this release: ``"zk"`` up to 3.2, then ``"kraft"``."""
    return "kraft" if _order(number) >= _FIRST_KRAFT else "zk"


def releases(roles: bool = False) -> list[str]:
    """The names of all releases, oldest first; with `roles` also ``3.9-zk`` and the like."""
    return list(_names(roles))


def release(name: str) -> Release:
    """The table of a release: ``release("3.9")``, ``release("3.9-zk")``, ``release("0.10.2.1")``. A patch release has the table of
    the newest one up to it that is known to differ, mostly the first of its minor release.

    Raises `UnknownName`, a KeyError, with the nearest name.
    """
    number, _, role = name.strip().lower().partition("-")
    if re.fullmatch(r"\d+(\.\d+)+", number):
        wanted = _order(number)
        minor = wanted[: 3 if wanted[0] == 0 else 2]
        fitting = [
            table
            for table in _tables().values()
            if table.role == (role or usual_role(table.number))
            and (order := _order(table.number))[: len(minor)] == minor
            and order <= wanted
        ]
        if fitting:
            return fitting[-1]
    known = releases(roles=bool(role))
    near = [n for n in known if n.startswith(name + ".")] or difflib.get_close_matches(name, known, 1, 0.5)
    hint = f", did you mean {' or '.join(near)}?" if near else f"; known are {known[0]} to {known[-1]}"
    raise UnknownName(f"unknown Kafka release {name!r}{hint}")


@lru_cache(4096)  # clients may make up 2^32 pairs
def since(api_key: int, version: int) -> str | None:
    """The release that introduced a version, in any role; None if none has it."""
    return next((number for number, served in _served().items() if version in served.get(api_key, ())), None)


def introduced(api_key: int) -> str | None:
    """The release that introduced an API, in any role; None if none has it."""
    return next((number for number, served in _served().items() if api_key in served), None)


@lru_cache(4096)
def removed(api_key: int, version: int, by: str | None = None) -> Removal | None:
    """Which release dropped a version for good, or, with the name of a release, so that `by` lacks it.

    None if it is still served, or never was. (JoinGroup 0 and 1 are missing in 4.0.0 alone, KAFKA-19444.)
    """
    numbers = list(_served())
    if by is not None:
        numbers = numbers[: numbers.index(release(by).number) + 1]
    had = [version in _served()[number].get(api_key, ()) for number in numbers]
    if not any(had) or had[-1]:
        return None
    last = max(i for i, has in enumerate(had) if has)
    gone = numbers[last + 1]
    reasons: dict[int, str] = {}
    for role in ROLES:
        if found := _tables().get((gone, role)):
            reasons = {**found.reasons, **reasons}
    return Removal(gone, numbers[last], reasons.get(api_key, reasons.get(-1, "")))


def release_of(offered: Mapping[int, tuple[int, int]]) -> list[Match]:
    """The releases whose tables are nearest to what a broker offers, all equally near, oldest first.

    What is offered counts first: a product may leave out half of the APIs, which says nothing of the age of the others. A single match that is `exact` is nearly certain. Without an exact match the broker is patched, configured differently, no
    Apache Kafka, or a proxy has changed its response.
    """
    found = [Match(r.name, dict(_differences(offered, r))) for r in _tables().values() if r.negotiates]
    best = min(match.distance for match in found)
    return [match for match in found if match.distance == best]


def exact_release(offered: Mapping[int, tuple[int, int]]) -> str | None:
    """The newest of the releases that offer exactly this, None without one. Much cheaper than `release_of`."""
    return _exact_release(frozenset(offered.items()))


@lru_cache(64)
def _exact_release(offered: frozenset[tuple[int, tuple[int, int]]]) -> str | None:
    ranges = dict(offered)
    exact = (r.name for r in reversed(_tables().values()) if r.negotiates and next(_differences(ranges, r), None) is None)
    return next(exact, None)


@lru_cache(256)  # clients are offered as many things as there are brokers and caps
def kind_of(offered: frozenset[tuple[int, tuple[int, int]]]) -> BrokerKind:
    """The broker that offers nearly this, as pairs of API key and (min, max); the newest of those that fit equally well."""
    found = release(release_of(dict(offered))[-1].name)
    return BrokerKind(_order(found.number), found.role == "zk")


def served_from(api_key: int, offered: tuple[int, int]) -> int:
    """The lowest version that a broker with this offer serves: the offered one, except for Produce of 4.x."""
    for table in reversed(_tables().values()):
        offer = table.offers.get(api_key)
        if offer is not None and (offer.low, offer.high) == offered:
            return offer.served_from
    return offered[0]


def _differences(
    offered: Mapping[int, tuple[int, int]], of: Release
) -> Iterator[tuple[int, tuple[tuple[int, int] | None, tuple[int, int] | None]]]:
    for key in sorted({*offered, *of.offers}):
        has, should = offered.get(key), of.range(key)
        if (has is None and of.offers[key].optional) or has == should:
            continue
        yield key, (has, should)


# --- the file ----------------------------------------------------------------------------------------------


def _order(number: str) -> tuple[int, ...]:
    return tuple(map(int, number.split(".")))


@cache
def _names(roles: bool) -> tuple[str, ...]:
    return tuple(r.name for r in _tables().values() if roles or r.role == usual_role(r.number))


@cache
def _tables() -> dict[tuple[str, str], Release]:
    return read(facts.schema_folder().joinpath("releases.txt").read_text("utf-8"))


@cache
def _served() -> dict[str, dict[int, set[int]]]:
    """Release number -> api key -> versions served in any role, oldest release first."""
    found: dict[str, dict[int, set[int]]] = {}
    for table in _tables().values():
        of = found.setdefault(table.number, {})
        for key, offer in table.offers.items():
            of.setdefault(key, set()).update(range(offer.served_from, offer.high + 1))
    return found


def read(text: str) -> dict[tuple[str, str], Release]:
    """The tables of ``releases.txt`` by (number, role), oldest first. Raises ValueError with the line that is wrong."""
    tables: dict[tuple[str, str], Release] = {}
    offers: dict[int, Offer] = {}
    reasons: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].rstrip()
        if not words:
            continue
        if head := _HEAD.fullmatch(words):
            before = [t for t in tables.values() if t.role == head[2]]
            offers, reasons = dict(before[-1].offers) if before else {}, {}
            tables[head[1], head[2]] = Release(head[1], head[2], offers, reasons)
        elif words.startswith("  why ") and tables:
            kip, _, names = words[6:].partition(" ")
            reasons.update({facts.api_key(n.strip()): kip for n in names.split(",")} if names else {-1: kip})
        elif words.startswith("  ") and tables:
            for entry in words.strip().rstrip(",").split(","):
                _apply(entry.strip(), offers, number)
        else:
            raise ValueError(f"releases.txt line {number}: {line!r} is neither a release nor its APIs")
    for key, table in tables.items():
        tables[key] = Release(table.number, table.role, dict(sorted(table.offers.items())), table.reasons)
    return dict(sorted(tables.items(), key=lambda item: (_order(item[0][0]), ROLES.index(item[0][1]))))


def _apply(entry: str, offers: dict[int, Offer], line: int) -> None:
    parts = _ENTRY.fullmatch(entry)
    if parts is None:
        raise ValueError(f"releases.txt line {line}: expected 'Api 0-5', 'Api 0/3-13', 'Api? 0' or 'Api gone', not {entry!r}")
    name, optional, offered, low, high = parts.groups()
    key = facts.api_key(name)
    if low is None:
        del offers[key]
    else:
        offers[key] = Offer(int(offered or low), int(high or low), int(low), bool(optional))


def write(tables: Mapping[tuple[str, str], Release], head: str) -> str:
    """The text of ``releases.txt``: the comments `head`, and what each release changes."""
    out = [head.rstrip("\n")]
    previous: dict[str, Mapping[int, Offer]] = {}
    for (number, role), table in sorted(tables.items(), key=lambda item: (_order(item[0][0]), ROLES.index(item[0][1]))):
        before = previous.get(role, {})
        changed = [key for key in sorted({*before, *table.offers}) if before.get(key) != table.offers.get(key)]
        out += ["", f"{number} {role}", *_wrapped([_entry(key, table.offers.get(key)) for key in changed])]
        kips = dict.fromkeys(table.reasons.values())
        for kip in kips:
            names = [facts.api_name(key) for key, why in table.reasons.items() if why == kip and key >= 0]
            out.append(f"  why {kip}{' ' if names else ''}{', '.join(names)}")
        previous[role] = table.offers
    return "\n".join(out) + "\n"


def _entry(key: int, offer: Offer | None) -> str:
    if offer is None:
        return f"{facts.api_name(key)} gone"
    low = f"{offer.low}/{offer.served_from}" if offer.low != offer.served_from else str(offer.low)
    high = f"-{offer.high}" if offer.high != offer.served_from else ""
    return f"{facts.api_name(key)}{'?' * offer.optional} {low}{high}"


def _wrapped(entries: list[str]) -> list[str]:
    lines: list[str] = []
    for i, entry in enumerate(entries):
        word = entry + ("," if i + 1 < len(entries) else "")
        if lines and len(lines[-1]) + 1 + len(word) <= _WIDTH:
            lines[-1] += " " + word
        else:
            lines.append("  " + word)
    return lines
