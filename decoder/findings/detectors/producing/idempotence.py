"""Sequences of idempotent producers that do not fit (KIP-98, KIP-360)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ....connection.exchange import Exchange, State
from ....records import Batch
from ....schema.facts import error_code, error_name
from ...engine.counters import LruDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, times
from ...engine.traffic import ClientConnection, Traffic
from ...models.produce import PRODUCE, PartitionProduceData, ProduceDetector, ProduceReader, said
from ...models.sent_batches import NO_ANSWER, SentBatches
from .sequence_causes import PERHAPS_SHARED, UNSEEN, SequenceCause, cause_of, late, shared

_PARTITIONS = 10_000
_MASK = 0x7FFFFFFF  # sequences run from 0 to 2^31 - 1 and wrap around
_Key = tuple[object, int, str, int]


def _idempotent(
    conn: ClientConnection, produce: ProduceReader, exchange: Exchange
) -> list[tuple[_Key, PartitionProduceData, Batch]]:
    """The batches of a Produce request that have a producer id."""
    sent = produce.sent(exchange)
    if sent is None or not sent.idempotent:
        return []
    return [((conn.identity, batch.producer_id, part.topic, part.partition), part, batch) for part, batch in sent.idempotent]


@dataclass(slots=True)
class _Sequence:
    """What one producer id has sent to one partition. `gaps`: what was expected, by the sequence that came instead;
    `refused`: when, by the sequence that was out of order; `dropped`: the sequence that the client seems to have given up, -1 for none."""

    epoch: int = -1
    expected: int | None = None
    gaps: LruDict[int, int] = field(default_factory=lambda: LruDict(16))
    refused: LruDict[int, int] = field(default_factory=lambda: LruDict(16))
    dropped: int = -1


class OutOfOrder(ProduceDetector):
    id = "out-of-order-sequence"
    severity = Severity.HIGH
    title = "a producer's batch arrives out of sequence (OUT_OF_ORDER_SEQUENCE_NUMBER)"
    apis = frozenset({PRODUCE})
    explains = ("producer-id-not-renewed",)

    RESENT_NS = 10 * SECOND
    """After a failed batch, those behind it are refused too and resent at once; after this time they are not."""
    _CODE = error_code("OUT_OF_ORDER_SEQUENCE_NUMBER")

    def setup(self) -> None:
        self._sequences: LruDict[_Key, _Sequence] = LruDict(_PARTITIONS)
        self._causes: dict[object, SequenceCause] = {}  # by finding

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._sent = traffic.model(SentBatches)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        for key, _, batch in _idempotent(conn, self.produce, exchange):
            known = self._sequences.of(key, _Sequence)
            sequence, behind = batch.base_sequence, (batch.base_sequence + batch.announced) & _MASK
            if batch.producer_epoch != known.epoch:
                if known.refused:
                    self._bumped(conn, key, known)
                # A new epoch begins at 0; the first sequence of one that began before the capture is unknown.
                known.expected = 0 if known.epoch >= 0 else sequence
                known.epoch = batch.producer_epoch
                known.gaps.clear()
            expected = known.expected
            if expected is None or sequence == expected:
                known.expected = behind
            elif (sequence - expected) & _MASK < _MASK // 2:
                known.gaps[sequence] = expected
                known.expected = behind
            elif sequence == known.dropped:
                self._sent_after_all(conn, batch, known)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        results = self.produce.results(exchange)
        if not self._found and not any(r.error == self._CODE for r in results):
            return
        answers = {(r.topic, r.partition): r for r in results}
        for key, part, batch in _idempotent(conn, self.produce, exchange):
            known = self._sequences.of(key, _Sequence)
            result = answers.get((part.topic, part.partition))
            if result is None:
                continue
            if result.error == self._CODE:
                self._refused(conn, exchange, part, batch, known, result.text)
            elif result.error == 0 and known.refused.pop(batch.base_sequence, 0):
                finding = self._found.get((conn.identity, batch.producer_id))
                if finding is not None:
                    finding.about["recovered"] += 1

    def _refused(
        self, conn: ClientConnection, exchange: Exchange, part: PartitionProduceData, batch: Batch, known: _Sequence, text: str
    ) -> None:
        expected = known.gaps.get(batch.base_sequence)
        known.refused[batch.base_sequence] = exchange.response_time_ns or 0
        key = conn.identity, batch.producer_id
        finding = self.report(
            key,
            exchange,
            topic=part.topic,
            partition=part.partition,
            error=error_name(self._CODE),
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            sequence=batch.base_sequence,
            expected=None,
            cause="",
            recovered=0,
            bumped=0,
        )
        before = self._causes.get(key)
        if before is None or not before.sure:
            cause = self._cause(conn, exchange, part, batch, expected)
            if before is None or cause.sure:
                if cause.dropped >= 0:
                    known.dropped = cause.dropped
                cause = cause._replace(seen=cause.seen + said(text))
                finding.about |= {
                    "topic": part.topic,
                    "partition": part.partition,
                    "producer_epoch": batch.producer_epoch,
                    "sequence": batch.base_sequence,
                    "expected": expected,
                }
                self._adopt(key, finding, cause)
        self._tell(conn, key, finding)

    def _cause(
        self, conn: ClientConnection, exchange: Exchange, part: PartitionProduceData, batch: Batch, expected: int | None
    ) -> SequenceCause:
        history = self._sent.history(conn, batch, part.topic, part.partition)
        sent = history.of(exchange)
        if sent is None:
            return UNSEEN
        cause = cause_of(history, sent, expected)
        if cause.kind in PERHAPS_SHARED:
            other = self._sent.sharing(conn, batch, part.topic, part.partition)
            if other is not None:
                return shared(other)
        return cause

    def _adopt(self, key: object, finding: Finding, cause: SequenceCause) -> None:
        self._causes[key] = cause
        finding.about["cause"] = str(cause.kind)
        finding.why, finding.remedy, finding.explains = cause.why, cause.remedy, (*self.explains, *cause.explains)

    def _tell(self, conn: ClientConnection, key: object, finding: Finding) -> None:
        about = finding.about
        finding.seen = (
            f"{conn.where} refuses batches of {conn.who} for {about['topic']}-{about['partition']} with "
            f"OUT_OF_ORDER_SEQUENCE_NUMBER ({times(finding.count)}; producer id {about['producer_id']}, epoch "
            f"{about['producer_epoch']}): {self._causes[key].seen}"
        )

    def _sent_after_all(self, conn: ClientConnection, batch: Batch, known: _Sequence) -> None:
        """The client sends a batch that it seemed to have dropped."""
        key = conn.identity, batch.producer_id
        finding, cause = self._found.get(key), self._causes.get(key)
        if finding is not None and cause is not None and cause.dropped == known.dropped:
            self._adopt(key, finding, late(known.dropped))
            self._tell(conn, key, finding)
        known.dropped = -1

    def _bumped(self, conn: ClientConnection, key: _Key, known: _Sequence) -> None:
        finding = self._found.get((conn.identity, key[1]))
        if finding is not None:
            finding.about["bumped"] += len(known.refused)
        known.refused.clear()

    def finish(self, now_ns: int) -> None:
        if not self._found:
            return
        worst: dict[object, Severity] = {}
        for (identity, producer_id, _, _), known in self._sequences.items():
            for when in known.refused.values():
                severity = Severity.HIGH if now_ns - when >= self.RESENT_NS else Severity.MEDIUM
                at = identity, producer_id
                if at in self._causes and self._causes[at].sure:
                    severity = Severity.HIGH
                worst[at] = max(worst.get(at, severity), severity, key=lambda s: s.rank)
        for key, finding in self._found.items():
            about = finding.about
            gap = Severity.HIGH if about["expected"] is not None else Severity.INFO
            bumped = Severity.LOW if about["bumped"] else Severity.INFO
            finding.severity = max(worst.get(key, Severity.INFO), gap, bumped, key=lambda s: s.rank)


class DuplicateSends(ProduceDetector):
    id = "duplicate-sends"
    severity = Severity.LOW
    title = "a producer resends a batch that was already acknowledged (DUPLICATE_SEQUENCE_NUMBER)"
    apis = frozenset({PRODUCE})

    _ACKNOWLEDGED = (
        "A broker remembers the last five batches of a producer id and partition and answers a repeated one as if it were new; it refuses "
        "an older one. The records are written once, but bytes and time are spent twice, and a client that loses track of "
        "acknowledgements has a bug.",
        "upgrade the client library; check whether request.timeout.ms (librdkafka: socket.timeout.ms) is shorter than the broker's "
        "response time, so that the client gives up too early",
    )
    _AFTER_LOSS = (
        "The first request got no answer, but its records were written: the broker recognises the batch when it is sent again, and nothing "
        "is written twice. This is what idempotence is for.",
        "nothing, if it is rare: clients take this answer as success. Otherwise find out why requests get no answer",
    )
    REMEMBERED = 32
    """Batches of a partition; brokers remember 5."""
    _CODE = error_code("DUPLICATE_SEQUENCE_NUMBER")

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._sent = traffic.model(SentBatches)

    def setup(self) -> None:
        # By producer and partition: (connection, epoch, sequence) of what was acknowledged.
        self._taken: LruDict[_Key, deque[tuple[int, int, int]]] = LruDict(_PARTITIONS)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        for key, part, batch in _idempotent(conn, self.produce, exchange):
            # Only on the same connection: a response may have been lost with another connection.
            if (conn.number, batch.producer_epoch, batch.base_sequence) in self._taken.get(key, ()):
                finding = self._report((conn.identity, "again"), conn, exchange, part, batch, None)
                finding.seen = (
                    f"{conn.who} resends batches for {part.at} that were already acknowledged on the same connection "
                    f"({times(finding.count)}; producer id {batch.producer_id}, sequence {batch.base_sequence})"
                )

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        codes = {(r.topic, r.partition): r.error for r in self.produce.results(exchange)}
        for key, part, batch in _idempotent(conn, self.produce, exchange):
            code = codes.get((part.topic, part.partition))
            if code == 0:
                taken = self._taken.of(key, lambda: deque(maxlen=self.REMEMBERED))
                taken.append((conn.number, batch.producer_epoch, batch.base_sequence))
            elif code == self._CODE:
                earlier = self._sent.history(conn, batch, part.topic, part.partition).batches
                lost = any(b.sequence == batch.base_sequence and b.code == NO_ANSWER for b in earlier)
                finding = self._report((conn.identity, "lost" if lost else "answer"), conn, exchange, part, batch, code)
                if lost:
                    finding.severity, finding.why, finding.remedy = Severity.INFO, *self._AFTER_LOSS
                finding.seen = (
                    f"{conn.where} answers batches of {conn.who} for {part.at} with DUPLICATE_SEQUENCE_NUMBER "
                    f"({times(finding.count)}; producer id {batch.producer_id}, sequence {batch.base_sequence})"
                    + ("; they had been sent before and got no answer" if lost else "")
                )

    def _report(
        self,
        key: object,
        conn: ClientConnection,
        exchange: Exchange,
        part: PartitionProduceData,
        batch: Batch,
        code: int | None,
    ) -> Finding:
        return self.report(
            key,
            exchange,
            *self._ACKNOWLEDGED,
            topic=part.topic,
            partition=part.partition,
            error=error_name(code) if code else None,
            producer_id=batch.producer_id,
            sequence=batch.base_sequence,
        )


class TooManyInFlight(ProduceDetector):
    id = "too-many-in-flight"
    severity = Severity.LOW
    title = "an idempotent producer has more than five requests in flight for a partition (max.in.flight)"
    why = (
        "Brokers recognise only the last five batches of a producer id and partition. When one fails with more in "
        "flight after it, retries are refused as out of order, or written in another order."
    )
    remedy = (
        "set max.in.flight.requests.per.connection to 5 or less with idempotence (Java and librdkafka enforce this; "
        "kafkajs: maxInFlightRequests, unlimited by default)"
    )
    apis = frozenset({PRODUCE})

    MOST = 5
    """`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`: batches that a broker remembers."""

    def setup(self) -> None:
        self._flying: LruDict[tuple[int, _Key], int] = LruDict(_PARTITIONS)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        for key, part, batch in _idempotent(conn, self.produce, exchange):
            at = conn.number, key
            flying = self._flying.of(at, int) + 1
            self._flying[at] = flying
            if flying <= self.MOST:
                continue
            finding = self.report(
                conn.identity,
                exchange,
                topic=part.topic,
                partition=part.partition,
                producer_id=batch.producer_id,
                in_flight=0,
            )
            finding.about["in_flight"] = max(finding.about["in_flight"], flying)
            finding.seen = (
                f"{conn.who} has {finding.about['in_flight']} batches of producer id {batch.producer_id} for {part.at} in "
                f"flight on one connection"
            )

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        for key, _, _ in _idempotent(conn, self.produce, exchange):
            at = conn.number, key
            flying = self._flying.get(at, 0) - 1
            if flying > 0:
                self._flying[at] = flying
            elif at in self._flying:
                del self._flying[at]
