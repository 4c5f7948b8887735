"""The version matrix: per client and API, which versions were used, what the broker offers, and what the limit is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ..reference import releases
from ..schema import facts
from .client_tracker import API_VERSIONS, ObservedClient, Range, VersionUse


class Limit(StrEnum):
    """Why a client used no higher version."""

    BROKER = "broker"
    """The broker offers no higher one; the client may know more."""
    CLIENT = "client"
    """The broker offers more, which the client does not know or use."""
    UNKNOWN = "unknown"
    """What the broker offers was not seen."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One API of one client. `offered`: the ranges of its brokers. `known`: the versions that can be decoded here."""

    api_key: int
    uses: tuple[VersionUse, ...]
    offered: tuple[Range, ...]
    known: Range | None
    limit: Limit

    @property
    def api(self) -> str:
        """The API's name."""
        return facts.api_name(self.api_key)

    @property
    def highest(self) -> int | None:
        """The highest version that all its brokers offer and that is known here; None if what they offer was not seen. Whether
        the client knows it is open, unless it used it."""
        if not self.offered or self.known is None:
            return None
        return min(self.known[1], *(high for _, high in self.offered))

    @property
    def refused(self) -> int:
        """How many requests were refused for their version."""
        return sum(use.refused for use in self.uses)


MOST_ABSENT = 10
"""APIs of a release that are not offered: a broker of Apache Kafka has them all, whatever its settings."""


@dataclass(frozen=True, slots=True)
class ObservedBroker:
    """A broker and what it offers. `releases`: which ones it may be, see `releases.release_of`."""

    address: str
    offered: dict[int, Range]
    releases: tuple[releases.Match, ...]

    @property
    def guess(self) -> str:
        """``"4.3"``, ``"3.3 or 3.4"``, ``"closest to 4.3 (5 APIs differ)"``, ``"closest to 2.4 (7 APIs differ, 26 are not offered; probably
        not Apache Kafka, or a proxy hides them)"``, or "" if too little is known."""
        if not self.releases:
            return ""
        names = " or ".join(match.name for match in self.releases)
        differ, absent = self.releases[0].distance
        if not differ and not absent:
            return names
        apart = [f"{differ} API{'s differ' if differ > 1 else ' differs'}"] if differ else []
        apart += [f"{absent} {'are' if absent > 1 else 'is'} not offered"] if absent else []
        foreign = "; probably not Apache Kafka, or a proxy hides them" if absent >= MOST_ABSENT else ""
        return f"closest to {names} ({', '.join(apart)}{foreign})"


def matrix(client: ObservedClient) -> list[MatrixRow]:
    """The APIs that a client used, by API key."""
    return [_row(client, key) for key in sorted({key for key, _ in client.uses})]


def _row(client: ObservedClient, key: int) -> MatrixRow:
    uses, offered = tuple(client.versions(key).values()), tuple(client.ranges(key))
    known = facts.api(key).versions.every() if key in facts.api_keys() else ()
    if not offered:
        limit = Limit.UNKNOWN
    elif max(use.version for use in uses) < max(high for _, high in offered):
        limit = Limit.CLIENT
    else:
        limit = Limit.BROKER
    return MatrixRow(key, uses, offered, (min(known), max(known)) if known else None, limit)


def brokers(clients: Iterable[ObservedClient]) -> list[ObservedBroker]:
    """The brokers whose offer was seen, by address."""
    offered: dict[str, dict[int, Range]] = {}
    for client in clients:
        for address, ranges in client.offered.items():
            offered.setdefault(address, {}).update(ranges)
    return [broker(address, ranges) for address, ranges in sorted(offered.items())]


def broker(address: str, offered: dict[int, Range]) -> ObservedBroker:
    """A broker with the releases that it may be."""
    # A response with ApiVersions alone is a refusal (KIP-511): the other APIs are unknown.
    others = {key for key in offered if key != API_VERSIONS}
    return ObservedBroker(address, dict(sorted(offered.items())), tuple(releases.release_of(offered)) if others else ())
