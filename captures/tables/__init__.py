"""Recordings as tables: rows one by one, or one segment in and Arrow record batches out. No Spark here; Spark, reports,
`barnabas export` and views use them alike.

`DESCRIBED` has the description of every table, from which all else follows; docs/tables.md shows it. The header table
`exchanges` comes from the index alone, so nothing is decoded for it. Arrow batches need pyarrow (and `exchanges` numpy):
the extra `spark`; rows need nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...decoder.filter import Filter
from .columns import BATCH_ROWS, Column, MissingLibrary, Table, schema_of
from .rows import TABLES as _ALL
from .rows import Options, Rows, check_filter
from .segment_tables import SegmentTables
from .segments import Found, Segment, find_segments

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema

__all__ = [
    "BATCH_ROWS",
    "DESCRIBED",
    "EXCHANGES",
    "TABLES",
    "Column",
    "Found",
    "MissingLibrary",
    "Options",
    "Rows",
    "Segment",
    "SegmentTables",
    "Table",
    "batches",
    "chosen",
    "described",
    "exchanges",
    "find_segments",
    "schema",
]

DESCRIBED = {table.name: table for table in _ALL}
"""Every table by its name."""
TABLES = {table.name: {column.name: column.arrow for column in table.columns} for table in DESCRIBED.values()}
"""The columns of every table and their Arrow types, in order; with the extra ones."""
EXCHANGES = {column.name: column.arrow for column in DESCRIBED["exchanges"].chosen()}
"""The columns of the table `exchanges` and their Arrow types, in order, but for the extra ones."""


def described(table: str) -> Table:
    """The description of a table. Raises ValueError."""
    if table not in DESCRIBED:
        raise ValueError(f"there is no table {table!r}; the tables are: {', '.join(DESCRIBED)}")
    return DESCRIBED[table]


def chosen(table: str, columns: Sequence[str] | None = None) -> list[str]:
    """The columns to read, all of the table's but the extra ones by default. Raises ValueError for an unknown table or
    column."""
    return [column.name for column in described(table).chosen(columns)]


def schema(table: str = "exchanges", columns: Sequence[str] | None = None) -> Schema:
    """The `pyarrow.Schema` of a table, or of some of its columns. Every field may be null for Arrow."""
    return schema_of(described(table).chosen(columns))


def batches(
    table: str,
    segment_path: str | Path,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    wanted: Filter | None = None,
) -> Iterator[RecordBatch]:
    """Yield the `pyarrow.RecordBatch`es of one capture file's rows of a table.

    Exchanges come in the order of the file's index. A damaged or torn file gives what can be read of it, perhaps nothing,
    and never raises. An exchange that goes on in the next segment is left to that one, if it is there. `capture_id` is
    the recording's identity, for a foreign capture its file name. `wanted`: only of exchanges that pass; a segment whose
    index shows that none does is not opened. Raises ValueError for what cannot be asked and `MissingLibrary`, all before
    the first batch.
    """
    options = Options(described(table), described(table).chosen(columns))
    schema_of(options.columns)
    check_filter(table, wanted)
    unit = SegmentTables(Path(segment_path), [options], wanted, batch_rows=batch_rows)
    return (batch for _, batch in unit)


def exchanges(
    segment_path: str | Path, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[RecordBatch]:
    """`batches` of the table `exchanges`."""
    return batches("exchanges", segment_path, columns, batch_rows)
