"""The options of ``barnabas proxy`` for how recordings are kept, and for the flight recorder; the settings made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...captures.recorder import LEAST_SNAPLEN, MOST_SNAPLEN
from ...captures.retention import Keep
from ...proxy.observers.recording_config import FlightConfig, RecordingConfig
from . import amounts
from .failure import Failure

RECORDING = "Recording"
FLIGHT = "Flight recorder"
FLIGHT_KEEP = "5m"


def _option(name: str, words: str, metavar: str, panel: str = RECORDING) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, help=words, metavar=metavar, rich_help_panel=panel, show_default=False
    )
    return option


RotateSize = Annotated[str, _option("--rotate-size", "Size of a segment (default 64MiB, or an eighth of --keep-size).", "SIZE")]
RotateTime = Annotated[str, _option("--rotate-time", "Time of a segment (default 1h, or an eighth of --keep-time).", "TIME")]
KeepSize = Annotated[
    str, _option("--keep-size", "Keep so much of the recording: the oldest segments are removed, such as 10GB.", "SIZE")
]
KeepTime = Annotated[str, _option("--keep-time", "Keep segments for so long, such as 24h or 7d.", "TIME")]
Snaplen = Annotated[
    str, _option("--snaplen", "Keep no more than so many bytes of a frame, such as 4KiB; large frames then cost less.", "SIZE")
]
Directory = Annotated[
    Path | None,
    _option(
        "--flight",
        "Keep the last minutes, and write them out here when something happens: barnabas control flight, SIGUSR1, "
        "--flight-on, --flight-on-finding.",
        "DIR",
        FLIGHT,
    ),
]
FlightKeep = Annotated[
    str, _option("--flight-keep", "How much: 5m, 512MB, or 5m,2GB (default 5m, and 1GiB at most).", "TIME,SIZE", FLIGHT)
]
FlightAfter = Annotated[
    str, _option("--flight-after", "What follows is written for so long, too (default 10s; 0s: nothing).", "TIME", FLIGHT)
]
FlightOn = Annotated[
    list[str] | None,
    _option("--flight-on", "Write when this is true of an exchange. May be repeated.", "FILTER", FLIGHT),
]
FlightOnFinding = Annotated[
    list[str] | None,
    _option("--flight-on-finding", "Write on a finding: its id, or high, medium, low. May be repeated.", "WHAT", FLIGHT),
]
FlightEvery = Annotated[
    str,
    _option("--flight-every", "By itself not more often than this (default: what --flight-keep says); more is counted.", "TIME", FLIGHT),
]
FlightMost = Annotated[
    int | None, _option("--flight-most", "By itself not while there are so many in DIR (default 20).", "N", FLIGHT)
]


def snaplen(size: str) -> int | None:
    """Most bytes of a frame that are kept, None for all; Failure for what makes no sense."""
    if not size:
        return None
    found = int(size) if size.strip().isdecimal() else amounts.size(size, "--snaplen")
    if not LEAST_SNAPLEN <= found <= MOST_SNAPLEN:
        raise Failure(
            f"--snaplen {size}: give {LEAST_SNAPLEN} bytes, which a request's head needs, to {MOST_SNAPLEN >> 10} KiB; "
            "leave it out to keep whole frames"
        )
    return found


def keep(keep_size: str, keep_time: str) -> Keep:
    """What is kept; Failure for what makes no sense."""
    return Keep(
        amounts.size(keep_size, "--keep-size") if keep_size else None,
        amounts.seconds(keep_time, "--keep-time") if keep_time else None,
    )


def recording_config(rotate_size: str, rotate_time: str, keep_size: str, keep_time: str) -> RecordingConfig:
    """How a recording is cut and kept; Failure for what makes no sense."""
    kept = keep(keep_size, keep_time)
    try:
        return RecordingConfig(
            amounts.size(rotate_size, "--rotate-size") if rotate_size else 0,
            amounts.seconds(rotate_time, "--rotate-time") if rotate_time else 0.0,
            kept.bytes,
            kept.seconds,
        )
    except ValueError as error:
        raise Failure(f"{error} (--rotate-size, --rotate-time, --keep-size, --keep-time)") from None


def flight_config(
    directory: Path | None,
    kept: str,
    after: str,
    filters: list[str] | None,
    findings: list[str] | None,
    every: str,
    most: int | None,
) -> FlightConfig | None:
    """None without `--flight`; Failure for what makes no sense."""
    if directory is None:
        for option, given in (
            ("--flight-keep", kept), ("--flight-after", after), ("--flight-on", filters),
            ("--flight-on-finding", findings), ("--flight-every", every), ("--flight-most", most),
        ):  # fmt: skip
            if given:
                raise Failure(f"{option} goes with a flight recorder: add --flight DIR")
        return None
    seconds, size = amounts.window(kept or FLIGHT_KEEP, "--flight-keep")
    default = FlightConfig(directory)
    try:
        return FlightConfig(
            directory,
            seconds,
            default.bytes if size is None else size,
            default.after if not after else 0.0 if after.strip() in ("0", "0s") else amounts.seconds(after, "--flight-after"),
            amounts.seconds(every, "--flight-every") if every else 0.0,
            default.most if most is None else most,
            tuple(filters or ()),
            tuple(findings or ()),
        )
    except ValueError as error:
        raise Failure(f"the flight recorder: {error}") from None
