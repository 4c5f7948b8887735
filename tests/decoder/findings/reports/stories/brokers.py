"""Stories of brokers, of products that speak Kafka's protocol, and of how they are set up."""

from __future__ import annotations

import uuid

from barnabas.decoder import encode_body, records
from barnabas.decoder.records import Record
from barnabas.decoder.schema import facts
from traffic.conversations import Conversations

from .telling import LATER, NOW_MS, Fields, Story, Talk, batch, java, librdkafka, subscription, topic


def body(api: str, version: int, fields: Fields) -> bytes:
    """A response as a frame whose body has the layout of another version."""
    return bytes(4) + encode_body("response", facts.api_key(api), version, fields)


def fetch_answered_as_v0() -> Conversations:
    talk = Talk(release="0.9.0", client_id="consumer-1")
    for _ in range(3):
        conn = talk.open()
        talk.metadata(conn, [topic()], version=0)
        asked = {"partition": 0, "fetch_offset": 4000, "partition_max_bytes": 1 << 20}
        failed = {"partition_index": 0, "error_code": -1, "high_watermark": -1, "records": b""}
        answer = body("Fetch", 0, {"responses": [{"topic": "orders", "partitions": [failed]}]})
        talk.ask(conn, "Fetch", 1, {"max_wait_ms": 500, "topics": [{"topic": "orders", "partitions": [asked]}]}, answer)
        talk.close(conn)
        talk.wait(LATER)
    return talk


def produce_answered_as_v0() -> Conversations:
    talk = Talk(release="0.8.2", client_id="rdkafka")
    for at in range(3):
        conn = talk.open()
        talk.metadata(conn, [topic()], version=0)
        given = {"index": 0, "error_code": 0, "base_offset": 100 + at}
        answer = body("Produce", 0, {"responses": [{"name": "orders", "partition_responses": [given]}]})
        data = records.encode_messages([Record(0, NOW_MS, None, b'{"id": 1}')], magic=0)
        asked = {"acks": 1, "timeout_ms": 5000, "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": data}]}]}
        talk.ask(conn, "Produce", 1, asked, answer)
        talk.wait(0.1)
        talk.close(conn)
        talk.wait(0.1)
    return talk


def error_for_another_partition() -> Conversations:
    talk = Talk("kgo", "v0.6.2", release="2.4", client_id="kgo")
    conn = talk.meet()
    for _ in range(6):
        talk.metadata(conn, [topic(partitions=3)], version=7)
        asked = {"topic": "orders", "partitions": [{"partition": 2, "current_leader_epoch": -1, "fetch_offset": 40, "partition_max_bytes": 1 << 20}]}
        failed = {"partition_index": 0, "error_code": 6, "high_watermark": -1, "last_stable_offset": -1, "records": b""}
        talk.ask(conn, "Fetch", 10, {"max_wait_ms": 500, "topics": [asked]}, {"responses": [{"topic": "orders", "partitions": [failed]}]})
        talk.wait(0.25)
    talk.close(conn)
    return talk


def out_of_range_though_inside(refused: bool = True) -> Conversations:
    talk = java("3.6.1", release="3.6", client_id="consumer-g-1")
    two = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))
    conn = talk.meet()
    talk.metadata(conn, [topic(nodes=(1, 2))], two)
    offsets(talk, conn, -2, 0)
    talk.fetch(conn, 0, batch(0, 5), 100_000, took=0.01)
    talk.close(conn)
    talk.wait(30)
    conn = talk.meet("10.0.0.2:9092")
    moved = topic(leader=2, nodes=(2, 1))
    moved["partitions"][0]["leader_epoch"] = 5
    talk.metadata(conn, [moved], two)
    if refused:
        talk.fetch(conn, 5, b"", -1, took=0.01, error=1, epoch=5, last_stable_offset=-1, log_start_offset=-1)
        offsets(talk, conn, -1, 100_000, 5)
        at = 100_000
    else:
        talk.fetch(conn, 5, batch(5, 3), 100_000, took=0.01, epoch=5)
        at = 8
    for _ in range(10):
        talk.fetch(conn, at, b"", 100_000, epoch=5)
    talk.close(conn)
    return talk


def offsets(talk: Talk, conn: object, timestamp: int, answer: int, epoch: int = 4, topic_name: str = "orders") -> None:
    asked = {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": timestamp}
    found = {"partition_index": 0, "timestamp": -1, "offset": answer, "leader_epoch": epoch}
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic_name, "partitions": [asked]}]}
    talk.ask(conn, "ListOffsets", 5, body, {"topics": [{"name": topic_name, "partitions": [found]}]})


def offsets_left_out() -> Conversations:
    talk = Talk(release="1.0", client_id="sarama", broker="10.0.0.1:9093", tls=True)
    for _ in range(4):
        conn = talk.open()
        talk.metadata(conn, [topic("insights-logs", leader=0, nodes=(0,))], ((0, "10.0.0.1", 9093),), 5)
        talk.coordinator(conn, "$Default", (0, "10.0.0.1", 9093), version=0)
        asked = {"group_id": "$Default", "topics": [{"name": "insights-logs", "partition_indexes": [0]}]}
        talk.ask(conn, "OffsetFetch", 1, asked, {"topics": [{"name": "insights-logs", "partitions": []}]})
        talk.wait(0.1)
        talk.close(conn)
        talk.wait(LATER)
    return talk


def one_address_for_all_brokers() -> Conversations:
    talk = java("3.2.0", release="3.2", client_id="c1-0", broker="192.168.49.2:9094")
    same = tuple((number, "192.168.49.2", 9094) for number in range(3))
    conn = talk.meet()
    talk.metadata(conn, [topic(leader=0, nodes=(0, 1, 2))], same, 12)
    for _ in range(30):
        talk.coordinator(conn, "default", same[1], version=4)
        other = talk.meet()
        ask = {
            "group_id": "default", "session_timeout_ms": 45000, "rebalance_timeout_ms": 300000, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(["orders"])}],
        }  # fmt: skip
        refused = {"error_code": 16, "generation_id": -1, "protocol_name": "", "leader": "", "member_id": ""}
        talk.ask(other, "JoinGroup", 7, ask, refused)
        talk.close(other)
        talk.wait(0.1)
    talk.close(conn)
    return talk


def schema_that_does_not_fit() -> Conversations:
    talk = java("7.2.0-ce", release="3.2", client_id="console-producer")
    conn = talk.meet()
    talk.metadata(conn, [topic("flow")])
    text = (
        "Log record DefaultRecord(offset=0, timestamp=1683756462766, key=3 bytes, value=10 bytes) is rejected by the record "
        "interceptor io.confluent.kafka.schemaregistry.validator.RecordSchemaValidator"
    )
    errors = [{"batch_index": 0, "batch_index_error_message": None}]
    data = records.encode_batch([Record(0, NOW_MS, b"abc", b"\0\0\0\0\1\6\6foo")])
    talk.produce(conn, data, "flow", 9, error=87, record_errors=errors, error_message=text)
    talk.wait(0.1)
    talk.close(conn)
    return talk


def records_of_last_year() -> Conversations:
    talk = java("3.7.1", release="3.8", client_id="mirror-source-task-1|producer")
    conn = talk.meet()
    talk.metadata(conn, [topic("source.orders")])
    for _ in range(3):
        now = talk.now // 1_000_000
        old = now - 400 * 86_400_000
        text = f"Timestamp {old} of message with offset 0 is out of range. The timestamp should be within [{now - 31_536_000_000}, {now + 3_600_000}]"
        errors = [{"batch_index": 0, "batch_index_error_message": text}]
        message = "One or more records have been rejected due to invalid timestamp"
        talk.produce(conn, batch(timestamp=old), "source.orders", 9, error=32, record_errors=errors, error_message=message)
        talk.wait(0.5)
    talk.close(conn)
    return talk


def storage_that_fails() -> Conversations:
    talk = java("3.4.0", release="3.4", client_id="producer-135")
    conn = talk.meet()
    for _ in range(60):
        talk.metadata(conn, [topic("testMain")], version=12)
        talk.produce(conn, batch(producer_id=9, producer_epoch=0, base_sequence=0), "testMain", 9, error=56)
        talk.wait(1)
    talk.close(conn)
    return talk


def commit_that_ends_in_an_unknown_error() -> Conversations:
    talk = java("2.4.1", release="2.0", client_id="producer-Sink: Unnamed-7df1-1")
    for _ in range(4):
        conn = talk.meet(version=2)
        talk.metadata(conn, [], version=5)
        talk.coordinator(conn, "Sink: Unnamed-7df1-1", version=2, kind=1)
        end = {"transactional_id": "Sink: Unnamed-7df1-1", "producer_id": 25004, "producer_epoch": 586, "committed": True}
        talk.ask(conn, "EndTxn", 1, end, {"error_code": -1}, took=0.1)
        talk.close(conn)
        talk.wait(10)
    return talk


def no_authorizer() -> Conversations:
    talk = java("2.6.0", release="2.5", client_id="adminclient-1")
    for _ in range(3):
        conn = talk.meet()
        talk.metadata(conn, [], asked=[], version=9)
        asked = {
            "resource_type_filter": 3, "resource_name_filter": "docker-group", "pattern_type_filter": 3, "principal_filter": None,
            "host_filter": None, "operation": 1, "permission_type": 1,
        }  # fmt: skip
        talk.ask(conn, "DescribeAcls", 2, asked, {"error_code": 54, "error_message": "No Authorizer is configured on the broker", "resources": []})
        talk.close(conn)
        talk.wait(3)
    return talk


def refused_by_a_policy() -> Conversations:
    talk = java("2.0.0", release="1.0", client_id="adminclient-1", broker="10.0.0.1:9093", tls=True)
    for _ in range(3):
        conn = talk.meet(version=2)
        talk.metadata(conn, [topic("connect-cluster-offsets", error=3)], ((0, "10.0.0.1", 9093),), 5)
        new = {
            "name": "connect-cluster-offsets", "num_partitions": 25, "replication_factor": 1,
            "configs": [{"name": "cleanup.policy", "value": "compact"}],
        }  # fmt: skip
        text = "Request parameters do not satisfy the configured policy."
        answer = {"topics": [{"name": "connect-cluster-offsets", "error_code": 44, "error_message": text}]}
        talk.ask(conn, "CreateTopics", 2, {"topics": [new], "timeout_ms": 30000}, answer, took=0.02)
        talk.close(conn)
        talk.wait(20)
    return talk


def topic_that_is_not_deleted(deleted: bool = False) -> Conversations:
    talk = java("1.1.0", release="1.1", client_id="adminclient-1")
    conn = talk.meet(version=1)
    for attempt in range(2):
        talk.metadata(conn, [topic("old")], version=5, asked=[])
        answer = {"responses": [{"name": "old", "error_code": 0 if deleted and attempt else 7}]}
        talk.ask(conn, "DeleteTopics", 1, {"topic_names": ["old"], "timeout_ms": 30000}, answer, took=30.001)
        talk.wait(0.1)
    talk.metadata(conn, [] if deleted else [topic("old")], version=5, asked=[])
    talk.close(conn)
    return talk


def log_directories_that_are_not_shown(shown: bool = False) -> Conversations:
    talk = java("2.3.0", release="2.3", client_id="adminclient-1", broker="10.0.0.1:9092", tls=True)
    for _ in range(4):
        conn = talk.meet(version=2)
        talk.metadata(conn, [topic()], asked=[], version=8)
        talk.ask(conn, "DescribeLogDirs", 1, {"topics": None}, {"results": [{"log_dir": "/var/lib/kafka"}] if shown else []})
        talk.close(conn)
        talk.wait(5)
    return talk


def closed_on_an_expired_token(renewed: bool = False) -> Conversations:
    talk = java("3.1.0", release="2.2", client_id="consumer-1", broker="10.0.0.1:9093", tls=True)
    token = {"auth_bytes": b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01"}
    offer = {"mechanisms": ["OAUTHBEARER", "PLAIN"]}
    conn = talk.meet(version=2)
    talk.ask(conn, "SaslHandshake", 1, {"mechanism": "OAUTHBEARER"}, offer)
    talk.ask(conn, "SaslAuthenticate", 1, token, {"auth_bytes": b"", "session_lifetime_ms": 0})
    talk.metadata(conn, [topic()], ((1, "10.0.0.1", 9093),), 5)
    for at in range(60):
        talk.fetch(conn, at, batch(at, 1), at + 1, version=8, took=0.3)
        talk.wait(60)
    talk.close(conn)
    for _ in range(8):
        talk.wait(LATER)
        conn = talk.meet(version=2)
        talk.ask(conn, "SaslHandshake", 1, {"mechanism": "OAUTHBEARER"}, offer)
        if renewed:
            talk.ask(conn, "SaslAuthenticate", 1, token, {"auth_bytes": b"", "session_lifetime_ms": 0})
            talk.metadata(conn, [topic()], ((1, "10.0.0.1", 9093),), 5)
            talk.close(conn)
            continue
        talk.pipelined(conn, ("SaslAuthenticate", 1, token))
        talk.wait(0.003)
        talk.close(conn, by="broker")
    return talk


def name_of_a_container() -> Conversations:
    talk = java("3.3.2", release="3.4", client_id="adminclient-1")
    for _ in range(3):
        conn = talk.meet()
        for _ in range(6):
            talk.metadata(conn, [], ((1001, "53bdd72af451", 9092),), 12)
            talk.wait(LATER)
        talk.close(conn)
    return talk


def leader_without_that_listener() -> Conversations:
    talk = Talk(release="2.6", client_id="kafkajs")
    two = ((1, "10.0.0.1", 9094), (2, "10.0.0.2", 9094))
    conn = talk.meet(version=1)
    for _ in range(30):
        missing = topic(leader=-1, nodes=(3, 1))
        missing["partitions"][0] |= {"error_code": 72, "isr_nodes": [3, 1], "offline_replicas": [3]}
        talk.metadata(conn, [missing], two, 6)
        talk.wait(1)
    talk.close(conn)
    return talk


def epoch_that_the_log_has_not(answer: tuple[int, int] = (4, 0)) -> Conversations:
    talk = Talk("kgo", "v1.13.0", release="3.4", client_id="kgo")
    conn = talk.meet()
    for _ in range(3):
        talk.metadata(conn, [topic()], version=9)
        asked = {"topic": "orders", "partitions": [{"partition": 0, "current_leader_epoch": 4, "leader_epoch": 9}]}
        given = {"partition": 0, "error_code": 0, "leader_epoch": answer[0], "end_offset": answer[1]}
        body = {"replica_id": -1, "topics": [asked]}
        talk.ask(conn, "OffsetForLeaderEpoch", 3, body, {"topics": [{"topic": "orders", "partitions": [given]}]})
        talk.fetch(conn, 0, batch(0), 5000, version=11, took=0.01, epoch=4)
        talk.wait(1)
    talk.close(conn)
    return talk


def records_that_a_proxy_cannot_read(times: int = 8) -> Conversations:
    talk = java("3.9.0", release="3.9", client_id="consumer-g-1", broker="10.0.0.1:9192")
    for _ in range(times):
        conn = talk.meet(version=4)
        talk.metadata(conn, [topic("secret")], ((1, "10.0.0.1", 9192),), 12)
        offsets(talk, conn, -2, 0, topic_name="secret")
        asked = {"topic": "secret", "partitions": [{"partition": 0, "fetch_offset": 0, "current_leader_epoch": 4, "partition_max_bytes": 1 << 20}]}
        talk.pipelined(conn, ("Fetch", 11, {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 52428800, "topics": [asked]}))
        talk.wait(0.02)
        talk.close(conn, by="broker")
        talk.wait(0.3)
    return talk


def epoch_without_a_value(epoch: int = -2147483648) -> Conversations:
    talk = Talk("kgo", "v1.16.1", release="3.5", client_id="kgo")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=9)
    talk.coordinator(conn, "g", version=4)
    answer = {"partition_index": 0, "committed_offset": 120, "committed_leader_epoch": epoch, "metadata": "", "error_code": 0}
    asked = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}], "require_stable": True}
    talk.ask(conn, "OffsetFetch", 7, asked, {"topics": [{"name": "orders", "partitions": [answer]}]})
    for at in range(120, 150, 3):
        talk.fetch(conn, at, batch(at), 150, version=11, took=0.01, epoch=4)
    talk.close(conn)
    return talk


def groups_that_are_not_offered(offered: bool = False) -> Conversations:
    talk = librdkafka("2.3.0", release="2.4", client_id="rdkafka")
    for key in () if offered else (8, 9, 10, 11, 12, 13, 14):
        talk.offered.pop(key, None)
    conn = talk.meet()
    for _ in range(12):
        talk.metadata(conn, [topic()], version=4)
        talk.wait(5)
    talk.close(conn)
    return talk


def setting_that_cannot_be_changed() -> Conversations:
    talk = Talk("sarama", "1.43.2", release="2.8", client_id="terraform-provider-kafka", broker="10.0.0.1:9098", tls=True)
    for _ in range(2):
        conn = talk.open()
        talk.metadata(conn, [topic("events")], ((1, "10.0.0.1", 9098),), 5)
        text = (
            "Amazon MSK Serverless can't alter topic configuration cleanup.policy. Only the following topic configurations are alterable: "
            "[compression.type, max.message.bytes, retention.bytes, retention.ms]."
        )
        configs = [{"name": "retention.ms", "value": "86400000"}, {"name": "cleanup.policy", "value": "delete"}]
        resource = {"resource_type": 2, "resource_name": "events"}
        answer = {"responses": [resource | {"error_code": 40, "error_message": text}]}
        talk.ask(conn, "AlterConfigs", 0, {"resources": [resource | {"configs": configs}], "validate_only": False}, answer)
        talk.close(conn)
        talk.wait(10)
    return talk


def fewer_replicas_than_must_be_in_sync() -> Conversations:
    talk = librdkafka("1.0.0", release="2.1", client_id="rdkafka")
    conn = talk.meet()
    for _ in range(4):
        talk.metadata(conn, [topic("test-str-01")], version=2)
        talk.produce(conn, batch(0, 1), "test-str-01", error=19)
        talk.wait(0.3)
    talk.close(conn)
    return talk


def fetched_by_an_old_topic_id() -> Conversations:
    talk = Talk("kgo", "v1.20.0", release="3.9", client_id="kgo")
    before = uuid.UUID(int=77)
    conn = talk.meet(version=4)
    talk.metadata(conn, [topic() | {"topic_id": before}], version=12)
    for number in range(200):
        asked = {"topic_id": before, "partitions": [{"partition": 0, "fetch_offset": 50, "current_leader_epoch": 4, "partition_max_bytes": 1 << 20}]}
        part = {"partition_index": 0, "error_code": 103, "high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1, "records": b""}
        body = {"max_wait_ms": 500, "session_id": 9 if number else 0, "session_epoch": number, "topics": [] if number else [asked]}
        talk.ask(conn, "Fetch", 13, body, {"session_id": 9, "responses": [{"topic_id": before, "partitions": [part]}]}, took=0.005)
    talk.close(conn)
    return talk


def leader_that_is_not_listed() -> Conversations:
    talk = java("2.8.1", release="2.0", client_id="producer-1", broker="10.0.0.1:15003")
    conn = talk.meet(version=2)
    for _ in range(10):
        talk.metadata(conn, [topic(leader=77, nodes=(77,))], ((5, "10.0.0.1", 15003),), 5)
        talk.wait(0.5)
    talk.close(conn)
    return talk


def records_of_an_open_transaction(stable: int = 0) -> Conversations:
    talk = java("2.8.1", release="2.0", client_id="consumer-1")
    conn = talk.meet(version=2)
    talk.metadata(conn, [topic()], version=5)
    for at in range(0, 15, 3):
        data = batch(at, 3, transactional=True, producer_id=7, producer_epoch=0, base_sequence=at)
        talk.fetch(conn, at, data, at + 30, version=8, took=0.01, isolation=1, last_stable_offset=stable, aborted_transactions=[])
    talk.close(conn)
    return talk


def leader_by_the_wrong_name(leads: bool = False) -> Conversations:
    talk = Talk(release="2.3", client_id="kafkajs", tls=True)
    two = ((1, "kafka-1.example.com", 9094), (2, "kafka-2.example.com", 9094))
    conn = talk.meet("kafka-1.example.com:9094", version=1)
    talk.metadata(conn, [topic(leader=2, nodes=(1, 2))], two, 6)
    for attempt in range(10):
        other = talk.meet("kafka-2.example.com:9094", version=1)
        talk.produce(other, batch(), error=0 if leads and attempt else 6, base=3 * attempt)
        talk.metadata(conn, [topic(leader=2, nodes=(1, 2))], two, 6)
        talk.close(other)
        talk.wait(0.5)
    talk.close(conn)
    return talk


def no_delegation_tokens() -> Conversations:
    talk = java("3.7.0", release="3.7", client_id="adminclient-1", tls=True)
    conn = talk.meet()
    talk.metadata(conn, [], asked=[], version=12)
    alice = {"principal_type": "User", "principal_name": "alice", "token_requester_principal_type": "User", "token_requester_principal_name": "alice"}
    none = {"issue_timestamp_ms": -1, "expiry_timestamp_ms": -1, "max_timestamp_ms": -1, "token_id": "", "hmac": b""}
    asked = {"owner_principal_type": None, "owner_principal_name": None, "renewers": [], "max_lifetime_ms": -1}
    talk.ask(conn, "CreateDelegationToken", 3, asked, {"error_code": 61} | alice | none)
    talk.close(conn)
    return talk


STORIES = (
    Story(
        "https://github.com/apache/kafka/pull/1101", "Java 0.9", "Kafka 0.9.0",
        "Fetch v1 is answered in the layout of v0, with UNKNOWN_SERVER_ERROR; the client closes",
        "the answer decodes exactly as Fetch v0: the broker (0.9.0, KAFKA-3427) answers in the wrong version when it fails",
        fetch_answered_as_v0, frozenset({"undecodable-frame"}), (r"as Fetch v0", r"KAFKA-3427"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/669", "librdkafka 0.9.1", "Kafka 0.8.2.1",
        "Produce v1 is answered in the layout of v0; the client closes and sends the same records three times",
        "the answer decodes as Produce v0: the broker is older than 0.9 and does not know v1: broker.version.fallback=0.8.2",
        produce_answered_as_v0, frozenset({"undecodable-frame"}), (r"as Produce v0", r"broker is older", r"broker\.version\.fallback"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/issues/126", "franz-go 0.6", "Redpanda 20.11",
        "a Fetch of orders-2 is answered with an error for orders-0",
        "orders-0 was not asked for, and orders-2 is missing: the broker's fault",
        error_for_another_partition, frozenset({"impossible-answer"}), (r"orders-0, which was not asked for",),
    ),
    Story(
        "https://github.com/Aiven-Open/tiered-storage-for-apache-kafka/issues/663", "Java 3.6.1", "Kafka 3.6.1 with tiered storage",
        "ListOffsets: the log begins at 0; the leader moves; Fetch at 5: OFFSET_OUT_OF_RANGE; the client goes on at 100000",
        "offset 5 is inside the log that the other leader showed: the new leader (tiered storage) is wrong, and records are skipped",
        out_of_range_though_inside, frozenset({"offset-out-of-range"}), (r"\b5\b", r"another broker", r"tiered storage"),
    ),
    Story(
        "https://github.com/IBM/sarama/issues/1540", "sarama 1.24", "Azure Event Hubs",
        "OffsetFetch is answered with the topic, but without the partition that was asked for",
        "the partition is missing where Kafka answers -1: the product's fault",
        offsets_left_out, frozenset({"impossible-answer"}), (r"insights-logs-0", r"OffsetFetch"),
    ),
    Story(
        "https://github.com/bitnami/charts/issues/12815", "Java 3.2", "Kafka 3.2 in Minikube",
        "Metadata has three brokers at 192.168.49.2:9094; JoinGroup there: NOT_COORDINATOR, for ever",
        "the brokers advertise one address, so a client reaches any of them: advertised.listeners",
        one_address_for_all_brokers, frozenset({"broken-broker-address"}), (r"192\.168\.49\.2:9094", r"advertised\.listeners"),
    ),
    Story(
        "https://github.com/confluentinc/schema-registry/issues/2636", "Java's console producer", "Confluent Server 7.2",
        "Produce: INVALID_RECORD, error_message names RecordSchemaValidator",
        "the broker validates schemas (confluent.value.schema.validation) and refuses these records",
        schema_that_does_not_fit, frozenset({"produce-refused"}), (r"RecordSchemaValidator", r"confluent\.value\.schema\.validation"),
    ),
    Story(
        "https://github.com/aws-samples/mirrormaker2-msk-migration/pull/26", "MirrorMaker 2 of Kafka 3.7", "MSK 3.8",
        "records of 400 days ago: INVALID_TIMESTAMP",
        "they are older than message.timestamp.before.max.ms of the target: raise it while old records are copied",
        records_of_last_year, frozenset({"produce-refused"}), (r"INVALID_TIMESTAMP", r"message\.timestamp\.before\.max\.ms", r"400 days before"),
    ),
    Story(
        "https://github.com/AutoMQ/automq/issues/528", "Java 3.4", "AutoMQ",
        "Produce: KAFKA_STORAGE_ERROR for a minute; Metadata names the same leader each time",
        "the broker cannot write its log, and stays the leader: the broker's fault",
        storage_that_fails, frozenset({"produce-refused"}), (r"KAFKA_STORAGE_ERROR", r"(?i)disk|log dir|storage"),
    ),
    Story(
        "https://github.com/streamnative/kop/issues/1424", "Java 2.4 in Flink", "KoP 2.10",
        "EndTxn (commit) of a transaction of an earlier process: UNKNOWN_SERVER_ERROR, at each start",
        "the broker fails on EndTxn without a reason; the transaction is an earlier process's, and has probably timed out",
        commit_that_ends_in_an_unknown_error, frozenset({"transaction-refused"}),
        (r"EndTxn", r"UNKNOWN_SERVER_ERROR", r"earlier process", r"timeout"),
    ),
    Story(
        "https://github.com/tchiotludo/akhq/issues/367", "Java 2.6 in AKHQ", "Kafka 2.5 without an authorizer",
        "DescribeAcls: SECURITY_DISABLED",
        "the broker has no authorizer (authorizer.class.name), so there are no ACLs",
        no_authorizer, frozenset({"unexplained-error"}), (r"SECURITY_DISABLED", r"authorizer\.class\.name"),
    ),
    Story(
        "https://github.com/MicrosoftDocs/azure-docs/issues/29970", "Java 2.0 in Kafka Connect", "Azure Event Hubs",
        "CreateTopics with 25 partitions: POLICY_VIOLATION",
        "a policy of the broker refuses what was asked for: 25 partitions, cleanup.policy=compact; fewer, or create it by other means",
        refused_by_a_policy, frozenset({"topic-creation-refused"}),
        (r"POLICY_VIOLATION", r"connect-cluster-offsets", r"25 partitions", r"cleanup\.policy=compact"),
    ),
    Story(
        "https://github.com/apache/kafka/pull/3960", "Java 1.1", "Kafka 1.1 with delete.topic.enable=false",
        "DeleteTopics: REQUEST_TIMED_OUT after 30 s, twice; Metadata has the topic still",
        "topics cannot be deleted there: delete.topic.enable=false",
        topic_that_is_not_deleted, frozenset({"admin-request-refused"}), (r"REQUEST_TIMED_OUT", r"delete\.topic\.enable"),
    ),
    Story(
        "https://github.com/tchiotludo/akhq/issues/111", "Java 2.3 in AKHQ", "Confluent Cloud",
        "DescribeLogDirs v1 is answered without a directory and without an error",
        "brokers answer so to a client that may not describe the cluster: Describe on the cluster",
        log_directories_that_are_not_shown, frozenset({"authorization-failed"}), (r"DescribeLogDirs", r"without directories", r"--operation Describe --cluster"),
    ),
    Story(
        "https://github.com/streamnative/kop/issues/1299", "Java 3.1", "KoP 2.10 with OAUTHBEARER",
        "a token is accepted; an hour later SaslAuthenticate is answered by FIN, each time",
        "the broker closes at the token, which it accepted before, instead of refusing it: expired, or a fault of the product",
        closed_on_an_expired_token, frozenset({"sasl-token-not-answered"}),
        (r"SaslAuthenticate", r"(?i)token", r"(?i)expired"),
    ),
    Story(
        "https://github.com/spring-cloud/spring-cloud-stream/issues/2677", "Java 3.3 admin client", "Kafka in Docker",
        "Metadata names 53bdd72af451:9092; the client asks again and connects nowhere",
        "advertised.listeners has the name of the container, which nobody outside resolves",
        name_of_a_container, frozenset({"unreachable-advertised-address"}), (r"53bdd72af451:9092", r"advertised\.listeners"),
    ),
    Story(
        "https://github.com/tulios/kafkajs/issues/1042", "kafkajs", "Kafka 2.6 in Kubernetes",
        "Metadata: LISTENER_NOT_FOUND for the partitions, for ever",
        "the leader has no listener of the name that the client uses: the same listeners on all brokers",
        leader_without_that_listener, frozenset({"partition-without-leader"}), (r"LISTENER_NOT_FOUND", r"listener"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/issues/11864", "franz-go 1.13", "Redpanda 23.1",
        "OffsetForLeaderEpoch for epoch 9, which the log has not: epoch 4, end offset 0 (the log's start)",
        "Kafka answers -1 and -1 for an epoch that it does not know: the broker's fault; the client begins at 0 again",
        epoch_that_the_log_has_not, frozenset({"impossible-answer"}), (r"OffsetForLeaderEpoch", r"-1"),
    ),
    Story(
        "https://github.com/kroxylicious/kroxylicious/issues/2346", "Java 3.9", "Kroxylicious with record encryption",
        "Fetch of a topic is answered by FIN each time; everything else is answered",
        "the proxy (or the broker) fails on the records of this topic",
        records_that_a_proxy_cannot_read, frozenset({"closed-without-answer"}), (r"Fetch v11", r"a proxy fails on the records"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/pull/17260", "franz-go 1.16", "Redpanda 23.3",
        "OffsetFetch: committed_leader_epoch -2147483648",
        "epochs are 0 or more, -1 stands for none: the broker's fault",
        epoch_without_a_value, frozenset({"impossible-answer"}), (r"committed_leader_epoch is -2147483648",),
    ),
    Story(
        "https://github.com/SaaSy-Solutions/mockforge/pull/186", "librdkafka 2.3", "MockForge, which has no groups",
        "ApiVersions without FindCoordinator and the group APIs; Metadata is asked again and again, nothing else",
        "consumers with a group need FindCoordinator, which is not offered",
        groups_that_are_not_offered, frozenset({"client-gives-up"}), (r"FindCoordinator", r"not offer"),
    ),
    Story(
        "https://github.com/Mongey/terraform-provider-kafka/issues/446", "sarama in the Terraform provider", "MSK Serverless",
        "AlterConfigs with retention.ms and cleanup.policy: INVALID_CONFIG",
        "MSK Serverless does not alter cleanup.policy: leave it out",
        setting_that_cannot_be_changed, frozenset({"unexplained-error"}), (r"INVALID_CONFIG", r"can't alter topic configuration cleanup\.policy"),
    ),
    Story(
        "https://github.com/edenhill/kcat/issues/184", "librdkafka 1.0", "Kafka 2.1, min.insync.replicas=2",
        "the topic has one replica, which is in sync; Produce: NOT_ENOUGH_REPLICAS",
        "min.insync.replicas is above the number of replicas: no follower is missing",
        fewer_replicas_than_must_be_in_sync, frozenset({"not-enough-replicas"}), (r"min\.insync\.replicas is above the replication factor \(1\)", r"No follower is missing"),
    ),
    Story(
        "https://github.com/twmb/franz-go/pull/1426", "franz-go 1.20", "Kafka 3.9, a topic that was made anew",
        "each Fetch of the session: INCONSISTENT_TOPIC_ID, as fast as they can be asked",
        "the topic was deleted and created again, and the session has its old id",
        fetched_by_an_old_topic_id, frozenset({"unexplained-error"}), (r"INCONSISTENT_TOPIC_ID", r"deleted and created again"),
    ),
    Story(
        "https://github.com/streamnative/kop/pull/1140", "Java 2.8", "KoP 2.8.2",
        "Metadata: the leader is none of the brokers",
        "clients have no address of the leader: the broker's fault",
        leader_that_is_not_listed, frozenset({"impossible-answer"}), (r"has leader 77 and no error, but 77 is none of the brokers 5",),
    ),
    Story(
        "https://github.com/streamnative/kop/pull/1856", "Java 2.8, read_committed", "KoP 2.10",
        "records at and above the last stable offset are answered",
        "they belong to open transactions: the broker's fault",
        records_of_an_open_transaction, frozenset({"impossible-answer"}), (r"the last stable offset is 0", r"read_committed"),
    ),
    Story(
        "https://github.com/tulios/kafkajs/issues/510", "kafkajs with a fixed TLS server name", "Strimzi behind a router",
        "NOT_LEADER_OR_FOLLOWER from the address that Metadata names for the leader, ten times",
        "the address leads to another broker, as the router goes by the server name",
        leader_by_the_wrong_name, frozenset({"produce-leader-retries"}), (r"this very broker as the leader", r"server name"),
    ),
    Story(
        "https://github.com/robot-head/crabka/pull/185", "Java 3.7 admin client", "a broker without a secret key for tokens",
        "CreateDelegationToken: DELEGATION_TOKEN_AUTH_DISABLED",
        "delegation.token.secret.key is not set",
        no_delegation_tokens, frozenset({"unexplained-error"}), (r"delegation\.token\.secret\.key",),
    ),
)  # fmt: skip
