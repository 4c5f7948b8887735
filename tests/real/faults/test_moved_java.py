"""What Kafka's own Java client does when it is sent to another broker than the right one: that takes a cluster of two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from barnabas.ui.testing.fixture import Barnabas
from real.brokers.broker import start_cluster
from real.brokers.fault_bench import cursor, in_front_of, injected, new_topic, seen
from real.clients.reactions import Java, reacting, sent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    """A proxy in front of two brokers of its own: the session's cluster has one."""
    with start_cluster(2) as cluster, in_front_of(cluster.addresses[0], tmp_path_factory.mktemp("control")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def java(bench: Barnabas, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """Coordinators are there: the topics in which they keep what they know are made for the first who asks."""
    with reacting(bench.bootstrap, tmp_path_factory.mktemp("java")) as ask:
        name = new_topic(bench)
        assert sent(ask("send", name, 1)) == ["0"]
        assert ask("group", name, 1, group_id="first") == ["0"]
        assert ask("transaction", name, 1, transactional_id="first") == ["committed"]
        yield ask


def answers(bench: Barnabas, since: int, filter: str) -> list[tuple[str, str]]:
    """Broker and error of each exchange, in their order."""
    return [(each["broker"], each["error"] or "NONE") for each in seen(bench, since, filter)]


def moved_once(found: list[tuple[str, str]], error: str) -> bool:
    """Whether the wrong broker was asked first and refused, and the right one was asked after that."""
    wrong = [broker for broker, answered in found if answered == error]
    return found[0][1] == error and len(set(wrong)) == 1 and found[-1][0] not in wrong and found[-1][1] == "NONE"


def test_a_producer_sends_to_the_wrong_leader(bench: Barnabas, java: Java, topic: str) -> None:
    """NOT_LEADER_OR_FOLLOWER, Metadata, the right leader."""
    begin = cursor(bench)
    with injected(bench, api="Metadata", topic=topic, leader="moved", times=1):
        assert sent(java("send", topic, 3)) == ["0", "1", "2"]
    assert moved_once(answers(bench, begin, f"api == Produce and topic == {topic}"), "NOT_LEADER_OR_FOLLOWER")


def test_a_consumer_fetches_from_the_wrong_leader(bench: Barnabas, java: Java, topic: str) -> None:
    """ListOffsets or Fetch is refused, and goes to the right leader after Metadata."""
    assert sent(java("send", topic, 3)) == ["0", "1", "2"]
    begin = cursor(bench)
    with injected(bench, api="Metadata", topic=topic, leader="moved", times=1):
        assert java("read", topic, 3) == ["0", "1", "2"]
    found = answers(bench, begin, f"api in {{ListOffsets, Fetch}} and topic == {topic}")
    assert found[0][1] == "NOT_LEADER_OR_FOLLOWER" and "NONE" in [error for _, error in found]


def test_a_member_asks_the_wrong_coordinator(bench: Barnabas, java: Java, topic: str) -> None:
    """NOT_COORDINATOR, FindCoordinator, the right one."""
    assert sent(java("send", topic, 3)) == ["0", "1", "2"]
    group = f"g-{topic}"
    begin = cursor(bench)
    with injected(bench, f"group == {group}", api="FindCoordinator", coordinator="moved", times=1):
        assert java("group", topic, 3, group_id=group) == ["0", "1", "2"]
    found = answers(bench, begin, f"api == JoinGroup and group == {group}")
    assert moved_once(found, "NOT_COORDINATOR")


def test_a_transaction_begins_at_the_wrong_coordinator(bench: Barnabas, java: Java, topic: str) -> None:
    name = f"x-{topic}"
    begin = cursor(bench)
    with injected(bench, "api == FindCoordinator", coordinator="moved", times=1):
        assert java("transaction", topic, 1, transactional_id=name) == ["committed"]
    assert moved_once(answers(bench, begin, f"api == InitProducerId and txn == '{name}'"), "NOT_COORDINATOR")
