"""Workloads of aiokafka: produce with every codec, a group, transactions, admin."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code
from aiokafka.structs import OffsetAndMetadata
from harness.waiting import PATIENCE
from real.clients.workload import CODECS, PARTITIONS, Sent, everything, records


def _run(workload: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Within the bound, also where a workload asks again and again until something is so."""
    return asyncio.run(asyncio.wait_for(workload, PATIENCE))


async def _create_topic(bootstrap: str, topic: str, partitions: int = PARTITIONS, **config: str) -> str:
    """Create it and return the error's name (NoError when it went well)."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        response = await client.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])
    finally:
        await client.close()
    return for_code(response.topic_errors[0][1]).__name__


def _consumer(bootstrap: str, *topics: str, group: str | None, **config: Any) -> AIOKafkaConsumer:
    own = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    return AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, **own, **config)


async def _read(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        for batch in (await consumer.getmany(timeout_ms=500, max_records=count - len(found))).values():
            found.extend(batch)
    return found


def _sent(record: ConsumerRecord) -> Sent:
    return Sent(record.partition, record.timestamp, record.key, record.value, tuple(record.headers))


async def _committed(bootstrap: str, group: str, topic: str, partitions: int = PARTITIONS) -> int:
    async with _consumer(bootstrap, group=group) as consumer:
        return sum([await consumer.committed(TopicPartition(topic, number)) or 0 for number in range(partitions)])


def produce_and_consume(bootstrap: str, run: str) -> dict[str, Any]:
    """All codecs into one topic; a group reads half and commits, its next member resumes with the rest."""
    return _run(_produce_and_consume(bootstrap, run))


async def _produce_and_consume(bootstrap: str, run: str) -> dict[str, Any]:
    topic, group = f"orders-{run}", f"billing-{run}"
    await _create_topic(bootstrap, topic)
    delivered = {}
    for codec in CODECS:
        compression = None if codec == "none" else codec
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=5) as producer:
            futures = [
                await producer.send(
                    topic, record.value, record.key, record.partition, record.timestamp_ms, list(record.headers)
                )
                for record in records(codec)
            ]
            delivered[codec] = len(await asyncio.gather(*futures))
    half = len(everything()) // 2
    read: list[Sent] = []
    committed: list[int] = []
    for amount in (half, len(everything()) - half):
        async with _consumer(bootstrap, topic, group=group) as consumer:
            read += [_sent(record) for record in await _read(consumer, amount)]
            await consumer.commit()
        committed.append(await _committed(bootstrap, group, topic))
    return {"delivered": delivered, "records": sorted(read), "committed": committed}


def transactions(bootstrap: str, run: str) -> dict[str, Any]:
    """One transaction that also commits a group's offsets, one aborted, one more; both isolation levels read."""
    return _run(_transactions(bootstrap, run))


async def _transactions(bootstrap: str, run: str) -> dict[str, Any]:
    source, target, group = f"payments-{run}", f"ledger-{run}", f"booking-{run}"
    await _create_topic(bootstrap, source, 1)
    await _create_topic(bootstrap, target, 1)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as feeder:
        for number in range(6):
            await feeder.send_and_wait(source, f"payment {number}".encode())
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"booker-{run}") as producer:
        async with _consumer(bootstrap, source, group=group) as consumer:
            payments = await _read(consumer, 6)
            async with producer.transaction():
                for payment in payments:
                    await producer.send(target, b"booked " + payment.value)
                where = TopicPartition(source, 0)
                position = OffsetAndMetadata(await consumer.position(where), "")
                await producer.send_offsets_to_transaction({where: position}, group)
        await producer.begin_transaction()
        await producer.send_and_wait(target, b"never booked")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(target, b"end")

    seen: dict[str, list[str]] = {}
    for level in ("read_committed", "read_uncommitted"):
        async with _consumer(bootstrap, group=None, isolation_level=level) as reader:
            where = TopicPartition(target, 0)
            reader.assign([where])
            await reader.seek_to_beginning(where)
            values: list[str] = []
            while values[-1:] != ["end"]:
                values.append((await _read(reader, 1))[0].value.decode())
        seen[level] = values
    return {**seen, "committed": await _committed(bootstrap, group, source, 1)}


def admin(bootstrap: str, run: str) -> dict[str, Any]:
    """Create, describe, change and delete topics; configs and groups; two errors on purpose."""
    return _run(_admin(bootstrap, run))


async def _admin(bootstrap: str, run: str) -> dict[str, Any]:
    topic, group = f"archive-{run}", f"archivist-{run}"
    result: dict[str, Any] = {}
    await _create_topic(bootstrap, topic, 2, **{"retention.ms": "3600000"})
    result["created again"] = await _create_topic(bootstrap, topic, 2)
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        await client.create_partitions({topic: NewPartitions(3)})
        described = (await client.describe_topics([topic]))[0]
        while len(described["partitions"]) < 3:
            described = (await client.describe_topics([topic]))[0]
        result["partitions"] = {
            found["partition"]: len(found["replicas"])
            for found in sorted(described["partitions"], key=lambda found: found["partition"])
        }
        result["retention"] = await _retention(client, topic)
        await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7200000"})])
        result["new retention"] = result["retention"]
        while result["new retention"] == result["retention"]:
            result["new retention"] = await _retention(client, topic)

        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(4):
                await producer.send_and_wait(topic, f"page {number}".encode(), partition=0)
        async with _consumer(bootstrap, topic, group=group) as consumer:
            result["latest"] = (await consumer.end_offsets([TopicPartition(topic, 0)]))[TopicPartition(topic, 0)]
            await _read(consumer, 4)
            await consumer.commit()

        result["groups"] = [True for found in await client.list_consumer_groups() if found[0] == group]
        (response,) = await client.describe_consumer_groups([group])
        result["group state"] = response.groups[0][2]
        await client.delete_topics([topic])
        unknown = await client.delete_topics([f"no-such-{run}"])
        result["deleted unknown"] = for_code(unknown.topic_error_codes[0][1]).__name__
        topics = {topic}
        while topic in topics:
            topics = set(await client.list_topics())
    finally:
        await client.close()
    return result


async def _retention(client: AIOKafkaAdminClient, topic: str) -> str:
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": None})
    (response,) = await client.describe_configs([asked])
    return next(entry[1] for entry in response.resources[0][4] if entry[0] == "retention.ms")


def broker_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Where this client would connect: (host, port) of every broker of its Metadata response."""

    async def ask() -> dict[str, Any]:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            return await client.describe_cluster()
        finally:
            await client.close()

    return sorted((broker["host"], broker["port"]) for broker in _run(ask())["brokers"])
