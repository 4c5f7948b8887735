"""Filters over the index of a recording with a million exchanges: whole, and until the first hit.

    python bench/filter/run.py [--rows 1000000] [--rounds 7] [--json]

The index is synthetic (seeded), written to a temporary directory, mapped and read as any recording's. Beside each filter
stand the same question asked of every `Row`, as a Python function would, and asked by hand of the numpy array. Figures are
medians of interleaved rounds; `--check` ends with status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.captures.reading.selection import Selection
from barnabas.captures.recording.index import HEADER, RECORD, IndexEncoder, IndexFiles, parse_head
from barnabas.decoder.filter import compile

GOAL_WHOLE_MS, GOAL_FIRST_MS = 500.0, 50.0
START_NS = 1_780_000_000_000_000_000
STEP_NS = 100_000
APIS = (0, 1, 1, 1, 3, 8, 9, 11, 12, 12, 14, 18)
FILTERS = (
    "api == Produce and err != 0 and latency > 50ms",
    "api in {JoinGroup, SyncGroup, Heartbeat}",
    'client ~ "^stock-1" and size.req > 1kB',
    "latency > 190ms",
    "addr == 10.0.0.0/8 and not (api == Fetch or err)",
    "time in 2026-05-28T20:28:00Z..2026-05-28T20:28:10Z and ver >= 7",
    "err == COORDINATOR_NOT_AVAILABLE and corr == 1",
)


def write(directory: Path, count: int) -> None:
    """A recording of one tiny segment, and an index beside it with `count` exchanges."""
    recorder = Recorder(directory)
    recorder.opened(0, START_NS, client=("127.0.0.1", 50000), broker=("127.0.0.1", 9092))
    frame = decoder.encode_request(18, 0, {}, correlation_id=1, client_id="x")
    recorder.data(0, 0, START_NS, len(frame).to_bytes(4, "big") + frame)
    recorder.close()
    segment = next(directory.glob("*.pcapng"))
    head = parse_head(segment.with_suffix(".index").read_bytes()[: HEADER.size])
    assert head is not None
    encoder = IndexEncoder()
    for number in range(64):
        client = f"10.0.0.{number}:5{number:04}" if number % 2 else f"192.168.1.{number}:5{number:04}"
        encoder.connection(number, START_NS, client, f"kafka-{number % 3}:9092")
    ids = [encoder.string(f"{kind}-{i}") for kind in ("stock", "billing", "web") for i in range(20)]
    chosen = random.Random(7)
    files = IndexFiles(segment, head.recording, head.number)
    for number in range(count):
        latency = int(chosen.expovariate(1 / 20e6))
        encoder.records += RECORD.pack(
            START_NS + number * STEP_NS, latency, 64, 128, chosen.randrange(40, 4000), chosen.randrange(16, 9000),
            number, number % 64, chosen.choice(APIS), chosen.randrange(4, 14),
            chosen.choice((3, 6, 7, 15, 16, 27)) if number % 50 == 0 else 0, 0, chosen.choice(ids), 0,
        )  # fmt: skip
        if number % 65536 == 0:
            files.write(encoder)
    files.write(encoder)
    files.finish(segment.stat().st_size)


def by_row(capture: Capture) -> list[int]:
    """The first filter as a function over rows, which is what a list without a filter language does."""
    return [
        row.number for row in capture.rows() if row.api_key == 0 and row.error and (row.latency_ns or 0) > 50_000_000
    ]


def by_hand(capture: Capture) -> list[int]:
    """The first filter as somebody who knows numpy and the index writes it."""
    a = capture.segments[0].index.array()
    found: list[int] = ((a["api_key"] == 0) & (a["error"] != 0) & (a["latency_ns"] > 50_000_000)).nonzero()[0].tolist()
    return found


def works(capture: Capture) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    for text in FILTERS:

        def whole(text: str = text) -> list[int]:
            return list(Selection(capture, compile(text)).rows())

        def first(text: str = text) -> list[int]:
            return list(islice(Selection(capture, compile(text)).rows(newest_first=True), 1))

        found[f"{text}|whole"] = whole
        found[f"{text}|first"] = first
    found["by row|whole"] = lambda: by_row(capture)
    found["by hand|whole"] = lambda: by_hand(capture)
    return found


def measure(todo: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, the rounds interleaved."""
    times: dict[str, list[float]] = {name: [] for name in todo}
    for _ in range(rounds):
        for name, work in todo.items():
            gc.collect()
            start = time.perf_counter()
            work()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "recording", options.rows)
        with open_capture(Path(directory) / "recording") as capture:
            assert len(capture.rows()) == options.rows
            todo = works(capture)
            hits = {text: len(todo[f"{text}|whole"]()) for text in FILTERS}
            assert hits[FILTERS[0]] == len(by_row(capture)) == len(by_hand(capture))
            found = measure(todo, options.rounds)
    if options.json:
        print(json.dumps({"rows": options.rows, "rounds": options.rounds, "hits": hits, "ms": found}, indent=1))
    else:
        print(f"{options.rows} rows, medians of {options.rounds}, milliseconds; first: the newest hit")
        print(f"{'filter':<66} {'hits':>7} {'whole':>8} {'first':>7}")
        for text in FILTERS:
            print(f"{text:<66} {hits[text]:>7} {found[f'{text}|whole']:>8.1f} {found[f'{text}|first']:>7.1f}")
        for name in ("by row", "by hand"):
            print(f"{f'the first one, {name}':<66} {'':>7} {found[f'{name}|whole']:>8.1f}")
    # Where nothing is found, everything has to be looked at first.
    missed = [
        name
        for name, ms in found.items()
        if "by " not in name[:3]
        and ms > (GOAL_WHOLE_MS if name.endswith("whole") else GOAL_FIRST_MS)
        and (name.endswith("whole") or hits[name.split("|")[0]] > 0)
    ]
    for name in missed:
        print(f"missed: {name}: {found[name]:.1f} ms", file=sys.stderr)
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
