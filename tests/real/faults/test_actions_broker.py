"""Faults whose effect only a real broker shows, or another client than librdkafka: sessions, CRCs, ids, answers of a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from barnabas.ui.testing.fixture import Barnabas
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import CorruptRecordError, TopicAuthorizationFailedError
from kafka.structs import TopicPartition as Partition
from real.brokers.fault_bench import cursor, injected, new_topic, seen
from real.clients import confluent_client
from real.clients.confluent_client import flush, read
from real.clients.workload import Deadline


def send(bench: Barnabas, topic: str, values: range, **config: Any) -> None:
    confluent_client.send(bench.bootstrap, topic, map(str, values), **{"retry.backoff.ms": 20, **config})


def read_all(bench: Barnabas, topic: str, count: int) -> list[int]:
    """With librdkafka, which begins no fetch sessions."""
    consumer = Consumer({"bootstrap.servers": bench.bootstrap, "group.id": topic, "check.crcs": True, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values = [int(message.value()) for message in read(consumer, count)]
    consumer.close()
    return values


@pytest.fixture
def reader(bench: Barnabas) -> Iterator[Callable[..., KafkaConsumer]]:
    """``reader(topics)``: a kafka-python consumer, which uses fetch sessions."""
    made: list[KafkaConsumer] = []

    def make(*topics: str, **config: Any) -> KafkaConsumer:
        consumer = KafkaConsumer(
            bootstrap_servers=bench.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, group_id=None,
            fetch_max_wait_ms=100, retry_backoff_ms=20, **config,
        )  # fmt: skip
        made.append(consumer)
        consumer.assign([Partition(topic, 0) for topic in topics])
        consumer.seek_to_beginning()
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def poll_until(consumer: KafkaConsumer, what: Callable[[], bool], values: list[tuple[str, int]]) -> None:
    deadline = Deadline()
    while not what():
        deadline.check(f"what was to come; read so far: {values}")
        for batch in consumer.poll(timeout_ms=100).values():
            values += [(record.topic, int(record.value)) for record in batch]


def fetches(bench: Barnabas, since: int) -> list[tuple[int, int, int, str | None]]:
    """(session id, epoch, topics, error) of the Fetch requests since then, as the client sent them."""
    return [
        (each["request"]["session_id"], each["request"]["session_epoch"], len(each["request"]["topics"]), each["error"])
        for each in bench.exchanges("api == Fetch")
        if each["id"] > since
    ]


@pytest.mark.slow
def test_rules_know_the_topics_of_a_fetch_session(bench: Barnabas, reader: Callable[..., KafkaConsumer]) -> None:
    """KIP-227: a consumer that stands in a session names no topics; a rule about one of them finds it all the same."""
    one, two = new_topic(bench), new_topic(bench)
    for topic in (one, two):
        send(bench, topic, range(3))
    begin = cursor(bench)
    values: list[tuple[str, int]] = []
    consumer = reader(one, two)

    def in_session() -> bool:
        return any(session and epoch > 1 and not topics for session, epoch, topics, _ in fetches(bench, begin))

    poll_until(consumer, in_session, values)
    assert sorted(values) == sorted((topic, number) for topic in (one, two) for number in range(3))

    begin = cursor(bench)
    with bench.inject(api="Fetch", topic=two, error="NOT_LEADER_OR_FOLLOWER", times=3) as fault:
        poll_until(consumer, lambda: fault.hits == 3, values)
    seen(bench, begin)
    found = fetches(bench, begin)
    # Its session was ended, once; then every request is a whole one, and no session begins while the rule may fire.
    first = next(index for index, each in enumerate(found) if each[3] == "FETCH_SESSION_ID_NOT_FOUND")
    assert [each[3] for each in found].count("FETCH_SESSION_ID_NOT_FOUND") == 1
    last = max(index for index, each in enumerate(found) if each[3] == "NOT_LEADER_OR_FOLLOWER")
    assert all((session, epoch) == (0, 0) and topics for session, epoch, topics, _ in found[first + 1 : last + 1])

    send(bench, two, range(3, 6))
    poll_until(consumer, lambda: len(values) == 9, values)
    assert [number for topic, number in values if topic == two] == list(range(6))
    begin = cursor(bench)
    poll_until(consumer, in_session, values)  # the rule is gone: it is in a session again


def test_a_lost_session_begins_anew(bench: Barnabas, topic: str, reader: Callable[..., KafkaConsumer]) -> None:
    send(bench, topic, range(3))
    begin = cursor(bench)
    values: list[tuple[str, int]] = []
    consumer = reader(topic)
    with bench.inject("req.session_epoch > 2", api="Fetch", error="FETCH_SESSION_ID_NOT_FOUND", times=1) as fault:
        poll_until(consumer, lambda: fault.hits == 1, values)
        send(bench, topic, range(3, 5))
        poll_until(consumer, lambda: len(values) == 5, values)
    seen(bench, begin)
    found = fetches(bench, begin)
    lost = [each[3] for each in found].index("FETCH_SESSION_ID_NOT_FOUND")
    assert (0, 0, 1) in [each[:3] for each in found[lost + 1 :]]


def test_a_damaged_produce_is_refused_and_sent_again(bench: Barnabas, topic: str) -> None:
    """The broker checks the CRC: CORRUPT_MESSAGE, which is retriable. Each record is there once."""
    damage = {"corrupt": "payload", "in": "request", "crc": "kept"}
    with injected(bench, api="Produce", topic=topic, do=damage, after=1, times=2):
        send(bench, topic, range(4), **{"enable.idempotence": True})
    assert [each["error"] for each in seen(bench, 0, f"api == Produce and topic == {topic} and err != 0")] == [
        "CORRUPT_MESSAGE"
    ] * 2
    assert read_all(bench, topic, 4) == [0, 1, 2, 3]


@pytest.mark.parametrize(("kind", "error"), [("record-count", "INVALID_RECORD"), ("varint", "UNKNOWN")])
def test_an_invalid_batch_is_refused_for_good(
    bench: Barnabas, topic: str, kind: str, error: str
) -> None:
    """The CRC fits, the records do not: the broker's LogValidator looks into them, and no client sends them again. For a
    number without end it has no error of its own (UNKNOWN_SERVER_ERROR)."""
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 0, "log_level": 0})
    with injected(bench, api="Produce", topic=topic, do={"corrupt": kind, "in": "request"}, times=1):
        producer.produce(topic, "0", partition=0, on_delivery=lambda refused, _: failed.append(refused))
        flush(producer)
    assert [refused.name() for refused in failed] == [error]


def test_kafka_python_finds_the_damage(bench: Barnabas, topic: str, reader: Callable[..., KafkaConsumer]) -> None:
    send(bench, topic, range(3))
    consumer = reader(topic, check_crcs=True)
    wrong = bench.inject("resp.throttle_time_ms >= 0", api="Fetch", topic=topic, do={"corrupt": "crc"})
    with wrong, pytest.raises(CorruptRecordError):
        poll_until(consumer, lambda: False, [])


def test_kafka_python_goes_on_after_an_election_and_stops_at_an_acl(bench: Barnabas, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bench.bootstrap, retry_backoff_ms=30, reconnect_backoff_ms=10, retries=5)
    try:
        with injected(bench, api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2):
            assert producer.send(topic, b"1").get(PATIENCE).offset == 0
        refused = injected(bench, api="Produce", topic=topic, error="TOPIC_AUTHORIZATION_FAILED", times=1)
        with refused, pytest.raises(TopicAuthorizationFailedError):
            producer.send(topic, b"2").get(PATIENCE)
    finally:
        producer.close(timeout=PATIENCE)


@pytest.mark.slow  # the client waits for its timeout
@pytest.mark.parametrize(("kind", "name"), [("length", "a size beyond the end"), ("truncate", "half a frame")])
def test_incomplete_frames(bench: Barnabas, topic: str, kind: str, name: str) -> None:
    """Fewer bytes than their size says: the client gives the connection up and sends again. (What an action draws depends on
    the rule's name: of this one, a larger size. librdkafka may abort its whole process at a response cut in half, which is
    why another client stands here.)"""
    producer = KafkaProducer(
        bootstrap_servers=bench.bootstrap, retry_backoff_ms=30, reconnect_backoff_ms=10, retries=5, request_timeout_ms=5000
    )
    try:
        assert producer.send(topic, b"1").get(PATIENCE).offset == 0
        with injected(bench, api="Produce", topic=topic, do={"corrupt": kind}, times=1, name=name):
            assert producer.send(topic, b"2").get(PATIENCE).offset == 1
    finally:
        producer.close(timeout=PATIENCE)
    produced = seen(bench, 0, f"api == Produce and topic == {topic}")
    assert len(produced) == 3 and len({each["connection"] for each in produced}) == 2


def test_admin_shows_what_a_rule_answers(bench: Barnabas) -> None:
    admin = AdminClient({"bootstrap.servers": bench.bootstrap, "log_level": 0})
    canned = {"respond": {"groups": [{"group_id": "made up", "protocol_type": "consumer", "group_state": "Stable"}]}}
    with bench.inject(api="ListGroups", do=canned):
        listed = admin.list_consumer_groups(request_timeout=PATIENCE).result()
        assert {group.group_id for group in listed.valid} == {"made up"}
