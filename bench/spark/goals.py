"""What Spark costs over our own reading, which road into it is the cheapest, and tshark beside it: one command, one machine.

    python bench/spark/goals.py [--megabytes 500,1000,2000,4000] [--keep DIRECTORY] [--hot 2000000] [--wall]

Small exchanges (`traffic.py`), the table `frames` (or `exchanges`, for pairs) counted by API and client id; and the header tables
as the pipeline writes them. CPU-seconds of this process, the JVM and Spark's Python workers, in a warm session; so a machine with
other work gives nearly the same figures. `--wall` adds local[2] against local[1] in seconds: only on a machine that has nothing
else to do. `--hot`: exchanges of the recording with one connection, of which the memory of Spark's workers is looked at (0: not).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from barnabas.captures import tables
from barnabas.captures.spark import pipeline
from barnabas.captures.spark.session import session
from barnabas.captures.spark.source import BarnabasSource, SegmentReader, ddl
from barnabas.captures.tables.folder import Folder
from pyspark.sql import functions as f
from tables import BODIES, BODY_FIELDS, FIELDS, HEADERS, tshark
from traffic import mixed, record, written

HOT = ("exchanges", "frames", "errors", "connections", "versions")
COLUMNS = ["api", "client_id", "time_ns", "connection", "correlation_id", "direction"]
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
TICKS = os.sysconf("SC_CLK_TCK")


class TupleReader(SegmentReader):
    """The same rows, one by one."""

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class TupleSource(BarnabasSource):
    @classmethod
    def name(cls) -> str:
        return "tuples"

    def reader(self, schema: Any) -> TupleReader:
        return TupleReader(self._path(), *self._asked())


def tree() -> Iterator[tuple[int, int]]:
    """This process and all that it has started: numbers and clock ticks, those of their children that have ended included."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry))
        used[int(entry)] = sum(map(int, fields[11:15]))
    waiting = [os.getpid()]
    while waiting:
        number = waiting.pop()
        yield number, used.get(number, 0)
        waiting += children.get(number, [])


def tree_cpu() -> float:
    """CPU-seconds of this process and of all that it has started, living or ended."""
    return sum(ticks for _, ticks in tree()) / TICKS


def measured(name: str, size: int, run: Callable[[], int]) -> tuple[float, float]:
    """MB per CPU-second, and per second."""
    before, began = tree_cpu(), time.perf_counter()
    rows = run()
    used, wall = max(tree_cpu() - before, 1e-3), time.perf_counter() - began
    print(f"  {name:<34} {size / 1e6 / used:8.1f} MB/CPU-s {used:8.2f} CPU-s {wall:8.2f} s  {rows:,} rows", flush=True)
    return size / 1e6 / used, size / 1e6 / wall


def by_key(frame: Any) -> int:
    """Rows counted by API and client id, summed."""
    return sum(row["count"] for row in frame.groupBy("api", "client_id").count().collect())


def alone(segments: list[tables.Segment]) -> int:
    """The same count without Spark, in this process."""
    import pyarrow

    options = tables.Options(tables.described("frames"), tables.described("frames").chosen(COLUMNS))
    total = 0
    for segment in segments:
        for _, batch in tables.Unit(segment.path, [options], follows=segment.follows):
            found = pyarrow.Table.from_batches([batch]).group_by(["api", "client_id"]).aggregate([([], "count_all")])
            total += sum(found["count_all"].to_pylist())
    return total


def own_rows(segments: list[tables.Segment], names: tuple[str, ...]) -> int:
    """Rows of some tables, read in this process."""
    options = [tables.Options(tables.described(name), tables.described(name).chosen()) for name in names]
    return sum(
        batch.num_rows for each in segments for _, batch in tables.Unit(each.path, options, follows=each.follows)
    )


def rdd_rows(segment: Any) -> Iterator[tuple[Any, ...]]:
    reader = TupleReader("", "frames", COLUMNS, "")
    return reader.read(type("Partition", (), {"segment": segment})())


class Ways:
    """The ways into Spark, over the same segments."""

    def __init__(self, spark: Any, path: Path, segments: list[tables.Segment]) -> None:
        self.spark, self.path, self.segments = spark, path, segments

    def _read(self, name: str, table: str, columns: list[str]) -> Any:
        return (
            self.spark.read.format(name)
            .option("table", table)
            .option("columns", ",".join(columns))
            .load(str(self.path))
        )

    def arrow(self) -> int:
        return by_key(self._read("barnabas", "frames", COLUMNS))

    def tuples(self) -> int:
        return by_key(self._read("tuples", "frames", COLUMNS))

    def rdd(self) -> int:
        rows = self.spark.sparkContext.parallelize(self.segments, len(self.segments)).flatMap(rdd_rows)
        return by_key(self.spark.createDataFrame(rows, ddl("frames", COLUMNS)))

    def written(self, names: tuple[str, ...] = HEADERS) -> int:
        """The pipeline's Parquet, by Spark's tasks."""
        rows = 0

        def told(row: dict[str, Any]) -> None:
            nonlocal rows
            rows += row["frames"]

        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as output:
            folder = Folder(Path(output, "tables"), names)
            folder.prepare()
            pipeline.write(self.spark, folder, [(each, None) for each in self.segments], told=told)
        return rows

    def paired_by_reader(self) -> int:
        frame = self._read("barnabas", "exchanges", ["connection", "correlation_id", "latency_ns"])
        return int(frame.agg(f.count("latency_ns"), f.sum("latency_ns")).collect()[0][0])

    def paired_by_shuffle(self) -> int:
        frame = self._read("barnabas", "frames", ["capture_id", "connection", "correlation_id", "time_ns", "direction"])
        ends = frame.groupBy("capture_id", "connection", "correlation_id").agg(
            f.min("time_ns").alias("asked"), f.max("time_ns").alias("told"), f.count("*").alias("frames")
        )
        whole = ends.where("frames = 2").agg(f.count("*"), f.sum(ends.told - ends.asked)).collect()
        return int(whole[0][0])


def written_alone(segments: list[tables.Segment]) -> int:
    """The same Parquet, by this process."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as output:
        folder = Folder(Path(output, "tables"), HEADERS)
        folder.prepare()
        return sum(folder.write(each)["frames"] for each in segments)


def goal(what: str, value: float, wanted: float) -> None:
    print(f"{'met   ' if value >= wanted else 'MISSED'} {what}: {value:.2f} (wanted {wanted})", flush=True)


def hot(base: Path, exchanges: int) -> None:
    """The memory of Spark's Python workers that read one connection's recording."""
    place = base / f"hot-{exchanges}"
    if not place.exists():
        record(place, exchanges, connections=1)
    with session("local[1]") as spark:
        frames = Ways(spark, place, tables.find_segments(place).segments).written(HOT)
        kilobytes = []
        for number, _ in tree():
            said = Path("/proc", str(number), "status").read_text()
            if said.startswith("Name:\tpython") and number != os.getpid():
                kilobytes += [int(line.split()[1]) for line in said.splitlines() if line.startswith("VmHWM")]
    most = max(kilobytes) / 1024
    print(f"one connection, {frames:,} frames: at most {most:.0f} MB in a worker")
    goal("400 MB over what it takes", 400 / most, 1.0)


def beside_tshark(base: Path) -> None:
    """Header tables and body tables of the first segment of small exchanges and of a fleet at work, and tshark on the same file.
    CPU-seconds; three times in turn, the best of each.

    tshark 4.0 gives up on the bodies of Produce from version 9 on and of Fetch from 12 on ("Unsupported", then "Malformed"): of
    those it prints headers only. So the fleet is also measured in the last versions that it opens."""
    opened = partial(mixed, versions=(8, 11))
    kinds = ("small exchanges", record), ("a fleet at work", mixed), ("a fleet at work, Produce 8 and Fetch 11", opened)
    for name, make in kinds:
        place = base / name.replace(",", "").replace(" ", "-")
        if not place.exists():
            make(place)
        first = tables.find_segments(place).segments[:1]
        for names, fields, wanted in ((HEADERS, FIELDS, 25), (BODIES, BODY_FIELDS, 10)):
            ours, theirs = [], []
            for _ in range(3):
                for found, run in (
                    (ours, lambda n=names, s=first: own_rows(s, n)),
                    (theirs, lambda f=fields, s=first: tshark(s[0].path, f)),
                ):
                    before = tree_cpu()
                    run()  # type: ignore[operator]
                    found.append(tree_cpu() - before)
            print(f"{name}: {', '.join(names)}: {min(ours):.2f} CPU-s, tshark {min(theirs):.2f} CPU-s")
            goal(
                f"{'headers' if names is HEADERS else 'bodies'} to tshark -T fields, {name}",
                min(theirs) / min(ours),
                wanted,
            )


def adopt() -> None:
    """Have processes whose parents end first become children of this one: what they used would be lost."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    adopt()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", default="500,1000,2000,4000")
    parser.add_argument("--keep", type=Path, help="where recordings are made, and left")
    parser.add_argument("--hot", type=int, default=2_000_000)
    parser.add_argument("--wall", action="store_true")
    given = parser.parse_args()
    sizes = sorted(map(int, given.megabytes.split(",")))
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as temporary:
        base = given.keep or Path(temporary)
        steady: dict[int, tuple[float, ...]] = {}
        one: dict[int, float] = {}
        for master in ("local[1]", *(("local[2]",) if given.wall else ())):
            with session(master) as spark:
                for source in (BarnabasSource, TupleSource):
                    spark.dataSource.register(source)
                for megabytes in sizes:
                    place = base / f"{megabytes}"
                    list(written(place, megabytes))
                    segments = tables.find_segments(place).segments
                    size, ways = sum(each.size for each in segments), Ways(spark, place, segments)
                    for _ in range(3 if megabytes == sizes[0] else 0):
                        ways.arrow()  # the JVM's first steps, in which it compiles
                    print(f"{master}, {size / 1e6:.0f} MB in {len(segments)} files")
                    arrow, speed = measured("Arrow batches", size, ways.arrow)
                    if master != "local[1]":
                        goal(f"local[2] to local[1] at {megabytes} MB", speed / one[megabytes], 1.7)
                        continue
                    one[megabytes] = speed
                    own, _ = measured("without Spark, one process", size, lambda found=segments: alone(found))  # type: ignore[misc]
                    print(f"       rows through the JVM to our own: {arrow / own:.2f}")
                    by_spark, _ = measured("header tables written by Spark", size, ways.written)
                    by_us, _ = measured("the same by one process", size, lambda found=segments: written_alone(found))  # type: ignore[misc]
                    goal("Spark to our own process", by_spark / by_us, 0.6)
                    steady[megabytes] = arrow, own, by_spark
                    if megabytes != sizes[0]:
                        continue
                    goal("Arrow batches to tuples", arrow / measured("tuples", size, ways.tuples)[0], 2.0)
                    goal("Arrow batches to an RDD", arrow / measured("RDD", size, ways.rdd)[0], 3.5)
                    ours, _ = measured("pairs by the reader", size, ways.paired_by_reader)
                    theirs, _ = measured("pairs by a shuffle", size, ways.paired_by_shuffle)
                    goal("pairs by the reader to a shuffle", ours / theirs, 1.5)
        for number, name in enumerate(("rows into Spark", "rows in one process", "tables by Spark")):
            figures = [found[number] for found in steady.values()]
            goal(f"slowest size to the fastest, {name}", min(figures) / max(figures), 0.9)
        if given.hot:
            hot(base, given.hot)
        if shutil.which("tshark"):
            beside_tshark(base)


if __name__ == "__main__":
    main()
