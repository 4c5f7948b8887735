"""What recording costs: a Recorder fed from memory with chunks as the ring gives them; CPU time, disk included.

    python bench/captures/recording.py [--seconds 2] [--shapes TEXT] [--directory DIR] [--keep-secrets] [--json]

The load is that of bench/relay: real requests and responses of several sizes, pipelined on some connections. Closed
segments are removed while it runs. BARNABAS_PURE=1 measures the reference without the accelerator. For the rate of a
real relay beside the C proxy: ``bench/relay/run.py --only "barnabas lossless,C"``.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from barnabas.captures import Recorder

sys.path.insert(0, str(Path(__file__).parent.parent / "relay"))

from frames import Shape, shapes

CHUNK = 64 * 1024
NOW = 1_795_223_022_000_000_000


def stream(frame: bytes, id_at: int, count: int) -> bytes:
    """`count` copies of a frame with running correlation ids."""
    return b"".join(frame[:id_at] + n.to_bytes(4, "big") + frame[id_at + 4 :] for n in range(count))


def chunks(data: bytes) -> list[bytes]:
    return [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]


def turns(shape: Shape) -> Iterator[tuple[int, int, bytes]]:
    """(connection, direction, chunk), for ever."""
    asked = chunks(stream(shape.request, 8, shape.depth))
    answered = chunks(stream(shape.response, 4, shape.depth))
    while True:
        for connection in range(1, shape.connections + 1):
            for chunk in asked:
                yield connection, 0, chunk
            for chunk in answered:
                yield connection, 1, chunk


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(shape: Shape, seconds: float, directory: str | None, redact: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=directory) as scratch:

        def closed(kind: str, text: str) -> None:
            if kind == "segment":
                Path(text).unlink()

        recorder = Recorder(scratch, redact=redact, on_event=closed)
        time_ns, size, warm = NOW, 0, 2 * shape.connections * shape.depth
        begun, before = cpu_seconds(), 0
        for connection, direction, chunk in turns(shape):
            time_ns += 1000
            recorder.data(connection, direction, time_ns, chunk)
            size += len(chunk)
            if direction and not before and recorder.counts["exchanges"] >= warm:
                begun, before, size = cpu_seconds(), recorder.counts["exchanges"], 0
            elif direction and before and cpu_seconds() - begun > seconds:
                break
        recorder.flush()
        cpu, exchanges = cpu_seconds() - begun, recorder.counts["exchanges"] - before
        recorder.close()
    return {
        "exchanges": exchanges,
        "cpu_us_per_exchange": 1e6 * cpu / max(exchanges, 1),
        "mb_per_cpu_s": size / cpu / 1e6,
        "undecoded": recorder.counts["undecoded"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="of CPU time, for each shape")
    parser.add_argument("--shapes", default="", help="only shapes whose name contains this")
    parser.add_argument("--directory", help="where to record; a temporary directory otherwise")
    parser.add_argument("--keep-secrets", action="store_true", help="record without redaction")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {}
    for shape in shapes():
        if options.shapes not in shape.name:
            continue
        found[shape.name] = r = measure(shape, options.seconds, options.directory, not options.keep_secrets)
        if not options.json:
            print(
                f"{shape.name:18} {r['exchanges']:9.0f} exchanges  {r['cpu_us_per_exchange']:9.2f} us CPU each  "
                f"{r['mb_per_cpu_s']:7.0f} MB per CPU second",
                flush=True,
            )
    if options.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
