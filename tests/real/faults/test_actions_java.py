"""What Kafka's own Java client does about faults, in front of a real broker: one JVM for all of them, one rule at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from barnabas.ui.testing.fixture import Barnabas
from real.brokers.fault_bench import cursor, injected, seen
from real.clients.reactions import Java, reacting, sent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def java(bench: Barnabas, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    with reacting(bench.bootstrap, tmp_path_factory.mktemp("java")) as ask:
        yield ask


def answers(bench: Barnabas, since: int, api: str) -> list[str]:
    return [each["error"] or "NONE" for each in seen(bench, since, f"api == {api}")]


@pytest.mark.parametrize(
    ("error", "asks"),
    [("NOT_LEADER_OR_FOLLOWER", True), ("NOT_ENOUGH_REPLICAS", False), ("REQUEST_TIMED_OUT", False)],
)
def test_retriable_errors_are_sent_again(bench: Barnabas, java: Java, topic: str, error: str, asks: bool) -> None:
    begin = cursor(bench)
    with injected(bench, api="Produce", topic=topic, error=error, after=1, times=2):
        assert sent(java("send", topic, 3)) == ["0", "1", "2"]
    apis = [(each["api"], each["error"]) for each in seen(bench, begin)]
    assert [each for api, each in apis if api == "Produce"].count(error) == 2
    assert not asks or "Metadata" in [api for api, _ in apis[apis.index(("Produce", error)) :]]


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        ("MESSAGE_TOO_LARGE", "RecordTooLargeException"),
        ("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"),
        ("INVALID_REQUIRED_ACKS", "InvalidRequiredAcksException"),
        ("INVALID_TIMESTAMP", "InvalidTimestampException"),
    ],
)
def test_fatal_errors_are_raised(bench: Barnabas, java: Java, topic: str, error: str, raised: str) -> None:
    with injected(bench, api="Produce", topic=topic, error=error, after=1, times=1):
        assert sent(java("send", topic, 3, enable_idempotence="false")) == ["0", raised, "1"]


def test_a_throttled_producer_counts_it_in_its_metrics(bench: Barnabas, java: Java, topic: str) -> None:
    with injected(bench, api="Produce", topic=topic, throttle="400ms", times=1):
        assert java("send", topic, 2) == ["0", "1", "throttled 400.0"]
    one, two = seen(bench, 0, f"api == Produce and topic == {topic}")
    assert (two["time_ns"] - one["time_ns"]) / 1e6 > 380


@pytest.mark.parametrize(
    "place", ["before-request", "mid-request", "before-response", "mid-response", "after-response"]
)
def test_connections_end(bench: Barnabas, java: Java, topic: str, place: str) -> None:
    """It connects again and sends again; the broker writes an idempotent producer's batch once."""
    with injected(bench, api="Produce", topic=topic, disconnect=place, after=1, times=1):
        assert sent(java("send", topic, 3)) == ["0", "1", "2"]
    assert len({each["connection"] for each in seen(bench, 0, f"api == Produce and topic == {topic}")}) == 2
    assert java("read", topic, 3) == ["0", "1", "2"]


@pytest.mark.parametrize(
    "do", [{"drop": "response"}, {"drop": "request"}, {"delay": "1500ms"}, {"blackhole": "forever"}], ids=str
)
def test_no_answer_in_time(bench: Barnabas, java: Java, topic: str, do: dict[str, Any]) -> None:
    with injected(bench, api="Produce", topic=topic, do=do, after=1, times=1):
        assert sent(java("send", topic, 3, request_timeout_ms="500")) == ["0", "1", "2"]
    assert len({each["connection"] for each in seen(bench, 0, f"api == Produce and topic == {topic}")}) >= 2


def test_no_leader_for_a_while(bench: Barnabas, java: Java, topic: str) -> None:
    with injected(bench, api="Metadata", topic=topic, leader="none", times=3):
        assert sent(java("send", topic, 1)) == ["0"]


def test_an_unknown_producer_id(bench: Barnabas, java: Java, topic: str) -> None:
    """As long as the answer does not say where the log starts, Java's `TransactionManager.canRetry` sends the same again."""
    with injected(bench, api="Produce", topic=topic, error="UNKNOWN_PRODUCER_ID", after=1, times=1):
        assert sent(java("send", topic, 3)) == ["0", "1", "2"]
    seen(bench, 0, "api == Produce")
    batches = [
        each["request"]["topic_data"][0]["partition_data"][0]["records"][0]
        for each in bench.exchanges(f"api == Produce and topic == {topic}")
    ]
    assert [(batch["producer_epoch"], batch["base_sequence"]) for batch in batches] == [(0, 0), (0, 1), (0, 1), (0, 2)]


def test_a_batch_damaged_on_its_way_is_sent_again(bench: Barnabas, java: Java, topic: str) -> None:
    """The broker finds the CRC wrong: CORRUPT_MESSAGE, which is retriable."""
    damage = {"corrupt": "payload", "in": "request", "crc": "kept"}
    begin = cursor(bench)
    with injected(bench, api="Produce", topic=topic, do=damage, after=1, times=2):
        assert sent(java("send", topic, 3)) == ["0", "1", "2"]
    assert answers(bench, begin, "Produce").count("CORRUPT_MESSAGE") == 2


def test_a_batch_damaged_on_its_way_back_is_not_given_out(bench: Barnabas, java: Java, topic: str) -> None:
    assert sent(java("send", topic, 3)) == ["0", "1", "2"]
    with bench.inject("resp.throttle_time_ms >= 0", api="Fetch", topic=topic, do={"corrupt": "crc"}):
        (became,) = java("read", topic, 3)
    assert became.startswith("KafkaException: Received exception when fetching the next record"), became


@pytest.mark.parametrize(
    "error",
    [
        # of the whole response: the session is begun anew (KIP-227)
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
        # of a partition: Metadata is asked (KIP-320), or the next request is the same
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
    ],
)
def test_a_fetch_is_refused_and_sent_again(bench: Barnabas, java: Java, topic: str, error: str) -> None:
    assert sent(java("send", topic, 5)) == [*"01234"]
    begin = cursor(bench)
    with injected(bench, api="Fetch", topic=topic, error=error, times=1):
        assert java("read", topic, 5) == [*"01234"]
    assert error in answers(bench, begin, "Fetch")


@pytest.mark.parametrize(
    ("api", "do", "times"),
    [
        ("FindCoordinator", {"coordinator": "none"}, 2),
        ("FindCoordinator", {"error": "COORDINATOR_LOAD_IN_PROGRESS"}, 2),
        ("SyncGroup", {"error": "NOT_COORDINATOR"}, 1),
        ("SyncGroup", {"error": "COORDINATOR_NOT_AVAILABLE"}, 1),
        ("SyncGroup", {"error": "UNKNOWN_MEMBER_ID"}, 1),
        ("SyncGroup", {"error": "REBALANCE_IN_PROGRESS"}, 1),
    ],
    ids=str,
)
def test_a_member_joins_again(
    bench: Barnabas, java: Java, topic: str, api: str, do: dict[str, Any], times: int
) -> None:
    assert sent(java("send", topic, 3)) == [*"012"]
    group = f"g-{topic}"
    with injected(bench, f"group == {group}", api=api, do=do, times=times):
        assert java("group", topic, 3, group_id=group) == [*"012"]


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        ("CONCURRENT_TRANSACTIONS", "committed"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "committed"),
        ("NOT_COORDINATOR", "committed"),
        ("PRODUCER_FENCED", "ProducerFencedException"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "TransactionalIdAuthorizationException"),
    ],
)
def test_the_end_of_a_transaction_is_refused(bench: Barnabas, java: Java, topic: str, error: str, becomes: str) -> None:
    name = f"x-{topic}"
    with injected(bench, f"txn == '{name}'", api="EndTxn", error=error, times=1):
        assert java("transaction", topic, 1, transactional_id=name) == [becomes]
