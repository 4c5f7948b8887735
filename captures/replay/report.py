"""The result of a replay: counts, differences by field, latencies; as JSON and as text."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ...decoder.schema import facts
from .comparison import FieldDifference
from .script import RecordedCall

_KEPT = 1000
MS = 1_000_000


class Latencies:
    """Latencies of one API, in ns."""

    def __init__(self) -> None:
        self.recorded = array("q")
        self.replayed = array("q")

    def add(self, recorded: int | None, replayed: int) -> None:
        if recorded is not None:
            self.recorded.append(recorded)
        self.replayed.append(replayed)

    def to_dict(self) -> dict[str, Any]:
        return {"recorded_ms": _percentiles(self.recorded), "replayed_ms": _percentiles(self.replayed)}


def _percentiles(values: array[int]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {f"p{p}": round(ordered[min(len(ordered) - 1, len(ordered) * p // 100)] / MS, 3) for p in (50, 99)} | {
        "max": round(ordered[-1] / MS, 3)
    }


@dataclass
class ReplayReport:
    """Filled while a replay runs. `differences` keeps the first 1,000; `different` counts all, by API and field."""

    sent: int = 0
    answered: int = 0
    again: int = 0
    unanswered: int = 0
    equal: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    differences: list[dict[str, Any]] = field(default_factory=list)
    latencies: dict[int, Latencies] = field(default_factory=dict)
    late_ns: array[int] = field(default_factory=lambda: array("q"))
    held_back: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    warnings: list[str] = field(default_factory=list)

    def skip(self, call: RecordedCall, why: str) -> None:
        """A request was left out."""
        what = f"{call.exchange.api} v{call.exchange.api_version}: {why}"
        self.skipped[what] += 1

    def fail(self, call: RecordedCall, why: str) -> None:
        """A request could not be sent, or its answer not be read: a difference."""
        what = f"{call.exchange.api} v{call.exchange.api_version}: {why}"
        self.failed[what] += 1

    def note(self, what: str) -> None:
        """Something worth knowing that is no difference."""
        self.notes[what] += 1

    def differ(self, call: RecordedCall, found: list[FieldDifference]) -> None:
        """An answer was otherwise than recorded."""
        exchange = call.exchange
        for each in found:
            what = f"{exchange.api} {_pattern(each.path)}"
            self.different[what] += 1
            if len(self.differences) < _KEPT:
                self.differences.append(
                    {
                        "request": call.number,
                        "connection": exchange.connection,
                        "api": exchange.api,
                        "api_version": exchange.api_version,
                        "correlation_id": exchange.correlation_id,
                        "path": each.path,
                        "recorded": each.recorded,
                        "got": each.got,
                    }
                )

    def differ_at_the_end(self, api: str, what: str, found: FieldDifference) -> None:
        """The outcome of all was otherwise; `what` names the kind."""
        self.different[what] += 1
        if len(self.differences) < _KEPT:
            self.differences.append({"api": api, "path": found.path, "recorded": found.recorded, "got": found.got})

    def took(self, call: RecordedCall, replayed_ns: int) -> None:
        self.latencies.setdefault(call.exchange.api_key, Latencies()).add(call.exchange.latency_ns, replayed_ns)

    @property
    def count(self) -> int:
        """The number of differences, failures included."""
        return sum(self.different.values()) + sum(self.failed.values())

    def to_dict(self) -> dict[str, Any]:
        """The JSON document; see docs/replay.md."""
        rate = self.sent / self.seconds if self.seconds else 0.0
        return {
            "sent": self.sent,
            "answered": self.answered,
            "unanswered": self.unanswered,
            "sent_again": self.again,
            "equal": self.equal,
            "differences": self.count,
            "different": dict(sorted(self.different.items(), key=lambda item: -item[1])),
            "failed": self.failed,
            "skipped": self.skipped,
            "versions": self.versions,
            "ignored": self.ignored,
            "notes": self.notes,
            "warnings": self.warnings,
            "examples": self.differences,
            "latency": {facts.api_name(key): found.to_dict() for key, found in sorted(self.latencies.items())},
            "timing_error_ms": _percentiles(self.late_ns),
            "held_back_by_answers": self.held_back,
            "seconds": round(self.seconds, 3),
            "requests_per_second": round(rate, 1),
            "interrupted": self.interrupted,
        }


def _pattern(path: str) -> str:
    """``topics[3].name`` -> ``topics[*].name``."""
    out, inside = [], False
    for letter in path:
        if letter == "]":
            inside = False
        if not inside:
            out.append(letter)
        if letter == "[":
            out.append("*")
            inside = True
    return "".join(out)
