"""Counting in bounded memory, and numbers in words."""

from __future__ import annotations

import random

from barnabas.decoder.findings.engine import formatting
from barnabas.decoder.findings.engine.counters import BoundedDict, DurationHistogram, RateCounter

SECOND = 1_000_000_000


def test_a_bounded_dict_forgets_its_oldest() -> None:
    kept: BoundedDict[int, int] = BoundedDict(3)
    for number in range(10):
        kept[number] = number
        kept[9 - number % 2] = number  # what is there already does not push others out
    assert len(kept) == 3 and 9 in kept


def test_a_pace_counts_the_last_seconds() -> None:
    pace = RateCounter(10)
    for tenth in range(50):
        pace.add(tenth * SECOND // 10)
    assert (pace.total, pace.busy(10), pace.busy(11), pace.rate) == (50, 5, 0, 10.0)
    pace.add(100 * SECOND)
    assert (pace.total, pace.busy(1)) == (1, 1)


def test_a_spread_is_right_to_a_fifth() -> None:
    chance = random.Random(7)
    values = sorted(int(chance.lognormvariate(15, 1)) for _ in range(5000))
    spread = DurationHistogram()
    for value in values:
        spread.add(value)
    for part in (0.1, 0.5, 0.9, 0.99):
        true = values[int(part * len(values))]
        assert abs(spread.quantile(part) - true) / true < 0.2
    assert DurationHistogram().quantile(0.5) == 0
    assert len(spread._counts) < 100


def test_numbers_in_words() -> None:
    assert [formatting.duration(ns) for ns in (0, 340e6, 12.5 * SECOND, 600 * SECOND)] == [
        "0 ms",
        "340 ms",
        "12.5 s",
        "10 min",
    ]
    assert [formatting.size(n) for n in (640, 12_500, 3_100_000)] == ["640 B", "12.5 kB", "3.1 MB"]
    assert [formatting.number(n) for n in (0, 0.42, 12.0, 12400)] == ["0", "0.4", "12", "12,400"]
    assert formatting.some("edcba") == "a, b, c and 2 more" and formatting.some("a") == "a"
    assert [formatting.times(n) for n in (1, 1200)] == ["once", "1,200 times"]
    assert [formatting.several(n, "record") for n in (0, 1, 4000)] == ["0 records", "1 record", "4,000 records"]
