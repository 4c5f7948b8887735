"""Latencies in steps and over time, against a plain count; the broker's own time beside a long poll's."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

from barnabas.captures import open_capture
from barnabas.ui.tui.model.statistics import EDGES, Bin, Histogram
from barnabas.ui.tui.views.latency import SHARES, heat_map
from harness.recordings import RecordingBuilder
from textual.pilot import Pilot

from ..support.awaiting import until
from ..support.driving import drive


def test_steps_of_1_2_and_5_count_every_latency() -> None:
    assert [edge // 1000 for edge in EDGES[:7]] == [1, 2, 5, 10, 20, 50, 100] and EDGES[-1] == 500 * 10**9
    chance, histogram = random.Random(7), Histogram()
    latencies = [int(10 ** chance.uniform(3.4, 9.5)) for _ in range(3000)] + [5_000, 4_999, 20_000]
    for each in latencies:
        histogram.add(each)
    steps = histogram.steps()
    assert steps[0].exchanges and steps[-1].exchanges and Histogram().steps() == []
    for before, after in pairwise(steps):
        assert before.end_ns == after.start_ns
    for step in steps:
        assert step.exchanges == sum(step.start_ns <= each < step.end_ns for each in latencies)
    assert sum(step.exchanges for step in steps) == len(latencies)


def test_latencies_outside_of_all_steps() -> None:
    histogram = Histogram()
    for each in (0, 999, 3_600 * 10**9):
        histogram.add(each)
    steps = histogram.steps()
    assert (steps[0].start_ns, steps[0].exchanges, steps[-1].start_ns, steps[-1].exchanges) == (0, 2, EDGES[-1], 1)


def test_a_heat_map_is_darkest_where_most_exchanges_are() -> None:
    columns = [Bin() for _ in range(4)]
    columns[0].octaves[13] = 1000  # 1 to 2 ms
    columns[2].octaves[13] = 10
    columns[3].octaves[22] = 1  # 537 ms to 1.1 s
    lines = heat_map(columns, 7)
    assert len(lines) <= 7
    assert lines[0] == ("268ms", "   ░") and lines[-1] == ("1.0ms", "█ ▒ ")
    assert all(not text.strip() for _, text in lines[1:-1])
    assert heat_map([Bin()], 7) == []


def test_the_wait_of_a_long_poll_is_no_work_of_the_broker(tmp_path: Path) -> None:
    with RecordingBuilder(tmp_path / "run") as written:
        for at in range(0, 20_000, 1000):
            written.exchange("Fetch", 4, {"max_wait_ms": 500, "max_bytes": 1 << 20}, {"responses": []}, at=at, took=502.0)
            written.exchange("Heartbeat", 3, {"group_id": "g"}, {}, connection=2, at=at, took=7.0)

    async def steps(pilot: Pilot[None]) -> None:
        shown = await until(pilot, "work:")
        await until(pilot, "Heartbeat")
        for name in SHARES:
            assert name in shown
        lines = (await until(pilot, "1.9ms")).split("\n")  # the analysis has read it
        fetch, heartbeat = (next(line for line in lines if f" {api} " in line).split() for api in ("Fetch", "Heartbeat"))
        assert fetch[3:-2] == ["502ms"] * 6
        assert all(1.7 < float(text.removesuffix("ms")) < 2.4 for text in fetch[-2:])  # in steps of 19 %
        assert all(6 < float(text.removesuffix("ms")) < 8.4 for text in heartbeat[-2:])

    with open_capture(tmp_path / "run") as capture:
        drive(capture, steps, (130, 40), "6")


def test_what_a_broker_did_within_the_wait_that_a_fetch_allows_is_not_known(tmp_path: Path) -> None:
    with RecordingBuilder(tmp_path / "run") as written:
        for at in range(0, 20_000, 1000):
            written.exchange("Fetch", 4, {"max_wait_ms": 500, "max_bytes": 1 << 20}, {"responses": []}, at=at, took=450.0)
            written.exchange("Heartbeat", 3, {"group_id": "g"}, {}, connection=2, at=at, took=7.0)

    async def steps(pilot: Pilot[None]) -> None:
        await until(pilot, "work:")
        lines = (await until(pilot, "6.5ms")).split("\n")
        for api, known in (("Fetch", False), ("Heartbeat", True), ("all", True)):
            own = next(line for line in lines if f" {api} " in line).split()[-2:]
            assert (own == ["-", "-"]) is not known, (api, own)

    with open_capture(tmp_path / "run") as capture:
        drive(capture, steps, (130, 40), "6")


def test_the_log_reports_bytes_that_are_missing(tmp_path: Path) -> None:
    for lost in (0, 432_826):
        with RecordingBuilder(tmp_path / str(lost)) as written:
            written.exchange("Heartbeat", 3, {"group_id": "g"}, {})
            if lost:
                written.recorder.lost(1, 0, lost, 500)
            written.exchange("Heartbeat", 3, {"group_id": "g"}, {})

        async def steps(pilot: Pilot[None], lost: int = lost) -> None:
            if lost:
                shown = await until(pilot, "432,826 bytes are missing", absent="nothing was lost")
                assert "lost 432826 B" in shown  # bytes that were captured and not read are not lost
            else:
                await until(pilot, "nothing was lost", absent="missing")

        with open_capture(tmp_path / str(lost)) as capture:
            drive(capture, steps, (120, 40), "8")
