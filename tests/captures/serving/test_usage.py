"""What live clients did not do of what was recorded, and what they produced otherwise."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from barnabas.captures.serving import whole_content
from barnabas.decoder import records
from barnabas.decoder.records import Record
from harness.peers.engine_client import FETCH, METADATA, PRODUCE, EngineClient, Exchanges, batch, fetch, produce

CREATE, DESCRIBE_CONFIGS, HEARTBEAT, JOIN, TELEMETRY = 19, 32, 12, 11, 71
NAMED = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False}


def creation(topic: str) -> dict[str, Any]:
    return {"topics": [{"name": topic, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1}


def made(recording: Exchanges, topic: str, error: int = 0) -> Exchanges:
    return recording.add(CREATE, 2, creation(topic), {"topics": [{"name": topic, "error_code": error}]})


def configs(recording: Exchanges, value: str) -> Exchanges:
    answer = {"configs": [{"name": "retention.ms", "value": value}], "resource_type": 2, "resource_name": "orders"}
    return recording.add(DESCRIBE_CONFIGS, 1, ASK_CONFIGS, {"results": [answer]})


ASK_CONFIGS = {"resources": [{"resource_type": 2, "resource_name": "orders", "configuration_keys": None}]}


def unused(live: EngineClient) -> list[str]:
    return [each.text for each in live.engine.usage.unused()]


def test_everything_is_unused_until_it_is_asked_for():
    live = EngineClient(made(Exchanges().metadata("orders"), "orders"))
    assert unused(live) == ["Metadata v4 for orders (number 0)", "CreateTopics v2 for orders (number 1)"]
    live.ask(METADATA, 4, NAMED)
    assert unused(live) == ["CreateTopics v2 for orders (number 1)"]
    live.ask(CREATE, 5, creation("orders"))  # another version
    assert unused(live) == []


def test_every_answer_to_a_change_counts():
    """The same CreateTopics twice: created, then TOPIC_ALREADY_EXISTS."""
    live = EngineClient(made(made(Exchanges().metadata("orders"), "orders"), "orders", error=36))
    live.ask(METADATA, 4, NAMED)
    live.ask(CREATE, 2, creation("orders"))
    assert unused(live) == ["CreateTopics v2 for orders (number 2)"]
    live.ask(CREATE, 2, creation("orders"))
    assert unused(live) == []


def test_equal_answers_to_polls_count_once():
    recording = Exchanges().metadata("orders")
    for value in ("1", "1", "1", "2"):
        configs(recording, value)
    live = EngineClient(recording)
    live.ask(METADATA, 4, NAMED)
    live.ask(DESCRIBE_CONFIGS, 1, ASK_CONFIGS)
    assert unused(live) == ["DescribeConfigs v1 for orders (number 4)"]  # the one with another value
    for _ in range(3):
        live.ask(DESCRIBE_CONFIGS, 1, ASK_CONFIGS)
    assert unused(live) == []


def test_telemetry_is_never_unused():
    """librdkafka asks for its subscriptions some time after it connected: a fast run ends before."""
    recording = Exchanges().metadata("orders")
    recording.add(TELEMETRY, 0, {"client_instance_id": str(UUID(int=0))}, {"client_instance_id": str(UUID(int=7)), "subscription_id": 1})
    live = EngineClient(recording)
    assert unused(live) == ["Metadata v4 for orders (number 0)"]
    live.ask(METADATA, 4, NAMED)
    assert unused(live) == []


def test_records_and_errors_that_did_not_come_again():
    recording = Exchanges().metadata("orders").produced("orders", [b"a", b"b"], 0).produced("orders", [b"c"], 0, error=19)
    recording.produced("orders", [b"c"], 2).fetched("orders", 0, batch([b"a", b"b", b"c"], 0), 3)
    live = EngineClient(recording)
    live.ask(METADATA, 4, NAMED)
    live.produce("orders", [b"a"])
    live.values("orders", 0)
    assert unused(live) == [
        "2 records of orders not produced again",
        "the error NOT_ENOUGH_REPLICAS of a Produce to orders-0",
        "2 records of orders not fetched",
    ]
    live.produce("orders", [b"b"])
    assert live.produce("orders", [b"c"])["error_code"] == 19
    assert live.produce("orders", [b"c"])["error_code"] == 0
    live.values("orders", 0)
    live.values("orders", 0)  # again
    assert unused(live) == []


def test_records_that_were_there_from_the_start_need_not_be_produced():
    live = EngineClient(Exchanges().metadata("orders").produced("orders", [b"a", b"b"], 0), everything=True)
    live.ask(METADATA, 4, NAMED)
    assert unused(live) == []


def test_group_requests_count_by_name_and_errors_by_position():
    recording = Exchanges().metadata("orders")
    for group, error in (("a", 0), ("a", 0), ("a", 30), ("b", 0)):
        recording.add(HEARTBEAT, 1, {"group_id": group, "member_id": "m"}, {"error_code": error})
    live = EngineClient(recording)
    live.ask(METADATA, 4, NAMED)
    for _ in range(2):
        live.ask(HEARTBEAT, 1, {"group_id": "a", "member_id": "m"})
    assert unused(live) == ["Heartbeat v1 for a (number 3)", "Heartbeat v1 for b (number 4)"]


# --- contents ------------------------------------------------------------------------------------------------------


def differing(live: EngineClient) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.live.value, each.recorded and each.recorded.value) for each in live.engine.produced.news()]


def test_contents_are_compared_by_topic_however_they_are_batched():
    live = EngineClient(Exchanges().metadata("orders").produced("orders", [b"a", b"b", b"a"], 0), content=whole_content)
    live.ask(METADATA, 4, NAMED)
    live.produce("orders", [b"b"])
    live.produce("orders", [b"a", b"a"])
    assert differing(live) == [] and unused(live) == []


def test_a_record_that_was_not_recorded_is_shown_beside_one_that_was_not_produced_yet():
    live = EngineClient(Exchanges().metadata("orders").produced("orders", [b"a", b"b", b"c"], 0), content=whole_content)
    live.produce("orders", [b"a", b"x", b"y"])
    live.produce("orders", [b"z"])
    assert differing(live) == [(b"x", b"b"), (b"y", b"c"), (b"z", None)]
    assert live.values("orders", 0) == [b"a", b"x", b"y", b"z"]  # accepted all the same
    live.produce("orders", [b"b"])  # as it was recorded, after all
    assert differing(live) == []


def test_a_batch_that_is_sent_again_is_compared_once():
    live = EngineClient(Exchanges().metadata("orders").produced("orders", [b"a"], 0), content=whole_content)


    sent = produce("orders", [b"a"])
    sent["topic_data"][0]["partition_data"][0]["records"] = records.encode_batch(
        [Record(0, 1000, None, b"a")], producer_id=7, producer_epoch=0, base_sequence=0
    )
    for _ in range(2):
        live.ask(PRODUCE, 5, sent)
    assert differing(live) == []


def test_a_function_decides_what_is_compared():
    def order(record: Record) -> Any:
        return json.loads(record.value or b"")["order"]

    recording = Exchanges().metadata("orders").produced("orders", [b'{"order": {"id": [1, 2]}, "at": 11}'], 0)
    live = EngineClient(recording, content=order)
    live.produce("orders", [b'{"at": 99, "order": {"id": [1, 2]}}'])
    assert differing(live) == []
    live.produce("orders", [b"no json"])  # which the function cannot read
    assert differing(live) == [(b"no json", None)]


def test_nothing_is_compared_unless_it_is_asked_for():
    live = EngineClient(Exchanges().metadata("orders").produced("orders", [b"a"], 0))
    live.produce("orders", [b"b"])
    assert differing(live) == []


def test_a_fetch_of_topics_that_nobody_fetches_now_is_unused():
    recording = Exchanges().metadata("orders").fetched("orders", 0, batch([b"a"], 0), 1)
    live = EngineClient(recording)
    live.ask(METADATA, 4, NAMED)
    assert unused(live) == ["Fetch v4 for orders (number 1)", "1 record of orders not fetched"]
    live.ask(FETCH, 4, fetch("orders", 0))
    assert unused(live) == []
