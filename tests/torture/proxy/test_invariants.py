"""Brokers that die and restart, leaders that move and groups that rebalance: no answer is one that Apache Kafka never gives."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.decoder import ExchangeDone
from barnabas.decoder.findings import Inspector
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import show
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from harness.waiting import PATIENCE, until
from kafka import KafkaConsumer
from kafka.errors import KafkaError as PythonKafkaError
from torture.proxy.peers.clients import QUICK, Complaints, make_topic, start
from torture.proxy.peers.faulty_cluster import NODES, three_brokers
from torture.proxy.peers.plain_clients import taken, unfaulted, warm

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(1800)]
TOPIC = "invariants"


class Member(threading.Thread):
    """A member of a group that reads and commits until `stop`; `read` counts its records."""

    def __init__(self, consumer: Any) -> None:
        super().__init__(daemon=True)
        self.consumer, self.read = consumer, 0
        self._halt = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._halt.is_set():
            try:
                self.read += self.one()
            except (KafkaException, PythonKafkaError):
                continue  # of a broker that ended
        self.consumer.close()

    def one(self) -> int:
        message = self.consumer.poll(0.1)
        if message is None or message.error() is not None:
            return 0
        self.consumer.commit(message, asynchronous=True)
        return 1

    def stop(self) -> None:
        self._halt.set()
        self.join()


class PythonMember(Member):
    def one(self) -> int:
        found = sum(map(len, self.consumer.poll(100).values()))
        if found:
            self.consumer.commit_async()
        return found


def member(bootstrap: str, protocol: str) -> Member:
    """Of librdkafka in the classic or the consumer protocol, or of kafka-python."""
    if protocol == "python":
        consumer = KafkaConsumer(TOPIC, bootstrap_servers=bootstrap, group_id="python", auto_offset_reset="earliest", enable_auto_commit=False)
        return PythonMember(consumer)
    settings = {"bootstrap.servers": bootstrap, "group.id": protocol, "auto.offset.reset": "earliest", "enable.auto.commit": False, **QUICK}
    made = Consumer({**settings, "group.protocol": protocol}, logger=Complaints())
    made.subscribe([TOPIC])
    return Member(made)


class Transactions(threading.Thread):
    """Commits and aborts in turn until `stop`; `done` counts both."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.settings = {"bootstrap.servers": bootstrap, "transactional.id": TOPIC, **QUICK, "transaction.timeout.ms": 20_000}
        self.done = 0
        self._halt = threading.Event()
        self.start()

    def run(self) -> None:
        producer: Producer | None = None
        while not self._halt.is_set():
            try:
                if producer is None:
                    producer = Producer(self.settings, logger=Complaints())
                    producer.init_transactions(PATIENCE)
                producer.begin_transaction()
                for number in range(10):
                    producer.produce(TOPIC, f"{number}".encode())
                (producer.abort_transaction if self.done % 3 == 2 else producer.commit_transaction)(PATIENCE)
                self.done += 1
            except KafkaException as error:
                fault: KafkaError = error.args[0]
                if not fault.retriable():
                    producer = None

    def stop(self) -> None:
        self._halt.set()
        self.join()


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_real_brokers_break_no_invariant(how: str, tmp_path: Path, scale: float) -> None:
    with three_brokers() as faulty:
        make_topic(faulty.cluster.bootstrap, TOPIC, 6, NODES)
        with Proxy(ProxyConfig(upstream=faulty.address, probe=False, record=tmp_path)) as proxy:
            warm(proxy)
            bootstrap = show(proxy.address)
            production, consumption = start(bootstrap, TOPIC, True)
            transactions = Transactions(bootstrap)
            staying = {protocol: member(bootstrap, protocol) for protocol in ("classic", "consumer", "python")}
            for turn in range(int(NODES * max(1.0, scale / 5))):
                production.goes_on(200)
                coming = [member(bootstrap, protocol) for protocol in staying]
                faulty.move_leader(TOPIC)
                faulty.restart(faulty.cluster.nodes[turn % NODES], signal.Signals[how])
                faulty.settle()
                before, ended = {protocol: each.read for protocol, each in staying.items()}, transactions.done
                for each in coming:
                    each.stop()
                for protocol, each in staying.items():
                    until(lambda each=each, was=before[protocol]: each.read > was, f"the {protocol} member reads nothing")
                until(lambda ended=ended: transactions.done > ended, "no transaction ends")
            for thread in (transactions, *staying.values()):
                thread.stop()
            production.stop()
            consumption.stop()
            unfaulted(taken(proxy))
    inspector = Inspector(["impossible-answer"])
    apis: Counter[str] = Counter()
    with open_capture(tmp_path) as capture:
        for event in capture.events():
            if isinstance(event, ExchangeDone):
                apis[event.exchange.api] += 1
            inspector.feed(event)
    found = [f"{each.seen} ({each.count})" for each in inspector.findings()]
    print(f"{apis}, {transactions.done} transactions")
    assert {"Produce", "Fetch", "JoinGroup", "ConsumerGroupHeartbeat", "OffsetCommit", "EndTxn"} <= apis.keys()
    assert not found, found
