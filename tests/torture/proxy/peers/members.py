"""Members of groups and a transactional producer that go on while brokers die and restart."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from harness.waiting import PATIENCE
from kafka import KafkaConsumer
from kafka.errors import KafkaError as PythonKafkaError
from torture.proxy.peers.clients import QUICK, Complaints


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


def member(bootstrap: str, topic: str, protocol: str) -> Member:
    """Of librdkafka in the classic or the consumer protocol, or of kafka-python."""
    if protocol == "python":
        consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id="python", auto_offset_reset="earliest", enable_auto_commit=False)
        return PythonMember(consumer)
    settings = {"bootstrap.servers": bootstrap, "group.id": protocol, "auto.offset.reset": "earliest", "enable.auto.commit": False, **QUICK}
    made = Consumer({**settings, "group.protocol": protocol}, logger=Complaints())
    made.subscribe([topic])
    return Member(made)


class Transactions(threading.Thread):
    """Commits and aborts in turn until `stop`; `done` counts both."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.settings = {"bootstrap.servers": bootstrap, "transactional.id": topic, **QUICK, "transaction.timeout.ms": 20_000}
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
                    producer.produce(self.topic, f"{number}".encode())
                (producer.abort_transaction if self.done % 3 == 2 else producer.commit_transaction)(PATIENCE)
                self.done += 1
            except KafkaException as error:
                fault: KafkaError = error.args[0]
                if not fault.retriable():
                    producer = None

    def stop(self) -> None:
        self._halt.set()
        self.join()
