"""The code of docs/plugins.md does what the page describes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Message
from barnabas.decoder.records import Record, batches, encode_batch
from barnabas.proxy.events import PluginSaid
from harness.wire import read_frame, with_size

from .stage import Stage


@pytest.fixture(scope="module")
def stage(make_stage: Callable[..., Stage], repository: Path) -> Stage:
    stage = make_stage()
    blocks = re.findall(r"```python\n(.*?)```", (repository / "docs/plugins.md").read_text(), re.S)
    assert len(blocks) == 5
    stage.load(*blocks)
    return stage


def ask(stage: Stage, api: str, version: int, fields: dict[str, Any]) -> tuple[list[Message], Message]:
    """What the broker got, and what the client got."""
    stage.broker.got.clear()
    key = decoder.facts.api_key(api)
    client = stage.client()
    frame = decoder.encode_request(key, version, fields, correlation_id=5, client_id="c")
    client.sock.sendall(with_size(frame))
    answer = decoder.decode_response(read_frame(client.sock)[4:], api_key=key, api_version=version)
    return [decoder.decode_request(frame) for frame in stage.broker.got], answer


def test_sessions_are_longer(stage: Stage) -> None:
    for asked, sent in ((10_000, 45_000), (60_000, 60_000)):
        (request,), _ = ask(stage, "JoinGroup", 5, {"group_id": "g", "session_timeout_ms": asked})
        assert request["session_timeout_ms"] == sent


def test_orders_are_closed(stage: Stage) -> None:
    for topic, code in (("orders", 29), ("other", 0)):
        fields = {"acks": -1, "topic_data": [{"name": topic, "partition_data": [{"index": 3, "records": None}]}]}
        got, answer = ask(stage, "Produce", 7, fields)
        if code:
            assert got == []
            assert answer["responses[0].partition_responses[0].error_code"] == code
        else:
            assert got[0]["topic_data[0].name"] == topic


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_records_are_masked(stage: Stage, codec: int) -> None:
    sent = [Record(0, 1, b"k", b"v"), Record(1, 1, b"card", b"4111", (("a", b"b"),))]
    area = encode_batch(sent, codec=codec) + encode_batch([Record(0, 1, b"card", None)], codec=codec)
    fields = {"acks": -1, "topic_data": [{"name": "payments", "partition_data": [{"index": 3, "records": area}]}]}
    (request,), _ = ask(stage, "Produce", 7, fields)
    found = [record for batch in batches(request["topic_data[0].partition_data[0].records"]) for record in batch.records()]
    assert [(r.key, r.value, r.headers) for r in found] == [
        (b"k", b"v", ()), (b"card", b"****", (("masked", b"yes"),)), (b"card", b"****", (("masked", b"yes"),)),
    ]  # fmt: skip


def test_a_group_is_asked_for(stage: Stage) -> None:
    got, answer = ask(stage, "Heartbeat", 1, {"group_id": "g"})
    assert [each.api for each in got] == ["DescribeGroups", "Heartbeat"]
    assert got[0]["groups"] == ["g"] and answer["error_code"] == 0


def test_requests_are_counted(stage: Stage) -> None:
    ask(stage, "FindCoordinator", 1, {"key": "g"})
    stage.clean()
    assert "'FindCoordinator': 1" in stage.wait_for(PluginSaid, lambda event: "FindCoordinator" in event.line).line
