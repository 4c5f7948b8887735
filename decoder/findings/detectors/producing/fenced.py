"""Producers whose id was taken over or forgotten (KIP-98, KIP-360, KIP-588)."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ....connection.exchange import Exchange, State
from ....schema.facts import error_code, error_code_set, error_name
from ...engine.counters import LruDict
from ...engine.detector import Wanted
from ...engine.finding import Severity
from ...engine.formatting import times
from ...engine.layout import layout
from ...engine.traffic import ClientConnection
from ...models.produce import PRODUCE, ProduceDetector
from .transactions import INIT_PRODUCER_ID, TRANSACTIONAL, transactional_id


class _Owner(NamedTuple):
    """Who was given a transactional id's epoch."""

    who: str
    identity: object
    client: str
    producer_id: int
    epoch: int


class Fenced(ProduceDetector):
    id = "producer-fenced"
    severity = Severity.HIGH
    title = "a producer is fenced: another one took over its transactional id, or its transaction was aborted"
    why = (
        "A transactional id belongs to one producer at a time: InitProducerId raises the epoch, and a producer that "
        "still has the old one is refused from then on (KIP-98, KIP-447). It cannot continue; its transaction is "
        "aborted. The coordinator also raises the epoch when it aborts a transaction that took longer than "
        "transaction.timeout.ms (KIP-588)."
    )
    remedy = (
        "give every instance its own transactional.id (in Kafka Streams, do not set it yourself: use each "
        "application.id once); if no second producer exists, raise transaction.timeout.ms or make transactions "
        "shorter. Close a fenced producer and create a new one"
    )
    apis = TRANSACTIONAL

    OWNERS = 4
    """Latest owners kept of one transactional id."""
    IDS = 5000
    _CODES = error_code_set("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")

    def setup(self) -> None:
        self._owners: LruDict[str, deque[_Owner]] = LruDict(self.IDS)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        code = self.error_of(exchange, self._CODES)
        if code in self._CODES:
            self._fenced(conn, exchange, code)
        elif exchange.api_key == INIT_PRODUCER_ID and not code:
            name, answer = transactional_id(exchange), exchange.response_view
            if name and answer is not None:
                owner = _Owner(conn.who, conn.identity, conn.client, answer["producer_id"], answer["producer_epoch"])
                self._owners.of(name, lambda: deque(maxlen=self.OWNERS)).append(owner)

    def _fenced(self, conn: ClientConnection, exchange: Exchange, code: int) -> None:
        name = transactional_id(exchange)
        owners = list(self._owners.get(name, ())) if name else []
        producer_id, epoch = self._producer(exchange)
        newer = [o for o in owners if o.producer_id != producer_id or o.epoch > epoch]
        finding = self.report(
            name or (conn.identity, producer_id),
            exchange,
            error=error_name(code),
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            fenced_by=[],
        )
        finding.about["fenced_by"] = sorted({o.client for o in newer})
        who = f"{conn.who} ({conn.client})"
        whose = f"transactional id {name!r}" if name else f"producer id {producer_id}"
        finding.seen = (
            f"{who} is fenced: {exchange.api} v{exchange.api_version} for {whose} is answered with {error_name(code)} "
            f"({times(finding.count)}); "
        )
        if newer:
            last = newer[-1]
            same = (
                " (the same client id: two instances, or one that was restarted)"
                if last.identity == conn.identity
                else ""
            )
            finding.seen += (
                f"{last.who} ({last.client}) took it over with epoch {last.epoch}, this one has epoch {epoch}{same}"
            )
        else:
            finding.seen += "no other producer was seen taking it over, so its transaction may have timed out"

    def _producer(self, exchange: Exchange) -> tuple[int, int]:
        """The producer id and epoch that a request carries, -1 if none."""
        message = exchange.request_view
        if exchange.api_key == PRODUCE:
            sent = self.produce.sent(exchange)
            batch = next((p.batch for p in sent.parts if p.batch is not None), None) if sent else None
            return (batch.producer_id, batch.producer_epoch) if batch else (-1, -1)
        if message is None:
            return -1, -1
        names = layout(message.plan.root)
        for prefix in ("", "v3_and_below_"):
            if f"{prefix}producer_id" in names:
                return message.values[names[f"{prefix}producer_id"]], message.values[names[f"{prefix}producer_epoch"]]
        return -1, -1


class UnknownProducer(ProduceDetector):
    id = "unknown-producer-id"
    severity = Severity.MEDIUM
    title = "a broker no longer knows a producer id (UNKNOWN_PRODUCER_ID)"
    apis = TRANSACTIONAL
    wanted = Wanted.FAILED

    _UNKNOWN = error_code("UNKNOWN_PRODUCER_ID")
    _MAPPING = error_code("INVALID_PRODUCER_ID_MAPPING")

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        code = self.error_of(exchange, (self._UNKNOWN, self._MAPPING))
        if code not in (self._UNKNOWN, self._MAPPING):
            return
        results = self.produce.results(exchange) if exchange.api_key == PRODUCE else []
        found = next((r for r in results if r.error == code), None)
        where = f" for {found.topic}-{found.partition}" if found else ""
        mapping = code == self._MAPPING
        finding = self.report(
            (conn.identity, code),
            exchange,
            "The coordinator has no such producer id under the transactional id: it was not used for "
            "transactional.id.expiration.ms (7 days)."
            if mapping
            else "The leader has no state for the producer id in this partition: nothing was written with it for "
                 "producer.id.expiration.ms (1 day), or retention or DeleteRecords removed all of its records "
                 "(brokers before 2.4). Clients without KIP-360 fail with a fatal error; with it, they get a new "
                 "epoch.",
            "create a new producer (init_transactions again), or raise transactional.id.expiration.ms"
            if mapping
            else "upgrade the client (Java 2.5, librdkafka 1.6 or newer) and the brokers; raise "
                 "producer.id.expiration.ms, and retention.ms if records are deleted within minutes",
            severity=Severity.HIGH if mapping else Severity.MEDIUM,
            error=error_name(code),
            topic=found.topic if found else None,
            partition=found.partition if found else None,
            transactional_id=transactional_id(exchange),
        )
        finding.seen = (
            f"{conn.where} answers {exchange.api} v{exchange.api_version} of {conn.who}{where} with {error_name(code)} "
            f"({times(finding.count)})"
        )
