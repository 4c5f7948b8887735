"""The pipeline's own data source: a task reads one file and writes its rows of all tables itself (`tables.folder`).

Only a line per file comes back through Spark, so no row of a table goes through the JVM. A task that Spark runs twice, at once
or after a failure, writes the same files to the same places.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from .. import tables
from ..reading.storage import Remote, place, text
from ..tables.folder import Done, Folder, todo
from .source import ReadMaxFiles, SupportsTriggerAvailableNow, ddl, most_files, readable_segments

NAME = "barnabas-pipeline"
_TABLE = "segments"
_BATCH = "batch"


class PipelineSource(DataSource):  # type: ignore[misc]
    """Options: `path` (captures), `output` (the folder), `tables` (JSON), `plan` (of a batch: what to do, as `packed`)."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return ddl(_TABLE, tables.chosen(_TABLE))

    def _folder(self) -> Folder:
        return Folder(self.options["output"], json.loads(self.options["tables"]))

    def reader(self, schema: StructType) -> _Reader:
        return _Reader(self._folder(), self.options["plan"])

    def streamReader(self, schema: StructType) -> _Following:
        return _Following(self._folder(), self.options["path"], most_files(self.options))


class _Work(InputPartition):  # type: ignore[misc]
    def __init__(self, segment: tables.Segment, before: Done | None) -> None:
        super().__init__(segment.key)
        self.segment, self.before = segment, before


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, folder: Folder, plan: str) -> None:
        self._folder, self._plan = folder, plan

    def partitions(self) -> list[InputPartition]:
        return [_Work(*each) for each in unpacked(self._plan)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield _line(self._folder.write(partition.segment, partition.before))


class _Following(DataSourceStreamReader):  # type: ignore[misc]
    """The stream. What is done is in the folder, so the checkpoint only counts batches, and stays small for ever: a batch is
    what is to be done when it begins, and one that is done again after a kill finds what was left of it."""

    def __init__(self, folder: Folder, path: str, most: int) -> None:
        self._folder, self._path, self._most = folder, path, most
        self._known: dict[tuple[str, int, int], tuple[str, int, bool]] = {}
        self._tried: dict[str, tuple[Any, ...]] = {}
        self._only: set[str] | None = None

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
        self._tried |= {segment.key: _state(segment) for segment, _ in work}
        return [_Work(*each) for each in work]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield _line(self._folder.write(partition.segment, partition.before))

    def _work(self) -> list[tuple[tables.Segment, Done | None]]:
        """The files to read, without those just read and unchanged."""
        found, self._known = readable_segments([self._path], self._known)
        work = todo(found.segments, self._folder.done()).work
        return [
            each
            for each in work
            if self._tried.get(each[0].key) != _state(each[0]) and (self._only is None or each[0].key in self._only)
        ]


if SupportsTriggerAvailableNow is not None:
    SupportsTriggerAvailableNow.register(_Following)


def _state(segment: tables.Segment) -> tuple[Any, ...]:
    return segment.size, segment.modified_ns, segment.follows


def _line(row: dict[str, Any]) -> Any:
    from ..tables.columns import pyarrow

    return pyarrow().RecordBatch.from_pylist([row], schema=tables.schema(_TABLE))


def packed(work: list[tuple[tables.Segment, Done | None]]) -> str:
    """The work as text: the tasks are made where Spark's driver is, which may be another machine."""
    plain = [[_plain(segment), None if before is None else list(before)] for segment, before in work]
    return b64encode(zlib.compress(json.dumps(plain).encode("utf-8", "surrogatepass"))).decode()


def unpacked(plan: str) -> Iterator[tuple[tables.Segment, Done | None]]:
    """The inverse of `packed`."""
    for segment, before in json.loads(zlib.decompress(b64decode(plan)).decode("utf-8", "surrogatepass")):
        found = tables.Segment(*segment)
        follows = None if found.follows is None else place(found.follows)
        yield found._replace(path=place(found.path), follows=follows), None if before is None else Done(*before)


def _plain(segment: tables.Segment) -> list[Any]:
    return [text(each) if isinstance(each, (Path, Remote)) else each for each in segment]
