"""A million mutated inputs: nothing but the decoder's own errors, no abort, within 512 MiB; in the slow runs also nothing
that takes seconds.

`make fuzz COUNT=100000000` runs as many as one likes; torture/decoder/fuzz.py says how to replay a failure.
"""

from __future__ import annotations

import pytest
from barnabas.decoder.native.accelerator import native
from torture.decoder import fuzz, sanitized
from torture.decoder.corpus import triples

# (pure Python, seed, inputs): two thousand every day, a million in all
EVERY_DAY = [(False, 1, 2_000)]
THE_REST = [(False, 3, 598_000), (True, 4, 400_000)]
PORTIONS = [*EVERY_DAY, *(pytest.param(*portion, marks=pytest.mark.slow) for portion in THE_REST)]


def check(report: fuzz.Report, count: int) -> None:
    assert not report.failures, "\n\n".join(report.failures)
    assert report.count == count and report.triples == len(triples()) == 736
    assert report.least >= count // 1000, "every message is a seed"
    assert report.read > count // 5 and sum(report.refused.values()) > count // 5, "neither all good nor all bad"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("pure", "seed", "count"), PORTIONS)
def test_mutated_inputs(pure, seed, count):
    report = fuzz.run(count, seed, pure, timed=(pure, seed, count) not in EVERY_DAY)
    print(report.text())
    check(report, count)
    assert report.accelerated == (native is not None and not pure)
    ways = {"body", "request", "response", "records", "projection", "connection", "token"}
    assert set(report.inputs) == ways | ({"both"} if report.accelerated else set())


def test_the_portions_are_a_million():
    assert sum(count for _, _, count in [*EVERY_DAY, *THE_REST]) == 1_000_000
    assert list(fuzz.portions(2_500_000, pure_only=True)) == [
        (True, 1_000_000, 0), (True, 1_000_000, 1), (True, 500_000, 2)
    ]  # fmt: skip


def test_a_child_that_dies_is_a_failure_with_its_input():
    report = fuzz.run(100, 1, module=("torture.decoder.sanitized", "with", "/nowhere/_native.so"))
    (failure,) = report.failures
    assert "the child ended with 1" in failure and "replay: " in failure


def test_an_input_is_replayed_from_what_a_failure_prints(capsys):
    command = fuzz.Input("body", "request", 3, 1, 8, bytes.fromhex("7fffffff00")).replay().split()
    assert command[:4] == ["PYTHONPATH=tests", "python", "-m", "torture.decoder.fuzz"]
    assert fuzz.main(command[4:]) == 0
    assert "refused: BadLength: Metadata v1: 2147483647 items" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.needs(why_not=sanitized.missing)
def test_the_accelerator_under_sanitizers(tmp_path):
    extension = sanitized.build(tmp_path)
    module = ("torture.decoder.sanitized", "with", str(extension))
    report = fuzz.run(100_000, 5, env=sanitized.environment(), module=module)
    check(report, 100_000)
    assert report.accelerated
