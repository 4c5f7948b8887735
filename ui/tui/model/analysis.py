"""The analysis of a capture by the findings' Inspector, read in slices: connections, groups and findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, Protocol

from ....bounded import BoundedDict
from ....captures import Capture, NotACapture
from ....captures.reading.events import EventReader
from ....decoder.connection.events import Closed, ConnectionEvent, Opened
from ....decoder.findings import Finding, Inspector, Severity, Traffic
from ....decoder.findings.engine.traffic import ClientConnection
from ....decoder.findings.models.groups import Groups

_CHECK = 16
"""Events between two looks at the clock."""
_FINDINGS_EVERY = 500
"""Events after which findings are put together again, while there are more to read."""
LINKS = 20_000
"""Connections that are kept; the oldest are forgotten."""


class Growth(NamedTuple):
    """How far a capture has grown: its rows, and whether more may come."""

    rows: int
    live: bool

    @classmethod
    def of(cls, capture: Capture) -> Growth:
        return cls(len(capture.rows()), capture.live)


class AnalysisResult(NamedTuple):
    """What is known so far. `read`: events; `progress`: 0 to 1; `fault`: why the capture cannot be read, or "";
    `findings`: the worst first; `connections`: connections by number, those that ended too; `unread`: there is more to read of
    the capture as it was at `growth`."""

    traffic: Traffic
    groups: Groups
    findings: list[Finding]
    connections: dict[int, ClientConnection]
    read: int
    fault: str
    progress: float
    unread: bool
    growth: Growth

    @property
    def high(self) -> int:
        """How many findings are of high severity."""
        return sum(finding.severity is Severity.HIGH for finding in self.findings)

    @property
    def medium(self) -> int:
        """How many findings are of medium severity."""
        return sum(finding.severity is Severity.MEDIUM for finding in self.findings)


class Analysis(Protocol):
    """A capture that is being analysed, here or by another process."""

    @property
    def result(self) -> AnalysisResult:
        """What is known so far."""

    @property
    def unread(self) -> bool:
        """Whether there is more to read, as far as is known."""

    def step(self, seconds: float) -> None:
        """Read on for about so long, also in a live recording."""

    def stop(self) -> None:
        """Read no more."""


class CaptureAnalysis:
    """Feeds an `Inspector` with the capture at `path`, which is as large as `growth()` says."""

    def __init__(self, path: Path, growth: Callable[[], Growth], fault: str = ""):
        self._inspector, self._growth, self._fault = Inspector(), growth, fault
        self._links: dict[int, ClientConnection] = BoundedDict(LINKS)
        self._read = 0
        self._source: EventReader | None = None
        self._rest: Iterator[ConnectionEvent] | None = None
        self._ended = False
        self._rows_seen = 0
        self._findings: list[Finding] = []
        self._findings_at = -1
        if fault:
            return
        try:
            self._source = EventReader(path)
        except (NotACapture, OSError) as error:
            self._fault = str(error)

    @classmethod
    def of(cls, capture: Capture) -> CaptureAnalysis:
        """The analysis of a capture that is open."""
        fault = "" if capture.has_frames else (
            "There are summaries only, no messages. With a recording: barnabas ui --attach newest --record DIR."
        )  # fmt: skip
        return cls(capture.path, lambda: Growth.of(capture), fault)

    @property
    def result(self) -> AnalysisResult:
        traffic = self._inspector.traffic
        return AnalysisResult(
            traffic, Groups.of(traffic), self._found(), self._links, self._read, self._fault, self._progress(), self.unread,
            self._growth(),
        )  # fmt: skip

    @property
    def unread(self) -> bool:
        if self._fault or self._ended:
            return False
        rows, live = self._growth()
        return self._rest is not None or self._rows_seen != rows or not live or (self._source is not None and self._source.half_open)

    def _progress(self) -> float:
        source = self._source
        if source is None or self._ended or not source.bytes_known:
            return 1.0
        return min(source.bytes_read / source.bytes_known, 1.0)

    def _found(self) -> list[Finding]:
        at = self._findings_at
        if at != self._read and (at < 0 or self._ended or self._read > at + _FINDINGS_EVERY):
            self._findings_at = self._read
            self._findings = self._inspector.findings()
        return self._findings

    def step(self, seconds: float) -> None:
        until = perf_counter() + seconds
        try:
            self._step(until)
        except (NotACapture, OSError, ValueError) as error:
            self._fault = f"the rest cannot be read: {error}"

    def _step(self, until: float) -> None:
        assert self._source is not None
        while not self._ended:
            if self._rest is None:
                self._rows_seen = self._growth().rows
                self._rest = self._source.read()
            for event in self._rest:
                self._take(event)
                if self._read % _CHECK == 0 and perf_counter() >= until:
                    return
            self._rest = None
            if self._growth().live:
                for event in self._source.half_closed():
                    self._take(event)
                return
            for event in self._source.end():
                self._take(event)
            self._ended = True

    def _take(self, event: ConnectionEvent) -> None:
        self._read += 1
        known = self._inspector.traffic.connections
        ended = known.get(event.connection) if isinstance(event, Closed) else None
        self._inspector.feed(event)
        if isinstance(event, Opened):
            self._links[event.connection] = known[event.connection]
        elif ended is not None:
            self._links[event.connection] = ended  # type: ignore[union-attr]

    def stop(self) -> None:
        pass
