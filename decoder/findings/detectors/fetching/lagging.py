"""Consumers that fall behind: their lag grows, or an open transaction blocks them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ....codec.message_view import MessageView
from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, number, several, some, topic_name
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.fetch import FETCH, FetchDetector, FetchExchange, Place

PRODUCE = facts.api_key("Produce")
END_TXN = facts.api_key("EndTxn")


class _Point(NamedTuple):
    time_ns: int
    offset: int
    high_watermark: int

    @property
    def lag(self) -> int:
        return self.high_watermark - self.offset


class _Track:
    """How one partition's position and end move: at most `KEPT` points, thinned as time goes on."""

    KEPT = 32

    def __init__(self, first: _Point) -> None:
        self.points = [first]
        self.last = first
        self.spacing_ns = SECOND // 2

    def add(self, point: _Point) -> None:
        if point.offset < self.last.offset or point.high_watermark < self.last.high_watermark:
            self.points = [point]  # it went back: start over
        elif point.time_ns - self.points[-1].time_ns >= self.spacing_ns:
            self.points.append(point)
            if len(self.points) > self.KEPT:
                self.points = self.points[::2]
                self.spacing_ns *= 2
        self.last = point


class _Falling(NamedTuple):
    """How far a partition fell behind: between two points."""

    first: _Point
    last: _Point


class GrowingLag(FetchDetector):
    id = "consumer-lag-growing"
    severity = Severity.LOW
    title = "a consumer's lag is large and grows: it reads more slowly than records are produced"
    why = (
        "lag is the number of records produced (high_watermark) and not yet fetched (fetch_offset). It grows while "
        "the consumer is slower than the producers; when the oldest unread record reaches retention.ms or "
        "retention.bytes, records are deleted unread."
    )
    remedy = (
        "check what the application does between two polls; add members to the group, up to the number of partitions; "
        "let a fetch return more (fetch.min.bytes, max.partition.fetch.bytes; librdkafka: fetch.message.max.bytes and "
        "queued.max.messages.kbytes); check whether fetches are throttled (consumer_byte_rate)"
    )

    LASTING_NS = 15 * SECOND
    """A burst of records is not a trend; a consumer that does not catch up within 15 s may be too slow."""
    LAG = 1000
    """Records; less is a batch or two."""
    POINTS = 6
    LONG_NS = 60 * SECOND
    """After this, at under half the producers' rate, retention will delete unread records."""

    def setup(self) -> None:
        self._tracks: BoundedDict[int, dict[Place, _Track]] = BoundedDict(4096)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        if fetched.error:
            return
        tracks = self._tracks.of(conn.number, dict)
        for answer in fetched.answered:
            offset = fetched.offset(answer.place)
            if answer.error or offset < 0 or answer.high_watermark < offset:
                continue
            point = _Point(fetched.time_ns, offset, answer.high_watermark)
            track = tracks.get(answer.place)
            if track is None:
                tracks[answer.place] = _Track(point)
            else:
                track.add(point)
        if len(tracks) > len(fetched.positions):
            for place in [p for p in tracks if p not in fetched.positions]:
                del tracks[place]  # another member reads it now
        # The exchange is evidence while the finding stands; `finish` writes the text.
        for answer in fetched.answered:
            found = self._found.get((conn.identity, answer.place[0]))
            if found is not None and len(found.exchanges) < 3:
                found.add_evidence(fetched.exchange)

    def finish(self, now_ns: int) -> None:
        for number_, tracks in list(self._tracks.items()):
            conn = self.traffic.connections.get(number_)
            if conn is not None:
                self._judge(conn, tracks)

    def closed(self, conn: ClientConnection) -> None:
        self._judge(conn, self._tracks.pop(conn.number, {}))

    def _judge(self, conn: ClientConnection, tracks: dict[Place, _Track]) -> None:
        behind: dict[str, dict[int, _Falling]] = {}
        for place, track in tracks.items():
            falling = self._falling(track)
            if falling is not None:
                behind.setdefault(place[0], {})[place[1]] = falling
        for topic, partitions in behind.items():
            self._report(conn, topic, partitions)

    def _falling(self, track: _Track) -> _Falling | None:
        points = [*track.points, track.last]
        first, last = points[0], points[-1]
        if len(points) < self.POINTS or last.time_ns - first.time_ns < self.LASTING_NS or last.lag < self.LAG:
            return None
        third = len(points) // 3
        early, middle, late = (
            sum(p.lag for p in part) / len(part)
            for part in (points[:third], points[third : 2 * third], points[2 * third :])
        )
        grows = late > middle > early and last.lag - first.lag >= max(self.LAG, first.lag // 4)
        return _Falling(first, last) if grows else None

    def _report(self, conn: ClientConnection, topic: str, partitions: dict[int, _Falling]) -> None:
        worst, case = max(partitions.items(), key=lambda item: item[1].last.lag)
        lasting = max(f.last.time_ns - f.first.time_ns for f in partitions.values()) / SECOND
        consumed = sum(f.last.offset - f.first.offset for f in partitions.values()) / lasting
        come = sum(f.last.high_watermark - f.first.high_watermark for f in partitions.values()) / lasting
        before, now = (
            sum(lags) for lags in zip(*((f.first.lag, f.last.lag) for f in partitions.values()), strict=True)
        )
        heavy = lasting * SECOND >= self.LONG_NS and consumed * 2 < come
        key = conn.identity, topic
        finding = self._found.get(key)
        if finding is None:
            finding = self.report(key, None, time_ns=case.first.time_ns, **conn.facts, api="Fetch", topic=topic)
        finding.add_evidence(None, case.last.time_ns)
        finding.severity = Severity.MEDIUM if heavy else Severity.LOW
        finding.seen = (
            f"{conn.who} falls behind in {some(f'{topic}-{p}' for p in partitions)}: its lag grew from {before:,} to "
            f"{now:,} records in {duration(lasting * SECOND)}; it reads {number(consumed)} records/s, while "
            f"{number(come)} records/s are produced"
        )
        finding.about |= {
            "partition": worst,
            "partitions": sorted(partitions),
            "lag": now,
            "lag_per_second": round((now - before) / lasting, 1),
        }


@dataclass(slots=True)
class _Stall:
    stable: int
    since_ns: int
    exchange: Exchange
    high_watermark: int = 0


@dataclass(slots=True)
class _Transaction:
    """A transaction that began and has not ended."""

    who: str
    since_ns: int
    places: set[Place] = field(default_factory=set)


class StalledByTransaction(FetchDetector):
    id = "read-committed-stalled"
    severity = Severity.LOW
    title = "a read_committed consumer waits behind an open transaction"
    why = (
        "a read_committed consumer reads up to the last stable offset: the first record of the oldest transaction "
        "that is still open (KIP-98). Every record after it waits, including those of other producers, until the "
        "transaction ends or transaction.timeout.ms is over."
    )
    remedy = (
        "find out who has it open: kafka-transactions.sh find-hanging (or describe-producers) names the producer, and "
        "abort ends the transaction (KIP-664); commit or abort sooner, lower transaction.timeout.ms (default 60000); "
        "Flink: transactions last as long as the checkpoint interval"
    )
    apis = frozenset({FETCH, PRODUCE, END_TXN})

    LASTING_NS = 5 * SECOND
    """Healthy transactions end within a second or so."""
    LONG_NS = 10 * SECOND
    """A producer that is alive rarely keeps a transaction open for longer; Kafka Streams commits every 100 ms."""

    def setup(self) -> None:
        self._stalls: BoundedDict[int, dict[Place, _Stall]] = BoundedDict(4096)
        self._open: BoundedDict[str, _Transaction] = BoundedDict(5000)
        self._longest: dict[tuple[ClientIdentity, str], int] = {}

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == FETCH:
            super().done(conn, exchange)
        elif exchange.api_key == END_TXN:
            if exchange.state is State.PAIRED and not exchange.error and exchange.request_view is not None:
                self._open.pop(exchange.request_view.values[0], None)
        elif exchange.api_version >= 3:
            message = exchange.request_view
            if message is not None and message.values[0] is not None:
                self._produced(conn, exchange, message)

    def _produced(self, conn: ClientConnection, exchange: Exchange, message: MessageView) -> None:
        transactional_id = message.values[0]
        known = self._open.of(transactional_id, lambda: _Transaction(conn.who, exchange.request_time_ns or 0))
        for topic in message.values[3]:
            name = topic_name(exchange, topic[0])
            known.places.update((name, p[0]) for p in topic[1])

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        if not fetched.read_committed:
            return
        stalls = self._stalls.of(conn.number, dict)
        for answer in fetched.answered:
            stable, offset = answer.last_stable, fetched.offset(answer.place)
            if answer.error or answer.size or not 0 <= stable < answer.high_watermark or offset < stable:
                stalls.pop(answer.place, None)
                continue
            stall = stalls.get(answer.place)
            if stall is None or stall.stable != stable:
                stall = stalls[answer.place] = _Stall(stable, fetched.time_ns, fetched.exchange)
            stall.high_watermark = answer.high_watermark
        # In a session, responses leave out partitions without news: they still wait.
        for place, stall in list(stalls.items()):
            if fetched.offset(place) != stall.stable:
                del stalls[place]
            elif fetched.time_ns - stall.since_ns >= self.LASTING_NS:
                self._waits(conn, fetched, place, stall)

    def _waits(self, conn: ClientConnection, fetched: FetchExchange, place: Place, stall: _Stall) -> None:
        key = conn.identity, place[0]
        lasting = fetched.time_ns - stall.since_ns
        finding = self.report(key, fetched.exchange, topic=place[0])
        if finding.count == 1:
            finding.exchanges.insert(0, stall.exchange)
        if lasting < self._longest.get(key, 0):
            return
        self._longest[key] = lasting
        finding.severity = Severity.MEDIUM if lasting >= self.LONG_NS else Severity.LOW
        finding.first_ns = min(finding.first_ns or stall.since_ns, stall.since_ns)
        holders = [(t, i) for i, t in self._open.items() if place in t.places and t.since_ns <= stall.since_ns]
        text = (
            f"{conn.who} has been at offset {stall.stable} of {place[0]}-{place[1]} for {duration(lasting)}: "
            f"{several(stall.high_watermark - stall.stable, 'record')} after it wait for an open transaction to end "
            "(isolation.level=read_committed)"
        )
        if holders:
            oldest, transactional_id = min(holders, key=lambda holder: holder[0].since_ns)
            text += (
                f"; transactional.id {transactional_id!r} of {oldest.who} began writing there "
                f"{duration(fetched.time_ns - oldest.since_ns)} earlier and has not ended it"
            )
            finding.about["transactional_id"] = transactional_id
        finding.seen = text
        finding.about |= {"partition": place[1], "offset": stall.stable, "high_watermark": stall.high_watermark}

    def closed(self, conn: ClientConnection) -> None:
        self._stalls.pop(conn.number, None)
