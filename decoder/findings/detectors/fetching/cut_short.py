"""Responses that a client does not take: it ends the connection while one arrives, because of its size."""

from __future__ import annotations

from ....connection.connection import Opaque
from ....connection.exchange import Exchange, State
from ....wire.frame import Direction
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.formatting import duration, times
from ...engine.traffic import ClientConnection, ClientIdentity
from ..network.first_bytes import announced


class ResponseCutShort(Detector):
    """A consumer that simply stops leaves a cut response behind, too: so it takes several, of connections that never got a response
    of that API."""

    id = "response-too-large"
    severity = Severity.HIGH
    title = "a client ends its connection inside a response again and again: the response is larger than it accepts"
    why = (
        "librdkafka compares the size that a response announces with receive.message.max.bytes (100000000 unless set), and disconnects "
        "at once if it is larger ('Invalid response size'); then it fetches the same data again. fetch.max.bytes is no exact limit: "
        "the broker sends a whole first batch, and the response has headers. Other clients limit responses in similar ways."
    )
    remedy = (
        "raise the client's limit for responses well above fetch.max.bytes (librdkafka: receive.message.max.bytes; fluent-bit: "
        "buffer_max_size), or lower fetch.max.bytes and max.partition.fetch.bytes (librdkafka: fetch.message.max.bytes); it is the "
        "client's configuration"
    )
    wanted = Wanted.FAILED

    SMALLEST = 64 << 10
    """Bytes: nobody limits responses further."""
    TIMES = 3

    def setup(self) -> None:
        self._waiting: BoundedDict[int, Exchange] = BoundedDict(1024)
        self._begun: BoundedDict[int, tuple[Exchange, int, int]] = BoundedDict(1024)
        """By connection that has just ended: the request, and the bytes of its response that were announced and came."""
        self._cut: BoundedDict[tuple[ClientIdentity, int], int] = BoundedDict(1024)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is State.NO_RESPONSE and conn.number not in self._waiting:
            self._waiting[conn.number] = exchange

    def stray(self, conn: ClientConnection, opaque: Opaque) -> None:
        if opaque.direction is not Direction.RESPONSE or "ended inside" not in opaque.reason or len(opaque.data) < 8:
            return
        exchange, size = self._waiting.get(conn.number), announced(opaque.data)
        if exchange is None or size < self.SMALLEST:
            return
        if exchange.correlation_id == int.from_bytes(opaque.data[4:8], "big", signed=True):
            self._begun[conn.number] = exchange, size, len(opaque.data) - 4

    def closed(self, conn: ClientConnection) -> None:
        self._waiting.pop(conn.number, None)
        begun = self._begun.pop(conn.number, None)
        if begun is None or conn.by != "client" or conn.lost:
            return
        exchange, size, came = begun
        if any(api == exchange.api_key for api, *_ in conn.seen_kinds):
            return
        after = (conn.closed_ns or 0) - (exchange.request_time_ns or 0)
        key = conn.identity, exchange.api_key
        self._cut[key] = self._cut.get(key, 0) + 1
        if self._cut[key] < self.TIMES or came * 2 > size:
            return
        found = self.report(key, exchange, time_ns=conn.closed_ns, facts=conn.facts_of(exchange), size=size)
        found.count = max(found.count, self._cut[key])
        found.about["size"] = max(size, found.about["size"])
        found.seen = (
            f"{conn.who} ends its connection to {conn.where} inside the response to {exchange.api} v{exchange.api_version}, which "
            f"announces {found.about['size']} bytes, after {came} of them and "
            f"{duration(after)} ({times(found.count)})"
        )
