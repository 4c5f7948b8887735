"""Transactions that do not end, do not begin, or are rolled back all the time (KIP-98, KIP-890)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from ....connection.exchange import Exchange, State
from ....reference import explain
from ....schema.facts import api_key, error_code, error_code_set, error_name
from ...engine.counters import LruDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, some, times
from ...engine.traffic import ClientConnection, Traffic
from ...models.produce import PRODUCE, ProduceDetector, said
from ...models.transactions import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    IMPLICIT,
    INIT_PRODUCER_ID,
    TRANSACTIONAL,
    ProducerTransaction,
    ProducerTransactions,
    transactional_id,
)

_IDS = 5000
_OFFSET_COMMIT = api_key("TxnOffsetCommit")


@dataclass(slots=True)
class _Open:
    """A transaction that has not ended. `conn`, `exchange`: of its first request. `gone_ns`: when the client went away."""

    conn: ClientConnection
    exchange: Exchange
    timeout_ms: int | None
    gone_ns: int = 0
    reported: bool = False

    @property
    def since_ns(self) -> int:
        return self.exchange.request_time_ns or 0


class OpenTooLong(ProduceDetector):
    id = "transaction-left-open"
    severity = Severity.HIGH
    title = "a transaction does not end: it exceeds transaction.timeout.ms, or its producer is gone"
    why = (
        "While a transaction is open, read_committed consumers get no records of its partitions from its first record "
        "on (the last stable offset). The coordinator aborts it after transaction.timeout.ms and fences its producer: "
        "the records are discarded, and the producer's next request fails."
    )
    remedy = (
        "end every transaction (commit or abort) in a finally block, do less in each one, or raise "
        "transaction.timeout.ms (60 s by default; the broker's transaction.max.timeout.ms is 15 min). After a crash, "
        "restart the producer with the same id, or use kafka-transactions.sh abort (KIP-664)"
    )
    apis = TRANSACTIONAL

    LONGEST_MS = 900_000
    """transaction.max.timeout.ms of brokers by default: where InitProducerId was not seen, no timeout is longer."""
    BACK_NS = 5 * SECOND
    """A restarted producer that takes its id again this soon has blocked nobody for long."""
    _RETRIED = error_code_set(
        "CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
        "REQUEST_TIMED_OUT",
    )  # fmt: skip

    def setup(self) -> None:
        self._timeouts: LruDict[str, int] = LruDict(_IDS)
        self._open: LruDict[str, _Open] = LruDict(_IDS)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        key = exchange.api_key
        if exchange.state is not State.PAIRED:
            return
        if key == PRODUCE:
            sent = self.produce.sent(exchange)
            name = sent.transactional_id if sent is not None else None
            if name and name not in self._open and any(not r.error for r in self.produce.results(exchange)):
                self._open[name] = _Open(conn, exchange, self._timeouts.get(name))
            return
        name = transactional_id(exchange)
        if not name:
            return
        error = exchange.error
        now = exchange.response_time_ns or self.traffic.now_ns
        if key == INIT_PRODUCER_ID and not error:
            # It ends the open transaction.
            self._end(name, now)
            message = exchange.request_view
            if message is not None:
                self._timeouts[name] = message["transaction_timeout_ms"]
        elif key == END_TXN and error not in self._RETRIED:
            self._end(name, now)
        elif key in (ADD_PARTITIONS, ADD_OFFSETS) and not error and name not in self._open:
            self._open[name] = _Open(conn, exchange, self._timeouts.get(name))

    def _end(self, name: str, now_ns: int) -> None:
        if name in self._open:
            self._look(name, self._open[name], now_ns)
            transaction = self._open.pop(name)
            finding = self._found.get((name, "gone"))
            if transaction.gone_ns and finding is not None and now_ns - transaction.gone_ns < self.BACK_NS:
                finding.severity = Severity.LOW

    def closed(self, conn: ClientConnection) -> None:
        # If a broker or proxy stops, or the capture ends, nothing is known of the client.
        if not self._open or conn.by != "client":
            return
        for name, transaction in self._open.items():
            if transaction.gone_ns or transaction.conn.identity != conn.identity:
                continue
            if any(other.identity == conn.identity for other in self.traffic.connections.values()):
                continue
            transaction.gone_ns = conn.closed_ns or 0
            finding = self._report("gone", name, transaction, conn.closed_ns)
            finding.severity = Severity.MEDIUM
            left = self._limit(transaction) - (transaction.gone_ns - transaction.since_ns)
            finding.seen = (
                f"{conn.who} closed all of its connections inside a transaction of {name!r} ({times(finding.count)}); "
                f"the transaction stays open until its timeout, for up to {duration(max(left, 0))} more, or until a "
                "producer with this id starts"
            )

    def finish(self, now_ns: int) -> None:
        for name, transaction in self._open.items():
            self._look(name, transaction, now_ns)

    def _limit(self, transaction: _Open) -> int:
        """In ns."""
        return (transaction.timeout_ms or self.LONGEST_MS) * 1_000_000

    def _look(self, name: str, transaction: _Open, now_ns: int) -> None:
        age = now_ns - transaction.since_ns
        if age <= self._limit(transaction) or transaction.gone_ns:
            return
        if transaction.reported:
            finding = self._found[(name, "long")]
        else:
            transaction.reported = True
            finding = self._report("long", name, transaction, transaction.since_ns)
        finding.about["longest_ns"] = max(finding.about["longest_ns"], age)
        timeout = (
            f"its timeout is {duration(self._limit(transaction))}"
            if transaction.timeout_ms
            else f"brokers allow {duration(self._limit(transaction))} at most by default"
        )
        finding.seen = (
            f"a transaction of {name!r} ({transaction.conn.who}) was open for {duration(finding.about['longest_ns'])}; "
            f"{timeout} ({times(finding.count)})"
        )

    def _report(self, what: str, name: str, transaction: _Open, time_ns: int | None) -> Finding:
        return self.report(
            (name, what),
            None,
            time_ns=time_ns,
            transactional_id=name,
            timeout_ms=transaction.timeout_ms,
            longest_ns=0,
            **transaction.conn.facts_of(transaction.exchange),
        )


class ConcurrentTransactions(ProduceDetector):
    id = "concurrent-transactions"
    severity = Severity.MEDIUM
    title = "a transaction cannot begin because the previous one does not finish (CONCURRENT_TRANSACTIONS)"
    why = (
        "After EndTxn, the coordinator writes a marker to every partition; until all are written, no other "
        "transaction with this id can begin. Markers wait for partitions without a leader, or for a broker that is "
        "down."
    )
    remedy = (
        "look for offline partitions of the topics involved and of __transaction_state, and for hanging transactions: "
        "kafka-transactions.sh find-hanging (KIP-664)"
    )
    apis = TRANSACTIONAL

    WAIT_NS = 5 * SECOND
    """Markers are written within milliseconds; clients retry every 20 to 100 ms until then."""
    STUCK_NS = 30 * SECOND
    TRIES = 5
    _CODE = error_code("CONCURRENT_TRANSACTIONS")

    def setup(self) -> None:
        self._since: LruDict[str, tuple[int, int]] = LruDict(_IDS)  # by id: since when, and how often

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        if exchange.api_key == PRODUCE:
            sent = self.produce.sent(exchange)
            name = sent.transactional_id if sent is not None else None
            concurrent = any(r.error == self._CODE for r in self.produce.results(exchange)) if name else False
        else:
            name = transactional_id(exchange)
            concurrent = exchange.error == self._CODE
        if not name:
            return
        if not concurrent:
            if name in self._since:
                del self._since[name]
            return
        now = exchange.response_time_ns or self.traffic.now_ns
        since, count = self._since.of(name, lambda: (now, 0))
        self._since[name] = since, count + 1
        waited = now - since
        if waited < self.WAIT_NS or count + 1 < self.TRIES:
            return
        finding = self.report(name, exchange, error=error_name(self._CODE), transactional_id=name, longest_ns=0)
        finding.about["longest_ns"] = max(finding.about["longest_ns"], waited)
        finding.severity = Severity.HIGH if finding.about["longest_ns"] >= self.STUCK_NS else Severity.MEDIUM
        finding.seen = (
            f"{conn.where} answers {exchange.api} of {conn.who} for transactional id {name!r} with "
            f"CONCURRENT_TRANSACTIONS for {duration(finding.about['longest_ns'])} so far ({times(count + 1)} in a row)"
        )


class CommitsWithoutOffsets(Detector):
    id = "committed-without-offsets"
    severity = Severity.HIGH
    title = "a transaction is committed although its consumer's offsets were refused, so that its input is read again"
    explains = ("unexplained-error", "concurrent-transactions")
    why = (
        "the offsets that a transaction consumed belong to it (AddOffsetsToTxn, TxnOffsetCommit, KIP-447). The coordinator refused them, and the "
        "application committed the transaction all the same: its results are visible, its input counts as not read, and is processed again."
    )
    remedy = (
        "application: when send_offsets_to_transaction (sendOffsetsToTransaction) fails, call it again if the error is retriable, or "
        "abort_transaction; never commit after it"
    )
    apis = frozenset({ADD_OFFSETS, _OFFSET_COMMIT, END_TXN})

    def setup(self) -> None:
        # By id: the last refusal of its offsets, until they are accepted or the transaction ends.
        self._refused: LruDict[str, tuple[Exchange, str]] = LruDict(_IDS)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED or not (exchange.error or self._refused):
            return
        name = transactional_id(exchange)
        if not name:
            return
        if exchange.api_key != END_TXN:
            if exchange.error:
                self._refused.pop(name, None)
                self._refused.of(name, lambda: (exchange, f"{exchange.api} v{exchange.api_version} with {error_name(exchange.error)}"))
            elif name in self._refused and self._refused[name][0].api_key == exchange.api_key:
                del self._refused[name]
            return
        refused = self._refused.pop(name, None)
        asked = exchange.request_view
        if refused is None or exchange.error or asked is None or not asked["committed"]:
            return
        finding = self.report(name, refused[0], facts=conn.facts_of(refused[0]), transactional_id=name, error=error_name(refused[0].error))
        finding.seen = (
            f"{conn.where} refused {refused[1]} to {conn.who} for transactional id {name!r}; the client then committed the transaction "
            f"without these offsets ({times(finding.count)})"
        )


class _Refusal(NamedTuple):
    """What a refused request of a transaction means. `seen`: what the capture shows of it, after a semicolon, or ""."""

    severity: Severity
    seen: str
    why: str
    remedy: str


_UNKNOWN, _ABORTABLE = error_code("UNKNOWN_SERVER_ERROR"), error_code("TRANSACTION_ABORTABLE")
_NOT_ENDED = _Refusal(
    Severity.HIGH,
    "",
    "The coordinator fails to end the transaction, for a reason that it does not give: whether the records were "
    "committed is not known. Likeliest first: it cannot write its log (__transaction_state); or a Kafka-compatible "
    "product answers so for a transaction that it has aborted because of its timeout, where Apache Kafka answers "
    "INVALID_PRODUCER_EPOCH or PRODUCER_FENCED.",
    "read the coordinator's log at that time; compare transaction.timeout.ms with the time between begin and commit "
    "(Flink: longer than checkpoint interval and longest restart); if the transaction is lost, start without the state "
    "that wants to commit it",
)


class TransactionState(ProduceDetector):
    id = "transaction-refused"
    severity = Severity.HIGH
    title = "a request does not fit the state of its transaction (INVALID_TXN_STATE and similar)"
    apis = TRANSACTIONAL
    wanted = Wanted.FAILED

    CODES = error_code_set("INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "INVALID_TRANSACTION_TIMEOUT") | {_UNKNOWN}

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._transactions = traffic.model(ProducerTransactions)

    def setup(self) -> None:
        self._refusals: dict[object, _Refusal] = {}  # by finding

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        code = self.error_of(exchange, self.CODES)
        if code not in self.CODES or (code == _UNKNOWN and exchange.api_key != END_TXN):
            return
        name = transactional_id(exchange)
        key = name or conn.identity, code
        if key not in self._refusals:
            self._refusals[key] = self._judged(exchange, code, self._transactions.of(name))
        refusal = self._refusals[key]
        finding = self.report(
            key,
            exchange,
            refusal.why,
            refusal.remedy,
            severity=refusal.severity,
            error=error_name(code),
            transactional_id=name,
        )
        whose = f" for transactional id {name!r}" if name else ""
        finding.seen = (
            f"{conn.where} answers {exchange.api} v{exchange.api_version} of {conn.who}{whose} with {error_name(code)} "
            f"({times(finding.count)}){refusal.seen}{said(self.text_of(exchange, code))}"
        )

    def _judged(self, exchange: Exchange, code: int, known: ProducerTransaction | None) -> _Refusal:
        """What the capture shows of the transaction."""
        severity = Severity.MEDIUM if code == _ABORTABLE else Severity.HIGH
        general = _NOT_ENDED if code == _UNKNOWN else _Refusal(severity, "", *explain.error_meaning(exchange.api, code))
        if code == error_code("INVALID_TRANSACTION_TIMEOUT"):
            asked = exchange.request_view
            timeout = asked["transaction_timeout_ms"] if asked is not None and exchange.api_key == INIT_PRODUCER_ID else None
            return general if timeout is None else general._replace(seen=f"; it asked for {duration(timeout * 1_000_000)}")
        if known is None or not known.complete:
            return general if code != _UNKNOWN else general._replace(
                seen="; its beginning is not in this traffic: the client ends a transaction of an earlier process, as Flink does after a restart"
            )
        lasted = known.open_ns(exchange)
        if known.over_time(exchange):
            return self._late(general, known, lasted)
        if not lasted:
            if known.late_ns:
                return self._late(general, known, known.late_ns, ", and InitProducerId has begun anew since")
            ended = "none had begun"
            if known.aborted_ns and not known.ended_ns:
                since = duration((exchange.request_time_ns or 0) - known.aborted_ns)
                ended = f"the client's own InitProducerId aborted the open one {since} before"
            if known.ended_ns:
                since = duration((exchange.request_time_ns or 0) - known.ended_ns)
                ended = f"the last one was {'committed' if known.committed else 'aborted'} {since} before"
            if exchange.api_key == PRODUCE and exchange.api_version >= IMPLICIT:
                return general._replace(seen=f"; {ended}")
            return general._replace(
                seen=f"; no transaction was open: {ended}",
                why="The client sent this request outside of a transaction, or had just ended it: two threads use one producer, or the "
                "client's own state is wrong.",
                remedy="do not share a transactional producer between threads without synchronization; after a failed transaction, call "
                "abort_transaction before begin_transaction; upgrade the client",
            )
        if exchange.api_key == PRODUCE and exchange.api_version < IMPLICIT:
            refused = [(r.topic, r.partition) for r in self.produce.results(exchange) if r.error == code]
            missing = [place for place in refused if place not in known.partitions]
            if missing:
                places = some(f"{topic}-{partition}" for topic, partition in missing)
                return general._replace(
                    seen=f"; {places} was not added to the transaction (AddPartitionsToTxn)",
                    why="Before Produce v12, a client must add each partition to the transaction first; brokers have checked this since "
                    "KIP-890 and refuse the batch.",
                    remedy="upgrade the client, which left out AddPartitionsToTxn or did not wait for its answer",
                )
            return general._replace(
                seen="; the transaction is open, in time, and has this partition",
                why="The broker contradicts the coordinator, which accepted the partition: the check between the two failed, or one of them lost "
                "the transaction's state.",
                remedy="look at the logs of the broker and the coordinator at that time; abort the transaction and repeat the work",
            )
        return general

    @staticmethod
    def _late(general: _Refusal, known: ProducerTransaction, lasted_ns: int, then: str = "") -> _Refusal:
        return general._replace(
            seen=f"; the transaction was open for {duration(lasted_ns)}, longer than its timeout "
            f"({duration((known.timeout_ms or 0) * 1_000_000)}){then}",
            why="The coordinator aborts a transaction that takes longer than transaction.timeout.ms, and discards its records. There is nothing "
            "left to commit or abort.",
            remedy="end transactions sooner, or raise transaction.timeout.ms (librdkafka, Java: 60 s by default); begin a new transaction and "
            "repeat the work",
        )


class ManyAborts(Detector):
    id = "transactions-aborted"
    severity = Severity.LOW
    title = "many of a producer's transactions are aborted"
    why = (
        "Aborted records are written, replicated and stored like others; read_committed consumers fetch and discard "
        "them. Repeated work costs as much as work that succeeds."
    )
    remedy = (
        "find the reason for the aborts in the application's log (exceptions, rebalances, timeouts); do checks before "
        "the transaction begins"
    )
    apis = frozenset({END_TXN})

    LOOKED_AT = 50
    """Transactions, the latest ones."""
    ENOUGH = 10
    SHARE = 0.5
    NEARLY_ALL = 0.9

    def setup(self) -> None:
        self._outcomes: LruDict[str, deque[bool]] = LruDict(_IDS)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        name, message = transactional_id(exchange), exchange.request_view
        if exchange.state is not State.PAIRED or exchange.error or not name or message is None:
            return
        outcomes = self._outcomes.of(name, lambda: deque(maxlen=self.LOOKED_AT))
        committed = bool(message["committed"])
        outcomes.append(committed)
        share = outcomes.count(False) / len(outcomes)
        if committed or len(outcomes) < self.ENOUGH or share < self.SHARE:
            return
        finding = self.report(name, exchange, transactional_id=name, aborted=0, transactions=0)
        aborted = outcomes.count(False)
        finding.about |= {"aborted": aborted, "transactions": len(outcomes)}
        finding.severity = (
            Severity.MEDIUM if share >= self.NEARLY_ALL and len(outcomes) == self.LOOKED_AT else Severity.LOW
        )
        finding.seen = f"{aborted} of the last {len(outcomes)} transactions of {name!r} ({conn.who}) were aborted"
