"""Stories of clients that stop or loop in the middle: members that never go on, tools that end, new members."""

from __future__ import annotations

from barnabas.decoder import encode_response
from harness.wire import with_size
from traffic.conversations import Conversations

from .clients import committed
from .inside import joined, twin
from .telling import Fields, Story, Talk, assignment, batch, java, librdkafka, subscription, topic


def assigned_and_not_fetched(fetches: bool = False) -> Conversations:
    talk = librdkafka("0.9.1", release="0.10.0", client_id="rdkafka")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic()], version=0)
    talk.coordinator(conn, "g", version=0)
    joined(talk, conn, "g", ["orders"], assignment("orders", 0), join=0, sync=0)
    data = talk.meet(version=0)
    for turn in range(60):
        talk.ask(conn, "Heartbeat", 0, {"group_id": "g", "generation_id": 1, "member_id": "m-1"}, {})
        if fetches:
            talk.ask(data, "Fetch", 2, _fetch(3 * turn), _records(3 * turn, batch(3 * turn)))
        talk.wait(3)
    talk.close(conn)
    return talk


def _fetch(offset: int) -> Fields:
    parts = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    return {"max_wait_ms": 100, "min_bytes": 1, "topics": [{"topic": "orders", "partitions": parts}]}


def _records(offset: int, data: bytes, error: int = 0) -> Fields:
    part = {"partition_index": 0, "high_watermark": -1 if error else offset + 3, "records": data, "error_code": error}
    return {"responses": [{"topic": "orders", "partitions": [part]}]}


def told_to_rejoin_for_ever(rejoins: bool = False) -> Conversations:
    talk = librdkafka("1.8.2", release="2.8", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=4)
    talk.coordinator(conn, "g")
    joined(talk, conn, "g", ["orders"], assignment("orders", 0))
    beat = {"group_id": "g", "generation_id": 1, "member_id": "m-1"}
    for turn in range(30):
        told = 27 if turn > 3 and (not rejoins or turn == 4) else 0
        talk.ask(conn, "Heartbeat", 3, beat, {"error_code": told})
        if told and rejoins:
            joined(talk, conn, "g", ["orders"], assignment("orders", 0), 2)
            beat |= {"generation_id": 2}
        if turn < 4 or rejoins:
            talk.fetch(conn, 0, b"", 0)
        talk.wait(6)
    talk.close(conn)
    return talk


def read_committed_at_an_old_broker() -> Conversations:
    talk = java("2.8.0", release="0.10.2", client_id="kafdrop-consumer")
    for _ in range(4):
        conn = talk.open()
        keys = [{"api_key": 18, "min_version": 0, "max_version": 0}]
        refused = encode_response(18, 0, {"error_code": 35, "api_keys": keys})
        said = {"client_software_name": "apache-kafka-java", "client_software_version": "2.8.0"}
        talk.ask(conn, "ApiVersions", 3, said, refused)
        offer = [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in talk.offered.items()]
        talk.ask(conn, "ApiVersions", 0, {}, {"api_keys": offer})
        talk.metadata(conn, [topic()], version=2)
        talk.wait(0.2)
        talk.close(conn)
        talk.wait(6)
    return talk


def joins_given_up_too_early(waits: bool = False) -> Conversations:
    talk = Talk(release="1.1", client_id="kafka-python-1.4.3")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic()], version=1)
    mine = subscription(["orders"], 0)
    ask = {
        "group_id": "mcmp", "session_timeout_ms": 10000, "rebalance_timeout_ms": 300000, "protocol_type": "consumer",
        "member_id": "", "protocols": [{"name": "range", "metadata": mine}],
    }  # fmt: skip
    for turn in range(1 if waits else 12):
        talk.coordinator(conn, "mcmp", version=0)
        (number,) = talk.pipelined(conn, ("JoinGroup", 2, ask))
        talk.wait(3)
        me = f"kafka-python-1.4.3-{turn}"
        members = [{"member_id": me, "metadata": mine}]
        got = {"generation_id": turn + 1, "protocol_name": "range", "leader": me, "member_id": me, "members": members}
        talk.received(conn, with_size(encode_response(11, 2, got, correlation_id=number)))
        if waits:
            given = [{"member_id": me, "assignment": assignment("orders", 0)}]
            sync = {"group_id": "mcmp", "generation_id": 1, "member_id": me, "assignments": given}
            talk.ask(conn, "SyncGroup", 1, sync, {"assignment": assignment("orders", 0)})
            for _ in range(20):
                talk.ask(conn, "Heartbeat", 0, {"group_id": "mcmp", "generation_id": 1, "member_id": me}, {})
                talk.fetch(conn, 0, b"", 0, version=4)
                talk.wait(3)
        talk.wait(0.5)
    talk.close(conn)
    return talk


def commits_while_it_rebalances() -> Conversations:
    talk = librdkafka("1.8.2", release="2.8", client_id="rdkafka")
    for turn in range(5):
        conn = talk.meet()
        talk.metadata(conn, [topic()], version=4)
        talk.coordinator(conn, "g")
        me = f"rdkafka-{turn}"
        joined(talk, conn, "g", ["orders"], assignment("orders", 0), 2 * turn + 1, me)
        for _ in range(3):
            talk.ask(conn, "Heartbeat", 3, {"group_id": "g", "generation_id": 2 * turn + 1, "member_id": me}, {})
            talk.fetch(conn, 100 * turn, batch(100 * turn, 100), 100_000, took=0.05)
            talk.wait(3)
        talk.ask(
            conn, "Heartbeat", 3, {"group_id": "g", "generation_id": 2 * turn + 1, "member_id": me}, {"error_code": 27}
        )
        place = {"partition_index": 0, "committed_offset": 100 * turn + 40, "committed_metadata": ""}
        commit = {
            "group_id": "g", "generation_id_or_member_epoch": 2 * turn + 1, "member_id": me,
            "topics": [{"name": "orders", "partitions": [place]}],
        }  # fmt: skip
        refused = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "error_code": 27}]}]}
        talk.ask(conn, "OffsetCommit", 7, commit, refused)
        talk.close(conn)
        talk.wait(10)
    return talk


def offset_that_has_aged_out() -> Conversations:
    talk = java("0.10.0.1", release="0.10.0", client_id="consumer-1")
    for _ in range(4):
        conn = talk.meet(version=0)
        talk.metadata(conn, [topic()], version=1)
        talk.ask(conn, "Fetch", 2, _fetch(7881614), _records(7881614, b"", 1))
        asked = {"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -2, "max_num_offsets": 1}]}
        got = {"name": "orders", "partitions": [{"partition_index": 0, "old_style_offsets": [8123456]}]}
        talk.ask(conn, "ListOffsets", 0, {"replica_id": -1, "topics": [asked]}, {"topics": [got]})
        talk.wait(0.01)
        talk.close(conn)
        talk.wait(20)
    return talk


def quorum_that_may_not_be_described() -> Conversations:
    talk = java("3.9.0", release="3.9", client_id="kafbat-ui-admin-1", tls=True)
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=12, asked=[])
    for _ in range(10):
        asked = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
        talk.ask(conn, "DescribeQuorum", 1, asked, {"error_code": 31, "topics": []})
        talk.wait(30)
    talk.close(conn)
    return talk


def no_heartbeats_from_the_start(beats: bool = False) -> Conversations:
    talk = librdkafka("2.2.0", release="3.4", client_id="worker")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=4)
    talk.coordinator(conn, "g")
    for turn in range(1 if beats else 6):
        joined(talk, conn, "g", ["orders"], assignment("orders", 0), turn + 1, f"worker-{turn}", session_ms=10000)
        for _ in range(10 if beats else 0):
            beat = {"group_id": "g", "generation_id": turn + 1, "member_id": f"worker-{turn}"}
            talk.ask(conn, "Heartbeat", 3, beat, {})
            talk.fetch(conn, 0, b"", 0)
            talk.wait(3)
        talk.wait(0 if beats else 12)
        if not beats:
            beat = {"group_id": "g", "generation_id": turn + 1, "member_id": f"worker-{turn}"}
            talk.ask(conn, "Heartbeat", 3, beat, {"error_code": 25})
    talk.close(conn)
    return talk


def member_that_falls_silent(falls: bool = True) -> Conversations:
    talk = Talk(release="1.0", client_id="kafka-python-1.4.1")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic()], version=1)
    talk.coordinator(conn, "worker", version=0)
    joined(talk, conn, "worker", ["orders"], assignment("orders", 0))
    committed_at = 0
    for turn in range(40):
        if turn < 4 or not falls:
            talk.ask(conn, "Heartbeat", 0, {"group_id": "worker", "generation_id": 1, "member_id": "m-1"}, {})
            talk.fetch(conn, 3 * turn, batch(3 * turn), 3000, version=4, took=0.01)
            committed_at = turn
        elif turn % 10 == 0:
            talk.metadata(conn, [topic()], version=1)
        talk.wait(9)
    assert committed_at
    talk.close(conn)
    return talk


def cluster_that_cannot_be_described() -> Conversations:
    talk = Talk("sarama", "1.46.0", release="2.7", client_id="sarama")
    for _ in range(5):
        conn = talk.meet()
        talk.pipelined(conn, ("DescribeCluster", 0, {"include_cluster_authorized_operations": False}))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(1)
    return talk


def tool_that_ends_on_an_error() -> Conversations:
    """A health check that meets a coordinator that loads once, and ends in order each time."""
    talk = java("3.9.0", release="3.9", client_id="adminclient-1")
    for turn in range(4):
        conn = talk.meet()
        talk.metadata(conn, [topic()], version=12)
        talk.coordinator(conn, "g", None if turn == 1 else (1, "10.0.0.1", 9092), 15 if turn == 1 else 0, version=4)
        if turn != 1:
            committed(talk, conn, "g", 40)
        talk.close(conn)
        talk.wait(60)
    return talk


THREE = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092), (3, "10.0.0.3", 9092))


def producer_id_of_one_broker(refused: int = 40) -> Conversations:
    talk = librdkafka("1.8.2", release="2.8", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [topic()], THREE, 4)
    for turn in range(40):
        body = {"transactional_id": None, "transaction_timeout_ms": 60000}
        fails = {"error_code": -1, "producer_id": -1, "producer_epoch": -1}
        if turn <= refused:
            got = fails if turn < refused else {"producer_id": 7, "producer_epoch": 0}
            talk.ask(conn, "InitProducerId", 1, body, got)
        talk.wait(0.5)
    talk.close(conn)
    return talk


def fenced_and_again() -> Conversations:
    talk = librdkafka("1.7.0", release="2.7", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=4)
    talk.coordinator(conn, "tx", kind=1)
    body = {"transactional_id": "tx", "transaction_timeout_ms": 60000, "producer_id": 7, "producer_epoch": 3}
    for _ in range(40):
        talk.ask(conn, "InitProducerId", 4, body, {"error_code": 90, "producer_id": -1, "producer_epoch": -1})
        talk.wait(0.5)
    talk.close(conn)
    return talk


def assignments_that_are_too_large() -> Conversations:
    talk = librdkafka("1.5.3", release="2.5", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=4)
    talk.coordinator(conn, "g")
    mine = subscription(["orders"], 0)
    ask = {"group_id": "g", "session_timeout_ms": 30000, "rebalance_timeout_ms": 300000, "protocol_type": "consumer"}
    ask |= {"member_id": "m-1", "protocols": [{"name": "range", "metadata": mine}]}
    names = [f"m-{number}" for number in range(1, 300)]
    given = [{"member_id": name, "assignment": assignment("orders", *range(500))} for name in names]
    for generation in range(1, 13):
        got: Fields = {"generation_id": generation, "protocol_name": "range", "leader": "m-1", "member_id": "m-1"}
        got["members"] = [{"member_id": name, "metadata": mine} for name in names]
        talk.ask(conn, "JoinGroup", 5, ask, got, took=3)
        sync = {"group_id": "g", "generation_id": generation, "member_id": "m-1", "assignments": given}
        talk.ask(conn, "SyncGroup", 3, sync, {"error_code": -1, "assignment": b""})
        talk.wait(1)
    talk.close(conn)
    return talk


def zombie_that_reads_on(rejoins: bool = False) -> Conversations:
    talk = Talk(release="2.4", client_id="benthos001")
    conn = talk.open()
    talk.metadata(conn, [topic()], version=5)
    talk.coordinator(conn, "xs", version=0)
    joined(talk, conn, "xs", ["orders"], assignment("orders", 0))
    data = talk.open()
    for turn in range(4):
        talk.ask(conn, "Heartbeat", 0, {"group_id": "xs", "generation_id": 1, "member_id": "m-1"}, {})
        talk.fetch(data, 3 * turn, batch(3 * turn), 3000, version=4)
        talk.wait(3)
    talk.close(conn, by="broker")
    if rejoins:
        conn = talk.open()
        joined(talk, conn, "xs", ["orders"], assignment("orders", 0), 2, "m-2")
    for turn in range(4, 120):
        if rejoins:
            talk.ask(conn, "Heartbeat", 0, {"group_id": "xs", "generation_id": 2, "member_id": "m-2"}, {})
        talk.fetch(data, 3 * turn, batch(3 * turn), 3000, version=4)
        talk.wait(2)
    return talk


TWINS = (
    twin(assigned_and_not_fetched, fetches=True),
    twin(told_to_rejoin_for_ever, rejoins=True),
    twin(joins_given_up_too_early, waits=True),
    twin(no_heartbeats_from_the_start, beats=True),
    twin(member_that_falls_silent, falls=False),
    twin(producer_id_of_one_broker, refused=2),
    twin(zombie_that_reads_on, rejoins=True),
    tool_that_ends_on_an_error,
)
STORIES = (
    Story(
        "https://github.com/confluentinc/librdkafka/issues/873",
        "librdkafka 0.9.1",
        "Kafka 0.10.0",
        "SyncGroup assigns orders-0; heartbeats for 3 min; Fetch is never sent",
        "the rebalance callback of the application does not call assign(): the client is stuck after the rebalance",
        assigned_and_not_fetched,
        frozenset({"stalled-member"}),
        (r"no Fetch since it got orders-0", r"callback"),
    ),
    Story(
        "https://github.com/obsidiandynamics/kafdrop/issues/364",
        "Java 2.8 in Kafdrop, read_committed",
        "Kafka 0.10.2",
        "ListOffsets is offered to v1; the client asks for Metadata and sends nothing more",
        "read_committed needs ListOffsets v2 of Kafka 0.11",
        read_committed_at_an_old_broker,
        frozenset({"client-gives-up"}),
        (r"ListOffsets v0 to v1", r"read_committed", r"0\.11"),
    ),
    Story(
        "https://github.com/dpkp/kafka-python/issues/1522",
        "kafka-python 1.4.3",
        "Kafka 1.1",
        "JoinGroup is answered after 3 s; SyncGroup is not sent; the client joins as a new member, 12 times",
        "the client counts its session while it waits in JoinGroup, and drops the answer",
        joins_given_up_too_early,
        frozenset({"rebalance-storm"}),
        (r"no member sent SyncGroup", r"gives up before it comes"),
    ),
    Story(
        "https://github.com/confluentinc/confluent-kafka-dotnet/issues/1771",
        "confluent-kafka-dotnet 1.8.2",
        "Kafka 2.8",
        "OffsetCommit: REBALANCE_IN_PROGRESS; the client ends, starts again, and so on",
        "the application takes the refused commit for fatal",
        commits_while_it_rebalances,
        frozenset({"ends-after-answer"}),
        (r"OffsetCommit", r"REBALANCE_IN_PROGRESS", r"takes the exception for fatal"),
    ),
    Story(
        "https://github.com/mozilla/telemetry-streaming/issues/25",
        "Java 0.10 in Spark",
        "Kafka 0.10",
        "Fetch at 7881614: OFFSET_OUT_OF_RANGE; ListOffsets: 8123456; the job fails, and starts again there",
        "the records were deleted before they were read: retention",
        offset_that_has_aged_out,
        frozenset({"offset-out-of-range"}),
        (r"7881614", r"241,842 records deleted", r"retention"),
    ),
    Story(
        "https://github.com/kafbat/kafka-ui/issues/1852",
        "Java 3.9 in Kafbat UI 1.4",
        "Confluent Cloud",
        "DescribeQuorum: CLUSTER_AUTHORIZATION_FAILED, again and again",
        "the tool may not describe the quorum, and does not go on without it",
        quorum_that_may_not_be_described,
        frozenset({"authorization-failed"}),
        (r"CLUSTER_AUTHORIZATION_FAILED", r"DescribeQuorum"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/4457",
        "librdkafka 2.2.0",
        "Kafka 3.4",
        "a member joins and sends no heartbeat for 12 s; session timeout 10 s; UNKNOWN_MEMBER_ID; again",
        "the member sends no heartbeats: its process is blocked",
        no_heartbeats_from_the_start,
        frozenset({"missed-heartbeats"}),
        (r"silent for 12\.0 s", r"session timeout is 10\.0 s"),
    ),
    Story(
        "https://github.com/dpkp/kafka-python/issues/1435",
        "kafka-python 1.4.1",
        "Kafka 1.0",
        "heartbeats and fetches end after 30 s; Metadata goes on for 5 min; no JoinGroup",
        "the part of the client that sends heartbeats has ended: its fault",
        member_that_falls_silent,
        frozenset({"missed-heartbeats"}),
        (r"sent no heartbeat for", r"sent other requests meanwhile", r"bug of the library"),
    ),
    Story(
        "https://github.com/IBM/sarama/pull/3741",
        "sarama 1.46",
        "Kafka 2.7",
        "DescribeCluster is not offered; the client sends it: FIN",
        "the client must not use an API that is not offered",
        cluster_that_cannot_be_described,
        frozenset({"api-versions-ignored"}),
        (r"DescribeCluster v0", r"2\.8", r"ignores ApiVersions"),
    ),
    Story(
        "https://github.com/confluentinc/confluent-kafka-python/issues/1305",
        "librdkafka 1.8.2",
        "Kafka 2.8",
        "Heartbeat: REBALANCE_IN_PROGRESS for 150 s; JoinGroup is not sent",
        "the application does not finish the revocation, so the client does not join again",
        told_to_rejoin_for_ever,
        frozenset({"held-up-join"}),
        (r"told 26 times", r"REBALANCE_IN_PROGRESS", r"does not join again", r"callback"),
    ),
    Story(
        "https://github.com/confluentinc/confluent-kafka-python/issues/1335",
        "librdkafka 1.8.2",
        "Redpanda, a node isolated",
        "InitProducerId: UNKNOWN_SERVER_ERROR from the same broker, 40 times; Metadata lists two others",
        "the client does not ask another broker",
        producer_id_of_one_broker,
        frozenset({"unexplained-error"}),
        (r"UNKNOWN_SERVER_ERROR", r"asks the same one each time"),
    ),
    Story(
        "https://github.com/confluentinc/confluent-kafka-python/issues/1125",
        "librdkafka 1.7.0",
        "Kafka 2.7",
        "InitProducerId: PRODUCER_FENCED, every 0.5 s",
        "the producer is fenced and must be closed",
        fenced_and_again,
        frozenset({"producer-fenced"}),
        (r"PRODUCER_FENCED", r"Close a fenced producer"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/3866",
        "librdkafka 1.5.3",
        "Kafka 2.5",
        "SyncGroup of 624 kB: UNKNOWN_SERVER_ERROR; the client joins again, and so on",
        "the assignments are larger than the offsets topic's max.message.bytes",
        assignments_that_are_too_large,
        frozenset({"unexplained-error"}),
        (r"SyncGroup", r"larger than the offsets topic's max"),
    ),
    Story(
        "https://github.com/redpanda-data/connect/issues/433",
        "sarama in Benthos",
        "Kafka 2.4",
        "the coordinator ends the connection; no JoinGroup, no heartbeat; Fetch goes on for minutes",
        "the client reads on without being a member: its fault",
        zombie_that_reads_on,
        frozenset({"missed-heartbeats"}),
        (r"sent no heartbeat for", r"it fetched meanwhile", r"bug of the library"),
    ),
)
