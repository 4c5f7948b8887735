"""Producers without idempotence that resend batches: records reordered or written twice.

A batch is recognised by its CRC, which covers its timestamps and all of its records. Clients that put the records
of a failed batch into other batches are not recognised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ....connection.exchange import Exchange
from ....schema.facts import error_code_set, error_name
from ...engine.counters import LruDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import times
from ...engine.traffic import ClientConnection
from ...models.produce import PRODUCE, PartitionProduceData, ProduceDetector, unanswered

_WRITTEN_ALL_THE_SAME = error_code_set("REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
_NO_ANSWER = -2  # in the place of an error code


@dataclass(slots=True)
class _Partition:
    """The latest batches of one client for one partition."""

    number: int = 0  # of the batch sent last
    last_taken: int = 0  # the number of the latest batch that was acknowledged
    waiting: LruDict[int, int] = field(default_factory=lambda: LruDict(32))  # by CRC: number of a batch without a response
    failed: LruDict[int, tuple[int, int]] = field(default_factory=lambda: LruDict(32))  # by CRC: number, and error code


class Resent(ProduceDetector):
    id = "resent-without-idempotence"
    severity = Severity.LOW
    title = "a producer without idempotence resends batches: records may be out of order or written twice"
    apis = frozenset({PRODUCE})

    PARTITIONS = 10_000

    def setup(self) -> None:
        self._partitions: LruDict[tuple[object, str, int], _Partition] = LruDict(self.PARTITIONS)

    def _parts(self, exchange: Exchange) -> Iterable[PartitionProduceData]:
        sent = self.produce.sent(exchange)
        if sent is None or sent.acks == 0:
            return ()
        return (p for p in sent.parts if p.batch is not None and p.batch.producer_id < 0)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        for part in self._parts(exchange):
            assert part.batch is not None
            state = self._partitions.of((conn.identity, part.topic, part.partition), _Partition)
            state.number += 1
            crc = part.batch.crc
            if state.failed and crc in state.failed:
                number, code = state.failed.pop(crc)
                if state.last_taken > number:
                    self._reordered(conn, exchange, part, code)
                if code == _NO_ANSWER or code in _WRITTEN_ALL_THE_SAME:
                    self._perhaps_twice(conn, exchange, part, code)
            state.waiting[crc] = state.number

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        codes: dict[tuple[str, int], int] | None = None
        for part in self._parts(exchange):
            state = self._partitions.get((conn.identity, part.topic, part.partition))
            assert part.batch is not None
            number = state.waiting.pop(part.batch.crc, None) if state is not None else None
            if state is None or number is None:
                continue
            if codes is None:
                codes = {(r.topic, r.partition): r.error for r in self.produce.results(exchange)}
            code = _NO_ANSWER if unanswered(exchange) else codes.get((part.topic, part.partition))
            if code == 0:
                state.last_taken = max(state.last_taken, number)
            elif code is not None:
                state.failed[part.batch.crc] = number, code

    def _reordered(self, conn: ClientConnection, exchange: Exchange, part: PartitionProduceData, code: int) -> None:
        finding = self._report(conn, exchange, part, code, "order")
        finding.seen = (
            f"{conn.who} resent a batch for {part.at} ({_outcome(code)}) after a later batch for that partition had "
            f"been written: its records are out of order ({times(finding.count)})"
        )

    def _perhaps_twice(self, conn: ClientConnection, exchange: Exchange, part: PartitionProduceData, code: int) -> None:
        finding = self._report(conn, exchange, part, code, "twice")
        finding.seen = (
            f"{conn.who} resent a batch for {part.at} that may have been written already ({_outcome(code)}): its "
            f"records may be written twice ({times(finding.count)})"
        )

    def _report(
        self, conn: ClientConnection, exchange: Exchange, part: PartitionProduceData, code: int, effect: str
    ) -> Finding:
        why = (
            "Several requests for one partition were in flight, and an earlier one failed; without idempotence, the "
            "broker still accepts the later ones (max.in.flight.requests.per.connection above 1)."
            if effect == "order"
            else (
                "Without a producer id and sequence numbers (KIP-98), the broker cannot recognise a repeated batch: "
                "it treats a retry as a new batch."
            )
        )
        return self.report(
            (effect, conn.identity),
            exchange,
            why,
            "set enable.idempotence=true and acks=all (the default of Java since 3.0 and of kafka-python 3; "
            "librdkafka and aiokafka: enable.idempotence / enable_idempotence). Without idempotence, "
            "max.in.flight.requests.per.connection=1 keeps the order, and retries=0 avoids duplicates",
            topic=part.topic,
            partition=part.partition,
            error=None if code == _NO_ANSWER else error_name(code),
            effect=effect,
        )


def _outcome(code: int) -> str:
    return "the first got no answer" if code == _NO_ANSWER else f"the first got {error_name(code)}"
