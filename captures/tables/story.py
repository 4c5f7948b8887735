"""The table `happenings`: what happened on connections, one row per happening, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...decoder import Exchange, ExchangeDone, RequestSeen, State, facts
from ...decoder.happening import Closed, Happening, Missing, Opened, Stray
from .columns import Column, Table

TABLE = Table(
    "happenings",
    "happening: the start and end of a connection, a request, an answer, bytes that are no frames, bytes that are missing",
    (
        Column("capture_id", "string", "the recording; of a folder that holds several, or of a foreign one, its name"),
        Column("time_ns", "int64", "of its first byte, nanoseconds since the epoch"),
        Column("connection", "int64", "number of the connection in its recording"),
        Column("happening", "string", "`opened`, `request`, `done`, `stray`, `missing` or `closed`"),
        Column("client", "string", "`host:port`; null where it is not said again", null=True),
        Column("broker", "string", "likewise", null=True),
        Column("direction", "string", "`request` or `response`, of bytes", null=True),
        Column("api", "string", "of a request, and of what was done", null=True),
        Column("api_version", "int16", "likewise", null=True),
        Column("correlation_id", "int32", "likewise", null=True),
        Column("client_id", "string", "likewise", null=True),
        Column("size_bytes", "int64", "of the request or response frame, or of the bytes", null=True),
        Column(
            "state", "string", "what became of an exchange: `paired`, `no_response`, `orphan` or `pending`", null=True
        ),
        Column("error", "string", "first error of the response", null=True),
        Column("detail", "string", "how a connection ended and by whom; why bytes are no frames", null=True),
    ),
)
_EMPTY = {column.name: None for column in TABLE.columns}


def rows(happenings: Iterable[Happening], capture_id: str) -> Iterator[dict[str, Any]]:
    """The rows."""
    for happening in happenings:
        yield {**_EMPTY, "capture_id": capture_id, **_row(happening)}


def _row(happening: Happening) -> dict[str, Any]:
    if isinstance(happening, RequestSeen):
        exchange = happening.exchange
        return {
            "happening": "request",
            "time_ns": exchange.request_time_ns or 0,
            "direction": "request",
            "size_bytes": exchange.request_size,
            **_exchange(exchange),
        }
    if isinstance(happening, ExchangeDone):
        exchange = happening.exchange
        time_ns = exchange.response_time_ns if exchange.response is not None else exchange.request_time_ns
        return {
            "happening": "done",
            "time_ns": time_ns or 0,
            "direction": None if exchange.response is None else "response",
            "size_bytes": exchange.response_size,
            "state": str(exchange.state),
            "error": facts.error_name(exchange.error) if exchange.error else None,
            "detail": exchange.undecoded or exchange.cut,
            **_exchange(exchange),
        }
    if isinstance(happening, Opened):
        return {
            "happening": "opened",
            "time_ns": happening.time_ns,
            "connection": happening.connection,
            "client": happening.client,
            "broker": happening.broker,
            "detail": None if happening.established else "tried in vain",
        }
    if isinstance(happening, Stray):
        return {
            "happening": "stray",
            "time_ns": happening.opaque.time_ns,
            "connection": happening.connection,
            "direction": happening.opaque.direction.name.lower(),
            "size_bytes": len(happening.opaque.data),
            "detail": happening.opaque.reason,
        }
    if isinstance(happening, Missing):
        return {
            "happening": "missing",
            "time_ns": happening.time_ns,
            "connection": happening.connection,
            "direction": happening.direction.name.lower(),
            "size_bytes": happening.size,
        }
    assert isinstance(happening, Closed)
    by = f" by the {happening.by}" if happening.by else ""
    return {
        "happening": "closed",
        "time_ns": happening.time_ns,
        "connection": happening.connection,
        "detail": f"{happening.how}{by}" if happening.how else "the capture ends before it does",
    }


def _exchange(exchange: Exchange) -> dict[str, Any]:
    known = exchange.state is not State.ORPHAN
    return {
        "connection": exchange.connection,
        "client": exchange.client,
        "broker": exchange.broker,
        "api": exchange.api if known else None,
        "api_version": exchange.api_version if known else None,
        "correlation_id": exchange.correlation_id,
        "client_id": exchange.client_id,
    }
