"""Errors that rules put into a broker's responses: where, and into which parts of them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.decoder.codec.message import Message
from barnabas.decoder.schema import error_places, facts
from barnabas.plugins.rules.rule_engine import RuleEngine, exchange_of
from barnabas.plugins.rules.rules import Rule

ORDERS = uuid.UUID(int=7)
STABLE = {"group_state": "Stable", "protocol_type": "consumer"}
FOUND = {"node_id": 1, "host": "h", "port": 9092}


def test_every_place_of_the_table_exists() -> None:
    """Every API, error and array in it exists, and each place is one of some version."""
    table = error_places._table()
    assert len(table.places) > 100
    for (key, code), word in table.places.items():
        found = [error_places.of(key, version, code) for version in facts.api(key).versions.every()]
        if word == error_places.RESPONSE:
            assert any(place.alone for place in found), (facts.api_name(key), word)
        else:
            assert any(place.arrays == {word.partition(".")[0]} and not place.whole for place in found), (facts.api_name(key), word)


def exchanged(api: str, version: int, asked: dict[str, Any], answer: dict[str, Any]) -> tuple[Exchange, bytes]:
    key = facts.api_key(api)
    exchange = exchange_of(decoder.encode_request(key, version, asked, correlation_id=7, client_id="c"))
    return exchange, decoder.encode_response(key, version, answer, correlation_id=7)


def executed(match: str, error: str, api: str, version: int, asked: dict[str, Any], answer: dict[str, Any]) -> Message:
    exchange, response = exchanged(api, version, asked, answer)
    faults = RuleEngine([Rule.of(match, error=error, broker="executed")]).decide(exchange)
    assert faults is not None and faults.answer is None
    return decoder.decode_response(faults.respond(exchange, response), api_key=exchange.api_key, api_version=version)


BATCHED: list[Any] = [
    ("FindCoordinator", 4, "group == ga", {"key_type": 0, "coordinator_keys": ["ga", "gb"]},
     {"coordinators": [FOUND | {"key": "ga"}, FOUND | {"key": "gb"}]}, "COORDINATOR_NOT_AVAILABLE", ["coordinators[0].error_code"]),
    ("FindCoordinator", 6, "txn == gb", {"key_type": 1, "coordinator_keys": ["ga", "gb"]},
     {"coordinators": [FOUND | {"key": "ga"}, FOUND | {"key": "gb"}]}, "COORDINATOR_NOT_AVAILABLE", ["coordinators[1].error_code"]),
    ("FindCoordinator", 6, "any(req.coordinator_keys == gb)", {"key_type": 2, "coordinator_keys": ["ga", "gb"]},
     {"coordinators": [FOUND | {"key": "ga"}, FOUND | {"key": "gb"}]}, "COORDINATOR_NOT_AVAILABLE", ["coordinators[1].error_code"]),
    ("DescribeGroups", 5, "group == ga", {"groups": ["ga", "gb"]},
     {"groups": [STABLE | {"group_id": "ga"}, STABLE | {"group_id": "gb"}]}, "GROUP_AUTHORIZATION_FAILED", ["groups[0].error_code"]),
    ("DescribeGroups", 5, "group ~ '^g' and not group == gx", {"groups": ["ga", "gb"]},
     {"groups": [STABLE | {"group_id": "ga"}, STABLE | {"group_id": "x"}]}, "GROUP_AUTHORIZATION_FAILED", ["groups[0].error_code"]),
    ("DeleteGroups", 2, "group in {gb, gc}", {"groups_names": ["ga", "gb"]},
     {"results": [{"group_id": "ga"}, {"group_id": "gb"}]}, "NON_EMPTY_GROUP", ["results[1].error_code"]),
    ("ConsumerGroupDescribe", 1, "group == gb", {"group_ids": ["ga", "gb"]},
     {"groups": [{"group_id": "ga"}, {"group_id": "gb"}]}, "GROUP_ID_NOT_FOUND", ["groups[1].error_code"]),
    ("OffsetFetch", 8, "group == gb", {"groups": [{"group_id": "ga"}, {"group_id": "gb"}]},
     {"groups": [{"group_id": "ga"}, {"group_id": "gb"}]}, "NOT_COORDINATOR", ["groups[1].error_code"]),
    ("OffsetFetch", 8, "group == gb and topic == t", {"groups": [{"group_id": g, "topics": [{"name": "t", "partition_indexes": [0]}]} for g in ("ga", "gb")]},
     {"groups": [{"group_id": g, "topics": [{"name": t, "partitions": [{"partition_index": 0}]} for t in "tu"]} for g in ("ga", "gb")]},
     "UNSTABLE_OFFSET_COMMIT", ["groups[1].topics[0].partitions[0].error_code"]),
    ("DescribeTransactions", 0, "txn == b", {"transactional_ids": ["a", "b"]},
     {"transaction_states": [{"transactional_id": "a"}, {"transactional_id": "b"}]}, "TRANSACTIONAL_ID_NOT_FOUND", ["transaction_states[1].error_code"]),
    ("LeaveGroup", 5, "member == b", {"group_id": "g", "members": [{"member_id": "a"}, {"member_id": "b"}]},
     {"members": [{"member_id": "a"}, {"member_id": "b"}]}, "UNKNOWN_MEMBER_ID", ["members[1].error_code"]),
    ("DescribeConfigs", 4, "any(req.resources.resource_name == b)", {"resources": [{"resource_type": 2, "resource_name": n} for n in "ab"]},
     {"results": [{"resource_type": 2, "resource_name": n} for n in "ab"]}, "TOPIC_AUTHORIZATION_FAILED", ["results[1].error_code"]),
    ("CreateTopics", 7, "topic == b", {"topics": [{"name": "a"}, {"name": "b"}]},
     {"topics": [{"name": "a"}, {"name": "b"}]}, "TOPIC_ALREADY_EXISTS", ["topics[1].error_code"]),
    ("Metadata", 9, "topic == b", {"topics": [{"name": "a"}, {"name": "b"}]},
     {"topics": [{"name": n, "partitions": [{"partition_index": 0, "leader_id": 1}]} for n in "ab"]}, "UNKNOWN_TOPIC_OR_PARTITION", ["topics[1].error_code"]),
    ("Metadata", 9, "topic == b", {"topics": [{"name": "a"}, {"name": "b"}]},
     {"topics": [{"name": n, "partitions": [{"partition_index": 0, "leader_id": 1}]} for n in "ab"]}, "LEADER_NOT_AVAILABLE", ["topics[1].partitions[0].error_code"]),
    ("ListOffsets", 7, "topic == a and partition == 1", {"topics": [{"name": "a", "partitions": [{"partition_index": p} for p in (0, 1)]}]},
     {"topics": [{"name": "a", "partitions": [{"partition_index": p, "offset": 5} for p in (0, 1)]}]}, "NOT_LEADER_OR_FOLLOWER", ["topics[0].partitions[1].error_code"]),
]  # fmt: skip


@pytest.mark.parametrize(("api", "version", "match", "asked", "answer", "error", "where"), BATCHED)
def test_only_matching_parts_fail(
    api: str, version: int, match: str, asked: dict[str, Any], answer: dict[str, Any], error: str, where: list[str]
) -> None:
    answered = executed(f"api == {api} and {match}", error, api, version, asked, answer)
    assert list(answered.errors()) == [(path, facts.error_code(error)) for path in where]


@pytest.mark.parametrize(("version", "where"), [(12, "topics[0].error_code"), (13, "error_code")])
def test_rebootstrap_is_an_error_of_the_whole_response(version: int, where: str) -> None:
    answer = {"topics": [{"name": "a", "topic_id": ORDERS, "partitions": [{"partition_index": 0}]}]}
    answered = executed("api == Metadata", "REBOOTSTRAP_REQUIRED", "Metadata", version, {"topics": [{"name": "a"}]}, answer)
    assert (where, facts.error_code("REBOOTSTRAP_REQUIRED")) in list(answered.errors())
    assert all("partitions" not in path for path, _ in answered.errors())


def test_a_lost_session_has_no_parts() -> None:
    part = {"partition_index": 0, "high_watermark": 9, "records": b""}
    answer = {"session_id": 5, "responses": [{"topic": "a", "partitions": [part]}]}
    asked = {"session_id": 5, "session_epoch": 3, "topics": [{"topic": "a", "partitions": [{"partition": 0}]}]}
    answered = executed("api == Fetch", "FETCH_SESSION_ID_NOT_FOUND", "Fetch", 12, asked, answer)
    assert (answered["error_code"], answered["session_id"], answered["responses"]) == (70, 0, [])


def test_a_failed_entry_has_no_results() -> None:
    part = {"partition_index": 0, "high_watermark": 9, "last_stable_offset": 9, "records": b"r"}
    answer = {"responses": [{"topic": "a", "partitions": [part, part | {"partition_index": 1}]}]}
    asked = {"session_epoch": -1, "topics": [{"topic": "a", "partitions": [{"partition": 0}, {"partition": 1}]}]}
    answered = executed("api == Fetch and topic == a and partition == 1", "NOT_LEADER_OR_FOLLOWER", "Fetch", 12, asked, answer)
    whole, failed = answered["responses[0].partitions"]
    assert whole["records"] == b"r" and whole["error_code"] == 0
    assert (failed["partition_index"], failed["error_code"], failed["high_watermark"], failed["records"]) == (1, 6, -1, b"")


def test_a_partition_without_a_leader_keeps_its_replicas() -> None:
    part = {"partition_index": 3, "leader_id": 2, "replica_nodes": [1, 2], "isr_nodes": [2]}
    answered = executed("api == Metadata", "LEADER_NOT_AVAILABLE", "Metadata", 9, {"topics": None}, {"topics": [{"name": "a", "partitions": [part]}]})
    found = answered["topics[0].partitions[0]"]
    assert (found["partition_index"], found["leader_id"], found["replica_nodes"], found["isr_nodes"]) == (3, -1, [1, 2], [2])


def test_skipped_and_executed_answers_have_the_same_errors() -> None:
    """The same place, for every API that lists topics, groups or the like, and every error."""
    for api, version, _, asked, answer, _, _ in BATCHED:
        for code in facts.errors():
            if code == 0:
                continue
            name = facts.error_name(code)
            skipping = RuleEngine([Rule.of(f"api == {api}", error=name)])
            exchange, _ = exchanged(api, version, asked, answer)
            skipped = skipping.decide(exchange)
            assert skipped is not None and skipped.answer is not None
            one = decoder.decode_response(skipped.answer, api_key=exchange.api_key, api_version=version)
            other = executed(f"api == {api}", name, api, version, asked, one.replace({path: 0 for path, _ in one.errors()}).to_dict())
            assert list(one.errors()) == list(other.errors()), (api, version, name)


def test_an_edit_changes_only_matching_groups() -> None:
    exchange, response = exchanged("DescribeGroups", 5, {"groups": ["ga", "gb"]}, {"groups": [STABLE | {"group_id": g} for g in ("ga", "gb")]})
    faults = RuleEngine([Rule.of("api == DescribeGroups and group == gb", edit={"groups.group_state": "Dead"})]).decide(exchange)
    assert faults is not None
    answered = decoder.decode_response(faults.respond(exchange, response), api_key=exchange.api_key, api_version=5)
    assert [group["group_state"] for group in answered["groups"]] == ["Stable", "Dead"]


def test_a_coordinator_moves_only_for_the_matching_group() -> None:
    engine = RuleEngine([Rule.of("api == FindCoordinator and group == gb", coordinator="moved")])
    engine.cluster_view.cluster = {"brokers": [{"node_id": n, "host": host, "port": n} for n, host in ((1, "one"), (2, "two"))]}
    keys = {"key_type": 0, "coordinator_keys": ["ga", "gb"]}
    exchange, response = exchanged("FindCoordinator", 4, keys, {"coordinators": [FOUND | {"key": g} for g in ("ga", "gb")]})
    faults = engine.decide(exchange)
    assert faults is not None
    answered = decoder.decode_response(faults.respond(exchange, response), api_key=exchange.api_key, api_version=4)
    assert [found["node_id"] for found in answered["coordinators"]] == [1, 2]
