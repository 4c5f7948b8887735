"""What null and empty fields of requests mean (schema/definitions/null_and_empty.txt), as a real broker answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.waiting import until
from real.brokers.broker import Cluster
from real.clients.raw_client import RawClient

pytestmark = pytest.mark.slow

TOPIC, GROUP, USER, TRANSACTION = "null-and-empty", "g-null-and-empty", "u-null-and-empty", "x-null-and-empty"
Ask = Callable[..., dict[str, Any]]


def found_coordinator(ask: Ask, key_type: int, key: str) -> bool:
    return not ask("FindCoordinator", 4, key_type=key_type, coordinator_keys=[key])["coordinators"][0]["error_code"]


@pytest.fixture(scope="module")
def ask(broker: Cluster) -> Iterator[Ask]:
    with RawClient(broker.addresses[0]) as client:

        def ask(api: str, version: int, **fields: Any) -> dict[str, Any]:
            return client.ask(api, version, fields).to_dict()

        topic = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
        assert ask("CreateTopics", 7, topics=[topic], timeout_ms=30_000)["topics"][0]["error_code"] == 0
        until(lambda: found_coordinator(ask, 0, GROUP))
        partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        commit = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [partition]}]}
        until(lambda: not ask("OffsetCommit", 7, **commit)["topics"][0]["partitions"][0]["error_code"])
        yield ask


def topics_in(value: object) -> set[str]:
    """Every topic that a response names."""
    if isinstance(value, dict):
        own = {value[key] for key in ("name", "topic") if isinstance(value.get(key), str)}
        return own.union(*(topics_in(each) for each in value.values()))
    return set().union(*(topics_in(each) for each in value)) if isinstance(value, list) else set()


@pytest.mark.parametrize(
    ("api", "version", "fields", "named"),
    [
        ("Metadata", 0, {"topics": []}, True),
        ("Metadata", 1, {"topics": None}, True),
        ("Metadata", 1, {"topics": []}, False),
        ("Metadata", 13, {"topics": None}, True),
        ("Metadata", 13, {"topics": []}, False),
        ("DescribeTopicPartitions", 0, {"topics": []}, True),
        ("OffsetFetch", 7, {"group_id": GROUP, "topics": None}, True),
        ("OffsetFetch", 7, {"group_id": GROUP, "topics": []}, False),
        ("OffsetFetch", 9, {"groups": [{"group_id": GROUP, "topics": None}]}, True),
        ("OffsetFetch", 9, {"groups": [{"group_id": GROUP, "topics": []}]}, False),
        ("DescribeLogDirs", 1, {"topics": None}, True),
        ("DescribeLogDirs", 1, {"topics": []}, False),
    ],
)
def test_topics(ask: Ask, api: str, version: int, fields: dict[str, Any], named: bool) -> None:
    assert (TOPIC in topics_in(ask(api, version, **fields))) == named


def test_settings_and_types(ask: Ask) -> None:
    resource = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}
    assert len(ask("DescribeConfigs", 4, resources=[resource])["results"][0]["configs"]) > 20
    listed = ask("ListConfigResources", 1, resource_types=[])["config_resources"]
    assert len({each["resource_type"] for each in listed}) > 1


def test_groups_and_transactions(ask: Ask) -> None:
    assert GROUP in {each["group_id"] for each in ask("ListGroups", 5, states_filter=[], types_filter=[])["groups"]}
    begin = {"transactional_id": TRANSACTION, "transaction_timeout_ms": 60_000}
    until(lambda: found_coordinator(ask, 1, TRANSACTION))
    until(lambda: not ask("InitProducerId", 4, **begin)["error_code"])
    for pattern in (None, ""):
        found = ask("ListTransactions", 2, state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
        assert TRANSACTION in {each["transactional_id"] for each in found["transaction_states"]}, pattern


def test_users_and_the_default_entity(ask: Ask) -> None:
    upsertion = {"name": USER, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    assert ask("AlterUserScramCredentials", 0, deletions=[], upsertions=[upsertion])["results"][0]["error_code"] == 0

    def described(users: list[str] | None) -> set[str]:
        return {each["user"] for each in ask("DescribeUserScramCredentials", 0, users=users)["results"]}

    until(lambda: USER in described(None))
    assert USER in described([])
    entity = {"entity_type": "client-id", "entity_name": None}
    quota = {"entity": [entity], "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]}
    assert ask("AlterClientQuotas", 1, entries=[quota], validate_only=False)["entries"][0]["error_code"] == 0

    def entities() -> list[Any]:
        return [each["entity"] for each in ask("DescribeClientQuotas", 1, components=[], strict=False)["entries"]]

    until(lambda: [entity] in entities())


def test_assignments(ask: Ask) -> None:
    more = {"name": TOPIC, "count": 9, "assignments": None}
    answer = ask("CreatePartitions", 3, topics=[more], timeout_ms=30_000, validate_only=True)
    assert answer["results"][0]["error_code"] == 0
    cancel = {"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}
    answer = ask("AlterPartitionReassignments", 0, topics=[cancel], timeout_ms=30_000)
    nothing_to_cancel = 85
    assert answer["responses"][0]["partitions"][0]["error_code"] == nothing_to_cancel
