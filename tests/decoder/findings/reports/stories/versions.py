"""Stories of versions and of APIs that one side has and the other has not."""

from __future__ import annotations

from barnabas.decoder import encode_response
from traffic.conversations import Conversations

from .telling import Story, Talk, batch, java, subscription, topic


def join_group_of_kafka_go() -> Conversations:
    talk = Talk(release="4.0.0", client_id="reader@host (github.com/segmentio/kafka-go)")
    for _ in range(5):
        conn = talk.meet(version=0)
        talk.metadata(conn, [topic()], version=1)
        talk.coordinator(conn, "billing", version=0)
        talk.close(conn)
        conn = talk.open()
        body = {
            "group_id": "billing", "session_timeout_ms": 30000, "rebalance_timeout_ms": 30000, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(["orders"])}],
        }  # fmt: skip
        talk.pipelined(conn, ("JoinGroup", 1, body))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(5)
    return talk


def share_consumer_at_an_old_broker() -> Conversations:
    talk = java("4.1.0", release="4.0", client_id="console-share-consumer")
    conn = talk.meet(version=4)
    talk.metadata(conn, [topic()], version=12)
    talk.coordinator(conn, "share-group5", version=6)
    other = talk.meet(version=4)
    talk.wait(0.1)
    talk.close(other)
    talk.close(conn)
    return talk


def api_that_a_proxy_refuses() -> Conversations:
    talk = java("3.7.0", release="3.7", broker="10.0.0.1:19092", client_id="producer-1")
    for attempt in range(6):
        conn = talk.meet()
        talk.metadata(conn, [topic()], ((1, "10.0.0.1", 19092),))
        if not attempt:
            body = {"transactional_id": None, "transaction_timeout_ms": 60000}
            talk.ask(conn, "InitProducerId", 4, body, {"producer_id": 7, "producer_epoch": 0})
        parts = [{"index": 0, "records": batch(producer_id=7, producer_epoch=0, base_sequence=0)}]
        talk.pipelined(conn, ("Produce", 10, {"acks": -1, "timeout_ms": 30000, "topic_data": [{"name": "orders", "partition_data": parts}]}))  # fmt: skip
        talk.wait(0.001)
        talk.close(conn, by="broker")
        talk.wait(1)
    return talk


def new_protocol_offered_and_refused() -> Conversations:
    talk = java("4.0.0", release="3.9", client_id="consumer-g1-1")
    talk.offered[68] = (0, 1)
    conn = talk.meet(version=4)
    talk.metadata(conn, [topic()], version=12)
    talk.coordinator(conn, "g1", version=6)
    conn = talk.meet(version=4)
    body = {
        "group_id": "g1", "member_id": "Yk2fT0bLQy2Pzq8x7l0S0g", "member_epoch": 0, "rebalance_timeout_ms": 300000,
        "subscribed_topic_names": ["orders"], "topic_partitions": [],
    }  # fmt: skip
    talk.ask(conn, "ConsumerGroupHeartbeat", 1, body, {"error_code": 35, "member_epoch": 0, "heartbeat_interval_ms": 0})
    talk.wait(0.05)
    talk.close(conn)
    return talk


def commit_without_metadata() -> Conversations:
    talk = Talk(release="0.9.0", client_id="rdkafka")
    for _ in range(4):
        conn = talk.open()
        talk.coordinator(conn, "g", version=0)
        places = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": None}]
        body = {"group_id": "g", "generation_id_or_member_epoch": 1, "member_id": "m", "topics": [{"name": "t", "partitions": places}]}
        talk.pipelined(conn, ("OffsetCommit", 1, body))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(1)
    return talk


def settings_that_cannot_be_changed() -> Conversations:
    talk = java("3.6.1", release="2.0", client_id="adminclient-1")
    for key in [key for key in talk.offered if key >= 43]:
        del talk.offered[key]
    for _ in range(2):
        conn = talk.meet()
        talk.metadata(conn, [], asked=[], version=6)
        resource = {"resource_type": 2, "resource_name": "mytopic", "configuration_keys": None}
        answer = {"error_code": 0, "error_message": "", "resource_type": 2, "resource_name": "mytopic", "configs": []}
        talk.ask(conn, "DescribeConfigs", 2, {"resources": [resource], "include_synonyms": False}, {"results": [answer]})
        talk.wait(0.1)
        talk.close(conn)
        talk.wait(5)
    return talk


def version_of_a_release_after_the_refused_one() -> Conversations:
    talk = Talk("sarama", "1.38.1", release="2.3", client_id="kafkactl")
    nodes = tuple((number, f"10.0.0.{number}", 9092) for number in (1, 2, 3))
    for number, host, port in nodes:
        conn = talk.open(f"{host}:{port}")
        refused = encode_response(18, 0, {"error_code": 35, "api_keys": []}, correlation_id=0)
        said = {"client_software_name": "sarama", "client_software_version": "1.38.1"}
        talk.ask(conn, "ApiVersions", 3, said, refused)
        if number == 1:
            talk.metadata(conn, [], nodes, version=7, asked=[])
        talk.pipelined(conn, ("DescribeGroups", 4, {"groups": ["g1"], "include_authorized_operations": False}))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(0.1)
    return talk


STORIES = (
    Story(
        "https://github.com/segmentio/kafka-go/issues/1378", "kafka-go 0.4.47", "Kafka 4.0.0",
        "JoinGroup v1, which the broker does not offer (2-9): FIN",
        "Kafka 4.0 dropped JoinGroup v1: newer kafka-go, or Kafka 4.0.1, which serves it again",
        join_group_of_kafka_go, frozenset({"closed-on-version"}),
        (r"JoinGroup v1", r"4\.0|v2 to v9"),
    ),
    Story(
        "https://github.com/apache/kafka/pull/19378", "Java 4.1 share consumer", "Kafka 4.0 without share groups",
        "FindCoordinator, ApiVersions without ShareGroupHeartbeat v1; no further request",
        "the broker does not offer ShareGroupHeartbeat v1 (Kafka 4.1, share.version=1): upgrade or enable it",
        share_consumer_at_an_old_broker, frozenset({"client-gives-up"}), (r"ShareGroupHeartbeat|[Ss]hare group",),
    ),
    Story(
        "https://github.com/envoyproxy/envoy/pull/36979", "Java 3.7 producer", "Kafka 3.7 behind Envoy's kafka_broker filter with a denylist",
        "Produce, of a version that is offered, is never answered: FIN each time; all other requests are answered",
        "each Produce is closed on, though offered: the filter of a proxy rejects this API",
        api_that_a_proxy_refuses, frozenset({"closed-without-answer"}), (r"Produce", r"(?i)proxy|filter"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/pull/31621", "Java 4.0 with group.protocol=consumer", "Redpanda in development",
        "ConsumerGroupHeartbeat v1 is offered and answered UNSUPPORTED_VERSION",
        "the broker offers API 68 and refuses it: a broker's fault; group.protocol=classic until then",
        new_protocol_offered_and_refused, frozenset({"unsupported-version"}),
        (r"ConsumerGroupHeartbeat", r"(?i)offer", r"classic"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/577", "librdkafka 0.9", "Kafka 0.9.0",
        "OffsetCommit v1 with metadata null: FIN each time; ApiVersions is never sent",
        "Kafka 0.9 cannot read a null there; which versions it offers is unknown, so Kafka 4.0 is possible too, but less likely",
        commit_without_metadata, frozenset({"forbidden-null"}), (r"null in topics\[0\]\.partitions\[0\]\.committed_metadata", r"0\.10\.0"),
    ),
    Story(
        "https://github.com/streamnative/starlight-for-kafka/issues/96", "kafka-configs.sh 3.6 --alter", "Starlight for Kafka",
        "DescribeConfigs is answered, IncrementalAlterConfigs not offered; no further request",
        "the tool needs IncrementalAlterConfigs, which the product does not offer",
        settings_that_cannot_be_changed, frozenset({"admin-client-gives-up"}), (r"IncrementalAlterConfigs", r"2\.3"),
    ),
    Story(
        "https://github.com/deviceinsight/kafkactl/issues/146", "kafkactl 3.0.3 (sarama 1.38)", "Kafka 2.3",
        "ApiVersions v3 is refused; then DescribeGroups v4: FIN",
        "the broker is older than Kafka 2.4, with which both versions came; the client did not ask for its versions again",
        version_of_a_release_after_the_refused_one, frozenset({"closed-on-version"}), (r"DescribeGroups v4", r"older than Kafka 2\.4", r"ApiVersions v3"),
    ),
)  # fmt: skip
