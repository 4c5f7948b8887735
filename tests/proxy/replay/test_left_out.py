"""A replay explains differences that come from requests it left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from barnabas.captures.replay.policy import Policy
from barnabas.decoder.records import Record, encode_batch
from barnabas.proxy.replay.session import Replay
from barnabas.proxy.replay.settings import Pace, Settings
from harness.peers.scripted_broker import StartBroker, TimedRecording
from harness.waiting import PATIENCE

HERE, THERE = UUID(int=1), UUID(int=2)
SETTINGS = Settings(Pace(0.0), patience=PATIENCE)
METADATA = {"brokers": [{"node_id": 1, "host": "127.0.0.1", "port": 9092}]}
TOPIC = {"name": "orders", "topic_id": HERE, "partitions": [{"partition_index": 0, "leader_id": 1}]}
OTHER_GROUP = ("billing", 32, "share.auto.offset.reset")


def alter(recording: TimedRecording, at: float, name: str, kind: int, setting: str) -> None:
    configs = [{"name": setting, "config_operation": 0, "value": "earliest"}]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    answer = [{"error_code": 0, "resource_type": kind, "resource_name": name}]
    recording.exchange(at, 0, "IncrementalAlterConfigs", 1, {"resources": resources, "validate_only": False}, {"responses": answer})


def share_fetches(recording: TimedRecording, count: int) -> None:
    """A share consumer that reads from the beginning: a batch with each fetch."""
    for number in range(count):
        asked: dict[str, Any] = {"group_id": "stock", "member_id": "m", "share_session_epoch": number}
        asked["topics"] = [] if number else [{"topic_id": HERE, "partitions": [{"partition_index": 0}]}]
        batch = encode_batch([Record(number, 5, None, b"v%d" % number, ())], base_offset=number)
        row = {"partition_index": 0, "records": batch, "acquired_records": [{"first_offset": number, "last_offset": number}]}
        recording.exchange(20 + 10 * number, 1, "ShareFetch", 1, asked, {"responses": [{"topic_id": HERE, "partitions": [row]}]})


@pytest.mark.parametrize(
    ("altered", "policy", "explained"),
    [
        (("stock", 32, "share.auto.offset.reset"), Policy(), True),
        (("stock", 32, "share.auto.offset.reset"), Policy(admin=True), False),  # it was sent: something else is wrong
        (OTHER_GROUP, Policy(), False),
    ],
)
def test_differences_of_a_share_group_are_explained_by_its_skipped_setting(
    start_broker: StartBroker,
    recording: TimedRecording,
    pass_time: Callable[[float], None],
    altered: tuple[str, int, str],
    policy: Policy,
    explained: bool,
) -> None:
    def nothing_yet(message: Any, received: Any) -> dict[str, Any]:
        """The share group stands at the end of the topic."""
        if message.api == "Metadata":
            return METADATA | {"topics": [TOPIC | {"topic_id": THERE}]}
        pass_time(0.4 * PATIENCE)
        return {}

    broker = start_broker(nothing_yet)
    broker.topics["orders"] = (THERE.bytes, 1)
    recording.exchange(0, 0, "Metadata", 12, {"topics": [{"name": "orders"}]}, METADATA | {"topics": [TOPIC]})
    alter(recording, 10, *altered)
    share_fetches(recording, 3)
    report = Replay(recording.done(), broker.address, policy=policy, settings=SETTINGS).run()
    assert report.count >= 3, report.to_dict()
    if not explained:
        assert report.warnings == []
        return
    (why,) = report.warnings
    assert why.startswith(f"{report.count} differences concern stock, which IncrementalAlterConfigs changed in the recording")
    assert "share.auto.offset.reset" in why and "--include-admin" in why


def test_differences_after_a_skipped_deletion_are_explained(start_broker: StartBroker, recording: TimedRecording) -> None:
    """Differences before the skipped request are not attributed to it."""
    exists = {"topics": [{"name": "orders", "error_code": 36}]}
    broker = start_broker(lambda message, received: exists if message.api == "CreateTopics" else {})
    creation = {"topics": [{"name": "orders", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1}
    recording.exchange(0, 0, "CreateTopics", 2, creation, {"topics": [{"name": "orders", "error_code": 0}]})
    recording.exchange(10, 0, "DeleteTopics", 1, {"topic_names": ["orders"], "timeout_ms": 1}, {"responses": [{"name": "orders"}]})
    recording.exchange(20, 0, "CreateTopics", 2, creation, {"topics": [{"name": "orders", "error_code": 0}]})
    report = Replay(recording.done(), broker.address, settings=SETTINGS).run()
    (why,) = report.warnings
    assert report.count == 2 and why.startswith("1 difference concerns orders, which DeleteTopics changed")
    assert "share" not in why
