"""What requests have to do with each other: few things are known to be apart, all others touch everything."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas.captures.replay.causes import touched
from barnabas.decoder import Exchange, State, encode_request, encode_response, facts

TOPIC = bytes(range(16))


def exchange(api: str, version: int, asked: dict[str, Any], told: dict[str, Any] | None) -> Exchange:
    key = facts.api_key(api)
    response = None if told is None else encode_response(key, version, told, correlation_id=1)
    state = State.NO_RESPONSE if told is None else State.PAIRED
    request = encode_request(key, version, asked, correlation_id=1, client_id="c")
    return Exchange(api_key=key, api_version=version, correlation_id=1, request=request, response=response, state=state)


def produce(version: int, topic: dict[str, Any], error: int = 0, transactional_id: str | None = None) -> Exchange:
    rows = [{"index": 2, "records": b""}, {"index": 5, "records": b""}]
    answers = [{"index": 2, "error_code": error, "base_offset": 1}]
    asked = {"transactional_id": transactional_id, "acks": 1, "timeout_ms": 1, "topic_data": [{**topic, "partition_data": rows}]}
    return exchange("Produce", version, asked, {"responses": [{**topic, "partition_responses": answers}]})


CASES = [
    (produce(9, {"name": "a"}), {("a", 2), ("a", 5)}),
    (produce(13, {"topic_id": TOPIC}), {("orders", 2), ("orders", 5)}),
    (produce(13, {"topic_id": bytes(15) + b"\x07"}), None),  # an id nobody has told the name of
    (produce(9, {"name": "a"}, transactional_id="x"), None),
    (produce(9, {"name": "a"}, error=6), None),
    (exchange("Heartbeat", 4, {"group_id": "g", "generation_id": 1, "member_id": "m"}, {}), {"g"}),
    (exchange("Heartbeat", 4, {"group_id": "g", "generation_id": 1, "member_id": "m"}, {"error_code": 27}), None),
    (exchange("Heartbeat", 4, {"group_id": "g", "generation_id": 1, "member_id": "m"}, None), None),
    (exchange("ApiVersions", 3, {"client_software_name": "x", "client_software_version": "1"}, {}), set()),
    (exchange("Metadata", 12, {"topics": []}, {}), set()),
    (exchange("Metadata", 12, {"topics": [{"name": "new"}]}, {"topics": [{"error_code": 5, "name": "new"}]}), None),
    (exchange("CreateTopics", 7, {"topics": []}, {"topics": []}), None),
    (exchange("JoinGroup", 7, {"group_id": "g"}, {"members": []}), None),
    (exchange("ListGroups", 4, {}, {"groups": []}), None),
]


@pytest.mark.parametrize(("what", "expected"), CASES, ids=lambda value: value.api if isinstance(value, Exchange) else None)
def test_what_is_touched(what: Exchange, expected: set[Any] | None) -> None:
    assert touched(what, {TOPIC: "orders"}) == expected
