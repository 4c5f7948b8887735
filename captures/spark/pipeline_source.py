"""The pipeline's own data source: a task reads one chunk, or makes the tables of one recording, and writes them itself
(`tables.output.folder`).

Only a line per file comes back through Spark, so no row of a table goes through the JVM. A task that Spark runs twice, at once
or after a failure, writes the same files to the same places.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from .. import tables
from ..reading.storage import Listed, Remote, place, text
from ..tables.output.folder import Folder
from ..tables.output.plan import Chunk, Work, todo
from ..tables.output.recordings import Recording, RecordingFile
from ..tables.segments import Name, Segment, find_segments, name_file, name_none
from .source import ReadMaxFiles, SupportsTriggerAvailableNow, most_files

NAME = "barnabas-pipeline"
_BATCH = "batch"


class PipelineSource(DataSource):  # type: ignore[misc]
    """Options: `path` (captures), `output` (the folder), `tables` (JSON); of a batch `step` and `plan` (`steps.packed`); of a
    stream `cluster`. A row per chunk or recording: its key, and what was done, as JSON."""

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


class _Chunk(InputPartition):  # type: ignore[misc]
    def __init__(self, chunk: Chunk) -> None:
        super().__init__(chunk.key)
        self.chunk = chunk


class _Recording(InputPartition):  # type: ignore[misc]
    def __init__(self, recording: Recording) -> None:
        super().__init__(recording.capture_id)
        self.recording = recording


class _Files(InputPartition):  # type: ignore[misc]
    def __init__(self, files: list[Listed]) -> None:
        super().__init__(text(files[0].path))
        self.files = files


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, folder: Folder, step: Step, plan: str) -> None:
        self._folder, self._step, self._plan = folder, step, plan

    def partitions(self) -> list[InputPartition]:
        if self._step is Step.NAME:
            return [_Files([Listed(place(path), *rest) for path, *rest in each]) for each in unpacked(self._plan)]
        if self._step is Step.RECORDING:
            return [_Recording(unpacked_recording(each)) for each in unpacked(self._plan)]
        return [_Chunk(unpacked_chunk(each)) for each in unpacked(self._plan)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if self._step is Step.NAME:
            for file in partition.files:
                name = name_file(file)
                yield _line(text(file.path), {"name": name, "why": ""} if isinstance(name, Name) else {"name": None, "why": name})
            return
        if self._step is Step.RECORDING:
            recording = partition.recording
            notes = self._folder.write_recording(recording)
            yield _line(recording.capture_id, {"capture_id": recording.capture_id, "notes": notes})
        elif self._step is Step.WRITE:
            yield _line(partition.chunk.key, self._folder.write(partition.chunk)._asdict())
        else:
            self._folder.look(partition.chunk)


class _Following(DataSourceStreamReader):  # type: ignore[misc]
    """The stream. What is done is in the folder, so the checkpoint only counts batches, and stays small for ever: a batch is
    what is to be done when it begins, and one that is done again after a kill finds what was left of it."""

    def __init__(self, folder: Folder, path: str, most: int, cluster: str) -> None:
        self._folder, self._path, self._most, self._cluster = folder, path, most, cluster
        self._known: dict[tuple[str, int, int], Name] = {}
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
        self._only = {key for chunk in self._work() for key in chunk.cause}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        work: Work = []
        files = 0
        for chunk in self._work():
            if work and files + len(chunk.cause) > self._most:
                break
            work.append(chunk)
            files += len(chunk.cause)
        self._look(work)
        taken = {segment.key: segment for chunk in work for segment in chunk.segments}
        self._late = (self._late or set()).difference(taken)
        self._tried |= {key: _state(segment) for key, segment in taken.items()}
        return [_Chunk(chunk) for chunk in work]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield _line(partition.chunk.key, self._folder.write(partition.chunk)._asdict())

    def _look(self, work: Work) -> None:
        """Learn what these files say before their rows are written."""
        for chunk in work:
            if not chunk.foreign:
                self._folder.look(chunk.only(chunk.cause))
        named = self._folder.context.merge([chunk.capture_id for chunk in work], self._cluster)
        self._late = (self._late or set()) | self._folder.lacking(self._segments, named)

    def _work(self) -> Work:
        """The chunks to read, without those whose files were just read, and are unchanged."""
        found = find_segments(self._path, self._known | self._folder.fingerprints.read(), name_none)
        self._known, self._segments = found.known, found.segments
        done = self._folder.done()
        if self._late is None:  # a stream that goes on
            self._late = self._folder.lacking(self._segments, set(self._folder.context.read().topics))
        states = {segment.key: _state(segment) for segment in self._segments}
        tried = {key for key, state in self._tried.items() if states.get(key) == state and key not in self._late}
        wanted = states.keys() - tried if self._only is None else self._only - tried
        return [chunk for chunk in todo(self._segments, done, self._late).work if chunk.cause & wanted]


if SupportsTriggerAvailableNow is not None:
    SupportsTriggerAvailableNow.register(_Following)


def _state(segment: tables.Segment) -> tuple[Any, ...]:
    return segment.size, segment.modified_ns, segment.follows


class Step(Enum):
    """What a task does with its files, chunk or recording."""

    NAME = "name"
    LOOK = "look"
    WRITE = "write"
    RECORDING = "recording"


def packed(plan: list[Any]) -> str:
    """What is to be done as text: the tasks are made where Spark's driver is, which may be another machine."""
    return b64encode(zlib.compress(json.dumps(plan).encode("utf-8", "surrogatepass"))).decode()


def unpacked(plan: str) -> list[Any]:
    """The inverse of `packed`."""
    return list(json.loads(zlib.decompress(b64decode(plan)).decode("utf-8", "surrogatepass")))


def packed_chunk(chunk: Chunk) -> list[Any]:
    """A chunk in JSON's types."""
    files = [[text(each) if isinstance(each, (Path, Remote)) else each for each in segment] for segment in chunk.segments]
    return [files, sorted(chunk.cause), chunk.before]


def unpacked_chunk(packed: list[Any]) -> Chunk:
    """The inverse of `packed_chunk`."""
    files = [Segment(*each) for each in packed[0]]
    files = [each._replace(path=place(each.path), follows=each.follows and place(each.follows)) for each in files]
    return Chunk(tuple(files), frozenset(packed[1]), tuple((date, name) for date, name in packed[2]))


def unpacked_recording(packed: list[Any]) -> Recording:
    """A recording out of its parts in JSON's types."""
    found = Recording(*packed)
    return found._replace(files=tuple(RecordingFile(*file) for file in found.files))


def _line(key: str, result: dict[str, Any]) -> Any:
    from ..tables.columns import pyarrow

    return pyarrow().RecordBatch.from_pydict({"key": [key], "result": [json.dumps(result)]})
