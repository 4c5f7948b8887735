"""The pipeline: captures in, a folder of Parquet tables out (`tables.output.folder`), each file of a capture once, in
two stages (`steps`): landing, by file, and the tables of recordings.

`run` reads what is new or has changed since the last run, on Spark, or with the master `none` in this process alone. A run that
is killed leaves a folder that every reader can read; the next one completes it. `stream` follows recordings from checkpoint to
checkpoint.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import tables
from ..reading.storage import Listed, Place, Remote, StorageError, place, settled, text
from ..tables.columns import numpy, pyarrow
from ..tables.output.delta import WEEK_HOURS, Compacted, deltalake
from ..tables.output.folder import Folder, TableFormat
from ..tables.output.manifest import Done
from ..tables.output.plan import Todo, todo
from ..tables.segments import Known, Name, NameFiles, name_none
from . import PipelineError
from .connect import SCHEME
from .folder_lock import lock_output
from .session import check_installed, check_master, session, shipped
from .steps import Engine, InProcess, OnSpark, Progress, Steps, count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_SPARK = "none"
_CHECKPOINT = ".checkpoint"
_READ = "read"
_QUICK_BYTES = 256 << 20  # below this a slower but sooner JVM is done first


@dataclass(slots=True)
class PipelineResult:
    """The result of a run, or of a dry run: files read, unchanged since the last run, still being written, left out with a line
    each, rows removed of files that changed; what is not right with those read, a line each; recordings whose tables were made."""

    output: Place
    tables: tuple[str, ...]
    read: int = 0
    bytes: int = 0
    unchanged: int = 0
    live: int = 0
    removed: int = 0
    left_out: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    recordings: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The document that `barnabas pipeline run --json` prints."""
        return {
            "output": str(self.output), "tables": list(self.tables), "read": self.read, "bytes": self.bytes,
            "unchanged": self.unchanged, "live": self.live, "removed": self.removed, "left_out": self.left_out,
            "damaged": self.damaged, "recordings": self.recordings,
        }  # fmt: skip


def run(
    spark: SparkSession | str,
    source: str | Place,
    output: str | Place,
    progress: Progress = lambda text: None,
    *,
    names: Iterable[str] = (),
    cluster: str = "",
    table_format: TableFormat | None = None,
    dry: bool = False,
    wheel: Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> PipelineResult:
    """Read the captures under `source` into the tables `names` of `output` (of none: those that it has, or `DEFAULT`); both may be URIs (`captures.reading.storage`).

    `spark`: a session, such as a notebook's, which stays open; or the master of one that is started for this run,
    ``"local[2]"``, ``"spark://HOST:PORT"``, ``"sc://HOST:PORT"``, or ``"none"`` for this process without Spark. `wheel`, of this
    package, for the executors of a cluster, and `conf`, Spark's settings, are for a session that is started.

    `cluster`: the cluster id of all these captures; else that which their responses give. `table_format`: of a new folder; None: Parquet, or
    what the folder has. `progress` is called with one line per
    step. `dry`: write nothing, and start nothing. Raises `PipelineError`,
    `StorageError`, `FolderError` or `MissingLibrary` (all `BarnabasError`), if possible before Spark starts.
    """
    source, output = _place(source), _place(output)
    _check(spark, wheel, conf or {}, dry)
    folder = _folder(output, names, table_format)
    done, adding = _done(folder), folder.adding
    found = _found(source, _known(folder, done), name_none)
    if dry:
        here = InProcess(folder, progress)
        return _planned(folder, _named(source, found, here)[0], done, adding, progress)[0]
    with lock_output(folder), ExitStack() as sessions:

        def started(size: int) -> Engine:
            if spark == NO_SPARK:
                return InProcess(folder, progress)
            opened = _session(spark, progress, size < _QUICK_BYTES, wheel, conf or {})
            return OnSpark(sessions.enter_context(opened), folder, progress)

        engine = None
        if found.unnamed:
            others = todo(found.segments, done, done if adding else ()).segments
            engine = started(sum(file.size for file in found.unnamed) + sum(segment.size for segment in others))
            found, named = _named(source, found, engine)
            folder.fingerprints.save(found.known, named)
        outcome, plan = _planned(folder, found, done, adding, progress)
        for old in plan.gone:
            folder.remove(old.date, old.chunk)
        if plan.gone:
            folder.forget_recordings()
        steps = Steps(folder, found.segments, plan.work, cluster, outcome)
        if spark == NO_SPARK or steps.pending:
            engine = engine or started(outcome.bytes)
            steps.take(engine)
        if isinstance(engine, OnSpark) and isinstance(spark, str):
            progress("stopping Spark")
    return outcome


def _planned(
    folder: Folder, found: tables.Found, done: dict[str, Done], adding: Collection[str], progress: Progress
) -> tuple[PipelineResult, Todo]:
    """What a run has to do."""
    plan = todo(found.segments, done, done if adding else ())
    size = sum(segment.size for segment in plan.segments)
    outcome = PipelineResult(
        folder.path, folder.names, len(plan.segments), size, plan.unchanged, found.live, len(plan.gone), found.left_out
    )
    gone = len(done.keys() - {segment.key for segment in found.segments})
    if adding and gone:
        outcome.left_out.append(f"{count(gone, 'file')} that are gone: {', '.join(adding)} will not have their rows")
    progress(
        f"{count(outcome.read, 'file')} to read, {size / 1e6:.1f} MB; {plan.unchanged} unchanged, {found.live} live"
    )
    return outcome, plan


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


def _folder(output: Place, names: Iterable[str], table_format: TableFormat | None) -> Folder:
    try:
        folder = Folder(output, names, table_format)
        if folder.delta is not None:
            deltalake()  # raises MissingDelta before anything starts
        return folder
    except ValueError as error:
        raise PipelineError(f"--tables: {error}") from error


def _known(folder: Folder, done: Mapping[str, Done]) -> dict[tuple[str, int, int], Name]:
    """The names of files that were read, or named, before."""
    known = {}
    for old in done.values():
        if not old.continues:  # it will not be read again, so it does not matter whether it is a recording's segment
            name, _, number = old.key.rpartition("-")
            known[old.path, old.size, old.modified_ns] = Name(name, int(number))
    return known | folder.fingerprints.read()


def _named(source: Place, found: tables.Found, engine: Engine) -> tuple[tables.Found, Known]:
    """What is there once `engine` has named the files that have to be read for it, and these names."""
    if not found.unnamed:
        return found, {}
    after = _found(source, found.known, engine.name_files)
    return after, {file: name for file, name in after.known.items() if file not in found.known}


def _found(source: Place, known: Known, name_files: NameFiles) -> tables.Found:
    """The files to read. Raises `PipelineError` if there are none."""
    try:
        found = tables.find_segments(source, known, name_files)
    except StorageError:
        raise
    except OSError as error:
        text = str(error) if error.errno is None else f"{source}: {error.strerror}"
        raise PipelineError(f"{text}; give a folder of captures") from error
    if found.segments or found.unnamed:
        return found
    if found.live:
        raise PipelineError(
            f"{source}: the only segment is still being written; run again when the recording has ended"
        )
    if found.left_out:
        more = f" (and {len(found.left_out) - 1} more)" if len(found.left_out) > 1 else ""
        raise PipelineError(f"{source}: it contains no capture: {found.left_out[0]}{more}")
    raise PipelineError(f"{source}: it contains no capture; make one with: barnabas proxy --record {source}")


def stream(
    spark: SparkSession | str,
    source: str | Place,
    output: str | Place,
    progress: Progress = lambda text: None,
    *,
    names: Iterable[str] = (),
    cluster: str = "",
    table_format: TableFormat | None = None,
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
    folder = _folder(output, names, table_format)
    if folder.adding:
        raise PipelineError(f"{output} does not have the tables {', '.join(folder.adding)}: add them with barnabas pipeline run")
    with lock_output(folder), _session(spark, progress, False, wheel, conf or {}) as there:
        from .pipeline_source import NAME

        engine = OnSpark(there, folder, progress)
        options = {"path": text(source), "output": text(output), "tables": json.dumps(folder.names), "cluster": cluster}
        frame = _observed(there.readStream.format(NAME).options(**options).load())
        _name_settled(folder, source, engine)
        kept = checkpoint.absolute() if checkpoint is not None else output / _CHECKPOINT
        writing = frame.writeStream.format("noop").option("checkpointLocation", str(kept))
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{every:g} seconds"}
        query = writing.trigger(**trigger).start()
        progress(f"following {source}; Ctrl-C stops it")
        batch, over, looked = -1, False, time.monotonic()
        try:
            while not over:
                over = query.awaitTermination(1)
                some = [each for each in query.recentProgress if each["batchId"] > batch and _has_rows(each)]
                for each in some:
                    batch = each["batchId"]
                    progress(f"batch {batch}: {_figures(each['observedMetrics'][_READ])}")
                if some or over:
                    _refine(folder, source, engine, progress)
                if not (once or over) and time.monotonic() - looked >= every:
                    _name_settled(folder, source, engine)
                    looked = time.monotonic()
        finally:
            if query.isActive:
                query.stop()
        folder.done()  # what the tasks have put there


def compact(output: str | Place, retention_hours: int = WEEK_HOURS) -> dict[str, Compacted]:
    """Join the small files of tables in the format delta, and remove files that were not part of a table for `retention_hours`. Returns what was
    done, by table; of tables in Parquet, whose files are never small for long, nothing. Raises FolderError, PipelineError, MissingDelta."""
    folder = Folder(_place(output))
    folder.check()
    if folder.delta is None:
        return {}
    with lock_output(folder):
        assert folder.delta is not None
        return {name: folder.delta.compact(name, retention_hours) for name in folder.names}


def _observed(frame: DataFrame) -> DataFrame:
    """The rows of `PipelineSource`, with figures of each batch for `_figures` in the progress that Spark reports."""
    connected = "connect" in type(frame).__module__  # whose functions are others
    expr = importlib.import_module("pyspark.sql.connect.functions" if connected else "pyspark.sql.functions").expr
    rows = "from_json(result, 'rows array<struct<exchanges: bigint, last_ns: bigint>>').rows"
    return frame.observe(
        _READ,
        expr(f"sum(size({rows}))").alias("files"),
        expr(f"sum(aggregate({rows}, 0L, (sum, each) -> sum + each.exchanges))").alias("exchanges"),
        expr(f"max(array_max(transform({rows}, each -> each.last_ns)))").alias("last_ns"),
    )


def _has_rows(progress: Any) -> bool:
    return any(each["numInputRows"] for each in progress["sources"])


def _figures(read: Any) -> str:
    """What a batch has read, and how far behind the captures it was when it was done."""
    if "values" in read:  # Spark Connect has them beside their schema
        read = read["values"]
    files, exchanges, last_ns = read
    said = f"{count(files, 'file')} with {count(exchanges, 'exchange')}"
    return said if last_ns is None else f"{said}, the last one {max(time.time_ns() - last_ns, 0) / 1e9:.0f} s ago"


def _name_settled(folder: Folder, source: Place, engine: Engine) -> None:
    """Name new captures of other tools, which the stream, whose planner can give Spark no work, then finds named."""

    def name(files: Sequence[Listed]) -> list[Name | str | None]:
        ready = settled(files)
        names = dict(zip(ready, engine.name_files(ready), strict=True)) if ready else {}
        return [names.get(file) for file in files]

    before = _found(source, _known(folder, folder.done()), name_none)
    if settled(before.unnamed):
        after = _found(source, before.known, name)
        folder.fingerprints.save(after.known, {file: name for file, name in after.known.items() if file not in before.known})


def _refine(folder: Folder, source: Place, engine: OnSpark, progress: Progress) -> None:
    """Make the tables of the recordings that a stream has read more of, and remove rows of captures that have changed."""
    folder.commit()
    done = folder.done()
    found, outcome = _found(source, _known(folder, done), name_none), PipelineResult(folder.path, folder.names)
    for old in todo(found.segments, done).gone:
        folder.remove(old.date, old.chunk)
    Steps(folder, found.segments, [], "", outcome).refine(engine)
    for line in outcome.damaged:
        progress(line)
