"""Workloads of kafka-python 3: produce, a group, transactions, admin."""

from __future__ import annotations

from typing import Any

from harness.waiting import PATIENCE, PATIENCE_MS, until
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from real.clients.workload import CODECS, PARTITIONS, Deadline, Sent, everything, records


def _admin(bootstrap: str) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=PATIENCE_MS)


def _create_topic(bootstrap: str, topic: str, partitions: int = PARTITIONS, **config: str) -> None:
    with _admin(bootstrap) as admin:
        options = {"num_partitions": partitions, "replication_factor": 1, "configs": config}
        admin.create_topics({topic: options}, wait_for_metadata=True)


def _consumer(bootstrap: str, group: str | None, **config: Any) -> KafkaConsumer:
    own = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    return KafkaConsumer(bootstrap_servers=bootstrap, **own, **config)


def read(consumer: KafkaConsumer, count: int) -> list[ConsumerRecord]:
    """So many records."""
    deadline = Deadline()
    found: list[ConsumerRecord] = []
    while len(found) < count:
        deadline.check(f"{count} records, got {len(found)}")
        for batch in consumer.poll(timeout_ms=deadline.left_ms, max_records=count - len(found)).values():
            found.extend(batch)
    return found


def _sent(record: ConsumerRecord) -> Sent:
    return Sent(record.partition, record.timestamp, record.key, record.value, tuple(record.headers))


def _committed(bootstrap: str, group: str, topic: str, partitions: int = PARTITIONS) -> int:
    consumer = _consumer(bootstrap, group)
    try:
        return sum(consumer.committed(TopicPartition(topic, number)) or 0 for number in range(partitions))
    finally:
        consumer.close()


def produce_and_consume(bootstrap: str, run: str) -> dict[str, Any]:
    """All codecs into one topic; a group reads half and commits, its next member resumes with the rest."""
    topic, group = f"orders-{run}", f"billing-{run}"
    _create_topic(bootstrap, topic)
    delivered = {}
    for codec in CODECS:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5
        )
        futures = [
            producer.send(topic, record.value, record.key, list(record.headers), record.partition, record.timestamp_ms)
            for record in records(codec)
        ]
        delivered[codec] = sum(future.get(PATIENCE).topic == topic for future in futures)
        producer.close(PATIENCE)

    half = len(everything()) // 2
    seen: list[Sent] = []
    committed: list[int] = []
    for amount in (half, len(everything()) - half):
        consumer = _consumer(bootstrap, group)
        try:
            consumer.subscribe([topic])
            seen += [_sent(record) for record in read(consumer, amount)]
            consumer.commit()
        finally:
            consumer.close()
        committed.append(_committed(bootstrap, group, topic))
    return {"delivered": delivered, "records": sorted(seen), "committed": committed}


def transactions(bootstrap: str, run: str) -> dict[str, Any]:
    """One transaction that also commits a group's offsets, one aborted, one more; both isolation levels read."""
    source, target, group = f"payments-{run}", f"ledger-{run}", f"booking-{run}"
    _create_topic(bootstrap, source, 1)
    _create_topic(bootstrap, target, 1)
    feeder = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    for number in range(6):
        feeder.send(source, f"payment {number}".encode())
    feeder.close(PATIENCE)

    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"booker-{run}", max_block_ms=PATIENCE_MS)
    consumer = _consumer(bootstrap, group)
    try:
        producer.init_transactions()
        consumer.subscribe([source])
        payments = read(consumer, 6)
        producer.begin_transaction()
        for payment in payments:
            producer.send(target, b"booked " + payment.value)
        where = TopicPartition(source, 0)
        producer.send_offsets_to_transaction(
            {where: OffsetAndMetadata(consumer.position(where), "", -1)}, consumer.group_metadata()
        )
        producer.commit_transaction()

        producer.begin_transaction()
        aborted = producer.send(target, b"never booked")
        producer.flush(PATIENCE)  # so that the aborted record is in the log, not only in the client
        aborted.get(PATIENCE)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(target, b"end")
        producer.commit_transaction()
    finally:
        consumer.close()
        producer.close(PATIENCE)

    seen: dict[str, list[str]] = {}
    for level in ("read_committed", "read_uncommitted"):
        reader = _consumer(bootstrap, None, isolation_level=level)
        try:
            where = TopicPartition(target, 0)
            reader.assign([where])
            reader.seek_to_beginning(where)
            values: list[str] = []
            while values[-1:] != ["end"]:
                values.append(read(reader, 1)[0].value.decode())
        finally:
            reader.close()
        seen[level] = values
    return {**seen, "committed": _committed(bootstrap, group, source, 1)}


def admin(bootstrap: str, run: str) -> dict[str, Any]:
    """Create, describe, change and delete topics; configs and groups; two errors on purpose."""
    topic, group = f"archive-{run}", f"archivist-{run}"
    result: dict[str, Any] = {}
    _create_topic(bootstrap, topic, 2, **{"retention.ms": "3600000"})
    try:
        _create_topic(bootstrap, topic, 2)
    except KafkaError as error:
        result["created again"] = type(error).__name__
    with _admin(bootstrap) as client:
        client.create_partitions({topic: 3})
        until(lambda: len(client.describe_topics([topic])[0]["partitions"]) == 3)
        (described,) = client.describe_topics([topic])
        result["partitions"] = {
            found["partition_index"]: len(found["replica_nodes"])
            for found in sorted(described["partitions"], key=lambda found: found["partition_index"])
        }
        result["retention"] = _retention(client, topic)
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7200000"})])
        until(lambda: _retention(client, topic) != result["retention"])
        result["new retention"] = _retention(client, topic)

        producer = KafkaProducer(bootstrap_servers=bootstrap)
        pages = [producer.send(topic, f"page {number}".encode(), partition=0) for number in range(4)]
        result["latest"] = max(page.get(PATIENCE).offset for page in pages) + 1
        producer.close(PATIENCE)
        consumer = _consumer(bootstrap, group)
        consumer.subscribe([topic])
        read(consumer, 4)
        consumer.commit()
        consumer.close()

        result["groups"] = [True for found in client.list_groups() if found["group_id"] == group]
        result["group state"] = str(client.describe_groups([group])[group]["group_state"])
        client.delete_groups([group])
        client.delete_topics([topic])
        try:
            client.delete_topics([f"no-such-{run}"])
        except KafkaError as error:
            result["deleted unknown"] = type(error).__name__
        until(lambda: topic not in client.list_topics())
    return result


def _retention(client: KafkaAdminClient, topic: str) -> str:
    described = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    return str(next(iter(described.values()))[topic]["retention.ms"]["value"])


def broker_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Where this client would connect: (host, port) of every broker that its admin client knows."""
    with _admin(bootstrap) as client:
        return sorted((broker["host"], broker["port"]) for broker in client.describe_cluster()["brokers"])
