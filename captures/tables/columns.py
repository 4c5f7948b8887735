"""How a table is described: its columns, their types and meanings. No library is needed for that.

The Arrow schema, the CSV header and docs/tables.md all follow these descriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ARROW = {"json": "string", "bytes": "binary"}
"""Arrow types of the column types that are not called alike."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `type`: bool, int16, int32, int64, string, bytes, or json (a value of JSON's types; its text in Arrow
    and CSV). `null`: there may be no value.

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


NUMBER = (
    Column("capture_id", "string", "the recording: 32 hexadecimal digits; of another tool's capture, its file name"),
    Column("segment", "string", "file name of the segment, without `.part`"),
    Column(
        "number", "int64", "place in the segment's index, from 0; (`capture_id`, `segment`, `number`) names an exchange"
    ),
)
KEY = (
    *NUMBER,
    Column("time_ns", "int64", "when the request's first byte was seen, nanoseconds since the epoch, UTC"),
    Column("connection", "int64", "number of the connection in its recording"),
    Column("client", "string", "`host:port` of the client; empty when not known"),
    Column("broker", "string", "`host:port` of the broker; empty when not known"),
    Column("api", "string", "the API's name"),
    Column("api_version", "int16", "the version that was asked"),
    Column("correlation_id", "int32", "as the client chose it"),
    Column("client_id", "string", "null when the request has none", null=True),
)
"""The exchange that a row of a body is from."""
