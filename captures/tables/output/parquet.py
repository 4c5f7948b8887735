"""Files of a folder of tables, which appear at their places as a whole."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from ...reading.storage import Place, Remote
from ..columns import Table, pyarrow, schema_of
from ..segments import LAYOUT

HIDDEN, LANDED = ".unfinished", ".landed"
LAYOUT_KEY = b"barnabas.layout"
_NAME = b"barnabas.table"
_TOKEN = re.compile(r"\.[0-9a-f]{16}$")
_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 64 << 20
"""A row group of a Parquet file ends with the batch that reaches one of these."""


def _is_wide(kind: Any) -> bool:
    return bool(pyarrow().types.is_integer(kind) and kind.bit_width >= 32)


def put_bytes(folder: Place, there: Place, data: bytes) -> None:
    """Write a small file of the folder of tables, which appears at its place as a whole. Raises OSError."""
    if isinstance(there, Remote):
        there.write(data)
        return
    hidden = Path(str(folder)) / HIDDEN
    for each in (hidden, there.parent):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = hidden / f"{there.name}-{os.getpid()}-{os.urandom(4).hex()}"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    os.replace(beside, there)


def key_of_file(name: str) -> str:
    """The key of the chunk or recording whose rows a file has, by its name, which may have a token."""
    return _TOKEN.sub("", name.removesuffix(".parquet"))


class ParquetFile:
    """A Parquet file under a hidden name, until `put`."""

    def __init__(self, folder: Place, table: Table, key: str) -> None:
        from pyarrow import parquet

        if isinstance(folder, Path):
            hidden = folder / HIDDEN
            hidden.mkdir(mode=0o700, exist_ok=True)
        else:
            hidden = Path(tempfile.gettempdir())
        self._path: Path | None = hidden / f"barnabas-{table.name}-{key}-{os.getpid()}-{os.urandom(4).hex()}"
        layout = {LAYOUT_KEY: str(LAYOUT).encode(), _NAME: table.name.encode()}
        self.schema = schema_of(table.chosen()).with_metadata(layout)
        self._file = open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")  # noqa: SIM115
        # Times, numbers and ids differ little from row to row: a third of the bytes of the default, and less CPU.
        types = pyarrow().types
        words = [column.name for column in self.schema if types.is_string(column.type)]
        numbers = {column.name: "DELTA_BINARY_PACKED" for column in self.schema if _is_wide(column.type)}
        self._writer = parquet.ParquetWriter(
            self._file, self.schema, compression="zstd", use_dictionary=words, column_encoding=numbers
        )
        self.rows = 0
        self._batches: list[Any] = []
        self._rows = self._bytes = 0

    def add(self, batch: Any) -> None:
        self._batches.append(batch.replace_schema_metadata(self.schema.metadata))
        self.rows += batch.num_rows
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        """Write what was added as one row group."""
        if self._rows:
            self._writer.write_table(pyarrow().Table.from_batches(self._batches), row_group_size=self._rows)
        self._batches, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        self._write()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def put(self, there: Place) -> None:
        """The whole file appears at once."""
        assert self._path is not None
        if isinstance(there, Remote):
            there.put(self._path)
            self._path.unlink()
        else:
            there.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.replace(self._path, there)
        self._path = None

    def drop(self) -> None:
        """Let go of a file that was not put anywhere."""
        if self._path is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


