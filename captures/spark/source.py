"""The Spark data source `barnabas` (batch): recordings as data frames.

    spark.dataSource.register(BarnabasSource)
    spark.read.format("barnabas").option("table", "exchanges").option("columns", "api,latency_ns").load(path)

Options: `path` (a folder or a segment), `table` (default `exchanges`), `columns` (separated by commas, default all;
Spark does not prune the columns of a Python data source by itself). One partition per closed segment. Workers open
the files themselves and hand Arrow batches over: no byte of a file goes through the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from .. import tables

_SQL_TYPES = {"string": "string", "int64": "bigint", "int32": "int", "int16": "smallint", "bool": "boolean", "binary": "binary"}


class SegmentPartition(InputPartition):  # type: ignore[misc]
    """One segment, to be read by one task."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class BarnabasSource(DataSource):  # type: ignore[misc]
    """The data source; see the module's text for its options."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def _table(self) -> tuple[str, list[str]]:
        table = self.options.get("table", "exchanges")
        columns = [name.strip() for name in self.options.get("columns", "").split(",")]
        return table, tables.chosen(table, [name for name in columns if name])

    def schema(self) -> str:
        """The columns as Spark's DDL. Raises ValueError for an unknown table or column."""
        table, columns = self._table()
        return ", ".join(f"{name} {_SQL_TYPES[tables.TABLES[table][name]]}" for name in columns)

    def reader(self, schema: StructType) -> SegmentReader:
        path = self.options.get("path")
        if not path:
            raise ValueError('the data source barnabas needs a path: .load("recordings")')
        return SegmentReader(path.removeprefix("file://"), *self._table())


class SegmentReader(DataSourceReader):  # type: ignore[misc]
    """Plans one partition per closed segment, and reads one."""

    def __init__(self, path: str, table: str, columns: list[str]) -> None:
        self._path, self._table, self._columns = path, table, columns

    def partitions(self) -> list[InputPartition]:
        """Raises ValueError when there is nothing to read."""
        found = tables.find_segments(Path(self._path).absolute())
        if not found.segments:
            raise ValueError(f"{self._path}: no closed segment of a recording is in it")
        return [SegmentPartition(str(segment.path)) for segment in found.segments]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return tables.batches(self._table, partition.value, self._columns)
