"""Where an error stands in a response: held to Kafka's own `AbstractRequest.getErrorResponse`, and to what a real broker answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.codec.message import Message, is_error_code
from barnabas.decoder.schema import facts
from barnabas.plugins.answers import responses
from barnabas.plugins.answers.leaves import leaves, pattern
from barnabas.plugins.rules.rule_engine import RuleEngine, exchange_of
from barnabas.plugins.rules.rules import Rule
from harness.waiting import until
from real.brokers.broker import Cluster
from real.clients.confluent_client import create_topic
from real.clients.raw_client import RawClient
from real.kafka_classes.test_error_answers import RELEASES, answered_by_kafka, answered_here

WHOLE = ("CLUSTER_AUTHORIZATION_FAILED", "UNKNOWN_SERVER_ERROR", "REBOOTSTRAP_REQUIRED")
"""Errors of a whole request."""


def places(message: Message) -> dict[str, set[int]]:
    """The error codes of a response, by their paths without indexes."""
    found: dict[str, set[int]] = {}
    for leaf in leaves(message):
        if is_error_code(leaf.field):
            found.setdefault(pattern(leaf.path), set()).add(leaf.value)
    return found


def request(key: int, version: int, fields: dict[str, Any]) -> Message:
    return decoder.decode_request(decoder.encode_request(key, version, fields, correlation_id=7, client_id="c"))


@pytest.mark.real
@pytest.mark.parametrize(("release", "least"), RELEASES)
def test_errors_of_the_whole_stand_where_kafka_puts_them(release: str, least: int) -> None:
    wrong, compared = [], 0
    for one, code, theirs in answered_by_kafka(release, [*map(facts.error_code, WHOLE)]):
        if not list(theirs.errors()) or next(theirs.errors())[1] != code:
            continue  # this release has no place for an error, or does not know this one
        ours = answered_here(one, code)
        compared += 1
        if places(ours) != places(theirs):
            wrong.append(f"{one.api} v{one.api_version} {facts.error_name(code)}: {places(ours)}, Kafka {places(theirs)}")
    assert wrong == []
    assert compared >= 2 * least, compared


# -- what a broker answers ------------------------------------------------------------------------------------------


@pytest.fixture
def client(broker: Cluster) -> Iterator[RawClient]:
    with RawClient(broker.addresses[0]) as client:
        yield client


def errors(message: Message) -> set[tuple[str, int]]:
    return {(pattern(path), code) for path, code in message.errors()}


NOBODY = {"group_id": "nobody", "member_id": "m"}
STRANGER = {"group_id": "somebody", "member_id": "m"}
"""In a group that exists: of one that does not, a coordinator gives no offsets and no error."""
GONE = uuid.UUID(int=99)
FETCH = {"max_wait_ms": 1, "min_bytes": 0, "max_bytes": 1000}
REFUSED: list[tuple[str, int, dict[str, Any]]] = [
    ("Metadata", 1, {"topics": [{"name": "a b"}]}),
    ("Metadata", 12, {"topics": [{"name": "nothing"}], "allow_auto_topic_creation": False}),
    ("Metadata", 13, {"topics": [{"name": None, "topic_id": GONE}], "allow_auto_topic_creation": False}),
    ("Metadata", 13, {"topics": [{"name": "nothing"}], "allow_auto_topic_creation": False}),
    ("DescribeTopicPartitions", 0, {"topics": [{"name": "nothing"}]}),
    ("Fetch", 12, FETCH | {"session_id": 5, "session_epoch": 3}),
    ("Fetch", 17, FETCH | {"session_id": 5, "session_epoch": 3}),
    ("Fetch", 6, FETCH | {"topics": [{"topic": "nothing", "partitions": [{"partition": 0}]}]}),
    ("Fetch", 12, FETCH | {"session_epoch": -1, "topics": [{"topic": "nothing", "partitions": [{"partition": 0}]}]}),
    ("Fetch", 12, FETCH | {"session_epoch": -1, "topics": [{"topic": "T", "partitions": [{"partition": 0, "fetch_offset": 77}]}]}),
    ("Fetch", 12, FETCH | {"session_epoch": -1, "topics": [{"topic": "T", "partitions": [{"partition": 0, "current_leader_epoch": 77}]}]}),
    ("Fetch", 17, FETCH | {"session_epoch": -1, "topics": [{"topic_id": GONE, "partitions": [{"partition": 0}]}]}),
    ("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": "nothing", "partitions": [{"partition_index": 0}]}]}),
    ("OffsetFetch", 9, {"groups": [STRANGER | {"member_epoch": 3, "topics": [{"name": "T", "partition_indexes": [0]}]}]}),
    ("OffsetFetch", 10, {"groups": [{"group_id": "nobody", "topics": [{"topic_id": GONE, "partition_indexes": [0]}]}]}),
    ("OffsetCommit", 8, NOBODY | {"generation_id_or_member_epoch": 3, "topics": [{"name": "T", "partitions": [{"partition_index": 0}]}]}),
    ("OffsetDelete", 0, {"group_id": "nobody", "topics": [{"name": "T", "partitions": [{"partition_index": 0}]}]}),
    ("LeaveGroup", 2, NOBODY),
    ("LeaveGroup", 5, {"group_id": "nobody", "members": [{"member_id": "m"}, {"member_id": "n"}]}),
    ("SyncGroup", 5, NOBODY | {"generation_id": 3}),
    ("DescribeGroups", 6, {"groups": ["nobody", "nobody else"]}),
    ("ConsumerGroupDescribe", 0, {"group_ids": ["nobody", "nobody else"]}),
    ("DeleteGroups", 2, {"groups_names": ["nobody", "nobody else"]}),
    ("FindCoordinator", 3, {"key": "g", "key_type": 9}),
    ("FindCoordinator", 6, {"key_type": 9, "coordinator_keys": ["g", "h"]}),
    ("CreateTopics", 7, {"timeout_ms": 5000, "topics": [{"name": "T", "num_partitions": 1, "replication_factor": 1}]}),
    ("CreateTopics", 5, {"timeout_ms": 5000, "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 9}]}),
    ("DeleteTopics", 6, {"timeout_ms": 5000, "topics": [{"name": "nothing"}]}),
    ("CreatePartitions", 3, {"timeout_ms": 5000, "topics": [{"name": "nothing", "count": 3}]}),
    ("DeleteRecords", 2, {"timeout_ms": 5000, "topics": [{"name": "nothing", "partitions": [{"partition_index": 0}]}]}),
    ("DescribeConfigs", 4, {"resources": [{"resource_type": 2, "resource_name": "nothing"}]}),
    ("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 2, "resource_name": "nothing", "configs": [{"name": "retention.ms", "value": "1"}]}]}),
    ("ElectLeaders", 2, {"timeout_ms": 5000, "topic_partitions": [{"topic": "nothing", "partitions": [0]}, {"topic": "T", "partitions": [0]}]}),
    ("AlterPartitionReassignments", 0, {"timeout_ms": 5000, "topics": [{"name": "T", "partitions": [{"partition_index": 0, "replicas": [99]}]}]}),
    ("DescribeUserScramCredentials", 0, {"users": [{"name": "nobody"}]}),
    ("AlterUserScramCredentials", 0, {"deletions": [{"name": "nobody", "mechanism": 1}]}),
    ("UpdateFeatures", 1, {"timeout_ms": 5000, "feature_updates": [{"feature": "no.feature", "max_version_level": 3, "upgrade_type": 1}]}),
    ("UpdateFeatures", 2, {"timeout_ms": 5000, "feature_updates": [{"feature": "no.feature", "max_version_level": 3, "upgrade_type": 1}]}),
    ("AddPartitionsToTxn", 3, {"v3_and_below_transactional_id": "x", "v3_and_below_producer_id": 5, "v3_and_below_topics": [{"name": "T", "partitions": [0]}]}),
    ("AddPartitionsToTxn", 5, {"transactions": [{"transactional_id": "x", "producer_id": 5, "topics": [{"name": "T", "partitions": [0]}]}]}),
    ("TxnOffsetCommit", 3, {"transactional_id": "x", "group_id": "nobody", "member_id": "m", "generation_id": 3, "topics": [{"name": "T", "partitions": [{"partition_index": 0}]}]}),
    ("DescribeProducers", 0, {"topics": [{"name": "nothing", "partition_indexes": [0]}]}),
    ("DescribeTransactions", 0, {"transactional_ids": ["x", "y"]}),
    ("DescribeQuorum", 2, {"topics": [{"topic_name": "nothing", "partitions": [{"partition_index": 0}]}]}),
    ("DescribeAcls", 3, {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 2, "permission_type": 3}),
    ("DeleteAcls", 3, {"filters": [{"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 2, "permission_type": 3}]}),
    ("ShareFetch", 1, {"group_id": "nobody", "member_id": "m" * 22, "share_session_epoch": 5, "max_wait_ms": 1}),
    ("ShareAcknowledge", 1, {"group_id": "nobody", "member_id": "m" * 22, "share_session_epoch": 5}),
    ("AlterShareGroupOffsets", 0, {"group_id": "nobody", "topics": [{"topic_name": "nothing", "partitions": [{"partition_index": 0}]}]}),
    ("DeleteShareGroupOffsets", 0, {"group_id": "nobody", "topics": [{"topic_name": "T"}]}),
    ("ShareGroupDescribe", 1, {"group_ids": ["nobody"]}),
]  # fmt: skip
"""Requests that a broker refuses, wholly or in part. T: a topic that is there."""


def named(value: Any, topic: str) -> Any:
    if isinstance(value, dict):
        return {name: named(item, topic) for name, item in value.items()}
    if isinstance(value, list):
        return [named(item, topic) for item in value]
    return topic if value == "T" else value


@pytest.mark.real
def test_errors_stand_where_a_broker_puts_them(broker: Cluster, client: RawClient) -> None:
    topic = create_topic(broker.bootstrap, "places")
    member = {"group_id": "somebody", "member_id": "a member", "rebalance_timeout_ms": 60_000, "topic_partitions": []}

    def is_member() -> bool:
        client.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["somebody"]})  # makes its topic
        return not client.ask("ConsumerGroupHeartbeat", 1, member | {"subscribed_topic_names": [topic]})["error_code"]

    until(is_member, "the broker has no group coordinator")
    wrong, seen = [], set()
    for api, version, fields in REFUSED:
        one = request(facts.api_key(api), version, named(fields, topic))
        theirs = decoder.decode_response(client.frame(one.frame), api_key=one.api_key, api_version=version)
        found = errors(theirs)
        if not found:
            wrong.append(f"{api} v{version}: the broker refuses nothing")
        for code in {code for _, code in found}:
            want = {(path, each) for path, each in found if each == code}
            where = f"{api} v{version} {facts.error_name(code)}"
            skipped = answered_here(one, code)
            if errors(skipped) != want:
                wrong.append(f"{where} skipped: {errors(skipped)}, the broker {want}")
            fine = theirs.replace({path: 0 for path, _ in theirs.errors()})
            put = responses.with_errors(fine, one, code, lambda part: True)
            executed = None if put is None else decoder.decode_response(put, api_key=one.api_key, api_version=version)
            if executed is None or errors(executed) != want:
                wrong.append(f"{where} executed: {executed and errors(executed)}, the broker {want}")
            seen.add((api, code))
    assert wrong == []
    assert len(seen) >= len({api for api, _, _ in REFUSED})


@pytest.mark.real
@pytest.mark.parametrize("do", [{"error": "UNSUPPORTED_VERSION"}, {"error": "UNSUPPORTED_VERSION", "broker": "executed"}, {"respond": {"error_code": "UNSUPPORTED_VERSION"}}, {"edit": {"error_code": "UNSUPPORTED_VERSION"}}])  # fmt: skip
def test_a_version_that_is_refused_is_answered_as_by_a_broker(client: RawClient, do: dict[str, Any]) -> None:
    """KIP-511: in version 0, with the range that the broker serves."""
    frame = request(18, 4, {"client_software_name": "c", "client_software_version": "1"}).frame
    theirs = client.frame(frame[:2] + (99).to_bytes(2, "big") + frame[4:])
    exchange = exchange_of(frame)
    fate = RuleEngine([Rule.of("api == ApiVersions", do)]).decide(exchange)
    assert fate is not None
    ours = fate.answer if fate.answer is not None else fate.respond(exchange, client.frame(frame))
    assert len(ours) == len(theirs)
    assert ours[:-2] == theirs[:-2]  # all but the highest version that is served
    served = int.from_bytes(ours[-2:], "big")
    assert served == 3  # not the one that it does not serve
