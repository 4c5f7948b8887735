"""Settings of recording and of the flight recorder, checked before anything starts; and what the observer and the inspector are given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...captures.recording.flight_recorder import Window
from ...captures.recording.recording import SEGMENT_BYTES, SEGMENT_SECONDS
from ...captures.recording.retention import Keep
from ..ring.merged_rings import RingAccess


@dataclass(frozen=True, slots=True)
class ObserverSettings:
    """record: the directory, None to only count. commands: the descriptor of the channel to the control server, if there is one."""

    access: RingAccess
    lossless: bool
    record: str | None
    recording: RecordingConfig
    flight: FlightConfig | None
    snaplen: int | None
    commands: int | None


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """How many exchanges can be asked for, and whether answers hold keys and values of records."""

    count: int
    values: bool


@dataclass(frozen=True, slots=True)
class InspectorSettings:
    """findings_from: the least severity of findings that are reported, None to report none. live: None without a control API.
    commands: as of `ObserverSettings`."""

    access: RingAccess
    findings_from: str | None
    flight: FlightConfig | None
    live: LiveSettings | None
    commands: int | None


LEAST_SEGMENT = 64 << 10
"""Smaller segments would consist of headers more than of traffic."""
RING = "ring"
"""The directory of the flight recorder's own recording, beside what it writes out."""


@dataclass(frozen=True, slots=True)
class RecordingConfig:
    """Segments end after `rotate_bytes` or `rotate_seconds` (0: 64 MiB, an hour, or an eighth of what is kept, if that is
    less); the oldest are removed when all are over `keep_bytes`, or older than `keep_seconds` (None: never).
    ValueError for impossible settings."""

    rotate_bytes: int = 0
    rotate_seconds: float = 0.0
    keep_bytes: int | None = None
    keep_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.rotate_bytes < 0 or self.rotate_seconds < 0:
            raise ValueError("a segment's size and time must be above 0")
        if self.rotate_bytes and self.rotate_bytes < LEAST_SEGMENT:
            raise ValueError(f"a segment of less than {LEAST_SEGMENT >> 10} KiB is too small: give more")
        if self.rotate_seconds and self.rotate_seconds < 1:
            raise ValueError("a segment of less than a second is too short: give more")
        if self.keep_bytes is not None and self.keep_bytes < 2 * max(self.rotate_bytes, LEAST_SEGMENT):
            raise ValueError(
                "what is kept is less than two segments, and the one being written is never removed: keep more, or "
                "make segments smaller"
            )
        if self.keep_seconds is not None and self.keep_seconds < 2 * max(self.rotate_seconds, 1):
            raise ValueError("what is kept is less than two segments: keep it longer, or make segments shorter")

    @property
    def segment_bytes(self) -> int:
        if self.rotate_bytes or self.keep_bytes is None:
            return self.rotate_bytes or SEGMENT_BYTES
        return min(SEGMENT_BYTES, max(self.keep_bytes // 8, LEAST_SEGMENT))

    @property
    def segment_seconds(self) -> float:
        if self.rotate_seconds or self.keep_seconds is None:
            return self.rotate_seconds or SEGMENT_SECONDS
        return min(SEGMENT_SECONDS, max(self.keep_seconds / 8, 1.0))

    @property
    def keep(self) -> Keep:
        return Keep(self.keep_bytes, self.keep_seconds)


@dataclass(frozen=True, slots=True)
class FlightConfig:
    """A flight recorder that writes into `directory`: the last `seconds` (None: no limit), at most `bytes`, and what follows for
    `after` seconds.

    filters: texts of the filter language. local: their times without an offset are in the machine's zone, not in UTC. findings: ids, or
    severities ("high" means high or worse). every: least seconds between two recordings that nobody asked for (0: `seconds`, or five
    minutes). most: how many of those there may be. ValueError for impossible settings.
    """

    directory: Path
    seconds: float | None = 300.0
    bytes: int = 1 << 30
    after: float = 10.0
    every: float = 0.0
    most: int = 20
    filters: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    local: bool = False

    def __post_init__(self) -> None:
        if self.seconds is not None and self.seconds < 2:
            raise ValueError("a flight recorder must keep at least 2 seconds")
        if self.bytes < 4 * LEAST_SEGMENT:
            raise ValueError(f"a flight recorder must keep at least {4 * LEAST_SEGMENT >> 10} KiB")
        if not 0 <= self.after <= 3600:
            raise ValueError("the time that follows a flight recording must be 0 s to 1 hour")
        if self.every < 0 or self.most < 1:
            raise ValueError("the pause between flight recordings and their number must be more than 0")
        if self.filters:
            from ...decoder.filter import FilterError, compile

            for text in self.filters:
                try:
                    compile(text)
                except FilterError as error:
                    raise ValueError(error.pointer()) from None
        if self.findings:
            from ...decoder.findings import Severity, detectors

            known = {str(severity) for severity in Severity} | {kind.id for kind in detectors()}
            for word in self.findings:
                if word not in known:
                    raise ValueError(f"{word!r} is neither a severity (low, medium, high) nor the id of a finding")

    @property
    def wakes(self) -> bool:
        """Whether traffic can trigger it."""
        return bool(self.filters or self.findings)

    @property
    def window(self) -> Window:
        return Window(self.seconds, self.bytes, self.after)

    @property
    def pause(self) -> float:
        """Seconds between two recordings that nobody asked for."""
        return self.every or self.seconds or 300.0

    @property
    def ring(self) -> RecordingConfig:
        """How its own recording is kept: with segments so short that what is written out is little more than the window."""
        seconds = self.seconds
        return RecordingConfig(
            rotate_bytes=min(SEGMENT_BYTES, max(self.bytes // 8, LEAST_SEGMENT)),
            rotate_seconds=60.0 if seconds is None else min(60.0, max(seconds / 10, 1.0)),
            keep_bytes=self.bytes,
            keep_seconds=seconds,
        )
