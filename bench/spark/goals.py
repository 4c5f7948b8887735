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
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.captures import tables
from barnabas.captures.spark.session import session
from barnabas.captures.spark.source import BarnabasSource
from readers import TupleSource, Ways, alone, own_rows, written_alone
from tables import BODIES, BODY_FIELDS, FIELDS, HEADERS, tshark
from traffic import mixed, record, written

HOT = ("exchanges", "frames", "errors", "connections", "versions")
_TWICE = 1000
"""Up to so many MB, the better one of two runs counts."""
_forgotten: dict[int, int] = {}
"""Clock ticks at the last look, by process."""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
TICKS = os.sysconf("SC_CLK_TCK")


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
    """CPU-seconds of this process and of all that it has started, living or ended.

    The kernel forgets what a process used whose parent ignores SIGCHLD, as PySpark's daemon does, which ends workers after a minute
    without work: of those counts what they had used at the last look."""
    here = dict(tree())
    for number in here:
        if number not in _forgotten and _forgets(number):
            _forgotten[number] = 0
    for number in _forgotten:
        _forgotten[number] = max(_forgotten[number], here.pop(number, 0))
    return (sum(here.values()) + sum(_forgotten.values())) / TICKS


def _forgets(number: int) -> bool:
    """Whether what a process used is forgotten at its end."""
    try:
        parent = Path("/proc", str(number), "stat").read_text().rpartition(")")[2].split()[1]
        status = Path("/proc", parent, "status").read_text()
    except OSError:
        return False
    ignored = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(ignored >> (signal.SIGCHLD - 1) & 1)


class Figure(NamedTuple):
    """What a way has cost: bytes, CPU-seconds, seconds."""

    size: int
    cpu: float
    wall: float

    @property
    def speed(self) -> float:
        """MB per CPU-second."""
        return self.size / 1e6 / self.cpu

    def beyond(self, fixed: Figure) -> Figure:
        """Without what it costs to begin."""
        return Figure(self.size, max(self.cpu - fixed.cpu, 1e-3), max(self.wall - fixed.wall, 1e-3))


def measured(
    name: str, size: int, run: Callable[[], int], times: int = 1, clock: Callable[[], float] = tree_cpu
) -> Figure:
    """The least of so many runs, printed. `clock`: CPU-seconds."""
    found = []
    for _ in range(times):
        before, began = clock(), time.perf_counter()
        rows = run()
        found.append(Figure(size, max(clock() - before, 1e-3), time.perf_counter() - began))
    best = Figure(size, min(each.cpu for each in found), min(each.wall for each in found))
    print(
        f"  {name:<34} {best.speed:8.1f} MB/CPU-s {best.cpu:8.2f} CPU-s {best.wall:8.2f} s  {rows:,} rows, "
        f"{best.cpu / best.wall:.2f} cores busy",
        flush=True,
    )
    return best


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
            status = Path("/proc", str(number), "status").read_text()
            if status.startswith("Name:\tpython") and number != os.getpid():
                kilobytes += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
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
                before = tree_cpu()
                own_rows(first, names)
                ours.append(tree_cpu() - before)
                before = tree_cpu()
                tshark(first[0].path, fields)
                theirs.append(tree_cpu() - before)
            print(f"{name}: {', '.join(names)}: {min(ours):.2f} CPU-s, tshark {min(theirs):.2f} CPU-s")
            kind = "headers" if names is HEADERS else "bodies"
            goal(f"{kind} to tshark -T fields, {name}", min(theirs) / min(ours), wanted)


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
        for megabytes in sizes:
            linked(base, megabytes)
        one: Found = {}
        for master in ("local[1]", *(("local[2]",) if given.wall else ())):
            with session(master) as spark:
                for source in (BarnabasSource, TupleSource):
                    spark.dataSource.register(source)
                found = by_size(spark, base, sizes, roads=master == "local[1]")
            if master == "local[1]":
                one = found
            else:
                more_cores(one, found)
        steadiness(one)
        if given.hot:
            hot(base, given.hot)
        if shutil.which("tshark"):
            beside_tshark(base)


def linked(base: Path, megabytes: int) -> None:
    """A folder of so many MB; sizes share their files."""
    for part in written(base / "all", megabytes):
        place = base / f"{megabytes}" / part.name
        if not place.exists():
            place.mkdir(parents=True)
            for file in part.iterdir():
                (place / file.name).hardlink_to(file)


Found = dict[int, dict[str, Figure]]
"""By MB (0: a few exchanges) and way."""


def by_size(spark: Any, base: Path, sizes: list[int], roads: bool) -> Found:
    """The ways over every size, in a session that is warm. `roads`: also those into Spark that we do not take, at the first."""
    few = base / "few"
    if not few.exists():
        record(few, 1000)
    first = Ways(spark, base / f"{sizes[0]}", tables.find_segments(base / f"{sizes[0]}").segments)
    for _ in range(5):  # the JVM compiles what it sees often; the workers import
        first.arrow()
    first.written()
    found: Found = {}
    for megabytes in (0, *sizes):
        place = base / f"{megabytes}" if megabytes else few
        segments = tables.find_segments(place).segments
        size, ways = sum(each.size for each in segments), Ways(spark, place, segments)
        print(f"{spark.sparkContext.master}, {size / 1e6:.1f} MB in {len(segments)} files")
        times = (2 if megabytes <= _TWICE else 1) if megabytes else 5
        here = found[megabytes] = {
            ROWS: measured(ROWS, size, ways.arrow, times),
            WRITTEN: measured(WRITTEN, size, ways.written, times),
        }
        if not megabytes or not roads:
            continue
        here[OWN] = measured(OWN, size, lambda s=segments: alone(s), times, time.process_time)  # type: ignore[misc]
        print(f"       rows through the JVM to our own: {here[ROWS].speed / here[OWN].speed:.2f}")
        by_us = measured("the same by one process", size, lambda s=segments: written_alone(s), 1, time.process_time)  # type: ignore[misc]
        goal("Spark to our own process", here[WRITTEN].speed / by_us.speed, 0.6)
        if megabytes == sizes[0]:
            arrow = here[ROWS].speed
            goal("Arrow batches to tuples", arrow / measured("tuples", size, ways.tuples).speed, 2.0)
            goal("Arrow batches to an RDD", arrow / measured("RDD", size, ways.rdd).speed, 3.5)
            ours = measured("pairs by the reader", size, ways.paired_by_reader)
            theirs = measured("pairs by a shuffle", size, ways.paired_by_shuffle)
            goal("pairs by the reader to a shuffle", ours.speed / theirs.speed, 1.5)
    return found


ROWS, WRITTEN, OWN = "rows into Spark, Arrow batches", "header tables written by Spark", "rows in one process, no Spark"


def more_cores(one: Found, two: Found) -> None:
    """local[2] against local[1] in seconds. The JVM and the Python worker of one task work at the same time: where local[1] has
    1.2 cores busy already, two cores cannot do more than 2 / 1.2 as much."""
    for megabytes in sorted(set(one) - {0}):
        for way in (ROWS, WRITTEN):
            alone, both = one[megabytes][way], two[megabytes][way]
            goal(f"local[2] to local[1] at {megabytes} MB, {way}", alone.wall / both.wall, 1.7)
            alone, both = alone.beyond(one[0][way]), both.beyond(two[0][way])
            goal("       without the cost of a query over nothing", alone.wall / both.wall, 1.7)


def steadiness(one: Found) -> None:
    """MB per CPU-second over the sizes."""
    sizes = sorted(set(one) - {0})
    for way in (ROWS, WRITTEN, OWN):
        speeds = [one[megabytes][way].speed for megabytes in sizes]
        goal(f"slowest size to the fastest, {way}", min(speeds) / max(speeds), 0.9)
        if way in one[0]:
            speeds = [one[megabytes][way].beyond(one[0][way]).speed for megabytes in sizes]
            goal("       without the cost of a query over nothing", min(speeds) / max(speeds), 0.9)


if __name__ == "__main__":
    main()
