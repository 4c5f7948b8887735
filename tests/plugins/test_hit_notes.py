"""The notes of a hit are what it did: written when the rule fires, and corrected when the response comes."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.decoder.connection.api_versions import PeerInfo
from barnabas.decoder.schema import facts
from barnabas.plugins.actions.fault_plan import FaultPlan
from barnabas.plugins.rules.rule_engine import RuleEngine, exchange_of
from barnabas.plugins.rules.rules import Rule

SET_OF_0 = bytes.fromhex("0000000000000000 00000010 54c1a6a4 00 00 ffffffff 00000002 6162")
"""A message of format 0."""
HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}


def fate_of(do: Any, api: str, version: int, fields: dict[str, Any], about: PeerInfo | None = None) -> tuple[Exchange, FaultPlan]:
    key = facts.api_key(api)
    exchange = exchange_of(decoder.encode_request(key, version, fields, correlation_id=7, client_id="c"))
    exchange.about = about
    faults = RuleEngine([Rule.of(f"api == {api}", do, name="r")]).decide(exchange)
    assert faults is not None
    return exchange, faults


def offering(produce: int) -> PeerInfo:
    about = PeerInfo()
    about.offered = {0: (0, produce)}
    return about


@pytest.mark.parametrize("made", [{"error": "NOT_COORDINATOR"}, {"respond": {"error_code": 16}}])
@pytest.mark.parametrize("first", [False, True])
def test_changes_apply_to_an_answer_of_the_rule(made: dict[str, Any], first: bool) -> None:
    changes = [{"throttle": "5s"}, {"edit": {"error_code": "REBALANCE_IN_PROGRESS"}}]
    _, faults = fate_of([made, *changes] if first else [*changes, made], "Heartbeat", 4, HEARTBEAT)
    assert faults.answer is not None
    answered = decoder.decode_response(faults.answer, api_key=12, api_version=4)
    assert (answered["throttle_time_ms"], answered["error_code"]) == (5000, 27)
    assert faults.changes == [] and not faults.corrected


def test_a_change_without_a_place_in_the_answer_is_noted_at_once() -> None:
    _, faults = fate_of([{"error": "NOT_COORDINATOR"}, {"throttle": "5s"}], "Heartbeat", 0, HEARTBEAT)
    assert faults.notes == ["NOT_COORDINATOR, not forwarded", "throttled for 5s, with the response delayed (as before Kafka 2.0); Heartbeat v0 has no throttle_time_ms"]


def fetched(version: int, records: bytes) -> bytes:
    part = {"partition_index": 0, "records": records}
    return decoder.encode_response(1, version, {"responses": [{"topic": "t", "partitions": [part]}]}, correlation_id=7)


FETCH = {"topics": [{"topic": "t", "partitions": [{"partition": 0}]}]}


def test_damage_without_a_target_is_noted() -> None:
    exchange, faults = fate_of({"corrupt": "record-count"}, "Fetch", 2, FETCH)
    response = fetched(2, SET_OF_0)
    assert faults.note.endswith("response corrupted: record-count")
    assert faults.respond(exchange, response) == response
    assert faults.corrected
    assert faults.notes == ["response not corrupted: record-count: only batches of format 2 have a record count"]
    assert faults.note == f"rule 'r' (hit 1): {faults.notes[0]}"


@pytest.mark.parametrize(
    ("do", "note"),
    [
        ({"corrupt": "crc"}, "response not corrupted: crc: the selected part has no records"),
        ({"edit": {"responses.partitions.high_watermark": 3}}, "response not edited: its selected part has none of responses.partitions.high_watermark"),
        ({"error": "NOT_LEADER_OR_FOLLOWER", "broker": "executed"}, "NOT_LEADER_OR_FOLLOWER not returned: the response has no selected part"),
        ({"throttle": "1s", "mute": False}, "not throttled: Fetch v0 has no throttle_time_ms"),
    ],
)  # fmt: skip
def test_changes_without_a_target_are_noted(do: dict[str, Any], note: str) -> None:
    exchange, faults = fate_of(do, "Fetch", 0, FETCH)
    empty = decoder.encode_response(1, 0, {"responses": []}, correlation_id=7)
    assert faults.respond(exchange, empty) == empty
    assert faults.notes == [note]


def test_damage_without_a_target_in_a_request_is_noted() -> None:
    body = {"acks": 1, "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": SET_OF_0}]}]}
    _, faults = fate_of({"corrupt": "record-count", "in": "request"}, "Produce", 2, body)
    assert faults.request is None
    assert faults.notes == ["request not corrupted: record-count: only batches of format 2 have a record count"]


@pytest.mark.parametrize(
    ("version", "offered", "waits"),
    [(0, None, True), (2, None, True), (2, 2, True), (5, 5, True), (5, 11, False), (6, None, False), (9, None, False), (2, 9, False)],
)  # fmt: skip
def test_throttling_is_that_of_the_release_offered_to_the_client(version: int, offered: int | None, waits: bool) -> None:
    """KIP-219: since Kafka 2.0 (Produce v6) brokers answer at once and then do not read; before, the response waited."""
    body = {"acks": 1, "topic_data": []}
    about = offering(offered) if offered is not None else None
    _, faults = fate_of({"throttle": "1s"}, "Produce", version, body, about)
    assert (faults.response_delay, faults.mute) == ((10**9, 0) if waits else (0, 10**9))


def test_all_edits_of_a_request_are_made() -> None:
    do = [{"edit": {"group_id": "a"}, "in": "request"}, {"edit": {"member_id": "b"}, "in": "request"}]
    _, faults = fate_of(do, "Heartbeat", 0, HEARTBEAT)
    assert faults.request is not None
    sent = decoder.decode_request(faults.request)
    assert (sent["group_id"], sent["member_id"]) == ("a", "b")


def test_an_edit_that_makes_the_client_hang_is_noted() -> None:
    body = {"acks": 1, "topic_data": []}
    _, faults = fate_of({"edit": {"acks": 0}, "in": "request"}, "Produce", 7, body)
    assert faults.notes == ["request edited: acks (acks is 0 now: the broker does not answer, and the client waits for its response)"]
