"""pyarrow and numpy, where they are installed; Arrow schemas and batches out of descriptions and rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...errors import BarnabasError
from .columns import Column

BATCH_ROWS = 65536
BATCH_BYTES = 16 << 20
"""A batch ends when it has so many rows, or about so many bytes of text and payload."""


class MissingLibrary(BarnabasError, ImportError):
    """A library of the extra `spark` is not installed; the text says how to install it."""


def pyarrow() -> Any:
    """The module; MissingLibrary says how to get it."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingLibrary("tables need pyarrow: pip install 'barnabas[spark]'") from error
    return pyarrow


def numpy() -> Any:
    """The module; MissingLibrary says how to get it."""
    try:
        import numpy
    except ImportError as error:
        raise MissingLibrary("tables need numpy: pip install 'barnabas[spark]'") from error
    return numpy


def schema_of(columns: Sequence[Column]) -> Any:
    """The `pyarrow.Schema` of some columns. Every field may be null for Arrow, because Spark's are."""
    pa = pyarrow()
    types = {"bool": pa.bool_, "int16": pa.int16, "int32": pa.int32, "int64": pa.int64}
    types |= {"string": pa.string, "binary": pa.binary}
    return pa.schema([(column.name, types[column.arrow]()) for column in columns])


def batches_of(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], batch_rows: int = BATCH_ROWS
) -> Iterator[Any]:
    """`pyarrow.RecordBatch`es of rows, one after the other; only one batch of rows is held."""
    gathered = Batches(columns, batch_rows)
    for row in rows:
        if gathered.add(row):
            yield gathered.take()
    if gathered.count:
        yield gathered.take()


class Batches:
    """Gathers rows until they are a batch."""

    def __init__(self, columns: Sequence[Column], batch_rows: int = BATCH_ROWS) -> None:
        self.schema = schema_of(columns)
        self._batch_rows = batch_rows
        names = [column.name for column in columns]
        self._values = itemgetter(*names) if len(names) > 1 else lambda row: (row[names[0]],)
        self._texts = [column.name for column in columns if column.type in ("string", "bytes")]
        self._json = [column.name for column in columns if column.type == "json"]
        self._rows: list[tuple[Any, ...]] = []  # a dict of each would take five times the memory
        self._size = 0

    @property
    def count(self) -> int:
        """Rows that wait."""
        return len(self._rows)

    def add(self, row: Mapping[str, Any]) -> bool:
        """Add a row; whether it is time to `take` them."""
        if self._json:
            row = dict(row) | {name: json_text(row[name]) for name in self._json if row[name] is not None}
            self._size += sum(len(row[name] or "") for name in self._json)
        for name in self._texts:
            value = row[name]
            if value is not None:
                self._size += len(value)
        self._rows.append(self._values(row))
        return len(self._rows) >= self._batch_rows or self._size >= BATCH_BYTES

    def take(self) -> Any:
        """The `pyarrow.RecordBatch` of the rows that wait."""
        pa = pyarrow()
        rows, self._rows, self._size = self._rows, [], 0
        columns = zip(*rows, strict=True) if rows else [()] * len(self.schema)
        arrays = [_array(pa, values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _array(pa: Any, values: Sequence[Any], kind: Any) -> Any:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # a lone surrogate is no Unicode to Arrow
        return pa.array([value and value.encode("utf-8", "replace").decode() for value in values], kind)


def json_text(value: Any) -> str:
    """A value of JSON's types as text; a text stands for itself."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()
