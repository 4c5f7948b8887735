"""DuckDB over a folder of tables: reports on one machine, without Java."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from types import TracebackType
from typing import Any

from ...errors import BarnabasError, install
from ..reading.storage import Place, Remote, open_filesystem
from .sources import TableSource, table_sources


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
    """An engine over one or more folders of tables; a context manager. Raises FolderError when there are none, MissingDuckDB."""

    counted_percentile = "counted_percentile"

    def __init__(self, *paths: Place) -> None:
        engine = duckdb()
        sources = table_sources(paths)
        self.tables = tuple(sources)
        self._connection = engine.connect()
        # By the name that Spark has for it.
        self._connection.execute("CREATE MACRO percentile(x, p) AS quantile_cont(x, p)")
        self._connection.create_function("percentile_of_counts", _percentile_of_counts, ["MAP(DOUBLE, UBIGINT)", "DOUBLE"], "DOUBLE")
        self._connection.execute("CREATE MACRO counted_percentile(x, p) AS percentile_of_counts(histogram(x), p)")
        for name, source in sources.items():
            if any(isinstance(each, Remote) for each in source.files):  # DuckDB would have to be extended for stores; pyarrow knows them
                self._connection.register(name, _dataset(source))
                continue
            read, there = "(SELECT 1 WHERE false)", set()
            if source.files:
                files = ", ".join("'" + str(file).replace("'", "''") + "'" for file in source.files)
                read = f"read_parquet([{files}], hive_partitioning = false, union_by_name = true)"
                there = {row[0] for row in self._connection.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()}
            columns = (f'{"" if each.name in there else f"CAST(NULL AS {each.arrow}) AS "}"{each.name}"' for each in source.table.chosen())
            self._connection.execute(f"CREATE VIEW {name} AS SELECT {', '.join(columns)} FROM {read}")

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


def _percentile_of_counts(counts: Mapping[float, int], share: float) -> float:
    """As `quantile_cont` of values that occur so often. `counts`: in the order of the values; never empty (a UDF is not called for NULL)."""
    values, until = list(counts), list(accumulate(counts.values()))
    below, part = divmod(share * (until[-1] - 1), 1)
    low, high = (values[bisect_right(until, rank)] for rank in (below, min(below + 1, until[-1] - 1)))
    return low + part * (high - low)


def _dataset(source: TableSource) -> Any:
    """The files of all stores as one `pyarrow.dataset.Dataset`."""
    from pyarrow import dataset

    places = [open_filesystem(each) for each in source.files]
    parts = [dataset.dataset([place], schema=source.schema, filesystem=store, format="parquet") for store, place in places]
    return dataset.UnionDataset(source.schema, parts)
