"""The Spark data source `barnabas`, batch and streaming: captures as data frames.

    spark.dataSource.register(BarnabasSource)
    spark.read.format("barnabas").option("table", "exchanges").option("columns", "api,latency_ns").load(path)
    spark.readStream.format("barnabas").option("table", "errors").load(path)

Options: `path` (a folder or a file, a pattern of them such as ``captures/*/``, or a URI as `captures.reading.storage` reads it;
several as a list for `load`), `table` (default `exchanges`), `columns` (separated by commas, default all; Spark does not prune the
columns of a Python data source by itself), `filter` (docs/filter.md), `json` (``string``, or ``variant`` for columns of JSON),
`maxFilesPerTrigger` of a stream. Others are refused. One partition per file. Workers open the files themselves and hand Arrow batches over: no byte of a file goes through the JVM.

The filter is decided in the reader, not as a Spark column: it may ask for what no column holds (topics, fields of bodies,
what is known of the connection), the index answers most of it by NumPy before Arrow and the JVM see a row, and a segment whose
index shows that nothing passes is not opened. What Spark pushes down becomes the same kind of filter (`pushdown`).
"""

from __future__ import annotations

import glob
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ...decoder.filter import Filter, FilterError, compile
from .. import tables
from ..reading.storage import Listed, Place, Remote, place, settled
from ..tables.columns import TIMESTAMP, Column, pyarrow
from ..tables.rows import OF_BODIES, OF_INDEX, check_filter
from ..tables.segments import Name, fetch_local, flushed, name_file
from . import pushdown, stream_offsets
from .stream_offsets import Offset, Part, Position, Reach

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
_OPTIONS = {name.lower(): name for name in ("path", "paths", "table", "columns", "filter", "json", "maxFilesPerTrigger")}
"""By their small letters: Spark keeps options so."""
_OF_TABLES = ("collation", "comment", "external", "is_managed_location", "location", "owner", "provider")
"""Properties that Spark adds for tables of CREATE TABLE (its class TableCatalog), as it does keys with dots."""
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


class SegmentPartition(InputPartition):  # type: ignore[misc]
    """One file, or some exchanges of a segment, to be read by one task."""

    def __init__(self, part: Part) -> None:
        super().__init__(str(part.segment.path))
        self.part = part


class BarnabasSource(DataSource):  # type: ignore[misc]
    """The data source; see the module's text for its options."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def _asked(self) -> tuple[str, list[str], str, bool]:
        unknown = sorted(name for name in self.options if name.lower() not in _OPTIONS)
        unknown = [name for name in unknown if name not in _OF_TABLES and "." not in name]
        if unknown:
            raise ValueError(f"the data source barnabas has no option {unknown[0]!r}; it has {', '.join(_OPTIONS.values())}")
        table = self.options.get("table", "exchanges")
        columns = [name.strip() for name in self.options.get("columns", "").split(",")]
        text = self.options.get("filter", "")
        if text:
            wanted(table, text)
        kind = self.options.get("json", "string")
        if kind not in ("string", "variant"):
            raise ValueError(f"the option json is string or variant, not {kind!r}")
        return table, tables.chosen(table, [name for name in columns if name]), text, kind == "variant"

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
        table, columns, _, variant = self._asked()
        return ddl(table, columns, variant)

    def reader(self, schema: StructType) -> SegmentReader:
        # Spark refuses readers that take filters where `spark.sql.python.filterPushdown.enabled` is off, which is its
        # default; where it is on, this is called in the process that pushes them.
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        pushing = _PUSHING in sys.modules or (main is not None and main.name == _PUSHING)
        return (PushedReader if pushing else SegmentReader)(self._paths(), *self._asked())

    def streamReader(self, schema: StructType) -> SegmentStream:
        return SegmentStream(self._paths(), *self._asked(), most_files(self.options))


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


def ddl(table: str, columns: list[str], variant: bool = False) -> str:
    """Columns of a table as Spark's DDL; `variant`: those of JSON as VARIANT."""
    described = tables.described(table).chosen(columns)
    return ", ".join(f"{each.name} {'variant' if variant and each.type == 'json' else _SQL_TYPES[each.arrow]}" for each in described)


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

    def __init__(self, paths: Sequence[str], table: str, columns: list[str], text: str, variant: bool = False) -> None:
        self._paths, self._table, self._columns, self._filter, self._variant = paths, table, columns, text, variant

    def partitions(self) -> list[InputPartition]:
        """Raises ValueError when there is nothing to read."""
        found = tables.find_segments(_places(self._paths))
        if not found.segments:
            raise ValueError(f"{', '.join(self._paths)}: no capture there, or only a segment that is still being written")
        return [SegmentPartition(Part(segment)) for segment in found.segments]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(partition.part, self._table, self._columns, self._filter, self._variant)


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


def read(part: Part, table: str, columns: list[str], text: str, variant: bool = False) -> Iterator[Any]:
    """The Arrow batches of one file, or of some of its exchanges; `variant`: with JSON as VARIANT."""
    segment = part.segment
    options = tables.Options(tables.described(table), tables.described(table).chosen(columns))
    name = segment.capture_id if segment.foreign else ""
    test = wanted(table, text)
    with fetch_local(segment.path, segment.follows, test) as local:
        if local is None:
            return
        path, follows = local
        some = slice(part.first, part.end)
        for _, batch in tables.SegmentTables(path, [options], test, part=some, follows=follows, capture_id=name):
            found = _where_it_is(batch, segment) if table == "segments" and path != segment.path else batch
            yield _with_variants(found, options.columns) if variant else found


def _with_variants(batch: Any, columns: Sequence[Column]) -> Any:
    """A batch with the columns of JSON as Spark takes VARIANT from Arrow: a marked struct of two binaries."""
    from pyspark.sql.types import VariantVal

    pa = pyarrow()
    kind = pa.struct([
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ])  # fmt: skip
    arrays = batch.columns
    for number, column in enumerate(columns):
        if column.type == "json":
            values = [None if text is None else VariantVal.parseJson(text) for text in arrays[number].to_pylist()]
            parts = [None if each is None else {"value": each.value, "metadata": each.metadata} for each in values]
            arrays[number] = pa.array(parts, kind)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _where_it_is(batch: Any, segment: tables.Segment) -> Any:
    """A row of `segments` about the file in the store, not about its copy."""
    identity = {"path": str(segment.path), "modified_ns": segment.modified_ns}
    rows = [row | {name: identity[name] for name in identity if name in row} for row in batch.to_pylist()]
    return pyarrow().RecordBatch.from_pylist(rows, schema=batch.schema)


def _name_settled(files: Sequence[Listed]) -> list[Name | str | None]:
    """Name captures of other tools that do not grow any more."""
    ready = set(settled(files))
    return [name_file(file) if file in ready else None for file in files]


class SegmentStream(DataSourceStreamReader):  # type: ignore[misc]
    """Follows a folder, each recording in its order: closed segments, and of a table of exchanges also those that the recorder has
    flushed into a segment that grows; foreign captures once they stop growing. Every row comes once."""

    def __init__(self, paths: Sequence[str], table: str, columns: list[str], text: str, variant: bool, most: int) -> None:
        self._paths, self._table, self._columns, self._filter = paths, table, columns, text
        self._variant, self._most = variant, most
        self._known: dict[tuple[str, int, int], Name] = {}
        self._target: dict[str, Position] | None = None

    def _there(self) -> list[Reach]:
        found = tables.find_segments(_places(self._paths), self._known, _name_settled)
        self._known = found.known
        grows = self._table in (*OF_INDEX, *OF_BODIES)
        growing = {name: Position(each.number, flushed(each) if grows else 0) for name, each in found.writing.items()}
        return stream_offsets.reaches(found.segments, growing)

    def initialOffset(self) -> Offset:
        return {}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        there = self._there()
        if self._target is not None:
            last = self._target
            there = [Reach(min(position, last[name]), name) for position, name in there if name in last]
        return stream_offsets.latest(there, start or {}, getattr(limit, "max_files", None))

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = stream_offsets.positions(stream_offsets.latest(self._there(), {}, None))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        # A batch that is done again has what it had: a foreign capture was at rest then.
        found = tables.find_segments(_places(self._paths), self._known, _name_settled)
        there = [*found.segments, *found.writing.values()]
        return [SegmentPartition(part) for part in stream_offsets.between(there, start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(partition.part, self._table, self._columns, self._filter, self._variant)


if SupportsTriggerAvailableNow is not None:
    SupportsTriggerAvailableNow.register(SegmentStream)
