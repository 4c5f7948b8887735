"""The bytes of the ring as exchanges: the one decoder of a process that follows traffic exchange by exchange.

Findings, the flight recorder's trigger, live exchanges and metrics listen to it. Recorders (`recordings`) and `exchange_counter` decode
for themselves: they work chunk by chunk in C, many times faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ...bounded import BoundedDict
from ...decoder import Connection, Direction, Exchange, ExchangeDone, Opaque, RequestSeen, Topics
from ...decoder.connection.connection import Event
from ...decoder.connection.events import HALF_CLOSED_NS, Closed, ConnectionEvent, Missing, NonKafkaData, Opened
from ...decoder.connection.exchange import BrokerLeg
from ...diagnostics import contained
from ..events import show
from ..ring.ring import NONE
from .ring_feed import ConnectionEnds

EARLY_NOTES = 256
"""Most requests of a connection that have notes before they are seen."""

_BITE = 256
"""Events between two looks whether it is over."""

Hear = Callable[[ConnectionEvent], object]
Moved = Callable[[int, int, int, int], object]
"""Bytes of the client leg: connection, direction, time, number of bytes; also of connections that cannot be decoded."""


class TrafficDecoder:
    """A `ring_feed.Consumer` that passes each event to all its listeners.

    Exchanges carry in their `marks` what the relay reported of them: notes, that they were changed, and the broker legs. A listener that raises misses that event; the others do not.
    """

    def __init__(self, *listeners: Hear, moved: Moved | None = None, over: Callable[[], bool] = lambda: False) -> None:
        """over: whether to end now. Of a connection's end with very many requests in flight, the rest is then left out."""
        self._listeners = listeners
        self._moved = moved
        self._over = over
        self.unseen_bytes = 0
        """Bytes of requests that were left out because it was over."""
        self.faults = 0
        """Events and chunks that were missed because of a bug."""
        self._connections: dict[int, Connection] = {}
        self._failed: dict[int, str] = {}
        self._topics = Topics()
        self._early: dict[int, dict[int, list[str]]] = {}
        """Notes of requests that were not seen yet, by connection and correlation id."""
        self._ended: dict[int, Closed] = {}
        """The end of each connection that only one side has ended so far."""
        self._reported: set[int] = set()
        """Those of them that `half_closed` has returned."""
        self.now_ns = 0
        """The time of the newest record."""

    def _pass_on(self, event: ConnectionEvent) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:  # a bug here costs one event, not the process
                contained("a listener to the traffic", error)
                self.faults += 1

    def _pass_on_all(self, conn: int, events: Iterable[Event]) -> None:
        for event in events:
            self._pass_on(NonKafkaData(conn, event) if isinstance(event, Opaque) else event)

    def _pass_on_last(self, conn: int, events: list[Event]) -> None:
        """What the end of a connection concludes: one event per request in flight."""
        for at in range(0, len(events), _BITE):
            if self._over():
                left = (event.exchange.request for event in events[at:] if isinstance(event, ExchangeDone))
                self.unseen_bytes += sum(len(request) for request in left if request is not None)
                return
            self._pass_on_all(conn, events[at : at + _BITE])

    def opened(self, conn: int, time_ns: int, ends: ConnectionEnds) -> None:
        self.now_ns = time_ns
        shown = show(ends.client), show(ends.broker)
        if ends.failed:
            self._failed[conn] = ends.failed
        else:
            self._connections[conn] = Connection(conn, *shown, topics=self._topics)
        self._pass_on(Opened(conn, *shown, time_ns, not ends.failed, tls=ends.tls))

    def data(
        self, conn: int, direction: int, time_ns: int, data: bytes | memoryview, first_frame: int = NONE
    ) -> None:
        self.now_ns = time_ns
        if self._moved is not None:
            self._moved(conn, direction, time_ns, len(data))
        connection = self._connections.get(conn)
        if connection is not None:
            receive = connection.receive_from_broker if direction else connection.receive_from_client
            self._decode(conn, partial(receive, data, time_ns))

    def skipped(self, conn: int, direction: int, time_ns: int, nbytes: int) -> None:
        self.now_ns = time_ns
        if self._moved is not None:
            self._moved(conn, direction, time_ns, nbytes)
        connection = self._connections.get(conn)
        if connection is not None:
            self._decode(conn, partial(connection.skip, Direction(direction), nbytes, time_ns))

    def _decode(self, conn: int, decode: Callable[[], list[Event]]) -> None:
        try:
            events = decode()
        except Exception as error:  # the decoder's state cannot be trusted any more: stop following this connection
            contained("the decoder of a connection", error)
            self.faults += 1
            del self._connections[conn]
            return
        if self._early.get(conn):
            self._attach(conn, events)
        self._pass_on_all(conn, events)

    def _attach(self, conn: int, events: Iterable[Event]) -> None:
        """Give requests the notes that came before them: a rule notes what it does as soon as it has decided."""
        early = self._early[conn]
        for event in events:
            if isinstance(event, RequestSeen) and (texts := early.pop(event.exchange.correlation_id & 0xFFFFFFFF, None)):
                event.exchange.marks.notes.extend(texts)

    def broker_leg(self, conn: int, direction: int, time_ns: int, frame: bytes, note: str = "") -> None:
        at = 4 if direction else 8
        exchange = self._pending(conn, int.from_bytes(frame[at : at + 4], "big", signed=True))
        if exchange is not None:
            exchange.marks.changed = True
            exchange.marks.set_leg(direction, BrokerLeg(frame[4:], notes=[note] if note else []))

    def note(self, conn: int, correlation_id: int, text: str) -> None:
        exchange = self._pending(conn, correlation_id)
        if exchange is not None:
            exchange.marks.notes.append(text)
            return
        early = self._early.setdefault(conn, BoundedDict(EARLY_NOTES))
        early.setdefault(correlation_id & 0xFFFFFFFF, []).append(text)

    def in_flight(self) -> list[Exchange]:
        """The requests that wait for their responses, on all connections."""
        return [exchange for connection in self._connections.values() for exchange in connection.pending()]

    def _pending(self, conn: int, correlation_id: int) -> Exchange | None:
        connection = self._connections.get(conn)
        return connection.waiting_for(correlation_id) if connection is not None else None

    def lost(self, conn: int, direction: int, nbytes: int) -> None:
        connection = self._connections.get(conn)
        if connection is not None:
            connection.lost(Direction(direction))
        self._pass_on(Missing(conn, Direction(direction), nbytes, self.now_ns))

    def ended(self, conn: int, direction: int, time_ns: int) -> None:
        self.now_ns = time_ns
        connection = self._connections.get(conn)
        self._ended[conn] = Closed(conn, time_ns, "fin", "broker" if direction else "client", half=True)
        if direction and connection is not None:
            self._pass_on_last(conn, connection.broker_ended(time_ns))

    def half_closed(self, now_ns: int) -> list[Closed]:
        """The ends of connections that only one side has ended, once each, when the other has had `HALF_CLOSED_NS` to follow. More may
        come on such a connection."""
        waiting = self._ended.keys() - self._reported
        due = [self._ended[conn] for conn in waiting if now_ns - self._ended[conn].time_ns >= HALF_CLOSED_NS]
        self._reported.update(closed.connection for closed in due)
        return due

    def closed(self, conn: int, time_ns: int, how: str = "fin", by: str = "") -> None:
        connection = self._connections.pop(conn, None)
        self._early.pop(conn, None)
        self._reported.discard(conn)
        ended = self._ended.pop(conn, None)
        if ended is not None and ended.by == by:  # what came first ended it, as in a capture of packets
            how, time_ns = ended.how, ended.time_ns if by == "broker" else time_ns
        if connection is not None:
            self._pass_on_last(conn, connection.close(time_ns))
        how = self._failed.pop(conn, how)
        self._pass_on(Closed(conn, time_ns, "" if how == "lost" else how, by))
