"""What is wrong in a conversation, and why: detectors over exchanges, each with its evidence and a remedy."""

from __future__ import annotations

from collections.abc import Iterable

from ..exchange import Exchange
from .finding import Detector, Finding, Severity
from .malformed import ForbiddenNull, MalformedApiVersionsFallback, SurplusBytes

__all__ = ["Detector", "Finding", "Inspector", "Severity", "inspect"]

_ORDER = {severity: place for place, severity in enumerate(reversed(Severity))}


class Inspector:
    """All detectors together; feed it exchanges as they are done, ask for findings whenever you like."""

    def __init__(self) -> None:
        self._detectors: list[Detector] = [MalformedApiVersionsFallback(), SurplusBytes(), ForbiddenNull()]

    def look(self, exchange: Exchange) -> None:
        for detector in self._detectors:
            detector.look(exchange)

    def findings(self) -> list[Finding]:
        """What was found so far, the worst first."""
        found = [finding for detector in self._detectors for finding in detector.findings()]
        return sorted(found, key=lambda f: (_ORDER[f.severity], -f.count))


def inspect(exchanges: Iterable[Exchange]) -> list[Finding]:
    """The findings of a finished conversation."""
    inspector = Inspector()
    for exchange in exchanges:
        inspector.look(exchange)
    return inspector.findings()
