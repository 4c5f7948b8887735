"""DuckDB over a folder of tables: reports on one machine, without Java."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ...errors import BarnabasError, install
from ..reading.storage import Place, Remote, open_filesystem
from ..tables.output.folder import Folder


class MissingDuckDB(BarnabasError, ImportError):
    """DuckDB is not installed; the message has the command that installs it."""


def duckdb() -> Any:
    """The module. Raises MissingDuckDB."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingDuckDB(
            f"reports need DuckDB: {install('report')} (or give --engine spark, which needs Java)"
        ) from error
    return duckdb


class Duck:
    """An engine; a context manager. Raises FolderError when there are no tables, MissingDuckDB."""

    def __init__(self, path: Place) -> None:
        engine = duckdb()
        folder = Folder(path)
        folder.check()
        self.tables = folder.held()
        self._connection = engine.connect()
        # Exact percentiles, by the name that Spark has for them.
        self._connection.execute("CREATE MACRO percentile(x, p) AS quantile_cont(x, p)")
        for name in self.tables:
            if isinstance(path, Remote):  # DuckDB would have to be extended for stores; pyarrow knows them
                from pyarrow import dataset

                places = [open_filesystem(each) for each in folder.paths(name)]
                found = dataset.dataset([place for _, place in places], filesystem=places[0][0], format="parquet")
                self._connection.register(name, found)
                continue
            files = ", ".join("'" + str(file).replace("'", "''") + "'" for file in folder.paths(name))
            self._connection.execute(
                f"CREATE VIEW {name} AS SELECT * FROM read_parquet([{files}], hive_partitioning = false)"
            )

    def query(self, sql: str) -> list[dict[str, Any]]:
        result = self._connection.execute(sql)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def __enter__(self) -> Duck:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
