"""The latest batches of idempotent producers, and what became of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from ...connection.exchange import Exchange, State
from ...records import Batch
from ..engine.counters import LruDict
from ..engine.detector import Model
from ..engine.traffic import ClientConnection
from .produce import PRODUCE, PartitionProduceResponse, ProduceReader

_PARTITIONS = 10_000
_KEPT = 12
"""Batches of one partition: more than twice as many as a broker remembers."""
_MASK = 0x7FFFFFFF  # sequences run from 0 to 2^31 - 1 and wrap around
WAITING = -3
NO_ANSWER = -2
"""In the place of an error code."""


class ProducerPartition(NamedTuple):
    """What one producer id of a client (its host and client id) writes to."""

    client: tuple[str, str]
    producer_id: int
    topic: str
    partition: int


@dataclass(slots=True)
class SentBatch:
    """A batch that was sent. `code`: of its answer, or `WAITING` or `NO_ANSWER`; `answered_ns`: when it came, 0 before."""

    sequence: int
    count: int
    epoch: int
    crc: int
    sent_ns: int
    conn: ClientConnection
    correlation_id: int
    code: int = WAITING
    answered_ns: int = 0
    base_offset: int = -1

    @property
    def next_sequence(self) -> int:
        """The sequence of the batch behind it."""
        return (self.sequence + self.count) & _MASK

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record."""
        return (self.sequence + max(self.count, 1) - 1) & _MASK


@dataclass(slots=True)
class BatchHistory:
    """The latest batches of a producer for a partition, in the order in which they were sent. `refusal`: what the broker last answered
    with an error."""

    batches: deque[SentBatch] = field(default_factory=lambda: deque(maxlen=_KEPT))
    refusal: PartitionProduceResponse | None = None

    def of(self, exchange: Exchange) -> SentBatch | None:
        """The batch that this request has."""
        for batch in reversed(self.batches):
            if batch.correlation_id == exchange.correlation_id and batch.conn.number == exchange.connection:
                return batch
        return None

    def earlier(self, batch: SentBatch) -> list[SentBatch]:
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


class SentBatches(Model):
    """Follows the batches that have a producer id, by client, producer id and partition."""

    id = "sent-batches"
    apis = frozenset({PRODUCE})

    def setup(self) -> None:
        self._produce = self.traffic.model(ProduceReader)
        self._histories: LruDict[ProducerPartition, BatchHistory] = LruDict(_PARTITIONS)

    def history(self, conn: ClientConnection, batch: Batch, topic: str, partition: int) -> BatchHistory:
        """Of a batch's producer and partition; empty if nothing is known."""
        return self._histories.get(_place(conn, batch, topic, partition)) or BatchHistory()

    def sharing(self, conn: ClientConnection, batch: Batch, topic: str, partition: int) -> SentBatch | None:
        """The last batch of another client for this partition with the same producer id and epoch. It looks at all histories."""
        place = _place(conn, batch, topic, partition)
        for each, history in self._histories.items():
            if each[1:] == place[1:] and each.client != place.client and history.batches:
                last = history.batches[-1]
                if last.epoch == batch.producer_epoch and last.conn.cluster is conn.cluster:
                    return last
        return None

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        sent = self._produce.sent(exchange)
        if sent is None or not sent.idempotent or not sent.acks:
            return
        now, number = exchange.request_time_ns or 0, exchange.correlation_id
        for part, batch in sent.idempotent:
            history = self._histories.of(_place(conn, batch, part.topic, part.partition), BatchHistory)
            history.batches.append(
                SentBatch(batch.base_sequence, batch.announced, batch.producer_epoch, batch.crc, now, conn, number)
            )

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        sent = self._produce.sent(exchange)
        if sent is None or not sent.idempotent:
            return
        answered = exchange.state is State.PAIRED
        results = {(r.topic, r.partition): r for r in self._produce.results(exchange)} if answered else {}
        now = exchange.response_time_ns or conn.traffic.now_ns
        for part, batch in sent.idempotent:
            history = self._histories.get(_place(conn, batch, part.topic, part.partition))
            known = history.of(exchange) if history is not None else None
            if history is None or known is None:
                continue
            result = results.get((part.topic, part.partition))
            known.code, known.answered_ns = (result.error, now) if result is not None else (NO_ANSWER, now)
            if result is not None:
                known.base_offset = result.base_offset
                if result.error:
                    history.refusal = result


def _place(conn: ClientConnection, batch: Batch, topic: str, partition: int) -> ProducerPartition:
    return ProducerPartition((conn.client_host, conn.client_id or ""), batch.producer_id, topic, partition)
