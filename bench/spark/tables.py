"""What a core does: MB of capture per CPU-second, table by table, and through the pipeline without and with Spark.

    python bench/spark/tables.py [CAPTURE] [--mixed] [--spark] [--tshark]

Without a capture it records one (see traffic.py): 200,000 small exchanges of groups and metadata, or with `--mixed` 50,000 of
producers and consumers too. CPU-seconds of this process and of what it
started (Spark: JVM and Python workers), not wall time, so that a machine with other work gives the same figures. `--tshark`
lets tshark print seven fields of every frame of the same file.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.captures import tables
from barnabas.captures.spark import pipeline
from barnabas.captures.tables.output.folder import DEFAULT
from traffic import mixed, record

HEADERS = ("exchanges", "frames")
FIELDS = (
    "frame.time_epoch", "tcp.stream", "kafka.api_key", "kafka.api_version", "kafka.correlation_id", "kafka.client_id",
    "kafka.len",
)  # fmt: skip
BODIES = ("errors", "batches", "groups", "throttles")
"""The tables of what bodies say that are made unless others are asked for."""
BODY_FIELDS = (
    *FIELDS, "kafka.error", "kafka.topic_name", "kafka.partition_id", "kafka.offset", "kafka.batch_codec",
    "kafka.batch_size", "kafka.producer_id", "kafka.consumer_group", "kafka.member_id", "kafka.throttle_time",
)  # fmt: skip


def cpu() -> float:
    """CPU-seconds of this process and of its children that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def tshark(path: Path, fields: tuple[str, ...]) -> None:
    """Let tshark print these fields of every packet."""
    words = [word for field in fields for word in ("-e", field)]
    command = ["tshark", "-n", "-r", str(path), "-d", "tcp.port==9092,kafka", "-T", "fields", *words]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode or not done.stdout.strip():
        raise SystemExit(f"tshark: {done.stderr.decode()}")


def measured(name: str, size: int, run: Callable[[], int | None]) -> float:
    """Print the figures of one way; returns its CPU-seconds."""
    before, began = cpu(), time.perf_counter()
    rows = run()
    used, wall = max(cpu() - before, 1e-6), time.perf_counter() - began
    counted = "" if rows is None else f", {rows:,} rows, {rows / used:,.0f} rows/CPU-s"
    print(f"{name:<32} {size / 1e6 / used:8.1f} MB/CPU-s   {used:7.2f} CPU-s {wall:7.2f} s wall{counted}", flush=True)
    return used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("capture", nargs="?", type=Path)
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--tshark", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as place:
        source = given.capture or Path(place, "recording")
        if given.capture is None:
            (mixed if given.mixed else record)(source)
        segments = tables.find_segments(source).segments
        size = sum(segment.size for segment in segments)
        print(f"{source}: {len(segments)} files, {size / 1e6:.1f} MB, python {sys.version.split()[0]}")

        def rows(*names: str) -> int:
            options = [tables.Options(tables.described(name), tables.described(name).chosen()) for name in names]
            return sum(batch.num_rows for s in segments for _, batch in tables.SegmentTables(s.path, options, follows=s.follows))

        rows("exchanges")  # imports, and the page cache
        for name in tables.DESCRIBED:
            if name != "happenings":
                measured(name, size, lambda name=name: rows(name))  # type: ignore[misc]
        headers = measured("headers together", size, lambda: rows(*HEADERS))
        for master in (pipeline.NO_SPARK, *(("local[1]", "local[2]") if given.spark else ())):
            for what, names in (("headers", HEADERS), ("all but findings", tuple(name for name in DEFAULT if name != "findings"))):
                output = Path(place, f"{what}-{master}")
                run = lambda o=output, m=master, n=names: pipeline.run(m, source, o, names=n) and None  # noqa: E731
                measured(f"pipeline {master}, {what}", size, run)
        if given.tshark and shutil.which("tshark"):
            first = segments[0]
            used = measured("tshark -T fields", first.size, lambda: tshark(first.path, FIELDS))
            print(f"headers against tshark: {used / first.size * size / headers:.1f} x")


if __name__ == "__main__":
    main()
