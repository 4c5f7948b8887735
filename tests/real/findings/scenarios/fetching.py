"""Clients that fetch, ask and connect in the wrong way, and near-misses of that: real clients, or raw requests.

A scenario is run with the address of a proxy in front of a real broker (`Scenario.setting` says how it is set up) and
a topic of its own. It ends when it has seen what it waits for; `sleep` and `_poll_for` are there only where time must pass
at least. The recordings in tests/decoder/findings/captures come from these.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.waiting import PATIENCE, attempts, until
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from real.brokers.broker import Cluster, start_cluster
from real.findings.scenarios import scene
from real.findings.scenarios.edited_broker import EditedBroker
from real.findings.scenarios.group_clients import read
from real.findings.scenarios.raw_client import RawClient, batch

ODD = {
    "connections.max.idle.ms": 5500,
    "socket.request.max.bytes": 9000,
    "max.incremental.fetch.session.cache.slots": 1,
    "auto.create.topics.enable": "true",
}
"""A broker with little room and little patience."""


@dataclass(frozen=True)
class Scenario:
    """`run(bootstrap, topic)`. `setting`: "plain" (the session's broker), "odd" (one with `ODD`), "pair" (two brokers,
    replication factor 2; `run` gets the `Cluster` too), "silent" (Metadata is answered every second time only).
    `create`: whether the topic is there before. `kept`: whether its recording is small enough to be committed."""

    run: Callable[..., None]
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    setting: str = "plain"
    create: bool = True
    kept: bool = True


def _fill(bootstrap: str, topic: str, batches: int = 20, each: int = 1, size: int = 10, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "filler", "linger.ms": 50, **config})
    for _ in range(batches):
        for _ in range(each):
            producer.produce(topic, b"v" * size, partition=0)
        producer.flush(PATIENCE)


def _assigned(bootstrap: str, client_id: str, topic: str, offset: int, **config: Any) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "client.id": client_id, "group.id": f"g-{topic}", "enable.auto.commit": False}
        | config
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    return consumer


def _poll_for(consumer: Consumer, seconds: float) -> int:
    """Poll for at least so long; how many records came."""
    count = 0
    for _ in attempts(seconds, pause=0):
        message = consumer.poll(0.1)
        count += message is not None and message.error() is None
    return count


def _kafka_python(bootstrap: str, client_id: str, topic: str, **config: Any) -> KafkaConsumer:
    """kafka-python's consumer, from the beginning of a topic."""
    return KafkaConsumer(
        topic, bootstrap_servers=bootstrap, client_id=client_id, auto_offset_reset="earliest", **config
    )


def _transaction(bootstrap: str, topic: str) -> Producer:
    """A transactional producer that has written one record and not committed it."""
    writer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": "booker", "transactional.id": f"booking-{topic}", "linger.ms": 0}
    )
    writer.init_transactions(PATIENCE)
    writer.begin_transaction()
    writer.produce(topic, b"reserved")
    writer.flush(PATIENCE)
    return writer


def _fetch(topic: str, offset: int = 0, **more: Any) -> dict[str, Any]:
    """A Fetch v12 of partition 0."""
    names = ("current_leader_epoch", "last_fetched_epoch", "partition_max_bytes")
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    partition |= {name: more.pop(name) for name in names if name in more}
    return {
        "max_wait_ms": 100,
        "min_bytes": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
    } | more


def _ask_often(bootstrap: str, name: str, body: dict[str, Any], count: int, pause: float) -> None:
    with RawClient(bootstrap, name) as client:
        client.api_versions()
        for _ in range(count):
            client.ask("Fetch", 12, body)
            sleep(pause)


# fetching


def empty_loop(bootstrap: str, topic: str) -> None:
    """librdkafka with fetch.wait.max.ms=25 at the end of a topic."""
    consumer = _assigned(bootstrap, "impatient", topic, 0, **{"fetch.wait.max.ms": 25})
    _poll_for(consumer, 8)
    consumer.close()


def short_wait(bootstrap: str, topic: str) -> None:
    """The near-miss: 150 ms."""
    consumer = _assigned(bootstrap, "brisk", topic, 0, **{"fetch.wait.max.ms": 150})
    _poll_for(consumer, 5)
    consumer.close()


def deleted_before_read(bootstrap: str, topic: str) -> None:
    """Records are deleted; a consumer begins before them, and librdkafka resets to the earliest."""
    _fill(bootstrap, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "cleaner"})
    for done in admin.delete_records([TopicPartition(topic, 0, 15)]).values():
        done.result(PATIENCE)
    consumer = _assigned(bootstrap, "slow-reader", topic, 3, **{"auto.offset.reset": "earliest"})
    read(consumer, 5)
    consumer.close()


def out_of_range_loop(bootstrap: str, topic: str) -> None:
    """A client that asks on for an offset beyond the end: the topic was made anew with fewer records."""
    _fill(bootstrap, topic, 3)
    with RawClient(bootstrap, "stubborn") as client:
        client.ask("Fetch", 12, _fetch(topic))
        for _ in range(8):
            client.ask("Fetch", 12, _fetch(topic, 5000))
            sleep(0.2)


def falls_behind(bootstrap: str, topic: str) -> None:
    """800 records each second in one batch, and kafka-python takes half a batch a second."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "meter",
            "compression.type": "zstd",
            "linger.ms": 5000,
            "batch.num.messages": 800,
        }
    )
    consumer = _kafka_python(bootstrap, "archiver", topic, max_partition_fetch_bytes=1, max_poll_records=400)
    for _ in range(20):
        for _ in range(800):
            producer.produce(topic, b"reading", partition=0)
        producer.flush(PATIENCE)
        until(lambda: consumer.poll(500), "no records")
        sleep(1)
    consumer.close()


def catches_up(bootstrap: str, topic: str) -> None:
    """The near-miss: a consumer begins far behind and reads it all, a little at a time."""
    _fill(bootstrap, topic, 12, 500, **{"compression.type": "zstd"})
    consumer = _kafka_python(bootstrap, "late-comer", topic, max_partition_fetch_bytes=1, max_poll_records=500)
    count = 0
    while count < 6000:
        count += sum(map(len, until(lambda: consumer.poll(500), "no records").values()))
        sleep(1)
    consumer.close()


def _behind_a_transaction(seconds: float) -> Callable[[str, str], None]:
    def run(bootstrap: str, topic: str) -> None:
        writer = _transaction(bootstrap, topic)
        _fill(bootstrap, topic, 3)
        consumer = _assigned(bootstrap, "accountant", topic, 0, **{"isolation.level": "read_committed"})
        assert _poll_for(consumer, seconds) == 0
        writer.commit_transaction(PATIENCE)
        read(consumer, 4)
        consumer.close()

    return run


def behind_a_transaction_with_a_session(bootstrap: str, topic: str) -> None:
    """The same with kafka-python, whose sessions leave a partition without news out of the answers."""
    writer = _transaction(bootstrap, topic)
    consumer = _kafka_python(bootstrap, "auditor", topic, isolation_level="read_committed")
    for _ in attempts(7, pause=0):
        consumer.poll(200)
    writer.abort_transaction(PATIENCE)
    consumer.close()


def wrong_epoch(bootstrap: str, topic: str) -> None:
    """A client believes in a leader epoch that is not there yet: UNKNOWN_LEADER_EPOCH, again and again."""
    _ask_often(bootstrap, "prophet", _fetch(topic, current_leader_epoch=7), 8, 0.8)


def error_that_passes(bootstrap: str, topic: str) -> None:
    """The near-miss: the same error four times, then the right epoch."""
    with RawClient(bootstrap, "prophet") as client:
        client.api_versions()
        for epoch in (7, 7, 7, 7, 0, 7, 7, 7, 0):
            client.ask("Fetch", 12, _fetch(topic, current_leader_epoch=epoch))
            sleep(0.7)


def small_limit(bootstrap: str, topic: str) -> None:
    """Batches of 700 bytes and a consumer that asks for 100."""
    _fill(bootstrap, topic, 8, 1, 700)
    consumer = _assigned(bootstrap, "sipping", topic, 0, **{"max.partition.fetch.bytes": 100})
    read(consumer, 8)
    consumer.close()


def diverging_log(bootstrap: str, topic: str) -> None:
    """A client that has fetched beyond the end of the epoch: what an unclean election leaves behind."""
    _fill(bootstrap, topic, 4)
    with RawClient(bootstrap, "survivor") as client:
        client.ask("Fetch", 12, _fetch(topic, 2))
        asked = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
        client.ask("OffsetForLeaderEpoch", 3, {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]})
        client.ask("Fetch", 12, _fetch(topic, 9, current_leader_epoch=0, last_fetched_epoch=0))


# sessions


def unknown_session(bootstrap: str, topic: str) -> None:
    """A client that goes on with a session that the broker has forgotten."""
    _ask_often(bootstrap, "amnesiac", _fetch(topic, session_id=12345, session_epoch=3), 6, 0.2)


def session_each_time(bootstrap: str, topic: str) -> None:
    """A client that begins a session with every request."""
    _ask_often(bootstrap, "beginner", _fetch(topic, session_epoch=0), 8, 0.1)


def no_slot_left(bootstrap: str, topic: str) -> None:
    """kafka-python, and no slot in the shard of the cache that its session would belong to."""
    consumer = _kafka_python(bootstrap, "has-none", topic)
    for _ in attempts(8, pause=0):
        consumer.poll(50)
    consumer.close()


def all_partitions_each_time(bootstrap: str, topic: str) -> None:
    """A client without sessions and 150 partitions, once: the tests repeat it."""
    partitions = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for n in range(150)]
    with RawClient(bootstrap, "broad") as client:
        client.api_versions()
        body = _fetch(topic)
        body["topics"][0]["partitions"] = partitions
        client.ask("Fetch", 12, body)


# metadata


def lists_topics(bootstrap: str, topic: str) -> None:
    """librdkafka asked for the metadata of a topic five times a second."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "curious"})
    for _ in range(45):
        admin.list_topics(topic, PATIENCE)
        sleep(0.2)


def lists_topics_seldom(bootstrap: str, topic: str) -> None:
    """The near-miss: once a second."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "calm"})
    for _ in range(8):
        admin.list_topics(topic, PATIENCE)
        sleep(1)


def unknown_topic(bootstrap: str, topic: str) -> None:
    """kafka-python produces to a topic that is not there."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="typo", max_block_ms=8000, retry_backoff_ms=300)
    with suppress(KafkaError):
        producer.send(f"{topic}-mistyped", b"x")
    producer.close()


def topic_made_late(bootstrap: str, topic: str) -> None:
    """The near-miss: somebody creates it after a second."""
    late = f"{topic}-late"

    def create() -> None:
        sleep(1)
        admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "operator"})
        admin.create_topics([NewTopic(late, 1, 1)])[late].result(PATIENCE)

    thread = threading.Thread(target=create)
    thread.start()
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="early-bird", retry_backoff_ms=100)
    producer.send(late, b"x").get(PATIENCE)
    producer.close()
    thread.join()


def illegal_name(bootstrap: str, topic: str) -> None:
    """A list of topics that was not split."""
    AdminClient({"bootstrap.servers": bootstrap, "client.id": "joined"}).list_topics("orders, payments", PATIENCE)


def made_by_asking(bootstrap: str, topic: str) -> None:
    """A producer sends to a topic that is made for it."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "pioneer"})
    producer.produce(f"{topic}-by-itself", b"x")
    assert producer.flush(PATIENCE) == 0


def node_stops(bootstrap: str, topic: str, cluster: Cluster) -> None:
    """One of two brokers stops: the topic with one replica there is left without a leader, the other one goes on."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "watcher"})
    alone, both = f"{topic}-one", f"{topic}-two"
    new = [NewTopic(alone, 1, replica_assignment=[[2]]), NewTopic(both, 1, replica_assignment=[[1, 2]])]
    for made in admin.create_topics(new).values():
        made.result(PATIENCE)

    def look() -> int | None:
        """The leader of the topic with one replica."""
        leader = None
        with suppress(Exception):
            for name in (both, alone):
                leader = admin.list_topics(name, 3).topics[name].partitions[0].leader
        return leader

    until(lambda: look() == 2, look)
    cluster.nodes[1].stop()
    until(lambda: look() == -1, look, pause=1)
    for _ in attempts(8, pause=1):
        look()


# latency


def no_answer(bootstrap: str, topic: str) -> None:
    """The broker (see setting "silent") keeps the answer; the client gives up after 4 s."""
    with RawClient(bootstrap, "patient") as client:
        client.api_versions()
        client.send("Metadata", 5, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
        sleep(4)


def closes_in_a_long_poll(bootstrap: str, topic: str) -> None:
    """The near-miss: a client goes while its Fetch waits for records."""
    with RawClient(bootstrap, "goes-home") as client:
        client.api_versions()
        client.send("Fetch", 12, _fetch(topic, max_wait_ms=10000))
        sleep(3.5)


def commits_behind_fetch(bootstrap: str, topic: str) -> None:
    """A client that commits on the connection that fetches."""
    with RawClient(bootstrap, "one-lane") as client:
        client.ask("FindCoordinator", 3, {"key": f"g-{topic}", "key_type": 0})
        for _ in range(7):
            client.send("Fetch", 12, _fetch(topic, max_wait_ms=400))
            commit = {"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 0}]}
            client.send("OffsetCommit", 7, {"group_id": f"g-{topic}", "topics": [commit]})
            client.receive()
            client.receive()


def steady_asker(bootstrap: str, topic: str) -> None:
    """75 answers over 7 s: the tests make some of them late."""
    body = {"replica_id": -1, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    with RawClient(bootstrap, "steady") as client:
        client.api_versions(0)
        for _ in range(75):
            client.ask("ListOffsets", 5, body)
            sleep(0.09)


# quotas


def _quota(bootstrap: str, client_id: str, key: str, value: float | None) -> None:
    op = {"key": key, "value": value or 0.0, "remove": value is None}
    entry = {"entity": [{"entity_type": "client-id", "entity_name": client_id}], "ops": [op]}
    with RawClient(bootstrap, "operator") as client:
        answer = client.ask("AlterClientQuotas", 1, {"entries": [entry], "validate_only": False})
        assert answer is not None and answer["entries[0].error_code"] == 0
        component = {"entity_type": "client-id", "match_type": 0, "match": client_id}

        def known() -> bool:
            answer = client.ask("DescribeClientQuotas", 1, {"components": [component], "strict": True})
            assert answer is not None
            return bool(answer["entries"]) == (value is not None)

        until(known, f"the quota of {client_id}", pause=0.1)
    sleep(0.5)  # until the broker has taken it over


def throttled_producer(bootstrap: str, topic: str) -> None:
    """librdkafka with producer_byte_rate=1000."""
    _quota(bootstrap, "loader", "producer_byte_rate", 1000)
    throttled: list[float] = []

    def on_throttle(event: ThrottleEvent) -> None:
        throttled.append(event.throttle_time)

    config = {"bootstrap.servers": bootstrap, "client.id": "loader", "linger.ms": 0, "throttle_cb": on_throttle}
    producer = Producer(config)

    def enough() -> bool:
        producer.produce(topic, b"v" * 4000, partition=0)
        producer.flush(PATIENCE)
        return len(throttled) >= 3

    until(enough, lambda: f"throttled {throttled}")
    _quota(bootstrap, "loader", "producer_byte_rate", None)


def throttled_consumer(bootstrap: str, topic: str) -> None:
    """kafka-python with consumer_byte_rate=1000."""
    _fill(bootstrap, topic, 6, 1, 2000)
    _quota(bootstrap, "reader", "consumer_byte_rate", 1000)
    consumer = _kafka_python(bootstrap, "reader", topic, max_partition_fetch_bytes=2100)
    for _ in attempts(6, pause=0):
        consumer.poll(200)
    consumer.close()
    _quota(bootstrap, "reader", "consumer_byte_rate", None)


def quota_not_reached(bootstrap: str, topic: str) -> None:
    """The near-miss: a quota with room."""
    _quota(bootstrap, "modest", "producer_byte_rate", 1_000_000)
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "modest", "linger.ms": 0})
    for _ in range(6):
        producer.produce(topic, b"v" * 100, partition=0)
        producer.flush(PATIENCE)
    _quota(bootstrap, "modest", "producer_byte_rate", None)


# connections


def client_per_record(bootstrap: str, topic: str) -> None:
    """A client that connects, produces one record and goes."""
    for _ in range(13):
        with RawClient(bootstrap, "throwaway") as client:
            client.api_versions()
            client.metadata(topic, 5)
            client.produce(topic, batch(value=b"x"), acks=1, version=7)


def producer_per_record(bootstrap: str, topic: str) -> None:
    """kafka-python: a producer for every record."""
    for number in range(14):
        producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="wasteful", enable_idempotence=False)
        producer.send(topic, b"%d" % number).get(PATIENCE)
        producer.close()


def client_per_batch_job(bootstrap: str, topic: str) -> None:
    """The near-miss: four jobs, one producer each, with some records."""
    for _ in range(4):
        producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="nightly", enable_idempotence=False)
        for number in range(5):
            producer.send(topic, b"%d" % number).get(PATIENCE)
        producer.close()


def short_connections(bootstrap: str, topic: str) -> None:
    """A probe that asks for a coordinator on a connection of its own each time."""
    for _ in range(31):
        with RawClient(bootstrap, "probe") as client:
            client.ask("FindCoordinator", 3, {"key": "g", "key_type": 0})


def never_used(bootstrap: str, topic: str) -> None:
    """Port probes."""
    for _ in range(7):
        RawClient(bootstrap, "silent").close()
        sleep(0.05)


def many_at_once(bootstrap: str, topic: str) -> None:
    """55 connections of one client."""
    with ExitStack() as stack:
        for _ in range(55):
            client = stack.enter_context(RawClient(bootstrap, "hoarder"))
            client.metadata(topic, 5)
        sleep(5.2)


def idle_connection(bootstrap: str, topic: str) -> None:
    """A connection that the broker closes because nothing happens."""
    with RawClient(bootstrap, "sleepy") as client:
        client.api_versions()
        client.metadata(topic, 5)
        assert client.receive() is None


def request_too_large(bootstrap: str, topic: str) -> None:
    """Requests over socket.request.max.bytes, three times: the broker ends the connection."""
    for _ in range(3):
        with RawClient(bootstrap, "bulky") as client:
            client.metadata(topic, 5)
            commit = {"name": topic, "partitions": [{"partition_index": 0, "committed_metadata": "m" * 10000}]}
            assert client.ask("OffsetCommit", 7, {"group_id": "g", "topics": [commit]}) is None


def unknown_api(bootstrap: str, topic: str) -> None:
    """An api key that no Kafka has, and a version of the future."""
    for head in (b"\x03\xe7\x00\x00", b"\x00\x03\x00\x63"):
        with RawClient(bootstrap, "vendor") as client:
            client.api_versions()
            client.send_frame(head + b"\x00\x00\x00\x09\x00\x06vendor\x00")
            assert client.receive() is None


SCENARIOS = {
    run.__name__.replace("_", "-"): Scenario(run)
    for run in (
        empty_loop, short_wait, deleted_before_read, out_of_range_loop, falls_behind, catches_up,
        behind_a_transaction_with_a_session, wrong_epoch, error_that_passes, small_limit, diverging_log,
        unknown_session, session_each_time, lists_topics, lists_topics_seldom, unknown_topic, topic_made_late,
        illegal_name, closes_in_a_long_poll, commits_behind_fetch, steady_asker, throttled_producer, throttled_consumer,
        quota_not_reached, client_per_record, client_per_batch_job, short_connections, never_used, unknown_api,
    )
} | {
    "behind-a-transaction": Scenario(_behind_a_transaction(11)),
    "short-transaction": Scenario(_behind_a_transaction(2)),
    "no-slot-left": Scenario(no_slot_left, setting="odd"),
    "all-partitions-each-time": Scenario(all_partitions_each_time, partitions=150),
    "made-by-asking": Scenario(made_by_asking, setting="odd", create=False),
    "node-stops": Scenario(node_stops, setting="pair", create=False),
    "no-answer": Scenario(no_answer, setting="silent"),
    "producer-per-record": Scenario(producer_per_record, kept=False),
    "many-at-once": Scenario(many_at_once, kept=False),
    "idle-connection": Scenario(idle_connection, setting="odd"),
    "request-too-large": Scenario(request_too_large, setting="odd"),
}  # fmt: skip


def record(name: str, cluster: Cluster, folder: Path) -> Path:
    """Run a scenario through a recording proxy; the folder of the recording. `cluster`: of the scenario's setting."""
    scenario, topic = SCENARIOS[name], f"f-{name}"
    if scenario.create:
        scene.create(cluster.bootstrap, topic, scenario.partitions, config=dict(scenario.config))
    run = partial(scenario.run, topic=topic, **({"cluster": cluster} if scenario.setting == "pair" else {}))
    with ExitStack() as stack:
        upstream = cluster.addresses[0]
        if scenario.setting == "silent":
            upstream = stack.enter_context(EditedBroker(upstream, swaps="Metadata")).address
        return scene.record(upstream, run, folder)


def started(setting: str) -> Cluster:
    """A cluster for scenarios of this setting."""
    return start_cluster(2 if setting == "pair" else 1, ODD if setting == "odd" else None)
