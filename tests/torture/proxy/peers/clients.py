"""A real producer and a real consumer under faults, and the checker over what was sent, acknowledged and read."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.waiting import PATIENCE, attempts, until

QUICK: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 300,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 4000,
    "socket.connection.setup.timeout.ms": 2000,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "log_level": 0,
}


def make_topic(bootstrap: str, name: str, partitions: int = 3, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
    config = {"min.insync.replicas": str(min(replicas, 2))}
    admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(PATIENCE)


class Complaints(logging.Logger):
    """What a client logs: `kinds` counts the lines without what differs from run to run."""

    def __init__(self) -> None:
        super().__init__("client")
        self.kinds: Counter[str] = Counter()
        self.propagate = False

    def handle(self, record: logging.LogRecord) -> None:
        text = re.sub(r"^.*?: \[thrd:.*?\]: ", "", record.getMessage())
        text = re.sub(r"\(after .*?in state (\w+).*?\)", r"(\1)", text)
        self.kinds[re.sub(r"[\w.#]*?[:/#]?\d[\d.:/]*(ms)?", "N", text)] += 1


class Production(threading.Thread):
    """Produces numbered records, acks=all, until `stop`; `sent` and `acknowledged` are sets of numbers."""

    def __init__(self, bootstrap: str, topic: str, idempotent: bool, pause: float = 0.001, **more: Any) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": idempotent, "linger.ms": 2}
        settings |= {**QUICK, "message.timeout.ms": 120_000, "request.timeout.ms": 4000, **more}
        self.complaints = Complaints()
        self.producer = Producer(settings, logger=self.complaints)
        self.topic = topic
        self.pause = pause
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self.failures: Counter[str] = Counter()
        self._halt = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._halt.is_set():
            value = str(number).encode()
            self.sent.add(number)
            try:
                self.producer.produce(self.topic, value, callback=self._delivered)
            except BufferError:
                self.producer.poll(0.1)
                continue
            number += 1
            self.producer.poll(0)
            time.sleep(self.pause)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged.add(int(message.value()))
        else:
            self.failures[str(error)] += 1

    def goes_on(self, count: int = 20) -> None:
        """Wait until so many more records are acknowledged."""
        wanted = len(self.acknowledged) + count
        until(
            lambda: len(self.acknowledged) >= wanted,
            lambda: f"the producer is stuck: {len(self.acknowledged)} of {wanted} records are acknowledged",
        )

    def stop(self) -> None:
        self._halt.set()
        self.join()
        assert self.producer.flush(PATIENCE) == 0, "records that are neither acknowledged nor refused"
        del self.producer  # and with it its connections


class Consumption(threading.Thread):
    """Reads all partitions from the beginning; `read` counts every number."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 3, **more: Any) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": bootstrap, "group.id": f"read-{topic}", "enable.auto.commit": False}
        settings |= {**QUICK, "fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 20, **more}
        self.complaints = Complaints()
        self.consumer = Consumer(settings, logger=self.complaints)
        self.consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
        self.read: Counter[int] = Counter()
        self._halt = threading.Event()

    def run(self) -> None:
        while not self._halt.is_set():
            try:
                message = self.consumer.poll(0.1)
            except KafkaException:
                continue
            if message is not None and message.error() is None:
                self.read[int(message.value())] += 1
        self.consumer.close()

    def until(self, wanted: set[int]) -> None:
        """Read on until all of these have come, or for as long as anything may take (`check` reports what is missing then)."""
        for _ in attempts():
            if wanted <= self.read.keys():
                return

    def stop(self) -> None:
        self._halt.set()
        self.join()


def start(bootstrap: str, topic: str, idempotent: bool = True, **more: Any) -> tuple[Production, Consumption]:
    """Both, running; `more` settings for both."""
    running = Production(bootstrap, topic, idempotent, 0.002, **more), Consumption(bootstrap, topic, **more)
    for thread in running:
        thread.start()
    return running


def stop(production: Production, *consumptions: Consumption) -> None:
    """The producer first; then each consumer, when it has read all that was acknowledged."""
    production.stop()
    for consumption in consumptions:
        consumption.until(production.acknowledged)
        consumption.stop()


def check(production: Production, consumption: Consumption, idempotent: bool) -> None:
    """No acknowledged record is lost, none is read that was not sent, and an idempotent producer's come once."""
    lost = production.acknowledged - consumption.read.keys()
    assert not lost, f"{len(lost)} acknowledged records were lost"
    assert consumption.read.keys() <= production.sent
    if idempotent:
        assert not [n for n, times in consumption.read.items() if times > 1], "records that were read twice"
        assert not production.failures, production.failures
