"""Writing rows of a table as JSON lines, CSV or Parquet, streaming: at most one batch of rows is held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import BinaryIO

from ..tables import Column
from ..tables.columns import batches_of, pyarrow, schema_of
from .text import csv_head, csv_line, json_line

_CHUNK = 512  # lines that are written together


class Format(StrEnum):
    """The file format."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


def write(file: BinaryIO, form: Format, rows: Iterable[Mapping[str, object]], columns: Sequence[Column]) -> int:
    """Write all rows; returns how many. Raises MissingLibrary for Parquet without pyarrow (`check` raises it before)."""
    if form is Format.PARQUET:
        return _parquet(file, rows, columns)
    lines: list[str] = []
    count = 0
    if form is Format.CSV:
        lines.append(csv_head(columns))
    line = csv_line if form is Format.CSV else json_line
    for row in rows:
        lines.append(line(row, columns))
        count += 1
        if len(lines) >= _CHUNK:
            file.write("".join(lines).encode("utf-8", "replace"))
            lines.clear()
    file.write("".join(lines).encode("utf-8", "replace"))
    return count


def check(form: Format) -> None:
    """Raises MissingLibrary if a library for this format is not there."""
    if form is Format.PARQUET:
        pyarrow()


def _parquet(file: BinaryIO, rows: Iterable[Mapping[str, object]], columns: Sequence[Column]) -> int:
    from pyarrow import parquet

    count = 0
    with parquet.ParquetWriter(file, schema_of(columns), compression="zstd") as writer:
        for batch in batches_of(rows, columns):
            writer.write_batch(batch, row_group_size=batch.num_rows)
            count += batch.num_rows
    return count
