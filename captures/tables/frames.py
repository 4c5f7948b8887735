"""The table `frames`: one row per request and per response, from the index alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..capture import Row
from ..index import Index
from .arrow import numpy
from .columns import KEY, NUMBER, Column, Table
from .headers import HeaderBatch, batches_by

TABLE = Table(
    "frames",
    "frame: a request or a response",
    (
        *NUMBER,
        Column("direction", "string", "`request` or `response`"),
        Column("time_ns", "int64", "when its first byte was seen, nanoseconds since the epoch, UTC"),
        Column("connection", "int64", "number of the connection in its recording"),
        Column("client", "string", "`host:port` of the client; empty when not known"),
        Column("broker", "string", "`host:port` of the broker; empty when not known"),
        Column("api", "string", "the API's name; empty for an orphan"),
        Column("api_key", "int16", "-1 for an orphan"),
        Column("api_version", "int16", "-1 for an orphan"),
        Column("correlation_id", "int32", "as the client chose it"),
        Column("client_id", "string", "of the request; null when it has none", null=True),
        Column("size", "int32", "value of the 4 size bytes"),
        Column("undecoded", "bool", "a frame of the exchange could not be decoded"),
    ),
)
_SAME = [column.name for column in KEY] + ["api_key"]


def rows_of(row: Row, capture_id: str, segment: str, number: int) -> Iterator[dict[str, Any]]:
    """The rows of an exchange."""
    known = {name: getattr(row, name) for name in _SAME if name not in ("capture_id", "segment", "number")}
    known |= {"capture_id": capture_id, "segment": segment, "number": number, "undecoded": row.undecoded}
    if row.request_offset is not None:
        yield {**known, "direction": "request", "size": row.request_size}
    if row.response_offset is not None:
        time_ns = row.time_ns + (row.latency_ns or 0)
        yield {**known, "direction": "response", "time_ns": time_ns, "size": row.response_size}


def batches(
    index: Index, names: tuple[str, str], numbers: Any, columns: Sequence[Column], batch_rows: int
) -> Iterator[Any]:
    """`pyarrow.RecordBatch`es: all requests of these records of an index, then all responses."""
    np = numpy()
    numbers = np.asarray(numbers, dtype=np.int64)
    for kind, offset in ((_Requests, "request_offset"), (_Responses, "response_offset")):
        there = index.array()[offset][numbers] >= 0
        yield from batches_by(kind, index, names, numbers[there], columns, batch_rows)


class _Requests(HeaderBatch):
    side = "request"

    def _direction(self) -> Any:
        return self._pa.repeat(self.side, len(self._records))

    def _size(self) -> Any:
        return self._pa.array(self._sizes(self.side))


class _Responses(_Requests):
    side = "response"

    def _time_ns(self) -> Any:
        return self._pa.array(self._records["time_ns"] + self._records["latency_ns"].clip(0))
