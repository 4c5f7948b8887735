"""Record batches that are too small, not compressed, or all for one partition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from ....connection.exchange import Exchange
from ....records import RecordsError, compress
from ...engine.counters import LruDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, number, size, some
from ...engine.traffic import ClientConnection
from ...models.produce import PRODUCE, PartitionProduceData, ProduceDetector, ProduceRequest

_HEADER = 61  # bytes of a batch in front of its records
_ZSTD = 4
_CLIENTS = 10_000


@dataclass(slots=True)
class _Window:
    """What a client has produced since `start_ns`. `plain`: bytes that are not compressed."""

    start_ns: int
    last_ns: int = 0
    requests: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    plain: int = 0
    topics: set[str] = field(default_factory=set)

    def add(self, sent: ProduceRequest, now_ns: int) -> None:
        """One more request."""
        self.last_ns = now_ns
        self.requests += 1
        for part in sent.parts:
            batch = part.batch
            if batch is None:
                continue
            self.batches += 1
            self.records += batch.announced
            self.bytes += part.size
            if not batch.attributes & 7:
                self.plain += part.size
            if len(self.topics) < 10:
                self.topics.add(part.topic)

    @property
    def seconds(self) -> float:
        return (self.last_ns - self.start_ns) / SECOND


class _WindowDetector(ProduceDetector):
    """Gets what each client produces in windows of `WINDOW_NS`: override `ended`."""

    apis = frozenset({PRODUCE})
    WINDOW_NS: ClassVar[int]

    def setup(self) -> None:
        self._open: LruDict[object, _Window] = LruDict(_CLIENTS)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        sent, now = self.produce.sent(exchange), exchange.request_time_ns
        if sent is None or now is None:
            return
        window = self._open.of(conn.identity, partial(_Window, now))
        window.add(sent, now)
        if now - window.start_ns >= self.WINDOW_NS:
            self.ended(conn, exchange, sent, self._open.pop(conn.identity))

    def ended(self, conn: ClientConnection, exchange: Exchange, sent: ProduceRequest, window: _Window) -> None:
        """A client's window has ended with this request."""


class TinyBatches(_WindowDetector):
    id = "tiny-batches"
    severity = Severity.LOW
    title = "a producer sends many batches of one or two small records (linger.ms, batch.size)"
    WINDOW_NS = 5 * SECOND
    RATE = 200
    """Batches per second. Below, waiting a few milliseconds would bring hardly any record together."""
    COSTLY = 2000
    """Batches per second from which a broker's request threads feel one client."""
    RECORDS = 2.0
    BYTES = 1024
    """Per batch, at most; a batch's header alone has 61 bytes."""
    SCATTERED = 3.0
    """Batches per request from which it is the partitioner that spreads records."""

    def ended(self, conn: ClientConnection, exchange: Exchange, sent: ProduceRequest, window: _Window) -> None:
        count = window.batches
        if not count or window.records / count > self.RECORDS or window.bytes / count > self.BYTES:
            return
        rate = count / window.seconds
        if rate < self.RATE:
            return
        spread = count / window.requests
        scattered = spread >= self.SCATTERED and _without_key(sent.parts)
        finding = self._report(conn, exchange, scattered)
        about = finding.about
        if rate > about["batches_per_second"]:
            about |= {
                "batches_per_second": round(rate),
                "records_per_batch": round(window.records / count, 2),
                "bytes_per_batch": round(window.bytes / count),
                "batches_per_request": round(spread, 1),
                "topics": sorted(window.topics),
            }
            finding.severity = Severity.MEDIUM if rate >= self.COSTLY else Severity.LOW
            finding.seen = (
                f"{conn.who} sends {number(rate)} batches/s to {some(window.topics)} with {window.records / count:.1f} "
                f"records ({size(window.bytes / count)}) each, in {number(window.requests / window.seconds)} requests/s"
                + (f": each request has records without a key for {number(spread)} partitions" if scattered else "")
            )

    def _report(self, conn: ClientConnection, exchange: Exchange, scattered: bool) -> Finding:
        why = (
            "Each batch costs 61 bytes of header, an append and an index entry; each request costs a round trip and "
            "the time of a request handler; small batches compress badly. A batch is sent when it is full "
            "(batch.size), when linger.ms is over, or when the application flushes."
        )
        remedy = (
            "set linger.ms to a value from 20 to 100 (Java's default is 0 before 4.0 and 5 since, KIP-1030; "
            "librdkafka's is 5; kafka-python: linger_ms, default 0) and batch.size to 65536 or more, and do not call "
            "flush() or get() after each record: use callbacks"
        )
        if scattered:
            why += " Here, records without a key are spread over all partitions instead of filling one batch (KIP-480)."
            remedy += (
                "; use the sticky partitioner (Java 2.4 and newer by default: remove partitioner.class; librdkafka: "
                "sticky.partitioning.linger.ms above 0, and linger.ms at least as high)"
            )
        return self.report(conn.identity, exchange, why, remedy, batches_per_second=0, scattered=scattered)


class Uncompressed(_WindowDetector):
    id = "uncompressed-batches"
    severity = Severity.LOW
    title = "a producer sends a lot of compressible data without compression (compression.type)"
    why = (
        "The producer's codec applies to network, replication, disk and consumers alike: brokers store the batch as "
        "it arrives (compression.type=producer)."
    )
    remedy = (
        "set compression.type=zstd (brokers 2.1 and newer, KIP-110) or lz4 in the producer; kafka-python and "
        "aiokafka: compression_type; both need the codec's package. A higher linger.ms improves compression"
    )
    WINDOW_NS = 10 * SECOND
    RATE = 1_000_000
    """Bytes per second; below, the gain is not worth a setting."""
    BYTES = 4096
    """Per batch, at least; smaller ones compress badly (and are what `TinyBatches` looks at)."""
    PLAIN = 0.9
    """Of the bytes, at least."""
    SAMPLE = 64 << 10
    """Bytes of one batch that are compressed to see what it would bring, once per window."""
    RATIO = 1.5
    """A lower ratio is not worth the CPU: such data is already compressed or encrypted."""

    def ended(self, conn: ClientConnection, exchange: Exchange, sent: ProduceRequest, window: _Window) -> None:
        rate = window.plain / window.seconds
        if rate < self.RATE or window.bytes / window.batches < self.BYTES or window.plain < self.PLAIN * window.bytes:
            return
        part = max(sent.parts, key=lambda p: p.size)
        if part.batch is None or part.batch.codec or part.size < self.BYTES:
            return
        start = part.batch.start + _HEADER
        sample = bytes(part.batch.data[start : min(part.batch.end, start + self.SAMPLE)])
        packed = len(compress(_ZSTD, sample))
        ratio = len(sample) / max(packed, 1)
        if ratio < self.RATIO:
            return
        finding = self.report(conn.identity, exchange, topic=part.topic, bytes_per_second=0)
        about = finding.about
        if rate > about["bytes_per_second"]:
            about |= {
                "bytes_per_second": round(rate),
                "bytes_per_batch": round(window.bytes / window.batches),
                "zstd_ratio": round(ratio, 1),
                "topics": sorted(window.topics),
            }
            finding.seen = (
                f"{conn.who} sends {size(rate)}/s to {some(window.topics)} without compression, in batches of "
                f"{size(window.bytes / window.batches)}; {size(len(sample))} of {part.at} become {size(packed)} with zstd "
                f"({ratio:.1f} to 1)"
            )


class Skew(ProduceDetector):
    id = "partition-skew"
    severity = Severity.INFO
    title = "one partition gets most of a producer's records"
    why = (
        "Order and throughput are per partition: one broker, and one consumer in each group, carries nearly the whole "
        "load, no matter how many there are."
    )
    remedy = (
        "if the records have keys, choose a key with more distinct values (or extend it); without keys, do not set "
        "the partition explicitly, and remove any partitioner that hashes null keys (librdkafka: "
        "partitioner=consistent sends them all to one)"
    )
    apis = frozenset({PRODUCE})

    PARTITIONS = 6
    SHARE = 0.8
    RECORDS = 1000
    BATCHES = 50
    """A sticky partitioner (KIP-480) changes with every batch; over this many, that evens out."""
    TOPICS = 10_000

    def setup(self) -> None:
        # By client and topic: records by partition, and under -1 the batches.
        self._counts: LruDict[tuple[object, str], Counter[int]] = LruDict(self.TOPICS)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        sent = self.produce.sent(exchange)
        if sent is None:
            return
        for part in sent.parts:
            if part.batch is None:
                continue
            key = conn.identity, part.topic
            counts = self._counts.of(key, Counter)
            counts[part.partition] += part.batch.announced
            counts[-1] += 1
            if counts[-1] >= self.BATCHES:
                batches_sent = counts.pop(-1)
                total = sum(counts.values())
                if total < self.RECORDS and batches_sent < 10 * self.BATCHES:
                    counts[-1] = batches_sent
                    continue
                self._look(conn, exchange, part.topic, counts, total)
                del self._counts[key]

    def _look(self, conn: ClientConnection, exchange: Exchange, topic: str, counts: Counter[int], total: int) -> None:
        (partition, most), *_ = counts.most_common(1)
        if total < self.RECORDS or most <= self.SHARE * total:
            return
        known = sum(1 for name, _ in conn.cluster.leaders if name == topic)
        if max(known, len(counts)) < self.PARTITIONS:
            return
        finding = self.report((conn.identity, topic), exchange, topic=topic, partition=partition)
        finding.about |= {
            "partition": partition,
            "share": round(most / total, 3),
            "partitions": max(known, len(counts)),
        }
        finding.seen = (
            f"{100 * most / total:.0f} % of the records of {conn.who} for {topic} go to partition {partition}, "
            f"one of {max(known, len(counts))}"
        )


def _without_key(parts: list[PartitionProduceData]) -> bool:
    """Whether the first records of small batches have no key; compressed ones are not looked into."""
    looked = [p.batch for p in parts[:3] if p.batch is not None and not p.batch.codec and p.size <= 4096]
    try:
        return bool(looked) and all(next(b.records()).key is None for b in looked if b.announced)
    except (RecordsError, StopIteration):
        return False
