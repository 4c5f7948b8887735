"""Public reports about records: sequences of idempotent producers, batches in the wrong topic, positions that do not move.

Each is built here from the report, frame by frame, and stands next to a healthy conversation that resembles it.
"""

from __future__ import annotations

from typing import Any

import pytest
from barnabas.decoder.connection.connection import Connection
from barnabas.decoder.findings import Finding, Severity
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from traffic.conversations import Conversations

OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
NO_ANSWER = "no answer"


def batch_of(sequence: int, count: int = 1, producer_id: int = 104, epoch: int = 0, word: str = "x", **more: Any) -> bytes:
    """A batch of a producer's records. Other words make another CRC."""
    records = [Record(n, 1_700_000_000_000, None, f"{word} {sequence + n}".encode()) for n in range(count)]
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more)


class Conversation(Conversations):
    """One client, by default librdkafka at Apache Kafka 3.9."""

    def __init__(self, software: str = "librdkafka 2.4.0", *ids: str) -> None:
        super().__init__(*ids)
        self.software = software
        self.offsets = 0

    def connect(self, broker: str = "") -> Connection:
        connection = self.open(broker)
        name, version = self.software.split()
        offered = releases.release("3.9").offered
        keys = [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in sorted(offered.items())]
        asked = {"client_software_name": name, "client_software_version": version}
        self.ask(connection, "ApiVersions", 3, asked, {"error_code": 0, "api_keys": keys})
        self.wait(0.1)
        return connection

    def init(self, connection: Connection, producer_id: int = 104, epoch: int = 0, name: str | None = None, timeout_ms: int = 60000) -> None:
        asked = {"transactional_id": name, "transaction_timeout_ms": timeout_ms, "producer_id": -1, "producer_epoch": -1}
        self.ask(connection, "InitProducerId", 4, asked, {"producer_id": producer_id, "producer_epoch": epoch})

    def produce(
        self, connection: Connection, batch: bytes, error: str = "", topic: str = "orders", partition: int = 0, text: str | None = None,
        log_start: int = 0, name: str | None = None,
    ) -> None:  # fmt: skip
        """A Produce of one batch, acknowledged unless an error is given. `NO_ANSWER`: it waits."""
        parts = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
        asked = {"transactional_id": name, "acks": -1, "timeout_ms": 30000, "topic_data": parts}
        code = facts.error_code(error) if error and error != NO_ANSWER else 0
        answer = {
            "index": partition, "error_code": code, "base_offset": -1 if code else self.offsets, "error_message": text,
            "log_start_offset": log_start, "record_errors": [],
        }  # fmt: skip
        self.offsets += 1
        result = {"responses": [{"name": topic, "partition_responses": [answer]}]}
        self.ask(connection, "Produce", 8, asked, None if error == NO_ANSWER else result)
        self.wait(0.1)

    def first(self) -> Finding:
        """The first finding above info."""
        return next(f for f in self.findings() if f.severity is not Severity.INFO)

    def healthy(self) -> bool:
        """Whether nothing is above low."""
        return not [f.seen for f in self.findings() if f.severity in (Severity.MEDIUM, Severity.HIGH)]


# --- sequences of idempotent producers


def test_redpanda_22670_the_broker_forgets_a_silent_producer() -> None:
    talk = Conversation()
    connection = talk.connect()
    talk.init(connection)
    talk.produce(connection, batch_of(0, 7))
    talk.wait(605)
    talk.produce(connection, batch_of(7), OUT_OF_ORDER)
    found = talk.first()
    assert (found.id, found.about["cause"]) == ("out-of-order-sequence", "producer-forgotten")
    assert "no sequence was skipped" in found.seen and "605 s of silence" in found.seen
    assert "Apache Kafka accepts any sequence" in found.why and "another product" in found.why
    assert "transactional_id_expiration_ms" in found.remedy


def test_a_producer_that_was_silent_may_go_on() -> None:
    talk = Conversation()
    connection = talk.connect()
    talk.init(connection)
    for sequence in range(3):
        talk.produce(connection, batch_of(sequence))
        talk.wait(605)
    assert talk.healthy()


def unanswered(resent: bool) -> Conversation:
    talk = Conversation("confluent-kafka-dotnet 1.0.0")
    connection = talk.connect()
    talk.init(connection)
    talk.produce(connection, batch_of(0))
    talk.produce(connection, batch_of(1), NO_ANSWER)
    talk.wait(60)
    talk.close(connection)
    talk.wait(2)
    connection = talk.connect()
    if resent:
        talk.produce(connection, batch_of(1))
    talk.produce(connection, batch_of(2), "" if resent else OUT_OF_ORDER)
    return talk


def test_dotnet_704_a_batch_without_an_answer_is_dropped() -> None:
    talk = unanswered(resent=False)
    found = talk.first()
    assert (found.id, found.severity, found.about["cause"]) == ("out-of-order-sequence", "high", "batch-dropped")
    assert "sequence 1, sent 62.2 s before it, got no answer and was never sent again" in found.seen
    assert "raise message.timeout.ms" in found.remedy and "unanswered-request" in found.effects


def test_a_batch_without_an_answer_is_sent_again() -> None:
    talk = unanswered(resent=True)
    assert [f.id for f in talk.findings() if f.severity is not Severity.INFO] == ["unanswered-request"]


def test_a_dropped_batch_that_comes_later_was_not_dropped() -> None:
    talk = unanswered(resent=False)
    connection = talk.connect()
    talk.produce(connection, batch_of(1))
    talk.produce(connection, batch_of(2))
    found = next(f for f in talk.findings() if f.id == "out-of-order-sequence")
    assert (found.about["cause"], found.about["recovered"]) == ("behind-a-failed-batch", 1)
    assert "sent again only later" in found.seen and found.severity is Severity.INFO


def test_records_that_expired_behind_the_dropped_batch_are_no_other_cause() -> None:
    talk = Conversation()
    connection = talk.connect()
    talk.produce(connection, batch_of(0))
    talk.produce(connection, batch_of(1), NO_ANSWER)
    talk.wait(60)
    talk.close(connection)
    connection = talk.connect()
    talk.produce(connection, batch_of(3), OUT_OF_ORDER)
    found = talk.first()
    assert found.about["cause"] == "batch-dropped" and "nor was sequence 2 ever sent" in found.seen


def refused(*steps: tuple[bytes, str], wait: float = 0.0) -> Finding:
    """What is found after these batches, each with its error."""
    talk = Conversation()
    connection = talk.connect()
    for batch, error in steps:
        talk.produce(connection, batch, error)
        talk.wait(wait)
    return talk.first()


def test_a_sequence_that_was_never_sent() -> None:
    found = refused((batch_of(0), ""), (batch_of(4), OUT_OF_ORDER))
    assert found.about["cause"] == "sequence-gap" and "sequence 4 arrived, but 1 was expected" in found.seen


def test_a_sequence_with_other_records() -> None:
    found = refused((batch_of(0), ""), (batch_of(1, 2), ""), (batch_of(1, 3), OUT_OF_ORDER))
    assert found.about["cause"] == "sequence-reused" and found.severity is Severity.HIGH
    assert "(2 records, acknowledged) had other records than the second one (3 records)" in found.seen


def test_kafkajs_598_two_sends_at_once_use_one_sequence() -> None:
    # The broker takes the second batch for a duplicate; only the third one is refused.
    found = refused((batch_of(0), ""), (batch_of(0, word="other"), ""), (batch_of(2), OUT_OF_ORDER))
    assert found.about["cause"] == "sequence-reused" and "used sequence 0 twice" in found.seen and "kafkajs" in found.remedy


def test_librdkafka_3584_a_producer_id_of_a_cluster_that_was_reset() -> None:
    found = refused((batch_of(0), OUT_OF_ORDER))
    assert found.about["cause"] == "not-in-the-capture" and "has sequence 0" in found.seen and "was reset" in found.why


def test_a_batch_that_is_split_is_not_a_sequence_used_twice() -> None:
    found = refused((batch_of(0), ""), (batch_of(1, 2), "MESSAGE_TOO_LARGE"), (batch_of(1, 1), OUT_OF_ORDER))
    assert found.about.get("cause") != "sequence-reused"


def test_an_acknowledged_batch_again() -> None:
    found = refused(*((batch_of(n), "") for n in range(8)), (batch_of(1), OUT_OF_ORDER))
    assert found.about["cause"] == "sent-again" and "after 6 later ones" in found.seen
    assert "the batch is written" in found.remedy


def test_a_batch_that_is_sent_again_too_late() -> None:
    talk = Conversation()
    lost, connection = talk.connect(), talk.connect()
    talk.produce(lost, batch_of(0))
    talk.produce(lost, batch_of(1), NO_ANSWER)
    for sequence in range(2, 8):
        talk.produce(connection, batch_of(sequence))
    talk.close(lost)
    talk.produce(connection, batch_of(1), OUT_OF_ORDER)
    found = next(f for f in talk.findings() if f.id == "out-of-order-sequence")
    assert found.about["cause"] == "sent-again-too-late" and "after 6 later batches" in found.seen


def test_a_batch_that_overtakes_another() -> None:
    talk = Conversation()
    slow, fast = talk.connect(), talk.connect()
    talk.produce(slow, batch_of(0))
    talk.produce(slow, batch_of(1), NO_ANSWER)
    talk.produce(fast, batch_of(2), OUT_OF_ORDER)
    found = next(f for f in talk.findings() if f.id == "out-of-order-sequence")
    assert found.about["cause"] == "overtaken" and "overtook sequence 1" in found.seen and "another connection" in found.seen


def test_a_refused_batch_that_the_client_skips() -> None:
    talk = Conversation("librdkafka 2.4.0", "out-of-order-sequence")
    connection = talk.connect()
    for batch, error in ((batch_of(0), ""), (batch_of(1), "INVALID_RECORD"), (batch_of(2), OUT_OF_ORDER)):
        talk.produce(connection, batch, error)
    (found,) = talk.findings()
    assert found.about["cause"] == "refused-batch-skipped"
    assert "sequence 1, before it, was refused with INVALID_RECORD" in found.seen


def test_batches_behind_one_that_may_be_retried_are_normal() -> None:
    talk = Conversation()
    connection = talk.connect()
    talk.produce(connection, batch_of(0))
    talk.produce(connection, batch_of(1), "NOT_LEADER_OR_FOLLOWER")
    talk.produce(connection, batch_of(2), OUT_OF_ORDER)
    talk.produce(connection, batch_of(3), OUT_OF_ORDER)
    for sequence in range(1, 4):
        talk.produce(connection, batch_of(sequence))
    found = next(f for f in talk.findings() if f.id == "out-of-order-sequence")
    assert (found.about["cause"], found.severity, found.count) == ("behind-a-failed-batch", Severity.INFO, 2)
    assert talk.healthy()


def test_an_epoch_that_does_not_begin_at_zero() -> None:
    found = refused((batch_of(0), ""), (batch_of(1, epoch=1), OUT_OF_ORDER))
    assert found.about["cause"] == "epoch-without-start" and "first batch of epoch 1" in found.seen


def test_a_new_leader_without_the_last_batch() -> None:
    talk = Conversation()
    connection = talk.connect()
    talk.produce(connection, batch_of(0))
    connection = talk.connect("10.0.0.2:9092")
    talk.produce(connection, batch_of(1), OUT_OF_ORDER)
    found = talk.first()
    assert found.about["cause"] == "new-leader-behind" and "by broker 10.0.0.1:9092; broker 10.0.0.2:9092" in found.seen


def test_a_broker_that_forgets_at_once() -> None:
    found = refused((batch_of(0), ""), (batch_of(1), OUT_OF_ORDER))
    assert found.about["cause"] == "broker-contradicts-itself" and "the same broker acknowledged" in found.seen


@pytest.mark.parametrize("error", [OUT_OF_ORDER, ""])
def test_two_clients_with_one_producer_id(error: str) -> None:
    talk = Conversation()
    talk.produce(talk.connect(), batch_of(0, 5))
    talk.client = "10.0.0.6"
    talk.produce(talk.connect(), batch_of(0), error)
    found = [f for f in talk.findings() if f.id == "out-of-order-sequence"]
    assert [f.about["cause"] for f in found] == (["producer-id-shared"] if error else [])
    assert all("10.0.0.5 writes to the partition with the same producer id" in f.seen for f in found)


def test_nothing_is_known_of_what_came_before_the_capture() -> None:
    found = refused((batch_of(70), OUT_OF_ORDER))
    assert found.about["cause"] == "not-in-the-capture" and "not in the capture" in found.seen


def test_the_broker_s_own_words() -> None:
    talk = Conversation()
    talk.produce(talk.connect(), batch_of(70), OUT_OF_ORDER, text="expected 12")
    assert "expected 12'" in talk.first().seen


# --- records that a consumer cannot step over, or not read


def fetched(
    talk: Conversation, connection: Connection, offset: int, records: bytes, watermark: int = 500, error: str = "", topic: str = "orders",
    replica: int = -1,
) -> None:  # fmt: skip
    """A Fetch of one partition."""
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    asked = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 25, "session_epoch": -1, "topics": [{"topic": topic, "partitions": [part]}]}
    answer = {
        "partition_index": 0, "error_code": facts.error_code(error) if error else 0, "high_watermark": watermark,
        "last_stable_offset": watermark, "log_start_offset": 0, "preferred_read_replica": replica, "records": records,
    }  # fmt: skip
    talk.ask(connection, "Fetch", 11, asked, {"responses": [{"topic": topic, "partitions": [answer]}]})


def log_batch(first: int, last: int, *offsets: int, **more: Any) -> bytes:
    """A batch as it stands in a log: with these records only."""
    records = [Record(offset, 1_700_000_000_000, b"k", b"v" * 20) for offset in offsets]
    return encode_batch(records, base_offset=first, last_offset_delta=last - first, **more)


def repeated(records: bytes, offset: int = 4, often: int = 120, every: float = 0.5) -> Conversation:
    talk = Conversation()
    connection = talk.connect()
    fetched(talk, connection, 0, log_batch(0, 9, 0, 1, 2, 3))
    for _ in range(often):
        fetched(talk, connection, offset, records)
        talk.wait(every)
    return talk


def test_a_consumer_that_does_not_step_over_compacted_offsets() -> None:
    found = repeated(log_batch(0, 9, 0, 1, 2, 3)).first()
    assert (found.id, found.severity, found.count) == ("same-records-again", Severity.HIGH, 120)
    assert "120 times in 59.5 s for offset 4 of orders-0" in found.seen and "with no record from 4 on" in found.seen
    assert "compaction has removed" in found.why and found.remedy.startswith("upgrade the client")
    assert found.about["next_offset"] == 10


def test_a_consumer_that_does_not_step_over_a_transaction_s_marker() -> None:
    marker = log_batch(4, 4, 4, control=True, transactional=True, producer_id=7, producer_epoch=0)
    found = repeated(marker).first()
    assert found.id == "same-records-again" and "the marker of a transaction's end at 4" in found.seen
    assert "ask for offset 5 next" in found.why


def test_an_application_that_seeks_back_to_a_record() -> None:
    found = repeated(log_batch(4, 5, 4, 5)).first()
    assert (found.id, found.severity) == ("same-records-again", Severity.MEDIUM)
    assert "with 2 records from 4 on" in found.seen and "seeks back" in found.why


def test_records_that_nobody_can_decode() -> None:
    broken = bytearray(log_batch(4, 5, 4, 5, codec=4))
    broken[65:75] = bytes(10)
    found = next(f for f in repeated(bytes(broken)).findings() if f.id == "same-records-again")
    assert "which cannot be read" in found.seen and "cannot be decoded here either" in found.why


@pytest.mark.parametrize(("often", "every"), [(9, 2.0), (15, 1.0), (60, 5.0)])
def test_tools_that_show_a_record_again(often: int, every: float) -> None:
    assert repeated(log_batch(4, 5, 4, 5), often=often, every=every).healthy()


def test_a_consumer_that_steps_over_compacted_offsets() -> None:
    talk = Conversation()
    connection = talk.connect()
    for start in range(0, 1000, 10):
        fetched(talk, connection, start, log_batch(start, start + 9, start, start + 1), 2000)
        talk.wait(0.5)
    for _ in range(100):  # at the end of the log
        fetched(talk, connection, 1000, b"", 1000)
        talk.wait(0.5)
    assert talk.healthy()


def with_snappy_header(versions: bytes | None) -> bytes:
    """A snappy batch whose xerial header has these versions, or none."""
    data = bytearray(log_batch(0, 1, 0, 1, codec=2))
    if versions is not None:
        data[69:77] = versions
    return bytes(data)


def test_snappy_headers_that_strict_clients_cannot_read() -> None:
    talk = Conversation()
    connection = talk.connect()
    fetched(talk, connection, 0, with_snappy_header(b"\1\0\0\0\1\0\0\0"))
    (found,) = [f for f in talk.findings() if f.severity is not Severity.INFO and f.id == "unusual-compression"]
    assert found.severity is Severity.LOW and "little-endian" in found.seen and "kafka-python" in found.why


def test_snappy_as_java_writes_it() -> None:
    talk = Conversation()
    connection = talk.connect()
    fetched(talk, connection, 0, with_snappy_header(None))
    talk.produce(connection, batch_of(0, codec=2))
    assert [f.id for f in talk.findings() if f.id == "unusual-compression"] == []


@pytest.mark.parametrize("api", ["Fetch", "Produce"])
def test_a_codec_that_does_not_exist(api: str) -> None:
    talk = Conversation()
    connection = talk.connect()
    wrong = bytearray(log_batch(0, 1, 0, 1))
    wrong[22] |= 6
    if api == "Fetch":
        fetched(talk, connection, 0, bytes(wrong))
    else:
        talk.produce(connection, bytes(wrong))
    found = next(f for f in talk.findings() if f.id == "unusual-compression")
    assert found.severity is Severity.HIGH and "compression codec 6, which does not exist" in found.seen


# --- replicas that a leader names


def named(replica: int, records: bytes = b"", reads_there: str | None = None, unreachable: bool = False) -> Conversation:
    talk = Conversation()
    connection = talk.connect()
    brokers = [{"node_id": n, "host": f"10.0.0.{n}", "port": 9092} for n in (1, 2)]
    topic = {"error_code": 0, "name": "orders", "partitions": [{"partition_index": 0, "leader_id": 1, "replica_nodes": [1, 2], "isr_nodes": [1, 2]}]}
    talk.ask(connection, "Metadata", 9, {"topics": [{"name": "orders"}]}, {"brokers": brokers, "topics": [topic], "controller_id": 1})
    if unreachable:
        talk.open("10.0.0.2:9092", established=False)
    other = talk.connect("10.0.0.2:9092") if reads_there is not None else None
    for n in range(15):
        fetched(talk, connection, n, records, replica=replica)
        if other is not None:
            fetched(talk, other, n, b"", error=reads_there or "")
        talk.wait(0.3)
    return talk


@pytest.mark.parametrize(("replica", "records"), [(722799104, b""), (722799104, log_batch(0, 0, 0)), (2, log_batch(0, 0, 0))])
def test_nisshi_62_an_impossible_replica_is_no_fault_of_client_rack(replica: int, records: bytes) -> None:
    found = named(replica, records).findings()
    assert [f.seen for f in found if f.id == "read-replica-bouncing" or "client.rack" in f.remedy] == []


@pytest.mark.parametrize(
    ("reads_there", "unreachable", "expected"),
    [
        (None, False, "was not seen to ask that broker"),
        (None, True, "could not connect to 10.0.0.2:9092"),
        ("OFFSET_NOT_AVAILABLE", False, "that broker answers with OFFSET_NOT_AVAILABLE"),
        ("", False, "it reads there, but comes back each time"),
    ],
)
def test_what_a_consumer_does_at_the_replica_it_was_sent_to(reads_there: str | None, unreachable: bool, expected: str) -> None:
    found = next(f for f in named(2, b"", reads_there, unreachable).findings() if f.id == "read-replica-bouncing")
    assert expected in found.seen and found.severity is Severity.LOW


# --- a batch in two topics


def java(version: str = "3.9.1") -> Conversation:
    return Conversation(f"apache-kafka-java {version}")


def copied(version: str, first: bytes, lost: bytes, second: bytes, resent: bytes | None = None) -> Conversation:
    """payroll gets `first`; orders does not answer `lost` and then gets `second`; payroll then gets `resent`."""
    talk = java(version)
    connection = talk.connect()
    talk.produce(connection, first, topic="payroll")
    talk.produce(connection, lost, NO_ANSWER)
    talk.wait(30)
    talk.close(connection)
    connection = talk.connect()
    talk.produce(connection, second)
    if resent is not None:
        talk.produce(connection, resent, topic="payroll")
    return talk


def test_cve_2026_35554_a_batch_is_sent_to_another_topic() -> None:
    salary = batch_of(0, word="salary")
    found = copied("3.9.1", salary, batch_of(0), salary).first()
    assert (found.id, found.severity) == ("batch-in-two-topics", Severity.HIGH)
    assert "a batch of payroll-0" in found.seen and "to orders-0 too, byte for byte" in found.seen
    assert "CVE-2026-35554" in found.seen and "KAFKA-19012" in found.why and "4.0.2" in found.remedy
    assert "unanswered-request" in found.effects


def test_the_bug_is_not_blamed_on_a_version_without_it() -> None:
    salary = batch_of(0, word="salary")
    assert "CVE-2026-35554" not in copied("4.2.0", salary, batch_of(0), salary).first().seen


@pytest.mark.parametrize("producer_id", [104, -1])
def test_a_client_that_writes_the_same_to_two_topics(producer_id: int) -> None:
    talk = java()
    connection = talk.connect()
    for sequence in range(3):
        same = batch_of(sequence, producer_id=producer_id)
        talk.produce(connection, same, topic="payroll")
        talk.produce(connection, same, NO_ANSWER if sequence == 2 else "")
    talk.wait(30)
    talk.close(connection)
    connection = talk.connect()
    talk.produce(connection, batch_of(2, producer_id=producer_id))
    talk.produce(connection, batch_of(3, producer_id=producer_id), topic="payroll")
    talk.produce(connection, batch_of(3, producer_id=producer_id))
    assert [f.seen for f in talk.findings() if f.id == "batch-in-two-topics"] == []


def test_a_first_batch_for_two_topics_whose_request_is_lost() -> None:
    # The same record for both, one broker does not answer: its batch is sent again, the other topic's goes ahead of it.
    talk = java()
    connection = talk.connect()
    talk.produce(connection, batch_of(0), NO_ANSWER, topic="payroll")
    talk.wait(30)
    talk.close(connection)
    connection = talk.connect()
    talk.produce(connection, batch_of(0))
    assert [f.id for f in talk.findings() if f.id == "batch-in-two-topics"] != []
    talk.produce(connection, batch_of(0), topic="payroll")
    assert [f.id for f in talk.findings() if f.id == "batch-in-two-topics"] == []


def test_a_lost_batch_that_is_sent_again_to_its_own_topic() -> None:
    talk = copied("3.9.1", batch_of(0, word="salary"), batch_of(0), batch_of(0))
    assert [f.id for f in talk.findings() if f.severity is Severity.HIGH] == ["unanswered-request"]


# --- producers that are fenced or forgotten


def transaction(talk: Conversation, connection: Connection, name: str = "shop-1", producer_id: int = 104, epoch: int = 0) -> None:
    """A transaction begins."""
    topics = [{"name": "orders", "partitions": [0]}]
    asked = {"v3_and_below_transactional_id": name, "v3_and_below_producer_id": producer_id, "v3_and_below_producer_epoch": epoch,
             "v3_and_below_topics": topics}  # fmt: skip
    ok = [{"name": "orders", "results_by_partition": [{"partition_index": 0, "partition_error_code": 0}]}]
    talk.ask(connection, "AddPartitionsToTxn", 3, asked, {"results_by_topic_v3_and_below": ok})
    talk.produce(connection, batch_of(0, producer_id=producer_id, epoch=epoch, transactional=True), name=name)


def ended(talk: Conversation, connection: Connection, error: str = "", epoch: int = 0, name: str = "shop-1") -> None:
    asked = {"transactional_id": name, "producer_id": 104, "producer_epoch": epoch, "committed": True}
    talk.ask(connection, "EndTxn", 3, asked, {"error_code": facts.error_code(error) if error else 0})
    talk.wait(0.1)


def fenced(talk: Conversation) -> Finding:
    return next(f for f in talk.findings() if f.id == "producer-fenced")


@pytest.mark.parametrize("error", ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"])
def test_a_transaction_that_took_longer_than_its_timeout(error: str) -> None:
    talk = java()
    connection = talk.connect()
    talk.init(connection, name="shop-1", timeout_ms=10000)
    transaction(talk, connection)
    talk.wait(42)
    ended(talk, connection, error)
    found = talk.first()
    assert (found.id, found.about["cause"]) == ("producer-fenced", "transaction-timeout")
    assert "open for 42.1 s, longer than its transaction.timeout.ms (10.0 s)" in found.seen
    assert "second" not in found.why and "raise transaction.timeout.ms" in found.remedy


def test_a_transaction_that_ends_in_time() -> None:
    talk = java()
    connection = talk.connect()
    talk.init(connection, name="shop-1", timeout_ms=10000)
    transaction(talk, connection)
    talk.wait(8)
    ended(talk, connection)
    assert talk.healthy()


@pytest.mark.parametrize("begun", [True, False])
def test_a_producer_that_is_fenced_from_outside_the_capture(begun: bool) -> None:
    talk = java()
    connection = talk.connect()
    talk.init(connection, name="shop-1")
    if begun:
        transaction(talk, connection)
        talk.wait(5)
    ended(talk, connection, "PRODUCER_FENCED")
    found = fenced(talk)
    assert found.about["cause"] == "not-in-the-capture" and "a timeout is ruled out" in found.seen
    assert ("was open for 5.1 s" if begun else "was not open") in found.seen and "raise transaction.timeout.ms" not in found.remedy


def test_a_producer_that_fences_itself() -> None:
    talk = java()
    connection = talk.connect()
    talk.init(connection, name="shop-1")
    talk.init(connection, epoch=1, name="shop-1")
    ended(talk, connection, "PRODUCER_FENCED")
    found = fenced(talk)
    assert found.about["cause"] == "own-new-epoch" and "on the connection on which it had asked for the old one" in found.seen


@pytest.mark.parametrize(("host", "cause"), [("10.0.0.5", "two-instances"), ("10.0.0.6", "two-producers")])
def test_two_instances_with_one_transactional_id(host: str, cause: str) -> None:
    talk = java()
    old = talk.connect()
    talk.init(old, name="shop-1")
    transaction(talk, old)
    talk.client = host
    talk.init(talk.connect(), epoch=1, name="shop-1")
    ended(talk, old, "PRODUCER_FENCED")
    found = fenced(talk)
    assert found.about["cause"] == cause and host in found.seen and "own transactional.id" in found.remedy


def test_an_idempotent_producer_goes_on_with_an_old_epoch() -> None:
    found = refused((batch_of(0), ""), (batch_of(1), "INVALID_PRODUCER_EPOCH"))
    assert (found.id, found.about["cause"]) == ("producer-fenced", "old-epoch")
    assert "transaction" not in found.seen + found.why


def forgotten(wait: float, log_start: int = 0, broker: str = "") -> Finding:
    talk = java("2.4.0")
    connection = talk.connect()
    talk.offsets = 40
    talk.produce(connection, batch_of(0))
    talk.wait(wait)
    if broker:
        connection = talk.connect(broker)
    talk.produce(connection, batch_of(1), "UNKNOWN_PRODUCER_ID", log_start=log_start)
    return talk.first()


@pytest.mark.parametrize(
    ("wait", "log_start", "broker", "cause", "seen"),
    [
        (1, 41, "", "records-deleted", "the log begins at 41 now"),
        (1, 0, "", "broker-contradicts-itself", "by the same broker"),
        (1, 0, "10.0.0.2:9092", "new-leader", "the new leader does not know the producer"),
        (700, 0, "", "expired", "acknowledged 12 min before, at offset 40, and nothing since"),
    ],
)
def test_why_a_producer_id_is_unknown(wait: float, log_start: int, broker: str, cause: str, seen: str) -> None:
    found = forgotten(wait, log_start, broker)
    assert (found.id, found.about["cause"]) == ("unknown-producer-id", cause) and seen in found.seen


# --- refused batches


NOW = 1_764_000_000_000
"""Milliseconds since 1970: the clock of these conversations."""


def batch_with(*times_ms: int, key: bytes | None = b"k", **more: Any) -> bytes:
    return encode_batch([Record(n, time, key, b"v") for n, time in enumerate(times_ms)], **more)


def refusal(error: str, batch: bytes, text: str | None = None, version: int = 8, acks: int = -1) -> Finding:
    talk = Conversation()
    talk.now = NOW * 1_000_000
    connection = talk.connect()
    parts = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    answer: dict[str, Any] = {"index": 0, "error_code": facts.error_code(error), "base_offset": -1}
    if version >= 8:
        answer |= {"error_message": text, "record_errors": []}
    asked = {"acks": acks, "timeout_ms": 30000, "topic_data": parts}
    talk.ask(connection, "Produce", version, asked, {"responses": [{"name": "orders", "partition_responses": [answer]}]})
    found = talk.first()
    assert found.about["error"] == error
    return found


@pytest.mark.parametrize(
    ("found", "seen", "advice"),
    [
        (("INVALID_TIMESTAMP", batch_with(NOW // 1000)), "these are seconds, not milliseconds", "in milliseconds instead of seconds"),
        (("INVALID_TIMESTAMP", batch_with(NOW * 1000)), "these are microseconds", "instead of microseconds"),
        (("INVALID_TIMESTAMP", batch_with(NOW, NOW + 7_200_000)), "2.0 h after the request", "clock"),
        (("INVALID_TIMESTAMP", batch_with(NOW - 30 * 86_400_000)), "30 days before the request", "clock"),
        (("INVALID_TIMESTAMP", batch_with(NOW)), "within 100 ms of the request", "compare the broker's clock"),
        (("INVALID_RECORD", batch_with(NOW * 1000)), "these are microseconds", "in milliseconds"),
        (("INVALID_RECORD", batch_with(NOW // 1000, key=None), "Timestamp 1 is out of range"), "these are seconds", "in milliseconds"),
        (("INVALID_RECORD", batch_with(NOW, NOW, key=None)), "2 of 2 records have no key", "give every record a key"),
        (("INVALID_RECORD", batch_with(NOW, record_count=3)), "last offset delta is 0", "developers of the client"),
        (("INVALID_RECORD", batch_with(NOW), "no such schema"), "'no such schema'", "broker's error message"),
        (("UNSUPPORTED_COMPRESSION_TYPE", batch_with(NOW, codec=4), None, 3), "with zstd in Produce v3", "compression.type=lz4"),
        (("UNSUPPORTED_COMPRESSION_TYPE", batch_with(NOW, codec=3)), "with lz4, which Produce v8 allows", "that the product supports"),
        (("INVALID_REQUEST", batch_with(NOW) + batch_with(NOW)), "more than one batch", "developers of the client"),
        (("INVALID_REQUEST", batch_with(NOW, transactional=True)), "no transactional id", "developers of the client"),
        (("INVALID_REQUIRED_ACKS", batch_with(NOW), None, 8, 2), "the request has acks=2", "set acks=all"),
        (("INVALID_REQUIRED_ACKS", batch_with(NOW), None, 8, 1), "the request has acks=1", "product"),
    ],
)  # fmt: skip
def test_what_a_refused_batch_shows(found: tuple[Any, ...], seen: str, advice: str) -> None:
    about = refusal(*found)
    assert about.id == "produce-refused" and seen in about.seen and advice in about.remedy


def test_a_record_with_a_key_is_not_blamed_on_compaction() -> None:
    about = refusal("INVALID_RECORD", batch_with(NOW))
    assert "have no key" not in about.seen and "has no key" not in about.seen


def test_a_limit_below_kafka_s_own() -> None:
    small = refusal("MESSAGE_TOO_LARGE", batch_with(NOW), "Max 100")
    assert "less than Kafka's own limit" in small.seen and small.seen.endswith("'Max 100'")
    large = encode_batch([Record(0, NOW, b"k", b"v" * 2_000_000)])
    assert "less than Kafka's own limit" not in refusal("MESSAGE_TOO_LARGE", large).seen


def test_a_batch_that_was_written_although_its_answer_was_lost() -> None:
    talk = Conversation()
    connection = talk.connect()
    talk.produce(connection, batch_of(0), NO_ANSWER)
    talk.close(connection, by="broker")
    talk.produce(talk.connect(), batch_of(0), "DUPLICATE_SEQUENCE_NUMBER")
    found = next(f for f in talk.findings() if f.id == "duplicate-sends")
    assert found.severity is Severity.INFO and "got no answer" in found.seen and "what idempotence is for" in found.why


# --- offsets that a log does not have


def out_of_range(asked: int, before: int, start: int, end: int, often: int = 1) -> Finding:
    """A consumer sees a log that ends at `before`, asks for an offset, and then sees a log from `start` to `end`."""
    talk = Conversation()
    connection = talk.connect()

    def listed(timestamp: int, offset: int) -> None:
        part = {"partition_index": 0, "timestamp": timestamp}
        answer = {"partition_index": 0, "error_code": 0, "offset": offset}
        talk.ask(
            connection, "ListOffsets", 1, {"replica_id": -1, "topics": [{"name": "orders", "partitions": [part]}]},
            {"topics": [{"name": "orders", "partitions": [answer]}]},
        )  # fmt: skip

    fetched(talk, connection, before, b"", before)
    for _ in range(often):
        fetched(talk, connection, asked, b"", -1, "OFFSET_OUT_OF_RANGE")
        talk.wait(0.5)
    listed(-2, start)
    listed(-1, end)
    return next(f for f in talk.findings() if f.id == "offset-out-of-range")


@pytest.mark.parametrize(
    ("asked", "before", "start", "end", "cause", "seen"),
    [
        (5, 4, 8, 9, "before-the-log", "3 records deleted before being read"),
        (50, 4, 0, 9, "behind-the-log", "the log ends at 9"),
        (4, 6, 0, 9, "inside-the-log", "so it contains this one"),
        (6, 4, 0, 9, "unknown", "OFFSET_OUT_OF_RANGE"),
        (-1, 4, 0, 9, "no-offset", "no log has a negative offset"),
    ],
)
def test_where_an_offset_lies(asked: int, before: int, start: int, end: int, cause: str, seen: str) -> None:
    found = out_of_range(asked, before, start, end)
    assert found.about["cause"] == cause and seen in found.seen
    assert ("recreated" in found.why or "created again" in found.why) == (cause in ("behind-the-log", "unknown"))


def test_platformatic_304_a_client_that_takes_minus_one_for_an_offset() -> None:
    found = out_of_range(-1, 4, 0, 9, often=20)
    assert found.severity is Severity.HIGH and found.about["cause"] == "no-offset" and "upgrade the client" in found.remedy


# --- transactions in the wrong state


def invalid_state(talk: Conversation) -> Finding:
    return next(f for f in talk.findings() if f.id == "transaction-refused")


def begun() -> tuple[Conversation, Connection]:
    talk = java()
    connection = talk.connect()
    talk.init(connection, name="shop-1", timeout_ms=10000)
    transaction(talk, connection)
    return talk, connection


def test_a_batch_for_a_partition_that_was_not_added() -> None:
    talk, connection = begun()
    batch = batch_of(0, transactional=True)
    talk.produce(connection, batch, "INVALID_TXN_STATE", partition=1, name="shop-1", text="not added")
    found = invalid_state(talk)
    assert "orders-1 was not added to the transaction" in found.seen and found.seen.endswith("'not added'")
    assert "upgrade the client" in found.remedy


def test_a_batch_for_a_partition_that_was_added() -> None:
    talk, connection = begun()
    talk.produce(connection, batch_of(1, transactional=True), "INVALID_TXN_STATE", name="shop-1")
    found = invalid_state(talk)
    assert "has this partition" in found.seen and "contradicts the coordinator" in found.why


def test_a_batch_after_the_transaction_s_end() -> None:
    talk, connection = begun()
    ended(talk, connection)
    talk.produce(connection, batch_of(1, transactional=True), "INVALID_TXN_STATE", name="shop-1")
    found = invalid_state(talk)
    assert "no transaction was open: the last one was committed 100 ms before" in found.seen and "threads" in found.remedy


def test_a_commit_of_nothing() -> None:
    talk = java()
    connection = talk.connect()
    talk.init(connection, name="shop-1")
    ended(talk, connection, "INVALID_TXN_STATE")
    assert "no transaction was open: none had begun" in invalid_state(talk).seen


def test_a_commit_after_the_timeout() -> None:
    talk, connection = begun()
    talk.wait(12)
    ended(talk, connection, "INVALID_TXN_STATE")
    found = invalid_state(talk)
    assert "was open for 12.1 s, longer than its timeout (10.0 s)" in found.seen and "transaction.timeout.ms" in found.remedy


def test_a_transaction_that_began_before_the_capture() -> None:
    talk = java()
    ended(talk, talk.connect(), "INVALID_TXN_STATE")
    assert "transaction was open" not in invalid_state(talk).seen


def test_a_timeout_that_brokers_do_not_allow() -> None:
    talk = java()
    asked = {"transactional_id": "shop-1", "transaction_timeout_ms": 3_600_000, "producer_id": -1, "producer_epoch": -1}
    talk.ask(talk.connect(), "InitProducerId", 4, asked, {"error_code": facts.error_code("INVALID_TRANSACTION_TIMEOUT")})
    assert "it asked for 60 min" in invalid_state(talk).seen


# --- no records although there are some


def empties(often: int, every: float, watermark: int = 500, offset: int = 40, error: str = "", replica: int = -1) -> list[Finding]:
    talk = Conversation()
    connection = talk.connect()
    for n in range(often):
        fetched(talk, connection, offset, b"", watermark + n, error, replica=replica)
        talk.wait(every)
    return [f for f in talk.findings() if f.id == "fetch-returns-nothing"]


def test_a_broker_that_returns_nothing_though_the_watermark_moves() -> None:
    (found,) = empties(61, 0.6)
    assert found.severity is Severity.MEDIUM and "offset 40 of orders-0 61 times in 36.0 s" in found.seen
    assert "the high watermark is 560" in found.seen


@pytest.mark.parametrize(
    "healthy",
    [
        {"often": 40, "every": 0.5},  # not for long
        {"often": 5, "every": 10},  # not often
        {"often": 100, "every": 0.5, "offset": 600},  # at the end
        {"often": 100, "every": 0.5, "replica": 2},  # elsewhere
    ],
)
def test_empty_answers_that_are_normal(healthy: dict[str, Any]) -> None:
    assert empties(**healthy) == []


def test_a_consumer_that_gets_records_now_and_then_is_not_stuck() -> None:
    talk = Conversation()
    connection = talk.connect()
    for n in range(100):
        fetched(talk, connection, n // 5 * 10, b"" if n % 5 else log_batch(n * 2, n * 2 + 9, n * 2), 1000)
        talk.wait(0.5)
    assert [f.seen for f in talk.findings() if f.id == "fetch-returns-nothing"] == []


# --- leaders that Metadata names


def metadata(talk: Conversation, connection: Connection, leader: int) -> None:
    brokers = [{"node_id": n, "host": f"10.0.0.{n}", "port": 9092} for n in (1, 2)]
    part = {"error_code": 0 if leader >= 0 else 5, "partition_index": 0, "leader_id": leader, "replica_nodes": [1, 2], "isr_nodes": [1, 2]}
    topic = {"error_code": 0, "name": "orders", "partitions": [part]}
    talk.ask(connection, "Metadata", 9, {"topics": [{"name": "orders"}]}, {"brokers": brokers, "topics": [topic], "controller_id": 1})


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"])
@pytest.mark.parametrize(
    ("leader", "seen", "remedy"),
    [
        (1, "though Metadata names this very broker as the leader", "broker's log"),
        (2, "Metadata names broker 2 as the leader", "address leads to"),
        (None, "without a success", "Metadata"),
    ],
)
def test_fetches_that_a_broker_refuses_and_the_leader_of_metadata(error: str, leader: int | None, seen: str, remedy: str) -> None:
    talk = Conversation("librdkafka 2.4.0", "fetch-error-loop")
    connection = talk.connect()
    if leader is not None:
        metadata(talk, connection, leader)
    for _ in range(12):
        fetched(talk, connection, 4, b"", error=error)
        talk.wait(1)
    (found,) = talk.findings()
    assert seen in found.seen and remedy in found.remedy
    assert ("Metadata names" in found.seen) == (leader is not None)


@pytest.mark.parametrize(("leader", "seen"), [(1, "this very broker"), (2, "names broker 2"), (-1, "names no leader")])
def test_batches_that_a_broker_refuses_and_the_leader_of_metadata(leader: int, seen: str) -> None:
    talk = Conversation("librdkafka 2.4.0", "produce-leader-retries")
    connection = talk.connect()
    metadata(talk, connection, leader)
    for _ in range(6):
        talk.produce(connection, batch_of(0), "NOT_LEADER_OR_FOLLOWER", text="leader epoch 7")
        talk.wait(2)
    (found,) = talk.findings()
    assert seen in found.seen and found.seen.endswith("'leader epoch 7'")


def test_metadata_that_was_asked_for_between_two_brokers_counts() -> None:
    """A client that asks for the leader and is refused by that one, too, has asked."""
    talk = Conversation("librdkafka 2.4.0", "produce-leader-retries")
    first, second = talk.connect("10.0.0.1:9092"), talk.connect("10.0.0.2:9092")
    talk.produce(first, batch_of(0), "NOT_LEADER_OR_FOLLOWER")
    metadata(talk, first, 2)
    talk.produce(second, batch_of(0), "NOT_LEADER_OR_FOLLOWER")
    metadata(talk, second, 1)
    talk.produce(first, batch_of(0))
    (found,) = talk.findings()
    assert found.severity is Severity.INFO and "Metadata was asked for 2 times meanwhile" in found.seen


def test_batches_that_were_on_their_way_are_not_sent_without_asking() -> None:
    talk = Conversation("librdkafka 2.4.0", "produce-leader-retries")
    connection = talk.connect()
    sent = {"transactional_id": None, "acks": -1, "timeout_ms": 30000}
    parts = [{"name": "orders", "partition_data": [{"index": 0, "records": batch_of(0)}]}]
    refused = {"responses": [{"name": "orders", "partition_responses": [{"index": 0, "error_code": 6}]}]}
    for _ in range(8):
        talk.ask(connection, "Produce", 8, {**sent, "topic_data": parts}, refused, took=5.0)
        talk.wait(0.1)
    metadata(talk, connection, 2)
    (found,) = talk.findings()
    assert "in a row without asking" not in found.seen
