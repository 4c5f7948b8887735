"""Retention while something is recorded: when it is applied, and what is told of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ...captures.recording.retention import Removed, Retention
from ..events import Event, FlightShort, RemovalFailed, SegmentsRemoved
from .recording_config import RecordingConfig

EVERY_SECONDS = 5.0
"""How often segments are looked at for their age."""
TELL_SECONDS = 60.0
"""How often it is told at most that segments were removed."""


class Retainer:
    """Keeps the directory that is recorded into within its limits. `emit` hears of it; nothing is raised."""

    def __init__(self, emit: Callable[[Event], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit, self._clock = emit, clock
        self._retention: Retention | None = None
        self._is_ring = self._told_short = False
        self._applied = 0.0
        self._removed: list[Removed] = []
        self._told = float("-inf")
        self._failed = ""

    def watch(self, directory: Path, config: RecordingConfig, is_ring: bool) -> None:
        """This is recorded into now. `is_ring`: what a flight recorder removes is no news."""
        self._tell(last=True)
        keep = config.keep
        self._retention = Retention(directory, keep, config.segment_bytes) if keep else None
        self._is_ring = is_ring
        self.apply()

    def tick(self) -> None:
        """About once a second."""
        if self._retention is not None and self._clock() - self._applied >= EVERY_SECONDS:
            self.apply()
        self._tell()

    def apply(self) -> None:
        """Remove what is too much now."""
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
            self._look(retention)
        elif removed.names:
            self._removed.append(removed)
            self._tell()

    def _look(self, retention: Retention) -> None:
        """Whether the ring's size is full before its time."""
        wanted, size = retention.keep.seconds, retention.keep.bytes
        if self._told_short or wanted is None or size is None:
            return
        segments, _ = retention.segments()
        if segments and time.time() - segments[0].ended < wanted * 0.9:
            self._told_short = True
            self._emit(FlightShort(time.time() - segments[0].ended, wanted, size))

    def _tell(self, last: bool = False) -> None:
        if not self._removed or self._retention is None:
            return
        now = self._clock()
        if not last and now - self._told < TELL_SECONDS:
            return
        self._told = now
        names = [name for removed in self._removed for name in removed.names]
        size = sum(removed.bytes for removed in self._removed)
        self._removed.clear()
        self._emit(SegmentsRemoved(str(self._retention.directory), len(names), size, names[0], names[-1]))

    def close(self) -> None:
        """Nothing more is recorded: apply it once more, and tell what was not told."""
        self.apply()
        self._tell(last=True)
