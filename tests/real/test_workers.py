"""A real client through several relay workers: nothing is different for it, and the recording is whole."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas import captures
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import BrokerFound, ConnectionOpened, Counts
from confluent_kafka import Consumer, Producer
from harness.lines import line

MESSAGES = 600
CLUSTER = """
import json, sys
from confluent_kafka import Producer
owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 3, "log_level": 0})
brokers = owner.list_topics(timeout=20).brokers
print(json.dumps([(broker.host, broker.port) for broker in brokers.values()]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cluster() -> Iterator[list[tuple[str, int]]]:
    """The brokers of a mock cluster in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdin is not None
        yield [(host, port) for host, port in json.loads(line(run, "the mock cluster"))]
        run.stdin.close()


def test_a_real_client_through_two_workers(cluster: list[tuple[str, int]], tmp_path: Path) -> None:
    config = ProxyConfig(upstream=cluster[0], workers=2, record=tmp_path / "r", lossless=True)
    with Proxy(config) as proxy:
        bootstrap = f"{proxy.address[0]}:{proxy.address[1]}"
        producers = [Producer({"bootstrap.servers": bootstrap, "linger.ms": 1}) for _ in range(2)]
        for number in range(MESSAGES):
            producers[number % 2].produce("t", key=str(number), value=b"v" * 200)
        assert [producer.flush(60) for producer in producers] == [0, 0]
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        keys: set[bytes] = set()
        deadline = time.monotonic() + 60
        while len(keys) < MESSAGES and time.monotonic() < deadline:
            for message in consumer.consume(100, 0.5):
                if not message.error():
                    keys.add(message.key())
        consumer.close()
        del producers
    assert keys == {str(number).encode() for number in range(MESSAGES)}
    events = list(proxy.events())
    assert [event.text for event in events if event.warning] == []
    found = [event.broker for event in events if isinstance(event, BrokerFound)]
    assert sorted([cluster[0], *found]) == sorted(cluster), "each broker once, whoever heard of it first"
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
