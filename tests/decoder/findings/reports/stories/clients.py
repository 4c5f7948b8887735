"""Stories of clients: what they send, leave out, or take for something else."""

from __future__ import annotations

from barnabas.decoder import encode_response, records
from barnabas.decoder.records import Record
from harness.wire import with_size
from traffic.conversations import Conversations

from .brokers import offsets
from .telling import LATER, Fields, Story, Talk, assignment, batch, java, librdkafka, subscription, topic


def compressed_for_newer_consumers() -> Conversations:
    talk = Talk(release="3.7", client_id="aiokafka-0.12.0")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic("foobar")], version=5)
    for _ in range(40):
        talk.fetch(
            conn, 0, b"", -1, "foobar", 4, took=0.002, error=76, last_stable_offset=-1, aborted_transactions=None
        )
        talk.wait(0.1)
    talk.close(conn)
    return talk


def one_beyond_the_committed_offset(beyond: int = 1) -> Conversations:
    talk = Talk("@platformatic/kafka", "1.20.0", release="3.9", client_id="events")
    for _ in range(3):
        conn = talk.meet()
        talk.metadata(conn, [topic()], version=12)
        talk.coordinator(conn, "g", version=4)
        committed(talk, conn, "g", 120)
        for _ in range(3):
            talk.fetch(
                conn, 120 + beyond, b"", -1 if beyond else 120, version=11, took=0.01, error=1 if beyond else 0,
                last_stable_offset=-1 if beyond else 120, log_start_offset=-1 if beyond else 0,
            )  # fmt: skip
            talk.wait(0.2)
        talk.close(conn)
        talk.wait(LATER)
    return talk


def committed(talk: Talk, conn: object, group: str, offset: int) -> None:
    answer = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "metadata": "", "error_code": 0}
    asked = {"group_id": group, "topics": [{"name": "orders", "partition_indexes": [0]}], "require_stable": True}
    talk.ask(conn, "OffsetFetch", 7, asked, {"topics": [{"name": "orders", "partitions": [answer]}]})


def offsets_of_another_cluster() -> Conversations:
    talk = java("2.8.0", release="2.8", client_id="consumer-myConsumer-1")
    conn = talk.meet()
    talk.metadata(conn, [topic()])
    talk.coordinator(conn, "myConsumer", version=3)
    committed(talk, conn, "myConsumer", 100)
    talk.fetch(conn, 100, b"", -1, version=11, took=0.01, error=1, last_stable_offset=-1, log_start_offset=-1)
    offsets(talk, conn, -1, 0)
    for _ in range(20):
        talk.fetch(conn, 0, b"", 0, version=11)
    talk.close(conn)
    return talk


def member(name: str, assignor: str = "RoundRobinAssigner", topics: tuple[str, ...] = ("orders",)) -> Fields:
    return {"member_id": name, "metadata": subscription(list(topics), 0)}


def silent_in_a_rebalance() -> Conversations:
    talk = Talk(release="3.7", client_id="kafkajs-one")
    other = Talk(release="3.7", client_id="kafkajs-two", client="10.0.0.6")
    other.inspector = talk.inspector
    other._number = 500
    protocols = [{"name": "RoundRobinAssigner", "metadata": subscription(["orders"], 0)}]
    ask = {
        "group_id": "g", "session_timeout_ms": 30000, "rebalance_timeout_ms": 60000, "protocol_type": "consumer",
        "protocols": protocols,
    }  # fmt: skip

    def joined(generation: int, mine: str, *ids: str) -> Fields:
        answer = {"generation_id": generation, "protocol_name": "RoundRobinAssigner", "leader": ids[0], "member_id": mine}
        return answer | ({"members": [member(name) for name in ids]} if mine == ids[0] else {"members": []})

    def synced(at: Talk, conn: object, generation: int, mine: str, *partitions: int) -> None:
        given = assignment("orders", *partitions)
        body = {"group_id": "g", "generation_id": generation, "member_id": mine, "assignments": [{"member_id": mine, "assignment": given}]}
        at.ask(conn, "SyncGroup", 3, body, {"assignment": given})

    conn = talk.meet(version=2)
    talk.metadata(conn, [topic(partitions=2)], version=5)
    talk.coordinator(conn, "g")
    talk.ask(conn, "JoinGroup", 5, ask | {"member_id": "one-1"}, joined(1, "one-1", "one-1"))
    synced(talk, conn, 1, "one-1", 0, 1)
    beat = {"group_id": "g", "generation_id": 1, "member_id": "one-1"}
    for at in range(4):
        talk.ask(conn, "Heartbeat", 3, beat, {})
        talk.fetch(conn, 3 * at, batch(3 * at), 1000)
        talk.wait(3)
    for turn in range(2):
        other.now = talk.now
        link = other.meet(version=2)
        other.coordinator(link, "g")
        (number,) = other.pipelined(link, ("JoinGroup", 5, ask | {"member_id": f"two-{turn}"}))
        talk.wait(1)
        talk.ask(conn, "Heartbeat", 3, beat, {"error_code": 27})
        talk.wait(34)
        other.now = talk.now
        generation = 2 + 2 * turn
        other.received(link, with_size(encode_response(11, 5, joined(generation, f"two-{turn}", f"two-{turn}"), correlation_id=number)))
        synced(other, link, generation, f"two-{turn}", 0, 1)
        left = {"group_id": "g", "members": [{"member_id": f"two-{turn}", "group_instance_id": None}]}
        other.ask(link, "LeaveGroup", 3, left, {"members": left["members"]})
        talk.wait(5)
        refused = {"error_code": 25, "generation_id": -1, "protocol_name": "", "leader": "", "member_id": ""}
        talk.ask(conn, "JoinGroup", 5, ask | {"member_id": beat["member_id"]}, refused)
        beat = {"group_id": "g", "generation_id": generation + 1, "member_id": f"one-{turn + 2}"}
        talk.ask(conn, "JoinGroup", 5, ask | {"member_id": ""}, {"error_code": 79, "generation_id": -1, "protocol_name": "", "leader": "", "member_id": beat["member_id"]})  # fmt: skip
        talk.ask(conn, "JoinGroup", 5, ask | {"member_id": beat["member_id"]}, joined(generation + 1, beat["member_id"], beat["member_id"]), took=2.0)
        synced(talk, conn, generation + 1, beat["member_id"], 0, 1)
        for _ in range(3):
            talk.ask(conn, "Heartbeat", 3, beat, {})
            talk.wait(3)
        other.close(link)
    talk.close(conn)
    return talk


def coordinator_that_is_not_looked_for(asks: bool = False) -> Conversations:
    talk = Talk(release="3.5", client_id="kafkajs")
    two = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))
    conn = talk.meet(version=2)
    talk.metadata(conn, [topic()], two, 5)
    talk.coordinator(conn, "g", two[1])
    other = talk.meet("10.0.0.2:9092", version=2)
    place = {"partition_index": 0, "committed_offset": 50, "committed_metadata": ""}
    commit = {
        "group_id": "g", "generation_id_or_member_epoch": 3, "member_id": "kafkajs-1", "topics": [{"name": "orders", "partitions": [place]}],
    }  # fmt: skip
    right, moved = ({"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "error_code": code}]}]} for code in (0, 16))
    talk.ask(other, "OffsetCommit", 5, commit, right)
    for _ in range(20):
        talk.wait(3)
        talk.ask(other, "OffsetCommit", 5, commit, moved)
        if asks:
            talk.coordinator(conn, "g", two[0])
            talk.ask(conn, "OffsetCommit", 5, commit, right)
            break
        talk.metadata(conn, [topic()], two, 5)
    talk.close(other)
    talk.close(conn)
    return talk


def streams_and_a_consumer_in_one_group() -> Conversations:
    talk = java("2.3.0", release="2.3", client_id="shipping-service-consumer")
    streams = java("2.3.0", release="2.3", client_id="shipping-service-StreamThread-1-consumer")
    streams.inspector, streams._number = talk.inspector, 500
    conn = talk.meet(version=2)
    talk.metadata(conn, [topic()], version=8)
    talk.coordinator(conn, "shipping-service")
    ask = {"group_id": "shipping-service", "session_timeout_ms": 10000, "rebalance_timeout_ms": 300000, "protocol_type": "consumer"}
    mine, given = subscription(["orders"], 0), assignment("orders", 0)
    members = [{"member_id": "c-1", "metadata": mine}]
    joined = {"generation_id": 1, "protocol_name": "range", "leader": "c-1", "member_id": "c-1", "members": members}
    talk.ask(conn, "JoinGroup", 4, ask | {"member_id": "c-1", "protocols": [{"name": "range", "metadata": mine}]}, joined)
    place = {"group_id": "shipping-service", "generation_id": 1, "member_id": "c-1"}
    talk.ask(conn, "SyncGroup", 2, place | {"assignments": [{"member_id": "c-1", "assignment": given}]}, {"assignment": given})
    for _ in range(3):
        talk.ask(conn, "Heartbeat", 2, place, {})
        talk.fetch(conn, 0, b"", 0)
        talk.wait(2.5)
        streams.now = talk.now
        link = streams.meet(version=2)
        streams.coordinator(link, "shipping-service")
        refused = {"error_code": 23, "generation_id": -1, "protocol_name": "", "leader": "", "member_id": ""}
        streams.ask(link, "JoinGroup", 4, ask | {"protocols": [{"name": "stream", "metadata": mine}]}, refused)
        streams.close(link)
    talk.close(conn)
    return talk


def group_that_is_not_allowed() -> Conversations:
    talk = Talk(release="1.1", client_id="sarama", tls=True)
    conn = talk.open()
    talk.metadata(conn, [topic()], version=5)
    for _ in range(60):
        talk.coordinator(conn, "mcx", None, 30, version=0)
        talk.wait(0.3)
    talk.close(conn)
    return talk


def transaction_over_its_time(late: float = 75.0) -> Conversations:
    talk = librdkafka("1.6.1", release="2.7", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [topic("out")], version=4)
    talk.coordinator(conn, "tx", kind=1)
    start = {"transactional_id": "tx", "transaction_timeout_ms": 60000, "producer_id": -1, "producer_epoch": -1}
    talk.ask(conn, "InitProducerId", 3, start, {"producer_id": 7, "producer_epoch": 0})
    place = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 0}
    add = {f"v3_and_below_{name}": value for name, value in place.items()}
    added = {"name": "out", "results_by_partition": [{"partition_index": 0, "partition_error_code": 0}]}
    add["v3_and_below_topics"] = [{"name": "out", "partitions": [0]}]
    talk.ask(conn, "AddPartitionsToTxn", 0, add, {"results_by_topic_v3_and_below": [added]})
    talk.produce(conn, batch(0, 2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), "out", transactional_id="tx")
    talk.close(conn)
    talk.wait(late)
    conn = talk.meet()
    talk.coordinator(conn, "tx", kind=1)
    again = {"transactional_id": "tx", "transaction_timeout_ms": 60000, "producer_id": 7, "producer_epoch": 0}
    talk.ask(conn, "InitProducerId", 3, again, {"producer_id": 7, "producer_epoch": 2})
    talk.ask(conn, "EndTxn", 1, place | {"producer_epoch": 2, "committed": False}, {"error_code": 48})
    talk.close(conn)
    return talk


def topics_that_cannot_be_made(made: bool = False) -> Conversations:
    talk = java("3.0.0", release="2.3", client_id="app-StreamThread-1-consumer")
    repartition = "app-Aggregate-GroupBy-repartition"
    conn = talk.meet(version=2)
    talk.metadata(conn, [topic()], version=8)
    talk.coordinator(conn, "app")
    other = talk.meet(version=2)
    mine = subscription(["orders", repartition], 0)
    ask = {
        "group_id": "app", "session_timeout_ms": 45000, "rebalance_timeout_ms": 300000, "protocol_type": "consumer",
        "protocols": [{"name": "stream", "metadata": mine}],
    }  # fmt: skip
    for generation in (1, 2):
        members = [{"member_id": "m", "group_instance_id": None, "metadata": mine}]
        joined = {"generation_id": generation, "protocol_name": "stream", "leader": "m", "member_id": "m", "members": members}
        talk.ask(other, "JoinGroup", 5, ask | {"member_id": "m"}, joined)
        talk.client_id = "app-admin"
        admin = talk.meet(version=2)
        talk.metadata(admin, [topic(repartition, error=3)], version=8)
        talk.wait(0.05)
        if made:
            controller = talk.meet("10.0.0.2:9092", version=2)
            new = {"name": repartition, "num_partitions": 1, "replication_factor": 1}
            talk.ask(controller, "CreateTopics", 3, {"topics": [new], "timeout_ms": 30000}, {"topics": [{"name": repartition}]}, took=0.01)
            talk.close(controller)
        talk.close(admin)
        talk.client_id = "app-StreamThread-1-consumer"
        talk.ask(other, "LeaveGroup", 2, {"group_id": "app", "member_id": "m"}, {})
        talk.wait(5)
    talk.close(other)
    talk.close(conn)
    return talk


TOKEN = {"auth_bytes": b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01"}
CHALLENGE = {"auth_bytes": b'{"status":"invalid_token"}'}


def refused_token_taken_for_a_login() -> Conversations:
    talk = Talk(release="2.2", client_id="sarama", broker="10.0.0.1:9093", tls=True)
    for _ in range(4):
        conn = talk.open()
        talk.ask(conn, "SaslHandshake", 1, {"mechanism": "OAUTHBEARER"}, {"mechanisms": ["OAUTHBEARER"]})
        talk.ask(conn, "SaslAuthenticate", 0, TOKEN, CHALLENGE)
        talk.pipelined(conn, ("Metadata", 1, {"topics": None}))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(0.25)
    return talk


def token_that_is_not_accepted() -> Conversations:
    talk = java("3.5.1", release="3.5", client_id="team-one", broker="10.0.0.1:9093", tls=True)
    for _ in range(3):
        conn = talk.meet()
        talk.ask(conn, "SaslHandshake", 1, {"mechanism": "OAUTHBEARER"}, {"mechanisms": ["OAUTHBEARER", "SCRAM-SHA-512"]})
        talk.ask(conn, "SaslAuthenticate", 2, TOKEN, CHALLENGE)
        refused = {"error_code": 58, "error_message": '{"status":"invalid_token"}', "auth_bytes": b""}
        talk.ask(conn, "SaslAuthenticate", 2, {"auth_bytes": b"\x01"}, refused)
        talk.close(conn, by="broker")
        talk.wait(1)
    return talk


def kerberos_that_is_not_finished(finished: bool = False) -> Conversations:
    talk = Talk(release="0.10.1", client_id="kafka-python-1.3.4", broker="10.0.0.1:6667")
    for _ in range(4):
        conn = talk.open()
        talk.ask(conn, "SaslHandshake", 0, {"mechanism": "GSSAPI"}, {"mechanisms": ["GSSAPI"]})
        talk.sent(conn, with_size(b"\x60\x82\x02\x56" + bytes(596)))
        talk.wait(0.002)
        talk.received(conn, with_size(b"\x60\x64" + bytes(101)))
        talk.sent(conn, with_size(b""))
        talk.wait(0.002)
        talk.received(conn, with_size(b"\x05\x04\x05\xff" + bytes(28)))
        talk.wait(0.001)
        if finished:
            talk.sent(conn, with_size(b"\x05\x04\x04\xff" + bytes(28)))
            talk.wait(0.001)
            talk.received(conn, with_size(b""))
            talk.metadata(conn, [], version=0)
            talk.close(conn)
        else:
            talk.pipelined(conn, ("Metadata", 0, {"topics": []}))
            talk.wait(0.002)
            talk.close(conn, by="broker")
        talk.wait(0.1)
    return talk


def address_that_metadata_no_longer_names(follows: bool = False) -> Conversations:
    talk = java("4.0.0", release="4.0", client_id="producer-1")
    before = ((1, "10.0.0.1", 9092), (2, "10.0.0.12", 9092))
    after = (before[0], (2, "10.0.0.22", 9092), (3, "10.0.0.12", 9092))
    conn = talk.meet(version=4)
    talk.metadata(conn, [topic(leader=2, nodes=(2, 1))], before, 12)
    other = talk.meet("10.0.0.12:9092", version=4)
    for at in range(0, 9, 3):
        talk.produce(other, batch(at), version=9, base=at)
        talk.wait(1)
    for at in range(40):
        talk.produce(other, batch(9), version=9, error=0 if follows and at else 6, base=6 + 3 * at)
        talk.metadata(conn, [topic(leader=2, nodes=(2, 1))], after, 12)
        if follows and not at:
            other = talk.meet("10.0.0.22:9092", version=4)
        talk.wait(0.5)
    talk.close(other)
    talk.close(conn)
    return talk


def produce_that_is_too_old() -> Conversations:
    talk = Talk(release="0.10.2", client_id="rskafka")
    for _ in range(3):
        conn = talk.meet(version=0)
        talk.metadata(conn, [topic("test")], version=1)
        other = talk.meet(version=0)
        talk.wait(0.01)
        talk.close(other)
        talk.close(conn)
        talk.wait(5)
    return talk


def address_of_a_pod_that_is_gone() -> Conversations:
    talk = librdkafka("1.5.2", release="2.6", client_id="rdkafka", broker="10.0.0.81:9092")
    conn = talk.meet()
    talk.metadata(conn, [topic(leader=1001, nodes=(1001,))], ((1001, "10.0.0.81", 9092),), 4)
    for at in range(0, 30, 3):
        talk.fetch(conn, at, batch(at), 30, took=0.1)
    talk.close(conn, by="broker")
    for _ in range(12):
        talk.wait(3)
        talk.close(talk.open(established=False), "unreached", by="")
        talk.wait(4)
    return talk


def record_that_is_too_large_for_ever() -> Conversations:
    talk = java("1.0.0", release="1.0", client_id="logstash")
    conn = talk.meet(version=1)
    talk.metadata(conn, [topic("logs")], version=5)
    data = records.encode_batch([Record(0, 1_753_000_000_000, None, bytes(range(256)) * 8000)])
    for _ in range(25):
        talk.produce(conn, data, "logs", 3, error=10)
        talk.wait(0.1)
    talk.close(conn)
    return talk


def nonce_of_another() -> Conversations:
    talk = Talk(release="3.9", client_id="brod", broker="10.0.0.1:9093", tls=True)
    for _ in range(4):
        conn = talk.meet(version=0)
        talk.ask(conn, "SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"}, {"mechanisms": ["SCRAM-SHA-256"]})
        talk.ask(
            conn, "SaslAuthenticate", 0, {"auth_bytes": b"n,,n=alice,r=rOprNGfwEbeRWgbNEkqO"},
            {"auth_bytes": b"r=rOprNGfwEbeRWgbNEkqOaX8Vn1fbnQgwQyXy0Kqd0s,s=MTIzNDU2Nzg5MGFiY2Q=,i=4096"},
        )  # fmt: skip
        refused = {
            "error_code": 58, "error_message": "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
            "auth_bytes": b"",
        }  # fmt: skip
        final = b"c=biws,r=1234567890abcd,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        talk.ask(conn, "SaslAuthenticate", 0, {"auth_bytes": final}, refused)
        talk.close(conn, by="broker")
        talk.wait(1)
    return talk


def largest_timestamp_that_cannot_be_asked_for(lacks: bool = True) -> Conversations:
    """At a broker that `lacks` ListOffsets v7; or topics that are described, at an older Kafka."""
    talk = java("3.6.1", release="3.1" if lacks else "2.8", client_id="adminclient-1")
    if lacks:
        talk.offered[2] = (0, 4)
    for _ in range(3):
        conn = talk.meet()
        talk.metadata(conn, [topic()], version=9)
        talk.wait(0.02)
        talk.close(conn)
        talk.wait(4)
    return talk


def log_directories_that_cannot_be_asked_for() -> Conversations:
    talk = java("3.3.1", release="2.8", client_id="kafka-ui-admin-1", broker="10.0.0.1:9098", tls=True)
    talk.offered.pop(35, None)
    conn = talk.meet()
    for _ in range(10):
        talk.metadata(conn, [topic()], ((1, "10.0.0.1", 9098),), 9, asked=[])
        talk.wait(27)
    talk.close(conn)
    return talk


def aborted_records_again_and_again(moves: bool = False) -> Conversations:
    talk = java("3.0.0", release="3.0", client_id="consumer-1234")
    conn = talk.meet()
    talk.metadata(conn, [topic()])
    data = batch(100, 3, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    aborted = [{"producer_id": 7, "first_offset": 100}]
    talk.fetch(conn, 100, data, 103, version=11, took=0.01, isolation=1, aborted_transactions=aborted)
    for _ in range(120):
        if moves:
            talk.fetch(conn, 103, b"", 103, version=11, isolation=1)
        else:
            talk.fetch(conn, 100, data, 103, version=11, took=0.01, isolation=1, aborted_transactions=aborted)
        talk.wait(0.1)
    talk.close(conn)
    return talk


def offset_that_is_not_reset() -> Conversations:
    talk = Talk(release="2.4", client_id="workflow-kafka")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic()], version=1)
    for _ in range(300):
        talk.fetch(conn, 88, b"", -1, version=4, took=0.01, error=1)
    talk.close(conn)
    return talk


def topic_that_was_deleted() -> Conversations:
    talk = Talk(release="1.1", client_id="kafka-python-1.4.4")
    conn = talk.meet(version=0)
    for _ in range(60):
        talk.metadata(conn, [topic("gone", error=3)], version=1)
        asked = {"name": "gone", "partitions": [{"partition_index": 0, "timestamp": -2}]}
        missing = {"name": "gone", "partitions": [{"partition_index": 0, "error_code": 3, "offset": -1}]}
        talk.ask(conn, "ListOffsets", 1, {"replica_id": -1, "topics": [asked]}, {"topics": [missing]})
        talk.wait(0.1)
    talk.close(conn)
    return talk


def member_that_commits_on() -> Conversations:
    talk = Talk(release="2.3", client_id="kafka-python-2.0.1")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic()], version=1)
    talk.coordinator(conn, "hccm", version=0)
    place = {"partition_index": 0, "committed_offset": 50, "committed_metadata": ""}
    commit = {"group_id": "hccm", "generation_id_or_member_epoch": 3, "member_id": "m-aa", "topics": [{"name": "orders", "partitions": [place]}]}
    for _ in range(20):
        talk.ask(conn, "OffsetCommit", 2, commit, {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "error_code": 25}]}]})
        talk.wait(5)
    talk.close(conn)
    return talk


def epochs_of_two_brokers() -> Conversations:
    talk = Talk("kgo", "v1.2.0", release="3.0", client_id="kgo")
    two = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))
    links = talk.meet(), talk.meet("10.0.0.2:9092")
    for number in range(20):
        known = topic(leader=2 - number % 2, nodes=(1, 2))
        known["partitions"][0]["leader_epoch"] = 3 if number % 2 else 5
        talk.metadata(links[number % 2], [known], two, 11)
        talk.fetch(links[0], 10, b"", -1, version=11, took=0.01, error=6, epoch=3)
        talk.wait(0.5)
    for link in links:
        talk.close(link)
    return talk


STORIES = (
    Story(
        "https://github.com/aio-libs/aiokafka/issues/1112", "aiokafka 0.12.0", "Kafka 3.7, compression.type=zstd on the topic",
        "Fetch v4, though v16 is offered: UNSUPPORTED_COMPRESSION_TYPE, again and again",
        "zstd needs Fetch v10; the client uses v4: a newer client, or compression.type=producer",
        compressed_for_newer_consumers, frozenset({"unexplained-error"}), (r"zstd", r"Fetch v4", r"version 10", r"compression\.type"),
    ),
    Story(
        "https://github.com/platformatic/kafka/pull/196", "@platformatic/kafka 1.20", "Kafka 3.9",
        "OffsetFetch: 120 (the end of the log); Fetch at 121: OFFSET_OUT_OF_RANGE, at each start",
        "the client begins one beyond the committed offset, which is the next to read: its fault",
        one_beyond_the_committed_offset, frozenset({"offset-out-of-range"}), (r"121", r"120", r"(?i)committed offset", r"(?i)client"),
    ),
    Story(
        "https://github.com/apache/kafka/pull/10644", "Java 2.8", "the target of MirrorMaker 2",
        "OffsetFetch: 100; Fetch at 100: OFFSET_OUT_OF_RANGE; ListOffsets: 0",
        "the committed offset is beyond the end of the log: it is another cluster's (sync.group.offsets.enabled)",
        offsets_of_another_cluster, frozenset({"offset-out-of-range"}), (r"\b100\b", r"(?i)another cluster|mirror"),
    ),
    Story(
        "https://github.com/tulios/kafkajs/issues/1720", "kafkajs 2.4", "Kafka 3.7",
        "Heartbeat: REBALANCE_IN_PROGRESS; the member is silent for 35 s, joins, and gets UNKNOWN_MEMBER_ID; again",
        "it neither rejoined nor sent heartbeats for longer than its session timeout after it was told to rejoin",
        silent_in_a_rebalance, frozenset({"held-up-join"}), (r"waited 35\.0 s in JoinGroup for client 'kafkajs-one'", r"silent for 34"),
    ),
    Story(
        "https://github.com/tulios/kafkajs/pull/1779", "kafkajs 2.2", "MSK 3.5",
        "OffsetCommit: NOT_COORDINATOR at the same broker, 20 times in a minute; Metadata in between, FindCoordinator never",
        "the client does not look for the new coordinator: its fault",
        coordinator_that_is_not_looked_for, frozenset({"coordinator-unavailable"}), (r"NOT_COORDINATOR", r"did not ask for the coordinator \(FindCoordinator\)", r"client's fault"),
    ),
    Story(
        "https://github.com/micronaut-projects/micronaut-kafka/issues/31", "Java 2.3, a consumer and a Streams application", "Kafka 2.3",
        "the group has a member with range; JoinGroup with stream: INCONSISTENT_GROUP_PROTOCOL",
        "a consumer and a Streams application use one group id: a group.id (application.id) of its own for each",
        streams_and_a_consumer_in_one_group, frozenset({"inconsistent-group-protocol"}), (r"\bstream\b", r"\brange\b", r"Streams application", r"group\.id"),
    ),
    Story(
        "https://github.com/IBM/sarama/issues/1771", "sarama 1.26", "Kafka 1.1 with ACLs",
        "FindCoordinator: GROUP_AUTHORIZATION_FAILED, 60 times",
        "the client may not use group mcx: an ACL",
        group_that_is_not_allowed, frozenset({"authorization-failed"}), (r"mcx", r"GROUP_AUTHORIZATION_FAILED", r"(?i)acl"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/3297", "librdkafka 1.6.1", "Kafka 2.7",
        "a transaction is open for 75 s (timeout 60 s) while the connection is lost; EndTxn (abort): INVALID_TXN_STATE",
        "it was over its timeout, the coordinator has aborted it already: transaction.timeout.ms",
        transaction_over_its_time, frozenset({"transaction-refused"}),
        (r"INVALID_TXN_STATE", r"open for 75\.0 s, longer than its timeout", r"transaction\.timeout\.ms"),
    ),
    Story(
        "https://github.com/confluentinc/ksql/issues/8508", "Java 3.0 Streams", "Kafka 2.3",
        "the leader joins, finds no repartition topic, and leaves; CreateTopics is offered to v3",
        "replication.factor=-1 (the default since 3.0) needs CreateTopics v4 of Kafka 2.4",
        topics_that_cannot_be_made, frozenset({"admin-client-gives-up"}), (r"CreateTopics v0 to v3", r"replication\.factor=-1", r"2\.4"),
    ),
    Story(
        "https://github.com/IBM/sarama/pull/1428", "sarama 1.22", "Kafka 2.2 with OAUTHBEARER",
        'SaslAuthenticate has no error, but {"status":"invalid_token"}; the client sends Metadata: FIN',
        "the token is refused, and the client takes the answer for a login",
        refused_token_taken_for_a_login, frozenset({"sasl-authentication-failed"}), (r"invalid_token", r"then sent Metadata, as if it were logged in", r"RFC 7628"),
    ),
    Story(
        "https://github.com/strimzi/strimzi-kafka-oauth/issues/212", "Java 3.5", "Kafka in Strimzi with OAUTHBEARER",
        'SaslAuthenticate: {"status":"invalid_token"}, then SASL_AUTHENTICATION_FAILED with the same',
        "the broker does not accept the token: its issuer, audience, key or time",
        token_that_is_not_accepted, frozenset({"sasl-authentication-failed"}), (r"invalid_token", r"(?i)issuer|audience"),
    ),
    Story(
        "https://github.com/dpkp/kafka-python/issues/1189", "kafka-python 1.3", "Kafka 0.10.1 with Kerberos",
        "the broker's last GSSAPI token (32 bytes) is not answered; Metadata follows: FIN",
        "the client sends a request before the GSSAPI exchange has ended: its fault",
        kerberos_that_is_not_finished, frozenset({"sasl-raw-token-refused"}),
        (r"sends Metadata .* before its login with GSSAPI has ended", r"client library's fault"),
    ),
    Story(
        "https://github.com/apache/kafka/pull/22375", "Java 4.0", "Kafka 4.0 in Kubernetes",
        "Metadata gives broker 2 the address 10.0.0.22, and its old one to broker 3; the client produces over the old connection",
        "the client stays with an address that Metadata no longer gives for broker 2 (KAFKA-20394)",
        address_that_metadata_no_longer_names, frozenset({"metadata-ignored"}), (r"at 10\.0\.0\.22:9092 since it has moved from 10\.0\.0\.12", r"KAFKA-20394"),
    ),
    Story(
        "https://github.com/influxdata/rskafka/issues/235", "rskafka 0.5", "Kafka 0.10.2",
        "Produce is offered to v2; the client asks the leader for its versions and ends there",
        "the client needs Produce v3 of Kafka 0.11: upgrade the broker",
        produce_that_is_too_old, frozenset({"client-gives-up"}), (r"Produce v0 to v2", r"0\.11"),
    ),
    Story(
        "https://github.com/confluentinc/confluent-kafka-python/issues/990", "librdkafka 1.5.2", "Kafka 2.6 in Kubernetes",
        "the pod of 10.0.0.81:9092, as Metadata named it, is gone; the client goes on connecting there",
        "Metadata named the address of a pod, which has another one now: advertise a name",
        address_of_a_pod_that_is_gone, frozenset({"connection-refused"}), (r"10\.0\.0\.81:9092", r"Metadata named this address", r"Advertise a name"),
    ),
    Story(
        "https://github.com/logstash-plugins/logstash-output-kafka/issues/190", "Java 1.0 in Logstash", "Kafka 1.0",
        "one record of 2 MB: MESSAGE_TOO_LARGE, sent again 25 times",
        "it is above max.message.bytes, and sending it again does not help: the application must drop it, or the limit be raised",
        record_that_is_too_large_for_ever, frozenset({"produce-too-large"}), (r"max\.message\.bytes", r"25 times", r"a single record that is too large always fails"),
    ),
    Story(
        "https://github.com/kafka4beam/kafka_protocol/pull/112", "brod (kafka_protocol 4.1.2)", "Kafka 3.9",
        "SCRAM: the client's final message has another nonce than the broker's first: SASL_AUTHENTICATION_FAILED",
        "the client library sends a wrong nonce, which newer brokers check; the password is not at fault",
        nonce_of_another, frozenset({"sasl-authentication-failed"}), (r"nonce of 14 characters, the broker's had 42", r"client library's fault"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/issues/17829", "Java 3.6 admin client", "Redpanda 23.3",
        "ListOffsets is offered to v4; the admin client asks for Metadata and ends, three times",
        "OffsetSpec.maxTimestamp needs ListOffsets v7 (Kafka 3.0)",
        largest_timestamp_that_cannot_be_asked_for, frozenset({"admin-client-gives-up"}),
        (r"not offer ListOffsets v7", r"3\.0"),
    ),
    Story(
        "https://github.com/provectus/kafka-ui/issues/3261", "Java 3.3 in kafka-ui", "MSK Serverless",
        "DescribeLogDirs is not offered; Metadata is asked again every 27 s",
        "the tool needs DescribeLogDirs, which the service does not offer",
        log_directories_that_cannot_be_asked_for, frozenset({"admin-client-gives-up"}), (r"not offer DescribeLogDirs",),
    ),
    Story(
        "https://github.com/apache/pinot/issues/12318", "Java 3.0 in Pinot, read_committed", "Kafka 3.0",
        "the same offset again and again; all records there are aborted",
        "the application seeks back to it, as it gets no record of it",
        aborted_records_again_and_again, frozenset({"same-records-again"}), (r"all aborted", r"goes back to the same offset"),
    ),
    Story(
        "https://github.com/sogou/workflow/issues/811", "sogou workflow (wfkafka)", "Kafka with an empty topic",
        "OFFSET_OUT_OF_RANGE for the same offset, 300 times; ListOffsets is never sent",
        "the client does not reset its position",
        offset_that_is_not_reset, frozenset({"offset-out-of-range"}), (r"without ListOffsets", r"does not reset its position"),
    ),
    Story(
        "https://github.com/dpkp/kafka-python/issues/1780", "kafka-python 1.4", "Kafka 1.1, a topic that was deleted",
        "ListOffsets and Metadata: UNKNOWN_TOPIC_OR_PARTITION for ever",
        "the topic is not there",
        topic_that_was_deleted, frozenset({"unexplained-error", "unknown-topic-loop"}), (r"UNKNOWN_TOPIC_OR_PARTITION", r"gone", r"topic does not exist"),
    ),
    Story(
        "https://github.com/project-koku/koku/issues/1939", "kafka-python 2.0", "Kafka 2.3",
        "OffsetCommit: UNKNOWN_MEMBER_ID 20 times, with the same member id",
        "the coordinator has removed the member, which must join again",
        member_that_commits_on, frozenset({"commit-failed"}), (r"UNKNOWN_MEMBER_ID", r"rejoin: the coordinator removed the member"),
    ),
    Story(
        "https://github.com/twmb/franz-go/issues/119", "franz-go 1.2", "Kafka 3.0",
        "two brokers answer Metadata with leader epochs 5 and 3 in turn; Fetch: NOT_LEADER_OR_FOLLOWER",
        "one of the brokers has Metadata that is out of date",
        epochs_of_two_brokers, frozenset({"leader-epochs-differ"}),
        (r"leader epoch 3", r"leader epoch 5", r"not the client's fault"),
    ),
)  # fmt: skip
