"""Replays against scripted brokers: order, time, connections, failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures.replay.mapping import NameMap
from barnabas.captures.replay.policy import Policy
from barnabas.decoder.records import Record, batches, encode_batch
from barnabas.decoder.schema import facts
from barnabas.proxy.replay.dialer import DialFailed
from barnabas.proxy.replay.session import Replay
from barnabas.proxy.replay.settings import Order, Pace, Settings
from harness.peers.scripted_broker import StartBroker, TimedRecording
from harness.waiting import PATIENCE, until
from harness.wire import with_size

MAX = Settings(Pace(0.0), patience=PATIENCE)
BEAT: dict[str, Any] = {"group_id": "g", "generation_id": 0, "member_id": ""}


def fine(message: Any, received: Any) -> dict[str, Any]:
    return {}


def produced(message: Any, received: Any = None, error: int = 0, offset: int = 0) -> dict[str, Any]:
    rows = [
        {
            "name": t["name"],
            "partition_responses": [
                {"index": p["index"], "error_code": error, "base_offset": offset} for p in t["partition_data"]
            ],
        }
        for t in message.to_dict()["topic_data"]
    ]
    return {"responses": rows}


def produce(value: bytes = b"v", acks: int = 1, partition: int = 0, **batch: Any) -> dict[str, Any]:
    data = encode_batch([Record(0, 5, None, value, ())], **batch)
    return {"acks": acks, "topic_data": [{"name": "t", "partition_data": [{"index": partition, "records": data}]}]}


ROW = {"responses": [{"name": "t", "partition_responses": [{"index": 0, "base_offset": 0}]}]}


def test_a_client_of_another_cluster_is_not_refused(start_broker: StartBroker, recording: TimedRecording) -> None:
    """Clients of 4.4 say which cluster and which broker they mean to have reached (ApiVersions v5, KIP-1242)."""
    broker = start_broker(fine)
    broker.cluster_id = "the target's"
    meant = {"client_software_name": "java", "client_software_version": "4.4.0", "cluster_id": "recorded", "node_id": 7}
    recording.exchange(0, 0, "ApiVersions", 5, meant, {"api_keys": [{"api_key": 12, "min_version": 0, "max_version": 4}]})
    recording.exchange(5, 0, "Heartbeat", 4, BEAT, {})
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert (report.sent, report.answered, report.equal) == (2, 2, 2)
    assert broker.received[0].message.to_dict() == meant | {"cluster_id": "the target's", "node_id": -1}


def test_recorded_requests_are_sent_again(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(fine)
    for number in range(3):
        recording.exchange(number * 5, number % 2, "Heartbeat", 4, BEAT, {})
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert (report.sent, report.answered, report.equal, report.count) == (3, 3, 3, 0)
    assert [h.api for h in broker.received] == ["Heartbeat"] * 3
    assert len({h.connection for h in broker.received}) == 2
    assert [h.message.to_dict() for h in broker.received] == [{**BEAT, "group_instance_id": None}] * 3


def test_requests_are_sent_at_their_time(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(fine)
    for number in range(20):
        recording.exchange(number * 20, 0, "Heartbeat", 4, BEAT, {})
    folder = recording.done()
    for factor, seconds in ((1.0, 0.38), (4.0, 0.095)):
        broker.received.clear()
        begun_ns = time.time_ns()
        report = Replay(folder, broker.address, settings=Settings(Pace(factor))).run()
        # Not early; how late depends on who else uses the machine, and is measured in bench/replay.
        assert (broker.received[-1].time_ns - begun_ns) / 1e9 > seconds * 0.95
        assert len(report.late_ns) + report.held_back == 20
    begun = time.monotonic()
    Replay(folder, broker.address, settings=Settings(Pace(0.0, 100.0))).run()
    assert time.monotonic() - begun > 0.15


def test_as_many_requests_are_in_flight_as_when_recorded(start_broker: StartBroker, recording: TimedRecording) -> None:
    """Two are asked before the first answer, the third only after the second's: here it is late."""
    waited: list[int] = []

    def slow(message: Any, received: Any) -> dict[str, Any]:
        waited.append(len(broker.received))
        time.sleep(0.1)
        return {}

    broker = start_broker(slow)
    first = recording.request(0, 0, "Heartbeat", 4, BEAT)
    second = recording.request(1, 0, "Heartbeat", 4, BEAT)
    recording.response(2, 0, "Heartbeat", 4, {}, first)
    recording.response(3, 0, "Heartbeat", 4, {}, second)
    third = recording.request(4, 0, "Heartbeat", 4, BEAT)
    recording.response(5, 0, "Heartbeat", 4, {}, third)
    report = Replay(recording.done(), broker.address).run()
    times = [h.time_ns for h in broker.received]
    assert report.count == 0 and times[2] - times[0] > 150_000_000
    assert report.held_back == 1


@pytest.mark.parametrize(("order", "waits"), [(Order.RECORDED, True), (Order.CONNECTION, False), (Order.FREE, False)])
def test_answers_on_other_connections_are_awaited_in_recorded_order(start_broker: StartBroker, recording: TimedRecording, order: Order, waits: bool) -> None:
    came, other = [], threading.Event()

    def slow(message: Any, received: Any) -> dict[str, Any]:
        if message["group_id"] == "slow":
            came.append(other.wait(0.2 if waits else PATIENCE))  # whether the other is heard before this is answered
        else:
            other.set()
        return {}

    broker = start_broker(slow)
    recording.exchange(0, 0, "Heartbeat", 4, BEAT | {"group_id": "slow"}, {})
    recording.exchange(10, 1, "Heartbeat", 4, BEAT | {"group_id": "other"}, {})
    Replay(recording.done(), broker.address, settings=Settings(Pace(0.0), order)).run()
    assert came == [not waits] and other.is_set()


@pytest.mark.parametrize("order", list(Order))
def test_a_request_waits_for_an_id_from_another_connection(start_broker: StartBroker, recording: TimedRecording, order: Order) -> None:
    def answers(message: Any, received: Any) -> dict[str, Any]:
        if message.api == "InitProducerId":
            time.sleep(0.15)
            return {"producer_id": 900, "producer_epoch": 4}
        return produced(message)

    broker = start_broker(answers)
    recording.exchange(0, 0, "InitProducerId", 4, {"transactional_id": "x"}, {"producer_id": 40, "producer_epoch": 1})
    recording.exchange(5, 1, "Produce", 9, produce(producer_id=40, producer_epoch=1, base_sequence=0), ROW)
    report = Replay(recording.done(), broker.address, settings=Settings(Pace(0.0), order)).run()
    data = broker.received[-1].message["topic_data[0].partition_data[0].records"]
    (batch,) = batches(data)
    assert (batch.producer_id, batch.producer_epoch, batch.crc_ok) == (900, 4, True)
    assert report.count == 0


def test_connections_are_shared(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(fine)
    for number in range(12):
        recording.exchange(number, number, "Heartbeat", 4, BEAT, {})
    report = Replay(recording.done(), broker.address, settings=Settings(Pace(0.0), connections=3)).run()
    assert report.count == 0 and report.answered == 12
    assert len({h.connection for h in broker.received}) == 3
    ids = [h.message.header["correlation_id"] for h in broker.received]
    assert len(set(ids)) == 12


def test_no_answer_to_acks_0_is_expected_and_closing_loses_nothing(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(lambda message, received: None)
    for number in range(5):
        recording.request(number, 0, "Produce", 9, produce(b"%d" % number, acks=0))
    recording.close(6, 0)
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert (report.sent, report.unanswered, report.count) == (5, 0, 0)
    until(lambda: len(broker.received) == 5, lambda: broker.received)


def test_differences_are_reported_by_field(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(lambda message, received: {"error_code": 25, "throttle_time_ms": 7})
    recording.exchange(0, 0, "Heartbeat", 4, BEAT, {})
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert report.different == {"Heartbeat error_code": 1}
    (found,) = report.differences
    assert (found["path"], found["recorded"], found["got"]) == ("error_code", "NONE", "UNKNOWN_MEMBER_ID")
    assert report.ignored["irrelevant to the response"] == 1  # the throttle time


def test_a_transient_error_is_retried(start_broker: StartBroker, recording: TimedRecording) -> None:
    count = 0

    def answers(message: Any, received: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        return {"error_code": facts.error_code("COORDINATOR_LOAD_IN_PROGRESS") if count < 4 else 0}

    broker = start_broker(answers)
    recording.exchange(0, 0, "Heartbeat", 4, BEAT, {})
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert (report.sent, report.again, report.count, report.equal) == (1, 3, 0, 1)


def test_an_error_that_outlasts_patience_is_a_difference(
    start_broker: StartBroker, recording: TimedRecording, pass_time: Callable[[float], None]
) -> None:
    def answers(message: Any, received: Any) -> dict[str, Any]:
        pass_time(0.4 * PATIENCE)
        return {"error_code": facts.error_code("NOT_COORDINATOR")}

    broker = start_broker(answers)
    recording.exchange(0, 0, "Heartbeat", 4, BEAT, {})
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert report.different == {"Heartbeat error_code": 1}
    assert report.again == 3  # the fourth answer comes 1.2 PATIENCE after the first


def test_a_missing_topic_is_waited_for_once(
    start_broker: StartBroker, recording: TimedRecording, pass_time: Callable[[float], None]
) -> None:
    """The first Produce is sent again and again, those behind it are not: but for other errors, and once it was made."""
    gone, moved = facts.error_code("UNKNOWN_TOPIC_OR_PARTITION"), facts.error_code("NOT_LEADER_OR_FOLLOWER")
    asked: dict[bytes, int] = {}

    def answers(message: Any, received: Any) -> dict[str, Any]:
        if message.api == "CreateTopics":
            return {"topics": [{"name": "t"}]}
        (batch,) = batches(message["topic_data[0].partition_data[0].records"])
        value = next(batch.records()).value
        asked[value] = asked.get(value, 0) + 1
        if value == b"one":
            pass_time(0.4 * PATIENCE)
        first = {b"moved": moved, b"made": gone}
        return produced(message, error=gone if value not in first else first[value] if asked[value] == 1 else 0)

    broker = start_broker(answers)
    for number, value in enumerate((b"one", b"two", b"three", b"moved")):
        recording.exchange(number * 5, 0, "Produce", 9, produce(value), ROW)
    recording.exchange(30, 0, "CreateTopics", 4, {"topics": [{"name": "t"}]}, {"topics": [{"name": "t"}]})
    recording.exchange(35, 0, "Produce", 9, produce(b"made"), ROW)
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert asked.pop(b"one") == 4 and asked.pop(b"two") >= 1  # sent when patience for the one before is over, or nearly
    assert asked == {b"three": 1, b"moved": 2, b"made": 2}
    assert report.different == {"Produce responses[*].partition_responses[*].error_code": 3}
    assert report.notes["topics that the target did not have in time are not waited for again"] >= 1


def test_only_the_refused_partitions_of_a_produce_are_sent_again(start_broker: StartBroker, recording: TimedRecording) -> None:
    def answers(message: Any, received: Any) -> dict[str, Any]:
        refuses = len(broker.received) < 3
        rows = [
            {"index": p["index"], "error_code": 6 if refuses and p["index"] == 1 else 0, "base_offset": 3}
            for p in message.to_dict()["topic_data"][0]["partition_data"]
        ]
        return {"responses": [{"name": "t", "partition_responses": rows}]}

    broker = start_broker(answers)
    asked = produce()
    (part,) = asked["topic_data"][0]["partition_data"]
    asked["topic_data"][0]["partition_data"].append(part | {"index": 1})
    rows = [{"index": 0, "base_offset": 0}, {"index": 1, "base_offset": 0}]
    recording.exchange(0, 0, "Produce", 9, asked, {"responses": [{"name": "t", "partition_responses": rows}]})
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    sent = [[p["index"] for p in h.message.to_dict()["topic_data"][0]["partition_data"]] for h in broker.received]
    assert sent == [[0, 1], [1], [1]] and (report.again, report.count) == (2, 0)


def test_a_produce_refused_in_the_recording_is_left_out_by_default(start_broker: StartBroker, recording: TimedRecording) -> None:
    refused = {"responses": [{"name": "t", "partition_responses": [{"index": 0, "error_code": 6, "base_offset": -1}]}]}
    recording.exchange(0, 0, "Produce", 9, produce(), refused)
    recording.exchange(5, 0, "Produce", 9, produce(), ROW)
    folder = recording.done()
    broker = start_broker(produced)
    report = Replay(folder, broker.address, settings=MAX).run()
    assert len(broker.received) == 1 and sum(report.skipped.values()) == 1
    report = Replay(folder, broker.address, policy=Policy(refused=True), settings=MAX).run()
    assert len(broker.received) == 3 and report.count == 0


@pytest.mark.parametrize(("api", "version"), [("JoinGroup", 0), ("JoinGroup", 9), ("ConsumerGroupHeartbeat", 0)])
@pytest.mark.parametrize(("code", "left"), [("NOT_COORDINATOR", 1), ("COORDINATOR_LOAD_IN_PROGRESS", 1), ("MEMBER_ID_REQUIRED", 0)])
def test_a_member_refused_in_the_recording_does_not_join(
    start_broker: StartBroker, recording: TimedRecording, api: str, version: int, code: str, left: int
) -> None:
    """The target may take it, and would wait for it when its client joins again."""
    asked = {"group_id": "g", "member_id": ""}
    recording.exchange(0, 0, api, version, asked, {"error_code": facts.error_code(code), "member_id": "m-1"})
    recording.exchange(5, 0, api, version, {**asked, "member_id": "m-1" if code == "MEMBER_ID_REQUIRED" else ""}, {"member_id": "m-1"})
    folder = recording.done()
    broker = start_broker(lambda message, received: {"member_id": "m-7"})
    report = Replay(folder, broker.address, settings=MAX).run()
    assert (len(broker.received), sum(report.skipped.values())) == (2 - left, left)
    broker.received.clear()
    report = Replay(folder, broker.address, policy=Policy(refused=True), settings=MAX).run()
    assert (len(broker.received), sum(report.skipped.values())) == (2, 0)


@pytest.mark.parametrize("version", [9, 13])
def test_partitions_refused_in_the_recording_are_left_out(start_broker: StartBroker, recording: TimedRecording, version: int) -> None:
    """The recorded client sent partition 1 again by itself, as two requests would show at the target."""
    topic = {"name": "t"} if version < 13 else {"topic_id": b"\1" * 16}

    def asks(*partitions: int) -> dict[str, Any]:
        rows = [produce(b"%d" % p, partition=p)["topic_data"][0]["partition_data"][0] for p in partitions]
        return {"acks": 1, "topic_data": [{**topic, "partition_data": rows}]}

    def answer(**codes: int) -> dict[str, Any]:
        rows = [{"index": int(p[1:]), "error_code": code, "base_offset": 0} for p, code in codes.items()]
        return {"responses": [{**topic, "partition_responses": rows}]}

    def answers(message: Any, received: Any) -> dict[str, Any]:
        return answer(**{f"p{p['index']}": 0 for p in message.to_dict()["topic_data"][0]["partition_data"]})

    recording.exchange(0, 0, "Produce", version, asks(0, 1, 2), answer(p0=0, p1=6, p2=0))
    recording.exchange(5, 0, "Produce", version, asks(1), answer(p1=0))
    folder = recording.done()
    broker = start_broker(answers)

    def seen(policy: Policy) -> list[list[int]]:
        broker.received.clear()
        report = Replay(folder, broker.address, policy=policy, settings=MAX).run()
        assert (report.sent, report.again, report.count, sum(report.skipped.values())) == (2, 0, 0, 0)
        asked = [h.message.to_dict()["topic_data"][0]["partition_data"] for h in broker.received]
        assert all(
            b"%d" % p["index"] == next(batch.records()).value for rows in asked for p in rows for batch in batches(p["records"])
        )
        return [[p["index"] for p in rows] for rows in asked]

    assert seen(Policy()) == [[0, 2], [1]]
    assert seen(Policy(refused=True)) == [[0, 1, 2], [1]]


def test_skipped_requests_have_a_reason(start_broker: StartBroker, recording: TimedRecording) -> None:
    recording.exchange(0, 0, "SaslHandshake", 1, {"mechanism": "PLAIN"}, {})
    recording.exchange(5, 0, "DeleteTopics", 1, {"topic_names": ["t"]}, {"responses": [{"name": "t"}]})
    recording.exchange(10, 0, "ControlledShutdown", 1, {"broker_id": 1}, {})
    recording.exchange(15, 0, "Fetch", 4, {"replica_id": 2, "topics": []}, {})
    recording.exchange(20, 0, "AlterUserScramCredentials", 0, {"upsertions": [{"name": "u", "salt": b"s", "salted_password": b"p"}]}, {})
    recording.exchange(25, 0, "Heartbeat", 4, BEAT, {})
    folder = recording.done()
    broker = start_broker(fine)
    report = Replay(folder, broker.address, settings=MAX).run()
    assert [h.api for h in broker.received] == ["Heartbeat"]
    words = " / ".join(sorted(report.skipped))
    for part in ("logs in by itself", "--include-admin", "--include-internal", "sent by a replica"):
        assert part in words
    broker.received.clear()
    report = Replay(folder, broker.address, policy=Policy(admin=True, internal=True), settings=MAX).run()
    assert [h.api for h in broker.received] == ["DeleteTopics", "ControlledShutdown", "Fetch", "Heartbeat"]
    assert [why for why in report.skipped if "masked" in why] == ["AlterUserScramCredentials v0: its content was masked in the recording"]


def test_requests_are_sent_in_versions_of_the_target(start_broker: StartBroker, recording: TimedRecording) -> None:
    offers = {"ApiVersions": (0, 3), "Metadata": (0, 8), "Produce": (3, 7), "Heartbeat": (0, 1), "FindCoordinator": (0, 2)}
    broker = start_broker(lambda m, h: produced(m) if m.api == "Produce" else {"node_id": 1, "host": "h", "port": 1} if m.api == "FindCoordinator" else {}, offers=offers)  # fmt: skip
    recording.exchange(0, 0, "Produce", 9, produce(), ROW)
    recording.exchange(5, 0, "Heartbeat", 4, BEAT, {})
    recording.exchange(10, 0, "Heartbeat", 4, BEAT | {"group_instance_id": "me"}, {})
    found = {"coordinators": [{"key": "g", "node_id": 7, "host": "x", "port": 3}]}
    recording.exchange(15, 0, "FindCoordinator", 4, {"coordinator_keys": ["g"]}, found)
    recording.exchange(20, 0, "ListGroups", 4, {}, {})
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert [(h.api, h.message.api_version) for h in broker.received] == [("Produce", 7), ("Heartbeat", 1), ("FindCoordinator", 2)]
    assert report.count == 0
    assert report.versions == dict.fromkeys(("Produce v9 sent as v7", "Heartbeat v4 sent as v1", "FindCoordinator v4 sent as v2"), 1)
    words = " / ".join(sorted(report.skipped))
    assert "group_instance_id" in words and "does not offer this API" in words


def test_names_are_replaced(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(lambda m, h: produced(m) if m.api == "Produce" else {})
    recording.exchange(0, 0, "Produce", 9, produce(), ROW)
    recording.exchange(5, 0, "Heartbeat", 4, BEAT, {})
    names = NameMap(topics={"t": "other"}, groups={"g": "h"}, client_ids={"c": "renamed"})
    report = Replay(recording.done(), broker.address, names, settings=MAX).run()
    assert report.count == 0
    assert broker.received[0].message["topic_data[0].name"] == "other"
    assert broker.received[1].message["group_id"] == "h"
    assert {h.message.header["client_id"] for h in broker.received} == {"renamed"}


def test_a_target_that_closes_connections(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(lambda message, received: "close" if received.message["group_id"] == "bad" else {})
    recording.exchange(0, 0, "Heartbeat", 4, BEAT | {"group_id": "bad"}, {})
    recording.exchange(5, 0, "Heartbeat", 4, BEAT, {})
    recording.exchange(10, 1, "Heartbeat", 4, BEAT, {})
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert report.failed == {"Heartbeat v4: the target closed the connection": 1}
    assert report.answered == 2  # on a new connection, and on the other one


def test_a_target_that_never_answers(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(lambda message, received: None)
    recording.exchange(0, 0, "Heartbeat", 4, BEAT, {})
    recording.exchange(5, 1, "Heartbeat", 4, BEAT, {})
    report = Replay(recording.done(), broker.address, settings=Settings(Pace(0.0), patience=0.4)).run()
    assert report.sent == 2
    assert report.failed == {"Heartbeat v4: no answer within 0.4 s": 2}


def test_a_connection_that_the_recorded_broker_closed(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(lambda message, received: "close")
    recording.request(0, 0, "Heartbeat", 4, BEAT)
    recording.close(3, 0, by="broker")
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert (report.sent, report.unanswered, report.count, report.notes) == (1, 1, 0, {})


def test_a_target_that_cannot_be_reached(recording: TimedRecording) -> None:
    recording.exchange(0, 0, "Heartbeat", 4, BEAT, {})
    with pytest.raises(DialFailed, match="no connection"):
        Replay(recording.done(), ("127.0.0.1", 1), settings=MAX).run()


def test_fetches_that_come_back_early_are_repeated(
    start_broker: StartBroker, recording: TimedRecording, pass_time: Callable[[float], None]
) -> None:
    data = encode_batch([Record(n, 5, None, b"%d" % n, ()) for n in range(3)])
    row = {"partition_index": 0, "high_watermark": 3, "records": data}
    full = {"responses": [{"topic": "t", "partitions": [row]}]}
    count = 0

    def answers(message: Any, received: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        return full if count > 2 else {"responses": []}

    broker = start_broker(answers)
    rows = [{"partition": 0, "fetch_offset": 0}]
    recording.exchange(0, 0, "Fetch", 11, {"topics": [{"topic": "t", "partitions": rows}], "session_epoch": -1}, full)
    folder = recording.done()
    report = Replay(folder, broker.address, settings=MAX).run()
    assert (report.again, report.count) == (2, 0)

    def nothing(message: Any, received: Any) -> dict[str, Any]:
        pass_time(0.4 * PATIENCE)
        return {"responses": []}

    broker.answers = nothing
    report = Replay(folder, broker.address, settings=MAX).run()
    # Records that were there before the recording began cannot be expected; these were.
    assert report.notes.get("a fetched batch was written before the recording began") == 1


def test_requests_go_to_the_leader(start_broker: StartBroker, recording: TimedRecording) -> None:
    second = start_broker(produced)
    first = start_broker(produced)
    first.others[2] = second
    first.topics["t"] = bytes(15) + b"\1", 2
    for number in range(4):
        partition = number % 2
        answer = {"responses": [{"name": "t", "partition_responses": [{"index": partition, "base_offset": 0}]}]}
        recording.exchange(number * 5, 0, "Produce", 9, produce(partition=partition), answer)
    report = Replay(recording.done(), first.address, settings=MAX).run()
    assert report.count == 0
    assert [h.message["topic_data[0].partition_data[0].index"] for h in first.received] == [0, 0]
    assert [h.message["topic_data[0].partition_data[0].index"] for h in second.received] == [1, 1]


def test_rounds(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(fine)
    recording.exchange(0, 0, "Heartbeat", 4, BEAT, {})
    report = Replay(recording.done(), broker.address, settings=MAX, rounds=3).run()
    assert (report.sent, report.equal) == (3, 3)


def test_a_filter_leaves_out(start_broker: StartBroker, recording: TimedRecording) -> None:
    broker = start_broker(fine)
    recording.exchange(0, 0, "Heartbeat", 4, BEAT, {})
    recording.exchange(5, 0, "Heartbeat", 4, BEAT, {"error_code": 25})
    report = Replay(recording.done(), broker.address, settings=MAX, wanted=lambda exchange: not exchange.error).run()
    assert len(broker.received) == 1 and report.skipped == {"Heartbeat v4: the filter leaves it out": 1}


def test_damaged_requests_are_left_out(start_broker: StartBroker, recording: TimedRecording, tmp_path: Path) -> None:
    from barnabas.decoder.wire.frame import Direction

    broker = start_broker(fine)
    recording.exchange(0, 0, "Heartbeat", 4, BEAT, {})
    broken = b"\0\x0c\0\4\0\0\0\x09\0\1c\0" + b"\xff" * 5
    recording.recorder.data(0, Direction.REQUEST, recording._ns(5), with_size(broken))
    unknown = b"\x7f\0\0\4\0\0\0\x0a\0\1c"
    recording.recorder.data(0, Direction.REQUEST, recording._ns(6), with_size(unknown))
    report = Replay(recording.done(), broker.address, settings=MAX).run()
    assert len(broker.received) == 1 and len(report.skipped) == 2 and report.count == 0


def test_a_transient_error_is_retried_before_the_connection_is_closed(start_broker: StartBroker, recording: TimedRecording) -> None:
    """The recorded client closed the connection after its answer; the target's first answer is a transient error."""
    tries: list[int] = []

    def answers(message: Any, received: Any) -> dict[str, Any]:
        tries.append(1)
        return {"error_code": facts.error_code("COORDINATOR_LOAD_IN_PROGRESS") if len(tries) == 1 else 0}

    broker = start_broker(answers)
    recording.exchange(0, 0, "Heartbeat", 4, BEAT, {})
    recording.close(5, 0)
    recording.exchange(10, 1, "Heartbeat", 4, BEAT | {"group_id": "other"}, {})
    report = Replay(recording.done(), broker.address, settings=Settings(Pace(0.0))).run()
    assert (report.count, report.again) == (0, 1)
