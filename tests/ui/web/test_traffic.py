"""Counts over time: records as the table of records has them, bins that become coarser, and who owned which partition when."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from barnabas.captures import open_capture, tables
from barnabas.ui.tui.model.analysis import CaptureAnalysis
from barnabas.ui.web.pages.groups import assignments, owned
from barnabas.ui.web.pages.ladder import ladder
from barnabas.ui.web.traffic import MOST_BINS, OTHERS, PartitionTraffic, RecordsOverTime, TimeBins

CAPTURES = Path(__file__).parents[2] / "decoder" / "findings" / "captures"


@pytest.mark.parametrize("name", ["producing-skewed", "producing-commits", "groups-commit-per-batch", "ages-old-broker", "versions-topic-recreated"])
def test_records_are_those_of_the_table(name: str) -> None:
    table = tables.described("records")
    expected: Counter[tuple[str, int, str]] = Counter()
    with open_capture(CAPTURES / f"{name}.pcapng") as capture:
        for row in tables.Rows(capture, tables.Options(table, table.chosen())):
            expected[row["topic"], row["partition"], row["direction"]] += 1
        counter = RecordsOverTime(capture)
        while counter.pending:
            counter.step(0.0)
        found: Counter[tuple[str, int, str]] = Counter()
        for partition, counts in counter.over_time.total().items():
            found[partition.topic, partition.number, "request"] += counts.produced
            found[partition.topic, partition.number, "response"] += counts.fetched
            assert (counts.produced > 0, counts.fetched > 0) == (counts.produced_bytes > 0, counts.fetched_bytes > 0)
    assert +found == expected and expected


def test_bins_become_coarser_and_lose_nothing() -> None:
    bins: TimeBins[str, PartitionTraffic] = TimeBins(PartitionTraffic)
    for second in range(10_000):
        bins.at(1_700_000_000_000_000_000 + second * 1_000_000_000, "even" if second % 2 == 0 else "odd").produced += 1
    assert len(bins.periods()) <= MOST_BINS
    for _ in range(2):  # the sum changes no bin
        assert {key: counts.produced for key, counts in bins.total().items()} == {"even": 5_000, "odd": 5_000}


def test_partitions_beyond_the_most_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.ui.web.traffic.MOST_PARTITIONS", 1)
    with open_capture(CAPTURES / "producing-skewed.pcapng") as capture:
        counter = RecordsOverTime(capture)
        counter.step(60.0)
        found = counter.over_time.total()
    assert len(found) == 2 and found[OTHERS].fetched + found[OTHERS].produced > 0


def test_partitions_change_hands() -> None:
    """A member of two is killed: its partition has no owner until the coordinator has missed it."""
    with open_capture(CAPTURES / "groups-killed.pcapng") as capture:
        analysis = CaptureAnalysis.of(capture)
        analysis.step(60.0)
        (group,) = analysis.result.groups.all()
        now = analysis.result.traffic.now_ns
        periods = sorted(owned(group, now), key=lambda each: (each.partition, each.start_ns))
    owners = [(each.partition, each.member.conn.client_id) for each in periods]
    assert owners == [(0, "billing-doomed"), (0, "billing-left"), (1, "billing-doomed"), (1, "billing-left")]
    killed, (first, second), (before, after) = group.rebalances[-1], periods[:2], periods[2:]
    assert first.end_ns < killed.began_ns <= second.start_ns and max(before.end_ns, after.start_ns) < killed.began_ns
    diagram = assignments(group, now)
    assert diagram is not None and [name.rpartition("-")[2] for name in diagram["yAxis"]["data"]] == ["0", "1"]


def test_words_on_a_ladder_to_scale_leave_room_for_each_other() -> None:
    with open_capture(CAPTURES / "groups-storm.pcapng") as capture:
        series = ladder(list(capture.rows()), to_scale=True)["series"]
    shown = {
        each["name"]: [arrow["coords"][0][1] for arrow in each["data"] if "label" not in arrow] for each in series if each["name"] in ("Requests", "Responses", "Errors")
    }  # fmt: skip
    places = sorted(place for found in shown.values() for place in found)
    every = [arrow["coords"][0][1] for each in series for arrow in each["data"]]
    assert shown["Errors"] and len(places) > 10
    assert min(b - a for a, b in pairwise(places)) > (max(every) - min(every)) / 100
