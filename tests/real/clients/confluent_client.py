"""Workloads of confluent-kafka (librdkafka): produce, groups old and new, transactions, admin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from harness.waiting import PATIENCE, until
from real.clients.workload import CODECS, PARTITIONS, Deadline, Sent, everything, records


def create_topic(bootstrap: str, topic: str, partitions: int = 1, replicas: int = -1, **config: str) -> str:
    """Make a topic; its name. Brokers before 2.4 want to know the number of `replicas`. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    created = admin.create_topics([NewTopic(topic, partitions, replicas, config=config)], request_timeout=PATIENCE)
    created[topic].result(PATIENCE)
    return topic


def flush(producer: Producer) -> None:
    """Wait until every record is delivered, or has failed."""
    left = producer.flush(PATIENCE)
    if left:
        raise TimeoutError(f"{left} records were not delivered within {PATIENCE:.0f} s")


def send(bootstrap: str, topic: str, values: Iterable[str | bytes], **config: Any) -> None:
    """Produce these records, a request for each; all are acknowledged."""
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0} | config)
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failed.append(error))
        flush(producer)
    assert failed == []


def _consumer(bootstrap: str, group: str, **config: Any) -> Consumer:
    own = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer({"bootstrap.servers": bootstrap} | own | config)


def read(consumer: Consumer, count: int) -> list[Message]:
    """So many records. Raises KafkaException, or TimeoutError."""
    deadline = Deadline()
    messages: list[Message] = []
    while len(messages) < count:
        deadline.check(f"{count} records, got {len(messages)}")
        for message in consumer.consume(count - len(messages), timeout=0.5):
            if message.error():
                raise KafkaException(message.error())
            messages.append(message)
    return messages


def _sent(message: Message) -> Sent:
    headers = tuple((name, bytes(value)) for name, value in message.headers() or ())
    return Sent(message.partition(), message.timestamp()[1], message.key(), message.value(), headers)


def _committed(bootstrap: str, group: str, topic: str, partitions: int = PARTITIONS) -> int:
    consumer = _consumer(bootstrap, group)
    try:
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        return sum(max(found.offset, 0) for found in consumer.committed(asked, timeout=PATIENCE))
    finally:
        consumer.close()


def produce_and_consume(bootstrap: str, run: str, **consumer_config: Any) -> dict[str, Any]:
    """All codecs into one topic; a group reads half and commits, its next member resumes with the rest."""
    topic, group = f"orders-{run}", f"billing-{run}"
    create_topic(bootstrap, topic, PARTITIONS)
    delivered = dict.fromkeys(CODECS, 0)
    for codec in CODECS:

        def count(error: Any, _: Message, codec: str = codec) -> None:
            if error:
                raise KafkaException(error)
            delivered[codec] += 1

        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for record in records(codec):
            producer.produce(
                topic, record.value, record.key, record.partition,
                timestamp=record.timestamp_ms, headers=list(record.headers), on_delivery=count,
            )  # fmt: skip
        flush(producer)

    half = len(everything()) // 2
    seen: list[list[Sent]] = []
    committed: list[int] = []
    for amount in (half, len(everything()) - half):
        consumer = _consumer(bootstrap, group, **consumer_config)
        try:
            consumer.subscribe([topic])
            messages = read(consumer, amount)
            ends: dict[int, int] = {}
            for message in messages:
                ends[message.partition()] = max(ends.get(message.partition(), 0), message.offset() + 1)
            consumer.commit(offsets=[TopicPartition(topic, *end) for end in ends.items()], asynchronous=False)
        finally:
            consumer.close()
        seen.append([_sent(message) for message in messages])
        committed.append(_committed(bootstrap, group, topic))
    return {"delivered": delivered, "records": sorted(seen[0] + seen[1]), "committed": committed}


def new_group_protocol(bootstrap: str, run: str) -> dict[str, Any]:
    """The same with the consumer group protocol of KIP-848 (ConsumerGroupHeartbeat)."""
    return produce_and_consume(bootstrap, f"kip-848-{run}", **{"group.protocol": "consumer"})


def transactions(bootstrap: str, run: str) -> dict[str, Any]:
    """One transaction that also commits a group's offsets, one aborted, one more; both isolation levels read."""
    source, target, group = f"payments-{run}", f"ledger-{run}", f"booking-{run}"
    create_topic(bootstrap, source, 1)
    create_topic(bootstrap, target, 1)
    send(bootstrap, source, (f"payment {number}" for number in range(6)), **{"enable.idempotence": True})

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"booker-{run}"})
    producer.init_transactions(PATIENCE)
    consumer = _consumer(bootstrap, group)
    try:
        consumer.subscribe([source])
        payments = read(consumer, 6)
        producer.begin_transaction()
        for payment in payments:
            producer.produce(target, b"booked " + payment.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE
        )
        producer.commit_transaction(PATIENCE)
    finally:
        consumer.close()

    producer.begin_transaction()
    producer.produce(target, b"never booked")
    flush(producer)  # so that the aborted record is in the log, not only in the client
    producer.abort_transaction(PATIENCE)
    producer.begin_transaction()
    producer.produce(target, b"end")
    producer.commit_transaction(PATIENCE)

    seen: dict[str, list[str]] = {}
    for level in ("read_committed", "read_uncommitted"):
        reader = _consumer(bootstrap, f"audit-{level}-{run}", **{"isolation.level": level})
        try:
            reader.assign([TopicPartition(target, 0, 0)])
            values: list[str] = []
            while values[-1:] != ["end"]:
                values.append(read(reader, 1)[0].value().decode())
        finally:
            reader.close()
        seen[level] = values
    return {**seen, "committed": _committed(bootstrap, group, source, 1)}


def _retention(client: AdminClient, topic: ConfigResource) -> str:
    value: str = client.describe_configs([topic])[topic].result(PATIENCE)["retention.ms"].value
    return value


def admin(bootstrap: str, run: str) -> dict[str, Any]:
    """Create, describe, change and delete topics; configs, offsets and groups; two errors on purpose."""
    topic, group = f"archive-{run}", f"archivist-{run}"
    client = AdminClient({"bootstrap.servers": bootstrap})
    result: dict[str, Any] = {}

    create_topic(bootstrap, topic, 2, **{"retention.ms": "3600000"})
    try:
        create_topic(bootstrap, topic, 2)
    except KafkaException as error:
        result["created again"] = error.args[0].name()
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE)

    def three_partitions() -> dict[int, Any] | None:
        found: dict[int, Any] = client.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        return found if len(found) == 3 else None

    listed = until(three_partitions)
    result["partitions"] = {number: len(found.replicas) for number, found in sorted(listed.items())}

    resource = ConfigResource(ResourceType.TOPIC, topic)
    result["retention"] = _retention(client, resource)
    change = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    client.incremental_alter_configs([asked])[asked].result(PATIENCE)
    until(lambda: _retention(client, resource) != result["retention"])
    result["new retention"] = _retention(client, resource)

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(4):
        producer.produce(topic, f"page {number}", partition=0)
    flush(producer)
    where = TopicPartition(topic, 0)
    result["latest"] = client.list_offsets({where: OffsetSpec.latest()})[where].result(PATIENCE).offset
    consumer = _consumer(bootstrap, group)
    consumer.subscribe([topic])
    read(consumer, 4)
    consumer.commit(asynchronous=False)
    consumer.close()

    groups = client.list_consumer_groups(request_timeout=PATIENCE).result(PATIENCE)
    result["groups"] = [found.group_id == group for found in groups.valid if found.group_id == group]
    described = client.describe_consumer_groups([group])[group].result(PATIENCE)
    result["group state"] = described.state.name
    client.delete_consumer_groups([group])[group].result(PATIENCE)

    client.delete_topics([topic])[topic].result(PATIENCE)
    try:
        client.delete_topics([f"no-such-{run}"])[f"no-such-{run}"].result(PATIENCE)
    except KafkaException as error:
        result["deleted unknown"] = error.args[0].name()
    until(lambda: topic not in client.list_topics(timeout=PATIENCE).topics)
    return result


def broker_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Where this client would connect: (host, port) of every broker of its Metadata response."""
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE).brokers.values()
    return sorted((broker.host, broker.port) for broker in brokers)
