"""A comparison marks differences that come from what a replay leaves out."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from barnabas.captures.diff import compare
from harness.peers.engine_client import METADATA, Exchanges

SHARE_FETCH, ALTER = 78, 44
ORDERS = UUID(int=1)


def recording(altered: str | None, delivered: int) -> Exchanges:
    topic = {"name": "orders", "topic_id": ORDERS, "partitions": [{"partition_index": 0, "leader_id": 1}]}
    brokers = [{"node_id": 1, "host": "kafka", "port": 9092}]
    recording = Exchanges().add(METADATA, 12, {"topics": [{"name": "orders"}]}, {"brokers": brokers, "topics": [topic]})
    if altered is not None:
        resource = {"resource_type": 32, "resource_name": altered}
        setting = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        asked: dict[str, Any] = {"resources": [resource | {"configs": [setting]}], "validate_only": False}
        recording.add(ALTER, 1, asked, {"responses": [resource | {"error_code": 0}]})
    for number in range(3):
        topics = [] if number else [{"topic_id": ORDERS, "partitions": [{"partition_index": 0}]}]
        asked = {"group_id": "stock", "member_id": "m", "share_session_epoch": number, "topics": topics}
        acquired = [{"first_offset": number, "last_offset": number}] if number < delivered else []
        partitions = [{"partition_index": 0, "records": b"", "acquired_records": acquired}]
        recording.add(SHARE_FETCH, 1, asked, {"responses": [{"topic_id": ORDERS, "partitions": partitions}]})
    return recording


@pytest.mark.parametrize(
    ("a", "b", "explained"),
    [
        (recording("stock", 3), recording(None, 0), True),
        (recording("stock", 3), recording("stock", 0), False),
        (recording("billing", 3), recording(None, 0), False),
        (recording("stock", 3), recording(None, 3), False),
        (recording(None, 3), recording("stock", 0), False),
    ],
)
def test_a_share_group_whose_setting_is_only_in_the_first(a: Exchanges, b: Exchanges, explained: bool) -> None:
    notes = compare(a.exchanges, b.exchanges).notes
    assert bool(notes) is explained
    if explained:
        (note,) = notes
        assert "concerns stock, which IncrementalAlterConfigs changed in A only" in note
        assert "--include-admin" in note and "share.auto.offset.reset" in note
