"""Stories of producers: refused batches, idempotence, transactions."""

from __future__ import annotations

from functools import partial

from traffic.conversations import Conversations

from .telling import Story, Talk, batch, java, librdkafka, topic


def compressed_for_event_hubs() -> Conversations:
    talk = Talk("kgo", "v1.4.0", release="2.0", broker="10.0.0.1:9093", client_id="proxy", tls=True)
    conn = talk.meet()
    talk.metadata(conn, [topic("updates-eh", leader=0, nodes=(0,))], ((0, "10.0.0.1", 9093),), 6)
    for _ in range(4):
        talk.produce(conn, batch(codec=2), "updates-eh", 6, error=43)
        talk.wait(0.25)
    talk.close(conn)
    return talk


def microseconds() -> Conversations:
    talk = java("3.5.0", release="3.6", client_id="producer-1")
    conn = talk.meet()
    talk.metadata(conn, [topic("myTopic1")])
    for _ in range(3):
        now = talk.now // 1_000_000
        text = f"Timestamp {now * 1000} of message with offset 0 is ahead of the server's time. {now}"
        errors = [{"batch_index": 0, "batch_index_error_message": text}]
        talk.produce(conn, batch(timestamp=now * 1000), "myTopic1", 9, error=32, record_errors=errors)
        talk.wait(0.5)
    talk.close(conn)
    return talk


def no_key_for_a_compacted_topic() -> Conversations:
    talk = Talk(release="0.11.0", client_id="sarama")
    conn = talk.open()
    talk.metadata(conn, [topic("settings")], version=1)
    for _ in range(4):
        talk.produce(conn, batch(key=None), "settings", 3, error=2)
        talk.wait(0.1)
    talk.close(conn)
    return talk


def not_allowed_to_be_idempotent() -> Conversations:
    talk = java("3.4.0", release="2.8", broker="10.0.0.1:9098", client_id="console-producer", tls=True)
    conn = talk.meet()
    talk.metadata(conn, [topic("private-topic-1")], ((1, "10.0.0.1", 9098),))
    talk.ask(
        conn,
        "InitProducerId",
        4,
        {"transactional_id": None, "transaction_timeout_ms": 2147483647},
        {"error_code": 31, "producer_id": -1, "producer_epoch": -1},
    )
    talk.wait(0.01)
    talk.close(conn)
    return talk


def transaction_of_an_hour() -> Conversations:
    talk = java("3.9.1", release="3.9", client_id="producer-flink-0-1")
    conn = talk.meet()
    talk.metadata(conn, [])
    talk.coordinator(conn, "flink-0-1", version=4, kind=1)
    conn = talk.meet()
    body = {"transactional_id": "flink-0-1", "transaction_timeout_ms": 3_600_000}
    talk.ask(conn, "InitProducerId", 4, body, {"error_code": 50, "producer_id": -1, "producer_epoch": -1})
    talk.close(conn)
    return talk


def one_broker_for_three_replicas() -> Conversations:
    talk = librdkafka("1.4.0", release="2.4", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [], version=4)
    for _ in range(40):
        talk.coordinator(conn, "worker", None, 15, kind=1, version=2)
        talk.wait(0.5)
    talk.close(conn)
    return talk


def coordinator_that_denies_it() -> Conversations:
    talk = librdkafka("2.3.0", release="3.5", client_id="swift")
    talk.offered.pop(60, None)
    conn = talk.meet()
    talk.metadata(conn, [topic()])
    talk.coordinator(conn, "333", version=2, kind=1)
    tx = talk.meet()
    body = {"transactional_id": "333", "transaction_timeout_ms": 60000}
    talk.ask(tx, "InitProducerId", 4, body, {"producer_id": 35001, "producer_epoch": 0})
    parts = {
        "v3_and_below_transactional_id": "333", "v3_and_below_producer_id": 35001, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
    }  # fmt: skip
    talk.ask(tx, "AddPartitionsToTxn", 0, parts, {"results_by_topic_v3_and_below": [{"name": "orders", "results_by_partition": [{"partition_index": 0, "partition_error_code": 0}]}]})  # fmt: skip
    data = batch(transactional=True, producer_id=35001, producer_epoch=0, base_sequence=0)
    talk.produce(conn, data, transactional_id="333")
    end = {"transactional_id": "333", "producer_id": 35001, "producer_epoch": 0, "committed": True}
    talk.ask(tx, "EndTxn", 1, end, {"error_code": 48})
    talk.close(tx)
    for _ in range(60):
        talk.coordinator(conn, "333", version=2, kind=1)
        talk.ask(conn, "InitProducerId", 4, body, {"error_code": 16, "producer_id": -1, "producer_epoch": -1})
        talk.wait(0.5)
    talk.close(conn)
    return talk


def transaction_that_never_ends() -> Conversations:
    talk = java("3.1.0", release="2.0", client_id="producer-X1")
    conn = talk.meet()
    talk.metadata(conn, [], version=5)
    talk.coordinator(conn, "X1", version=1, kind=1)
    conn = talk.meet()
    body = {"transactional_id": "X1", "transaction_timeout_ms": 60000}
    for _ in range(590):
        talk.ask(conn, "InitProducerId", 1, body, {"error_code": 51, "producer_id": -1, "producer_epoch": -1})
        talk.wait(0.1)
    talk.close(conn)
    return talk


def sequence_that_overflows(base: int = -2147483407, error: int = 87, before: int = 2147483448) -> Conversations:
    talk = Talk("kgo", "v1.7.1", release="2.8", client_id="kgo")
    conn = talk.meet()
    talk.metadata(conn, [topic("big")])
    talk.ask(conn, "InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60000}, {"producer_id": 7, "producer_epoch": 0})
    talk.produce(conn, batch(0, 200, producer_id=7, producer_epoch=0, base_sequence=before), "big", 8, base=100)
    for at in range(6):
        data = batch(0, 3, producer_id=7, producer_epoch=0, base_sequence=base + 3 * at)
        talk.produce(conn, data, "big", 8, error=error, base=300 + 3 * at)
        talk.wait(0.3)
    talk.close(conn)
    return talk


def no_producer_id_from_the_coordinator() -> Conversations:
    talk = librdkafka("1.9.2", release="2.8", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=4)
    talk.coordinator(conn, "tx", kind=1)
    other = talk.meet()
    for _ in range(6):
        ask = {"transactional_id": "tx", "transaction_timeout_ms": 60000, "producer_id": -1, "producer_epoch": -1}
        talk.ask(other, "InitProducerId", 3, ask, {"error_code": 8, "producer_id": -1, "producer_epoch": -1}, took=9.6)
        talk.wait(1)
    talk.close(other)
    talk.close(conn)
    return talk


def commit_without_the_offsets(in_the_end: bool = False) -> Conversations:
    talk = librdkafka("1.5.3", release="2.5", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [topic("out")], version=4)
    talk.coordinator(conn, "tx", kind=1)
    start = {"transactional_id": "tx", "transaction_timeout_ms": 60000, "producer_id": -1, "producer_epoch": -1}
    talk.ask(conn, "InitProducerId", 3, start, {"producer_id": 7, "producer_epoch": 0})
    place = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 0}
    added = {"name": "out", "results_by_partition": [{"partition_index": 0, "partition_error_code": 0}]}
    for at in range(3):
        add = {f"v3_and_below_{name}": value for name, value in place.items()}
        add["v3_and_below_topics"] = [{"name": "out", "partitions": [0]}]
        talk.ask(conn, "AddPartitionsToTxn", 0, add, {"results_by_topic_v3_and_below": [added]})
        data = batch(2 * at, 2, producer_id=7, producer_epoch=0, base_sequence=2 * at, transactional=True)
        talk.produce(conn, data, "out", base=3 * at, transactional_id="tx")
        for attempt in range(5):
            error = 0 if in_the_end and attempt == 4 else 51
            talk.ask(conn, "AddOffsetsToTxn", 0, place | {"group_id": "g"}, {"error_code": error})
            talk.wait(0.02)
        talk.ask(conn, "EndTxn", 1, place | {"committed": True}, {"error_code": 0})
        talk.wait(1)
    talk.close(conn)
    return talk


STORIES = (
    Story(
        "https://github.com/twmb/franz-go/issues/144", "franz-go 1.4", "Azure Event Hubs",
        "batches compressed with snappy: UNSUPPORTED_FOR_MESSAGE_FORMAT, each time",
        "this product takes no snappy batches (Event Hubs: gzip or none): switch the producer's compression off",
        compressed_for_event_hubs, frozenset({"produce-refused"}), (r"snappy", r"(?i)compress", r"Event Hubs|product"),
    ),
    Story(
        "https://github.com/apache/kafka/pull/13709", "Java 3.5", "Kafka 3.6 with message.timestamp.after.max.ms",
        "timestamps are a thousand times the broker's: INVALID_TIMESTAMP with record_errors that say it",
        "timestamps are in microseconds: the client's (application's) fault",
        microseconds, frozenset({"produce-refused"}), (r"(?i)microsecond", r"INVALID_TIMESTAMP"),
    ),
    Story(
        "https://github.com/IBM/sarama/issues/810", "sarama 1.11", "Kafka 0.11 with a compacted topic",
        "records without keys: CORRUPT_MESSAGE though the CRC is right",
        "the CRC is right and the keys are null: a compacted topic needs keys; the client's (application's) fault",
        no_key_for_a_compacted_topic, frozenset({"corrupt-batch"}), (r"(?i)compact", r"(?i)\bkeys?\b", r"CRC"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/4452", "Java 3.4 console producer", "MSK Serverless (2.8)",
        "InitProducerId without a transactional id: CLUSTER_AUTHORIZATION_FAILED",
        "brokers before 3.0 want IdempotentWrite on the cluster (MSK: kafka-cluster:WriteDataIdempotently); or enable.idempotence=false",
        not_allowed_to_be_idempotent, frozenset({"authorization-failed"}), (r"IdempotentWrite",),
    ),
    Story(
        "https://github.com/j3-signalroom/apache_flink-kickstarter/issues/787", "Java 3.9 in Flink", "Kafka 3.9",
        "InitProducerId with transaction_timeout_ms 3600000: INVALID_TRANSACTION_TIMEOUT",
        "1 h is above transaction.max.timeout.ms (default 15 min): lower the client's or raise the broker's",
        transaction_of_an_hour, frozenset({"transaction-refused"}), (r"transaction\.max\.timeout\.ms", r"1 h\b|3600000|60 min"),
    ),
    Story(
        "https://github.com/confluentinc/confluent-kafka-python/issues/842", "librdkafka 1.4.0", "one Kafka 2.4 broker, default settings",
        "FindCoordinator for a transactional id: COORDINATOR_NOT_AVAILABLE for 20 s; Metadata has one broker",
        "__transaction_state cannot be made: transaction.state.log.replication.factor (3) is above the one broker there is",
        one_broker_for_three_replicas, frozenset({"transaction-coordinator-unavailable"}), (r"transaction\.state\.log\.replication\.factor",),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/issues/17827", "librdkafka 2.3 in swift-kafka-client", "Redpanda 23.3.11",
        "EndTxn: INVALID_TXN_STATE; then InitProducerId: NOT_COORDINATOR from the broker that FindCoordinator names, 60 times",
        "the broker that FindCoordinator names says it is not the coordinator, each time: the broker's fault",
        coordinator_that_denies_it, frozenset({"transaction-coordinator-unavailable"}),
        (r"NOT_COORDINATOR", r"FindCoordinator", r"333"),
    ),
    Story(
        "https://github.com/streamnative/kop/issues/1412", "Java 3.1", "KoP 2.10.1",
        "InitProducerId: CONCURRENT_TRANSACTIONS for a minute, every 100 ms",
        "the broker never finishes the transaction before this one: its coordinator is stuck; the broker's fault",
        transaction_that_never_ends, frozenset({"concurrent-transactions"}),
        (r"CONCURRENT_TRANSACTIONS", r"X1", r"(?i)until all are written|never|stuck"),
    ),
    Story(
        "https://github.com/twmb/franz-go/issues/226", "franz-go 1.7.1", "Kafka 2.8",
        "Produce with the sequence -2147483407: INVALID_RECORD",
        "sequences begin at 0 again after 2^31-1; the client let them overflow",
        sequence_that_overflows, frozenset({"produce-refused"}), (r"INVALID_RECORD", r"sequence -21474\d+", r"overflow"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/issues/7069", "librdkafka 1.9.2", "Redpanda",
        "InitProducerId is answered BROKER_NOT_AVAILABLE again and again",
        "Kafka never answers so: the broker's coordinator fails, not the client",
        no_producer_id_from_the_coordinator, frozenset({"impossible-answer"}), (r"BROKER_NOT_AVAILABLE, which InitProducerId never answers",),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/issues/4854", "franz-go 1.5.3", "Redpanda 22.1",
        "the batch up to sequence 2147483647 is acknowledged, the next one, from 0, refused with OUT_OF_ORDER_SEQUENCE_NUMBER",
        "sequences begin at 0 again after 2^31-1: the broker does not accept that",
        partial(sequence_that_overflows, 0, 45), frozenset({"out-of-order-sequence"}), (r"2147483647", r"begins at 0 again", r"another product"),
    ),
    Story(
        "https://github.com/tulios/kafkajs/issues/1790", "kafkajs", "Apache Kafka",
        "the batch up to sequence 2147483646 is acknowledged, the next one, from 0, refused with OUT_OF_ORDER_SEQUENCE_NUMBER",
        "2147483647 is a sequence too: the client begins at 0 again one too early",
        partial(sequence_that_overflows, 0, 45, 2147483447), frozenset({"out-of-order-sequence"}), (r"2147483647 was expected", r"leaves some out"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/3221", "librdkafka 1.5.3", "Kafka 2.5",
        "AddOffsetsToTxn is answered CONCURRENT_TRANSACTIONS; EndTxn (commit) follows and is accepted",
        "the application commits the transaction without its offsets, and reads its input again",
        commit_without_the_offsets, frozenset({"committed-without-offsets"}), (r"AddOffsetsToTxn", r"CONCURRENT_TRANSACTIONS", r"processed again"),
    ),
)  # fmt: skip
