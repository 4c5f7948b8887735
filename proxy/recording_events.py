"""What the proxy tells of recordings: what retention removed, a disk that has room again, flight recordings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from .events import Event


def size(count: int) -> str:
    """Bytes for people."""
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= least:
            return f"{count / least:.3g} {unit}"
    return f"{count} B"


def span(seconds: float) -> str:
    """A duration for people, as it can be given."""
    for unit, least in (("h", 3600), ("m", 60)):
        if seconds >= least and seconds % least == 0:
            return f"{seconds / least:.0f}{unit}"
    return f"{seconds:g}s"


@dataclass(frozen=True, slots=True)
class RecordingResumed(Event):
    """The disk takes the recording again."""

    reason: str

    @property
    def text(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class SegmentsRemoved(Event):
    """Retention has removed the oldest segments; `first` and `last` name them."""

    directory: str
    segments: int
    bytes: int
    first: str
    last: str

    @property
    def text(self) -> str:
        names = self.first if self.segments == 1 else f"{self.segments} segments, {self.first} to {self.last}"
        return f"removed from {self.directory}: {names} ({size(self.bytes)})"


@dataclass(frozen=True, slots=True)
class RemovalFailed(Event):
    """A segment that is too old, or too much, cannot be removed."""

    warning: ClassVar[bool] = True
    reason: str

    @property
    def text(self) -> str:
        return f"{self.reason}; the recording grows beyond what is to be kept"


@dataclass(frozen=True, slots=True)
class FlightStands(Event):
    """The flight recorder keeps the last `seconds` and `bytes` (None: no limit), and writes them into `directory`."""

    directory: str
    seconds: float | None
    bytes: int | None

    @property
    def text(self) -> str:
        limits = [span(self.seconds)] if self.seconds is not None else []
        limits += [size(self.bytes)] if self.bytes is not None else []
        kept = ", at most ".join(limits)
        return f"flight recorder: the last {kept} are kept, and written into {self.directory} when asked for"


@dataclass(frozen=True, slots=True)
class FlightShort(Event):
    """The flight recorder's size is full before its time is: it holds about so many seconds."""

    warning: ClassVar[bool] = True
    seconds: float
    wanted: float
    bytes: int

    @property
    def text(self) -> str:
        return (
            f"the flight recorder holds the last {self.seconds:.0f} s, not {span(self.wanted)}: {size(self.bytes)} are "
            f"full by then; give it more with --flight-keep {span(self.wanted)},SIZE"
        )


@dataclass(frozen=True, slots=True)
class FlightWanted(Event):
    """Something happened for which a flight recording is written; `others` more like it since the last one was told.
    From the process that looks, for the one that records."""

    kind: str
    reason: str
    label: str
    time_ns: int
    about: Mapping[str, Any]
    others: int = 0

    @property
    def text(self) -> str:
        return f"flight recording wanted: {self.reason}"

    def command(self) -> dict[str, Any]:
        """For the observer."""
        return asdict(self) | {"do": "recording.flight"}


@dataclass(frozen=True, slots=True)
class FlightWritten(Event):
    """A flight recording is complete. `others`: more reasons that were counted since the one before."""

    path: str
    segments: int
    bytes: int
    reason: str
    others: int

    @property
    def text(self) -> str:
        others = f" and {self.others} more" if self.others else ""
        return f"flight recording ({self.reason}{others}): barnabas ui {self.path} ({size(self.bytes)})"


@dataclass(frozen=True, slots=True)
class FlightFailed(Event):
    """A flight recording could not be written; traffic and recording go on."""

    warning: ClassVar[bool] = True
    reason: str

    @property
    def text(self) -> str:
        return f"no flight recording was written: {self.reason}"


@dataclass(frozen=True, slots=True)
class FlightFull(Event):
    """So many were written by themselves as are wanted; no more are."""

    warning: ClassVar[bool] = True
    reason: str

    @property
    def text(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class FlightCounted(Event):
    """So many reasons came too soon after the last flight recording, or when there were enough."""

    count: int

    @property
    def text(self) -> str:
        return f"{self.count} more reasons for a flight recording were only counted"
