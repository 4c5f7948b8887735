"""Spark SQL over a folder of tables: the same reports as `reports.duck`, on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..reading.storage import Place, text
from ..tables.output.folder import Folder
from . import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Spark:
    """An engine. Raises FolderError when there are no tables, PipelineError when Spark cannot read where they are."""

    def __init__(self, spark: SparkSession, path: Place) -> None:
        folder = Folder(path)
        folder.check()
        self.tables = folder.held()
        self._spark = spark
        for name in self.tables:
            self._view(path / name, name)

    def _view(self, place: Place, name: str) -> None:
        where = text(place).partition("?")[0]
        if where.startswith("s3://"):
            where = "s3a" + where[2:]  # Hadoop's name for it
        try:
            self._spark.read.parquet(where).createOrReplaceTempView(name)
        except Exception as error:  # an AnalysisException or a Py4JJavaError, by the version of Spark
            if "ClassNotFoundException" not in str(error) and "UnsupportedFileSystemException" not in str(error):
                raise
            raise PipelineError(
                f"{place}: Spark itself has no file system for that: add Hadoop's (for s3: hadoop-aws) to Spark, or use "
                "--engine duckdb"
            ) from error

    def query(self, sql: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in self._spark.sql(sql).collect()]
