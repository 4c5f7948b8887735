"""`barnabas.broker_down(id)`: one broker of the embedded cluster cannot be reached, and comes back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.ui.testing.cluster import OWN_FINDINGS, EmbeddedCluster
from barnabas.ui.testing.fixture import Barnabas
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    found = EmbeddedCluster()
    yield found
    found.stop()


@pytest.fixture
def bench(cluster: EmbeddedCluster) -> Iterator[Barnabas]:
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        first, *others = cluster.addresses
        bench = Barnabas(first, Path(folder), known=OWN_FINDINGS, more_upstreams=others).start()
        try:
            yield bench
        finally:
            bench.stop()


def tried(bench: Barnabas, node: int) -> bool:
    """Whether a client has come for a broker in vain."""
    (address,) = (each["broker"] for each in bench.control.brokers() if each["node"] == node)
    return any(event["broker"] == address for event in bench.control.events(kinds=["UpstreamFailed"])["events"])


def test_a_broker_goes_and_comes_back(bench: Barnabas) -> None:
    producer = Producer({"bootstrap.servers": bench.bootstrap, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50, "log_level": 0})
    done: list[int] = []

    def send() -> None:
        producer.produce("orders", b"x", partition=0, on_delivery=lambda error, _: done.append(error))

    send()
    assert producer.flush(PATIENCE) == 0
    topic = AdminClient({"bootstrap.servers": bench.bootstrap, "log_level": 0}).list_topics("orders", PATIENCE).topics["orders"]
    leader = topic.partitions[0].leader
    bench.reset()
    with bench.broker_down(leader) as down:
        send()
        until(lambda: tried(bench, leader), "the producer does not try the broker again")
        bench.expect("api == Produce", at_most=0)
        assert len(producer) == 1 and down.node == leader
        # Who comes now finds the others.
        assert AdminClient({"bootstrap.servers": bench.bootstrap, "log_level": 0}).list_topics(timeout=PATIENCE).brokers
    assert producer.flush(PATIENCE) == 0 and done == [None, None]
    for each in (1, 2, 3):
        bench.broker_down(each)
    assert all(broker["down"] for broker in bench.control.brokers() if broker["node"] > 0)
    bench.reset()
    assert not any(broker["down"] for broker in bench.control.brokers()) and bench.down == []
    assert bench.findings("medium") == []


REFUSED = {"id": "connection-refused", "severity": "high", "injected": False, "about": {"broker": "127.0.0.1:7"}, "seen": ""}


def test_what_comes_of_a_broker_that_is_down_is_no_finding(bench: Barnabas, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many attempts in vain that it is one, which takes seconds."""
    monkeypatch.setattr(bench.control, "findings", lambda: [REFUSED, REFUSED | {"about": {"broker": "127.0.0.1:8"}}])
    assert len(bench.findings()) == 2
    monkeypatch.setattr(bench, "_were_down", {"127.0.0.1:7"})
    assert [each["about"]["broker"] for each in bench.findings()] == ["127.0.0.1:8"]
    assert len(bench.findings(injected=True)) == 2


def test_an_unknown_id_is_named_beside_those_that_there_are(bench: Barnabas) -> None:
    with pytest.raises(ValueError, match="no broker has the id 7; there are: 1, 2, 3"):
        bench.broker_down(7)
    assert bench.exchanges() == [] and bench.down == []
