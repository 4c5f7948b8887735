"""The Spark data source `barnabas`, batch and streaming: captures as data frames.

    spark.dataSource.register(BarnabasSource)
    spark.read.format("barnabas").option("table", "exchanges").option("columns", "api,latency_ns").load(path)
    spark.readStream.format("barnabas").option("table", "errors").load(path)

Options: `path` (a folder or a file, a pattern of them such as ``captures/*/``, or a URI as `captures.reading.storage` reads it;
several as a list for `load`), `table` (default `exchanges`), `columns` (separated by commas, default all; Spark does not prune the
columns of a Python data source by itself), `filter` (docs/filter.md), `maxFilesPerTrigger` of a stream. Others are refused. One
partition per file. Workers open the files themselves and hand Arrow batches over: no byte of a file goes through the JVM.

The filter is decided in the reader, not as a Spark column: it may ask for what no column holds (topics, fields of bodies,
what is known of the connection), the index answers most of it by NumPy before Arrow and the JVM see a row, and a segment whose
index shows that nothing passes is not opened. What Spark pushes down becomes the same kind of filter (`pushdown`).
"""

from __future__ import annotations

import glob
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ...decoder.filter import Filter, FilterError, compile
from .. import tables
from ..reading.storage import Place, Remote, place
from ..tables.columns import TIMESTAMP
from ..tables.rows import check_filter
from ..tables.segments import fetch_local
from . import pushdown, stream_offsets

try:
    from pyspark.sql.streaming.datasource import ReadMaxFiles as ReadMaxFiles
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
except ImportError:  # before pyspark 4.2: a stream takes all there is
    ReadMaxFiles = SupportsTriggerAvailableNow = None

_SQL_TYPES = {
    "string": "string",
    "int64": "bigint",
    "int32": "int",
    "int16": "smallint",
    "bool": "boolean",
    "binary": "binary",
    TIMESTAMP: "timestamp",
}
_OPTIONS = {name.lower(): name for name in ("path", "paths", "table", "columns", "filter", "maxFilesPerTrigger")}
"""By their small letters: Spark keeps options so."""
_OF_TABLES = ("collation", "comment", "external", "is_managed_location", "location", "owner", "provider")
"""Properties that Spark adds for tables of CREATE TABLE (its class TableCatalog), as it does keys with dots."""
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
_SETTLED_SECONDS = 60.0
"""A foreign capture that was written to since then may still grow: a stream, which reads it once, waits."""


class SegmentPartition(InputPartition):  # type: ignore[misc]
    """One file, to be read by one task."""

    def __init__(self, segment: tables.Segment) -> None:
        super().__init__(str(segment.path))
        self.segment = segment


class BarnabasSource(DataSource):  # type: ignore[misc]
    """The data source; see the module's text for its options."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def _asked(self) -> tuple[str, list[str], str]:
        unknown = sorted(name for name in self.options if name.lower() not in _OPTIONS)
        unknown = [name for name in unknown if name not in _OF_TABLES and "." not in name]
        if unknown:
            raise ValueError(f"the data source barnabas has no option {unknown[0]!r}; it has {', '.join(_OPTIONS.values())}")
        table = self.options.get("table", "exchanges")
        columns = [name.strip() for name in self.options.get("columns", "").split(",")]
        text = self.options.get("filter", "")
        if text:
            wanted(table, text)
        return table, tables.chosen(table, [name for name in columns if name]), text

    def _paths(self) -> tuple[str, ...]:
        path = self.options.get("path")
        given = json.loads(self.options.get("paths", "[]")) or ([path] if path else [])
        if not given:
            raise ValueError(
                'the data source barnabas needs a path: .load("recordings"); in SQL use CREATE TEMPORARY VIEW, because '
                "Spark does not pass the options of CREATE TABLE to the reader of the table"
            )
        return tuple(chain.from_iterable(map(_matching, given)))

    def schema(self) -> str:
        """The columns as Spark's DDL. Raises ValueError for an unknown table or column."""
        table, columns, _ = self._asked()
        return ddl(table, columns)

    def reader(self, schema: StructType) -> SegmentReader:
        # Spark refuses readers that take filters where `spark.sql.python.filterPushdown.enabled` is off, which is its
        # default; where it is on, this is called in the process that pushes them.
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        pushing = _PUSHING in sys.modules or (main is not None and main.name == _PUSHING)
        return (PushedReader if pushing else SegmentReader)(self._paths(), *self._asked())

    def streamReader(self, schema: StructType) -> SegmentStream:
        table, columns, text = self._asked()
        return SegmentStream(self._paths(), table, columns, text, most_files(self.options))


def most_files(options: Mapping[str, str]) -> int:
    """The option `maxFilesPerTrigger`. Raises ValueError."""
    given = options.get("maxFilesPerTrigger", "64")
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"maxFilesPerTrigger must be a number of files, at least 1, not {given!r}")
    return int(given)


def _matching(path: str) -> list[str]:
    """The files and folders of a pattern; the path itself if it is none. Raises ValueError where nothing matches."""
    if "://" in path or not glob.has_magic(path) or os.path.exists(path):
        return [path]
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise ValueError(f"no file or folder matches {path}")
    return found


def ddl(table: str, columns: list[str]) -> str:
    """Columns of a table as Spark's DDL."""
    return ", ".join(f"{name} {_SQL_TYPES[tables.TABLES[table][name]]}" for name in columns)


def wanted(table: str, text: str) -> Filter | None:
    """The option `filter`. Raises ValueError that points at what is wrong."""
    if not text:
        return None
    check_filter(table, text)
    try:
        return compile(text)
    except FilterError as error:
        raise ValueError(f"filter: {error}") from error


class SegmentReader(DataSourceReader):  # type: ignore[misc]
    """Plans one partition per file, and reads one."""

    def __init__(self, paths: Sequence[str], table: str, columns: list[str], text: str) -> None:
        self._paths, self._table, self._columns, self._filter = paths, table, columns, text

    def partitions(self) -> list[InputPartition]:
        """Raises ValueError when there is nothing to read."""
        found = tables.find_segments(_places(self._paths))
        if not found.segments:
            raise ValueError(f"{', '.join(self._paths)}: no capture there, or only a segment that is still being written")
        return [SegmentPartition(segment) for segment in found.segments]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(partition.segment, self._table, self._columns, self._filter)


class PushedReader(SegmentReader):
    """A reader that takes filters."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Remember what the index can answer. Spark tests every row again: an index knows an exchange, not each row."""
        parts = [self._filter, *(pushdown.text_of(self._table, each) for each in filters)]
        self._filter = " and ".join(f"({part})" for part in parts if part)
        return filters


def _places(paths: Iterable[str]) -> list[Place]:
    found = map(place, paths)
    return [each if isinstance(each, Remote) else each.absolute() for each in found]


def read(segment: tables.Segment, table: str, columns: list[str], text: str) -> Iterator[Any]:
    """The Arrow batches of one file."""
    options = tables.Options(tables.described(table), tables.described(table).chosen(columns))
    name = segment.capture_id if segment.foreign else ""
    test = wanted(table, text)
    with fetch_local(segment.path, segment.follows, test) as found:
        if found is None:
            return
        path, follows = found
        for _, batch in tables.SegmentTables(path, [options], test, follows=follows, capture_id=name):
            yield _where_it_is(batch, segment) if table == "segments" and path != segment.path else batch


def _where_it_is(batch: Any, segment: tables.Segment) -> Any:
    """A row of `segments` about the file in the store, not about its copy."""
    from ..tables.columns import pyarrow

    identity = {"path": str(segment.path), "modified_ns": segment.modified_ns}
    rows = [row | {name: identity[name] for name in identity if name in row} for row in batch.to_pylist()]
    return pyarrow().RecordBatch.from_pylist(rows, schema=batch.schema)


_Known = dict[tuple[str, int, int], tuple[str, int, bool]]


def readable_segments(paths: Sequence[str], known: _Known) -> tuple[tables.Found, _Known]:
    """The segments that a stream may read, and those that need not be opened the next time."""
    found = tables.find_segments(_places(paths), known)
    known = {(str(s.path), s.size, s.modified_ns): (s.capture_id, s.number, s.foreign) for s in found.segments}
    before = time.time_ns() - int(_SETTLED_SECONDS * 1e9)
    return found._replace(segments=[s for s in found.segments if not s.foreign or s.modified_ns < before]), known


class _Stream(DataSourceStreamReader):  # type: ignore[misc]
    """Follows a folder: every closed segment once, in the order of its recording; foreign captures once they stop growing."""

    def __init__(self, paths: Sequence[str], most: int) -> None:
        self._paths, self._most = paths, most
        self._known: _Known = {}
        self._target: dict[str, int] | None = None

    def _found(self) -> tables.Found:
        found, self._known = readable_segments(self._paths, self._known)
        return found

    def initialOffset(self) -> dict[str, int]:
        return {}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        most = getattr(limit, "max_files", None)
        found = self._found()
        if self._target is not None:
            target = self._target
            found = found._replace(segments=[s for s in found.segments if s.number < target.get(s.capture_id, 0)])
        return stream_offsets.latest(found.segments, found.writing, start or {}, most)

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        found = self._found()
        self._target = stream_offsets.latest(found.segments, found.writing, {}, None)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [SegmentPartition(segment) for segment in stream_offsets.between(self._all(), start, end)]

    def _all(self) -> list[tables.Segment]:
        # A batch that is done again has what it had: a foreign capture was at rest then.
        return tables.find_segments(_places(self._paths), self._known).segments


if SupportsTriggerAvailableNow is not None:
    SupportsTriggerAvailableNow.register(_Stream)


class SegmentStream(_Stream):
    """The stream of one table."""

    def __init__(self, paths: Sequence[str], table: str, columns: list[str], text: str, most: int) -> None:
        super().__init__(paths, most)
        self._table, self._columns, self._filter = table, columns, text

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(partition.segment, self._table, self._columns, self._filter)
