"""One rule for times: UTC that says so, dates where days differ, local time when asked; everywhere alike."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from barnabas.decoder import filter as filters
from barnabas.decoder.filter.language import literals
from barnabas.ui import times
from harness import commands

TREE = Path(__file__).parents[2]
RECORDING = TREE / "tests/decoder/findings/captures/versions-two-brokers.pcapng"
EVENING = int(datetime(2026, 11, 21, 23, 59, 59, tzinfo=UTC).timestamp()) * 10**9 + 250_000_000
DAY = 86_400 * 10**9


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    times.use_local(False)
    monkeypatch.undo()
    time.tzset()


def test_periods_have_both_days_where_they_differ() -> None:
    assert times.period(EVENING, EVENING) == "2026-11-21 23:59:59.250Z"
    assert times.period(EVENING - 10**9, EVENING) == "2026-11-21 23:59:58.250 to 23:59:59.250Z"
    assert times.period(EVENING, EVENING + 10**9) == "2026-11-21 23:59:59.250 to 2026-11-22 00:00:00.250Z"
    assert times.period(EVENING, EVENING + 4 * DAY) == "2026-11-21 23:59:59.250 to 2026-11-25 23:59:59.250Z"


def test_charts_show_what_the_clock_showed(new_york: None) -> None:
    assert times.clock_ms(EVENING) == EVENING / 10**6
    times.use_local(True)
    assert datetime.fromtimestamp(times.clock_ms(EVENING) / 1000, UTC) == datetime(2026, 11, 21, 18, 59, 59, 250_000, UTC)
    with pytest.raises(ValueError, match="unknown time"):
        times.clock_ms(1 << 80)


def test_durations_have_a_unit_that_fits() -> None:
    assert [times.duration(each) for each in (0, 5e5, 2.5e6, 1.5e9, 90e9, 7200e9)] == ["0 µs", "500 µs", "2.5 ms", "1.50 s", "1.5 min", "2.0 h"]


@pytest.mark.parametrize("time_ns", [-(1 << 63), (1 << 63) - 1, 1 << 80])
def test_no_time_raises(time_ns: int) -> None:
    for shown in (times.clock(time_ns), times.day(time_ns), times.moment(time_ns), times.period(time_ns, EVENING)):
        assert shown
    assert times.period(EVENING, time_ns)


def test_local_time_is_that_of_the_machine(new_york: None) -> None:
    assert times.moment(EVENING, 3) == "2026-11-21 23:59:59.250Z"
    times.use_local(True)
    assert times.moment(EVENING, 3) == "2026-11-21 18:59:59.250"
    assert times.heading("Time") == "Time"


def test_what_is_shown_is_what_filters_take(new_york: None) -> None:
    for local in (False, True):
        times.use_local(local)
        assert literals.moment(times.iso(EVENING), times.zone()) == EVENING


def test_filters_read_times_without_an_offset_as_utc(new_york: None) -> None:
    assert filters.compile("time > 12:00").zone is UTC


def test_the_local_zone_has_a_name(new_york: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert times.zone_name() == "UTC"
    times.use_local(True)
    assert times.zone_name() == "America/New_York"
    zone = filters.named_zone(times.zone_name())
    for day in ("2026-07-21", "2026-11-21"):  # an hour apart in their offsets
        assert filters.compile(f"time > {day}", zone=zone).tree == filters.compile(f"time > {day}", zone=None).tree
    for named, name in (
        (":/usr/share/zoneinfo/Asia/Kolkata", "Asia/Kolkata"), (":Asia/Kolkata", "Asia/Kolkata"), ("UTC", "UTC"), ("UTC0", "UTC"),
    ):  # fmt: skip
        monkeypatch.setenv("TZ", named)
        time.tzset()
        assert times.zone_name() == name
    monkeypatch.setenv("TZ", "EST5EDT4")
    time.tzset()
    with pytest.raises(ValueError, match="set TZ"):
        times.zone_name()


def test_the_name_of_the_zone_is_found_where_the_machine_keeps_it(new_york: None, monkeypatch: pytest.MonkeyPatch) -> None:
    times.use_local(True)
    monkeypatch.delenv("TZ")
    monkeypatch.setattr(times.os.path, "realpath", lambda path: {"/etc/localtime": "/var/db/timezone/zoneinfo/Asia/Tokyo"}[path])
    assert times.zone_name() == "Asia/Tokyo"


def a_capture_of_four_days(tmp_path: Path) -> Path:
    """The recording's first half, and the same three days later."""
    first, last = tmp_path / "first.pcapng", tmp_path / "all"
    assert commands.run("cut", RECORDING, "-o", first).returncode == 0
    done = commands.run("merge", RECORDING, first, "-o", last, "--shift", f"{first}=+{3 * 86_400}s")
    assert done.returncode == 0, done.stderr
    return last


def test_commands_show_the_days_of_a_capture_over_several_days(tmp_path: Path) -> None:
    path = a_capture_of_four_days(tmp_path)
    lines = commands.run("decode", path).stdout.splitlines()
    assert lines[0].split()[1:3] == ["Time", "UTC"]
    assert {line.split()[1] for line in lines[1:]} == {"2026-11-21", "2026-11-24"}
    found = commands.run("findings", path).stdout
    assert re.search(r"2026-11-21 03:50:19\.\d{3} to 2026-11-24 03:50:19\.\d{3}Z", found)


def test_a_capture_of_one_day_names_it_once() -> None:
    lines = commands.run("decode", RECORDING).stdout.splitlines()
    assert "Time UTC" in lines[0] and "2026-11-21" in lines[0]
    assert not any("2026-11-21" in line for line in lines[1:])


def test_local_time_in_commands(new_york: None) -> None:
    utc = commands.run("decode", RECORDING).stdout
    local = commands.run("decode", "--local", RECORDING).stdout
    assert " 03:50:19.444 " in utc and " 22:50:19.444 " in local and "2026-11-20" in local
    part = commands.run("decode", "--local", RECORDING, "--filter", "time in 22:50:19.466..22:50:19.472").stdout
    assert [line.split()[0] for line in part.splitlines()[1:]] == ["5", "6", "7"]
    assert "2026-11-21 03:50:19Z" in commands.run("compat", "--against", "4.1", RECORDING).stdout
    assert "2026-11-20 22:50:19 " in commands.run("compat", "--local", "--against", "4.1", RECORDING).stdout.replace("\n", " ")


def test_nobody_else_formats_times() -> None:
    """What shows times asks `ui.times`. Names of files, tables and explanations of bytes are something else."""
    made = re.compile(r"strftime|fromtimestamp|localtime|gmtime|:%[YHm][:-]")
    assert [path.name for path in (TREE / "ui").rglob("*.py") if made.search(path.read_text())] == ["times.py"]
