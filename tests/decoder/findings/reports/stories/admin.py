"""Stories of admin requests and of metadata."""

from __future__ import annotations

from traffic.conversations import Conversations

from .telling import Story, Talk, batch, java, librdkafka, topic


def create(
    talk: Talk,
    conn: object,
    version: int,
    error: int,
    text: str | None = None,
    replicas: int = 3,
    timeout_ms: int = 30000,
) -> None:
    body = {
        "topics": [{"name": "dev_test", "num_partitions": 3, "replication_factor": replicas}],
        "timeout_ms": timeout_ms,
    }
    talk.ask(conn, "CreateTopics", version, body, {"topics": [{"name": "dev_test", "error_code": error, "error_message": text}]}, took=0.01)  # fmt: skip


def no_time_to_create() -> Conversations:
    talk = Talk(release="1.1", client_id="sarama")
    conn = talk.open()
    talk.metadata(conn, [], version=1)
    create(talk, conn, 2, 7, replicas=1, timeout_ms=0)
    talk.wait(0.5)
    talk.metadata(conn, [topic("dev_test", partitions=3)], version=1)
    talk.close(conn)
    return talk


def even_replicas() -> Conversations:
    talk = Talk("kgo", "v1.13.2", release="2.8", client_id="kadm")
    three = ((0, "10.0.0.1", 9092), (1, "10.0.0.2", 9092), (2, "10.0.0.3", 9092))
    conn = talk.meet()
    talk.metadata(conn, [], three, 7)
    create(
        talk, conn, 5, 38, "Replication factor is below 1 or larger than the number of available brokers.", replicas=2
    )
    talk.wait(1)
    create(
        talk, conn, 5, 38, "Replication factor is below 1 or larger than the number of available brokers.", replicas=2
    )
    talk.close(conn)
    return talk


def partitions_blamed_for_replicas() -> Conversations:
    talk = Talk("kgo", "v0.7.8", release="2.4", client_id="kcl")
    conn = talk.meet()
    talk.metadata(conn, [], version=7)
    create(talk, conn, 4, 37)
    talk.close(conn)
    return talk


def no_controller() -> Conversations:
    talk = librdkafka("1.1.0", release="2.3", client_id="rdkafka")
    conn = talk.meet()
    for _ in range(10):
        talk.metadata(conn, [], version=2, controller_id=-1)
        talk.wait(1)
    talk.close(conn)
    return talk


def default_factor_above_the_brokers() -> Conversations:
    talk = Talk(release="1.0", client_id="aiokafka-producer-1")
    conn = talk.meet(version=0)
    for _ in range(30):
        talk.metadata(conn, [topic("events", error=38)], version=1)
        talk.wait(0.5)
    talk.close(conn)
    return talk


def value_that_ends_the_connection() -> Conversations:
    talk = Talk("kgo", "1.15.4", release="3.3", client_id="kcl")
    for _ in range(4):
        conn = talk.meet()
        talk.metadata(conn, [topic("foo")], asked=[])
        config = {"name": "cleanup.policy", "config_operation": 0, "value": "compactt"}
        body = {"resources": [{"resource_type": 2, "resource_name": "foo", "configs": [config]}], "validate_only": False}
        talk.pipelined(conn, ("IncrementalAlterConfigs", 1, body))
        talk.wait(0.004)
        talk.close(conn, by="broker")
        talk.wait(0.5)
    return talk


def offsets_of_all_topics() -> Conversations:
    talk = java("2.6.0", release="2.0", client_id="adminclient-1")
    for _ in range(3):
        conn = talk.meet(version=2)
        talk.coordinator(conn, "docker-group")
        talk.ask(conn, "OffsetFetch", 3, {"group_id": "docker-group", "topics": None}, {"topics": [], "error_code": 5})
        talk.close(conn)
        talk.wait(2)
    return talk


def topic_that_is_not_waited_for(goes_on: bool = False) -> Conversations:
    talk = Talk(release="2.6", client_id="app@host (github.com/segmentio/kafka-go)")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic("events", error=5)], version=1)
    talk.close(conn)
    if goes_on:
        conn = talk.meet(version=0)
        talk.metadata(conn, [topic("events")], version=1)
        talk.produce(conn, batch(), "events")
        talk.close(conn)
    return talk


STORIES = (
    Story(
        "https://github.com/IBM/sarama/issues/1124", "sarama 1.17", "Kafka 1.1",
        "CreateTopics with timeout_ms 0: REQUEST_TIMED_OUT; Metadata has the topic half a second later",
        "timeout_ms is 0: the broker does not wait, and says so; the topic is made: set Admin.Timeout (client)",
        no_time_to_create, frozenset({"admin-request-refused"}), (r"timeout_ms", r"\b0\b", r"REQUEST_TIMED_OUT"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/issues/10379", "franz-go's kadm 1.8", "Redpanda 23.1.7, three brokers",
        "CreateTopics with 2 replicas: INVALID_REPLICATION_FACTOR; Metadata lists three brokers",
        "2 replicas fit 3 brokers, so Apache Kafka would take it: another product (Redpanda takes odd numbers only); use 3",
        even_replicas, frozenset({"topic-creation-refused"}), (r"INVALID_REPLICATION_FACTOR", r"\b2\b", r"\b3\b|three"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/issues/1573", "kcl (franz-go)", "Redpanda 21.5, one broker",
        "CreateTopics with 3 partitions and 3 replicas at a cluster of one: INVALID_PARTITIONS",
        "the partitions are right, the replication factor (3) is above the brokers (1): ask for 1; the broker's error is the wrong one",
        partitions_blamed_for_replicas, frozenset({"topic-creation-refused"}), (r"INVALID_PARTITIONS", r"(?i)replica"),
    ),
    Story(
        "https://github.com/confluentinc/confluent-kafka-python/issues/682", "librdkafka 1.1.0", "Kafka 2.3 without a controller",
        "Metadata has controller_id -1, ten times in 10 s; CreateTopics is never sent",
        "the cluster has no controller (controller_id -1), so admin requests wait for ever: mend the brokers",
        no_controller, frozenset({"no-controller"}), (r"(?i)controller", r"-1|no controller"),
    ),
    Story(
        "https://github.com/aio-libs/aiokafka/issues/288", "aiokafka 0.3", "one Kafka 1.0 broker, default.replication.factor=3",
        "Metadata for a topic that is not there: INVALID_REPLICATION_FACTOR every 0.5 s; one broker is listed",
        "auto-creation fails: default.replication.factor is above the number of brokers (1): the broker's configuration",
        default_factor_above_the_brokers, frozenset({"unexplained-error"}),
        (r"INVALID_REPLICATION_FACTOR", r"default\.replication\.factor"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/issues/16281", "kcl (franz-go 1.15)", "Redpanda 23.3",
        "IncrementalAlterConfigs with cleanup.policy=compactt: FIN each time, though offered; other requests are answered",
        "the broker fails on that value instead of refusing it",
        value_that_ends_the_connection, frozenset({"closed-without-answer"}), (r"cleanup\.policy=compactt", r"Likeliest first: the broker fails"),
    ),
    Story(
        "https://github.com/streamnative/kop/issues/202", "kafka-consumer-groups.sh --describe", "KoP 0.3",
        "OffsetFetch for all topics (null): LEADER_NOT_AVAILABLE",
        "OffsetFetch never answers so: the broker fails on the request for all topics",
        offsets_of_all_topics, frozenset({"impossible-answer"}), (r"LEADER_NOT_AVAILABLE, which OffsetFetch never answers",),
    ),
    Story(
        "https://github.com/segmentio/kafka-go/issues/1208", "kafka-go 0.4.43", "Kafka 2.6",
        "Metadata creates the topic: LEADER_NOT_AVAILABLE; the client ends its connection and asks no more",
        "the topic was being created; the client gives up instead of asking again",
        topic_that_is_not_waited_for, frozenset({"topic-not-waited-for"}), (r"LEADER_NOT_AVAILABLE", r"ask again"),
    ),
)  # fmt: skip
