"""The story of a capture, read in slices: its connections as they happened, its groups, and what is wrong in it."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from ....captures import Capture, NotACapture
from ....captures.reading.events import EventReader
from ....decoder.connection.events import Closed, ConnectionEvent, Opened
from ....decoder.findings import Finding, Inspector, Severity, Traffic
from ....decoder.findings.engine.traffic import ClientConnection
from ....decoder.findings.models.groups import Groups

_CHECK = 16
"""Events between two looks at the clock."""
LINKS = 20_000
"""Connections that are kept."""


class CaptureAnalysis:
    """Feeds an `Inspector`. `step` reads on for a while, also of a live recording."""

    def __init__(self, capture: Capture):
        self.inspector = Inspector()
        self.links: dict[int, ClientConnection] = {}
        """Connections by number, those that ended too; the oldest are forgotten."""
        self.fault = ""
        """Why it cannot be read, or ""."""
        self.read = 0
        """Events so far."""
        self._capture = capture
        self._source: EventReader | None = None
        self._rest: Iterator[ConnectionEvent] | None = None
        self._ended = False
        self._seen_rows = 0
        self._findings: list[Finding] = []
        self._found_at = -1
        if not getattr(capture, "has_frames", True):
            self.fault = "There are summaries only, no messages. With a recording: barnabas ui --attach newest --record DIR."
            return
        try:
            self._source = EventReader(capture.path)
        except (NotACapture, OSError) as error:
            self.fault = str(error)

    @property
    def traffic(self) -> Traffic:
        """What is known of clients, brokers and leaders."""
        return self.inspector.traffic

    @property
    def unread(self) -> bool:
        """Whether there is more to read, as far as is known."""
        if self.fault or self._ended:
            return False
        return self._rest is not None or self._seen_rows != len(self._capture.rows()) or not self._capture.live

    @property
    def progress(self) -> float:
        """How much of the capture has been read, 0 to 1."""
        source = self._source
        if source is None or self._ended or not source.bytes_known:
            return 1.0
        return min(source.bytes_read / source.bytes_known, 1.0)

    def step(self, seconds: float) -> None:
        """Read on for about so long."""
        until = perf_counter() + seconds
        try:
            self._step(until)
        except (NotACapture, OSError, ValueError) as error:
            self.fault = f"the rest cannot be read: {error}"

    def _step(self, until: float) -> None:
        assert self._source is not None
        while not self._ended:
            if self._rest is None:
                self._seen_rows = len(self._capture.rows())
                self._rest = self._source.read()
            for event in self._rest:
                self._take(event)
                if self.read % _CHECK == 0 and perf_counter() >= until:
                    return
            self._rest = None
            if self._capture.live:
                return
            for event in self._source.end():
                self._take(event)
            self._ended = True

    def _take(self, event: ConnectionEvent) -> None:
        self.read += 1
        ended = self.traffic.connections.get(event.connection) if isinstance(event, Closed) else None
        self.inspector.feed(event)
        if isinstance(event, Opened):
            self.links[event.connection] = self.traffic.connections[event.connection]
            if len(self.links) > LINKS:
                del self.links[next(iter(self.links))]
        elif ended is not None:
            self.links[event.connection] = ended  # type: ignore[union-attr]

    def stop(self) -> None:
        """Read no more."""

    def findings(self) -> list[Finding]:
        """What was found so far, the worst first."""
        if self._found_at != self.read and (self._found_at < 0 or self._ended or self.read > self._found_at + 500):
            self._found_at = self.read
            self._findings = self.inspector.findings()
        return self._findings

    def severities(self) -> tuple[int, int]:
        """How many findings are high, and how many medium."""
        found = self.findings()
        return sum(f.severity is Severity.HIGH for f in found), sum(f.severity is Severity.MEDIUM for f in found)

    def groups(self) -> Groups:
        """The groups, with a timeline for each member."""
        return Groups.of(self.traffic)
