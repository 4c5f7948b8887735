"""The latest batches of idempotent producers, and what became of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from ...connection.exchange import Exchange, State
from ...records import Batch
from ..engine.counters import BoundedDict, LruDict
from ..engine.detector import Model
from ..engine.traffic import ClientConnection
from .produce import PRODUCE, ProduceReader

_PARTITIONS = 10_000
_FLYING = 20_000
"""Requests without an answer whose batches are remembered."""
_KEPT = 12
"""Batches of one partition: more than twice as many as a broker remembers."""
LAST_SEQUENCE = 0x7FFFFFFF
"""Sequences run from 0 to this and then begin at 0 again."""
WAITING = -3
NO_ANSWER = -2
"""In the place of an error code."""

_Place = tuple[str, str, int, str, int]
"""A client's host and its id; a producer id; topic and partition."""


@dataclass(slots=True)
class SentBatch:
    """A batch that was sent. `code`: of its answer, or `WAITING` or `NO_ANSWER`; `answered_ns`: when it came, 0 before. `expected`: the
    sequence that the client skipped before it, None if it skipped none. `earlier`: the same sequence of the same epoch, sent before."""

    sequence: int
    count: int
    epoch: int
    crc: int
    sent_ns: int
    conn: ClientConnection
    expected: int | None = None
    earlier: SentBatch | None = None
    code: int = WAITING
    answered_ns: int = 0
    base_offset: int = -1

    @property
    def next_sequence(self) -> int:
        """The sequence of the batch behind it."""
        return (self.sequence + self.count) & LAST_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record."""
        return (self.sequence + max(self.count, 1) - 1) & LAST_SEQUENCE


@dataclass(slots=True)
class BatchHistory:
    """The latest batches of a producer for a partition, in the order in which they were sent. `expected`: the next sequence of `epoch`."""

    batches: deque[SentBatch] = field(default_factory=lambda: deque(maxlen=_KEPT))
    epoch: int = -1
    expected: int = 0

    def add(self, sequence: int, batch: Batch, sent_ns: int, conn: ClientConnection) -> SentBatch:
        """A batch is sent."""
        epoch, count = batch.producer_epoch, batch.announced
        if epoch != self.epoch:
            # A new epoch begins at 0; the first sequence of one that began before the capture is unknown.
            self.expected = 0 if self.epoch >= 0 else sequence
            self.epoch = epoch
        skipped, earlier = None, None
        if sequence != self.expected:
            earlier = next((b for b in reversed(self.batches) if b.sequence == sequence and b.epoch == epoch), None)
            if earlier is not None:
                skipped = earlier.expected
                if earlier.earlier is not None:
                    earlier.earlier.earlier = None  # no longer chains than two
            elif (sequence - self.expected) & LAST_SEQUENCE < LAST_SEQUENCE // 2:
                skipped = self.expected
        if earlier is None and (sequence - self.expected) & LAST_SEQUENCE < LAST_SEQUENCE // 2:
            self.expected = (sequence + count) & LAST_SEQUENCE
        sent = SentBatch(sequence, count, epoch, batch.crc, sent_ns, conn, skipped, earlier)
        self.batches.append(sent)
        return sent

    def before(self, batch: SentBatch) -> list[SentBatch]:
        """Those sent before it in the same epoch, the latest first."""
        found: list[SentBatch] = []
        for each in self.batches:
            if each is batch:
                break
            if each.epoch == batch.epoch:
                found.append(each)
        return found[::-1]

    @property
    def acknowledged(self) -> SentBatch | None:
        """The batch acknowledged last."""
        return next((batch for batch in reversed(self.batches) if batch.code == 0), None)


class PartitionBatch(NamedTuple):
    """A batch of a request, and what its producer sent to the partition before it."""

    topic: str
    partition: int
    producer_id: int
    batch: SentBatch
    history: BatchHistory

    @property
    def at(self) -> str:
        """``orders-3``, as Kafka's logs write it."""
        return f"{self.topic}-{self.partition}"


class SentBatches(Model):
    """Follows the batches that have a producer id, by client, producer id and partition. `latest`: those of the request or exchange that the
    detectors are handling; empty for acks=0."""

    id = "sent-batches"
    apis = frozenset({PRODUCE})

    def setup(self) -> None:
        self._produce = self.traffic.model(ProduceReader)
        self._histories: LruDict[_Place, BatchHistory] = LruDict(_PARTITIONS)
        self._flying: BoundedDict[tuple[int, int], list[PartitionBatch]] = BoundedDict(_FLYING)
        self.latest: list[PartitionBatch] = []

    def history(self, conn: ClientConnection, producer_id: int, topic: str, partition: int) -> BatchHistory:
        """Of a producer and partition; empty if nothing is known."""
        return self._histories.get((conn.client_host, conn.client_id or "", producer_id, topic, partition)) or BatchHistory()

    def sharing(self, conn: ClientConnection, sent: PartitionBatch) -> SentBatch | None:
        """The last batch of another client for this partition with the same producer id and epoch. It looks at all histories."""
        client, subject = (conn.client_host, conn.client_id or ""), (sent.producer_id, sent.topic, sent.partition)
        for place, history in self._histories.items():
            if place[2:] == subject and place[:2] != client and history.batches:
                last = history.batches[-1]
                if last.epoch == sent.batch.epoch and last.conn.cluster is conn.cluster:
                    return last
        return None

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        sent = self._produce.sent(exchange)
        if sent is None or not sent.idempotent or not sent.acks:
            self.latest = []
            return
        now, host, client_id = exchange.request_time_ns or 0, conn.client_host, conn.client_id or ""
        latest = []
        for part, batch in sent.idempotent:
            topic, partition, producer_id = part.topic, part.partition, batch.producer_id
            history = self._histories.of((host, client_id, producer_id, topic, partition), BatchHistory)
            added = history.add(batch.base_sequence, batch, now, conn)
            latest.append(PartitionBatch(topic, partition, producer_id, added, history))
        self.latest = self._flying[conn.number, exchange.correlation_id] = latest

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        self.latest = self._flying.pop((conn.number, exchange.correlation_id), [])
        if not self.latest:
            return
        results = self._produce.results(exchange) if exchange.state is State.PAIRED else []
        now = exchange.response_time_ns or conn.traffic.now_ns
        answers = {(result.topic, result.partition): result for result in results}
        for topic, partition, _, batch, _ in self.latest:
            result = answers.get((topic, partition))
            batch.code, batch.answered_ns = NO_ANSWER, now
            if result is not None:
                batch.code, batch.base_offset = result.error, result.base_offset
