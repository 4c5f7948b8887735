"""Produce requests that are refused, or not acknowledged by all replicas."""

from __future__ import annotations

from typing import ClassVar

from ....connection.exchange import Exchange
from ....reference import explain
from ....schema import facts
from ....schema.facts import error_code, error_code_set, error_name
from ...engine.counters import LruDict
from ...engine.detector import Wanted
from ...engine.finding import Severity
from ...engine.formatting import SECOND, size, some, times
from ...engine.traffic import ClientConnection
from ...models.leaders import Named, named_leader
from ...models.produce import PRODUCE, PartitionProduceData, PartitionProduceResponse, ProduceDetector, said
from ..security.authorization import DENIED
from . import retries
from .refused_batches import Shown, shown

_LISTED = 20
"""Client ids and topics that a finding about acks names."""


def _instances(conn: ClientConnection) -> object:
    """What makes producers one in findings about acks: they differ in the number behind their client id at most."""
    host, client_id, software = conn.identity
    return host, client_id.rstrip("0123456789"), software


class _AcksDetector(ProduceDetector):
    """Reports producers that send `ACKS`."""

    apis = frozenset({PRODUCE})
    ACKS: ClassVar[int]

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        sent = self.produce.sent(exchange)
        if sent is None or sent.acks != self.ACKS:
            return
        finding = self.report(_instances(conn), exchange, acks=sent.acks, topics=[], client_ids=[], closed=0)
        about = finding.about
        topics = dict.fromkeys(part.topic for part in sent.parts)
        for listed, new in ((about["client_ids"], (conn.client_id,)), (about["topics"], topics)):
            listed.extend(name for name in new if name not in listed and len(listed) < _LISTED)
        others = len(about["client_ids"]) - 1
        finding.seen = (
            f"{conn.who}{f' and {others} like it send' if others else ' sends'} Produce v{exchange.api_version} with "
            f"acks={sent.acks} to {some(about['topics'])} ({times(finding.count)})"
        )


class AcksNone(_AcksDetector):
    id = "acks-0"
    severity = Severity.MEDIUM
    title = "a producer does not wait for confirmation that its records arrive (acks=0)"
    ACKS = 0
    why = (
        "With acks=0, a broker sends no response. Records are lost silently if the broker refuses them, if their "
        "connection breaks, or if the broker is no longer the leader; the client cannot retry, and it gets no offsets "
        "(the offset in its callback is -1)."
    )
    remedy = (
        "set acks=all (Java, where it is the default since 3.0, KIP-679, and kafka-python) or acks=1; librdkafka: "
        "request.required.acks=all. Keep 0 only where losing records is acceptable"
    )
    CLOSED_AFTER_NS = SECOND
    """A broker closes an idle connection too; one that is closed this soon after an acks=0 Produce was closed
    because of it (`KafkaApis` answers errors of acks=0 that way)."""
    CONNECTIONS = 10_000

    def setup(self) -> None:
        self._last: LruDict[int, int] = LruDict(self.CONNECTIONS)  # by connection: when it last sent acks=0

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        super().request(conn, exchange)
        sent = self.produce.sent(exchange)
        if sent is not None and sent.acks == 0:
            self._last[conn.number] = exchange.request_time_ns or 0

    def closed(self, conn: ClientConnection) -> None:
        if conn.number not in self._last:
            return
        last, ended = self._last.pop(conn.number), conn.closed_ns or 0
        finding = self._found.get(_instances(conn))
        if finding is None or conn.by != "broker" or ended - last > self.CLOSED_AFTER_NS:
            return
        finding.about["closed"] += 1
        refused = self.report(
            ("refused", _instances(conn)),
            None,
            self.why,
            f"find the reason in the broker's log (permissions, size, topic); {self.remedy}",
            severity=Severity.HIGH,
            time_ns=ended,
            **finding.about | {"closed": 1, **conn.facts},
        )
        refused.seen = (
            f"{conn.where} closed a connection of {conn.who} {times(finding.about['closed'])} right after a Produce with "
            f"acks=0 to {some(finding.about['topics'])}, which is how a broker refuses one"
        )


class AcksLeader(_AcksDetector):
    id = "acks-1"
    severity = Severity.INFO
    title = "a producer waits for the leader only (acks=1)"
    ACKS = 1
    why = (
        "The leader answers once it has the records itself. If it fails before a follower has copied them, the new "
        "leader does not have them: acknowledged records are lost. Idempotence (enable.idempotence) needs acks=all, "
        "so retries may also write records twice."
    )
    remedy = (
        "where records must not be lost, set acks=all (librdkafka: request.required.acks=all; aiokafka, whose default "
        "is 1: acks='all') with a replication factor of 3 and min.insync.replicas=2"
    )


class TooLarge(ProduceDetector):
    id = "produce-too-large"
    severity = Severity.HIGH
    title = "a record batch is larger than the topic or broker accepts"
    why = (
        "A broker accepts batches (after compression) of up to the topic's max.message.bytes, or else its own "
        "message.max.bytes (1,048,588 bytes by default). Clients check only their own limits: max.request.size (Java, "
        "1 MiB), message.max.bytes (librdkafka), max_request_size (kafka-python). A batch of several records is split "
        "and sent again, which costs a round trip each time; a single record that is too large always fails."
    )
    remedy = (
        "raise max.message.bytes of the topic (and replica.fetch.max.bytes, and the consumers' "
        "max.partition.fetch.bytes), or lower the producer's batch.size and max.request.size below it, compress "
        "(compression.type=zstd), or keep large payloads outside of Kafka and send a reference"
    )
    apis = frozenset({PRODUCE})

    CODES = error_code_set("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
    TOPICS = 1000
    DEFAULT = 1_048_588
    """message.max.bytes of Apache Kafka unless it is set."""

    def setup(self) -> None:
        self._taken: LruDict[str, int] = LruDict(self.TOPICS)  # by topic: the largest batch that was accepted

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        sent = self.produce.sent(exchange)
        if sent is None:
            return
        if not exchange.error and all(part.size <= self._taken.get(part.topic, 0) for part in sent.parts):
            return
        parts = {(p.topic, p.partition): p for p in sent.parts}
        for result in self.produce.results(exchange):
            part = parts.get((result.topic, result.partition))
            if part is None:
                continue
            if not result.error:
                if part.size > self._taken.of(part.topic, int):
                    self._taken[part.topic] = part.size
            elif result.error in self.CODES:
                self._refused(conn, exchange, part, result)

    def _refused(
        self, conn: ClientConnection, exchange: Exchange, part: PartitionProduceData, result: PartitionProduceResponse
    ) -> None:
        # A client that gets this for several records splits the batch and sends the halves; one alone is lost.
        alone = part.batch is None or part.batch.announced <= 1
        finding = self.report(
            (conn.identity, part.topic),
            exchange,
            severity=Severity.MEDIUM,
            topic=part.topic,
            partition=part.partition,
            error=error_name(result.error),
            text=result.text,
            refused_bytes=part.size,
            smallest_refused_bytes=part.size,
            largest_taken_bytes=None,
        )
        about = finding.about
        about["refused_bytes"] = max(about["refused_bytes"], part.size)
        about["smallest_refused_bytes"] = min(about["smallest_refused_bytes"], part.size)
        about["largest_taken_bytes"] = self._taken.get(part.topic)
        if alone:
            finding.severity = Severity.HIGH
        taken, smallest = about["largest_taken_bytes"], about["smallest_refused_bytes"]
        finding.seen = (
            f"{conn.where} refuses batches of {conn.who} for {part.at} with {error_name(result.error)} ({times(finding.count)}): "
            f"the largest has {size(about['refused_bytes'])}"
            + (f", up to {size(taken)} were accepted" if taken else "")
            + (", and it is a single record" if alone else "")
            + (
                f"; the smallest has {size(smallest)}, less than Kafka's own limit: the topic or the product allows less"
                if smallest < self.DEFAULT
                else ""
            )
            + said(about["text"])
        )


_SEVERITIES = {error_code("REQUEST_TIMED_OUT"): Severity.MEDIUM, error_code("KAFKA_STORAGE_ERROR"): Severity.HIGH}
"""Others are LOW if clients retry, HIGH if not."""


ELSEWHERE = (
    TooLarge.CODES
    | frozenset(DENIED)
    | error_code_set(
        "CORRUPT_MESSAGE",
        "UNSUPPORTED_VERSION",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "DUPLICATE_SEQUENCE_NUMBER",
        "INVALID_PRODUCER_EPOCH",
        "PRODUCER_FENCED",
        "UNKNOWN_PRODUCER_ID",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "CONCURRENT_TRANSACTIONS",
        "TRANSACTION_ABORTABLE",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    )
)
"""Codes that other detectors explain."""


_UNKNOWN = error_code("UNKNOWN_SERVER_ERROR")
_SOON_NS = 10 * SECOND
_MOVED = "; Metadata names another leader, broker "


class Refused(ProduceDetector):
    id = "produce-refused"
    severity = Severity.HIGH
    title = "a broker refuses a producer's records: permissions, timeouts, storage, invalid records"
    apis = frozenset({PRODUCE})
    wanted = Wanted.FAILED

    PLACES = 100
    """Most partitions named for one client and error."""

    def setup(self) -> None:
        self._shown: dict[object, Shown | None] = {}  # by finding
        # By finding of UNKNOWN_SERVER_ERROR: the connection, the partition, and when it was refused last.
        self._unknown: dict[object, tuple[ClientConnection, tuple[str, int], int]] = {}

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        for result in self.produce.results(exchange):
            code = result.error
            if not code or code in ELSEWHERE or code in retries.LEADER_ERRORS:
                continue
            key = conn.identity, code
            if key not in self._shown:
                self._shown[key] = self._look(exchange, result)
            reason, retried = self._shown[key], facts.is_retriable(code)
            why, remedy = explain.error_meaning("Produce", code)
            finding = self.report(
                key,
                exchange,
                (reason.why if reason is not None else "") or f"The broker did not write the records. {why}",
                (reason.remedy if reason is not None else "")
                or f"{'clients retry this by themselves; ' * retried}{remedy}; check the broker's log if it continues",
                severity=_SEVERITIES.get(code, Severity.LOW if retried else Severity.HIGH),
                topic=result.topic,
                partition=result.partition,
                error=error_name(code),
                text=result.text,
                partitions=[],
            )
            places, place = finding.about["partitions"], f"{result.topic}-{result.partition}"
            if place not in places and len(places) < self.PLACES:
                places.append(place)
            finding.seen = (
                f"{conn.where} answers Produce v{exchange.api_version} of {conn.who} with {error_name(code)} "
                f"{times(finding.count)}, for {some(places)}{said(finding.about['text'])}"
                + (f"; {reason.seen}" if reason is not None else "")
            )
            at = result.topic, result.partition
            if code == _UNKNOWN and named_leader(conn, *at).named is Named.ITSELF:
                self._unknown[key] = conn, at, exchange.response_time_ns or 0

    def finish(self, now_ns: int) -> None:
        for key, (conn, place, refused_ns) in self._unknown.items():
            leader = conn.cluster.leaders.get(place)
            if leader is None or leader.node in (-1, conn.cluster.node_at(conn.broker)):
                continue
            if not 0 <= leader.time_ns - refused_ns < _SOON_NS:
                continue
            finding = self._found[key]
            finding.seen = f"{finding.seen.partition(_MOVED)[0]}{_MOVED}{leader.node} right after it"
            finding.why = (
                "the leader moved at that time, and Apache Kafka answers NOT_LEADER_OR_FOLLOWER then, after which "
                "producers send the records to the new leader. They do not retry UNKNOWN_SERVER_ERROR: the "
                "application gets an error, and whether the records were written is not known."
            )
            finding.remedy = "report it to the developers of the broker, or of the product that answers in its place"

    def _look(self, exchange: Exchange, result: PartitionProduceResponse) -> Shown | None:
        sent = self.produce.sent(exchange)
        if sent is None:
            return None
        place = result.topic, result.partition
        part = next((p for p in sent.parts if (p.topic, p.partition) == place), None)
        return shown(result.error, exchange, sent, part, result.text) if part is not None else None
