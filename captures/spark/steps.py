"""The steps of a run, the same with Spark and without: what files say, the rows of each file, the tables of each recording.

    name         captures of other tools, new ones                                         -> a digest of the bytes of each
    look         new segments          what other files of their recording have to know    -> tables topics, brokers
    write        chunks (`plan`)       landing: their rows, named by what all files say     -> one Parquet file per table
    recordings   what has changed      connections, versions and findings of all files     -> one Parquet file per table

Each step is a Spark job with a task per chunk, or per recording. A file whose topics or cluster become known later is read again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..reading.storage import Listed, text
from ..tables.output.folder import Folder
from ..tables.output.manifest import Written, key_of
from ..tables.output.plan import CHUNK_BYTES, Work, todo
from ..tables.output.recordings import Recording
from ..tables.segments import Name, Segment, name_file
from .session import report_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
_JOB = 2000
"""Tasks of one Spark job."""
_COMMIT = 100
"""Chunks that readers of a Delta table see at once."""


class Outcome(Protocol):
    """What a run reports."""

    damaged: list[str]
    recordings: int


class MadeTables(NamedTuple):
    """A recording whose tables are made, with a line per file that could not be read for them."""

    recording: Recording
    notes: list[str]


class Engine(Protocol):
    """Where the steps run."""

    def name_files(self, files: Sequence[Listed]) -> list[Name | str]:
        """Read files for their names, see `tables.segments.name_file`."""

    def look(self, work: Work) -> None: ...

    def write(self, work: Work) -> Iterator[Written]:
        """What was written, as chunks are done."""

    def recordings(self, found: Sequence[Recording]) -> Iterator[MadeTables]: ...


class Steps:
    """What a run has to do. `segments`: all files that are there; `work`: those to read."""

    def __init__(self, folder: Folder, segments: Sequence[Segment], work: Work, cluster: str, outcome: Outcome) -> None:
        self._folder, self._segments, self._work = folder, segments, work
        self._cluster, self._outcome = cluster, outcome
        self._captures = {segment.capture_id for segment in segments}
        # A run that was killed may have learned names, and not read again what lacks them.
        self._named = set(folder.context.read().topics) if folder.was_killed else set[bytes]()

    @property
    def pending(self) -> bool:
        """Whether there is something to do; asked before Spark is started."""
        self._merge()
        return bool(self._work or self._lacking() or self._recordings())

    def take(self, engine: Engine) -> None:
        """Take all steps. Raises OSError when the tables cannot be written."""
        recorded = [chunk.only(chunk.cause) for chunk in self._work if not chunk.foreign]
        if recorded:
            engine.look(recorded)
        self._merge()
        being_read = {segment.key for chunk in self._work for segment in chunk.segments}
        self._write(engine, self._work + self._lacking(being_read))
        if any(chunk.foreign for chunk in self._work):  # what captures of other tools say is known only now
            self._merge()
            self._write(engine, self._lacking())
        self.refine(engine)

    def refine(self, engine: Engine) -> None:
        """Make the tables of the recordings whose files are new or have changed."""
        self._folder.forget_recordings()
        for made in engine.recordings(self._recordings()):
            self._folder.made.add(made.recording)
            self._outcome.recordings += 1
            self._outcome.damaged += made.notes
        self._folder.commit()

    def _merge(self) -> None:
        self._named |= self._folder.context.merge(self._captures, self._cluster)

    def _write(self, engine: Engine, work: Work) -> None:
        if not work:
            return
        causes = {key for chunk in work for key in chunk.cause}
        for number, written in enumerate(engine.write(work), 1):
            self._folder.learn(written)
            if number % _COMMIT == 0:
                self._folder.commit()
            for row in written.rows:
                if row["status"] == "ok" or key_of(row) not in causes:
                    continue
                self._outcome.damaged.append(f"{row['path']}: {row['status']}: {row['detail'] or 'it ends early'}")
        self._folder.commit()

    def _lacking(self, but: Collection[str] = ()) -> Work:
        """What has to be read again because more is known now, `but` these files."""
        done, late = self._folder.done(), self._folder.lacking(self._segments, self._named).difference(but)
        return todo([each for each in self._segments if each.key in done], done, late).work if late else []

    def _recordings(self) -> list[Recording]:
        return self._folder.recordings({segment.key: segment for segment in self._segments})


class InProcess:
    """The steps in this process, without Spark."""

    def __init__(self, folder: Folder, progress: Progress) -> None:
        self._folder, self._progress = folder, progress

    def name_files(self, files: Sequence[Listed]) -> list[Name | str]:
        return [name_file(file) for file in self._shown("naming", files, "file")]

    def look(self, work: Work) -> None:
        for chunk in self._shown("looking for names", work, "chunk"):
            self._folder.look(chunk)

    def write(self, work: Work) -> Iterator[Written]:
        for chunk in self._shown("reading", work, "chunk"):
            yield self._folder.write(chunk)

    def recordings(self, found: Sequence[Recording]) -> Iterator[MadeTables]:
        for recording in self._shown("connections, versions and findings", found, "recording"):
            yield MadeTables(recording, self._folder.write_recording(recording))

    def _shown(self, what: str, items: Sequence[Any], unit: str) -> Iterator[Any]:
        """The items, with a line of progress about once a second."""
        last = time.monotonic()
        for number, item in enumerate(items):
            if number and time.monotonic() - last >= 1.0:
                last = time.monotonic()
                self._progress(f"{what}: {number} of {count(len(items), unit)}")
            yield item


class OnSpark:
    """The steps as Spark jobs. For a cluster, captures and folder are on storage that all its nodes share."""

    def __init__(self, spark: SparkSession, folder: Folder, progress: Progress) -> None:
        from . import pipeline_source

        self._spark, self._folder, self._progress, self._source = spark, folder, progress, pipeline_source
        spark.dataSource.register(pipeline_source.PipelineSource)

    def name_files(self, files: Sequence[Listed]) -> list[Name | str]:
        plan = [[[text(file.path), *file[1:]] for file in some] for some in _groups(files)]
        found = list(self._job(self._source.Step.NAME, plan, "naming captures", "task"))
        return [each["why"] or Name(*each["name"]) for each in found]

    def look(self, work: Work) -> None:
        for _ in self._job(self._source.Step.LOOK, list(map(self._source.packed_chunk, work)), "looking for names", "chunk"):
            pass

    def write(self, work: Work) -> Iterator[Written]:
        for written in self._job(self._source.Step.WRITE, list(map(self._source.packed_chunk, work)), "reading", "chunk"):
            yield Written(**written)

    def recordings(self, found: Sequence[Recording]) -> Iterator[MadeTables]:
        by_id = {each.capture_id: each for each in found}
        plan = [list(each) for each in found]
        for made in self._job(self._source.Step.RECORDING, plan, "connections, versions and findings", "recording"):
            yield MadeTables(by_id[made["capture_id"]], made["notes"])

    def _job(self, step: Enum, plan: list[Any], what: str, unit: str) -> Iterator[dict[str, Any]]:
        """A task per chunk or recording."""
        for start in range(0, len(plan), _JOB):
            frame = self._spark.read.format(self._source.NAME).options(
                output=text(self._folder.path), tables=json.dumps(self._folder.names), step=step.value,
                plan=self._source.packed(plan[start : start + _JOB]),
            ).load()  # fmt: skip
            with report_progress(self._spark, lambda done, of: self._progress(f"{what}: {done} of {count(of, unit)}")):
                rows = frame.collect()
            for row in rows:
                yield json.loads(row["result"])


def _groups(files: Sequence[Listed]) -> Iterator[list[Listed]]:
    """Adjacent files for a task each."""
    group: list[Listed] = []
    for file in files:
        if group and sum(each.size for each in group) + file.size > CHUNK_BYTES:
            yield group
            group = []
        group.append(file)
    if group:
        yield group


def count(number: int, what: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
