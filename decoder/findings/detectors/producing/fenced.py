"""Producers whose id was taken over or forgotten (KIP-98, KIP-360, KIP-588)."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ....connection.exchange import Exchange, State
from ....schema.facts import error_code, error_code_set, error_name
from ...engine.counters import LruDict
from ...engine.detector import Wanted
from ...engine.finding import Severity
from ...engine.formatting import duration, times
from ...engine.layout import layout
from ...engine.traffic import ClientConnection, ClientIdentity, Traffic
from ...models.produce import PRODUCE, PartitionProduceResponse, ProduceDetector, said
from ...models.sent_batches import SentBatches
from ...models.transactions import INIT_PRODUCER_ID, TRANSACTIONAL, ProducerTransactions, transactional_id
from .sequence_causes import SILENCE_NS


class _Owner(NamedTuple):
    """Who was given a transactional id's epoch, on which connection."""

    who: str
    identity: ClientIdentity
    client: str
    connection: int
    producer_id: int
    epoch: int


class _Verdict(NamedTuple):
    """Who or what fenced a producer; `cause` is for `Finding.about`."""

    cause: str
    seen: str
    why: str
    remedy: str


_TIMEOUT = "transaction-timeout"
_EPOCHS = (
    "A transactional id belongs to one producer at a time: InitProducerId raises the epoch, and a producer that still has the old one is "
    "refused from then on (KIP-98, KIP-447). "
)
_OWN_ID = (
    "give every instance its own transactional.id (in Kafka Streams, do not set it yourself: use each application.id once). Close a "
    "fenced producer and create a new one"
)
_SHORTER = (
    "end transactions sooner (fewer records in each, no slow work inside), or raise transaction.timeout.ms. Close the fenced producer and "
    "create a new one"
)


class Fenced(ProduceDetector):
    id = "producer-fenced"
    severity = Severity.HIGH
    title = "a producer is fenced: another one took over its transactional id, or its transaction was aborted"
    apis = TRANSACTIONAL
    explains = ("producer-id-not-renewed",)

    OWNERS = 4
    """Latest owners kept of one transactional id."""
    IDS = 5000
    _CODES = error_code_set("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._transactions = traffic.model(ProducerTransactions)

    def setup(self) -> None:
        self._owners: LruDict[str, deque[_Owner]] = LruDict(self.IDS)
        self._verdicts: dict[object, _Verdict] = {}  # by finding

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        code = self.error_of(exchange, self._CODES)
        if code in self._CODES:
            self._fenced(conn, exchange, code)
        elif exchange.api_key == INIT_PRODUCER_ID and not code:
            name, answer = transactional_id(exchange), exchange.response_view
            if name and answer is not None:
                number, epoch = answer["producer_id"], answer["producer_epoch"]
                owner = _Owner(conn.who, conn.identity, conn.client, conn.number, number, epoch)
                self._owners.of(name, lambda: deque(maxlen=self.OWNERS)).append(owner)

    def _fenced(self, conn: ClientConnection, exchange: Exchange, code: int) -> None:
        name = transactional_id(exchange)
        producer_id, epoch = self._producer(exchange)
        key = name or (conn.identity, producer_id)
        owners = list(self._owners.get(name, ())) if name else []
        newer = [o for o in owners if o.producer_id != producer_id or o.epoch > epoch]
        if key not in self._verdicts:
            older = next((o for o in owners if (o.producer_id, o.epoch) == (producer_id, epoch)), None)
            self._verdicts[key] = _taken_over(conn, newer[-1], older, epoch) if newer else self._not_taken_over(exchange, name)
        verdict = self._verdicts[key]
        finding = self.report(
            key,
            exchange,
            verdict.why,
            verdict.remedy,
            error=error_name(code),
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            cause=verdict.cause,
            fenced_by=sorted({o.client for o in newer}),
        )
        if verdict.cause == _TIMEOUT:
            finding.explains = (*self.explains, "transaction-left-open")
        whose = f"transactional id {name!r}" if name else f"producer id {producer_id}"
        finding.seen = (
            f"{conn.who} ({conn.client}) is fenced: {exchange.api} v{exchange.api_version} for {whose} is answered with "
            f"{error_name(code)} ({times(finding.count)}); {verdict.seen}" + said(self.text_of(exchange, code))
        )

    def _not_taken_over(self, exchange: Exchange, name: str | None) -> _Verdict:
        """What fenced a producer that nobody was seen to take over."""
        nobody = "no other producer was seen taking it over"
        if name is None:
            return _Verdict(
                "old-epoch",
                "the broker knows a newer epoch of this producer id",
                "An idempotent producer that gets a new epoch after an error (KIP-360) must not send batches of the old one. Or another "
                "client uses the same producer id.",
                "upgrade the client; do not share a producer between processes. Close it and create a new one",
            )
        transaction = self._transactions.of(name)
        if transaction is None or transaction.timeout_ms is None:
            return _Verdict(
                "unknown",
                f"{nobody}, and its own InitProducerId is not in the capture, so its transaction may have timed out",
                _EPOCHS + "The coordinator also raises the epoch when it aborts a transaction that took longer than "
                "transaction.timeout.ms (KIP-588).",
                f"{_OWN_ID}; if no second producer exists, raise transaction.timeout.ms or make transactions shorter",
            )
        limit, lasted = transaction.timeout_ms * 1_000_000, transaction.open_ns(exchange)
        if transaction.over_time(exchange):
            return _Verdict(
                _TIMEOUT,
                f"{nobody}; its transaction was open for {duration(lasted)}, longer than its transaction.timeout.ms "
                f"({duration(limit)})",
                "The coordinator aborts a transaction that takes longer than transaction.timeout.ms, discards its records and raises the "
                "epoch (KIP-588), so the producer that began it is fenced.",
                _SHORTER,
            )
        state = f"was open for {duration(lasted)}, less than its timeout ({duration(limit)})" if lasted else "was not open"
        return _Verdict(
            "not-in-the-capture",
            f"{nobody}; its transaction {state}, so a timeout is ruled out",
            _EPOCHS + "Most likely a second producer, outside the capture, has the same transactional id; or an administrator fenced this one "
            "(kafka-transactions.sh abort, Admin.fenceProducers).",
            f"look for another instance with this transactional id: {_OWN_ID}",
        )

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


def _taken_over(conn: ClientConnection, last: _Owner, older: _Owner | None, epoch: int) -> _Verdict:
    """`last`: who has the transactional id now. `older`: who was given the fenced epoch, None if that was not seen."""
    fact = f"{last.who} ({last.client}) took it over with epoch {last.epoch}, this one has epoch {epoch}"
    if last.identity != conn.identity:
        return _Verdict("two-producers", fact, _EPOCHS + "Two clients use this one; each takes it from the other.", _OWN_ID)
    if older is not None and older.connection == last.connection:
        return _Verdict(
            "own-new-epoch",
            f"{fact}: the same client asked for the new epoch on the connection on which it had asked for the old one, and went on with "
            "the old one",
            _EPOCHS + "Here it fenced itself: a second producer object in the same process, or a client that does not switch to the epoch "
            "that it was given.",
            "create one producer for each transactional id in a process; if there is only one, upgrade the client",
        )
    return _Verdict(
        "two-instances",
        f"{fact} (the same client id: two instances, or one that was restarted while the old one still runs)",
        _EPOCHS + "The old one still sends, so it was not closed when the new one began.",
        f"{_OWN_ID}; make sure that the old instance ends before a new one starts",
    )


class UnknownProducer(ProduceDetector):
    id = "unknown-producer-id"
    severity = Severity.MEDIUM
    title = "a broker no longer knows a producer id (UNKNOWN_PRODUCER_ID)"
    apis = TRANSACTIONAL
    wanted = Wanted.FAILED
    explains = ("producer-id-not-renewed",)

    _UNKNOWN = error_code("UNKNOWN_PRODUCER_ID")
    _MAPPING = error_code("INVALID_PRODUCER_ID_MAPPING")

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._sent = traffic.model(SentBatches)

    def setup(self) -> None:
        self._verdicts: dict[object, _Verdict] = {}  # by finding

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
        key = conn.identity, code
        if key not in self._verdicts:
            self._verdicts[key] = _NO_MAPPING if mapping else self._forgotten(conn, exchange, found)
        verdict = self._verdicts[key]
        finding = self.report(
            key,
            exchange,
            verdict.why,
            verdict.remedy,
            severity=Severity.HIGH if mapping else Severity.MEDIUM,
            error=error_name(code),
            topic=found.topic if found else None,
            partition=found.partition if found else None,
            transactional_id=transactional_id(exchange),
            cause=verdict.cause,
        )
        finding.seen = (
            f"{conn.where} answers {exchange.api} v{exchange.api_version} of {conn.who}{where} with {error_name(code)} "
            f"({times(finding.count)}){verdict.seen}" + said(found.text if found else "")
        )

    def _forgotten(self, conn: ClientConnection, exchange: Exchange, result: PartitionProduceResponse | None) -> _Verdict:
        """Why the leader has no state for the producer id in the partition."""
        place = (result.topic, result.partition) if result is not None else None
        sent = next((each for each in self._sent.latest if (each.topic, each.partition) == place), None)
        last = sent.history.acknowledged if sent is not None else None
        if last is None or result is None:
            return _UNKNOWN_BEFORE
        silence = (exchange.request_time_ns or 0) - last.answered_ns
        since = f"its last batch was acknowledged {duration(silence)} before, at offset {last.base_offset}"
        if 0 <= last.base_offset < result.log_start:
            return _Verdict(
                "records-deleted",
                f"; {since}, and the log begins at {result.log_start} now: retention or DeleteRecords removed all that it had written",
                "Brokers before 2.4 forget a producer together with its last record (KIP-360 ends that).",
                "upgrade the brokers; until then, raise retention.ms, or do not delete records behind producers that write seldom",
            )
        if last.conn.broker != conn.broker:
            return _Verdict(
                "new-leader",
                f"; {since} by {last.conn.where}: the new leader does not know the producer",
                "The new leader's log lacks the producer's records: it was behind or truncated (unclean.leader.election.enable).",
                f"look for an unclean election in the brokers' logs at that time; {_NEW_EPOCH}",
            )
        if silence >= SILENCE_NS:
            return _Verdict(
                "expired",
                f"; {since}, and nothing since",
                "A leader forgets a producer that wrote nothing for producer.id.expiration.ms (1 day), and other products sooner; brokers "
                "before 2.4 also when its last record is deleted. Newer ones accept its next batch (KIP-360).",
                f"raise producer.id.expiration.ms (or retention.ms) above the longest pause of the producer; {_NEW_EPOCH}",
            )
        return _Verdict(
            "broker-contradicts-itself",
            f"; {since} by the same broker",
            "The broker lost the producer's state in between: a log that was truncated or recreated, or a product that keeps this state in "
            "memory.",
            f"look at the broker's log at that time; {_NEW_EPOCH}",
        )


_NEW_EPOCH = "upgrade the client (Java 2.5, librdkafka 1.6 or newer get a new epoch and continue)"
_UNKNOWN_BEFORE = _Verdict(
    "unknown",
    "",
    "The leader has no state for the producer id in this partition: retention or DeleteRecords removed all of its records (brokers before "
    "2.4), or nothing was written with it for producer.id.expiration.ms (1 day). Clients without KIP-360 fail with a fatal error; with it, "
    "they get a new epoch.",
    f"{_NEW_EPOCH}, and the brokers; raise producer.id.expiration.ms, and retention.ms if records are deleted within minutes",
)
_NO_MAPPING = _Verdict(
    "no-mapping",
    "",
    "The coordinator has no such producer id under the transactional id: it was not used for transactional.id.expiration.ms (7 days).",
    "create a new producer (init_transactions again), or raise transactional.id.expiration.ms",
)
