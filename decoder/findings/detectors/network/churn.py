"""Connections that are short-lived, never used, too many, or lost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict, Tally
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, number, several, times
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.response_times import LONG_POLLS
from .unanswered import awaits_nothing

ROUTINE = facts.api_key_set(
    "ApiVersions", "Metadata", "SaslHandshake", "SaslAuthenticate", "FindCoordinator", "InitProducerId"
)
"""What clients send before their first real request."""
PRODUCE = facts.api_key("Produce")


@dataclass(slots=True)
class _Work:
    """What a connection did beside the routine: requests by api key."""

    routine: int = 0
    others: dict[int, int] = field(default_factory=dict)

    @property
    def produced(self) -> int:
        return self.others.get(PRODUCE, 0)


@dataclass(slots=True)
class _Brief:
    """The short connections of one client to one broker: when they ended and whether they brought a record or two."""

    ends: deque[tuple[int, bool]]
    lives_ns: int = 0
    count: int = 0
    setup: int = 0


class ConnectionChurn(Detector):
    id = "connection-churn"
    severity = Severity.LOW
    title = "many short connections: a client is created and discarded for each record or request"

    SHORT_NS = 5 * SECOND
    """A long-lived client keeps a connection for minutes."""
    REQUESTS = 3
    """Beside the routine (ApiVersions, Metadata ...): who did more, used it."""
    COUNT = 30
    WITHIN_NS = 60 * SECOND
    """Connections to one broker in a minute: a test or a command-line tool opens about ten."""
    ONE_RECORD = 12
    """Connections to one broker with one or two Produce requests each, within the same time: a client per record."""
    WORSE_PER_MINUTE = 600

    def setup(self) -> None:
        self._work: BoundedDict[int, _Work] = BoundedDict(8192)
        # By client and broker: an instance has a connection to each broker that it needs.
        self._brief: BoundedDict[tuple[ClientIdentity, str], _Brief] = BoundedDict(4096)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        work = self._work.of(conn.number, _Work)
        if exchange.api_key in ROUTINE:
            work.routine += 1
        else:
            work.others[exchange.api_key] = work.others.get(exchange.api_key, 0) + 1

    def closed(self, conn: ClientConnection) -> None:
        work = self._work.pop(conn.number, None)
        ended, lived = conn.closed_ns or 0, (conn.closed_ns or 0) - conn.opened_ns
        if work is None or not conn.how or not conn.established or lived > self.SHORT_NS:
            return
        if conn.by == "broker":
            return  # the broker closed it, which is another finding
        if sum(work.others.values()) > self.REQUESTS:
            return
        brief = self._brief.of((conn.identity, conn.broker), lambda: _Brief(deque(maxlen=4 * self.COUNT)))
        brief.ends.append((ended, 0 < work.produced <= self.REQUESTS))
        brief.count += 1
        brief.lives_ns += lived
        brief.setup += work.routine
        recent = [one for at, one in brief.ends if ended - at <= self.WITHIN_NS]
        records = sum(recent)
        if len(recent) < self.COUNT and records < self.ONE_RECORD:
            return
        # A client that produces has a connection for its bootstrap, too.
        per_record = records * 3 >= len(recent)
        finding = self.report(
            conn.identity,
            None,
            "each connection costs TCP (and TLS and SASL) round trips, ApiVersions and Metadata before the first "
            "record, and memory and network-thread time on the broker; nothing is batched. Brokers may refuse it "
            "(max.connection.creation.rate, KIP-612).",
            "create one producer (or consumer, or admin client) when the application starts, share it among threads, "
            "and close it when the application exits; do not call flush() and close() for each record"
            if per_record
            else "keep one client for as long as the application runs; look for a job that is started repeatedly, or "
                 "a loop of failing clients",
            time_ns=ended,
            **conn.facts,
            api="Produce" if per_record else None,
            per_minute=0,
        )
        if finding.count == 1:
            finding.count = brief.count
            finding.first_ns = min(at for at, _ in brief.ends)
        span = max(ended - min(at for at, _ in brief.ends), SECOND)
        per_minute = finding.about["per_minute"] = round(len(brief.ends) * 60 * SECOND / max(span, 10 * SECOND))
        heavy = per_record or per_minute >= self.WORSE_PER_MINUTE
        finding.severity = Severity.MEDIUM if heavy else Severity.LOW
        finding.about["pattern"] = "a client per record" if per_record else "short connections"
        what = (
            f"creates a new client for every record or two and discards it: {records} connections of the last "
            f"{len(recent)} carried one or two Produce requests"
            if per_record
            else "connects, does almost nothing and disconnects, over and over"
        )
        finding.seen = (
            f"{conn.who} {what}; {finding.count:,} connections, {duration(brief.lives_ns / brief.count)} each on "
            f"average, {number(brief.setup / brief.count)} setup requests each"
        )


class UnusedConnections(Detector):
    id = "unused-connections"
    severity = Severity.INFO
    title = "connections are opened and closed again without a single request"
    why = (
        "health checks of load balancers, port probes and clients that give up while connecting look like this. Each "
        "one counts against max.connections.per.ip and takes network-thread time."
    )
    remedy = "if it is a health check, ignore it or run it less often; otherwise find out what runs on that host"

    COUNT = 5
    """Clients open an extra connection now and then."""
    MANY_PER_SECOND = 2

    def setup(self) -> None:
        self._unused: BoundedDict[tuple[str, str], Tally] = BoundedDict(4096)
        self._unframed: BoundedDict[int, bool] = BoundedDict(8192)

    def stray(self, conn: ClientConnection, opaque: object) -> None:
        self._unframed[conn.number] = True  # TLS, SASL without frames

    def closed(self, conn: ClientConnection) -> None:
        unframed = self._unframed.pop(conn.number, False)
        if unframed or conn.requests or conn.answers or not conn.established or not conn.how or conn.lost:
            return
        key, at = (conn.client_host, conn.broker), conn.closed_ns or 0
        tally = self._unused.of(key, Tally)
        tally.add(at)
        count = tally.count
        if count < self.COUNT:
            return
        finding = self.report(key, None, time_ns=at, **conn.facts)
        finding.count, finding.first_ns = count, tally.first_ns
        lasting = max(at - tally.first_ns, SECOND)
        often = count > 20 and count * SECOND / lasting >= self.MANY_PER_SECOND
        finding.severity = Severity.LOW if often else Severity.INFO
        finding.seen = (
            f"{conn.client_host} opened {several(count, 'connection')} to {conn.where} in {duration(lasting)} and closed them without "
            "a single request"
        )


class ManyConnections(Detector):
    id = "many-connections"
    severity = Severity.INFO
    title = "one client holds very many connections to one broker at the same time"
    why = (
        "a client needs one to three connections per broker. Each takes buffers on the broker and counts against "
        "max.connections and max.connections.per.ip; each producer batches separately."
    )
    remedy = (
        "share one producer among the threads of a process instead of one each; close clients that are no longer used; "
        "give different applications different client ids, so that they can be distinguished"
    )
    wanted = Wanted.NEW

    MANY = 50
    """A client has one to three connections per broker: this is twenty clients, or a pool of them."""
    TOO_MANY = 250

    def setup(self) -> None:
        self._open: BoundedDict[tuple[ClientIdentity, str], set[int]] = BoundedDict(4096)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if conn.requests > 3:
            return  # counted by then: the client is known after one or two requests
        key = conn.identity, conn.broker
        held = self._open.of(key, set)
        if conn.number in held:
            return
        held.add(conn.number)
        held.intersection_update(self.traffic.connections)
        if len(held) < self.MANY:
            return
        finding = self.report(key, exchange, facts=conn.facts)
        finding.count = max(finding.count, len(held))
        finding.severity = Severity.LOW if finding.count >= self.TOO_MANY else Severity.INFO
        finding.about["connections"] = finding.count
        finding.seen = f"{conn.who} holds {finding.count} connections to {conn.where} at the same time"


class ClosedByBroker(Detector):
    id = "closed-without-answer"
    severity = Severity.LOW
    title = "the broker ended connections (including idle ones) while a request was waiting for its answer"
    wanted = Wanted.NEW

    LOGIN = facts.api_key_set("ApiVersions", "SaslHandshake", "SaslAuthenticate")
    """A connection that got no further was refused (TLS, SASL, another protocol): other detectors report why."""

    IDLE_NS = 5 * SECOND
    JUST_SENT_NS = 2 * SECOND
    """A request sent this shortly before the end, after a pause, crossed the close."""
    OFTEN = 3
    HANDSHAKE = facts.api_key("SaslHandshake")

    def setup(self) -> None:
        self._answered: BoundedDict[tuple[ClientIdentity, str, int], bool] = BoundedDict(8192)
        """The APIs that a broker has answered to a client."""
        self._refused: BoundedDict[tuple[ClientIdentity, str, int], int] = BoundedDict(1024)
        """How often it closed on one that it never answered, or on SaslHandshake."""
        self._without: BoundedDict[int, list[Exchange]] = BoundedDict(1024)
        self._served: BoundedDict[int, bool] = BoundedDict(8192)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is State.NO_RESPONSE:
            if not awaits_nothing(exchange) and len(waiting := self._without.setdefault(conn.number, [])) < 20:
                waiting.append(exchange)
            return
        self._without.pop(conn.number, None)
        if exchange.state is State.PAIRED:
            self._answered[conn.identity, conn.broker, exchange.api_key] = True
        if exchange.api_key not in self.LOGIN:
            self._served[conn.number] = True

    def closed(self, conn: ClientConnection) -> None:
        last = (conn.last_activity_ns, conn.pause_ns) if conn.last_activity_ns >= 0 else None
        waiting = self._without.pop(conn.number, [])
        served = self._served.pop(conn.number, False)
        if conn.by != "broker" or conn.lost:
            return
        ended = conn.closed_ns or 0
        lost = [e for e in waiting if e.api_key not in LONG_POLLS and not e.undecoded]
        if not served and not (lost and conn.answers and lost[0].api_key == self.HANDSHAKE):
            return
        offered = conn.about.range(lost[0].api_key) if lost else None
        if lost and offered is not None and not offered[0] <= lost[0].api_version <= offered[1]:
            return  # another finding: the version was refused
        if not lost:
            if last is not None and not waiting and ended - last[0] >= self.IDLE_NS:
                self._idle(conn, ended - last[0])
            return
        asked = lost[0].request_time_ns or ended
        pause = last[1] if last is not None else 0
        idle = pause >= self.IDLE_NS and ended - asked <= self.JUST_SENT_NS
        if not idle and ended - asked <= self.JUST_SENT_NS and self._of_one_api(conn, lost[0], ended - asked):
            return
        if not served:
            return
        finding = self._report((conn.identity, conn.broker, idle), conn, lost[0], idle, pause)
        if finding.count >= self.OFTEN:
            finding.severity = Severity.MEDIUM
        names = ", ".join(sorted({e.api for e in lost}))
        finding.seen = (
            f"{conn.where} ended a connection of {conn.who}"
            + (f" that had been idle for {duration(pause)}" if idle else "")
            + f" and left {several(len(lost), 'request')} ({names}) without an answer, "
            + f"{duration(ended - asked)} after {'they were' if len(lost) > 1 else 'it was'} sent ({times(finding.count)})"
        )

    def _of_one_api(self, conn: ClientConnection, exchange: Exchange, after_ns: int) -> bool:
        """Whether the broker closes on each request of this API: from the third connection on, which is reported."""
        kind = conn.identity, conn.broker, exchange.api_key
        answered, handshake = kind in self._answered, exchange.api_key == self.HANDSHAKE
        if not handshake and (answered or conn.about.range(exchange.api_key) is None):
            return False
        count = self._refused[kind] = self._refused.get(kind, 0) + 1
        if count < self.OFTEN:
            return False
        why = (
            (
                "SaslHandshake names the mechanism only; credentials come after it. So the broker (or a load balancer or proxy in front "
                "of it) does not close because of them: it limits connections or connects per second (MSK does, by instance size and "
                "for IAM), it stops, or it fails to prepare the mechanism."
            )
            if handshake
            else f"the connection negotiated, and its other requests are answered; {exchange.api} v{exchange.api_version} is not, though "
            "the broker offers it. A proxy that filters by API closes so (Envoy's kafka_broker filter, Kroxylicious, gateways of cloud "
            "providers); a broker does if the request is over its socket.request.max.bytes, or if it cannot read it or fails on it."
        )
        remedy = (
            "check the limits of the broker or service (max.connection.creation.rate, max.connections.per.ip; on MSK the quota of IAM "
            "connections), and its log for this mechanism; let the client reconnect less often (reconnect.backoff.ms)"
            if handshake
            else f"look for {exchange.api} in the configuration of the proxy (its allow and deny lists, the Kafka release it knows), or in "
            "the broker's log: it is not the client that must change"
        )
        finding = self.report(
            ("api", *kind), exchange, why, remedy, severity=Severity.MEDIUM if answered else Severity.HIGH, time_ns=conn.closed_ns,
            facts=conn.facts_of(exchange), idle=False,
        )  # fmt: skip
        finding.count = max(finding.count, count)
        before_it = self._found.get((conn.identity, conn.broker, False))
        if before_it is not None and before_it.count < self.OFTEN and before_it.about.get("api") == exchange.api:
            del self._found[conn.identity, conn.broker, False]
        never = "some were answered" if answered else "none was ever answered"
        before = "before the client sent any credentials" if handshake else "other requests are answered"
        finding.seen = (
            f"{conn.where} closes the connection of {conn.who} on {exchange.api} v{exchange.api_version} "
            f"({exchange.request_size} bytes) instead of answering, {duration(after_ns)} after it was sent ({times(finding.count)}; {never}); {before}"
        )
        return True

    def _idle(self, conn: ClientConnection, idle: int) -> None:
        finding = self._report(("idle", conn.identity), conn, None, True, idle)
        finding.severity = Severity.INFO
        finding.seen = (
            f"{conn.where} closed idle connections of {conn.who} {times(finding.count)}, after {duration(idle)} without a "
            "request; nothing was lost"
        )

    def _report(
        self, key: object, conn: ClientConnection, exchange: Exchange | None, idle: bool, pause: int
    ) -> Finding:
        if idle:
            why = (
                "brokers close connections that are idle for connections.max.idle.ms (10 min), load balancers and "
                "firewalls often sooner (4 or 5 min). A request sent at that moment is lost: the client must send it "
                "again, and does not know whether it was processed."
            )
            remedy = (
                f"let the client close first: connections.max.idle.ms under {duration(pause)} (Java default 540000; "
                "kafka-python: connections_max_idle_ms; librdkafka: connections.max.idle.ms, 0 means never); for load "
                "balancers also socket.keepalive.enable=true (librdkafka)"
            )
        else:
            why = (
                "brokers end a connection when they stop, and when they cannot accept a request: an unknown version "
                "or field, a frame over socket.request.max.bytes, a failed login."
            )
            remedy = (
                "check the broker's log at that time: 'Closing socket', InvalidRequestException, a shutdown; after a "
                "restart, clients reconnect and send again"
            )
        return self.report(key, exchange, why, remedy, time_ns=conn.closed_ns, facts=conn.facts_of(exchange), idle=idle)
