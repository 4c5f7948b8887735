"""What a run costs before it reads anything: the driver's time and memory with very many files that earlier runs have read.

    python bench/spark/planning.py [--brokers 1000] [--days 30,365]

Files without traffic, a segment per broker and day, each a recording of its own, with the entries that a run would have left: the list of
files, the recordings and their brokers. Then, in a process of its own each, a dry run, and a run that reads one new recording.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

from barnabas.captures import tables
from barnabas.captures.spark import pipeline
from barnabas.captures.tables.output.context_tables import BROKERS
from barnabas.captures.tables.output.folder import Folder
from barnabas.captures.tables.output.manifest import Written
from traffic import record

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def earlier(source: Path, output: Path, brokers: int, days: int) -> None:
    """What is there after so many days."""
    import pyarrow
    from pyarrow import parquet

    record(source / "first", 10, connections=1)
    pipeline.run(pipeline.NO_SPARK, source, output)
    folder = Folder(output)
    folder.prepare()
    named: dict[str, list[Any]] = {column.name: [] for column in BROKERS.columns}
    for day in range(days):
        date = (FIRST + timedelta(day)).strftime("%Y-%m-%d")
        first_ns = int((FIRST + timedelta(day)).timestamp()) * 10**9
        captures, listed = source / date, output / "segments" / f"date={date}"
        for each in (captures, listed):
            each.mkdir(parents=True)
        for broker in range(brokers):
            capture_id = blake2b(f"{day} {broker}".encode(), digest_size=16).hexdigest()
            path, key = captures / f"broker-{broker}.pcapng", f"{capture_id}-000000"
            for file in (path, listed / f"{key}.parquet"):
                os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
            row = {
                "capture_id": capture_id, "sequence": 0, "path": str(path), "size_bytes": 0, "modified_ns": path.stat().st_mtime_ns,
                "continues": 0, "status": "ok", "cluster_id": "fleet", "unnamed": 0, "first_ns": first_ns,
            }  # fmt: skip
            folder.learn(Written(date, key, [row]))
            for name, value in (("capture_id", capture_id), ("cluster_id", "fleet"), ("broker_id", broker), ("broker", f"kafka-{broker}:9092")):
                named[name].append(value)
    schema = parquet.read_schema(output / BROKERS.name / "all.parquet")
    parquet.write_table(pyarrow.table(named, schema=schema), output / BROKERS.name / "all.parquet", compression="zstd")
    folder.finish()
    folder = Folder(output)
    there = {each.key: each for each in tables.find_segments(source, known(folder)).segments}
    for recording in folder.recordings(there):
        folder.made.add(recording)
    folder.finish()


def known(folder: Folder) -> dict[tuple[str, int, int], tuple[str, int, bool]]:
    return {(each.path, each.size, each.modified_ns): (each.capture_id, each.sequence, False) for each in folder.done().values()}


def run(source: Path, output: Path, dry: bool, sink: Any) -> None:
    """A run, and what it took."""
    before, began = time.process_time(), time.perf_counter()
    done = pipeline.run(pipeline.NO_SPARK, source, output, dry=dry)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sink.send((done.read, done.unchanged, done.recordings, time.process_time() - before, time.perf_counter() - began, peak))


def apart(source: Path, output: Path, dry: bool) -> tuple[int, int, int, float, float, float]:
    """The same in a process of its own, whose memory is its own."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=run, args=(source, output, dry, theirs))
    process.start()
    theirs.close()
    found: tuple[int, int, int, float, float, float] = ours.recv()
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--days", default="30,365")
    given = parser.parse_args()
    for days in map(int, given.days.split(",")):
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as place:
            source, output = Path(place, "captures"), Path(place, "tables")
            earlier(source, output, given.brokers, days)
            sizes = {name: (output / name).stat().st_size / 1e6 for name in (".manifest", ".recordings")}
            print(f"{given.brokers * days:,} files: {json.dumps({name: round(size, 1) for name, size in sizes.items()})} MB", flush=True)
            for what in ("dry run", "nothing new", "one new recording"):
                if what == "one new recording":
                    record(source / "last", 10, connections=1, seed=2)
                read, unchanged, recordings, cpu, wall, peak = apart(source, output, what == "dry run")
                print(f"  {what}: {read} read, {unchanged:,} unchanged, {recordings} recordings; {cpu:.1f} CPU-s, {wall:.1f} s, {peak:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
