"""The tables `happenings` and `findings`: what happened on connections, in order, and what was wrong about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...decoder import Exchange, ExchangeDone, RequestSeen, State
from ...decoder.connection.events import Closed, ConnectionEvent, Missing, NonKafkaData, Opened
from ...decoder.findings import Inspector
from ...decoder.schema import facts
from ..reading.context import Origin
from .columns import TABLES

HAPPENINGS = TABLES["happenings"]
FINDINGS = TABLES["findings"]
_EMPTY = {column.name: None for column in HAPPENINGS.columns}


class EventRows:
    """The rows of `happenings`. The cluster and id of a broker hold for all events of its connection."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._brokers: dict[int, dict[str, Any]] = {}

    def row(self, event: ConnectionEvent) -> dict[str, Any]:
        """The row of an event."""
        row = _row(event)
        broker = self._brokers.get(row["connection"])
        if broker is None and row.get("broker") is not None:
            broker = self._brokers[row["connection"]] = self._origin.context.broker(row["broker"])._asdict()
        if isinstance(event, Closed):
            self._brokers.pop(event.connection, None)
        return {**_EMPTY, "capture_id": self._origin.capture_id, **(broker or {}), **row}


def event_rows(events: Iterable[ConnectionEvent], origin: Origin) -> Iterator[dict[str, Any]]:
    return map(EventRows(origin).row, events)


def _row(event: ConnectionEvent) -> dict[str, Any]:
    if isinstance(event, RequestSeen):
        exchange = event.exchange
        return {
            "happening": "request",
            "time_ns": exchange.request_time_ns or 0,
            "direction": "request",
            "size_bytes": exchange.request_size,
            **_exchange(exchange),
        }
    if isinstance(event, ExchangeDone):
        exchange = event.exchange
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
    if isinstance(event, Opened):
        return {
            "happening": "opened",
            "time_ns": event.time_ns,
            "connection": event.connection,
            "client": event.client,
            "broker": event.broker,
            "detail": None if event.established else "failed",
        }
    if isinstance(event, NonKafkaData):
        return {
            "happening": "stray",
            "time_ns": event.opaque.time_ns,
            "connection": event.connection,
            "direction": event.opaque.direction.name.lower(),
            "size_bytes": len(event.opaque.data),
            "detail": event.opaque.reason,
        }
    if isinstance(event, Missing):
        return {
            "happening": "missing",
            "time_ns": event.time_ns,
            "connection": event.connection,
            "direction": event.direction.name.lower(),
            "size_bytes": event.size,
        }
    assert isinstance(event, Closed)
    by = f" by the {event.by}" if event.by else ""
    return {
        "happening": "closed",
        "time_ns": event.time_ns,
        "connection": event.connection,
        "detail": f"{event.how}{by}" if event.how else "the capture ends before it does",
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


def finding_rows(
    events: Iterable[ConnectionEvent], origin: Origin, wanted: Callable[[Exchange], bool] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows; with `wanted`, the findings of which a linked exchange passes."""
    inspector = Inspector()
    for event in events:
        inspector.feed(event)
    yield from findings_of(inspector, origin, wanted)


def findings_of(
    inspector: Inspector, origin: Origin, wanted: Callable[[Exchange], bool] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of what an inspector has found."""
    context = origin.context
    for finding in inspector.findings():
        if wanted is None or any(map(wanted, finding.exchanges)):
            broker = finding.about.get("broker")
            cluster_id = context.broker(broker).cluster_id if isinstance(broker, str) else context.cluster_id
            yield {"capture_id": origin.capture_id, "cluster_id": cluster_id, **finding.to_dict()}
