"""A finding: something wrong or odd in the traffic, with its evidence and a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ...connection.exchange import Exchange, State
from ...schema.facts import error_name

KEPT = 5
"""Exchanges that a finding keeps; more are only counted."""


class Severity(StrEnum):
    """How bad it is; ``str`` is what users write on the command line.

    info: worth knowing, nothing is wrong. low: costs something. medium: costs much, or will fail one day.
    high: something fails now.
    """

    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def rank(self) -> int:
        """0 for info, rising."""
        return list(Severity).index(self)


@dataclass(slots=True)
class Finding:
    """``seen`` is the fact, ``why`` what makes it matter (a KIP or setting named), ``remedy`` what to do.

    ``about`` holds what it concerns as plain values for scripts (client_id, software, broker, api, api_version,
    group, topic, partition, ...). ``first_ns`` and ``last_ns`` are None when no exchange belongs to it.
    """

    id: str
    severity: Severity
    seen: str
    why: str
    remedy: str
    count: int = 1
    exchanges: list[Exchange] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    first_ns: int | None = None
    last_ns: int | None = None
    rules: list[str] = field(default_factory=list)
    """Rules that caused some of it, by name, and plugins as ``plugin NAME`` (`injected`)."""
    others: int = 0
    """Evidence that no rule or plugin affected."""
    explains: tuple[str, ...] = ()
    """Detectors whose findings would only be effects of this one (`Detector.explains`)."""
    effects: tuple[str, ...] = ()
    """Those of `explains` that were found of the same client, connection or broker; set by `ranking.ranked`."""
    failures: int = 0
    """Evidence that failed: exchanges with an error or without an answer, and other events."""

    @property
    def injected(self) -> bool:
        """Whether rules and plugins caused all of it, directly or by affecting the same client earlier."""
        return bool(self.rules) and not self.others

    @property
    def done_by(self) -> str:
        """The rules and plugins that caused it, as text; empty if none did."""
        if not self.rules:
            return ""
        return f"{'all' if self.injected else 'some'} of it was caused by {', '.join(map(repr, self.rules))}"

    def add_evidence(self, exchange: Exchange | None, time_ns: int | None = None, rules: Iterable[str] = ()) -> None:
        """Add evidence: an exchange (the first `KEPT` are kept), or the time of another event. `rules`: what caused that event, or
        ended the connection before the exchange was answered."""
        if exchange is not None:
            rules = exchange.marks.rules or (tuple(rules) if exchange.state is State.NO_RESPONSE else ())
            self.others += not rules and not exchange.marks.after_rules
            time_ns = exchange.request_time_ns if exchange.request_time_ns is not None else exchange.response_time_ns
            self.failures += exchange.state is State.NO_RESPONSE or exchange.error != 0
            if len(self.exchanges) < KEPT:
                self.exchanges.append(exchange)
        else:
            self.failures += 1
        self.rules += [rule for rule in rules if rule not in self.rules]
        if time_ns:
            self.first_ns = time_ns if self.first_ns is None else min(self.first_ns, time_ns)
            self.last_ns = time_ns if self.last_ns is None else max(self.last_ns, time_ns)

    def to_dict(self) -> dict[str, Any]:
        """The keys of ``barnabas findings --json``."""
        return {
            "id": self.id,
            "severity": str(self.severity),
            "seen": self.seen,
            "why": self.why,
            "remedy": self.remedy,
            "count": self.count,
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
            "about": self.about,
            "explains": list(self.effects),
            "injected": self.injected,
            "rules": list(self.rules),
            "exchanges": [
                {
                    "time_ns": e.request_time_ns if e.request_time_ns is not None else e.response_time_ns,
                    "connection": e.connection,
                    "api": e.api,
                    "api_version": e.api_version,
                    "correlation_id": e.correlation_id,
                    "client_id": e.client_id,
                    "error": error_name(e.error) if e.error else None,
                }
                for e in self.exchanges
            ],
        }
