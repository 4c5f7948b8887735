"""Retention while something is recorded: when it is applied, and what is reported of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ...captures.recording.retention import Removed, Retention
from ..events import Event, FlightShort, RemovalFailed, SegmentsRemoved
from .settings import RecordingConfig

EVERY_SECONDS = 5.0
"""How often the age of segments is checked."""
REPORT_SECONDS = 60.0
"""The least time between two reports that segments were removed."""


class Retainer:
    """Keeps the directory that is recorded into within its limits. Reports to `emit`; never raises."""

    def __init__(self, emit: Callable[[Event], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit, self._clock = emit, clock
        self._retention: Retention | None = None
        self._is_ring = self._reported_short = False
        self._applied = 0.0
        self._removed: list[Removed] = []
        self._reported = float("-inf")
        self._failed = ""

    def watch(self, directory: Path, config: RecordingConfig, is_ring: bool) -> None:
        """Record into this directory from now on. is_ring: it is a flight recorder's ring, whose removals are not reported."""
        self._report(last=True)
        keep = config.keep
        self._retention = Retention(directory, keep, config.segment_bytes) if keep else None
        self._is_ring = is_ring
        self.apply()

    def tick(self) -> None:
        """Call this about once a second."""
        if self._retention is not None and self._clock() - self._applied >= EVERY_SECONDS:
            self.apply()
        self._report()

    def apply(self) -> None:
        """Remove what is over the limits now."""
        retention = self._retention
        if retention is None:
            return
        self._applied = self._clock()
        removed = retention.apply()
        if removed is None:
            return
        if removed.failed and removed.failed != self._failed:
            self._emit(RemovalFailed(removed.failed))
        self._failed = removed.failed
        if removed.names and self._is_ring:
            self._check_window(retention)
        elif removed.names:
            self._removed.append(removed)
            self._report()

    def _check_window(self, retention: Retention) -> None:
        """Report once if the ring is full before it holds its time."""
        wanted, size = retention.keep.seconds, retention.keep.bytes
        if self._reported_short or wanted is None or size is None:
            return
        segments, _ = retention.segments()
        if segments and time.time() - segments[0].ended < wanted * 0.9:
            self._reported_short = True
            self._emit(FlightShort(time.time() - segments[0].ended, wanted, size))

    def _report(self, last: bool = False) -> None:
        if not self._removed or self._retention is None:
            return
        now = self._clock()
        if not last and now - self._reported < REPORT_SECONDS:
            return
        self._reported = now
        names = [name for removed in self._removed for name in removed.names]
        size = sum(removed.bytes for removed in self._removed)
        self._removed.clear()
        self._emit(SegmentsRemoved(str(self._retention.directory), len(names), size, names[0], names[-1]))

    def close(self) -> None:
        """Recording has ended: apply the limits once more, and report what was not reported."""
        self.apply()
        self._report(last=True)
