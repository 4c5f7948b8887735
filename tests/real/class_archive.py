"""The classes that a broker loads, read and checked once (JEP 350): a JVM with them starts in half the time.

    PYTHONPATH=tests python -m real.class_archive        make the archive beside the jars; `make broker` does so

A JVM that does not find what it was made of (other jars, another Java) says so in its log and starts without.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.waiting import PATIENCE

from .broker import CLASSES, BrokerFailed, jar_directory, start_cluster


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


def make(jars: Path) -> None:
    """Start a broker, use it, and have its JVM write the archive when it ends."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / CLASSES
        with start_cluster(jars=jars, options=[f"-XX:ArchiveClassesAtExit={made}"]) as cluster:
            use(cluster.bootstrap)
            (node,) = cluster.nodes
            node.end(signal.SIGTERM, PATIENCE)
            log = node.log_tail()
        if not made.exists():
            raise BrokerFailed(f"the JVM wrote no archive of its classes:\n{log}")
        shutil.move(made, jars / CLASSES)


if __name__ == "__main__":
    make(jar_directory())
