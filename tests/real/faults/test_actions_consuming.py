"""What real consumers, their groups and their coordinators' clients do about faults: as Kafka's documentation says.

As in `test_actions_producing`: librdkafka's mock brokers, one proxy for the module, one rule at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from barnabas.ui.testing.fixture import Barnabas
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from harness.run.slices import only, slow
from harness.waiting import PATIENCE, until
from real.brokers.fault_bench import cursor, injected, seen
from real.clients.confluent_client import flush

COUNT = 20
QUICK = {
    "retry.backoff.ms": 20, "retry.backoff.max.ms": 60, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "log_level": 0,
    "topic.metadata.refresh.fast.interval.ms": 20, "fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 20,
    "heartbeat.interval.ms": 100, "session.timeout.ms": 6000, "auto.offset.reset": "earliest", "enable.auto.commit": False,
    "coordinator.query.interval.ms": 200,
}  # fmt: skip


@pytest.fixture(scope="module")
def bench(mock_bench: Barnabas) -> Barnabas:
    """In front of mock brokers."""
    return mock_bench


@pytest.fixture(scope="module")
def topic(bench: Barnabas) -> str:
    """Records 0, 1, 2 ... in one partition."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 0})
    for number in range(COUNT):
        producer.produce(name, str(number), partition=0)
        flush(producer)
    return name


class Reader:
    """A consumer, what it has read, and the errors it reported."""

    def __init__(self, bench: Barnabas, group: str, **config: Any) -> None:
        self.consumer = Consumer({"bootstrap.servers": bench.bootstrap, "group.id": group} | QUICK | config)
        self.values: list[int] = []
        self.errors: list[int] = []

    def read_until(self, what: Callable[[], bool]) -> None:
        until(lambda: self._poll() or what(), lambda: (self.values, self.errors), pause=0)

    def _poll(self) -> None:
        message = self.consumer.poll(0.1)
        if message is not None and message.error() is not None:
            self.errors.append(message.error().code())
        elif message is not None:
            self.values.append(int(message.value()))

    def all(self) -> bool:
        return len(self.values) >= COUNT

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def assigned(bench: Barnabas, topic: str, **config: Any) -> Reader:
    reader = Reader(bench, new_group(), **config)
    reader.consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    return reader


@pytest.mark.parametrize(
    ("error", "asks"),
    [
        # These two name the leader from Fetch v16 on (KIP-951): the client may go on without asking for Metadata.
        ("NOT_LEADER_OR_FOLLOWER", "Fetch"),
        pytest.param("FENCED_LEADER_EPOCH", "Fetch", marks=pytest.mark.slow),
        pytest.param("UNKNOWN_TOPIC_OR_PARTITION", "Metadata", marks=pytest.mark.slow),
    ],
)
def test_a_fetch_is_refused_and_sent_again(bench: Barnabas, topic: str, error: str, asks: str) -> None:
    begin = cursor(bench)
    with bench.inject(api="Fetch", topic=topic, error=error, times=1) as fault, assigned(bench, topic) as reader:
        reader.read_until(reader.all)
        assert reader.values == list(range(COUNT)) and fault.hits == 1
    apis = [(each["api"], each["error"]) for each in seen(bench, begin)]
    assert asks in [api for api, failed in apis[apis.index(("Fetch", error)) + 1 :] if not failed]


@pytest.mark.slow
def test_an_offset_out_of_range_goes_where_the_setting_says(bench: Barnabas, topic: str) -> None:
    """auto.offset.reset: earliest reads from the start again, error is reported."""
    out = {"api": "Fetch", "topic": topic, "error": "OFFSET_OUT_OF_RANGE", "times": 1}
    match = "any(req.topics[*].partitions[*].fetch_offset > 0)"
    with assigned(bench, topic) as reader:
        reader.read_until(reader.all)
        with bench.inject(match, **out):
            reader.read_until(lambda: len(reader.values) >= 2 * COUNT)
        assert reader.values == [*range(COUNT)] * 2
    with assigned(bench, topic, **{"auto.offset.reset": "error"}) as reader:
        reader.read_until(reader.all)
        with bench.inject(match, **out):
            reader.read_until(lambda: bool(reader.errors))
        assert reader.errors == [KafkaError._AUTO_OFFSET_RESET]


def test_a_missing_acl_is_reported(bench: Barnabas, topic: str) -> None:
    with (
        bench.inject(api="Fetch", topic=topic, error="TOPIC_AUTHORIZATION_FAILED"),
        assigned(bench, topic) as reader,
    ):
        reader.read_until(lambda: bool(reader.errors))
        assert reader.errors[0] == KafkaError.TOPIC_AUTHORIZATION_FAILED and reader.values == []


@pytest.mark.parametrize("kind", only(["crc", "payload"], "crc"))
def test_a_damaged_batch_is_not_given_out(bench: Barnabas, topic: str, kind: str) -> None:
    """With check.crcs the consumer reports the damage; no damaged record reaches its user."""
    wrong = {"corrupt": kind} | ({"crc": "kept"} if kind == "payload" else {})
    with (
        bench.inject("resp.throttle_time_ms >= 0", api="Fetch", topic=topic, do=wrong),
        assigned(bench, topic, **{"check.crcs": True}) as reader,
    ):
        reader.read_until(lambda: bool(reader.errors))
        assert set(reader.errors) == {KafkaError._BAD_MSG} and reader.values == []


@pytest.mark.parametrize(
    "kind", only(["torn", "bits", "batch-length", "magic", "codec", "varint", "record-count"], "torn", "bits")
)
def test_an_unreadable_batch_is_reported_or_left(bench: Barnabas, topic: str, kind: str) -> None:
    """What cannot be read is never given out as a record; when it is mended the consumer has all."""
    wrong = {"corrupt": kind} | ({"count": 8} if kind == "bits" else {})
    with bench.inject("resp.throttle_time_ms >= 0", api="Fetch", topic=topic, do=wrong, times=2) as fault:
        reader = assigned(bench, topic, **{"check.crcs": kind == "bits"})
        fault.wait(2, PATIENCE)
    with reader:
        # it goes on behind what it has reported, or reads it all again: either way it comes to the last record
        reader.read_until(lambda: reader.values[-1:] == [COUNT - 1])
        assert reader.values == sorted(set(reader.values)) and set(reader.values) <= set(range(COUNT))
        assert reader.errors or reader.values == list(range(COUNT))


@pytest.mark.slow
def test_a_duplicate_batch_is_read_once_only_if_its_offsets_say_so(bench: Barnabas, topic: str) -> None:
    """The copy of a batch has the offsets of the first: a consumer that stands behind them leaves it out."""
    with (
        bench.inject("resp.throttle_time_ms >= 0", api="Fetch", topic=topic, do={"corrupt": "duplicate"}),
        assigned(bench, topic) as reader,
    ):
        reader.read_until(reader.all)
        reader.read_until(lambda: reader.values[-1] == COUNT - 1)
    assert sorted(set(reader.values)) == list(range(COUNT))


def joined(bench: Barnabas, topic: str, **config: Any) -> Reader:
    reader = Reader(bench, new_group(), **config)
    reader.consumer.subscribe([topic])
    return reader


@pytest.mark.parametrize(
    ("api", "error", "asks"),
    [
        ("Heartbeat", "NOT_COORDINATOR", "FindCoordinator"),
        slow(("Heartbeat", "ILLEGAL_GENERATION", "JoinGroup")),
        slow(("Heartbeat", "UNKNOWN_MEMBER_ID", "JoinGroup")),
        slow(("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", "JoinGroup")),
        slow(("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", "OffsetFetch")),
        slow(("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", "FindCoordinator")),
    ],
)
def test_members_rejoin(bench: Barnabas, topic: str, api: str, error: str, asks: str) -> None:
    with bench.inject(api=api, error=error, times=1) as fault, joined(bench, topic) as reader:
        reader.read_until(lambda: reader.all() and fault.hits == 1)
        (hit,) = fault.exchanges
        reader.read_until(
            lambda: bool(bench.control.exchange_page(f"api == {asks}", since=hit["id"], limit=1)["exchanges"])
        )
        assert reader.errors == [] and sorted(set(reader.values)) == list(range(COUNT))


@pytest.mark.slow
def test_a_fenced_instance_ends(bench: Barnabas, topic: str) -> None:
    """KIP-345: another member has the instance id; this one stops, for good."""
    with joined(bench, topic, **{"group.instance.id": "one"}) as reader:
        reader.read_until(reader.all)
        with bench.inject(api="Heartbeat", error="FENCED_INSTANCE_ID", times=1):
            reader.read_until(lambda: bool(reader.errors))
    assert reader.errors[0] in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)


@pytest.mark.parametrize("error", ["GROUP_AUTHORIZATION_FAILED", "INVALID_SESSION_TIMEOUT"])
def test_refused_joins(bench: Barnabas, topic: str, error: str) -> None:
    with bench.inject(api="JoinGroup", error=error), joined(bench, topic) as reader:
        reader.read_until(lambda: bool(reader.errors))
        assert reader.errors[0] == getattr(KafkaError, error) and reader.values == []


@pytest.mark.slow
def test_refused_commits(bench: Barnabas, topic: str) -> None:
    """A commit in a generation that is over fails; one at the wrong broker is sent to the right one."""
    with joined(bench, topic) as reader:
        reader.read_until(reader.all)
        with injected(bench, api="OffsetCommit", error="NOT_COORDINATOR", times=1):
            committed = reader.consumer.commit(asynchronous=False)
            assert [each.offset for each in committed if each.partition == 0] == [COUNT]
        for error in ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"):
            refused = bench.inject(api="OffsetCommit", error=error, times=1)
            with refused, pytest.raises(KafkaException) as raised:
                reader.consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
            assert raised.value.args[0].code() == getattr(KafkaError, error)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["moved", pytest.param("none", marks=pytest.mark.slow)])
def test_a_moved_coordinator(bench: Barnabas, topic: str, to: str) -> None:
    """The client asks FindCoordinator until it is right; a broker that is not the coordinator says so."""
    with bench.inject(api="FindCoordinator", coordinator=to, times=1) as fault, joined(bench, topic) as reader:
        reader.read_until(reader.all)
        assert fault.hits == 1 and reader.values == list(range(COUNT))
