"""Requests without a response."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, times
from ...engine.traffic import ClientConnection
from ...models.response_times import JOIN_GROUP, LONG_POLLS, SYNC_GROUP, ResponseTimes, own_wait_ns

PRODUCE = facts.api_key("Produce")
API_VERSIONS = facts.api_key("ApiVersions")
_BEGINNINGS = facts.api_key_set("ApiVersions", "SaslHandshake", "SaslAuthenticate")


def awaits_nothing(exchange: Exchange) -> bool:
    """Whether this is a Produce with acks=0, which gets no response."""
    message = exchange.request_view if exchange.api_key == PRODUCE else None
    return message is not None and message["acks"] == 0


def shown_ns(conn: ClientConnection, exchange: Exchange) -> int:
    """How long a packet capture shows the connection while a request waits: after that the capture may have ended."""
    return max(conn.last_ns - (exchange.request_time_ns or conn.last_ns), 0)


@dataclass(slots=True)
class _Lost:
    """The requests of one client and broker that got no answer. `seen`: of the longest wait. `pause_ns`: the shortest silence before one
    of them."""

    seen: str = ""
    pause_ns: int = 1 << 63
    apis: set[int] = field(default_factory=set)


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
    explains = ("closed-without-answer", "resent-without-idempotence", "connection-churn")

    LATE_NS = 30 * SECOND
    """request.timeout.ms of Java; librdkafka's socket.timeout.ms is 60 s."""
    BEYOND_NS = 5 * SECOND
    """Over what the request itself allows (timeout_ms of Produce, the rebalance timeout of JoinGroup ...)."""
    GIVEN_UP_NS = 3 * SECOND
    """A client that closes its connection after waiting this long did not stop by chance."""
    IDLE_NS = 60 * SECOND
    """The shortest time after which networks forget a connection without traffic, in common defaults."""
    NEVER = 2
    """Lost requests of one API from which on it is said that the broker never answers it."""

    def setup(self) -> None:
        self.response_times = self.traffic.model(ResponseTimes)  # it knows `ClientConnection.muted_ns`, too
        self._lost: dict[object, _Lost] = {}
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
        for key, finding in self._found.items():
            self._explain(finding, self._lost[key])

    def _explain(self, finding: Finding, lost: _Lost) -> None:
        """What the requests have in common."""
        finding.seen, finding.why, finding.remedy = lost.seen, self.why, self.remedy
        if lost.pause_ns >= self.IDLE_NS:
            pause = duration(lost.pause_ns)
            each = "each came" if finding.count > 1 else "it came"
            finding.seen += f"; {each} after at least {pause} without traffic on its connection"
            finding.about["idle_ms"] = lost.pause_ns // 1_000_000
            finding.why = (
                "a load balancer, NAT gateway or firewall in between probably dropped the connection while it was idle, and told neither "
                "side: Azure does so after 4 minutes, AWS network load balancers after 350 s, Google Cloud after 10 minutes. The request is "
                "lost, and the client waits for request.timeout.ms (librdkafka: socket.timeout.ms). " + self.why
            )
            finding.remedy = (
                f"let the client close idle connections first: connections.max.idle.ms below {pause}, for example 180000 (Java, "
                "librdkafka; kafka-python: connections_max_idle_ms); TCP keepalive helps where the network counts it "
                "(librdkafka: socket.keepalive.enable=true)"
            )
        elif len(lost.apis) == 1:
            (api_key,) = lost.apis
            answered = {key for broker, key in self.response_times.histograms if broker == finding.about.get("broker")}
            if api_key == API_VERSIONS and not answered:
                finding.seen += "; this broker answered no request at all, and ApiVersions is the first one of a connection"
                finding.why = (
                    "likeliest first: the broker accepts connections but processes no requests, because it hangs or is still starting; "
                    "something else listens there, such as a load balancer without a live broker behind it; or it is Kafka 0.9, which does "
                    "not know ApiVersions (0.10 brought it) and keeps silent instead of refusing it."
                )
                finding.remedy = (
                    "broker: check whether it runs and what its log says, and its release. If it is Kafka 0.9: upgrade it, or tell the client "
                    "(librdkafka: api.version.request=false and broker.version.fallback=0.9.0; kafka-python: api_version=(0, 9))"
                )
            elif finding.count >= self.NEVER and api_key not in answered | {JOIN_GROUP, SYNC_GROUP} and answered - _BEGINNINGS:
                api = facts.api_name(api_key)
                finding.seen += f"; this broker never answered {api}, but it answered other requests"
                finding.why = (
                    f"the network and the broker work, only {api} fails: the broker (or a proxy before it) cannot process this API or "
                    "these requests, or waits for another broker. " + self.why
                )
                finding.remedy = f"check the broker's log for errors while it processes {api}; if it is not Apache Kafka, report it to its developers"

    def _report(self, conn: ClientConnection, exchange: Exchange, until_ns: int, how: str, behind: int = 0) -> None:
        waited = until_ns - (exchange.request_time_ns or until_ns)
        key = conn.identity, conn.broker
        waiting = conn.number, exchange.correlation_id
        if waiting in self._reported and key in self._found:
            finding = self._found[key]
        else:
            finding = self.report(key, exchange, facts=conn.facts_of(exchange))
        self._reported[waiting] = True
        lost = self._lost.setdefault(key, _Lost())
        lost.apis.add(exchange.api_key)
        lost.pause_ns = min(lost.pause_ns, conn.pause_ns)
        if waited < finding.about.get("waited_ms", -1):
            return
        finding.about["waited_ms"] = waited // 1_000_000
        rest = f", and {behind} more request{'s' * (behind != 1)} behind it" if behind > 0 else ""
        count = f" ({times(finding.count)})" if finding.count > 1 else ""
        lost.seen = (
            f"{exchange.api} v{exchange.api_version} of {conn.who} to {conn.where} got no answer for {duration(waited)}, "
            f"{how}{rest}{count}"
        )
