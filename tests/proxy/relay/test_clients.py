"""A real client against librdkafka's mock cluster: all of it goes through the proxy, also when a rule interferes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from barnabas.proxy.events import BrokerFound, ConnectionOpened, Counts, Event, RuleHit
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from harness.run.lines import line
from harness.testbed import Testbed
from harness.waiting import PATIENCE, PATIENCE_MS, attempts
from traffic.error_rules import error_rule

CLUSTER = """
import json, sys
from confluent_kafka import Producer
owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 3, "log_level": 0})
brokers = owner.list_topics(timeout=float(sys.argv[1])).brokers
print(json.dumps({node: (broker.host, broker.port) for node, broker in brokers.items()}), flush=True)
sys.stdin.read()
"""


Cluster = dict[int, tuple[str, int]]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Node id -> address of the brokers of a mock cluster in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER, str(PATIENCE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        nodes = json.loads(line(process, "the mock cluster"))
        yield {int(node): (host, port) for node, (host, port) in nodes.items()}
        process.stdin.close()


def produce(bootstrap: str, topic: str, count: int, **options: Any) -> list[str]:
    """Deliver `count` messages; the errors of those that failed."""
    failed: list[str] = []
    delivered = [0]

    def report(error: Any, _: Any) -> None:
        if error:
            failed.append(str(error))
        delivered[0] += 1

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "message.timeout.ms": PATIENCE_MS} | options)
    for number in range(count):
        producer.produce(topic, key=str(number), value=os.urandom(100), callback=report)
        if number % 50 == 0:
            producer.poll(0.01)
    assert producer.flush(PATIENCE) == 0
    assert delivered[0] == count
    return failed


def consume(bootstrap: str, topic: str, count: int, in_a_group: bool = True) -> set[bytes]:
    """The keys of that many messages. Without a group, nobody waits for other members."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"})
    if in_a_group:
        consumer.subscribe([topic])
    else:
        partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    keys: set[bytes] = set()
    for _ in attempts(pause=0):
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            keys.add(message.key())
        if len(keys) == count:
            break
    if in_a_group:
        consumer.commit(asynchronous=False)
    consumer.close()
    return keys


def peer_ports() -> set[int]:
    """The remote ports of all TCP connections that this process has open."""
    inodes = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            if found := re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/self/fd/{fd}")):
                inodes.add(found[1])
        except OSError:
            continue
    ports = set()
    with open("/proc/self/net/tcp") as table:
        for line in list(table)[1:]:
            fields = line.split()
            if fields[9] in inodes and fields[3] == "01":
                ports.add(int(fields[2].split(":")[1], 16))
    return ports


def test_a_producer_and_a_group_stay_inside_the_proxy(testbed: Testbed, cluster: Cluster) -> None:
    nodes = sorted(cluster)
    proxy = testbed.proxy(cluster[nodes[0]])
    host, port = proxy.address
    found: dict[int, tuple[str, int]] = {}
    seen: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            seen.update(peer_ports())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert produce(f"{host}:{port}", "orders", 500) == []
        assert len(consume(f"{host}:{port}", "orders", 500)) == 500
        for topic in ("bills", "mails", "parcels"):  # the mock draws leaders by lot: four topics have more than one
            assert produce(f"{host}:{port}", topic, 100) == []
    finally:
        done.set()
        watcher.join()
    proxy.stop()
    events: list[Event] = list(proxy.events())
    own = {port}
    for event in events:
        if isinstance(event, BrokerFound):
            found[event.node] = event.broker
            own.add(event.address[1])
    assert found == {node: cluster[node] for node in nodes[1:]}
    reached = {event.broker for event in events if isinstance(event, ConnectionOpened)}
    assert len(reached) > 1 and reached <= set(cluster.values())  # which ones depends on who leads what
    assert seen & own
    assert not seen & {broker_port for _, broker_port in cluster.values()}
    last = [event for event in events if isinstance(event, Counts)][-1]
    assert last.exchanges > 20 and last.lost_bytes == 0


@pytest.mark.parametrize("forward", [False, True])
def test_a_producer_retries_through_a_rule(testbed: Testbed, cluster: Cluster, forward: bool) -> None:
    rule = error_rule("leader moved", 0, 6, topic="orders", times=3, forward=forward)
    proxy = testbed.proxy(next(iter(cluster.values())), rules=[rule])
    host, port = proxy.address
    assert produce(f"{host}:{port}", "orders", 200) == []
    assert len(consume(f"{host}:{port}", "orders", 200, in_a_group=False)) == 200
    proxy.stop()
    hits = [event for event in proxy.events() if isinstance(event, RuleHit)]
    assert [hit.hits for hit in hits] == [1, 2, 3]
