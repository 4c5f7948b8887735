"""Requests at the nearest version that is offered."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from barnabas.captures.replay.version_conversion import NotExpressible, answer_at, at_version, candidates
from barnabas.decoder import decode_body, decode_request, encode_body, encode_request
from barnabas.decoder.codec.message import Message
from barnabas.decoder.errors import DecodeError, EncodeError
from barnabas.decoder.records import Record, batches, encode_messages
from barnabas.decoder.schema import facts

ORDERS = uuid.UUID(int=7)


def request(api: str, version: int, fields: dict[str, Any]) -> Message:
    return decode_request(encode_request(facts.api_key(api), version, fields, correlation_id=5, client_id="c"))


def moved(message: Message, version: int) -> dict[str, Any]:
    ids = {"orders": ORDERS.bytes}
    names = {ORDERS.bytes: "orders"}
    out = at_version(message, version, ids.get, names.get)
    assert out.api_version == version and out.header["correlation_id"] == 5 and out.header["client_id"] == "c"
    return out.to_dict()


def test_the_nearest_version_comes_first() -> None:
    assert candidates(facts.api_key("Produce"), 2, (3, 5)) == [3, 4, 5]
    assert candidates(facts.api_key("Produce"), 13, (3, 11)) == [11, 10, 9, 8, 7, 6, 5, 4, 3]
    assert candidates(facts.api_key("Metadata"), 12, (200, 300)) == []


def test_topics_by_id_and_by_name() -> None:
    rows = [{"partition": 1, "fetch_offset": 9, "partition_max_bytes": 100}]
    named = request("Fetch", 12, {"topics": [{"topic": "orders", "partitions": rows}]})
    assert moved(named, 13)["topics"][0]["topic_id"] == ORDERS
    by_id = request("Fetch", 13, {"topics": [{"topic_id": ORDERS, "partitions": rows}]})
    assert moved(by_id, 12)["topics"][0]["topic"] == "orders"
    assert moved(by_id, 4)["topics"][0]["partitions"][0]["fetch_offset"] == 9


def test_a_single_value_and_a_list_of_one_convert() -> None:
    assert moved(request("FindCoordinator", 3, {"key": "g", "key_type": 1}), 4)["coordinator_keys"] == ["g"]
    many = request("FindCoordinator", 4, {"coordinator_keys": ["g"], "key_type": 0})
    assert moved(many, 2)["key"] == "g"
    with pytest.raises(NotExpressible, match="2 coordinator_keys"):
        moved(request("FindCoordinator", 4, {"coordinator_keys": ["g", "h"]}), 3)
    fetch = request("OffsetFetch", 5, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0, 2]}]})
    (group,) = moved(fetch, 9)["groups"]
    assert group["group_id"] == "g" and group["topics"][0]["partition_indexes"] == [0, 2]


def test_message_sets_become_batches() -> None:
    old = encode_messages([Record(n, 1000 + n, b"k", b"v%d" % n, ()) for n in range(3)], magic=1, codec=1)
    rows = [{"index": 0, "records": old}]
    produce = request("Produce", 2, {"acks": 1, "topic_data": [{"name": "t", "partition_data": rows}]})
    data = moved(produce, 3)["topic_data"][0]["partition_data"][0]["records"]
    (batch,) = batches(data)
    assert batch.magic == 2 and batch.codec == 1 and batch.crc_ok
    assert [(r.offset, r.timestamp, r.key, r.value) for r in batch.records()] == [
        (n, 1000 + n, b"k", b"v%d" % n) for n in range(3)
    ]
    with pytest.raises(NotExpressible, match="message sets"):
        moved(request("Produce", 3, {"topic_data": [{"name": "t", "partition_data": rows}]}), 2)


def test_losses_of_a_conversion_are_reported() -> None:
    with pytest.raises(NotExpressible, match="group_instance_id"):
        moved(request("JoinGroup", 5, {"group_id": "g", "group_instance_id": "me", "protocols": []}), 0)
    with pytest.raises(NotExpressible):
        moved(request("Metadata", 4, {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}), 3)
    assert moved(request("Metadata", 0, {"topics": []}), 4)["topics"] is None
    assert moved(request("JoinGroup", 0, {"group_id": "g", "session_timeout_ms": 9}), 2)["rebalance_timeout_ms"] == 9


def test_answers_are_brought_to_the_recorded_version() -> None:
    row = {"key": "g", "node_id": 3, "host": "h", "port": 1, "error_code": 15}
    data = encode_body("response", facts.api_key("FindCoordinator"), 4, {"coordinators": [row]})
    old = answer_at(decode_body("response", facts.api_key("FindCoordinator"), 4, data), 2, {}.get, {}.get)
    assert old["error_code"] == 15 and old["node_id"] == 3


def test_every_request_of_every_version_is_converted_or_refused_with_a_reason() -> None:
    """With nothing but defaults, a neighbouring version is always possible, both ways, but for those named here."""
    refused = set()
    for key in facts.api_keys():
        known = facts.api(key).versions.every()
        for version in known:
            message = decode_request(encode_request(key, version, {}))
            for other in {max(version - 1, known[0]), min(version + 1, known[-1])}:
                try:
                    at_version(message, other, {}.get, {}.get)
                except NotExpressible:
                    refused.add(facts.api_name(key))
                except (DecodeError, EncodeError, KeyError) as error:
                    raise AssertionError(f"{facts.api_name(key)} v{version} -> v{other}") from error
    assert refused <= {"Metadata", "Produce"}, refused
