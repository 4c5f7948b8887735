"""What takes seconds where it should take milliseconds: CPU time, with limits that only the wrong order of growth exceeds.

The same is counted in steps every day where Python does the work (`tests/decoder`), and bombs are judged by their outcome and
memory (`tests/decoder/codec/test_bombs.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from barnabas.decoder.codec import secrets
from barnabas.decoder.filter import compile
from barnabas.decoder.filter.language.patterns import PatternError, pattern
from barnabas.decoder.values import view
from torture.decoder.bombs import most_ms, run
from torture.decoder.worst_cases import FILTERS, PATTERNS, SEARCHED, VALUES, passwords

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
MOST_SECONDS = 20.0


def cpu_seconds(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


@pytest.mark.parametrize("pure", [False, True], ids=["accelerated", "pure"])
def test_bombs(pure: bool) -> None:
    late = [each for each in run(pure) if each.ms > most_ms(each.name, each.size)]
    assert not late


def test_secrets_are_masked_one_by_one() -> None:
    """When each secret copied all others, 20,000 took 20 s."""
    message = passwords(40_000)
    assert cpu_seconds(lambda: secrets.shown(message)) < MOST_SECONDS


@pytest.mark.parametrize("value", VALUES)
def test_a_value_of_many_mebibytes(value: Callable[[int], bytes]) -> None:
    data = value(8 << 20)
    assert cpu_seconds(lambda: view(data)) < MOST_SECONDS


@pytest.mark.parametrize(("written", "terms"), list(zip(FILTERS, (4000, 10_000, 2800), strict=True)))
def test_the_longest_filters(written: Callable[[int], str], terms: int) -> None:
    text = written(terms)
    assert cpu_seconds(lambda: compile(text)) < MOST_SECONDS


@pytest.mark.parametrize("text", PATTERNS)
def test_patterns_that_are_taken(text: str) -> None:
    try:
        found = pattern(text)
    except PatternError:
        return
    for searched in SEARCHED:
        assert cpu_seconds(lambda searched=searched: found.search(searched)) < MOST_SECONDS  # type: ignore[misc]
