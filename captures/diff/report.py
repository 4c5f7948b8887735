"""The result of comparing two recordings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any


class Level(IntEnum):
    """The weight of a difference."""

    NOISE = 0
    """timing explains it: polls, retries, batches, offsets in between"""
    LOW = 1
    """slower, or another offer that no client used"""
    MEDIUM = 2
    """something is asked or answered otherwise"""
    HIGH = 3
    """something fails on one side only, or other records went through"""

    @property
    def word(self) -> str:
        """Its name in reports."""
        return self.name.lower()


class DifferenceKind(StrEnum):
    """The kinds of differences."""

    ERROR = "error"
    RECORDS = "records"
    ONLY = "request"
    """a request that only one side makes"""
    VERSION = "version"
    FIELD = "field"
    OFFER = "offer"
    COUNT = "count"
    LATENCY = "latency"


@dataclass(slots=True)
class Difference:
    """One difference, however often it is there. `a` and `b` are the two values in words, "" where one side has
    nothing. `in_a`, `in_b`: numbers of exchanges that show it, from 1."""

    level: Level
    kind: DifferenceKind
    api: str
    client: str
    scope: str
    what: str
    a: str
    b: str
    count: int = 1
    in_a: list[int] = field(default_factory=list)
    in_b: list[int] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "level": self.level.word, "kind": str(self.kind), "api": self.api, "client": self.client,
            "scope": self.scope, "what": self.what, "a": self.a, "b": self.b, "count": self.count,
            "in_a": self.in_a, "in_b": self.in_b,
        }  # fmt: skip


@dataclass(slots=True)
class Latency:
    """Latencies of one API, in nanoseconds; None without responses."""

    count: int = 0
    p50: int | None = None
    p99: int | None = None

    @classmethod
    def of(cls, values: list[int]) -> Latency:
        """From latencies in any order."""
        if not values:
            return cls()
        ordered = sorted(values)
        return cls(len(ordered), ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)])


@dataclass(slots=True)
class Side:
    """One recording in figures."""

    name: str
    exchanges: int = 0
    connections: int = 0
    clients: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    apis: Counter[str] = field(default_factory=Counter)
    versions: dict[str, set[int]] = field(default_factory=dict)
    latencies: dict[str, Latency] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "name": self.name, "exchanges": self.exchanges, "connections": self.connections, "clients": self.clients,
            "errors": dict(self.errors),
            "apis": {
                api: {
                    "requests": count, "versions": sorted(self.versions[api]),
                    "p50_ns": self.latencies[api].p50, "p99_ns": self.latencies[api].p99,
                }
                for api, count in sorted(self.apis.items())
            },
        }  # fmt: skip


@dataclass(slots=True)
class DiffReport:
    """Everything that was found. `differences` are sorted, the worst first; `names`: which names of B were taken
    for which of A; `notes` explain differences, in whole sentences."""

    a: Side
    b: Side
    differences: list[Difference] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def worst(self) -> Level:
        """The worst level that is there; NOISE when nothing differs."""
        return max((found.level for found in self.differences), default=Level.NOISE)

    def above(self, level: Level) -> list[Difference]:
        """The differences of at least this level."""
        return [found for found in self.differences if found.level >= level]

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "a": self.a.to_dict(), "b": self.b.to_dict(), "worst": self.worst.word,
            "counts": {level.word: sum(d.level is level for d in self.differences) for level in reversed(Level)},
            "names": self.names,
            "notes": self.notes,
            "differences": [found.to_dict() for found in self.differences],
        }  # fmt: skip
