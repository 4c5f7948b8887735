"""From records of the ring to calls of a consumer: what every process beside the relay does with what it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ..events import Address
from ..ring.reader import Lost, RingRecord
from ..ring.ring import NONE, Kind

_DATA = Kind.DATA  # looked up once: this is done for every chunk


class ConnectionEnds(NamedTuple):
    """Between whom a connection is. upstream: the proxy's own end of the leg to the broker. failed: why the broker was not reached, or
    empty. tls: the legs that use TLS."""

    client: Address
    broker: Address
    upstream: Address | None = None
    failed: str = ""
    tls: frozenset[str] = frozenset()

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> ConnectionEnds:
        """From the ring's record of a connection."""
        failed = about.get("failed", "")
        client, broker, upstream = (tuple(about[name]) for name in ("client", "broker", "upstream"))
        return cls(client, broker, None if failed else upstream, failed, frozenset(about.get("tls", ())))


class Consumer(Protocol):
    """What follows the traffic: `Recordings` or `TrafficDecoder`.

    Times are nanoseconds since the epoch; directions are 0 (requests) and 1 (responses).
    """

    def opened(self, conn: int, time_ns: int, ends: ConnectionEnds) -> None:
        """A connection begins."""

    def data(
        self, conn: int, direction: int, time_ns: int, data: bytes | memoryview, first_frame: int = NONE
    ) -> None:
        """Bytes of the client leg. first_frame: where the first frame begins in them, or `NONE`."""

    def skipped(self, conn: int, direction: int, time_ns: int, nbytes: int) -> None:
        """So many bytes of the client leg passed without being read."""

    def broker_leg(self, conn: int, direction: int, time_ns: int, frame: bytes, note: str = "") -> None:
        """A frame of the broker leg (with its size bytes) where the client leg has another."""

    def note(self, conn: int, correlation_id: int, text: str) -> None:
        """A comment on an exchange."""

    def lost(self, conn: int, direction: int, nbytes: int) -> None:
        """So many bytes were overwritten before they were read."""

    def ended(self, conn: int, direction: int, time_ns: int) -> None:
        """One side of a connection has ended, and the other has not."""

    def closed(self, conn: int, time_ns: int, how: str = "fin", by: str = "") -> None:
        """A connection ends. how: "fin", "rst" or "lost". by: who ended it, as in `decoder.connection.events.Closed`."""


class RingFeed:
    """Calls a consumer with the records of the ring, and counts connections and bytes."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._legs: dict[int, bytearray] = {}
        self.open = 0
        """Connections that are open now."""
        self.opened = 0
        """Connections so far whose broker was reached."""
        self.bytes = [0, 0]
        """Bytes so far, of requests and of responses."""
        self.finished = False
        """Whether the relay has reported that nothing follows."""

    def take(self, record: RingRecord | Lost) -> None:
        """Take one record of the ring."""
        consumer = self._consumer
        if isinstance(record, Lost):
            consumer.lost(record.connection, record.direction, record.nbytes)
            return
        kind, conn, direction, time_ns, data, first = record
        if kind is _DATA:
            self.bytes[direction] += len(data)
            consumer.data(conn, direction, time_ns, data, first)
        elif kind == Kind.OPENED:
            self._opened(conn, time_ns, ConnectionEnds.of(json.loads(bytes(data))))
        elif kind == Kind.CLOSED:
            self.open -= 1
            self._legs.pop(conn, None)
            about = json.loads(bytes(data))
            consumer.closed(conn, time_ns, about["how"], about.get("by", ""))
        elif kind == Kind.ENDED:
            consumer.ended(conn, direction, time_ns)
        elif kind == Kind.NOTE:
            consumer.note(conn, first - (1 << 32) if first >> 31 else first, bytes(data).decode())
        elif kind == Kind.BROKER_LEG:
            self._broker_leg(record)
        elif kind == Kind.SKIPPED:
            self.bytes[direction] += first
            consumer.skipped(conn, direction, time_ns, first)
        elif kind == Kind.STOP:
            self.finished = True

    def _opened(self, conn: int, time_ns: int, ends: ConnectionEnds) -> None:
        self.open += 1
        self.opened += 0 if ends.failed else 1
        self._consumer.opened(conn, time_ns, ends)

    def _broker_leg(self, record: RingRecord) -> None:
        """Collect the pieces of a changed frame; `first_frame` counts the bytes still to come."""
        collected = self._legs.setdefault(record.connection, bytearray())
        collected += record.data
        if record.first_frame:
            return
        whole = bytes(self._legs.pop(record.connection))
        note = 2 + int.from_bytes(whole[:2], "big")
        frame = whole[note:]
        # A piece may have been lost; the rest must not be taken for a whole frame.
        if len(frame) >= 8 and int.from_bytes(frame[:4], "big") + 4 == len(frame):
            self._consumer.broker_leg(
                record.connection, record.direction, record.time_ns, frame, whole[2:note].decode()
            )
