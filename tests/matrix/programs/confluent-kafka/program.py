"""confluent-kafka: librdkafka with Python around it. See matrix.stages."""

from __future__ import annotations

import os
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from harness.waiting import PATIENCE, until
from matrix.stages import BOOKED, GZIP, PLAIN, main
from real.clients.confluent_client import read


def settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "log_level": 0, **{name.replace("_", "."): more[name] for name in more}}


def consumer(bootstrap: str, group: str, **more: Any) -> Consumer:
    own = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    return Consumer(settings(bootstrap, **own, **more))


def flush(producer: Producer) -> None:
    if producer.flush(PATIENCE):
        producer.purge()
        raise TimeoutError(f"records were not delivered within {PATIENCE:.0f} s")


def group(bootstrap: str, run: str) -> dict[str, Any]:
    seen, committed = [], []
    for values, codec in ((PLAIN, "none"), (GZIP, "gzip")):
        producer = Producer(settings(bootstrap, compression_type=codec, linger_ms=20))
        for number, value in enumerate(values):
            producer.produce(f"{run}-orders", value, f"k{number}", number % 2)
        flush(producer)
        reader = consumer(bootstrap, f"{run}-group")
        reader.subscribe([f"{run}-orders"])
        seen.append(sorted(message.value().decode() for message in read(reader, len(values))))
        reader.commit(asynchronous=False)
        asked = [TopicPartition(f"{run}-orders", number) for number in (0, 1)]
        committed.append(sum(found.offset for found in reader.committed(asked, timeout=PATIENCE)))
        reader.close()
    return {"first": seen[0], "second": seen[1], "committed": committed}


def transactions(bootstrap: str, run: str) -> dict[str, Any]:
    source, ledger = TopicPartition(f"{run}-orders", 0, 7), f"{run}-ledger"
    producer = Producer(settings(bootstrap, transactional_id=f"{run}-tx"))
    offsets = consumer(bootstrap, ledger)
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for value in BOOKED[:3]:
        producer.produce(f"{run}-booked", value, partition=0)
    producer.send_offsets_to_transaction([source], offsets.consumer_group_metadata(), PATIENCE)
    producer.commit_transaction(PATIENCE)
    producer.begin_transaction()
    producer.produce(f"{run}-booked", "dropped", partition=0)
    flush(producer)
    producer.abort_transaction(PATIENCE)
    producer.begin_transaction()
    producer.produce(f"{run}-booked", "end", partition=0)
    producer.commit_transaction(PATIENCE)
    reader = consumer(bootstrap, f"{run}-audit", isolation_level="read_committed")
    reader.assign([TopicPartition(f"{run}-booked", 0, 0)])
    values = [message.value().decode() for message in read(reader, len(BOOKED))]
    (found,) = offsets.committed([source], timeout=PATIENCE)
    reader.close()
    offsets.close()
    return {"committed": values, "offset": found.offset}


def admin(bootstrap: str, run: str) -> dict[str, Any]:
    name = f"{run}-made"
    client = AdminClient(settings(bootstrap))
    made = NewTopic(name, 3, 1, config={"retention.ms": "3600000"})
    client.create_topics([made], request_timeout=PATIENCE)[name].result(PATIENCE)
    until(lambda: name in client.list_topics(timeout=PATIENCE).topics)
    listed = client.list_topics(timeout=PATIENCE).topics
    resource = ConfigResource(ResourceType.TOPIC, name)
    settings_of = client.describe_configs([resource], request_timeout=PATIENCE)[resource].result(PATIENCE)
    client.delete_topics([name], request_timeout=PATIENCE)[name].result(PATIENCE)
    retention = settings_of["retention.ms"].value
    return {"partitions": len(listed[name].partitions), "retention": retention, "deleted": True}


if __name__ == "__main__":
    version = f"confluent-kafka {confluent_kafka.__version__}"
    main(version, group=group, transactions=transactions, admin=admin)
    os._exit(0)  # librdkafka's clients of failed stages would still try for a while
