"""The table `connections`: one row per connection, when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...decoder import Exchange, ExchangeDone, RequestSeen, State
from ...decoder.happening import Closed, Happening, Missing, Opened, Stray
from .columns import Column, Table
from .settling import settled

TABLE = Table(
    "connections",
    "connection, in the order in which they ended",
    (
        Column("capture_id", "string", "the recording; of a folder that holds several, or of a foreign one, its name"),
        Column("connection", "int64", "number of the connection in its recording"),
        Column("client", "string", "`host:port` of the client; empty when not known"),
        Column("broker", "string", "`host:port` of the broker; empty when not known"),
        Column("client_id", "string", "of the first request that has one", null=True),
        Column(
            "software_name", "string", "as the client names itself (ApiVersions v3); null if it does not", null=True
        ),
        Column("software_version", "string", "likewise", null=True),
        Column("established", "bool", "false where the broker refused it, or did not answer"),
        Column("opened_ns", "int64", "nanoseconds since the epoch; null when it was not seen", null=True),
        Column("first_ns", "int64", "of the first request or response", null=True),
        Column("last_ns", "int64", "of the last request or response", null=True),
        Column("closed_ns", "int64", "null when the capture ends before it", null=True),
        Column(
            "end", "string", "`fin`, `rst`, `refused`, `unreached`; null when the capture ends before it", null=True
        ),
        Column("ended_by", "string", "`client` or `broker`, where that is known", null=True),
        Column("exchanges", "int64", "requests, and responses without one"),
        Column("errors", "int64", "exchanges with an error code that is not 0"),
        Column("orphans", "int64", "responses without a request"),
        Column("unanswered", "int64", "requests that no response came for, though one was due"),
        Column("request_bytes", "int64", "frames of the client with their 4 size bytes"),
        Column("response_bytes", "int64", "frames of the broker with their 4 size bytes"),
        Column("stray_bytes", "int64", "bytes that are no frames"),
        Column("missing_bytes", "int64", "bytes that were not captured"),
    ),
)
_COUNTS = [column.name for column in TABLE.columns[TABLE.columns.index(TABLE.column("exchanges")) :]]
_DUE = "no_response", "pending"


class _Connection:
    """A connection that is open."""

    def __init__(self, capture_id: str, number: int) -> None:
        self.row: dict[str, Any] = {column.name: None for column in TABLE.columns}
        self.row |= {"capture_id": capture_id, "connection": number, "client": "", "broker": "", "established": True}
        self.row |= dict.fromkeys(_COUNTS, 0)
        self.wanted = False

    def frame(self, exchange: Exchange, frame: bytes | None, time_ns: int | None, side: str) -> None:
        row = self.row
        if frame is None or time_ns is None:
            return
        row["first_ns"] = time_ns if row["first_ns"] is None else min(row["first_ns"], time_ns)
        row["last_ns"] = time_ns if row["last_ns"] is None else max(row["last_ns"], time_ns)
        row[side] += len(frame) + 4
        row["client"], row["broker"] = row["client"] or exchange.client, row["broker"] or exchange.broker

    def done(self, exchange: Exchange) -> None:
        row = self.row
        row["exchanges"] += 1
        row["errors"] += bool(exchange.error)
        row["orphans"] += exchange.state is State.ORPHAN
        if row["client_id"] is None:
            row["client_id"] = exchange.client_id
        if exchange.about is not None and exchange.about.software_name:
            row["software_name"] = exchange.about.software_name
            row["software_version"] = exchange.about.software_version
        if str(exchange.state) in _DUE and not _wants_none(exchange):
            row["unanswered"] += 1


def _wants_none(exchange: Exchange) -> bool:
    """A Produce with acks=0."""
    asked = exchange.request_message if exchange.api == "Produce" else None
    return asked is not None and asked["acks"] == 0


def rows(
    happenings: Iterable[Happening], capture_id: str, wanted: Callable[[Exchange], bool] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows; with `wanted`, of the connections of which an exchange passes. Figures are of the whole connection."""
    still: dict[int, _Connection] = {}

    def of(number: int) -> _Connection:
        found = still.get(number)
        if found is None:
            found = still[number] = _Connection(capture_id, number)
        return found

    for happening in settled(happenings):
        if isinstance(happening, ExchangeDone):
            exchange = happening.exchange
            here = of(exchange.connection)
            if exchange.state is State.ORPHAN:
                here.frame(exchange, exchange.response, exchange.response_time_ns, "response_bytes")
            else:
                here.frame(exchange, exchange.request, exchange.request_time_ns, "request_bytes")
                here.frame(exchange, exchange.response, exchange.response_time_ns, "response_bytes")
            here.done(exchange)
            if wanted is not None and not here.wanted:
                here.wanted = wanted(exchange)
        elif isinstance(happening, Opened):
            before = still.pop(happening.connection, None)  # another recording in the same folder
            if before is not None and (wanted is None or before.wanted):
                yield before.row
            here = of(happening.connection)
            here.row |= {
                "client": happening.client,
                "broker": happening.broker,
                "opened_ns": happening.time_ns,
                "established": happening.established,
            }
        elif isinstance(happening, Stray):
            of(happening.connection).row["stray_bytes"] += len(happening.opaque.data)
        elif isinstance(happening, Missing):
            of(happening.connection).row["missing_bytes"] += happening.size
        elif isinstance(happening, Closed):
            here = of(happening.connection)
            del still[happening.connection]
            if happening.how:
                here.row |= {"closed_ns": happening.time_ns, "end": happening.how, "ended_by": happening.by or None}
            if wanted is None or here.wanted:
                yield here.row
        elif isinstance(happening, RequestSeen):
            of(happening.exchange.connection)
    for here in still.values():
        if wanted is None or here.wanted:
            yield here.row
