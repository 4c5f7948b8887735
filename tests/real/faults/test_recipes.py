"""Every ready rule does something to a real client: librdkafka produces, consumes in a group and has a transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from barnabas.plugins.rules.recipes import RECIPES, Recipe
from barnabas.ui.testing.fixture import Barnabas
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from harness.waiting import PATIENCE
from real.brokers.fault_bench import mocked

IN_ORDER = sorted(RECIPES, key=lambda recipe: recipe.name != "slow-network")
"""What is slow first: it has ended by itself when the proxy has to end."""
EVERY_DAY = {"poison-batch", "slow-broker"}
QUICK = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    with mocked(tmp_path_factory.mktemp("recipes")) as bench:
        yield bench


SENT, READ = 200, 20
"""After so many records, or errors in place of them, another client goes on: a client asks some things only at its start."""


class Traffic:
    """Clients that go on whatever happens to them, as new ones where they cannot."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": name, **QUICK}
        self.name = name
        self.over = threading.Event()

    def produce(self) -> None:
        while not self.over.is_set():
            producer = Producer(self.settings | {"linger.ms": 0, "topic.metadata.refresh.interval.ms": 200})
            with suppress(KafkaException):  # a fatal error, or one that the topic has been found to have
                for _ in range(SENT):
                    producer.produce(self.name, b"value")
                    while len(producer) and not self.over.is_set():
                        producer.poll(0.05)
                    if self.over.is_set():
                        break
            producer.purge()

    def consume(self) -> None:
        group = {"group.id": self.name, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 50}
        often = {"auto.commit.interval.ms": 50, "fetch.wait.max.ms": 20, "fetch.error.backoff.ms": 10, "check.crcs": True}
        while not self.over.is_set():
            consumer = Consumer(self.settings | group | often)
            consumer.subscribe([self.name])
            seen = 0
            while seen < READ and not self.over.is_set():
                seen += consumer.poll(0.05) is not None
            threading.Thread(target=consumer.close, daemon=True).start()  # may wait for what never comes

    def read(self) -> None:
        consumer = Consumer(self.settings | {"group.id": "not used"})
        consumer.assign([TopicPartition(self.name, 0, 0)])
        while not self.over.is_set():
            consumer.poll(0.05)
        consumer.close()

    def transact(self) -> None:
        producer = Producer(self.settings | {"transactional.id": self.name})
        try:
            producer.init_transactions(PATIENCE)
            while not self.over.is_set():
                producer.begin_transaction()
                producer.produce(f"{self.name}-in-transaction", b"value")
                producer.commit_transaction(PATIENCE)
        except KafkaException as error:
            assert error.args[0].fatal() or error.args[0].txn_requires_abort() or error.args[0].retriable()

    @contextmanager
    def running(self, *what: Callable[[], None]) -> Iterator[None]:
        threads = [threading.Thread(target=each, daemon=True) for each in what]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join(PATIENCE)


@pytest.mark.parametrize(
    "recipe",
    [pytest.param(each, marks=() if each.name in EVERY_DAY else pytest.mark.slow) for each in IN_ORDER],
    ids=[each.name for each in IN_ORDER],
)
def test_every_rule_hits(bench: Barnabas, recipe: Recipe) -> None:
    traffic = Traffic(bench.bootstrap, recipe.name)
    rules = recipe.to_rules(topic=recipe.name, group=recipe.name, client=recipe.name)
    bench.control.replace_rules([rule.to_dict() for rule in rules])
    ways = [traffic.transact] if recipe.name == "zombie-producer" else [traffic.produce, traffic.consume]
    if recipe.name == "authorization-denied":  # who may not join a group never comes to read
        ways.append(traffic.read)
    with traffic.running(*ways):
        for rule in rules:
            assert bench.control.wait_for_hits(rule.name, 1, PATIENCE) >= 1
    bench.control.replace_rules([])
