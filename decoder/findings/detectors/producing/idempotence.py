"""Sequences of idempotent producers that do not fit (KIP-98, KIP-360)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....connection.exchange import Exchange, State
from ....schema.facts import error_code, error_name
from ...engine.counters import LruDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, times
from ...engine.traffic import ClientConnection, ClientIdentity, Traffic
from ...models.produce import PRODUCE, ProduceDetector, said
from ...models.sent_batches import NO_ANSWER, WAITING, PartitionBatch, SentBatches
from .sequence_causes import PERHAPS_SHARED, CauseKind, SequenceCause, cause_of, late, shared

_PARTITIONS = 10_000


@dataclass(slots=True)
class _Refused:
    """What one producer id could not write to one partition. `sequences`: when each was refused as out of order, until it is accepted;
    `dropped`: the sequence that the client seems to have given up, -1 for none."""

    epoch: int
    sequences: LruDict[int, int] = field(default_factory=lambda: LruDict(16))
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

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._sent = traffic.model(SentBatches)

    def setup(self) -> None:
        self._refused: LruDict[_Place, _Refused] = LruDict(_PARTITIONS)
        self._causes: dict[object, SequenceCause] = {}  # by finding

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        if not self._refused:
            return
        for sent in self._sent.latest:
            known = self._refused.get(_place(conn, sent))
            if known is None:
                continue
            if sent.batch.epoch != known.epoch:
                self._bumped(conn, sent, known)
            elif sent.batch.sequence == known.dropped:
                self._sent_after_all(conn, sent, known)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED or not (exchange.error or self._refused):
            return
        for sent in self._sent.latest:
            if sent.batch.code == self._CODE:
                self._out_of_order(conn, exchange, sent)
            elif sent.batch.code == 0 and self._refused:
                known = self._refused.get(_place(conn, sent))
                if known is not None and known.sequences.pop(sent.batch.sequence, 0):
                    self._found[conn.identity, sent.producer_id].about["recovered"] += 1

    def _out_of_order(self, conn: ClientConnection, exchange: Exchange, sent: PartitionBatch) -> None:
        batch = sent.batch
        known = self._refused.of(_place(conn, sent), lambda: _Refused(batch.epoch))
        known.sequences[batch.sequence] = exchange.response_time_ns or 0
        key = conn.identity, sent.producer_id
        finding = self.report(
            key,
            exchange,
            topic=sent.topic,
            partition=sent.partition,
            error=error_name(self._CODE),
            producer_id=sent.producer_id,
            producer_epoch=batch.epoch,
            sequence=batch.sequence,
            expected=None,
            cause="",
            recovered=0,
            bumped=0,
        )
        before = self._causes.get(key)
        if before is None or not before.sure:
            cause = self._cause(conn, sent)
            if before is None or cause.sure:
                known.dropped = cause.dropped
                finding.about |= {
                    "topic": sent.topic,
                    "partition": sent.partition,
                    "producer_epoch": batch.epoch,
                    "sequence": batch.sequence,
                    "expected": batch.expected,
                }
                text = next(
                    (r.text for r in self.produce.results(exchange) if (r.topic, r.partition) == (sent.topic, sent.partition)), ""
                )
                self._adopt(key, finding, cause._replace(seen=cause.seen + said(text)))
        self._tell(conn, key, finding)

    def _cause(self, conn: ClientConnection, sent: PartitionBatch) -> SequenceCause:
        cause = cause_of(sent.history, sent.batch)
        if cause.kind in PERHAPS_SHARED:
            other = self._sent.sharing(conn, sent)
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

    def _sent_after_all(self, conn: ClientConnection, sent: PartitionBatch, known: _Refused) -> None:
        """The client sends a batch that it seemed to have dropped."""
        key = conn.identity, sent.producer_id
        finding, cause = self._found.get(key), self._causes.get(key)
        if finding is not None and cause is not None and cause.dropped == known.dropped:
            self._adopt(key, finding, late(known.dropped))
            self._tell(conn, key, finding)
        known.dropped = -1

    def _bumped(self, conn: ClientConnection, sent: PartitionBatch, known: _Refused) -> None:
        finding = self._found.get((conn.identity, sent.producer_id))
        if finding is not None:
            finding.about["bumped"] += len(known.sequences)
        del self._refused[_place(conn, sent)]

    def finish(self, now_ns: int) -> None:
        if not self._found:
            return
        worst: dict[object, Severity] = {}
        for (identity, producer_id, _, _), known in self._refused.items():
            for when in known.sequences.values():
                severity = Severity.HIGH if now_ns - when >= self.RESENT_NS else Severity.MEDIUM
                at = identity, producer_id
                if at in self._causes and self._causes[at].sure:
                    # A batch that is already written is no loss.
                    severity = Severity.MEDIUM if self._causes[at].kind is CauseKind.REPEATED else Severity.HIGH
                worst[at] = max(worst.get(at, severity), severity, key=lambda s: s.rank)
        for key, finding in self._found.items():
            about = finding.about
            gap = Severity.HIGH if about["expected"] is not None else Severity.INFO
            bumped = Severity.LOW if about["bumped"] else Severity.INFO
            finding.severity = max(worst.get(key, Severity.INFO), gap, bumped, key=lambda s: s.rank)


_Place = tuple[ClientIdentity, int, str, int]


def _place(conn: ClientConnection, sent: PartitionBatch) -> _Place:
    return conn.identity, sent.producer_id, sent.topic, sent.partition


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
    _CODE = error_code("DUPLICATE_SEQUENCE_NUMBER")

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._sent = traffic.model(SentBatches)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        for sent in self._sent.latest:
            earlier = sent.batch.earlier
            # Only on the same connection: a response may have been lost with another connection.
            if earlier is not None and earlier.code == 0 and earlier.conn is conn:
                finding = self._report((conn.identity, "again"), exchange, sent, None)
                finding.seen = (
                    f"{conn.who} resends batches for {sent.at} that were already acknowledged on the same connection "
                    f"({times(finding.count)}; producer id {sent.producer_id}, sequence {sent.batch.sequence})"
                )

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if not exchange.error:
            return
        for sent in self._sent.latest:
            if sent.batch.code != self._CODE:
                continue
            earlier = sent.batch.earlier
            lost = earlier is not None and earlier.code == NO_ANSWER
            finding = self._report((conn.identity, "lost" if lost else "answer"), exchange, sent, self._CODE)
            if lost:
                finding.severity, finding.why, finding.remedy = Severity.INFO, *self._AFTER_LOSS
            finding.seen = (
                f"{conn.where} answers batches of {conn.who} for {sent.at} with DUPLICATE_SEQUENCE_NUMBER "
                f"({times(finding.count)}; producer id {sent.producer_id}, sequence {sent.batch.sequence})"
                + ("; they had been sent before and got no answer" if lost else "")
            )

    def _report(self, key: object, exchange: Exchange, sent: PartitionBatch, code: int | None) -> Finding:
        return self.report(
            key,
            exchange,
            *self._ACKNOWLEDGED,
            topic=sent.topic,
            partition=sent.partition,
            error=error_name(code) if code else None,
            producer_id=sent.producer_id,
            sequence=sent.batch.sequence,
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

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._sent = traffic.model(SentBatches)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        if len(conn.waiting) <= self.MOST:
            return
        for sent in self._sent.latest:
            flying = sum(1 for each in sent.history.batches if each.code == WAITING and each.conn is conn)
            if flying <= self.MOST:
                continue
            finding = self.report(
                conn.identity,
                exchange,
                topic=sent.topic,
                partition=sent.partition,
                producer_id=sent.producer_id,
                in_flight=0,
            )
            finding.about["in_flight"] = max(finding.about["in_flight"], flying)
            finding.seen = (
                f"{conn.who} has {finding.about['in_flight']} batches of producer id {sent.producer_id} for {sent.at} in "
                f"flight on one connection"
            )
