"""What the findings of a capture cost per exchange: all detectors over events that are in memory.

    python bench/captures/findings.py [CAPTURE...] [--rounds 5]

By default over a recording of 61 topics and groups that `bench/filter/names.py` writes (30,000 exchanges), and the recordings of
real clients in tests/decoder/findings/captures. Reading the events is measured apart; decoding is part of the findings.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from barnabas.captures import open_capture
from barnabas.decoder.connection.events import ConnectionEvent
from barnabas.decoder.findings import Inspector

sys.path.insert(0, str(Path(__file__).parents[1] / "filter"))
import names

REAL = Path(__file__).parents[2] / "tests" / "decoder" / "findings" / "captures"


def events(path: Path) -> tuple[list[ConnectionEvent], int]:
    """The events of a capture, and the number of its exchanges."""
    with open_capture(path) as capture:
        return list(capture.events()), len(capture.rows())


def measure(what: str, paths: Sequence[Path], rounds: int) -> None:
    reading, finding, exchanges, found = [], [], 0, 0
    for _ in range(rounds):
        read = inspected = 0.0
        exchanges = found = 0
        for path in paths:
            gc.collect()
            start = time.process_time()
            inside, count = events(path)
            middle = time.process_time()
            inspector = Inspector()
            for event in inside:
                inspector.feed(event)
            found += len(inspector.findings())
            inspected += time.process_time() - middle
            read += middle - start
            exchanges += count
        reading.append(read)
        finding.append(inspected)
    each = [statistics.median(seconds) / max(exchanges, 1) * 1e3 for seconds in (reading, finding)]
    print(f"{what}: {exchanges} exchanges, {found} findings; ms of CPU an exchange: read {each[0]:.3f}, findings {each[1]:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for path in options.captures:
        measure(str(path), [path], options.rounds)
    if not options.captures:
        with tempfile.TemporaryDirectory() as directory:
            names.write(Path(directory) / "recording", 30_000)
            measure("61 topics and groups", [Path(directory) / "recording"], options.rounds)
        measure("real clients", sorted(REAL.glob("*.pcapng")), options.rounds)


if __name__ == "__main__":
    main()
