"""A part of a capture as a capture of its own: the selected exchanges, whole and unchanged.

Two passes: the first selects (a filter may look into responses, and a connection's first requests are kept only if another
exchange of it is), the second copies. One bit per exchange is kept in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from ...decoder import Exchange, ExchangeDone, RequestSeen
from ...decoder.connection.events import Closed, ConnectionEvent, Missing, NonKafkaData, Opened
from ...decoder.filter import Filter
from ...decoder.schema import facts
from ..pcap.reassembly import KAFKA_PORTS
from ..reading.events import EventReader

_HANDSHAKES = facts.api_key_set("ApiVersions", "SaslHandshake", "SaslAuthenticate")


@dataclass(frozen=True)
class CutSelection:
    """The part to select; None means no condition. All conditions must hold.

    `start_ns` to `end_ns`: when the request was sent (of an orphan, when the response came); times below 10^15 count
    from the beginning of the capture. `numbers`: first and last, as `barnabas ui` counts them. `handshakes`: also what
    connections begin with, ApiVersions and SASL, of those that anything is wanted of.
    """

    wanted: Filter | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    connections: frozenset[int] | None = None
    numbers: tuple[int, int] | None = None
    handshakes: bool = True

    @property
    def picks(self) -> bool:
        """Whether exchanges are picked one by one, so that what is none does not count."""
        return self.wanted is not None or self.numbers is not None


RELATIVE = 10**15
"""Times below this are counted from the beginning: it is 11 days, and no capture is from January 1970."""


class Cut:
    """`events` gives the part of a capture. Raises what `EventReader` does. `tick(bytes read, of how many)`."""

    def __init__(
        self,
        path: Path,
        part: CutSelection,
        ports: Collection[int] = KAFKA_PORTS,
        tick: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.part, self._path, self._ports, self._tick = part, path, ports, tick
        self.exchanges = self.of_exchanges = 0
        self.note: str | None = None
        self._bits = bytearray()
        self._connections: set[int] = set()
        self._pass = 0

    def events(self) -> Iterator[ConnectionEvent]:
        """The part, in order."""
        self._decide()
        walk = _Walk()
        for event in self._events():
            walk.see(event)
            if isinstance(event, RequestSeen | ExchangeDone):
                if self._keeps(walk, event.exchange):
                    yield event
            elif isinstance(event, Opened | Closed):
                if walk.connection in self._connections:
                    yield event
            elif walk.connection in self._connections and self._beside(event):
                yield event

    def _events(self) -> Iterator[ConnectionEvent]:
        reader = EventReader(self._path, self._ports)
        self._pass += 1
        for event in chain(reader.read(), reader.end()):
            self._tick(reader.bytes_read + (self._pass - 1) * reader.bytes_known, 2 * reader.bytes_known)
            yield event
        self.note = reader.note

    # the first pass

    def _decide(self) -> None:
        walk, part = _Walk(), self.part
        self._begun: int | None = None
        needs_now = part.wanted is not None and part.wanted.needs_now
        wanted = part.wanted.at(self._end()) if needs_now and part.wanted else part.wanted
        self._pass = 0
        numbers = 0
        for event in self._events():
            if self._begun is None:
                self._begun = time_of(event)
            walk.see(event)
            if isinstance(event, ExchangeDone):
                numbers += 1
                self._judge(walk, event.exchange, numbers, wanted)
            elif isinstance(event, Opened | Closed | NonKafkaData) and self._of_interest(event):
                self._connections.add(walk.connection)
        for exchange in sorted(walk.waiting(), key=lambda e: walk.ordinal(e)):
            numbers += 1
            walk.connection = walk.of_exchange(exchange)
            self._judge(walk, exchange, numbers, wanted)
        self.of_exchanges = numbers

    def _end(self) -> int:
        return max((time_of(event) for event in self._events()), default=0)

    def _judge(self, walk: _Walk, exchange: Exchange, number: int, wanted: Filter | None) -> None:
        part = self.part
        if part.connections is not None and exchange.connection not in part.connections:
            return
        if part.numbers is not None and not part.numbers[0] <= number <= part.numbers[1]:
            return
        time_ns = exchange.request_time_ns if exchange.request_time_ns is not None else exchange.response_time_ns
        if not self._in_time(time_ns or 0) or (wanted is not None and not wanted(exchange)):
            return
        self._connections.add(walk.connection)
        self.exchanges += 1
        ordinal = walk.ordinal(exchange)
        if ordinal >= len(self._bits) * 8:
            self._bits.extend(bytes(max(ordinal // 8 + 1 - len(self._bits), 1 << 12)))
        self._bits[ordinal // 8] |= 1 << ordinal % 8

    def _of_interest(self, event: Opened | Closed | NonKafkaData) -> bool:
        """A connection without exchanges, where they are not picked one by one."""
        part = self.part
        if part.picks or (part.connections is not None and event.connection not in part.connections):
            return False
        return self._in_time(time_of(event))

    def _in_time(self, time_ns: int) -> bool:
        start, end = self._moment(self.part.start_ns), self._moment(self.part.end_ns)
        return (start is None or time_ns >= start) and (end is None or time_ns <= end)

    def _moment(self, time_ns: int | None) -> int | None:
        return time_ns + (self._begun or 0) if time_ns is not None and abs(time_ns) < RELATIVE else time_ns

    # the second pass

    def _keeps(self, walk: _Walk, exchange: Exchange) -> bool:
        ordinal = walk.now
        if ordinal < len(self._bits) * 8 and self._bits[ordinal // 8] >> ordinal % 8 & 1:
            return True
        handshake = self.part.handshakes and exchange.api_key in _HANDSHAKES
        return handshake and walk.connection in self._connections

    def _beside(self, event: NonKafkaData | Missing) -> bool:
        """Bytes that are no exchange."""
        if isinstance(event, NonKafkaData) and event.opaque.framed:
            return self.part.handshakes  # a token
        return not self.part.picks and self._in_time(time_of(event))


class _Walk:
    """Numbers exchanges and connections in the order in which they first appear, alike in every pass."""

    def __init__(self) -> None:
        self.connection = -1
        self.now = -1
        self._exchanges: dict[int, tuple[int, Exchange, int]] = {}
        self._seen = self._opened = 0
        self._numbers: dict[int, int] = {}

    def see(self, event: ConnectionEvent) -> None:
        if isinstance(event, RequestSeen | ExchangeDone):
            exchange = event.exchange
            self.connection = self._of(exchange.connection)
            known = self._exchanges.get(id(exchange))
            self.now = known[0] if known else self._seen
            if known is None:
                self._seen += 1
            if isinstance(event, RequestSeen):
                self._exchanges[id(exchange)] = self.now, exchange, self.connection
            elif known:
                del self._exchanges[id(exchange)]
            return
        if isinstance(event, Opened):
            self._numbers.pop(event.connection, None)
        self.connection = self._of(event.connection)

    def _of(self, number: int) -> int:
        if number not in self._numbers:
            self._numbers[number] = self._opened
            self._opened += 1
        return self._numbers[number]

    def ordinal(self, exchange: Exchange) -> int:
        """The number of an exchange that waits, or came last."""
        known = self._exchanges.get(id(exchange))
        return known[0] if known else self.now

    def of_exchange(self, exchange: Exchange) -> int:
        """The connection of one that waits."""
        return self._exchanges[id(exchange)][2]

    def waiting(self) -> list[Exchange]:
        return [exchange for _, exchange, _ in self._exchanges.values()]


def time_of(event: ConnectionEvent) -> int:
    """When an event was complete, as far as its times show."""
    if isinstance(event, RequestSeen):
        return event.exchange.request_time_ns or 0
    if isinstance(event, ExchangeDone):
        return event.exchange.response_time_ns or event.exchange.request_time_ns or 0
    return event.opaque.time_ns if isinstance(event, NonKafkaData) else event.time_ns
