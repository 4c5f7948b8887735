"""Fetch sessions (KIP-227): refused, recreated again and again, unavailable, or not used by big consumers."""

from __future__ import annotations

from collections import deque

from ....connection.exchange import Exchange
from ....reference import explain
from ....schema import facts
from ...engine.counters import BoundedDict, Tally
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, number, several, size, times
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.fetch import FETCH, FetchDetector, FetchExchange
from ...models.next_steps import FollowingDetector, PendingStep

_WHO = tuple[ClientIdentity, str]
_WHY = (
    "in a session, a Fetch names only what changed, and the broker remembers the rest. A broker has room for "
    "max.incremental.fetch.session.cache.slots (1000) sessions, including those of followers; a client that gets "
    "none, or loses it, names all its partitions in each request."
)


class FetchSessionRefused(FollowingDetector):
    id = "fetch-session-refused"
    severity = Severity.LOW
    title = "a broker keeps refusing fetch sessions (KIP-227)"
    apis = frozenset({FETCH})
    STEPS = frozenset({"begin-fetch-session", "find-topic-id"})

    COUNT = 4
    WITHIN_NS = 60 * SECOND
    """An eviction or a broker's restart causes one refusal; four in a minute mean competition for slots, or a fault."""
    HEAVY = 30
    """At this many in a minute, about every second fetch fails."""

    def setup(self) -> None:
        self._times: BoundedDict[_WHO, deque[int]] = BoundedDict(4096)

    def refused(self, pending: PendingStep, exchange: Exchange) -> None:
        if pending.subject:  # a partition, not the session
            return
        conn, now = pending.conn, exchange.response_time_ns or 0
        key = conn.identity, conn.broker
        seen = self._times.of(key, lambda: deque(maxlen=self.HEAVY))
        seen.append(now)
        recent = [t for t in seen if now - t <= self.WITHIN_NS]
        if len(recent) < self.COUNT:
            return
        why, remedy = explain.error_meaning(exchange.api, pending.code)
        finding = self.report(key, exchange, f"{_WHY} {why}", remedy)
        if finding.count == 1:
            finding.count = len(recent)
        finding.first_ns = min(finding.first_ns or recent[0], recent[0])
        if len(recent) >= self.HEAVY:
            finding.severity = Severity.MEDIUM
        error = finding.about["error"] = facts.error_name(pending.code)
        finding.seen = (
            f"{conn.where} refused the fetch sessions of {conn.who} {times(finding.count)} in "
            f"{duration(now - finding.first_ns)}, last with {error}"
        )


class FetchSessionChurn(FetchDetector):
    id = "fetch-session-churn"
    severity = Severity.LOW
    title = "a client keeps creating fetch sessions, or is refused one because the broker has no slot left (KIP-227)"

    COUNT = 6
    WITHIN_NS = 30 * SECOND
    """A consumer begins a session per broker and connection, and another after an error."""

    def setup(self) -> None:
        # Of each connection: (time, whether a session was given) of the last requests for a new one.
        self._begun: BoundedDict[int, deque[tuple[int, bool]]] = BoundedDict(4096)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        # Epoch 0 asks for a new session, -1 for none (KIP-227). Clients start over after a refusal, which another detector reports.
        if fetched.session_epoch != 0 or fetched.error:
            return
        begun = self._begun.of(conn.number, lambda: deque(maxlen=self.COUNT))
        begun.append((fetched.time_ns, fetched.new_session_id != 0))
        if len(begun) < self.COUNT or begun[-1][0] - begun[0][0] > self.WITHIN_NS:
            return
        given = sum(was for _, was in begun)
        full = given * 2 < len(begun)
        remedy = (
            "raise max.incremental.fetch.session.cache.slots on the broker above the number of consumers and "
            "followers it serves (its metric NumIncrementalFetchSessions is at the limit)"
            if full
            else "a client that does not want a session should send session_id 0 with session_epoch -1; one that does "
                 "must repeat the session_id it was given and increment session_epoch: upgrade or fix the client"
        )
        finding = self.report(
            (conn.identity, conn.broker, full),
            fetched.exchange,
            _WHY,
            remedy,
            partitions=len(fetched.asked),
            slots_full=full,
        )
        if finding.count == 1:
            finding.count = len(begun)
        finding.first_ns = min(finding.first_ns or begun[0][0], begun[0][0])
        count, span = times(finding.count), duration(fetched.time_ns - finding.first_ns)
        what = (
            f"asked {conn.where} for a fetch session {count} within {span} and got none: no slot is left"
            if full
            else f"began a new fetch session at {conn.where} {count} within {span} instead of continuing the one it had"
        )
        finding.seen = f"{conn.who} {what}; it names {several(len(fetched.asked), 'partition')} each time"

    def closed(self, conn: ClientConnection) -> None:
        self._begun.pop(conn.number, None)


class FullFetches(FetchDetector):
    id = "full-fetches"
    severity = Severity.LOW
    title = "large Fetch requests name all partitions each time, because the client does not use sessions (KIP-227)"

    BYTES = 4096
    """Average bytes of a request: some hundred partitions."""
    COUNT = 20
    SHARE = 0.2
    """Request bytes as a share of record bytes: where records flow, the size of requests does not matter."""
    BYTES_PER_SECOND = 20_000
    LASTING_NS = 5 * SECOND

    def setup(self) -> None:
        # By connection: requests with their bytes, and bytes of records.
        self._requests: BoundedDict[int, Tally] = BoundedDict(4096)
        self._records: BoundedDict[int, int] = BoundedDict(4096)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        if fetched.session_epoch > 0:
            return
        requests = self._requests.of(conn.number, Tally)
        requests.add(fetched.time_ns, fetched.exchange.request_size or 0)
        records = self._records[conn.number] = self._records.get(conn.number, 0) + fetched.size
        count, asked, lasting = requests.count, requests.size, requests.span_ns
        if count < self.COUNT or lasting < self.LASTING_NS or asked < count * self.BYTES:
            return
        rate = asked * SECOND / lasting
        if asked < records * self.SHARE or rate < self.BYTES_PER_SECOND:
            return
        finding = self.report(
            (conn.identity, conn.broker),
            fetched.exchange,
            _WHY + " librdkafka and aiokafka do not use sessions at all.",
            "let the broker wait longer (fetch.min.bytes, fetch.max.wait.ms; librdkafka: fetch.wait.max.ms), spread "
            "the partitions over more members, or use a client with sessions (Java, franz-go, kafka-python)",
            partitions=len(fetched.positions),
        )
        finding.count = count
        finding.seen = (
            f"{conn.who} names {len(fetched.positions)} partitions in each of {count:,} Fetch requests to "
            f"{conn.where} ({size(asked / count)} each, {number(rate / 1000)} kB/s) for {size(records)} of records: "
            "it does not use a session"
        )

    def closed(self, conn: ClientConnection) -> None:
        self._requests.pop(conn.number, None)
        self._records.pop(conn.number, None)
