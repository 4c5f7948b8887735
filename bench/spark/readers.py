"""The ways of rows into Spark, and of tables onto the disk, that `goals.py` compares; and the same without Spark."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.captures import tables
from barnabas.captures.spark.source import BarnabasSource, SegmentPartition, SegmentReader, ddl
from barnabas.captures.spark.steps import OnSpark
from barnabas.captures.spark.stream_offsets import Part
from barnabas.captures.tables.output.folder import Folder
from barnabas.captures.tables.output.plan import todo
from pyspark import cloudpickle
from pyspark.sql import functions as f
from tables import HEADERS

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not have this folder
COLUMNS = ["api", "client_id", "time_ns", "connection", "correlation_id", "direction"]


class TupleReader(SegmentReader):
    """The same rows, one by one."""

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class TupleSource(BarnabasSource):
    @classmethod
    def name(cls) -> str:
        return "tuples"

    def reader(self, schema: Any) -> TupleReader:
        return TupleReader(self._paths(), *self._asked())


def by_key(frame: Any) -> int:
    """Rows counted by API and client id, summed."""
    return sum(row["count"] for row in frame.groupBy("api", "client_id").count().collect())


def alone(segments: list[tables.Segment]) -> int:
    """The same count without Spark, in this process."""
    import pyarrow

    options = tables.Options(tables.described("frames"), tables.described("frames").chosen(COLUMNS))
    total = 0
    for segment in segments:
        for _, batch in tables.SegmentTables(segment.path, [options], follows=segment.follows):
            found = pyarrow.Table.from_batches([batch]).group_by(["api", "client_id"]).aggregate([([], "count_all")])
            total += sum(found["count_all"].to_pylist())
    return total


def own_rows(segments: list[tables.Segment], names: tuple[str, ...]) -> int:
    """Rows of some tables, read in this process."""
    options = [tables.Options(tables.described(name), tables.described(name).chosen()) for name in names]
    return sum(
        batch.num_rows for each in segments for _, batch in tables.SegmentTables(each.path, options, follows=each.follows)
    )


def rdd_rows(segment: Any) -> Iterator[tuple[Any, ...]]:
    reader = TupleReader([], "frames", COLUMNS, "")
    return reader.read(SegmentPartition(Part(segment)))


class Ways:
    """The ways into Spark, over the same segments."""

    def __init__(self, spark: Any, path: Path, segments: list[tables.Segment]) -> None:
        self.spark, self.path, self.segments = spark, path, segments

    def _read(self, name: str, table: str, columns: list[str]) -> Any:
        return self.spark.read.format(name).options(table=table, columns=",".join(columns)).load(str(self.path))

    def arrow(self) -> int:
        return by_key(self._read("barnabas", "frames", COLUMNS))

    def tuples(self) -> int:
        return by_key(self._read("tuples", "frames", COLUMNS))

    def rdd(self) -> int:
        rows = self.spark.sparkContext.parallelize(self.segments, len(self.segments)).flatMap(rdd_rows)
        return by_key(self.spark.createDataFrame(rows, ddl("frames", COLUMNS)))

    def written(self, names: tuple[str, ...] = HEADERS) -> int:
        """The pipeline's Parquet, by Spark's tasks."""
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as output:
            folder = Folder(Path(output, "tables"), names)
            folder.prepare()
            written = OnSpark(self.spark, folder, lambda text: None).write(todo(self.segments, {}).work)
            return sum(row["frames"] for each in written for row in each.rows)

    def paired_by_reader(self) -> int:
        frame = self._read("barnabas", "exchanges", ["connection", "correlation_id", "latency_ns"])
        return int(frame.agg(f.count("latency_ns"), f.sum("latency_ns")).collect()[0][0])

    def paired_by_shuffle(self) -> int:
        frame = self._read("barnabas", "frames", ["capture_id", "connection", "correlation_id", "time_ns", "direction"])
        ends = frame.groupBy("capture_id", "connection", "correlation_id").agg(
            f.min("time_ns").alias("asked"), f.max("time_ns").alias("answered"), f.count("*").alias("frames")
        )
        whole = ends.where("frames = 2").agg(f.count("*"), f.sum(ends.answered - ends.asked)).collect()
        return int(whole[0][0])


def written_alone(segments: list[tables.Segment]) -> int:
    """The same Parquet, by this process."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as output:
        folder = Folder(Path(output, "tables"), HEADERS)
        folder.prepare()
        return sum(row["frames"] for chunk in todo(segments, {}).work for row in folder.write(chunk).rows)
