"""Requests without a response."""

from __future__ import annotations

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, times
from ...engine.traffic import ClientConnection
from ...models.response_times import LONG_POLLS, ResponseTimes, own_wait_ns

PRODUCE = facts.api_key("Produce")


def awaits_nothing(exchange: Exchange) -> bool:
    """Whether this is a Produce with acks=0, which gets no response."""
    message = exchange.request_view if exchange.api_key == PRODUCE else None
    return message is not None and message["acks"] == 0


def shown_ns(conn: ClientConnection, exchange: Exchange) -> int:
    """How long a packet capture shows the connection while a request waits: after that the capture may have ended."""
    return max(conn.last_ns - (exchange.request_time_ns or conn.last_ns), 0)


class UnansweredRequest(Detector):
    id = "unanswered-request"
    severity = Severity.HIGH
    title = "requests get no answer for longer than clients wait, or until the client gives up"
    why = (
        "a broker answers the requests of a connection in order, so all later ones wait too. The client gives up "
        "after request.timeout.ms (Java 30 s; librdkafka: socket.timeout.ms 60 s), reconnects and sends the request "
        "again, without knowing whether the broker processed it."
    )
    remedy = (
        "check the broker at that time: its log, garbage collection, disks, RequestQueueTimeMs and its request "
        "handler threads (num.io.threads); if other connections were answered, check the network in between, "
        "firewalls that drop idle connections, and proxies"
    )
    wanted = Wanted.FAILED

    LATE_NS = 30 * SECOND
    """request.timeout.ms of Java; librdkafka's socket.timeout.ms is 60 s."""
    BEYOND_NS = 5 * SECOND
    """Over what the request itself allows (timeout_ms of Produce, the rebalance timeout of JoinGroup ...)."""
    GIVEN_UP_NS = 3 * SECOND
    """A client that closes its connection after waiting this long did not stop by chance."""

    def setup(self) -> None:
        self.traffic.model(ResponseTimes)  # it knows `ClientConnection.muted_ns`
        # Of each connection: exchanges that have just finished without a response. A response to a later request, or the
        # connection's end, follows at once.
        self._without: BoundedDict[int, list[Exchange]] = BoundedDict(1024)
        # Skipped requests: a broker that answers out of order still sends the response, as an orphan.
        self._skipped: BoundedDict[tuple[int, int], tuple[ClientConnection, Exchange, int]] = BoundedDict(1000)
        self._reported: BoundedDict[tuple[int, int], bool] = BoundedDict(
            4096
        )  # connection, correlation id: reported while it waited

    def _waited_ns(self, conn: ClientConnection, exchange: Exchange, now_ns: int) -> int:
        """How long a request waits, without the time that a quota mutes the connection, which is another finding."""
        return now_ns - max(exchange.request_time_ns or now_ns, conn.muted_ns)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is State.NO_RESPONSE and not awaits_nothing(exchange):
            waiting = self._without.setdefault(conn.number, [])
            if len(waiting) < 100:
                waiting.append(exchange)
        elif exchange.state is State.PAIRED and self._without:
            for skipped in self._without.pop(conn.number, ()):
                if not conn.lost:
                    at_ns = exchange.response_time_ns or 0
                    self._skipped[conn.number, skipped.correlation_id] = conn, skipped, at_ns
        elif exchange.state is State.ORPHAN:
            self._skipped.pop((conn.number, exchange.correlation_id), None)

    def closed(self, conn: ClientConnection) -> None:
        at_ns = conn.closed_ns or 0
        unanswered = self._without.pop(conn.number, []) + list(conn.waiting.values())
        if not unanswered or conn.lost:
            return
        first = min(unanswered, key=lambda e: e.request_time_ns or 0)
        waited = self._waited_ns(conn, first, at_ns)
        if not conn.how and not conn.complete:
            waited = min(waited, shown_ns(conn, first))
        allowed = own_wait_ns(first) + self.BEYOND_NS if first.api_key in LONG_POLLS else 0
        if waited >= max(self.GIVEN_UP_NS if conn.how else self.LATE_NS, allowed):
            who = (
                "the broker"
                if conn.by == "broker"
                else "the client"
                if conn.by == "client"
                else conn.by or "one of the two"
            )
            how = f"until {who} ended the connection" if conn.how else "until the capture ended"
            at_ns = at_ns if conn.how or conn.complete else (first.request_time_ns or at_ns) + waited
            self._report(conn, first, at_ns, how, len(unanswered) - 1)

    def finish(self, now_ns: int) -> None:
        for conn, skipped, at_ns in self._skipped.values():
            self._report(conn, skipped, at_ns, "while later requests were answered")
        self._skipped.clear()
        for conn in self.traffic.connections.values():
            first = next(iter(conn.waiting.values()), None)
            if first is None or conn.lost or awaits_nothing(first) or first.request_time_ns is None:
                continue
            waited = self._waited_ns(conn, first, now_ns)
            if not conn.complete:
                waited = min(waited, shown_ns(conn, first))
            if waited >= max(self.LATE_NS, own_wait_ns(first) + self.BEYOND_NS):
                self._report(conn, first, first.request_time_ns + waited, "so far", len(conn.waiting) - 1)

    def _report(self, conn: ClientConnection, exchange: Exchange, until_ns: int, how: str, behind: int = 0) -> None:
        waited = until_ns - (exchange.request_time_ns or until_ns)
        key = conn.identity, conn.broker
        waiting = conn.number, exchange.correlation_id
        if waiting in self._reported and key in self._found:
            finding = self._found[key]
        else:
            finding = self.report(key, exchange, facts=conn.facts_of(exchange))
        self._reported[waiting] = True
        if waited < finding.about.get("waited_ms", -1):
            return
        finding.about["waited_ms"] = waited // 1_000_000
        rest = f", and {behind} more request{'s' * (behind != 1)} behind it" if behind > 0 else ""
        count = f" ({times(finding.count)})" if finding.count > 1 else ""
        finding.seen = (
            f"{exchange.api} v{exchange.api_version} of {conn.who} to {conn.where} got no answer for {duration(waited)}, "
            f"{how}{rest}{count}"
        )
