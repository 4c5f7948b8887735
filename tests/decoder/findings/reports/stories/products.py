"""Stories of what brokers, proxies and products that speak Kafka's protocol answer, continued from `brokers`."""

from __future__ import annotations

import uuid

from barnabas.decoder import Connection, encode_request, encode_response
from barnabas.decoder.schema import facts
from harness.wire import with_size
from traffic.conversations import Conversations

from .telling import LATER, NOW_MS, Fields, Story, Talk, assignment, batch, java, librdkafka, subscription, topic

TWO = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))


def time_without_a_timestamp(timestamp: int = -1) -> Conversations:
    talk = java("2.3.0", release="2.0", client_id="consumer-1")
    for _ in range(3):
        conn = talk.meet(version=2)
        talk.metadata(conn, [topic()], version=5)
        asked = {"partition_index": 0, "timestamp": NOW_MS - 3_600_000}
        found = {"partition_index": 0, "error_code": 0, "timestamp": timestamp, "offset": 12}
        body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "orders", "partitions": [asked]}]}
        talk.ask(conn, "ListOffsets", 2, body, {"topics": [{"name": "orders", "partitions": [found]}]})
        talk.close(conn)
        talk.wait(LATER)
    return talk


def endpoint_behind_the_proxy(host: str = "kafka-1.kafka.svc", port: int = 9092) -> Conversations:
    talk = java("3.7.0", release="3.7", client_id="producer-1", broker="10.0.0.9:9192")
    nodes = ((0, "10.0.0.9", 9193), (1, "10.0.0.9", 9194))
    conn = talk.meet()
    talk.metadata(conn, [topic(leader=0, nodes=(0, 1))], nodes, 12)
    other = talk.meet("10.0.0.9:9193")
    for at in range(3):
        talk.produce(other, batch(at * 3), version=10, base=at * 3)
        talk.wait(0.1)
    moved = {"index": 0, "error_code": 6, "base_offset": -1, "current_leader": {"leader_id": 1, "leader_epoch": 5}}
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch(9)}]}]
    answer = {
        "responses": [{"name": "orders", "partition_responses": [moved]}],
        "node_endpoints": [{"node_id": 1, "host": host, "port": port}],
    }
    talk.ask(other, "Produce", 10, {"acks": -1, "timeout_ms": 30000, "topic_data": data}, answer)
    for _ in range(5):
        talk.wait(1)
        talk.metadata(conn, [topic(leader=0, nodes=(0, 1))], nodes, 12)
    talk.close(other)
    talk.close(conn)
    return talk


def token_that_a_proxy_takes_for_a_request() -> Conversations:
    talk = Talk(release="3.6", client_id="sarama", broker="10.0.0.1:30192", tls=True)
    for _ in range(4):
        conn = talk.open()
        talk.ask(conn, "SaslHandshake", 0, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]})
        talk.sent(conn, with_size(b"\0TWEJCXK4QXW2\0abcdefgh"))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(0.25)
    return talk


def generations_of_one_member(waits: bool = False) -> Conversations:
    """Members join one after the other; a coordinator that `waits` lets the others join before it answers."""
    talk = Talk(release="2.4", client_id="brod")
    meta, everything = subscription(["orders"], 0), assignment("orders", 0, 1, 2, 3)
    ends = talk.meet(version=0), talk.meet(version=0)
    for conn in ends:
        talk.metadata(conn, [topic(partitions=4)], version=2)
        talk.coordinator(conn, "g", version=0)

    def join(conn: Connection, generation: int, asked: str, given: str, members: list[str]) -> None:
        protocols = [{"name": "roundrobin_v2", "metadata": meta}]
        body = {"group_id": "g", "session_timeout_ms": 30000, "protocol_type": "consumer", "protocols": protocols}
        listed = [{"member_id": name, "metadata": meta} for name in members]
        answer = {"generation_id": generation, "protocol_name": "roundrobin_v2", "leader": given, "member_id": given}
        talk.ask(conn, "JoinGroup", 0, body | {"member_id": asked}, answer | {"members": listed})
        mine = {"group_id": "g", "generation_id": generation, "member_id": given}
        talk.ask(conn, "SyncGroup", 0, mine | {"assignments": []}, {"assignment": everything})

    def beat(conn: Connection, generation: int, member: str, error: int = 0) -> None:
        body = {"group_id": "g", "generation_id": generation, "member_id": member}
        talk.ask(conn, "Heartbeat", 0, body, {"error_code": error})

    last: tuple[Connection, str] | None = None
    for turn in range(12):
        conn, mine = ends[turn % 2], f"brod-{turn}"
        if waits and last is not None:
            beat(last[0], turn, last[1], 27)
            join(last[0], turn + 1, last[1], last[1], [last[1], mine])
            left = {"group_id": "g", "member_id": last[1]}
            talk.ask(last[0], "LeaveGroup", 0, left, {})
        join(conn, turn + 1, "", mine, [mine])
        if last is not None and not waits:
            beat(last[0], turn, last[1], 25)
        beat(conn, turn + 1, mine)
        last = conn, mine
        for _ in range(12 if waits else 0):
            talk.fetch(conn, 0, version=4)
            talk.wait(5)
            beat(conn, turn + 1, mine)
        talk.wait(1)
    for conn in ends:
        talk.close(conn)
    return talk


def epoch_that_metadata_does_not_show(shown: bool = False) -> Conversations:
    talk = java("2.3.1", release="2.3", client_id="consumer-g-1")
    conn = talk.meet(version=2)
    known = topic(leader=2, nodes=(1, 2))
    talk.metadata(conn, [known], TWO, version=8)
    leads = talk.meet("10.0.0.2:9092", version=2)
    for at in range(3):
        talk.fetch(leads, at, batch(at, 1), at + 1, took=0.01, epoch=4)
    for _ in range(2 if shown else 60):
        talk.fetch(leads, 3, b"", -1, took=0.002, error=74, epoch=4, last_stable_offset=-1, log_start_offset=-1)
        talk.metadata(conn, [known], TWO, version=8)
        talk.wait(0.1)
    if shown:
        known["partitions"][0]["leader_epoch"] = 5
        talk.metadata(conn, [known], TWO, version=8)
        for _ in range(20):
            talk.fetch(leads, 3, b"", 3, epoch=5)
    talk.close(leads)
    talk.close(conn)
    return talk


def leader_that_one_broker_hears_of_later() -> Conversations:
    talk = Talk("kgo", "v1.20.0", release="3.9", client_id="kgo")
    links = talk.meet(), talk.meet("10.0.0.2:9092")
    for number in range(20):
        known = topic(leader=1 if number < 4 else 2, nodes=(1, 2))
        known["partitions"][0]["leader_epoch"] = 4 if number < 4 or number == 5 else 5
        if number == 5:
            known["partitions"][0]["leader_id"] = 1
        talk.metadata(links[number % 2], [known], TWO, 11)
        talk.wait(0.5)
    for link in links:
        talk.close(link)
    return talk


def deletion_refused_for_the_cluster(error: int = 31) -> Conversations:
    talk = librdkafka("1.8.2", release="2.4", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [topic("nope", error=3)], version=4)
    body = {"topic_names": ["nope"], "timeout_ms": 30000}
    talk.ask(conn, "DeleteTopics", 1, body, {"responses": [{"name": "nope", "error_code": error}]})
    talk.close(conn)
    return talk


def controller_of_nobody() -> Conversations:
    talk = java("2.0.0", release="2.0", client_id="adminclient-1")
    conn = talk.meet(version=2)
    for _ in range(60):
        talk.metadata(conn, [], version=5, asked=[], controller_id=-1)
        talk.wait(0.1)
    talk.close(conn)
    return talk


def software_name_with_a_space() -> Conversations:
    talk = Talk(release="3.0", client_id="RP Console")
    for _ in range(3):
        conn = talk.open()
        said = {"client_software_name": "RP Console", "client_software_version": "dev"}
        talk.ask(conn, "ApiVersions", 3, said, {"error_code": 42, "api_keys": []})
        talk.wait(0.1)
        talk.close(conn)
        talk.wait(3)
    return talk


def segment_without_the_offset(end: int = 5) -> Conversations:
    talk = java("3.6.1", release="3.6", client_id="consumer-g-1")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=12)
    talk.fetch(conn, 0, batch(0, 1), end, version=11, took=0.05)
    for _ in range(80):
        talk.fetch(conn, 1, b"", end, version=11, took=0.01 if end > 1 else 0.5)
        talk.wait(0.5)
    talk.close(conn)
    return talk


def version_that_the_older_broker_has_not() -> Conversations:
    talk = Talk(release="3.5", client_id="broker-1", client="10.0.0.2")
    for _ in range(6):
        conn = talk.open()
        topics = [{"name": "orders", "partitions": [0]}]
        one = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 0, "verify_only": True, "topics": topics}
        talk.pipelined(conn, ("AddPartitionsToTxn", 4, {"transactions": [one]}))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(0.1)
    return talk


def localhost_from_a_container() -> Conversations:
    talk = librdkafka("1.8.2", release="2.4", client_id="rdkafka", broker="172.17.0.1:32768", client="172.17.0.3")
    conn = talk.meet()
    for _ in range(5):
        talk.metadata(conn, [topic("test")], ((1, "localhost", 32768),), version=4)
        talk.wait(1)
    talk.close(conn)
    return talk


def commits_that_are_forgotten() -> Conversations:
    talk = librdkafka("2.3.0", release="2.4", client_id="rdkafka")
    meta, mine = subscription(["orders"]), assignment("orders", 0)
    for run in range(3):
        conn = talk.meet()
        talk.metadata(conn, [topic()], version=4)
        talk.coordinator(conn, "g")
        name = f"m-{run}"
        protocols = [{"name": "range", "metadata": meta}]
        body = {"group_id": "g", "session_timeout_ms": 45000, "protocol_type": "consumer"}
        body["rebalance_timeout_ms"] = 300000
        answer = {"generation_id": run + 1, "protocol_name": "range", "leader": name, "member_id": name}
        members = [{"member_id": name, "metadata": meta}]
        talk.ask(conn, "JoinGroup", 5, body | {"protocols": protocols}, answer | {"members": members})
        place = {"group_id": "g", "generation_id": run + 1, "member_id": name}
        talk.ask(conn, "SyncGroup", 3, place | {"assignments": []}, {"assignment": mine})
        none: Fields = {"partition_index": 0, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
        wanted = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]}
        talk.ask(conn, "OffsetFetch", 5, wanted, {"topics": [{"name": "orders", "partitions": [none]}]})
        talk.fetch(conn, 0, batch(0, 5), 5, took=0.01)
        talk.fetch(conn, 5, b"", 5)
        done = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
        commit = {"group_id": "g", "generation_id_or_member_epoch": run + 1, "member_id": name}
        commit["topics"] = [{"name": "orders", "partitions": [done]}]
        taken = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "error_code": 0}]}]}
        talk.ask(conn, "OffsetCommit", 7, commit, taken)
        talk.ask(conn, "LeaveGroup", 1, {"group_id": "g", "member_id": name}, {})
        talk.close(conn)
        talk.wait(5)
    return talk


def offsets(talk: Talk, conn: Connection, timestamp: int, version: int, **found: int) -> None:
    """ListOffsets of orders-0."""
    asked = [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    body = {"replica_id": -1, "topics": asked}
    answer = {"partition_index": 0, "timestamp": -1} | found
    talk.ask(conn, "ListOffsets", version, body, {"topics": [{"name": "orders", "partitions": [answer]}]})


def epoch_of_now_for_the_earliest_record(epoch: int = 7) -> Conversations:
    talk = Talk("kgo", "v1.20.0", release="3.8", client_id="rpk")
    known = topic()
    known["partitions"][0]["leader_epoch"] = 7
    for _ in range(3):
        conn = talk.meet()
        talk.metadata(conn, [known], version=12)
        offsets(talk, conn, -2, 5, offset=0, leader_epoch=epoch)
        talk.fetch(conn, 0, batch(0, 5, partition_leader_epoch=3), 5, version=11, took=0.01, epoch=7)
        talk.fetch(conn, 5, b"", 5, version=11, epoch=7)
        talk.close(conn)
        talk.wait(5)
    return talk


def coordinators_that_are_left_out() -> Conversations:
    talk = java("3.0.0", release="3.0", client_id="consumer-g-1")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=11)
    for _ in range(20):
        talk.ask(conn, "FindCoordinator", 4, {"coordinator_keys": ["g"], "key_type": 0}, {"coordinators": []})
        talk.wait(0.1)
    talk.close(conn)
    return talk


def balancer_in_front_of_brokers(turns: int = 12) -> Conversations:
    """Every second connection to broker 2's address reaches another broker; once, if there is one turn."""
    talk = librdkafka("1.4.4", release="2.4", client_id="rdkafka", broker="125.198.212.97:9093", tls=True)
    nodes = ((1, "125.198.212.97", 9093), (2, "125.198.212.98", 9093))
    boot = talk.meet()
    known = topic(leader=2, nodes=(2, 1))
    talk.metadata(boot, [known], nodes, 4)
    sent = 0
    good = talk.meet("125.198.212.98:9093")
    for _ in range(turns):
        for _ in range(5):
            talk.produce(good, batch(sent, 3), base=sent)
            sent += 3
            talk.wait(0.2)
        talk.close(good, by="broker")
        bad = talk.meet("125.198.212.98:9093")
        for _ in range(4):
            talk.produce(bad, batch(sent, 3), error=6, base=sent)
            talk.metadata(boot, [known], nodes, 4)
            talk.wait(0.3)
        talk.close(bad, by="broker")
        good = talk.meet("125.198.212.98:9093")
    for at in range(5):
        talk.produce(good, batch(sent + 3 * at, 3), base=sent + 3 * at)
        talk.wait(0.2)
    talk.close(good)
    talk.close(boot)
    return talk


def gap_of_offsets() -> Conversations:
    talk = java("2.8.0", release="2.0", client_id="consumer-console-1")
    conn = talk.meet(version=2)
    talk.metadata(conn, [topic()], version=5)
    for _ in range(120):
        talk.fetch(conn, 95719032467224513, b"", 115088081102569472, version=8, took=0.5)
    talk.close(conn)
    return talk


def end_that_is_the_last_record(end: int = 41) -> Conversations:
    talk = java("2.6.0", release="2.0", client_id="consumer-1")
    for _ in range(4):
        conn = talk.meet(version=2)
        talk.metadata(conn, [topic()], version=5)
        offsets(talk, conn, -1, 2, offset=end)
        if end < 42:
            talk.fetch(conn, 41, batch(41, 1, timestamp=NOW_MS - 3_600_000), 42, version=8, took=0.01)
        talk.fetch(conn, 42, b"", 42, version=8)
        talk.close(conn)
        talk.wait(30)
    return talk


def end_of_a_new_leader(end: int = 90, after: int = 100) -> Conversations:
    """A leader moves; the log may have been truncated, so that a Fetch `after` does not show the old end again."""
    talk = java("2.0.0", release="2.0", client_id="consumer-g-1")
    conn = talk.meet(version=2)
    talk.metadata(conn, [topic(nodes=(1, 2))], TWO, version=5)
    for at in range(0, 99, 3):
        talk.fetch(conn, at, batch(at), 100, version=8, took=0.01)
    talk.close(conn, by="broker")
    talk.wait(1)
    other = talk.meet("10.0.0.2:9092", version=2)
    talk.metadata(other, [topic(leader=2, nodes=(2,))], TWO, version=5)
    offsets(talk, other, -1, 2, offset=end)
    for _ in range(5):
        talk.fetch(other, after, b"", after, version=8)
    talk.close(other)
    return talk


def names_within_kubernetes(broker: str = "35.222.161.140:31090") -> Conversations:
    talk = librdkafka("1.0.0", release="2.1", client_id="rdkafka", broker=broker)
    nodes = tuple((n, f"wfp-q-kafka-{n}.wfp-q-kafka-headless.wfp", 9092) for n in range(3))
    conn = talk.meet()
    for _ in range(10):
        talk.metadata(conn, [topic("topic1", leader=0, nodes=(0,))], nodes, 4)
        talk.wait(1)
    talk.close(conn)
    return talk


def connections_that_are_dropped_while_idle() -> Conversations:
    talk = java("2.5.0", release="1.0", client_id="producer-1", broker="10.0.0.1:9093", tls=True)
    sent = 0
    for _ in range(3):
        conn = talk.meet(version=2)
        talk.metadata(conn, [topic()], ((1, "10.0.0.1", 9093),), 5)
        for _ in range(3):
            talk.produce(conn, batch(sent), version=5, base=sent)
            sent += 3
            talk.wait(1)
        talk.wait(3600)
        data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch(sent)}]}]
        talk.pipelined(conn, ("Produce", 5, {"acks": -1, "timeout_ms": 30000, "topic_data": data}))
        talk.wait(30)
        talk.close(conn)
        talk.wait(0.05)
    return talk


def more_partitions_than_the_service_allows() -> Conversations:
    talk = Talk("kgo", "v1.16.1", release="3.6", client_id="redpanda-console")
    three = tuple((n, f"10.0.0.{n + 1}", 9092) for n in range(3))
    for _ in range(2):
        conn = talk.meet()
        talk.metadata(conn, [], three, asked=[], version=9)
        new = {"name": "big", "num_partitions": 5000, "replication_factor": 3}
        refused = {"name": "big", "error_code": 37, "error_message": None}
        talk.ask(conn, "CreateTopics", 5, {"topics": [new], "timeout_ms": 15000}, {"topics": [refused]})
        talk.close(conn)
        talk.wait(5)
    return talk


def request_with_two_sizes(sizes: int = 2) -> Conversations:
    talk = Talk("kgo", "v1.20.0", release="3.9", client_id="kgo", client="10.0.0.9")
    for turn in range(4):
        conn = talk.meet()
        if sizes == 1:
            talk.fetch(conn, turn, batch(turn, 1), turn + 1, version=11, took=0.01)
            talk.close(conn)
            talk.wait(60)
            continue
        asked = {"topic": "orders", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}
        body = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "topics": [asked]}
        request = encode_request(facts.api_key("Fetch"), 11, body, correlation_id=7, client_id="kgo")
        talk.sent(conn, with_size(with_size(request)))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(0.3)
    return talk


def partition_given_twice(revoked: bool = False) -> Conversations:
    """A second member gets the partitions of the first, which keeps them, or has `revoked` half of them before."""
    one = Talk("librdkafka", "2.4.0", release="3.7", client_id="m1")
    two = Talk("librdkafka", "2.4.0", release="3.7", client_id="m2", client="10.0.0.6")
    two.inspector, two._number = one.inspector, 500
    orders = topic(partitions=2) | {"topic_id": uuid.UUID(int=5)}

    def beat(talk: Talk, conn: Connection, member: str, epoch: int, now: int, given: list[int] | None) -> None:
        body = {"group_id": "g", "member_id": member, "member_epoch": epoch, "rebalance_timeout_ms": 300000}
        if epoch == 0:
            body["subscribed_topic_names"], body["topic_partitions"] = ["orders"], []
        answer = {"member_id": member, "member_epoch": now, "heartbeat_interval_ms": 5000}
        if given is not None:
            answer["assignment"] = {"topic_partitions": [{"topic_id": orders["topic_id"], "partitions": given}]}
        talk.ask(conn, "ConsumerGroupHeartbeat", 0, body, answer)

    first = one.meet()
    one.metadata(first, [orders], version=12)
    beat(one, first, "m1", 0, 1, [0, 1])
    two.now = one.now
    second = two.meet()
    two.metadata(second, [orders], version=12)
    if revoked:
        beat(two, second, "m2", 0, 2, [])
        one.now = two.now
        beat(one, first, "m1", 1, 1, [0])
        beat(one, first, "m1", 1, 2, None)
        two.now = one.now
    beat(two, second, "m2", 2 if revoked else 0, 2, [1] if revoked else [0, 1])
    for at in range(10):
        one.fetch(first, at * 3, batch(at * 3), 1000, version=11, took=0.1)
        beat(one, first, "m1", 2 if revoked else 1, 2 if revoked else 1, None)
        two.now = one.now
        beat(two, second, "m2", 2, 2, None)
        one.now = two.now
        one.wait(5)
    one.close(first)
    two.close(second)
    return one


def unknown_error_when_the_leader_moves(error: int = -1) -> Conversations:
    talk = java("2.8.0", release="2.4", client_id="producer-1")
    conn = talk.meet()
    talk.metadata(conn, [topic(nodes=(1, 2))], TWO, 7)
    for at in range(3):
        talk.produce(conn, batch(at * 3), base=at * 3)
    talk.produce(conn, batch(9), error=error)
    moved = topic(leader=2, nodes=(1, 2))
    moved["partitions"][0]["leader_epoch"] = 5
    talk.metadata(conn, [moved], TWO, 7)
    other = talk.meet("10.0.0.2:9092")
    talk.produce(other, batch(12), base=9)
    talk.close(conn)
    talk.close(other)
    return talk


def partitions_with_an_int_too_many() -> Conversations:
    talk = java("3.9.1", release="3.9", client_id="console-producer")
    for _ in range(4):
        conn = talk.meet()
        talk.metadata(conn, [topic()], version=12)
        data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch()}]}]
        body = {"transactional_id": None, "acks": -1, "timeout_ms": 30000, "topic_data": data}
        (number,) = talk.pipelined(conn, ("Produce", 9, body))
        part = {"index": 0, "base_offset": 0, "log_append_time_ms": -1, "log_start_offset": 0}
        answer = {"responses": [{"name": "orders", "partition_responses": [part]}]}
        frame = encode_response(facts.api_key("Produce"), 9, answer, correlation_id=number)
        end = frame.index(b"\xff" * 8 + bytes(8)) + 16
        talk.received(conn, with_size(frame[:end] + bytes(4) + frame[end:]), 0.002)
        talk.wait(0.01)
        talk.close(conn)
        talk.wait(0.1)
    return talk


def sync_that_is_not_answered() -> Conversations:
    talk = Talk("kgo", "v1.20.6", release="3.9", client_id="kgo")
    mine = subscription(["orders"])
    kind = {"protocol_type": "consumer", "protocol_name": "cooperative-sticky"}

    def join(conn: Connection, member: str, generation: int, *members: str) -> None:
        protocols = [{"name": "cooperative-sticky", "metadata": mine}]
        body = {"group_id": "g", "session_timeout_ms": 45000, "rebalance_timeout_ms": 60000, "member_id": member}
        body |= {"protocol_type": "consumer", "protocols": protocols}
        listed = [{"member_id": each, "metadata": mine} for each in members]
        answer = kind | {"generation_id": generation, "leader": "kgo-a", "member_id": member, "members": listed}
        talk.ask(conn, "JoinGroup", 9, body, answer)

    def place(member: str, generation: int) -> Fields:
        return {"group_id": "g", "generation_id": generation, "member_id": member}

    first, second = talk.meet(), talk.meet()
    talk.metadata(first, [topic(partitions=2)], version=12)
    for conn in (first, second):
        talk.coordinator(conn, "g", version=4)
    join(first, "kgo-a", 0, "kgo-a")
    both = assignment("orders", 0, 1)
    talk.ask(first, "SyncGroup", 5, place("kgo-a", 0) | kind | {"assignments": []}, kind | {"assignment": both})
    for _ in range(3):
        talk.ask(first, "Heartbeat", 4, place("kgo-a", 0), {})
        talk.wait(3)
    join(second, "kgo-b", 1)
    talk.ask(first, "Heartbeat", 4, place("kgo-a", 0), {"error_code": 27})
    join(first, "kgo-a", 1, "kgo-a", "kgo-b")
    talk.ask(first, "SyncGroup", 5, place("kgo-a", 1) | kind | {"assignments": []}, kind | {"assignment": both})
    (number,) = talk.pipelined(second, ("SyncGroup", 5, place("kgo-b", 1) | kind | {"assignments": []}))
    for _ in range(15):
        talk.ask(first, "Heartbeat", 4, place("kgo-a", 1), {})
        talk.wait(3)
    refused = encode_response(facts.api_key("SyncGroup"), 5, {"error_code": 25}, correlation_id=number)
    talk.received(second, with_size(refused))
    talk.wait(1)
    talk.close(second)
    talk.close(first)
    return talk


GITHUB = "https://github.com"
STORIES = (
    Story(
        f"{GITHUB}/streamnative/kop/issues/135", "Java 2.3", "KoP",
        "ListOffsets for a time is answered with offset 12 and timestamp -1",
        "Kafka answers the timestamp of the record: the broker's fault; Java fails on the negative timestamp",
        time_without_a_timestamp, frozenset({"impossible-answer"}),
        (r"offset 12 and timestamp -1", r"IllegalArgumentException"),
    ),
    Story(
        f"{GITHUB}/kroxylicious/kroxylicious/issues/1028", "Java 3.7", "Kroxylicious 0.4",
        "Produce v10: NOT_LEADER_OR_FOLLOWER; node_endpoints has the address of the broker behind the proxy",
        "the proxy does not rewrite node_endpoints",
        endpoint_behind_the_proxy, frozenset({"node-endpoint-unknown"}),
        (r"kafka-1\.kafka\.svc:9092", r"10\.0\.0\.9:9194", r"upgrade the proxy"),
    ),
    Story(
        f"{GITHUB}/kroxylicious/kroxylicious/issues/822", "kaf (sarama)", "Kroxylicious before Confluent Cloud",
        "SaslHandshake v0, then a token without a header; FIN",
        "the proxy takes the token for a request: SaslHandshake v1",
        token_that_a_proxy_takes_for_a_request, frozenset({"sasl-raw-token-refused"}),
        (r"does not support tokens", r"SASLHandshakeV1"),
    ),
    Story(
        f"{GITHUB}/kafka4beam/brod/pull/465", "brod", "Redpanda 21.7",
        "JoinGroup v0 of a second member is answered at once; the first gets UNKNOWN_MEMBER_ID, joins again, and so on",
        "the coordinator does not wait for members that are there: v0 has no rebalance timeout",
        generations_of_one_member, frozenset({"members-not-waited-for"}),
        (r"without client 'brod'", r"JoinGroup v0 has no rebalance timeout", r"KIP-62"),
    ),
    Story(
        f"{GITHUB}/apache/kafka/pull/7795", "Java 2.3", "Kafka 2.3, in a reassignment",
        "Fetch: FENCED_LEADER_EPOCH; Metadata has the epoch of the request, each time",
        "the brokers do not show the leader's epoch (KAFKA-9212): the client cannot help it",
        epoch_that_metadata_does_not_show, frozenset({"fetch-error-loop"}),
        (r"FENCED_LEADER_EPOCH", r"epoch of these requests \(4\)", r"not the client's fault", r"KAFKA-9212"),
    ),
    Story(
        f"{GITHUB}/redpanda-data/redpanda/issues/3382", "librdkafka 1.8", "Redpanda 21.11",
        "DeleteTopics for a topic that is not there: CLUSTER_AUTHORIZATION_FAILED",
        "Kafka answers UNKNOWN_TOPIC_OR_PARTITION; no permission is missing",
        deletion_refused_for_the_cluster, frozenset({"impossible-answer"}),
        (r"CLUSTER_AUTHORIZATION_FAILED, which DeleteTopics never answers", r"developers of the broker"),
    ),
    Story(
        f"{GITHUB}/streamnative/kop/pull/242", "Java 2.0 admin client", "KoP 2.6",
        "Metadata has controller_id -1; the client asks again for ever",
        "without a controller, admin clients send nothing: the product leaves it empty",
        controller_of_nobody, frozenset({"no-controller"}), (r"controller_id -1", r"another product"),
    ),
    Story(
        f"{GITHUB}/redpanda-data/console/issues/390", "franz-go in Redpanda Console", "Kafka",
        "ApiVersions v3 with client_software_name 'RP Console': INVALID_REQUEST",
        "a software name has no space",
        software_name_with_a_space, frozenset({"unexplained-error"}),
        (r"RP Console", r"client_software_name", r"a space", r"KIP-511"),
    ),
    Story(
        f"{GITHUB}/apache/kafka/pull/15060", "Java 3.6", "Kafka 3.6 with tiered storage",
        "Fetch at 1: no records, at once, again and again; the high watermark is 5",
        "the remote segment has not the offset (KAFKA-15388): the broker's fault",
        segment_without_the_offset, frozenset({"fetch-returns-nothing"}),
        (r"offset 1 of orders-0", r"high watermark is 5", r"KAFKA-15388"),
    ),
    Story(
        f"{GITHUB}/apache/kafka/pull/15971", "a broker of Kafka 3.6 to 3.7", "a broker of Kafka 3.5",
        "AddPartitionsToTxn v4 is the first request of a connection: FIN",
        "the older broker does not have v4, and was not asked (KAFKA-16692)",
        version_that_the_older_broker_has_not, frozenset({"closed-on-first-request"}),
        (r"AddPartitionsToTxn v4", r"it does not support this version", r"does not send ApiVersions first"),
    ),
    Story(
        f"{GITHUB}/testcontainers/testcontainers-python/issues/170", "librdkafka 1.8 in Docker", "Kafka in "
        "Testcontainers",
        "bootstrap 172.17.0.1:32768; Metadata names localhost:32768",
        "localhost is the client's own container: advertised.listeners",
        localhost_from_a_container, frozenset({"unreachable-advertised-address"}),
        (r"localhost:32768", r"advertised\.listeners"),
    ),
    Story(
        f"{GITHUB}/SaaSy-Solutions/mockforge/pull/187", "librdkafka 2.3", "MockForge",
        "OffsetCommit of 5 is accepted; OffsetFetch: -1, after each start",
        "the broker forgets commits",
        commits_that_are_forgotten, frozenset({"committed-offset-lost"}),
        (r"after it accepted offset 5", r"another product"),
    ),
    Story(
        f"{GITHUB}/redpanda-data/redpanda/pull/30100", "franz-go in rpk", "Redpanda 25",
        "ListOffsets for the earliest offset: 0 with leader epoch 7; the record at 0 has epoch 3",
        "Kafka answers the epoch of the record: the broker's fault; groups that commit it do not go on",
        epoch_of_now_for_the_earliest_record, frozenset({"impossible-answer"}),
        (r"leader epoch 3 at offset 0; ListOffsets answered that offset with epoch 7",),
    ),
    Story(
        f"{GITHUB}/apache/kafka/pull/11300", "Java 3.0", "Kafka 3.0 before the fix",
        "FindCoordinator v4 is answered without the group and without an error, again and again",
        "the answer lacks the key (KAFKA-13260): the broker's fault",
        coordinators_that_are_left_out, frozenset({"impossible-answer"}), (r"coordinators lacks 'g'",),
    ),
    Story(
        f"{GITHUB}/confluentinc/librdkafka/issues/3277", "librdkafka 1.4", "Kafka 2.4 behind software load balancers",
        "NOT_LEADER_OR_FOLLOWER from the leader's address on some connections, success on others",
        "the address leads to several brokers",
        balancer_in_front_of_brokers, frozenset({"address-of-several-brokers"}),
        (r"on some connections", r"load balancer", r"advertised\.listeners"),
    ),
    Story(
        f"{GITHUB}/streamnative/kop/issues/765", "Java's console consumer", "KoP 2.8",
        "Fetch at an offset in a gap: nothing, for ever; the high watermark is far beyond it",
        "the product has no record there and does not go on to the next one",
        gap_of_offsets, frozenset({"fetch-returns-nothing"}),
        (r"offset 95719032467224513", r"a product reports a high watermark"),
    ),
    Story(
        f"{GITHUB}/streamnative/kop/issues/276", "Java 2.6", "KoP 2.7",
        "ListOffsets for the latest offset: 41; Fetch at 41 has a record each time, and the high watermark is 42",
        "the product answers the offset of the last record, where Kafka answers that of the next",
        end_that_is_the_last_record, frozenset({"log-end-back"}),
        (r"41 as the end of orders-0", r"42", r"offset of the last record instead"),
    ),
    Story(
        f"{GITHUB}/apache/kafka/pull/5991", "Java 2.0", "Kafka 2.0 when the leader moves",
        "the high watermark is 100; the new leader answers ListOffsets with 90, then Fetch with 100",
        "the new leader's high watermark lags (KIP-207, Kafka 2.2)",
        end_of_a_new_leader, frozenset({"log-end-back"}), (r"90 as the end", r"100", r"KIP-207"),
    ),
    Story(
        f"{GITHUB}/helm/charts/issues/11867", "kcat", "Kafka on GKE behind a load balancer",
        "bootstrap at a public address; Metadata names wfp-q-kafka-0.wfp-q-kafka-headless.wfp:9092",
        "these names resolve within the cluster only: advertised.listeners",
        names_within_kubernetes, frozenset({"unreachable-advertised-address"}),
        (r"headless\.wfp", r"within a Kubernetes cluster", r"advertised\.listeners"),
    ),
    Story(
        f"{GITHUB}/Azure/azure-event-hubs-for-kafka/issues/108", "Java 2.5 in Spring", "Azure Event Hubs",
        "Produce after an hour of silence is not answered for 30 s; a new connection works",
        "the load balancer has dropped the idle connection: connections.max.idle.ms",
        connections_that_are_dropped_while_idle, frozenset({"unanswered-request"}),
        (r"60 min without traffic", r"load balancer", r"connections\.max\.idle\.ms"),
    ),
    Story(
        f"{GITHUB}/redpanda-data/redpanda/issues/17213", "franz-go in Redpanda Console", "Redpanda Cloud",
        "CreateTopics with 5000 partitions: INVALID_PARTITIONS without a message",
        "the service limits partitions",
        more_partitions_than_the_service_allows, frozenset({"topic-creation-refused"}),
        (r"5,000 partitions", r"limit partitions"),
    ),
    Story(
        f"{GITHUB}/KafScale/platform/pull/157", "franz-go", "KafScale's proxy before its brokers",
        "Fetch requests with their size in front of them twice: FIN",
        "the proxy puts a size in front of a message that has one",
        request_with_two_sizes, frozenset({"wrong-frame-size"}),
        (r"Fetch v11 request", r"twice", r"the proxy that sends"),
    ),
    Story(
        f"{GITHUB}/KafScale/platform/pull/31", "Java 3.9", "KafScale",
        "Produce v9 is answered with four bytes too many in each partition",
        "the layout of the answer is wrong: the broker's fault",
        partitions_with_an_int_too_many, frozenset({"surplus-bytes"}),
        (r"Produce v9 response", r"wrong layout", r"4 extra bytes"),
    ),
    Story(
        f"{GITHUB}/apache/kafka/pull/15212", "librdkafka 2.4, group.protocol=consumer", "Kafka 3.7 in preview",
        "a member gets partitions that another one has and is not told to give up",
        "both read them: the broker's fault (KAFKA-16147)",
        partition_given_twice, frozenset({"partition-of-two-members"}),
        (r"orders-0, orders-1", r"member m1", r"KAFKA-16147"),
    ),
    Story(
        f"{GITHUB}/redpanda-data/redpanda/pull/2044", "Java 2.8", "Redpanda 21.7",
        "Produce: UNKNOWN_SERVER_ERROR once; Metadata names another leader right after",
        "Kafka answers NOT_LEADER_OR_FOLLOWER, and the producer goes to the new leader: the broker's fault",
        unknown_error_when_the_leader_moves, frozenset({"produce-refused"}),
        (r"UNKNOWN_SERVER_ERROR", r"another leader, broker 2", r"NOT_LEADER_OR_FOLLOWER"),
    ),
    Story(
        f"{GITHUB}/nisshi-io/nisshi/issues/625", "franz-go 1.20", "Tansu/Nisshi 0.6.0",
        "SyncGroup of a second member is not answered for 45 s, though the leader has sent its own; then "
        "UNKNOWN_MEMBER_ID",
        "a coordinator does not remove a member that waits in SyncGroup, and answers it once the leader has assigned",
        sync_that_is_not_answered, frozenset({"impossible-answer"}), (r"SyncGroup",),
        named=False, refuted=(r"JoinGroup for", r"poll more often", r"TLS|SASL", r"it is the client's fault"),
    ),
)  # fmt: skip
