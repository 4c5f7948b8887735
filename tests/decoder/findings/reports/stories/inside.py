"""Stories of clients that fail inside themselves: what they were answered last, and what they do again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from barnabas.decoder import Connection, encode_response, records
from barnabas.decoder.records import Record
from harness.wire import with_size
from traffic.conversations import Conversations

from .clients import committed
from .telling import LATER, NOW_MS, Fields, Story, Talk, assignment, batch, java, subscription, topic


def refusal_taken_for_the_offer(asks_again: bool = False) -> Conversations:
    talk = Talk("kgo", "v1.19.0", release="3.8", client_id="kgo")
    for _ in range(5):
        conn = talk.open()
        refused = encode_response(
            18, 0, {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 3}]}
        )
        said = {"client_software_name": "kgo", "client_software_version": "v1.19.0"}
        talk.ask(conn, "ApiVersions", 4, said, refused)
        if asks_again:
            keys = [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in talk.offered.items()]
            talk.ask(conn, "ApiVersions", 3, said, {"api_keys": keys})
            talk.metadata(conn, [topic()])
            talk.produce(conn, batch(), version=9)
        talk.close(conn)
        talk.wait(1)
    return talk


def leader_that_is_no_broker(leader: int = -1) -> Conversations:
    talk = Talk("@platformatic/kafka", "1.31.0", release="3.9", client_id="events")
    two = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))
    for _ in range(4):
        conn = talk.meet()
        known = topic(partitions=2, nodes=(1, 2))
        if leader < 0:
            known["partitions"][1] |= {"leader_id": leader, "error_code": 5, "isr_nodes": []}
        talk.metadata(conn, [known], two, 12)
        if leader >= 0:
            talk.produce(conn, batch(), version=9)
        talk.close(conn, how="rst")
        talk.wait(5)
    return talk


def coordinator_that_is_no_broker(node: int = 1546510463) -> Conversations:
    talk = Talk(release="1.0", client_id="kafkajs", tls=True)
    for _ in range(2):
        conn = talk.meet(version=0)
        for _ in range(5):
            talk.metadata(conn, [topic(leader=0, nodes=(0,))], ((0, "10.0.0.1", 9092),), 5)
            talk.coordinator(conn, "g", (node, "10.0.0.1", 9092), version=1)
            talk.wait(0.4)
        if node == 0:
            joined(talk, conn, "g", ["orders"], assignment("orders", 0))
        talk.close(conn)
        talk.wait(10)
    return talk


def joined(
    talk: Talk,
    conn: object,
    group: str,
    topics: list[str],
    given: bytes,
    generation: int = 1,
    me: str = "m-1",
    join: int = 2,
    sync: int = 1,
    session_ms: int = 30000,
) -> None:
    """A member joins alone and gets these partitions."""
    mine = subscription(topics, 0)
    ask: Fields = {"group_id": group, "session_timeout_ms": session_ms, "protocol_type": "consumer"}
    ask |= {"rebalance_timeout_ms": 60000} if join else {}
    ask |= {"member_id": me, "protocols": [{"name": "range", "metadata": mine}]}
    members = [{"member_id": me, "metadata": mine}]
    got = {"generation_id": generation, "protocol_name": "range", "leader": me, "member_id": me, "members": members}
    talk.ask(conn, "JoinGroup", join, ask, got, took=0.01)
    asked = {"group_id": group, "generation_id": generation, "member_id": me}
    asked["assignments"] = [{"member_id": me, "assignment": given}]
    talk.ask(conn, "SyncGroup", sync, asked, {"assignment": given})


def codec_that_the_client_lacks(moves: bool = False) -> Conversations:
    talk = Talk(release="1.0", client_id="kafkajs")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic()], version=5)
    for at in range(40):
        offset = 3 * at if moves else 0
        talk.fetch(conn, offset, batch(offset, codec=2), 120, version=4, took=0.01)
        talk.wait(0.3)
    talk.close(conn)
    return talk


@lru_cache
def _very_many() -> bytes:
    return records.encode_batch([Record(i, NOW_MS, None, b"x") for i in range(150_000)])


def batch_of_very_many_records(count: int = 150_000) -> Conversations:
    talk = Talk(release="2.0", client_id="sarama")
    data = _very_many() if count == 150_000 else batch(0, count)
    for turn in range(5):
        conn = talk.open()
        talk.metadata(conn, [topic()], version=5)
        talk.fetch(
            conn,
            0 if count == 150_000 else turn * count,
            data if count == 150_000 else batch(turn * count, count),
            150_000,
            version=4,
            took=0.1,
        )
        talk.close(conn)
        talk.wait(LATER)
    return talk


def reset_that_is_not_used(used: bool = False) -> Conversations:
    talk = Talk(release="2.6", client_id="kafkajs-test-01")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic()], version=5)
    talk.coordinator(conn, "test-01", version=1)
    joined(talk, conn, "test-01", ["orders"], assignment("orders", 0))
    for turn in range(20):
        if turn == 0 or not used:
            committed(talk, conn, "test-01", 1100)
            talk.fetch(conn, 1100, b"", -1, version=10, took=0.01, error=1, last_stable_offset=-1, log_start_offset=-1)
            asked = {
                "name": "orders",
                "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}],
            }
            got = {"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1, "offset": 1150}]}
            talk.ask(conn, "ListOffsets", 4, {"replica_id": -1, "topics": [asked]}, {"topics": [got]})
        else:
            talk.fetch(
                conn, 1150 + 3 * (turn - 1), batch(1150 + 3 * (turn - 1)), 1250, version=10, log_start_offset=1150
            )
        talk.wait(0.5)
    talk.close(conn)
    return talk


def metadata_of_a_newer_release() -> Conversations:
    talk = Talk(release="0.11.0", client_id="Telegraf")
    for _ in range(4):
        conn = talk.open()
        talk.pipelined(conn, ("Metadata", 5, {"topics": None, "allow_auto_topic_creation": False}))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(0.25)
    return talk


def old_handshake() -> Conversations:
    talk = Talk(release="3.7", client_id="Telegraf", tls=True)
    for _ in range(4):
        conn = talk.open()
        talk.ask(conn, "SaslHandshake", 0, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN", "SCRAM-SHA-512"]})
        talk.sent(conn, with_size(b"\0foo\0bar"))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(0.25)
    return talk


def clear_to_a_tls_port() -> Conversations:
    talk = Talk(release="3.7", client_id="sarama")
    for _ in range(4):
        conn = talk.open()
        talk.pipelined(conn, ("Metadata", 1, {"topics": None}))
        talk.wait(0.02)
        talk.close(conn, by="broker")
        talk.wait(0.25)
    return talk


def offsets_of_another_coordinator(asks: bool = False) -> Conversations:
    talk = Talk(release="2.8", client_id="sarama")
    two = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))
    conn = talk.open()
    talk.metadata(conn, [topic()], two, 5)
    talk.coordinator(conn, "g", two[1], version=0)
    other = talk.open("10.0.0.2:9092")
    for turn in range(20):
        error = 16 if (turn > 2 and not asks) or turn == 3 else 0
        part = {"partition_index": 0, "committed_offset": -1 if error else 50, "metadata": "", "error_code": 0}
        got = {"topics": [{"name": "orders", "partitions": [] if error else [part]}], "error_code": error}
        asked = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]}
        talk.ask(other, "OffsetFetch", 2, asked, got)
        if error and asks:
            talk.coordinator(conn, "g", two[0], version=0)
            talk.close(other)
            other = talk.open()
        talk.wait(30)
    talk.close(other)
    talk.close(conn)
    return talk


def no_offset_for_that_time(offsets: tuple[int, ...] = ()) -> Conversations:
    talk = Talk(release="0.8.2", client_id="")
    for _ in range(4):
        conn = talk.open()
        talk.metadata(conn, [topic()], version=0)
        asked = {"name": "orders", "partitions": [{"partition_index": 0, "timestamp": 12345, "max_num_offsets": 1}]}
        got = {"name": "orders", "partitions": [{"partition_index": 0, "old_style_offsets": list(offsets)}]}
        talk.ask(conn, "ListOffsets", 0, {"replica_id": -1, "topics": [asked]}, {"topics": [got]})
        if offsets:
            for place in offsets:
                parts = [{"partition": 0, "fetch_offset": place, "partition_max_bytes": 1 << 20}]
                body = {"max_wait_ms": 100, "min_bytes": 1, "topics": [{"topic": "orders", "partitions": parts}]}
                part = {"partition_index": 0, "high_watermark": 0, "records": b""}
                talk.ask(conn, "Fetch", 0, body, {"responses": [{"topic": "orders", "partitions": [part]}]}, took=0.1)
        talk.close(conn, how="rst")
        talk.wait(5)
    return talk


def topic_that_came_after_the_join(rejoins: bool = False) -> Conversations:
    talk = Talk(release="3.4", client_id="reader@host (github.com/segmentio/kafka-go)")
    conn = talk.meet(version=0)
    talk.coordinator(conn, "g", version=0)
    talk.metadata(conn, [topic(error=3)], version=6)
    joined(talk, conn, "g", ["orders"], (0).to_bytes(2, "big") + bytes(4) + b"\xff\xff\xff\xff")
    beat = {"group_id": "g", "generation_id": 1, "member_id": "m-1"}
    for turn in range(30):
        talk.ask(conn, "Heartbeat", 0, beat, {})
        if turn % 2 == 0:
            talk.metadata(conn, [topic(partitions=3)], version=6)
        if rejoins and turn == 2:
            joined(talk, conn, "g", ["orders"], assignment("orders", 0, 1, 2), 2)
            beat |= {"generation_id": 2}
        if rejoins and turn > 2:
            talk.fetch(conn, 0, b"", 0, version=10)
        talk.wait(3)
    talk.close(conn)
    return talk


def _formed(
    order: tuple[tuple[Talk, Connection, str], ...],
    group: str,
    generation: int,
    subs: dict[str, bytes],
    shares: dict[str, bytes],
) -> None:
    """Members join in this order, and get what `a`, their leader, assigns."""
    waiting = []
    for at, on, name in order:
        at.now = max(talk.now for talk, *_ in order)
        if name == "a" and generation > 1:
            beat = {"group_id": group, "generation_id": generation - 1, "member_id": "a"}
            at.ask(on, "Heartbeat", 0, beat, {"error_code": 27})
        ask = {
            "group_id": group,
            "session_timeout_ms": 30000,
            "rebalance_timeout_ms": 30000,
            "protocol_type": "consumer",
        }
        ask |= {"member_id": name, "protocols": [{"name": "range", "metadata": subs[name]}]}
        waiting += at.pipelined(on, ("JoinGroup", 1, ask))
    now = max(talk.now for talk, *_ in order) + 10_000_000
    for (at, on, name), number in zip(order, waiting, strict=True):
        at.now = now
        got: Fields = {"generation_id": generation, "protocol_name": "range", "leader": "a", "member_id": name}
        got["members"] = [{"member_id": m, "metadata": sub} for m, sub in subs.items()] if name == "a" else []
        at.received(on, with_size(encode_response(11, 1, got, correlation_id=number)))
    for at, on, name in sorted(order, key=lambda each: each[2]):
        at.now = max(talk.now for talk, *_ in order)
        sync: Fields = {"group_id": group, "generation_id": generation, "member_id": name, "assignments": []}
        if name == "a":
            sync["assignments"] = [{"member_id": m, "assignment": share} for m, share in shares.items()]
        at.ask(on, "SyncGroup", 0, sync, {"assignment": shares[name]})


NOTHING = (0).to_bytes(2, "big") + bytes(4) + b"\xff\xff\xff\xff"
"""A ConsumerProtocolAssignment without partitions."""


def rejoins_without_partitions(idle: bool = False) -> Conversations:
    name = "example@local (github.com/segmentio/kafka-go)"
    talk, first = Talk(release="2.1", client_id=name), Talk(release="2.1", client_id=name, client="10.0.0.6")
    first.inspector, first._number = talk.inspector, 500
    mine = subscription(["orders"], 0)
    conn, link = talk.meet(version=0), first.meet(version=0)
    talk.metadata(conn, [topic()], version=6)
    talk.coordinator(conn, "example", version=0)
    both = (first, link, "a"), (talk, conn, "b")
    for generation in range(1, 2 if idle else 40):
        order = both if generation == 1 else both[::-1]
        _formed(order, "example", generation, {"a": mine, "b": mine}, {"a": assignment("orders", 0), "b": NOTHING})
        talk.now = first.now = max(talk.now, first.now) + 50_000_000
    for _ in range(20 if idle else 0):
        for at, on, member in both:
            at.ask(on, "Heartbeat", 0, {"group_id": "example", "generation_id": 1, "member_id": member}, {})
        first.fetch(link, 0, b"", 0, version=10)
        talk.now = first.now = max(talk.now, first.now) + 3_000_000_000
    talk.close(conn)
    first.close(link)
    return talk


def leader_that_forgets_a_member(forgets: bool = True) -> Conversations:
    talk = Talk("confluent-kafka-go", "2.0.2", release="2.8", client_id="rdkafka")
    other = Talk("confluent-kafka-go", "2.0.2", release="2.8", client_id="rdkafka", client="10.0.0.6")
    other.inspector, other._number = talk.inspector, 500
    conn, link = talk.meet(), other.meet()
    both = (talk, conn, "a"), (other, link, "b")
    for number, (at, on, _) in enumerate(both):
        at.now = max(talk.now, other.now)
        at.metadata(on, [topic(f"bar{number}", partitions=2)], version=9)
        at.coordinator(on, "foo")
    subs = {"a": subscription(["bar0"], 1), "b": subscription(["bar1"], 1)}
    _formed(
        both, "foo", 1, subs, {"a": assignment("bar0", 0, 1), "b": NOTHING if forgets else assignment("bar1", 0, 1)}
    )
    for _ in range(30):
        for at, on, name in both:
            at.now = max(talk.now, other.now)
            at.ask(on, "Heartbeat", 3, {"group_id": "foo", "generation_id": 1, "member_id": name}, {})
            if name == "a" or not forgets:
                at.fetch(on, 0, b"", 0, "bar0" if name == "a" else "bar1", version=11, took=0.1)
        talk.wait(3)
    talk.close(conn)
    other.close(link)
    return talk


def policy_that_connect_refuses(policy: str = "delete") -> Conversations:
    talk = java("3.7.1", release="3.7", client_id="adminclient-1")
    name = "connect-status"
    for _ in range(4 if policy == "delete" else 1):
        conn = talk.meet()
        talk.metadata(conn, [], version=12)
        made = {
            "name": name,
            "num_partitions": 5,
            "replication_factor": 1,
            "configs": [{"name": "cleanup.policy", "value": "compact"}],
        }
        talk.ask(
            conn, "CreateTopics", 7, {"topics": [made], "timeout_ms": 30000},
            {"topics": [{"name": name, "error_code": 36, "error_message": f"Topic '{name}' already "
                "exists."}]}, took=0.01,
        )  # fmt: skip
        talk.metadata(conn, [topic(name, partitions=5)], version=12)
        asked: Fields = {
            "resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": None}],
            "include_synonyms": True,
        }
        config = {"name": "cleanup.policy", "value": policy, "config_source": 5, "synonyms": []}
        talk.ask(
            conn,
            "DescribeConfigs",
            4,
            asked,
            {"results": [{"error_code": 0, "resource_type": 2, "resource_name": name, "configs": [config]}]},
        )
        talk.close(conn)
        if policy == "compact":
            data = talk.meet()
            talk.metadata(data, [topic(name)], version=12)
            talk.fetch(data, 0, b"", 0, name, version=12)
            talk.close(data)
        talk.wait(8)
    return talk


def tool_that_runs_often() -> Conversations:
    """A tool that shows topics, and a probe that asks for versions: both end in order, every 5 s."""
    talk = java("4.0.0", release="4.0", client_id="adminclient-1")
    for _ in range(12):
        probe = talk.meet(version=4)
        talk.close(probe)
        conn = talk.meet(version=4)
        talk.metadata(conn, [topic()], version=12)
        asked: Fields = {"resources": [{"resource_type": 2, "resource_name": "orders", "configuration_keys": None}]}
        config = {"name": "cleanup.policy", "value": "delete", "config_source": 5, "synonyms": []}
        told = {"error_code": 0, "resource_type": 2, "resource_name": "orders", "configs": [config]}
        talk.ask(conn, "DescribeConfigs", 4, asked, {"results": [told]})
        talk.close(conn)
        talk.wait(5)
    return talk


def twin(play: Callable[..., Conversations], **options: Any) -> Callable[[], Conversations]:
    """The same traffic without its fault."""
    made = partial(play, **options)
    made.__name__ = f"not_{play.__name__}"  # type: ignore[attr-defined]
    return made


TWINS = (
    twin(refusal_taken_for_the_offer, asks_again=True),
    twin(leader_that_is_no_broker, leader=1),
    twin(coordinator_that_is_no_broker, node=0),
    twin(codec_that_the_client_lacks, moves=True),
    twin(batch_of_very_many_records, count=20),
    twin(offsets_of_another_coordinator, asks=True),
    twin(no_offset_for_that_time, offsets=(0,)),
    twin(topic_that_came_after_the_join, rejoins=True),
    twin(rejoins_without_partitions, idle=True),
    twin(leader_that_forgets_a_member, forgets=False),
    twin(policy_that_connect_refuses, policy="compact"),
    tool_that_runs_often,
)
STORIES = (
    Story(
        "https://github.com/twmb/franz-go/issues/1009", "franz-go 1.19.0", "Kafka 3.8",
        "ApiVersions v4: UNSUPPORTED_VERSION, which names ApiVersions alone; the client ends, and sends v4 again",
        "the client does not ask again with a version that the refusal names",
        refusal_taken_for_the_offer, frozenset({"api-versions-fallback"}), (r"same version \(4\) "
            r"again", r"KIP-511", r"must ask again"),
    ),
    Story(
        "https://github.com/platformatic/kafka/issues/319", "@platformatic/kafka 1.31", "Kafka 3.9, brokers restarting",
        "Metadata: orders-1 has no leader; the client ends, and starts again after 5 s",
        "the client fails on the partition without a leader: its fault",
        leader_that_is_no_broker, frozenset({"ends-after-answer"}), (r"right after the answer to "
            r"Metadata", r"orders-1 has no leader", r"client library must wait"),
    ),
    Story(
        "https://github.com/tulios/kafkajs/issues/802", "kafkajs 1.12", "a Kafka-compatible service",
        "FindCoordinator names broker 1546510463; Metadata lists broker 0 alone; asked again five times, then the "
        "client ends",
        "the coordinator's id is none of Metadata's, so the client does not find its address",
        coordinator_that_is_no_broker, frozenset({"impossible-answer"}), (r"1546510463", r"no Metadata response"),
    ),
    Story(
        "https://github.com/IBM/sarama/issues/1225", "sarama 1.18", "Kafka 2.0",
        "Fetch returns a batch of 150,000 records; the client ends the connection and fetches it again",
        "the client has a limit of 131,070 records a batch",
        batch_of_very_many_records, frozenset({"ends-after-answer"}), (r"150,000 records", r"131,070", r"limit"),
    ),
    Story(
        "https://github.com/influxdata/telegraf/issues/6136", "sarama in Telegraf, version 2.3", "Kafka 0.11",
        "the first request is Metadata v5: FIN",
        "Metadata v5 is too new for this broker: the client's version setting",
        metadata_of_a_newer_release, frozenset({"closed-on-first-request"}), (r"Metadata v5", r"does not support this "
            r"version"),
    ),
    Story(
        "https://github.com/influxdata/telegraf/issues/15768", "sarama in Telegraf, version 1.0", "WarpStream",
        "SaslHandshake v0, then a token without a header: FIN",
        "the service has no tokens without headers: SaslHandshake v1",
        old_handshake, frozenset({"sasl-raw-token-refused"}), (r"SaslHandshake v0", r"use SaslHandshake "
            r"v1", r"product"),
    ),
    Story(
        "https://github.com/kedacore/keda/issues/4098", "sarama in KEDA 2.9", "Kafka 2.8, a broker replaced",
        "OffsetFetch: NOT_COORDINATOR from the same broker for 8 min; FindCoordinator is not sent",
        "the client does not look for the new coordinator: its fault",
        offsets_of_another_coordinator, frozenset({"committed-offsets-ignored"}), (r"NOT_COORDINATOR", r"same broker "
            r"again", r"client's fault"),
    ),
    Story(
        "https://github.com/kafka-rust/kafka-rust/pull/32", "kafka-rust 0.1", "Kafka 0.8.2",
        "ListOffsets v0 for a time: an empty list; the client ends by a reset",
        "the client takes the first of no offsets: its fault",
        no_offset_for_that_time, frozenset({"ends-after-answer"}), (r"no offset for orders-0", r"without looking"),
    ),
    Story(
        "https://github.com/apache/doris-kafka-connector/pull/46", "Java 3.7.1, Kafka Connect", "Kafka 3.7",
        "CreateTopics: TOPIC_ALREADY_EXISTS; DescribeConfigs: cleanup.policy=delete; the worker ends, and starts again",
        "Connect requires cleanup.policy=compact for its topics",
        policy_that_connect_refuses, frozenset({"ends-after-answer"}),
        (r"connect-status", r"cleanup\.policy=delete", r"requires compact"),
    ),
    Story(
        "https://github.com/tulios/kafkajs/issues/254", "kafkajs 1.4 without a codec", "Kafka 1.0",
        "Fetch returns a batch compressed with snappy, for the same offset 40 times",
        "the client has no codec for snappy: install one",
        codec_that_the_client_lacks, frozenset({"same-records-again"}), (r"compressed with snappy", r"no codec for "
            r"snappy"),
    ),
    Story(
        "https://github.com/tulios/kafkajs/issues/1144", "kafkajs 1.15", "Kafka 2.6",
        "OffsetFetch: 1100; Fetch: OFFSET_OUT_OF_RANGE; ListOffsets: 1150; again, 20 times",
        "the client is told where the log begins, and goes back to the committed offset: its fault",
        reset_that_is_not_used, frozenset({"offset-out-of-range"}), (r"told the client to go on at 1150", r"asks for "
            r"1100 again", r"fault"),
    ),
    Story(
        "https://github.com/kedacore/keda/issues/4108", "sarama in KEDA 2.9 without TLS", "Confluent Cloud",
        "the first request is Metadata v1, in clear: FIN",
        "the listener speaks TLS, which the client must switch on",
        clear_to_a_tls_port, frozenset({"closed-on-first-request"}), (r"Likeliest first: a listener for "
            r"TLS", r"SASL_SSL"),
    ),
    Story(
        "https://github.com/segmentio/kafka-go/issues/1314", "kafka-go 0.4.47", "Kafka 3.4",
        "the topic is not there; an empty assignment; 6 s later Metadata has its 3 partitions; heartbeats go on",
        "the topic was made after the group had assigned its partitions, and the client does not join again",
        topic_that_came_after_the_join, frozenset({"topic-assigned-to-nobody"}),
        (r"'orders' \(3 partitions\)", r"none of it", r"has not joined again"),
    ),
    Story(
        "https://github.com/segmentio/kafka-go/issues/200", "kafka-go 0.2", "Kafka 2.1, a topic with one partition",
        "a member gets an empty assignment and joins again at once, 38 times",
        "more members than partitions; the client does not stay in the group without partitions",
        rejoins_without_partitions, frozenset({"rebalance-storm"}), (r"got no partitions joined again at once "
            r"\(38\)", r"upgrade the client"),
    ),
    Story(
        "https://github.com/confluentinc/confluent-kafka-go/issues/1195", "confluent-kafka-go 2.0.2", "Kafka 2.8",
        "the leader subscribes to bar0, another member to bar1: the leader assigns none of bar1",
        "the leader does not know the topic of the other member: a group for each topic, or restart the leader",
        leader_that_forgets_a_member, frozenset({"topic-assigned-to-nobody"}), (r"'bar1'", r"none of it", r"group\.id "
            r"of their own"),
    ),
)  # fmt: skip
