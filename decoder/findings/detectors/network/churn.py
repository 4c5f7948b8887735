"""Connections that are short-lived, never used, too many, or lost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from ....connection.exchange import Exchange, State
from ....reference.releases import release_order
from ....schema import facts
from ....schema.settings import holds_credentials, holds_no_credentials
from ...engine.counters import BoundedDict, Tally
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, number, several, times
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.offered_versions import since
from ...models.response_times import JOIN_GROUP, LONG_POLLS, SYNC_GROUP
from .endings import STOP_NS
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
    BUSY = 64
    """Requests, from which on a connection is none of those."""
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
        if conn.requests > self.BUSY:
            return
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
        if conn.requests > self.BUSY or sum(work.others.values()) > self.REQUESTS:
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


class _End(NamedTuple):
    """A connection that its broker ended. `idle_ns`: since its last request, -1 if one was waiting."""

    conn: ClientConnection
    at_ns: int
    idle_ns: int


class _Release(NamedTuple):
    order: tuple[int, ...]
    name: str


@lru_cache(1024)
def _came(api_key: int, version: int) -> _Release | None:
    """The release that a version came with."""
    name = since(api_key, version)
    return _Release(release_order(name), name) if name is not None else None


_GROUP_WAITS = {
    JOIN_GROUP: "JoinGroup is answered when all members that the group knows have joined again, or the longest of their rebalance timeouts is "
    "over (JoinGroup v0: session timeouts). So likeliest a member that died or is busy has not joined",
    SYNC_GROUP: "SyncGroup is answered when the group's leader has sent its assignment. So likeliest the leader died or is busy",
}
_WITH_VALUES = facts.api_key_set(
    "CreateTopics", "AlterConfigs", "IncrementalAlterConfigs", "CreateAcls", "AlterClientQuotas", "AlterUserScramCredentials",
)  # fmt: skip
"""APIs whose requests have free text, which a broker may fail to read."""


_FOR_RECORDS = facts.api_key_set("Fetch", "ShareFetch")


def _asked_for(exchange: Exchange) -> str:
    """The settings that an admin request changes; values only of settings that hold no credentials. "" for requests without."""
    message = exchange.request_view if exchange.api_key in _WITH_VALUES else None
    fields = message.to_dict() if message is not None else {}
    found = []
    for each in fields.get("resources") or fields.get("topics") or ():
        for config in each.get("configs") or ():
            name, value = config["name"], config.get("value")
            clear = holds_no_credentials(name) and not (value and holds_credentials(value))
            found.append(f"{name}{f'={value}' if clear else ''} of {each.get('resource_name', each.get('name'))}")
    return f"{', '.join(found[:3])}{' ...' if len(found) > 3 else ''}"[:200]


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
    PENDING_NS = 60 * SECOND
    """A broker that ends a connection after waiting this long for other members of a group did not stop by chance."""
    RESTART_NS = 10 * SECOND
    """From the end of idle connections to the first refused one: the broker stopped."""
    HANDSHAKE = facts.api_key("SaslHandshake")

    def setup(self) -> None:
        self._ends: BoundedDict[str, list[_End]] = BoundedDict(1024)
        """By broker: the connections that it ended last, within `STOP_NS`."""
        self._answered: BoundedDict[tuple[ClientIdentity, str, int], bool] = BoundedDict(8192)
        """The APIs that a broker has answered to a client."""
        self._refused: BoundedDict[tuple[ClientIdentity, str, int], int] = BoundedDict(1024)
        """How often it closed on one that it never answered, or on SaslHandshake."""
        self._without: BoundedDict[int, list[Exchange]] = BoundedDict(1024)
        self._served: BoundedDict[int, bool] = BoundedDict(8192)
        self._proven: BoundedDict[str, _Release] = BoundedDict(1024)
        """By broker: the newest release that an answered version came with."""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is State.NO_RESPONSE:
            if not awaits_nothing(exchange) and len(waiting := self._without.setdefault(conn.number, [])) < 20:
                waiting.append(exchange)
            return
        self._without.pop(conn.number, None)
        if exchange.state is State.PAIRED:
            self._answered[conn.identity, conn.broker, exchange.api_key] = True
            came, proven = _came(exchange.api_key, exchange.api_version), self._proven.get(conn.broker)
            if came is not None and (proven is None or came.order > proven.order):
                self._proven[conn.broker] = came
        if exchange.api_key not in self.LOGIN:
            self._served[conn.number] = True

    def opened(self, conn: ClientConnection) -> None:
        ends = self._ends.get(conn.broker) if not conn.established else None
        if ends is not None and conn.opened_ns - ends[0].at_ns <= self.RESTART_NS:
            ends.clear()
            del self._ends[conn.broker]

    def finish(self, now_ns: int) -> None:
        for broker in list(self._ends):
            self._settle(broker)

    def _settle(self, broker: str) -> None:
        """Connections that a broker ended at the same time were idle if all were for the same time; otherwise it stopped."""
        ends = self._ends.pop(broker)
        idle = [end.idle_ns for end in ends]
        if min(idle) >= self.IDLE_NS and max(idle) - min(idle) <= STOP_NS:
            for end in ends:
                self._idle(end)

    def _ended(self, conn: ClientConnection, idle_ns: int) -> None:
        ends, end = self._ends.get(conn.broker), _End(conn, conn.closed_ns or 0, idle_ns)
        if ends is not None and end.at_ns - ends[0].at_ns > STOP_NS:
            self._settle(conn.broker)
        ends = self._ends.of(conn.broker, list)
        if len(ends) < 100:
            ends.append(end)

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
        if last is not None:
            self._ended(conn, ended - last[0] if not waiting else -1)
        if not lost:
            poll = next((e for e in waiting if e.api_key in _FOR_RECORDS and not e.undecoded), None)
            after = ended - (poll.request_time_ns or ended) if poll is not None else 0
            if poll is None or not served or after > self.JUST_SENT_NS or not self._of_one_api(conn, poll, after):
                self._pending(conn, waiting)
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
        offered, asks = conn.about.range(exchange.api_key), _asked_for(exchange)
        if not handshake and (answered or (offered is None and conn.about.offered is not None)):
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
            else self._why_one_api(conn, exchange, offered is not None)
        )
        remedy = (
            "check the limits of the broker or service (max.connection.creation.rate, max.connections.per.ip; on MSK the quota of IAM "
            "connections), and its log for this mechanism; let the client reconnect less often (reconnect.backoff.ms)"
            if handshake
            else f"broker: look for the request in its log; correct the values{f' ({asks})' if asks else ''}, and report it to the broker's developers: "
            "a broker must refuse a request with an error, not end the connection"
            if exchange.api_key in _WITH_VALUES
            else f"look for {exchange.api} in the configuration of the proxy (its allow and deny lists, the Kafka release it knows), or in "
            "the broker's log: it is not the client that must change"
            if offered is not None
            else f"ask the broker: barnabas versions {conn.broker}; its log has the reason (InvalidRequestException). If it does not have the "
            "version, let the client negotiate"
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
            + (f"; it sets {asks}" if asks else "")
        )
        return True

    def _why_one_api(self, conn: ClientConnection, exchange: Exchange, offered: bool) -> str:
        """Why a broker ends connections on requests of one API only; `offered`: with a version that it offers."""
        api = f"{exchange.api} v{exchange.api_version}"
        large = f"the request ({exchange.request_size} bytes) is over the broker's socket.request.max.bytes"
        cannot = "the broker cannot read the request or fails on it"
        rejects = "a proxy rejects this API (Envoy's kafka_broker filter, Kroxylicious, gateways of cloud providers)"
        if exchange.api_key in _FOR_RECORDS:
            large, cannot = cannot, "a proxy fails on the records that it should pass on (a filter that decrypts, decodes or converts them)"
            return f"requests of other APIs are answered on the same connection; {api} never is. Likeliest first: {cannot}; {large}; {rejects}."
        if exchange.api_key in _WITH_VALUES:
            cannot, rejects = rejects, "the broker fails on the values of this request, instead of refusing them with an error"
        if offered:
            begins = f"the connection negotiated, and its other requests are answered; {api} is not, though the broker offers it."
            return f"{begins} Likeliest first: {rejects}; {large}; {cannot}."
        came, proven = _came(exchange.api_key, exchange.api_version), self._proven.get(conn.broker)
        begins = f"its other requests are answered; {api} is not, and which versions the broker offers was not seen."
        if came is not None and proven is not None and came.order <= proven.order:
            return f"{begins} It answers versions that came with Kafka {proven.name}, so it has this one too. Likeliest first: {large}; {cannot}; {rejects}."
        missing = f"it does not have this version, {f'which came with Kafka {came.name}' if came else 'which no known release has'}"
        return f"{begins} Likeliest first: {missing}; {large}; {cannot}; {rejects}."

    def _pending(self, conn: ClientConnection, waiting: list[Exchange]) -> None:
        """The broker ended a connection on which the client waited for the other members of a group."""
        exchange = next((each for each in waiting if each.api_key in _GROUP_WAITS), None)
        waited = (conn.closed_ns or 0) - (exchange.request_time_ns or 0) if exchange is not None else 0
        asked = exchange.request_view if exchange is not None else None
        if exchange is None or asked is None or waited < self.PENDING_NS:
            return
        fields = asked.to_dict()
        limits = ", ".join(
            f"{name} {duration(fields[name] * 1_000_000)}" for name in ("rebalance_timeout_ms", "session_timeout_ms") if fields.get(name, 0) > 0
        )
        finding = self.report(
            ("pending", conn.identity, conn.broker, exchange.api_key),
            exchange,
            f"{_GROUP_WAITS[exchange.api_key]}. Meanwhile nothing is sent on this connection, and what ends connections without traffic ends it: the "
            "broker after connections.max.idle.ms (10 min unless set), load balancers and firewalls mostly after 4 to 6 min. The client joins "
            "again, and waits again.",
            "configuration: lower the time that the group waits for lost members (session.timeout.ms, max.poll.interval.ms) below that of idle "
            "connections; find the member that does not join (kafka-consumer-groups.sh --describe --members), and stop it",
            severity=Severity.MEDIUM,
            facts=conn.facts_of(exchange),
            group=fields["group_id"],
            idle=True,
        )
        finding.seen = (
            f"{conn.where} ended the connection of {conn.who} after {exchange.api} v{exchange.api_version} for group {fields['group_id']!r} had "
            f"waited {duration(waited)} for an answer ({times(finding.count)}){f'; {limits}' if limits else ''}"
        )

    def _idle(self, end: _End) -> None:
        conn, idle = end.conn, end.idle_ns
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


@dataclass(slots=True)
class _Ages:
    """The connections of one client that a broker ended at about the same age, one after another. `lost`: with a request waiting."""

    ends: list[tuple[int, int]] = field(default_factory=list)
    lost: int = 0


class EndsByAge(Detector):
    id = "connection-age-limit"
    severity = Severity.LOW
    title = "the broker ends a client's connections, one after another, at the same age although they are in use"
    apis = facts.api_key_set("SaslAuthenticate")

    ENOUGH = 3
    LEAST_NS = 30 * SECOND
    MOST_AGES = 50

    def setup(self) -> None:
        self._ages: BoundedDict[tuple[ClientIdentity, str], _Ages] = BoundedDict(4096)
        self._login: BoundedDict[int, Exchange] = BoundedDict(8192)
        self._down_ns: BoundedDict[str, int] = BoundedDict(1024)
        """By broker: when it last refused a connection."""

    def opened(self, conn: ClientConnection) -> None:
        if not conn.established:
            self._down_ns[conn.broker] = conn.opened_ns

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is State.PAIRED and not exchange.error:
            self._login[conn.number] = exchange

    def closed(self, conn: ClientConnection) -> None:
        login = self._login.pop(conn.number, None)
        ended, age = conn.closed_ns or 0, (conn.closed_ns or 0) - conn.opened_ns
        if conn.by != "broker" or not conn.established or age < self.LEAST_NS or conn.rules or conn.lost:
            return
        answer = login.response_view if login is not None else None
        if answer is not None and answer.api_version >= 1 and answer["session_lifetime_ms"] > 0:
            return  # another finding: its session ended
        if max(ended - max(conn.last_activity_ns, 0), conn.pause_ns) > age / 4:
            return  # nothing passed for long before the end, or before the last request, which may have found it ended
        key = conn.identity, conn.broker
        ages = self._ages.of(key, _Ages)
        if ages.ends and (abs(age - ages.ends[0][1]) > max(SECOND, age // 100) or self._down_ns.get(conn.broker, 0) > ages.ends[0][0]):
            ages.ends, ages.lost = [], 0
        # A broker that stops ends all of a client's connections at once.
        if ages.ends and ended - ages.ends[-1][0] < age // 2:
            return
        ages.ends.append((ended, age))
        ages.lost += bool(conn.waiting)
        if self.ENOUGH <= len(ages.ends) <= self.MOST_AGES:
            self._state(key, conn, login, ages)

    def _state(self, key: object, conn: ClientConnection, login: Exchange | None, ages: _Ages) -> None:
        limit = duration(ages.ends[0][1])
        between = "a proxy or load balancer in between may limit the age of connections (Envoy: max_connection_duration)"
        if login is not None:
            version = login.api_version
            how = (
                "SaslAuthenticate v0, which this client uses, cannot tell the client how long its session lasts (v1 does, KIP-368)"
                if version < 1
                else f"SaslAuthenticate v{version} did not tell the client when its session ends"
            )
            why = (
                f"Likeliest first: the broker ends the sessions of logins after {limit} (connections.max.reauth.ms, or a token expires), and the "
                f"client does not log in again in time: {how}; {between}."
            )
            remedy = (
                f"client: use one that re-authenticates (Java 2.2, librdkafka 2.2 and newer); broker: raise connections.max.reauth.ms above {limit}. "
                "If the client reconnects at once and sends lost requests again, nothing is lost but time"
            )
        else:
            why = f"Apache Kafka does not end connections without a login by their age: {between}, or the broker is another product that does."
            remedy = "raise that limit, or accept it: clients reconnect, and send what was lost again"
        finding = self.report(
            key, None, why, remedy, time_ns=conn.closed_ns, facts=conn.facts, age_ms=ages.ends[0][1] // 1_000_000, sasl=login is not None,
        )  # fmt: skip
        finding.count = finding.failures = len(ages.ends)
        finding.severity = Severity.MEDIUM if login is not None or ages.lost else Severity.LOW
        finding.seen = (
            f"{conn.where} ended {len(ages.ends)} connections of {conn.who}, one after another, each at the age of {limit}, although they were in use"
            + (f"; {ages.lost} with a request waiting for its answer" if ages.lost else "")
        )
