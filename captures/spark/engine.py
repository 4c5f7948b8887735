"""Spark SQL over a folder of tables: the same reports as `reports.duck`, on a cluster."""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING, Any

from ..reading.storage import Place, text
from ..reports.sources import TableSource, table_sources
from . import PipelineError
from .source import ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPECIAL = re.compile(r"([][{}*?,\\])")


class Spark:
    """An engine over one or more folders of tables. Raises FolderError when there are none, PipelineError when Spark cannot read where they
    are."""

    counted_percentile = "percentile"
    """Spark's own counts equal values, and merges the counts of partitions."""

    def __init__(self, spark: SparkSession, *paths: Place) -> None:
        self._spark = spark
        sources = table_sources(paths)
        self.tables = tuple(sources)
        for name, source in sources.items():
            self._view(name, source)

    def _view(self, name: str, source: TableSource) -> None:
        columns = [column.name for column in source.table.chosen()]
        reader = self._spark.read.schema(ddl(name, columns))
        try:  # one folder after the other: Spark refuses several with partitions
            frames = [reader.parquet(*map(_for_spark, places)).select(columns) for places in source.places if places]
            reduce(lambda one, other: one.union(other), frames or [self._spark.createDataFrame([], ddl(name, columns))]).createOrReplaceTempView(name)
        except Exception as error:  # an AnalysisException or a Py4JJavaError, by the version of Spark
            if "ClassNotFoundException" not in str(error) and "UnsupportedFileSystemException" not in str(error):
                raise
            raise PipelineError(
                f"{source.places[0][0]}: Spark itself has no file system for that: add Hadoop's (for s3: hadoop-aws) to Spark, or use "
                "--engine duckdb"
            ) from error

    def query(self, sql: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in self._spark.sql(sql).collect()]


def _for_spark(place: Place) -> str:
    """A folder or file by the name that Spark has for it. Paths are patterns for Spark."""
    where = text(place).partition("?")[0]
    if where.startswith("s3://"):
        return "s3a" + where[2:]  # Hadoop's name for it
    return _SPECIAL.sub(r"\\\1", where)
