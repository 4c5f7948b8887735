"""kafka-python before 3, which infers a broker's release from what it offers. See matrix.stages."""

from __future__ import annotations

from typing import Any

import kafka
from harness.waiting import PATIENCE, PATIENCE_MS, until
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from matrix.stages import GZIP, PLAIN, main


def settings(bootstrap: str) -> dict[str, Any]:
    """What all of them get: 2 s for the broker's release are too few where the machine is busy."""
    return {"bootstrap_servers": bootstrap, "api_version_auto_timeout_ms": PATIENCE_MS}


def group(bootstrap: str, run: str) -> dict[str, Any]:
    """With the library's own settings, but for the compression and where a group begins."""
    topic, seen, committed = f"{run}-orders", [], []
    for values, codec in ((PLAIN, None), (GZIP, "gzip")):
        writer = KafkaProducer(**settings(bootstrap), compression_type=codec, max_block_ms=PATIENCE_MS)
        sent = [
            writer.send(topic, value.encode(), f"k{number}".encode(), partition=number % 2)
            for number, value in enumerate(values)
        ]
        for each in sent:
            each.get(PATIENCE)
        writer.close()
        reader = KafkaConsumer(topic, **settings(bootstrap), group_id=f"{run}-group", auto_offset_reset="earliest")
        found: list[str] = []

        def polled(reader: KafkaConsumer = reader, found: list[str] = found, count: int = len(values)) -> bool:
            batches = reader.poll(timeout_ms=500, max_records=count - len(found)).values()
            found += [record.value.decode() for batch in batches for record in batch]
            return len(found) == count

        until(polled, lambda found=found: found)
        seen.append(sorted(found))
        reader.commit()
        committed.append(sum(reader.committed(TopicPartition(topic, number)) or 0 for number in (0, 1)))
        reader.close()
    return {"first": seen[0], "second": seen[1], "committed": committed}


def admin(bootstrap: str, run: str) -> dict[str, Any]:
    name = f"{run}-made"
    client = KafkaAdminClient(**settings(bootstrap))
    client.create_topics([NewTopic(name, 3, 1, topic_configs={"retention.ms": "3600000"})])
    reader = KafkaConsumer(**settings(bootstrap))
    partitions = until(lambda: name in reader.topics() and reader.partitions_for_topic(name))
    reader.close()
    described = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    (answer,) = described if isinstance(described, list) else [described]
    ((code, message, _, _, entries),) = answer.resources
    if code:
        raise RuntimeError(f"describe_configs: {code} {message}")
    (retention,) = (entry[1] for entry in entries if entry[0] == "retention.ms")
    client.delete_topics([name])
    client.close()
    return {"partitions": len(partitions), "retention": retention, "deleted": True}


if __name__ == "__main__":
    main(f"kafka-python {kafka.__version__}", group=group, admin=admin)
