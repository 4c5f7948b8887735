"""pyarrow and numpy, where they are installed; Arrow schemas and batches out of descriptions and rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .columns import Column

BATCH_ROWS = 65536
BATCH_BYTES = 16 << 20
"""A batch ends when it has so many rows, or about so many bytes of text and payload."""


class MissingLibrary(ImportError):
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
    pa, fields = pyarrow(), schema_of(columns)
    values: list[list[Any]] = [[] for _ in columns]
    size = 0
    for row in rows:
        for column, kept in zip(columns, values, strict=True):
            value = row[column.name]
            if column.type == "json" and value is not None:
                value = json_text(value)
            elif column.type == "string" and value is not None and not value.isascii():
                value = value.encode("utf-8", "replace").decode()  # a lone surrogate is no Unicode to Arrow
            if isinstance(value, (str, bytes)):
                size += len(value)
            kept.append(value)
        if len(values[0]) >= batch_rows or size >= BATCH_BYTES:
            yield _batch(pa, values, fields)
            values, size = [[] for _ in columns], 0
    if values[0]:
        yield _batch(pa, values, fields)


def _batch(pa: Any, values: list[list[Any]], fields: Any) -> Any:
    arrays = [pa.array(column, field.type) for column, field in zip(values, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def json_text(value: Any) -> str:
    """A value of JSON's types as text; a text stands for itself."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()
