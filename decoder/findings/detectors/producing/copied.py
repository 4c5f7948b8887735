"""A batch that a client sends to a second topic after a request was lost (KAFKA-19012)."""

from __future__ import annotations

from typing import NamedTuple

from ....connection.exchange import Exchange
from ....schema.facts import error_code_set
from ...engine.counters import BoundedDict
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, several, some
from ...engine.traffic import ClientConnection, Traffic
from ...models.produce import PRODUCE, ProduceDetector, unanswered
from ...models.sent_batches import BatchHistory, PartitionBatch, SentBatches

_Producer = tuple[str, str, int]
"""A client's host, its id, and a producer id."""


class _Original(NamedTuple):
    """Where a batch was sent first. `records`: how many it has."""

    topic: str
    partition: int
    records: int


class _Lost(NamedTuple):
    """Produce requests of a producer that got no answer in time. `time_ns`: when the last one was sent."""

    topics: frozenset[str]
    time_ns: int


class BatchInTwoTopics(ProduceDetector):
    id = "batch-in-two-topics"
    severity = Severity.HIGH
    title = "a batch of one topic is sent to another topic after a request without an answer (KAFKA-19012)"
    apis = frozenset({PRODUCE})
    explains = ("unanswered-request", "closed-without-answer")
    why = (
        "The two batches are equal byte for byte, with their producer id and sequence, and their CRC does not cover the topic: the "
        "broker accepts the copy without an error. Records reach consumers that must not see them, and the other topic's own records "
        "are missing. Java producers gave a batch's buffer back while its request was still being sent (KAFKA-19012, CVE-2026-35554: "
        "2.8.0 to 3.9.1, 4.0.0, 4.0.1, 4.1.0 and 4.1.1)."
    )
    remedy = (
        "upgrade kafka-clients to 3.9.2, 4.0.2, 4.1.2 or 4.2; until then, raise delivery.timeout.ms, so that batches do not expire "
        "while a request is under way. Look for records in the wrong topic, and for missing ones, from that time on"
    )

    RECENT = 4000
    """Batches that are remembered, of all clients."""
    LOST_NS = 600 * SECOND
    """How long after a lost request a copy may come from it."""
    _TIMED_OUT = error_code_set("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION")

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._sent = traffic.model(SentBatches)

    def setup(self) -> None:
        self._originals: BoundedDict[tuple[int, int, int], _Original] = BoundedDict(self.RECENT)  # producer id, CRC, sequence
        self._lost: BoundedDict[_Producer, _Lost] = BoundedDict(1000)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        for sent in self._sent.latest:
            batch = sent.batch
            key = sent.producer_id, batch.crc, batch.sequence
            original = self._originals.get(key)
            if original is None:
                self._originals[key] = _Original(sent.topic, sent.partition, batch.count)
            elif original.topic != sent.topic:
                if self._lost:
                    self._again(conn, exchange, sent, original)
            elif self._found:
                self._sent_there_too(conn, sent)

    def _sent_there_too(self, conn: ClientConnection, sent: PartitionBatch) -> None:
        """A batch is sent again to its first topic: it was meant for both."""
        for key, finding in list(self._found.items()):
            if key[:2] == (conn.identity, sent.topic) and finding.about["sequence"] == sent.batch.sequence:  # type: ignore[index]
                del self._found[key]

    def _again(self, conn: ClientConnection, exchange: Exchange, sent: PartitionBatch, original: _Original) -> None:
        """A batch of another topic is sent."""
        lost = self._lost.get((conn.client_host, conn.client_id or "", sent.producer_id))
        now, batch = exchange.request_time_ns or 0, sent.batch
        if lost is None or now - lost.time_ns > self.LOST_NS or not lost.topics & {sent.topic, original.topic}:
            return
        there = self._sent.history(conn, sent.producer_id, original.topic, original.partition)
        if batch.count != original.records or not there.batches or _alike(there, sent):
            return
        finding = self.report(
            (conn.identity, original.topic, sent.topic),
            exchange,
            topic=sent.topic,
            partition=sent.partition,
            original_topic=original.topic,
            producer_id=sent.producer_id,
            sequence=batch.sequence,
        )
        finding.seen = (
            f"{conn.who} sent a batch of {original.topic}-{original.partition} ({several(batch.count, 'record')}, producer id "
            f"{sent.producer_id}, sequence {batch.sequence}, CRC {batch.crc:#010x}) to {sent.at} too, byte for byte, "
            f"{duration(now - lost.time_ns)} after a Produce for {some(lost.topics)} that got no answer"
        )

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if not unanswered(exchange) and not (exchange.error and any(r.error in self._TIMED_OUT for r in self.produce.results(exchange))):
            return
        latest = self._sent.latest[:100]
        topics = frozenset(sent.topic for sent in latest)
        for producer_id in {sent.producer_id for sent in latest}:
            key = conn.client_host, conn.client_id or "", producer_id
            before = self._lost.get(key)
            if before is not None and len(before.topics) < 100:
                topics |= before.topics
            self._lost[key] = _Lost(topics, exchange.request_time_ns or 0)


def _alike(there: BatchHistory, sent: PartitionBatch) -> bool:
    """Whether the client means to write the same to both: it did so before, or this batch was sent here before."""
    known = {(each.sequence, each.crc) for each in there.batches}
    return any((each.sequence, each.crc) in known for each in sent.history.batches if each is not sent.batch)
