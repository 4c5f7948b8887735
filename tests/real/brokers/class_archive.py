"""The classes that a broker loads, read and checked once (JEP 350): a JVM with them starts in half the time.

    PYTHONPATH=tests python -m real.brokers.class_archive        make the archive beside the jars; `make broker` does so

The archive is the pytest plugin's (``ui/testing/kafka.py``); here is what is done with the broker meanwhile.
"""

from __future__ import annotations

from barnabas.ui.testing.kafka import archive, prepare
from barnabas.ui.testing.kafka_release import KafkaJars
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.waiting import PATIENCE

from .broker import jar_directory


def use(bootstrap: str) -> None:
    """What most tests do, so that its classes are among them."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1)])["t"].result(PATIENCE)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "transactional.id": "t"})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce("t", b"one")
    producer.commit_transaction(PATIENCE)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    consumer.poll(PATIENCE)
    consumer.close()


if __name__ == "__main__":
    release = KafkaJars(jar_directory())
    release.classes.unlink(missing_ok=True)
    archive(release, use)
    prepare(release)
