"""Real clients for the demonstration: a producer for each codec, a consumer group of two, an aiokafka client.

    python -m barnabas.ui.demo.traffic BOOTSTRAP

runs until its standard input is closed (also by the death of the process that started it), then leaves in order
and prints one line of JSON with what was produced, delivered and consumed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from typing import Any

from ...diagnostics import contained

TOPIC = "orders"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP = "billing"


class DemoTraffic:
    """All clients against one bootstrap address."""

    def __init__(self, bootstrap: str):
        self.bootstrap = bootstrap
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()

    def produce(self, codec: str) -> None:
        """Orders with keys and headers, a few a second."""
        from confluent_kafka import Producer

        producer: Any = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": f"shop-{codec}",
                "compression.type": codec,
                "linger.ms": 20,
                "enable.idempotence": codec == "zstd",
                "log_level": 2,
            }
        )
        number = 0
        while not self.stop.wait(0.15):
            for _ in range(5):
                number += 1
                order = json.dumps({"order": number, "codec": codec, "item": "lamp", "note": "x" * 120})
                producer.produce(
                    TOPIC,
                    order,
                    key=f"customer-{number % 17}",
                    headers={"trace": f"{number:08x}"},
                    on_delivery=self._delivered,
                )
                self.counts["produced"] += 1
            producer.poll(0)
        producer.flush(5)

    def _delivered(self, error: object, message: object) -> None:
        self.counts["failed" if error else "delivered"] += 1

    def consume(self, number: int) -> None:
        """A member of the group; commits now and then."""
        from confluent_kafka import Consumer

        consumer: Any = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": f"billing-{number}",
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "log_level": 2,
            }
        )
        consumer.subscribe([TOPIC])
        taken = 0
        while not self.stop.is_set():
            message = consumer.poll(0.2)
            if message is None or message.error():
                continue
            taken += 1
            self.counts["consumed"] += 1
            if taken % 50 == 0:
                consumer.commit(asynchronous=True)
        consumer.close()

    async def audit(self) -> None:
        """aiokafka: produces to and reads from a topic of its own."""
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        settings: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "client_id": "audit-aiokafka"}
        async with (
            AIOKafkaProducer(**settings) as producer,
            AIOKafkaConsumer("audit", **settings, auto_offset_reset="earliest") as consumer,
        ):
            while not self.stop.is_set():
                await producer.send_and_wait("audit", f"seen at {time.time():.3f}".encode(), key=b"audit")
                self.counts["produced"] += 1
                self.counts["delivered"] += 1
                batches = await consumer.getmany(timeout_ms=300)
                self.counts["consumed"] += sum(len(batch) for batch in batches.values())
                await asyncio.sleep(0.4)

    def _audit(self) -> None:
        try:
            asyncio.run(self.audit())
        except Exception as error:
            # The boundary of a thread: the demonstration goes on without this client, and reports it at the end.
            contained("the aiokafka client of the demonstration", error, reported=True)
            self.counts[f"aiokafka: {type(error).__name__}"] += 1

    def run(self) -> None:
        """Until standard input ends."""
        works = [threading.Thread(target=self.produce, args=(codec,)) for codec in CODECS]
        works += [threading.Thread(target=self.consume, args=(number,)) for number in (1, 2)]
        works.append(threading.Thread(target=self._audit))
        for work in works:
            work.start()
        sys.stdin.read()
        self.stop.set()
        for work in works:
            work.join(8)
        print(json.dumps(self.counts), flush=True)


if __name__ == "__main__":
    DemoTraffic(sys.argv[1]).run()
