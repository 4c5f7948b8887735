"""The client programs by name: real client libraries doing real work, the same directly and through a proxy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.run.slices import only
from real.clients import aiokafka_client, confluent_client, kafka_python_client
from real.clients.workload import CODECS, PARTITIONS, PER_CODEC, everything

Workload = Callable[[str, str], dict[str, Any]]

CLIENTS = {"confluent-kafka": confluent_client, "kafka-python": kafka_python_client, "aiokafka": aiokafka_client}
WORKLOADS: dict[str, Workload] = {
    f"{client} {workload.__name__}": workload
    for client, module in CLIENTS.items()
    for workload in (module.produce_and_consume, module.transactions, module.admin)
} | {"confluent-kafka new_group_protocol": confluent_client.new_group_protocol}


def in_turn(*every_day: str) -> list[Any]:
    """Parameters for tests of each workload: those that are not named are left to the slow run."""
    return only(WORKLOADS, *every_day)


def expected(name: str) -> dict[str, Any]:
    """What the workload of that name must give, whatever stands between it and the broker."""
    client, kind = name.split()
    if kind == "transactions":
        booked = [f"booked payment {number}" for number in range(6)]
        return {"read_committed": [*booked, "end"], "read_uncommitted": [*booked, "never booked", "end"], "committed": 6}
    if kind == "admin":
        by_code = client == "confluent-kafka"
        return {
            "created again": "TOPIC_ALREADY_EXISTS" if by_code else "TopicAlreadyExistsError",
            "deleted unknown": "UNKNOWN_TOPIC_OR_PART" if by_code else "UnknownTopicOrPartitionError",
            "group state": "EMPTY" if by_code else "Empty",
            "groups": [True],
            "latest": 4,
            "partitions": dict.fromkeys(range(PARTITIONS), 1),
            "retention": "3600000",
            "new retention": "7200000",
        }
    total = len(CODECS) * PER_CODEC
    delivered = dict.fromkeys(CODECS, PER_CODEC)
    return {"delivered": delivered, "records": everything(), "committed": [total // 2, total]}
