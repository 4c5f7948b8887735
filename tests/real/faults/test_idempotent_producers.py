"""What faults do to idempotent producers at a real broker: which answers make a client give up its sequence and write a batch twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from barnabas.ui.testing.fixture import Barnabas
from confluent_kafka import Consumer, Producer, TopicPartition
from harness.waiting import PATIENCE
from real.brokers.broker import Cluster
from real.clients import java_programs
from real.clients.confluent_client import create_topic

pytestmark = pytest.mark.slow

RECORDS = 400
MESSAGES: Counter[bytes] = Counter(str(number).encode() for number in range(RECORDS))


def librdkafka(bootstrap: str, topic: str) -> set[int]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "batch.num.messages": 20,
        "retry.backoff.ms": 20, "request.timeout.ms": 1000, "socket.timeout.ms": 1500, "log_level": 0,
        "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "message.timeout.ms": int(PATIENCE * 1000),
    }  # fmt: skip
    acknowledged: set[int] = set()
    producer = Producer(settings)
    for number in range(RECORDS):
        producer.produce(
            topic, str(number), partition=0, on_delivery=lambda error, _, number=number: error or acknowledged.add(number)
        )
        if number % 20 == 0:
            producer.poll(0.001)
            if not number:
                producer.flush(PATIENCE)
    producer.flush(PATIENCE)
    return acknowledged


def java(bootstrap: str, topic: str) -> set[int]:
    output = java_programs.run("Idempotent", java_programs.broker_jars(), bootstrap, topic, RECORDS, int(PATIENCE * 1000))
    return {int(number) for number in output.strip().split(",") if number}


def log(broker: Cluster, topic: str) -> Counter[bytes]:
    """The values in the log, and how often each stands there."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.auto.commit": False, "log_level": 0})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: Counter[bytes] = Counter()
        while found.total() < end:
            message = consumer.poll(PATIENCE)
            assert message is not None and message.error() is None
            found[message.value()] += 1
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("client", "fault", "twice"),
    [
        # The client sends the batch again, and the broker knows it. (Not tried with Java, which under load sends it again when the
        # broker remembers later batches only: then it is the broker itself that answers OUT_OF_ORDER_SEQUENCE_NUMBER.)
        (librdkafka, {"error": "REQUEST_TIMED_OUT", "broker": "executed"}, False),
        (librdkafka, {"disconnect": "before-response"}, False),
        # By these the broker has lost the producer's state, so that the client begins a new one.
        (librdkafka, {"error": "UNKNOWN_PRODUCER_ID", "broker": "executed"}, True),
        (java, {"error": "OUT_OF_ORDER_SEQUENCE_NUMBER", "broker": "executed"}, True),
        (librdkafka, {"error": "UNKNOWN_PRODUCER_ID"}, False),
    ],
)
def test_a_batch_is_written_twice_only_if_the_error_reports_a_lost_producer(
    broker: Cluster, bench: Barnabas, client: Any, fault: dict[str, str], twice: bool
) -> None:
    topic = create_topic(broker.bootstrap, f"idempotent-{client.__name__}-{'-'.join(fault.values())}".lower())
    rule = bench.inject(api="Produce", topic=topic, after=2, every=3, times=3, **fault)
    acknowledged = client(bench.bootstrap, topic)
    assert rule.hits == 3
    found = log(broker, topic)
    assert acknowledged == set(range(RECORDS)) and found.keys() == MESSAGES.keys()
    assert (found != MESSAGES) == twice
