"""The description of a table: its columns, their types and meanings; and rows as Arrow batches by that description.

The Arrow schema, the CSV header and docs/tables.md all follow the descriptions. Those need no library; pyarrow and numpy are
imported on first use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import chain
from operator import itemgetter
from typing import Any

from ....errors import BarnabasError, install

TIMESTAMP = "timestamp[us, tz=UTC]"
ARROW = {"json": "string", "bytes": "binary", "timestamp": TIMESTAMP}
"""Arrow types of the column types that are not called alike."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `type`: bool, int16, int32, int64, string, bytes, timestamp (a `datetime` in UTC, to the microsecond), or json (a value
    of JSON's types; its text in Arrow and CSV). `null`: there may be no value.

    `extra` columns are read only when they are asked for by name. `payload`: keys, values and headers of records, or a
    body that holds some; shown only to those who ask for values.
    """

    name: str
    type: str
    meaning: str
    null: bool = False
    extra: bool = False
    payload: bool = False

    @property
    def arrow(self) -> str:
        """The name of the Arrow type."""
        return ARROW.get(self.type, self.type)


@dataclass(frozen=True, slots=True)
class Table:
    """A table: one row per `row`, with these columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """The column of that name. Raises ValueError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise ValueError(f"table {self.name} has no column {name!r}; it has: {', '.join(c.name for c in self.columns)}")

    def chosen(self, columns: Sequence[str] | None = None) -> list[Column]:
        """These columns, each once; all but the extra ones if none are named. Raises ValueError for unknown ones."""
        if columns:
            return [self.column(name) for name in dict.fromkeys(columns)]
        return [column for column in self.columns if not column.extra]


def _columns(line: str, known: Mapping[str, Table]) -> Iterable[Column]:
    """The columns that a line of columns.txt stands for."""
    name, _, rest = line.strip().partition(" ")
    if name.startswith("@"):
        source = known[name[1:]]
        return map(source.column, rest.split(", ")) if rest else source.columns
    kind, _, meaning = rest.partition(": ")
    null, extra, payload = (mark in kind for mark in "?+*")
    return [Column(name, kind.rstrip("?+*"), meaning, null, extra, payload)]


def _tables() -> dict[str, Table]:
    text = resources.files(__package__).joinpath("columns.txt").read_text("utf-8")
    text = re.sub(r"\n    +", " ", re.sub(r"(?m)^#.*\n", "", text))
    found: dict[str, Table] = {}
    for block in text.strip().split("\n\n"):
        head, *lines = block.splitlines()
        name, _, row = head.partition(": ")
        found[name.lstrip("@")] = Table(name, row, tuple(chain.from_iterable(_columns(line, found) for line in lines)))
    return found


TABLES = _tables()
"""The tables of columns.txt by their names, and its sets of columns."""
KEY = TABLES["key"].columns
"""The exchange that a row of a body is from."""

_EPOCH = datetime.fromtimestamp(0, UTC)
BATCH_ROWS = 65536
BATCH_BYTES = 16 << 20
"""Limits of a batch: rows, and about the bytes of text and payload."""


class MissingLibrary(BarnabasError, ImportError):
    """A library that reads and writes Parquet is not installed; the message has the command that installs it."""


def pyarrow() -> Any:
    """The module. Raises MissingLibrary."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingLibrary(f"tables need pyarrow: {install('report')}") from error
    return pyarrow


def numpy() -> Any:
    """The module. Raises MissingLibrary."""
    try:
        import numpy
    except ImportError as error:
        raise MissingLibrary(f"tables need numpy: {install('report')}") from error
    return numpy


def time_of(time_ns: int) -> datetime:
    """The value of the column `time`."""
    return _EPOCH + timedelta(microseconds=time_ns // 1000)


def schema_of(columns: Sequence[Column]) -> Any:
    """The `pyarrow.Schema` of some columns. Every field may be null for Arrow, because Spark's are."""
    pa = pyarrow()
    types = {"bool": pa.bool_, "int16": pa.int16, "int32": pa.int32, "int64": pa.int64}
    types |= {"string": pa.string, "binary": pa.binary, TIMESTAMP: lambda: pa.timestamp("us", tz="UTC")}
    return pa.schema([(column.name, types[column.arrow]()) for column in columns])


def batches_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column]) -> Iterator[Any]:
    """`pyarrow.RecordBatch`es of rows, one after the other; only one batch of rows is held."""
    gathered = Batches(columns)
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


def json_text(value: object) -> str:
    """A value of JSON's types as text; a text stands for itself."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()
