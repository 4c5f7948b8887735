"""The pipeline's own data source: a task reads one file, or makes the tables of one recording, and writes them itself
(`tables.output.folder`).

Only a line per file comes back through Spark, so no row of a table goes through the JVM. A task that Spark runs twice, at once
or after a failure, writes the same files to the same places.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from .. import tables
from ..tables.output.folder import Folder
from ..tables.output.manifest import Done, todo
from ..tables.output.recordings import Recording
from ..tables.segments import Segment
from .source import ReadMaxFiles, SupportsTriggerAvailableNow, most_files, readable_segments
from .steps import Step, Work, lacking, unpacked, unpacked_file, unpacked_recording

NAME = "barnabas-pipeline"
_BATCH = "batch"


class PipelineSource(DataSource):  # type: ignore[misc]
    """Options: `path` (captures), `output` (the folder), `tables` (JSON); of a batch `step` and `plan` (`steps.packed`); of a
    stream `cluster`. A row per file or recording: its key, and what was done, as JSON."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "key string, result string"

    def _folder(self) -> Folder:
        return Folder(self.options["output"], json.loads(self.options["tables"]))

    def reader(self, schema: StructType) -> _Reader:
        return _Reader(self._folder(), Step(self.options["step"]), self.options["plan"])

    def streamReader(self, schema: StructType) -> _Following:
        return _Following(self._folder(), self.options["path"], most_files(self.options), self.options.get("cluster", ""))


class _File(InputPartition):  # type: ignore[misc]
    def __init__(self, segment: Segment, before: Done | None) -> None:
        super().__init__(segment.key)
        self.segment, self.before = segment, before


class _Recording(InputPartition):  # type: ignore[misc]
    def __init__(self, recording: Recording) -> None:
        super().__init__(recording.capture_id)
        self.recording = recording


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, folder: Folder, step: Step, plan: str) -> None:
        self._folder, self._step, self._plan = folder, step, plan

    def partitions(self) -> list[InputPartition]:
        if self._step is Step.RECORDING:
            return [_Recording(unpacked_recording(each)) for each in unpacked(self._plan)]
        return [_File(*unpacked_file(each)) for each in unpacked(self._plan)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if self._step is Step.RECORDING:
            recording = partition.recording
            notes = self._folder.write_recording(recording)
            yield _line(recording.capture_id, {"capture_id": recording.capture_id, "notes": notes})
        elif self._step is Step.WRITE:
            yield _line(partition.segment.key, self._folder.write(partition.segment, partition.before))
        else:
            self._folder.look(partition.segment)


class _Following(DataSourceStreamReader):  # type: ignore[misc]
    """The stream. What is done is in the folder, so the checkpoint only counts batches, and stays small for ever: a batch is
    what is to be done when it begins, and one that is done again after a kill finds what was left of it."""

    def __init__(self, folder: Folder, path: str, most: int, cluster: str) -> None:
        self._folder, self._path, self._most, self._cluster = folder, path, most, cluster
        self._known: dict[tuple[str, int, int], tuple[str, int, bool]] = {}
        self._tried: dict[str, tuple[Any, ...]] = {}
        self._late: set[str] | None = None
        """Files to read again, because more is known now."""
        self._only: set[str] | None = None
        self._segments: list[tables.Segment] = []

    def initialOffset(self) -> dict[str, int]:
        return {_BATCH: 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        count = (start or {}).get(_BATCH, 0)
        return {_BATCH: count + 1} if self._work() else start or {_BATCH: 0}

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._only = {segment.key for segment, _ in self._work()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        work = self._work()[: self._most]
        self._look(work)
        self._late = (self._late or set()).difference(segment.key for segment, _ in work)
        self._tried |= {segment.key: _state(segment) for segment, _ in work}
        return [_File(*each) for each in work]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield _line(partition.segment.key, self._folder.write(partition.segment, partition.before))

    def _look(self, work: Work) -> None:
        """Learn what these files say before their rows are written."""
        for segment, _ in work:
            if not segment.foreign:
                self._folder.look(segment)
        captures = [segment.capture_id for segment, _ in work]
        named = self._folder.context.merge(captures, self._cluster)
        self._late = (self._late or set()) | {segment.key for segment, _ in lacking(self._folder, self._segments, named)}

    def _work(self) -> Work:
        """The files to read, without those just read and unchanged."""
        found, self._known = readable_segments([self._path], self._known)
        self._segments = found.segments
        done = self._folder.done()
        work = todo(found.segments, done).work
        if self._late is None:  # a stream that goes on
            known = set(self._folder.context.read().topics)
            self._late = {segment.key for segment, _ in lacking(self._folder, found.segments, known)}
        new = {segment.key for segment, _ in work}
        late = [(s, done[s.key]) for s in found.segments if s.key in self._late and s.key in done and s.key not in new]
        tried = (each for each in work if self._tried.get(each[0].key) != _state(each[0]))
        return [each for each in (*tried, *late) if self._only is None or each[0].key in self._only]


if SupportsTriggerAvailableNow is not None:
    SupportsTriggerAvailableNow.register(_Following)


def _state(segment: tables.Segment) -> tuple[Any, ...]:
    return segment.size, segment.modified_ns, segment.follows


def _line(key: str, result: dict[str, Any]) -> Any:
    from ..tables.columns import pyarrow

    return pyarrow().RecordBatch.from_pydict({"key": [key], "result": [json.dumps(result)]})
