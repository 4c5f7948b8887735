"""What the observer and the inspector are given as they start: `dataclasses.asdict` of these as JSON, and `of` back from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ring.merged_rings import RingAccess
from .recording_config import FlightConfig, RecordingConfig


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

    @classmethod
    def of(cls, said: dict[str, Any]) -> ObserverSettings:
        recording = RecordingConfig(**said["recording"])
        return cls(**said | {"access": RingAccess(**said["access"]), "recording": recording, "flight": _flight(said)})


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

    @classmethod
    def of(cls, said: dict[str, Any]) -> InspectorSettings:
        live = LiveSettings(**said["live"]) if said["live"] else None
        return cls(**said | {"access": RingAccess(**said["access"]), "flight": _flight(said), "live": live})


def _flight(said: dict[str, Any]) -> FlightConfig | None:
    return FlightConfig.of(said["flight"]) if said["flight"] else None
