"""The pipeline: recordings in, a Parquet table out, a report over it.

The table is a folder with one file per segment, `exchanges/CAPTURE-NUMBER.parquet`. Spark writes into a temporary
folder beside it; each finished file is then moved to its place by one rename. So plain readers see whole files and
every segment once: a second run replaces a file by the same rows, and a killed run leaves for each segment the old
file, the new one, or none, and never half a file. What it left in the temporary folder goes with the next run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import tables
from . import PipelineError
from .report import Line, Report, report
from .session import check_installed, check_master, session, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]

TABLE = "exchanges"
_TEMPORARY = f".{TABLE}-"
_LOCK = ".barnabas.lock"
_QUICK_BYTES = 256 << 20  # below this a slower but sooner JVM is done first


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did: the table's folder, segments read, those still being written, files left out, the report."""

    table: Path
    segments: int
    live: int
    left_out: list[str]
    report: Report


def run(source: Path, output: Path, master: str = "local[2]", progress: Progress = lambda text: None) -> Outcome:
    """Read the recordings under `source` into `output`/exchanges and report on the whole table.

    `progress` hears one line per step. Raises `PipelineError`; what can go wrong is looked at before Spark starts.
    """
    source, output = source.absolute(), output.absolute()
    found = segments(source)
    check_master(master)
    check_installed()
    with _locked(output):
        size = sum(segment.size for segment in found.segments)
        progress(f"{_count(len(found.segments), 'segment')}, {size / 1e6:.1f} MB in {source}")
        progress("starting Spark, this takes some seconds")
        with session(master, quick=size < _QUICK_BYTES) as spark:
            table = output / TABLE
            progress("writing the table")
            write(spark, found.segments, source, table, progress)
            progress("computing the report")
            result = _report(spark, table)
            progress("stopping Spark")
    return Outcome(table, len(found.segments), found.live, found.left_out, result)


def segments(source: Path) -> tables.Found:
    """What there is to read. Raises `PipelineError` when that is nothing."""
    try:
        found = tables.find_segments(source)
    except OSError as error:
        text = str(error) if error.errno is None else f"{source}: {error.strerror}"
        raise PipelineError(f"{text}; give --input a folder of recordings") from error
    if found.segments:
        return found
    if found.live:
        raise PipelineError(
            f"{source}: the only segment is still being written; run again when the recording has ended"
        )
    if found.left_out:
        more = f" (and {len(found.left_out) - 1} more)" if len(found.left_out) > 1 else ""
        raise PipelineError(f"{source}: no recording is in it: {found.left_out[0]}{more}")
    raise PipelineError(f"{source}: no recording is in it; make one with: barnabas proxy --record {source}")


def write(
    spark: SparkSession, found: list[tables.Segment], source: Path, table: Path, progress: Progress = lambda text: None
) -> None:
    """Write one Parquet file per segment into the folder `table`, replacing older ones of the same segments.

    For a cluster, `table` and `source` must be on storage that all its nodes share.
    """
    from .source import BarnabasSource

    spark.dataSource.register(BarnabasSource)
    temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=table.parent))
    try:
        frame = spark.read.format("barnabas").option("table", TABLE).load(str(source))
        with watched(spark, lambda done, of: progress(f"writing the table: {done} of {_count(of, 'segment')}")):
            frame.write.mode("append").parquet(str(temporary))
        table.mkdir(mode=0o700, exist_ok=True)
        _move(temporary, table, {(s.capture_id, s.path.name.removesuffix(".part")): s for s in found})
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move(temporary: Path, table: Path, by_name: dict[tuple[str, str], tables.Segment]) -> None:
    """Give every file that Spark wrote the name of its segment. One task reads one segment and writes one file."""
    from pyarrow import parquet

    for part in sorted(temporary.glob("part-*.parquet")):
        with parquet.ParquetFile(part) as file:
            if not file.metadata.num_rows:
                continue
            first = next(file.iter_batches(1, columns=["capture_id", "segment"])).to_pylist()[0]
        segment = by_name.get((first["capture_id"], first["segment"]))
        # A segment that was closed after the folder was looked at waits for the next run.
        if segment is not None:
            os.replace(part, table / f"{segment.key}.parquet")


def _report(spark: SparkSession, table: Path) -> Report:
    if not any(table.glob("*.parquet")):
        return Report(Line(None, None, 0, 0, 0, 0, None, None), [])
    return report(spark, table)


@contextmanager
def _locked(output: Path) -> Iterator[None]:
    """Hold the output folder for this run, made if need be, and clear what a killed run left there."""
    try:
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(output / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise PipelineError(f"cannot write to {output}: {error.strerror}; choose another --output") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PipelineError(f"{output}: another pipeline run is writing there; wait for it") from error
        for left in output.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(lock)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
