"""Which findings to report while traffic runs, and how much of a finding a report holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...decoder.findings import Finding, Severity

Fact = int | float | bool | str | None
"""A value of `Finding.about` as JSON holds it."""


class Due(NamedTuple):
    """A finding to be reported. `number`: the same each time this finding is reported; `key`: for `FindingReports.reported`."""

    finding: Finding
    number: int
    key: object


class FindingReports:
    """Picks findings that are new, have become more severe, or have been seen twice as often as when they were last reported.

    severity: the least that is reported. injected: also report findings that rules caused.
    """

    def __init__(self, severity: Severity, injected: bool = False) -> None:
        self._least = severity.rank
        self._injected = injected
        self._reported: dict[object, tuple[int, int, int]] = {}  # number, and rank and count as last reported

    def due(self, findings: Iterable[Finding], everything: bool = False) -> Iterator[Due]:
        """What to report of all findings so far; call `reported` for each that was. `everything`: all that have changed."""
        seen: dict[object, int] = {}
        for finding in findings:
            if finding.severity.rank < self._least or (finding.injected and not self._injected):
                continue
            key: object = _identity(finding)
            seen[key] = ordinal = seen.get(key, 0) + 1
            key = key, ordinal
            number, rank, count = self._reported.get(key, (len(self._reported) + 1, -1, 0))
            grown = finding.count > count if everything else finding.count >= 2 * count
            if rank < finding.severity.rank or grown:
                yield Due(finding, number, key)

    def reported(self, due: Due) -> None:
        """This report was sent."""
        self._reported[due.key] = due.number, due.finding.severity.rank, due.finding.count


_WHO = ("client_id", "software", "broker", "group", "topic", "partition", "api", "api_version", "error", "side", "field")


def _identity(finding: Finding) -> object:
    """What makes two reports the same finding: some detectors write theirs anew each time they are asked. Of several clients, the first
    counts: a finding stays the same when more clients join it."""
    about = finding.about
    about = about | about["clients"][0] if "clients" in about else about
    return finding.id, str(about.get("client", "")).rpartition(":")[0], *(str(about.get(name)) for name in _WHO)


def about_as_json(finding: Finding, longest: int | None = None) -> dict[str, Fact]:
    """What a finding is about, as JSON can hold it; `longest`: most characters of a text, None for no limit."""
    return {
        name: value if isinstance(value, (int, float, bool, type(None))) else str(value)[:longest]
        for name, value in finding.about.items()
    }
