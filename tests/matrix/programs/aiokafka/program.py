"""aiokafka. See matrix.stages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code
from harness.waiting import PATIENCE, PATIENCE_MS
from matrix.stages import BOOKED, GZIP, PLAIN, Stage, main


def timed(stage: Callable[..., Coroutine[Any, Any, dict[str, Any]]]) -> Stage:
    """A coroutine as a stage; it may open clients on the stack that it is given."""

    async def bounded(bootstrap: str, run: str) -> dict[str, Any]:
        async with asyncio.timeout(2 * PATIENCE), AsyncExitStack() as stack:
            return await stage(bootstrap, run, stack)

    return lambda bootstrap, run: asyncio.run(bounded(bootstrap, run))


async def consumer(stack: AsyncExitStack, *topics: str, **more: Any) -> AIOKafkaConsumer:
    made = AIOKafkaConsumer(*topics, auto_offset_reset="earliest", enable_auto_commit=False, **more)
    stack.push_async_callback(made.stop)
    await made.start()
    return made


async def read(reader: AIOKafkaConsumer, count: int) -> list[str]:
    async with asyncio.timeout(PATIENCE):
        return [(await reader.getone()).value.decode() for _ in range(count)]


async def group(bootstrap: str, run: str, stack: AsyncExitStack) -> dict[str, Any]:
    seen, committed = [], []
    for values, codec in ((PLAIN, None), (GZIP, "gzip")):
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20, request_timeout_ms=PATIENCE_MS
        )
        stack.push_async_callback(producer.stop)
        await producer.start()
        sent = [
            await producer.send(f"{run}-orders", value.encode(), f"k{number}".encode(), number % 2)
            for number, value in enumerate(values)
        ]
        await asyncio.gather(*sent)
        reader = await consumer(stack, f"{run}-orders", bootstrap_servers=bootstrap, group_id=f"{run}-group")
        seen.append(sorted(await read(reader, len(values))))
        await reader.commit()
        asked = [TopicPartition(f"{run}-orders", number) for number in (0, 1)]
        committed.append(sum([await reader.committed(partition) or 0 for partition in asked]))
        await reader.stop()
    return {"first": seen[0], "second": seen[1], "committed": committed}


async def transactions(bootstrap: str, run: str, stack: AsyncExitStack) -> dict[str, Any]:
    source, target = TopicPartition(f"{run}-orders", 0), TopicPartition(f"{run}-booked", 0)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=f"{run}-tx", request_timeout_ms=PATIENCE_MS
    )
    stack.push_async_callback(producer.stop)
    await producer.start()
    await producer.begin_transaction()
    for value in BOOKED[:3]:
        await producer.send(target.topic, value.encode(), partition=0)
    await producer.send_offsets_to_transaction({source: 7}, f"{run}-ledger")
    await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.send_and_wait(target.topic, b"dropped", partition=0)
    await producer.abort_transaction()
    await producer.begin_transaction()
    await producer.send(target.topic, b"end", partition=0)
    await producer.commit_transaction()
    reader = await consumer(stack, bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None)
    reader.assign([target])
    await reader.seek_to_beginning(target)
    values = await read(reader, len(BOOKED))
    ledger = await consumer(stack, bootstrap_servers=bootstrap, group_id=f"{run}-ledger")
    ledger.assign([source])
    return {"committed": values, "offset": await ledger.committed(source)}


async def admin(bootstrap: str, run: str, stack: AsyncExitStack) -> dict[str, Any]:
    name = f"{run}-made"
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=PATIENCE_MS)
    stack.push_async_callback(client.close)
    await client.start()
    made = NewTopic(name, 3, 1, topic_configs={"retention.ms": "3600000"})
    for _, code, *_ in (await client.create_topics([made])).topic_errors:
        if code:
            raise for_code(code)
    while not (found := (await client.describe_topics([name]))[0])["partitions"]:
        await asyncio.sleep(0.1)
    (described,) = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    retention = [entry[1] for entry in described.resources[0][4] if entry[0] == "retention.ms"]
    for _, code, *_ in (await client.delete_topics([name])).topic_error_codes:
        if code:
            raise for_code(code)
    return {"partitions": len(found["partitions"]), "retention": retention[0], "deleted": True}


if __name__ == "__main__":
    stages = {"group": timed(group), "transactions": timed(transactions), "admin": timed(admin)}
    main(f"aiokafka {aiokafka.__version__}", **stages)
