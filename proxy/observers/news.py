"""Which findings are news."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...decoder.findings import Finding, Severity


class News:
    """Which findings are to be told: new ones, those that got worse, those seen twice as often. `injected`: also what rules did."""

    def __init__(self, severity: Severity, injected: bool = False) -> None:
        self._from = severity.rank
        self._injected = injected
        self._told: dict[object, tuple[int, int, int]] = {}  # number, rank and count when it was told

    def of(self, findings: Iterable[Finding], everything: bool = False) -> Iterator[tuple[Finding, int, object]]:
        """(finding, its number, what to hand to `tell` when it was sent). `everything`: all that changed."""
        seen: dict[object, int] = {}
        for finding in findings:
            if finding.severity.rank < self._from or (finding.injected and not self._injected):
                continue
            key: object = _identity(finding)
            seen[key] = ordinal = seen.get(key, 0) + 1
            key = key, ordinal
            number, rank, count = self._told.get(key, (len(self._told) + 1, -1, 0))
            grown = finding.count > count if everything else finding.count >= 2 * count
            if rank < finding.severity.rank or grown:
                yield finding, number, key

    def tell(self, key: object, finding: Finding, number: int) -> None:
        """The finding was told."""
        self._told[key] = number, finding.severity.rank, finding.count


_WHO = ("client_id", "software", "broker", "group", "topic", "partition", "api", "api_version", "error", "side", "field")


def _identity(finding: Finding) -> object:
    """What makes two reports the same finding: some detectors write theirs anew each time they are asked."""
    about = finding.about
    return finding.id, str(about.get("client", "")).rpartition(":")[0], *(str(about.get(name)) for name in _WHO)
