"""A real client through several relay workers: nothing is different for it, and the recording is whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas import captures
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import BrokerFound, ConnectionOpened, Counts, show
from barnabas.ui.testing.cluster import EmbeddedCluster
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE
from real.clients.confluent_client import flush, read

MESSAGES = 600


@pytest.fixture
def cluster() -> Iterator[list[tuple[str, int]]]:
    """The addresses of three mock brokers in a process of their own, which no other client has."""
    mock = EmbeddedCluster()
    try:
        brokers = AdminClient({"bootstrap.servers": show(mock.address)}).list_topics(timeout=PATIENCE).brokers
        yield [(broker.host, broker.port) for broker in brokers.values()]
    finally:
        mock.stop()


@pytest.mark.slow
def test_a_real_client_through_two_workers(cluster: list[tuple[str, int]], tmp_path: Path) -> None:
    config = ProxyConfig(upstream=cluster[0], workers=2, record=tmp_path / "r", lossless=True)
    with Proxy(config) as proxy:
        bootstrap = show(proxy.address)
        producers = [Producer({"bootstrap.servers": bootstrap, "linger.ms": 1}) for _ in range(2)]
        for number in range(MESSAGES):
            producers[number % 2].produce("t", key=str(number), value=b"v" * 200)
        for producer in producers:
            flush(producer)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        keys = {message.key() for message in read(consumer, MESSAGES)}
        consumer.close()
        del producers
    assert keys == {str(number).encode() for number in range(MESSAGES)}
    events = list(proxy.events())
    assert [event.text for event in events if event.warning] == []
    found = [event.broker for event in events if isinstance(event, BrokerFound)]
    assert sorted([cluster[0], *found]) == sorted(cluster), "each broker once, whichever worker found it first"
    opened = [event.connection for event in events if isinstance(event, ConnectionOpened)]
    assert {number % 2 for number in opened} == {0, 1}
    counts = [event for event in events if isinstance(event, Counts)][-1]
    assert (counts.opened, counts.connections, counts.lost_bytes, counts.undecoded) == (len(opened), 0, 0, 0)
    capture = captures.open_capture(tmp_path / "r")
    assert not capture.verify()
    exchanges = list(capture.exchanges())
    assert len(exchanges) == counts.exchanges
    assert {exchange.connection for exchange in exchanges} <= set(opened)
    assert not [exchange.undecoded for exchange in exchanges if exchange.undecoded]
    assert counts.request_bytes > MESSAGES * 200
