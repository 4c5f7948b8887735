"""What real producers do about every fault that a rule can make of their requests: as Kafka's documentation says.

librdkafka's mock brokers answer; the proxy keeps one rule at a time. What clients then do is read off the wire, and off their
reports.
"""

from __future__ import annotations

import itertools
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from barnabas.ui.testing.fixture import Barnabas
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from harness.run.slices import only, slow
from harness.waiting import PATIENCE, PATIENCE_MS, until
from real.brokers.fault_bench import cursor, injected, seen
from real.clients.confluent_client import flush

QUICK = {
    "linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 60, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20, "log_level": 0,
}  # fmt: skip
SHORT = {"socket.timeout.ms": 400}


@pytest.fixture
def bench(mock_bench: Barnabas) -> Barnabas:
    """In front of mock brokers."""
    return mock_bench


@pytest.fixture
def topic(bench: Barnabas) -> str:
    """A topic that its first Metadata makes, with its leaders known."""
    topic = f"t-{uuid.uuid4().hex[:8]}"
    AdminClient({"bootstrap.servers": bench.bootstrap, "log_level": 0}).list_topics(topic, timeout=PATIENCE)
    return topic


def send(bench: Barnabas, topic: str, count: int = 3, **config: Any) -> list[KafkaError | None]:
    """What became of so many records, one request each. (An ACL that is missing is known from then on.)"""
    became: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bench.bootstrap} | QUICK | config)
    for number in range(count):
        try:
            producer.produce(topic, str(number), partition=0, on_delivery=lambda error, _: became.append(error))
        except KafkaException as refused:
            became.append(refused.args[0])
        flush(producer)
    return became


@dataclass(frozen=True)
class Refused:
    """An error code of a Produce. `reported`: the error that the user gets in the end (None: it was sent again, and arrived); `asks`: what
    the client asks in between."""

    error: str
    reported: int | None = None
    asks: str = ""
    config: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    "case",
    [
        # org.apache.kafka.common.errors: InvalidMetadataException means a refresh, RetriableException another try.
        Refused("NOT_LEADER_OR_FOLLOWER"),  # names the leader (KIP-951): Metadata may be asked or not
        Refused("UNKNOWN_TOPIC_OR_PARTITION", asks="Metadata"),
        Refused("LEADER_NOT_AVAILABLE", asks="Metadata"),
        Refused("NOT_ENOUGH_REPLICAS"),
        Refused("NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
        Refused("REQUEST_TIMED_OUT"),
        Refused("COORDINATOR_LOAD_IN_PROGRESS"),
        Refused("MESSAGE_TOO_LARGE", KafkaError.MSG_SIZE_TOO_LARGE),
        Refused("TOPIC_AUTHORIZATION_FAILED", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        Refused("INVALID_REQUIRED_ACKS", KafkaError.INVALID_REQUIRED_ACKS),
        Refused("RECORD_LIST_TOO_LARGE", KafkaError.RECORD_LIST_TOO_LARGE),
        Refused("INVALID_TIMESTAMP", KafkaError.INVALID_TIMESTAMP),
        Refused("UNSUPPORTED_FOR_MESSAGE_FORMAT", KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        # A batch that is there already was written: all is well (idempotence).
        Refused("DUPLICATE_SEQUENCE_NUMBER", config={"enable.idempotence": True}),
    ],
    ids=lambda case: case.error,
)
def test_a_produce_is_refused(bench: Barnabas, topic: str, case: Refused) -> None:
    begin = cursor(bench)
    with injected(bench, api="Produce", topic=topic, error=case.error, after=1, times=1):
        became = send(bench, topic, **case.config)
        last = case.reported if case.reported == KafkaError.TOPIC_AUTHORIZATION_FAILED else None
        assert [error.code() if error else None for error in became] == [None, case.reported, last]
    apis = [(each["api"], each["error"]) for each in seen(bench, begin)]
    refused = apis.index(("Produce", case.error))
    assert not case.asks or case.asks in [api for api, _ in apis[refused:]]
    again = -1 if last else 0 if case.reported is not None or case.error == "DUPLICATE_SEQUENCE_NUMBER" else 1
    assert [api for api, _ in apis].count("Produce") == 3 + again


PLACES = ("before-request", "mid-request", "before-response", "mid-response", "after-response")
EVERY_DAY = ("before-request", "rst"), ("mid-response", "fin"), ("after-response", "fin")


@pytest.mark.parametrize(("place", "how"), only(itertools.product(PLACES, ("fin", "rst")), *EVERY_DAY))
def test_connections_end(bench: Barnabas, topic: str, place: str, how: str) -> None:
    """The client connects again and sends again; every record arrives."""
    with injected(bench, api="Produce", topic=topic, do={"disconnect": place, "how": how}, after=1, times=1):
        assert send(bench, topic, **{"enable.idempotence": True}) == [None] * 3
    produced = seen(bench, 0, f"api == Produce and topic == {topic}")
    assert len({each["connection"] for each in produced}) == 2
    assert len(produced) == (3 if place == "after-response" else 4)


@pytest.mark.parametrize(
    "do",
    [
        {"drop": "response"},
        {"delay": "1500ms"},
        {"blackhole": "forever"},
        slow({"drop": "request"}),
        slow({"delay": "1500ms", "of": "request"}),
        slow({"blackhole": "1500ms"}),
        slow({"corrupt": "correlation"}),
    ],
    ids=str,
)
def test_missing_or_unreadable_responses(bench: Barnabas, topic: str, do: dict[str, Any]) -> None:
    """The client waits for its timeout at the longest, gives the connection up, and sends again."""
    with injected(bench, api="Produce", topic=topic, do=do, after=1, times=1):
        begun = time.monotonic()
        assert send(bench, topic, **SHORT) == [None] * 3
    assert "corrupt" in do or time.monotonic() - begun > 0.35
    produced = seen(bench, 0, f"api == Produce and topic == {topic}")
    assert len({each["connection"] for each in produced}) >= 2 or do == {"corrupt": "correlation"}


def test_a_short_delay_is_waited_for(bench: Barnabas, topic: str) -> None:
    with bench.inject(api="Produce", topic=topic, delay="150ms", jitter="20ms") as fault:
        begun = time.monotonic()
        assert send(bench, topic) == [None] * 3
        assert time.monotonic() - begun > 3 * 0.13 and fault.hits == 3


def test_a_throttled_producer_reports_it(bench: Barnabas, topic: str) -> None:
    """KIP-219: the client reports it, and its next request waits."""
    reports: list[Any] = []
    with bench.inject(api="Produce", topic=topic, throttle="400ms", times=1):
        assert send(bench, topic, throttle_cb=reports.append) == [None] * 3
    assert [round(event.throttle_time, 3) for event in reports][:1] == [0.4]
    one, two = seen(bench, 0, f"api == Produce and topic == {topic}")[:2]
    assert (two["time_ns"] - one["time_ns"]) / 1e6 > 380


@pytest.mark.slow
def test_limited_bandwidth(bench: Barnabas, topic: str) -> None:
    with (
        bench.inject(api="Metadata", do={"bandwidth": "100kB", "of": "request"}, required=False),
        bench.inject(api="Produce", topic=topic, do={"bandwidth": "100kB", "of": "request"}),
    ):
        became: list[Any] = []
        producer = Producer({"bootstrap.servers": bench.bootstrap} | QUICK)
        begun = time.monotonic()
        for _ in range(2):
            producer.produce(topic, b"x" * 30_000, partition=0, on_delivery=lambda error, _: became.append(error))
            flush(producer)
        assert became == [None] * 2 and time.monotonic() - begun > 0.3


def errors_of(bench: Barnabas, topic: str) -> list[str | None]:
    return [each["error"] for each in seen(bench, 0, f"api == Produce and topic == {topic}")]


def test_metadata_without_a_leader(bench: Barnabas, topic: str) -> None:
    """The client asks Metadata again until a leader is known."""
    with injected(bench, api="Metadata", topic=topic, leader="none", times=1):
        assert send(bench, topic) == [None] * 3
    assert errors_of(bench, topic) == [None] * 3


def test_stale_metadata(bench: Barnabas, topic: str) -> None:
    """The client meets NOT_LEADER_OR_FOLLOWER at the wrong broker, asks Metadata again, and its records arrive."""
    with ThreadPoolExecutor() as beside:
        with bench.inject(api="Metadata", topic=topic, leader="moved") as fault:  # as often as it asks: it asks ahead, too
            sent = beside.submit(send, bench, topic)
            until(lambda: "NOT_LEADER_OR_FOLLOWER" in errors_of(bench, topic))
            assert fault.hits >= 1
        assert sent.result(PATIENCE) == [None] * 3


@pytest.mark.slow
def test_an_unknown_producer_id(bench: Barnabas, topic: str) -> None:
    """KIP-360: an idempotent producer goes on with the next epoch of its id, and its sequence from 0."""
    with injected(bench, api="Produce", topic=topic, error="UNKNOWN_PRODUCER_ID", after=1, times=1):
        assert send(bench, topic, **{"enable.idempotence": True}) == [None] * 3
    seen(bench, 0, "api == Produce")
    batches = [
        each["request"]["topic_data"][0]["partition_data"][0]["records"][0]
        for each in bench.exchanges(f"api == Produce and topic == {topic}")
    ]
    assert len({batch["producer_id"] for batch in batches}) == 1
    assert [(batch["producer_epoch"], batch["base_sequence"]) for batch in batches] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def transaction(bench: Barnabas, topic: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bench.bootstrap, "transactional.id": f"x-{topic}", "transaction.timeout.ms": PATIENCE_MS}
        | QUICK
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, "in a transaction", partition=0)
    flush(producer)
    return producer


@pytest.mark.parametrize(
    ("error", "fatal"),
    [
        ("PRODUCER_FENCED", True),
        ("INVALID_PRODUCER_EPOCH", True),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", True),
        ("CONCURRENT_TRANSACTIONS", False),
        ("COORDINATOR_LOAD_IN_PROGRESS", False),
        ("NOT_COORDINATOR", False),
    ],
)
def test_the_end_of_a_transaction_is_refused(bench: Barnabas, topic: str, error: str, fatal: bool) -> None:
    """A zombie is fenced and ends; what passes by itself is tried again (KIP-98, KIP-360)."""
    producer = transaction(bench, topic)
    with injected(bench, f"txn == 'x-{topic}'", api="EndTxn", error=error, times=1):
        if fatal:
            with pytest.raises(KafkaException) as raised:
                producer.commit_transaction(PATIENCE)
            assert raised.value.args[0].fatal()
        else:
            producer.commit_transaction(PATIENCE)
    asked = [each["error"] for each in seen(bench, 0, f"api == EndTxn and txn == 'x-{topic}'")]
    assert asked == [error] if fatal else asked[0] == error and asked[-1] in (None, "NONE")


def test_edited_metadata(bench: Barnabas, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bench.bootstrap, "log_level": 0})
    with bench.inject(api="Metadata", topic=topic, do={"edit": {"topics.error_code": 29}}):
        error = admin.list_topics(topic, timeout=PATIENCE).topics[topic].error
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert admin.list_topics(topic, timeout=PATIENCE).topics[topic].error is None
