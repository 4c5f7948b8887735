"""How connections ended that never worked, and why.

Several detectors use this: one verdict per connection keeps one fault from becoming several findings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar, NamedTuple

from ....connection.connection import Opaque, expects_no_response
from ....connection.exchange import Exchange, State
from ....schema import facts
from ....wire.frame import Direction
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Model, Wanted
from ...engine.traffic import ClientConnection, Traffic
from .first_bytes import KEPT, TLS, announced, protocol

_API_VERSIONS = facts.api_key("ApiVersions")
_PRODUCE = facts.api_key("Produce")
_SASL = facts.api_key_set("SaslHandshake", "SaslAuthenticate")

AT_ONCE_NS = 2_000_000_000
"""From the last request to the end. Brokers close within milliseconds, after a failed authentication within
connection.failed.authentication.delay.ms (100 ms); clients without a response give up after 10 s or more."""
MOST_REQUEST = 100 << 20
"""Bytes: brokers' socket.request.max.bytes unless set."""
STOP_NS = 1_000_000_000
"""A broker that stops ends its connections within this time."""
MOST_PAIRS = 4096
"""Most (client host, broker) pairs kept."""


class BrokerStop(NamedTuple):
    """Connections that worked and that their broker ended at about the same time."""

    first_ns: int = 0
    connections: int = 0


class Ending(Enum):
    """What the bytes and the end of a connection show."""

    FINE = auto()
    """It worked, or nothing is known."""
    FOREIGN = auto()
    """Another protocol than Kafka's, from either side."""
    TLS_SESSION = auto()
    """TLS from both sides."""
    TLS_REFUSED = auto()
    """A TLS hello that was not answered by TLS."""
    TLS_PORT = auto()
    """Requests in clear, answered by TLS."""
    SIZE = auto()
    """A frame size that no broker accepts."""
    EMPTY = auto()
    """The broker closed it before any bytes."""
    UNANSWERED = auto()
    """The first request was answered by a close."""
    BEFORE_SASL = auto()
    """ApiVersions was answered; the first request after it got the connection closed, and nobody authenticated."""


@dataclass(slots=True)
class ConnectionStart:
    """The start of one connection.

    `first_bytes`: of each direction, if they are not frames. `closed_on`: the request that was unanswered at
    the end. `token`: raw SASL tokens (SaslHandshake v0, GSSAPI of 0.9) were seen. `to_answer`: bytes of the last one, if it is the broker's.
    """

    answered: int = 0
    broken: bool = False
    sasl: bool = False
    token: bool = False
    to_answer: int = 0
    works: bool = False
    first_bytes: list[bytes] = field(default_factory=lambda: [b"", b""])
    closed_on: Exchange | None = None

    def of(self, conn: ClientConnection) -> Ending:
        """How it ended, or what is known before its end."""
        if self.works or self.broken or conn.lost:
            return Ending.FINE
        request, response = self.first_bytes
        if request and not conn.requests:
            return self._not_asked(request, response)
        if response and not self.answered:
            name = protocol(response, Direction.RESPONSE)
            return Ending.TLS_PORT if name == TLS else Ending.FOREIGN if name else Ending.FINE
        if conn.closed_ns is None or not conn.how or not conn.established or conn.by == "client":
            return Ending.FINE
        if not conn.requests:
            return Ending.EMPTY if conn.by == "broker" and not self.token else Ending.FINE
        last = self.closed_on
        if last is None or conn.closed_ns - (last.request_time_ns or 0) > AT_ONCE_NS:
            return Ending.FINE
        if last.request_size and last.request_size > MOST_REQUEST:
            return Ending.SIZE
        if not self.answered:
            return Ending.UNANSWERED
        offered = conn.about.range(last.api_key)
        known = offered is not None and offered[0] <= last.api_version <= offered[1]
        return Ending.BEFORE_SASL if known and not self.sasl and last.api_key not in _SASL else Ending.FINE

    @staticmethod
    def _not_asked(request: bytes, response: bytes) -> Ending:
        name = protocol(request, Direction.REQUEST)
        if name == TLS:
            return Ending.TLS_SESSION if protocol(response, Direction.RESPONSE) == TLS else Ending.TLS_REFUSED
        if name:
            return Ending.FOREIGN
        return Ending.SIZE if not 0 <= announced(request) <= MOST_REQUEST else Ending.FINE


class Endings(Model):
    """Follows connections until they work. `starts`: of those that do not work yet, by number. `unframed`: the one that has
    just got bytes that are not frames. `ended`: the one that has just ended. `works_since`: the exchange that last proved a
    connection to work."""

    id = "endings"
    wanted = Wanted.NEW

    def setup(self) -> None:
        self.starts: dict[int, ConnectionStart] = {}
        self.unframed: ConnectionStart | None = None
        self.ended: ConnectionStart | None = None
        self.works_since: Exchange | None = None
        self._worked: BoundedDict[tuple[str, str], None] = BoundedDict(MOST_PAIRS)
        self._stops: BoundedDict[str, BrokerStop] = BoundedDict(MOST_PAIRS)

    def opened(self, conn: ClientConnection) -> None:
        if conn.established:
            self.starts[conn.number] = ConnectionStart()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        start = self.starts.get(conn.number)
        if start is None or start.works:
            return
        if exchange.state is State.PAIRED:
            start.answered += 1
            start.sasl = start.sasl or exchange.api_key in _SASL
            if exchange.api_key != _API_VERSIONS and exchange.api_key not in _SASL:
                self._works(conn, start)
                self.works_since = exchange
        elif exchange.state is State.ORPHAN or (exchange.api_key == _PRODUCE and expects_no_response(exchange)):
            start.works = True
        elif start.closed_on is None:
            start.closed_on = exchange

    def stray(self, conn: ClientConnection, opaque: Opaque) -> None:
        self.unframed = None
        start = self.starts.get(conn.number)
        if start is None or start.works:
            return
        if opaque.framed:
            start.token = True
            start.to_answer = len(opaque.data) if opaque.direction is Direction.RESPONSE else 0
        elif opaque.reason.startswith("not ") or "ended inside" in opaque.reason:
            if not start.first_bytes[opaque.direction]:
                start.first_bytes[opaque.direction] = opaque.data[: 8 * KEPT]
                self.unframed = start
        else:
            start.broken = True  # bytes are missing: what follows may start in the middle of a frame

    def closed(self, conn: ClientConnection) -> None:
        start = self.starts.pop(conn.number, None)
        self.ended = None if start is None or start.works else start
        if start is not None and start.works and conn.by == "broker":
            now, stop = conn.closed_ns or 0, self.last_stop(conn)
            same = now - stop.first_ns <= STOP_NS
            self._stops[conn.broker] = BrokerStop(stop.first_ns, stop.connections + 1) if same else BrokerStop(now, 1)

    def last_stop(self, conn: ClientConnection) -> BrokerStop:
        """The last time that the broker ended connections that worked."""
        return self._stops.get(conn.broker) or BrokerStop()

    def _works(self, conn: ClientConnection, start: ConnectionStart) -> None:
        start.works, start.first_bytes = True, [b"", b""]
        self._worked[conn.client_host, conn.broker] = None

    def worked(self, conn: ClientConnection) -> bool:
        """Whether that client host ever got a real response from that broker: then the listener is not the wrong one."""
        return (conn.client_host, conn.broker) in self._worked


class EndingDetector(Detector):
    """A detector of connections that never worked: override `unframed` and `ended`."""

    dispatches: ClassVar[Mapping[str, str]] = {"stray": "unframed", "closed": "ended"}

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.endings = traffic.model(Endings)

    def stray(self, conn: ClientConnection, opaque: Opaque) -> None:
        if self.endings.unframed is not None:
            self.unframed(conn, self.endings.unframed)

    def closed(self, conn: ClientConnection) -> None:
        if self.endings.ended is not None:
            self.ended(conn, self.endings.ended, self.endings.ended.of(conn))

    def unframed(self, conn: ClientConnection, start: ConnectionStart) -> None:
        """Bytes arrived that are not frames; the connection goes on."""

    def ended(self, conn: ClientConnection, start: ConnectionStart, how: Ending) -> None:
        """A connection ended that never worked."""
