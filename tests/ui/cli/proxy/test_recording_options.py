"""How recordings are kept, and the flight recorder: what the options mean, and what is wrong in them."""

import json
import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from barnabas.decoder import Exchange, ExchangeDone
from barnabas.proxy.events import FlightWanted
from barnabas.proxy.observers.flight_trigger import FlightTrigger
from barnabas.proxy.observers.recording_config import FlightConfig, RecordingConfig
from barnabas.ui import times
from barnabas.ui.cli.common import amounts
from barnabas.ui.cli.common.failure import Failure
from barnabas.ui.cli.proxy.options import FlightOptions, RecordingOptions, snaplen

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("text", "seconds", "size"),
    [
        ("5m", 300, None), ("90s", 90, None), ("24h", 86400, None), ("7d", 604800, None), ("1.5h", 5400, None),
        ("512MB", None, 512_000_000), ("1GiB", None, GIB), ("5m,1GB", 300, 10**9), ("1GB, 5m", 300, 10**9),
    ],
)  # fmt: skip
def test_windows(text: str, seconds: float | None, size: int | None) -> None:
    assert amounts.window(text, "--flight-keep") == (seconds, size)


@pytest.mark.parametrize(
    "text", ["5", "", "5m,", "5m,6m", "1GB,2GB", "-5m", "0s", "5 weeks", "1e99h", "m", "5m,1GB,1h", "d"]
)
def test_no_windows(text: str) -> None:
    with pytest.raises(Failure, match="--flight-keep"):
        amounts.window(text, "--flight-keep")


def test_segments_follow_what_is_kept() -> None:
    assert RecordingOptions().config() == RecordingConfig()
    assert RecordingConfig().segment_bytes == 64 * MIB and RecordingConfig().segment_seconds == 3600
    assert not RecordingConfig().keep
    kept = RecordingOptions("", "", "10GB", "24h").config()
    assert (kept.keep.bytes, kept.keep.seconds) == (10**10, 86400)
    assert (kept.segment_bytes, kept.segment_seconds) == (64 * MIB, 3600)
    small = RecordingOptions("", "", "80MB", "80s").config()
    assert (small.segment_bytes, small.segment_seconds) == (10_000_000, 10)
    asked = RecordingOptions("1MiB", "2s", "80MB", "80s").config()
    assert (asked.segment_bytes, asked.segment_seconds) == (MIB, 2)
    assert RecordingConfig(**asked.settings()) == asked


@pytest.mark.parametrize(
    ("rotate_size", "rotate_time", "keep_size", "keep_time", "said"),
    [
        ("8GB", "", "10GB", "", "less than two segments"),
        ("", "1h", "", "90m", "less than two segments"),
        ("1kB", "", "", "", "too small"),
        ("", "5ms", "", "", "too short"),
        ("", "", "100kB", "", "less than two segments"),
        ("10", "", "", "", "'10' is no size"),
        ("", "10MB", "", "", "'10MB' is no duration"),
        ("", "", "24h", "", "'24h' is no size"),
    ],
)
def test_what_makes_no_sense(rotate_size: str, rotate_time: str, keep_size: str, keep_time: str, said: str) -> None:
    with pytest.raises(Failure, match=said):
        RecordingOptions(rotate_size, rotate_time, keep_size, keep_time).config()


def test_a_flight_recorder(tmp_path: Path) -> None:
    assert FlightOptions().config() is None
    plain = FlightOptions(tmp_path).config()
    assert plain == FlightConfig(tmp_path)
    assert plain is not None and plain.window == (300, GIB, 10) and plain.pause == 300 and not plain.wakes
    assert plain.ring.segment_seconds == 30 and plain.ring.keep == (plain.ring.keep.__class__(GIB, 300))
    full = FlightOptions(tmp_path, "512MB", "0s", ["err"], ["high", "odd-correlation-ids"], "1h", 3).config()
    assert full is not None and full.window == (None, 512_000_000, 0) and full.pause == 3600 and full.wakes
    assert full.ring.segment_bytes == 64_000_000 and full.ring.segment_seconds == 60
    assert FlightConfig.of(json.loads(json.dumps(asdict(full), default=os.fspath))) == full


def test_filters_of_a_flight_recorder_read_times_as_they_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noon in Honolulu is evening in UTC."""
    monkeypatch.setenv("TZ", "Pacific/Honolulu")
    time.tzset()
    noon = Exchange(request=b"", api_key=12, request_time_ns=int(datetime(2026, 11, 21, 22, tzinfo=UTC).timestamp()) * 10**9)
    wanted: list[FlightWanted] = []
    try:
        for local in (False, True):
            times.use_local(local)
            flight = FlightOptions(tmp_path, flight_on=["time in 11:00..13:00"]).config()
            assert flight is not None
            zone = None if flight.local else UTC
            trigger = FlightTrigger(flight.filters, flight.findings, lambda event: wanted.append(event) is None, zone)
            trigger.hear(ExchangeDone(noon))
            assert len(wanted) == local
    finally:
        times.use_local(False)
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("", "", ["err =="], None, "", None), r"err =="),
        (("", "", None, ["no-such-finding"], "", None), "no id of a finding"),
        (("1s", "", None, None, "", None), "2 seconds or more"),
        (("1kB", "", None, None, "", None), "KiB or more"),
        (("", "2h", None, None, "", None), "to an hour"),
        (("", "", None, None, "", 0), "above 0"),
    ],
)
def test_what_makes_no_flight_recorder(tmp_path: Path, given: tuple, said: str) -> None:
    with pytest.raises(Failure, match=said):
        FlightOptions(tmp_path, *given).config()


@pytest.mark.parametrize("place", range(6))
def test_options_without_a_flight_recorder(place: int) -> None:
    given: list = ["", "", None, None, "", None]
    given[place] = ["5m", "1s", ["err"], ["high"], "1m", 3][place]
    with pytest.raises(Failure, match="add --flight DIR"):
        FlightOptions(None, *given).config()


def test_snap_lengths() -> None:
    assert (snaplen(""), snaplen("4KiB"), snaplen("128"), snaplen("128KiB")) == (None, 4096, 128, 128 << 10)
    for wrong in ("127", "129KiB", "1MiB"):
        with pytest.raises(Failure, match=f"--snaplen {wrong}: give 128 bytes"):
            snaplen(wrong)
