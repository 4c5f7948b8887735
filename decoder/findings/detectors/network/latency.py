"""Responses that are late, or wait behind others."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict, DurationHistogram
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, number, some, times
from ...engine.traffic import ClientConnection
from ...models.response_times import FETCH, JOIN_GROUP, SYNC_GROUP, ResponseTimes


@dataclass(slots=True)
class _Waited:
    """How long requests of one client waited behind another, by API."""

    total_ns: int = 0
    worst_ns: int = 0
    urgent: int = 0
    apis: dict[str, int] = field(default_factory=dict)


class HeadOfLine(Detector):
    id = "head-of-line-blocking"
    severity = Severity.INFO
    title = "requests wait behind a long poll on the same connection"
    why = (
        "a broker answers the requests of a connection one after the other, and holds a Fetch for up to "
        "fetch.max.wait.ms and a JoinGroup until all members have joined. Everything the client sends meanwhile also "
        "waits."
    )
    remedy = (
        "use a separate connection for urgent requests (Java, librdkafka and aiokafka have one for the group "
        "coordinator); lower fetch.max.wait.ms (librdkafka: fetch.wait.max.ms); do not use one client for both "
        "fetching and producing"
    )

    WAITED_NS = SECOND // 10
    COUNT = 5
    """Times; once happens to healthy clients too (librdkafka asks Metadata and ListOffsets on the connection that
    fetches)."""
    LONG_NS = 5 * SECOND
    WORSE_NS = 10 * SECOND
    """Heartbeats that wait this long approach the session timeout (session.timeout.ms, formerly 10 s by default)."""

    URGENT = facts.api_key_set(
        "Produce", "Heartbeat", "OffsetCommit", "TxnOffsetCommit", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn",
        "ConsumerGroupHeartbeat", "InitProducerId",
    )  # fmt: skip
    """What applications, sessions and transactions wait for."""

    def setup(self) -> None:
        self.response_times = self.traffic.model(ResponseTimes)
        self._waited: dict[object, _Waited] = {}

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        response_time = self.response_times.response_time
        if response_time is None or response_time.behind < self.WAITED_NS:
            return
        key = conn.identity, response_time.blocker
        finding = self.report(key, exchange, behind=facts.api_name(response_time.blocker))
        waited = self._waited.setdefault(key, _Waited())
        waited.total_ns += response_time.behind
        waited.worst_ns = max(waited.worst_ns, response_time.behind)
        waited.apis[exchange.api] = waited.apis.get(exchange.api, 0) + 1
        waited.urgent += exchange.api_key in self.URGENT
        if waited.urgent >= self.COUNT:
            finding.severity = Severity.LOW
        if waited.worst_ns >= self.LONG_NS:
            finding.severity = Severity.MEDIUM if waited.worst_ns >= self.WORSE_NS else Severity.LOW
        finding.about |= {
            "api": max(waited.apis, key=lambda api: waited.apis[api]),
            "waited_ms": waited.total_ns // 1_000_000,
            "worst_ms": waited.worst_ns // 1_000_000,
        }
        finding.seen = (
            f"{some(waited.apis)} of {conn.who} waited behind a {facts.api_name(response_time.blocker)} on the same "
            f"connection to {conn.where} {times(finding.count)}: {duration(waited.total_ns)} in total, "
            f"{duration(waited.worst_ns)} at worst"
        )


@dataclass(slots=True)
class _Late:
    """The late answers of one API and broker."""

    conn: ClientConnection
    api_key: int
    count: int = 0
    worst_ns: int = 0
    seconds: set[int] = field(default_factory=set)


class SlowAnswers(Detector):
    id = "slow-answers"
    severity = Severity.LOW
    title = "responses take far longer than usual for their API, or are usually slow"
    why = (
        "this is time beyond what the request itself allows (fetch.max.wait.ms and waiting behind other requests are "
        "not counted). It adds to every poll or send, and pauses longer than request.timeout.ms or session.timeout.ms "
        "cause retries and rebalances."
    )
    remedy = (
        "compare with the broker's own kafka.network RequestMetrics (RequestQueueTimeMs, LocalTimeMs, RemoteTimeMs): "
        "LocalTimeMs points to disks, RemoteTimeMs of Produce to followers (acks=all), RequestQueueTimeMs to too few "
        "num.io.threads; if all are small, the network or the client's host is slow; check GC pauses"
    )

    SAMPLES = 50
    """Responses for a baseline: a JVM's first ones are slow, and soon outnumbered."""
    FLOOR_NS = SECOND // 4
    """A garbage collection, a slow disk flush or a busy machine cost 100 ms now and then."""
    FACTOR = 10
    SECONDS = 5
    """Different seconds with outliers; one pause delays many requests and counts once."""
    USUAL_NS = 3 * SECOND // 10
    """A median over this is slow, even between continents."""
    WORSE_NS = SECOND

    def setup(self) -> None:
        self.response_times = self.traffic.model(ResponseTimes)
        self._late: BoundedDict[tuple[str, int], _Late] = BoundedDict(4096)
        self._who: BoundedDict[tuple[str, int], tuple[ClientConnection, Exchange]] = BoundedDict(4096)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key in (JOIN_GROUP, SYNC_GROUP):
            return  # they wait for other members
        response_time = self.response_times.response_time
        if response_time is None or response_time.throttle_ms:
            return
        if response_time.held >= self.FLOOR_NS:
            self._slow(conn, exchange, response_time.held, self.response_times.histograms[conn.broker, exchange.api_key])

    def _slow(self, conn: ClientConnection, exchange: Exchange, held: int, histogram: DurationHistogram) -> None:
        key = conn.broker, exchange.api_key
        self._who[key] = conn, exchange
        if histogram.count < self.SAMPLES or held < self.FACTOR * histogram.quantile(0.5):
            return
        late = self._late.of(key, lambda: _Late(conn, exchange.api_key))
        late.count += 1
        late.worst_ns = max(late.worst_ns, held)
        if len(late.seconds) < 100:
            late.seconds.add((exchange.response_time_ns or 0) // SECOND)
        if len(late.seconds) >= self.SECONDS:
            self.report(conn.broker, exchange, facts=conn.facts_of(exchange))

    def finish(self, now_ns: int) -> None:
        as_a_rule: dict[str, list[tuple[float, int]]] = {}
        for (broker, api_key), histogram in self.response_times.histograms.items():
            usual = histogram.quantile(0.5)
            if histogram.count >= self.SAMPLES and usual >= self.USUAL_NS and (broker, api_key) in self._who:
                as_a_rule.setdefault(broker, []).append((usual, api_key))
        for broker, apis in as_a_rule.items():
            conn, exchange = self._who[broker, max(apis)[1]]
            if broker not in self._found:
                self.report(conn.broker, exchange, facts=conn.facts_of(exchange))
            self._slow_as_a_rule(self._found[broker], conn, exchange, [facts.api_name(key) for _, key in apis])
        late: dict[str, list[_Late]] = {}
        for (broker, _), case in self._late.items():
            if broker in self._found and broker not in as_a_rule:
                late.setdefault(broker, []).append(case)
        for broker, cases in late.items():
            self._slow_at_times(self._found[broker], cases)

    def _slow_as_a_rule(self, finding: Finding, conn: ClientConnection, exchange: Exchange, apis: list[str]) -> None:
        histogram = self.response_times.histograms[conn.broker, exchange.api_key]
        usual = histogram.quantile(0.5)
        finding.count = histogram.count
        finding.severity = Severity.MEDIUM if usual >= self.WORSE_NS else Severity.LOW
        finding.about |= {"median_ms": round(usual / 1e6, 1), "usual": True, "api": exchange.api}
        others = [api for api in apis if api != exchange.api]
        finding.seen = (
            f"{conn.where} usually takes {duration(usual)} for {exchange.api} (median of {histogram.count:,} answers, "
            f"nine of ten within {duration(histogram.quantile(0.9))})" + (f"; also {some(others)}" if others else "")
        )

    def _slow_at_times(self, finding: Finding, cases: list[_Late]) -> None:
        worst = max(cases, key=lambda case: (len(case.seconds) >= self.SECONDS, case.worst_ns))
        histogram = self.response_times.histograms[worst.conn.broker, worst.api_key]
        usual = histogram.quantile(0.5)
        heavy = worst.count * 20 >= histogram.count and worst.worst_ns >= self.WORSE_NS
        finding.count = sum(case.count for case in cases)
        finding.severity = Severity.MEDIUM if heavy else Severity.LOW
        api = facts.api_name(worst.api_key)
        finding.about |= {"median_ms": round(usual / 1e6, 1), "worst_ms": worst.worst_ns // 1_000_000, "api": api}
        others = [facts.api_name(case.api_key) for case in cases if case is not worst]
        finding.seen = (
            f"{worst.conn.where} took up to {duration(worst.worst_ns)} for {api}: {worst.count} of {histogram.count:,} answers "
            f"were over {self.FACTOR} times the usual {number(usual / 1e6)} ms, in {len(worst.seconds)} different seconds"
            + (f"; also late answers of {some(others)}" if others else "")
        )


class SlowBroker(Detector):
    id = "slow-broker"
    severity = Severity.LOW
    title = "a broker is much slower than the others of its cluster"
    why = (
        "partitions are spread over brokers, and clients wait for the slowest: batches, polls and acks=all writes of "
        "other leaders are as slow as this broker."
    )
    remedy = (
        "check this broker's disk, load, GC and network, whether it leads more partitions than the others "
        "(kafka-leader-election.sh --election-type preferred), and whether it is farther away from these clients"
    )
    wanted = Wanted.NEW

    SAMPLES = 50
    FACTOR = 5
    OVER_NS = SECOND // 50
    """20 ms: a smaller difference is not noticeable, and may be the network's."""
    WORSE_NS = SECOND // 5

    def setup(self) -> None:
        self.response_times = self.traffic.model(ResponseTimes)
        self._links: BoundedDict[str, tuple[ClientConnection, Exchange]] = BoundedDict(1024)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        if conn.broker not in self._links:
            self._links[conn.broker] = conn, exchange

    def finish(self, now_ns: int) -> None:
        by_api: dict[tuple[int, int], dict[str, float]] = {}
        for (broker, api_key), histogram in self.response_times.histograms.items():
            # The time of a Fetch beyond its wait is mostly nothing.
            if histogram.count >= self.SAMPLES and api_key != FETCH and broker in self._links:
                cluster = id(self.traffic.cluster_of(broker))
                by_api.setdefault((cluster, api_key), {})[broker] = histogram.quantile(0.5)
        for (_, api_key), medians in by_api.items():
            for broker, usual in medians.items():
                others = sorted(m for b, m in medians.items() if b != broker)
                if not others:
                    continue
                other = others[len(others) // 2]
                if usual >= self.FACTOR * other and usual - other >= self.OVER_NS:
                    self._update(broker, api_key, usual, other, len(others))

    def _update(self, broker: str, api_key: int, usual: float, other: float, count: int) -> None:
        conn, exchange = self._links[broker]
        if broker not in self._found:
            self.report(broker, exchange, facts={"broker": conn.broker, "api": facts.api_name(api_key)})
        finding = self._found[broker]
        finding.severity = Severity.MEDIUM if usual >= self.WORSE_NS else Severity.LOW
        finding.about |= {"median_ms": round(usual / 1e6, 1), "others_ms": round(other / 1e6, 1)}
        finding.seen = (
            f"{conn.where} takes {duration(usual)} for {facts.api_name(api_key)}, while the other {count} "
            f"broker{'s' if count > 1 else ''} of the cluster take{'' if count > 1 else 's'} {duration(other)} "
            "(medians)"
        )
