"""kafka-python. See matrix.stages."""

from __future__ import annotations

from typing import Any

import kafka
from harness.waiting import PATIENCE, PATIENCE_MS
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import OffsetAndMetadata
from matrix.stages import BOOKED, GZIP, PLAIN, main
from real.clients import kafka_python_client


def consumer(bootstrap: str, group: str | None, **more: Any) -> KafkaConsumer:
    own = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    return KafkaConsumer(bootstrap_servers=bootstrap, bootstrap_timeout_ms=PATIENCE_MS, **own, **more)


def read(reader: KafkaConsumer, count: int) -> list[str]:
    return [record.value.decode() for record in kafka_python_client.read(reader, count)]


def producer(bootstrap: str, **more: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=bootstrap, bootstrap_timeout_ms=PATIENCE_MS, max_block_ms=PATIENCE_MS, **more
    )


def group(bootstrap: str, run: str) -> dict[str, Any]:
    seen, committed = [], []
    for values, codec in ((PLAIN, None), (GZIP, "gzip")):
        with producer(bootstrap, compression_type=codec, linger_ms=20, enable_idempotence=False, acks="all") as writer:
            sent = [
                writer.send(f"{run}-orders", value.encode(), f"k{number}".encode(), partition=number % 2)
                for number, value in enumerate(values)
            ]
            for each in sent:
                each.get(PATIENCE)
        reader = consumer(bootstrap, f"{run}-group")
        reader.subscribe([f"{run}-orders"])
        seen.append(sorted(read(reader, len(values))))
        reader.commit()
        committed.append(sum(reader.committed(TopicPartition(f"{run}-orders", number)) or 0 for number in (0, 1)))
        reader.close()
    return {"first": seen[0], "second": seen[1], "committed": committed}


def defaults(bootstrap: str, run: str) -> dict[str, Any]:
    with producer(bootstrap) as writer:
        writer.send(f"{run}-booked", b"default", partition=1).get(PATIENCE)
    return {"sent": 1}


def transactions(bootstrap: str, run: str) -> dict[str, Any]:
    source, target = TopicPartition(f"{run}-orders", 0), TopicPartition(f"{run}-booked", 0)
    writer = producer(bootstrap, transactional_id=f"{run}-tx")
    writer.init_transactions()
    writer.begin_transaction()
    for value in BOOKED[:3]:
        writer.send(target.topic, value.encode(), partition=0)
    offsets = consumer(bootstrap, f"{run}-ledger")
    writer.send_offsets_to_transaction({source: OffsetAndMetadata(7, "", -1)}, offsets.group_metadata())
    writer.commit_transaction()
    writer.begin_transaction()
    aborted = writer.send(target.topic, b"dropped", partition=0)
    writer.flush(PATIENCE)
    aborted.get(PATIENCE)
    writer.abort_transaction()
    writer.begin_transaction()
    writer.send(target.topic, b"end", partition=0)
    writer.commit_transaction()
    writer.close(PATIENCE)
    reader = consumer(bootstrap, None, isolation_level="read_committed")
    reader.assign([target])
    reader.seek_to_beginning(target)
    values = read(reader, len(BOOKED))
    offset = offsets.committed(source)
    reader.close()
    offsets.close()
    return {"committed": values, "offset": offset}


def admin(bootstrap: str, run: str) -> dict[str, Any]:
    name = f"{run}-made"
    with KafkaAdminClient(
        bootstrap_servers=bootstrap, request_timeout_ms=PATIENCE_MS, bootstrap_timeout_ms=PATIENCE_MS
    ) as client:
        made = {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "3600000"}}
        client.create_topics({name: made}, wait_for_metadata=True)
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        (found,) = client.describe_configs([resource]).values()
        (described,) = client.describe_topics([name])
        client.delete_topics([name])
    retention = found[name]["retention.ms"]["value"]
    return {"partitions": len(described["partitions"]), "retention": retention, "deleted": True}


if __name__ == "__main__":
    main(f"kafka-python {kafka.__version__}", group=group, defaults=defaults, transactions=transactions, admin=admin)
