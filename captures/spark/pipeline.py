"""The pipeline: captures in, a folder of Parquet tables out (`tables.folder`), each file of a capture once.

`run` reads what is new or has changed since the last run, on Spark, or with the master `none` in this process alone. A run that
is killed leaves a folder that every reader can read; the next one completes it. `stream` follows recordings from checkpoint to
checkpoint. Only one run writes to a folder at a time: a file lock guards it, in a store an object that is refreshed.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import tables
from ..reading.storage import Place, Remote, StorageError, place, text
from ..tables.columns import numpy, pyarrow
from ..tables.folder import DEFAULT, Done, Folder, todo
from . import PipelineError
from .connect import SCHEME
from .session import check_installed, check_master, report_progress, session, shipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK = ".barnabas.lock"
_FRESH_SECONDS = 60.0
"""A lock object older than this belongs to a killed run."""
_REFRESH_SECONDS = 10.0


@contextmanager
def held(output: Place) -> Iterator[None]:
    """Hold the folder, made if need be. Raises `PipelineError` where another run holds it."""
    with _lock(output) if isinstance(output, Path) else _lease(output / LOCK):
        yield


@contextmanager
def _lock(output: Path) -> Iterator[None]:
    try:
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(output / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise PipelineError(f"cannot write to {output}: {error.strerror}; choose another --output") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PipelineError(f"{output}: another pipeline run is writing there; wait for it") from error
        yield
    finally:
        os.close(lock)


@contextmanager
def _lease(lock: Remote) -> Iterator[None]:
    """A store has no locks. Of two that start within a moment the one whose object was overwritten gives up."""
    mine = os.urandom(16).hex().encode()
    for each in lock.parent.files(deep=False):
        if each.path == lock and time.time() - each.modified_ns / 1e9 < _FRESH_SECONDS:
            raise PipelineError(
                f"{lock.parent}: another pipeline run is writing there; wait for it, or, if it was killed, for "
                f"{_FRESH_SECONDS:.0f} seconds"
            )
    lock.write(mine)
    over = threading.Event()

    def refresh() -> None:
        while not over.wait(_REFRESH_SECONDS):
            try:
                if lock.read() == mine:
                    lock.write(mine)
            except OSError:  # the run itself finds out
                continue

    thread = threading.Thread(target=refresh, name="pipeline-lease", daemon=True)
    thread.start()
    try:
        if lock.read() != mine:
            raise PipelineError(f"{lock.parent}: another pipeline run has begun to write there; wait for it")
        yield
    finally:
        over.set()
        thread.join()
        if lock.read() == mine:
            lock.unlink(missing_ok=True)


Progress = Callable[[str], None]
Work = list[tuple[tables.Segment, Done | None]]

NO_SPARK = "none"
_CHECKPOINT = ".checkpoint"
_QUICK_BYTES = 256 << 20  # below this a slower but sooner JVM is done first
_JOB = 2000
"""Files of one Spark job."""


@dataclass(slots=True)
class PipelineResult:
    """The result of a run, or of a dry run: files read, unchanged since the last run, still being written, left out with a line
    each, rows removed of files that changed; what is not right with those read, a line each."""

    output: Place
    tables: tuple[str, ...]
    read: int = 0
    bytes: int = 0
    unchanged: int = 0
    live: int = 0
    removed: int = 0
    left_out: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The document that `barnabas pipeline run --json` prints."""
        return {
            "output": str(self.output), "tables": list(self.tables), "read": self.read, "bytes": self.bytes,
            "unchanged": self.unchanged, "live": self.live, "removed": self.removed, "left_out": self.left_out,
            "damaged": self.damaged,
        }  # fmt: skip


def run(
    spark: SparkSession | str,
    source: str | Place,
    output: str | Place,
    progress: Progress = lambda text: None,
    *,
    names: Iterable[str] = DEFAULT,
    dry: bool = False,
    wheel: Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> PipelineResult:
    """Read the captures under `source` into the tables `names` of `output`; both may be URIs (`captures.reading.storage`).

    `spark`: a session, such as a notebook's, which stays open; or the master of one that is started for this run,
    ``"local[2]"``, ``"spark://HOST:PORT"``, ``"sc://HOST:PORT"``, or ``"none"`` for this process without Spark. `wheel`, of this
    package, for the executors of a cluster, and `conf`, Spark's settings, are for a session that is started.

    `progress` is called with one line per step. `dry`: write nothing, and start nothing. Raises `PipelineError`,
    `StorageError`, `FolderError` or `MissingLibrary` (all `BarnabasError`), if possible before Spark starts.
    """
    source, output = _place(source), _place(output)
    _check(spark, wheel, conf or {}, dry)
    folder = _folder(output, names)
    done = _done(folder)
    found = _found(source, done)
    plan = todo(found.segments, done)
    size = sum(segment.size for segment, _ in plan.work)
    outcome = PipelineResult(
        output, folder.names, len(plan.work), size, plan.unchanged, found.live, len(plan.gone), found.left_out
    )
    progress(
        f"{_count(len(plan.work), 'file')} to read, {size / 1e6:.1f} MB; {plan.unchanged} unchanged, {found.live} live"
    )
    if dry:
        return outcome
    with lock_output(folder):
        for old in plan.gone:
            folder.remove(old)
        record = _row_recorder(folder, plan.work, progress if spark == NO_SPARK else lambda text: None)
        if not plan.work:
            pass
        elif spark == NO_SPARK:
            for segment, before in plan.work:
                record(folder.write(segment, before), outcome)
        else:
            with _session(spark, progress, size < _QUICK_BYTES, wheel, conf or {}) as there:
                write(there, folder, plan.work, progress, lambda row: record(row, outcome))
                if isinstance(spark, str):
                    progress("stopping Spark")
    return outcome


def _check(spark: SparkSession | str, wheel: Path | None, conf: Mapping[str, str], dry: bool = False) -> None:
    """Raise PipelineError or MissingLibrary for what cannot work."""
    if spark == NO_SPARK:
        pyarrow()  # both raise MissingLibrary
        numpy()
    elif isinstance(spark, str):
        check_master(spark)
        if conf and spark.startswith(SCHEME):
            raise PipelineError("Spark settings apply only to a session that is started here: a Spark Connect server has its own")
        if not dry:
            check_installed(spark)
        elif not spark.startswith(SCHEME):
            check_installed()  # nothing is started, so no master is looked for
    elif wheel is not None or conf:
        raise PipelineError("a wheel and Spark settings apply only to a session that is started here: this one is already running")


@contextmanager
def _session(
    spark: SparkSession | str, progress: Progress, quick: bool, wheel: Path | None, conf: Mapping[str, str]
) -> Iterator[SparkSession]:
    """The given session, or one that ends with the body."""
    if not isinstance(spark, str):
        with shipped(spark):
            yield spark
        return
    progress("connecting to Spark" if spark.startswith(SCHEME) else "starting Spark, which takes some seconds")
    with session(spark, quick=quick, wheel=wheel, conf=conf) as started:
        yield started


def _place(given: str | Place) -> Place:
    found = place(given)
    return found if isinstance(found, Remote) else found.absolute()


def _done(folder: Folder) -> dict[str, Done]:
    try:
        return folder.done()
    except StorageError:
        raise
    except OSError as error:
        raise PipelineError(f"{folder.path} cannot be read: {error.strerror or error}") from error


def _folder(output: Place, names: Iterable[str]) -> Folder:
    try:
        return Folder(output, names)
    except ValueError as error:
        raise PipelineError(f"--tables: {error}") from error


def _row_recorder(folder: Folder, work: Work, progress: Progress) -> Callable[[dict[str, Any], PipelineResult], None]:
    """Count a file that was read, and report progress about once a second."""
    count, last = 0, time.monotonic()

    def record(row: dict[str, Any], outcome: PipelineResult) -> None:
        nonlocal count, last
        count += 1
        folder.learn(row)
        if row["status"] != "ok":
            outcome.damaged.append(f"{row['path']}: {row['status']}: {row['detail'] or 'it ends early'}")
        if time.monotonic() - last >= 1.0 and count < len(work):
            last = time.monotonic()
            progress(f"reading: {count} of {_count(len(work), 'file')}")

    return record


def _found(source: Place, done: dict[str, Done]) -> tables.Found:
    """The files to read. Raises `PipelineError` if there are none."""
    known = {}
    for old in done.values():
        if not old.continues:  # it will not be read again, so it does not matter whether it is a recording's segment
            name, _, number = old.key.rpartition("-")
            known[old.path, old.size, old.modified_ns] = name, int(number), False
    try:
        found = tables.find_segments(source, known)
    except StorageError:
        raise
    except OSError as error:
        text = str(error) if error.errno is None else f"{source}: {error.strerror}"
        raise PipelineError(f"{text}; give a folder of captures") from error
    if found.segments:
        return found
    if found.live:
        raise PipelineError(
            f"{source}: the only segment is still being written; run again when the recording has ended"
        )
    if found.left_out:
        more = f" (and {len(found.left_out) - 1} more)" if len(found.left_out) > 1 else ""
        raise PipelineError(f"{source}: it contains no capture: {found.left_out[0]}{more}")
    raise PipelineError(f"{source}: it contains no capture; make one with: barnabas proxy --record {source}")


def write(
    spark: SparkSession,
    folder: Folder,
    work: Work,
    progress: Progress = lambda text: None,
    record: Callable[[dict[str, Any]], None] = lambda row: None,
) -> None:
    """Have Spark do it: a task per file. For a cluster, captures and folder are on storage that all its nodes share."""
    from .pipeline_source import NAME, PipelineSource, packed

    spark.dataSource.register(PipelineSource)
    for start in range(0, len(work), _JOB):
        frame = spark.read.format(NAME).options(
            output=text(folder.path), tables=json.dumps(folder.names), plan=packed(work[start : start + _JOB])
        ).load()  # fmt: skip
        with report_progress(spark, lambda done, of: progress(f"reading: {done} of {_count(of, 'file')}")):
            for row in frame.collect():
                record(row.asDict())


def stream(
    spark: SparkSession | str,
    source: str | Place,
    output: str | Place,
    progress: Progress = lambda text: None,
    *,
    names: Iterable[str] = DEFAULT,
    checkpoint: Path | None = None,
    every: float = 10.0,
    once: bool = False,
    wheel: Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> None:
    """Follow `source`: read closed files every `every` seconds, until interrupted; with `once`, what is there now. `spark`, `wheel`,
    `conf`: as for `run`, but not without Spark.

    The checkpoint (default: in `output`) holds the progress; a restart goes on from there, and does the last batch
    again if it was not finished, into the same places. Raises `PipelineError`.
    """
    source, output = _place(source), _place(output)
    if spark == NO_SPARK:
        raise PipelineError("a stream needs Spark: give a master such as local[2]")
    _check(spark, wheel, conf or {})
    if isinstance(source, Path) and not source.is_dir():
        raise PipelineError(f"{source}: no such folder; give a folder of captures")
    if isinstance(output, Remote) and checkpoint is None:
        raise PipelineError(f"{output} is in a store, where Spark keeps no checkpoint: give a folder with --checkpoint")
    folder = _folder(output, names)
    with lock_output(folder), _session(spark, progress, False, wheel, conf or {}) as there:
        from .pipeline_source import NAME, PipelineSource

        there.dataSource.register(PipelineSource)
        options = {"path": text(source), "output": text(output), "tables": json.dumps(folder.names)}
        frame = there.readStream.format(NAME).options(**options).load()
        kept = checkpoint.absolute() if checkpoint is not None else output / _CHECKPOINT
        writing = frame.writeStream.format("noop").option("checkpointLocation", str(kept))
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{every:g} seconds"}
        query = writing.trigger(**trigger).start()
        progress(f"following {source}; Ctrl-C stops it")
        batch = -1
        try:
            while not query.awaitTermination(1):
                last = query.lastProgress
                if last is not None and last["batchId"] != batch:
                    batch, count = last["batchId"], sum(each["numInputRows"] or 0 for each in last["sources"])
                    if count:
                        progress(f"batch {batch}: {_count(count, 'file')}")
        finally:
            if query.isActive:
                query.stop()
        folder.done()  # what the tasks have put there


@contextmanager
def lock_output(folder: Folder) -> Iterator[None]:
    """Hold the output folder for this run, made if need be, and clear what a killed run left there."""
    output = folder.path
    try:
        with held(output):
            folder.prepare()
            yield
            folder.finish()
    except OSError as error:
        raise PipelineError(f"cannot write to {output}: {error.strerror or error}; the next run continues from there") from error


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
