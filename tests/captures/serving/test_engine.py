"""The serving logic without sockets, on made-up recordings: order, errors in their places, ends of logs, versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures.replay.version_conversion import NotExpressible, convert_response
from barnabas.captures.serving import DelayedReply, NotRecorded, OfferMode, Reply
from barnabas.decoder import records
from barnabas.decoder.records import Record
from barnabas.decoder.schema import facts
from harness.peers.engine_client import FETCH, METADATA, PRODUCE, EngineClient, Exchanges, batch, fetch, produce

LIST_OFFSETS, FIND = 2, 10
OFFSET_COMMIT, OFFSET_FETCH, JOIN, HEARTBEAT, SYNC = 8, 9, 11, 12, 14
INIT, API_VERSIONS, CREATE, DELETE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 22, 18, 19, 20, 32, 44


def topic_error(answer: dict[str, Any]) -> int:
    code: int = answer["topics"][0]["error_code"]
    return code


NAMED = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False}
CREATION = {"topics": [{"name": "orders", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1}


def created() -> Exchanges:
    recording = Exchanges().metadata("orders", error=3)
    return recording.add(CREATE, 2, CREATION, {"topics": [{"name": "orders", "error_code": 0}]}).metadata("orders")


def test_answers_belong_between_the_changes_around_them():
    live = EngineClient(created())
    assert [topic_error(live.ask(METADATA, 4, NAMED)) for _ in range(3)] == [3, 3, 3]
    assert topic_error(live.ask(CREATE, 2, CREATION)) == 0
    assert [topic_error(live.ask(METADATA, 4, NAMED)) for _ in range(2)] == [0, 0]


def test_a_client_that_does_not_look_first_gets_the_present_state():
    live = EngineClient(created())
    live.ask(CREATE, 2, CREATION)
    assert topic_error(live.ask(METADATA, 4, NAMED)) == 0


def test_a_response_that_waited_for_a_change_is_not_served_before_it():
    """A Metadata request behind a long poll, answered when the topic had been deleted meanwhile."""
    recording = Exchanges().metadata("orders").metadata("orders", error=3, ms=8)
    recording.add(DELETE, 1, {"topic_names": ["orders"]}, {"responses": [{"name": "orders"}]})
    live = EngineClient(recording)
    assert [topic_error(live.ask(METADATA, 4, NAMED)) for _ in range(3)] == [0, 0, 0]
    assert live.ask(DELETE, 1, {"topic_names": ["orders"]})
    assert topic_error(live.ask(METADATA, 4, NAMED)) == 3


def test_addresses_are_those_that_are_served():
    answer = EngineClient(created()).ask(METADATA, 4, NAMED)
    assert [(b["host"], b["port"]) for b in answer["brokers"]] == [("localhost", 19092)]


def test_another_version_gets_the_same_answer_restated():
    live = EngineClient(created())
    answer = live.ask(METADATA, 12, NAMED)
    assert answer["topics"][0]["name"] == "orders"
    _, reply = live.start(CREATE, 5, CREATION)
    assert isinstance(reply, Reply) and reply.how == "restated"


def test_fields_that_a_version_lacks_are_not_invented():
    fields = {"responses": [{"name": None, "topic_id": None, "error_code": 3}]}
    with pytest.raises(NotExpressible, match="null"):
        convert_response(facts.api_key("DeleteTopics"), 6, 5, fields)


def test_records_appear_when_they_are_produced_again():
    live = EngineClient(Exchanges().metadata("orders").produced("orders", [b"a", b"b"], 40).produced("orders", [b"c"], 42))
    assert live.values("orders", 40) == []
    assert live.produce("orders", [b"a"])["base_offset"] == 40
    assert live.produce("orders", [b"b", b"c"])["base_offset"] == 41
    assert live.values("orders", 40) == [b"a", b"b", b"c"]
    assert live.values("orders", 42) == [b"c"]


def test_records_of_others_are_there_in_their_place():
    recording = Exchanges().metadata("orders").produced("orders", [b"own"], 2)
    recording.fetched("orders", 0, batch([b"x", b"y"], 0) + batch([b"own"], 2) + batch([b"later"], 3), 4)
    live = EngineClient(recording)
    assert live.values("orders", 0) == [b"x", b"y"]
    assert live.produce("orders", [b"own"])["base_offset"] == 2
    assert live.values("orders", 0) == [b"x", b"y", b"own", b"later"]
    assert EngineClient(recording, everything=True).values("orders", 0) == [b"x", b"y", b"own", b"later"]


def test_a_record_without_acknowledgement_is_the_clients_own():
    recording = Exchanges().metadata("orders").produced("orders", [b"fire"], 0, acks=0)
    recording.fetched("orders", 0, batch([b"fire"], 0), 1)
    live = EngineClient(recording)
    assert live.values("orders", 0) == []
    assert live.frame(PRODUCE, 5, produce("orders", [b"fire"], acks=0)) is None
    assert live.values("orders", 0) == [b"fire"]


def test_a_fetch_at_the_end_of_a_log_waits_for_records():
    live = EngineClient(Exchanges().metadata("orders").produced("orders", [b"a"], 0))
    ask, waiting = live.start(FETCH, 4, fetch("orders", 0, wait_ms=700))
    assert isinstance(waiting, DelayedReply) and waiting.deadline == pytest.approx(live.now + 0.7)
    assert waiting.poll(live.now + 0.1, False) is None
    live.produce("orders", [b"a"])
    reply = waiting.poll(live.now + 0.2, False)
    assert reply is not None and live.engine.encode(ask, reply) is not None


def test_errors_of_produce_come_at_the_same_end_of_the_log():
    recording = Exchanges().metadata("orders").produced("orders", [b"a"], 0).produced("orders", [b"b"], 0, error=19)
    live = EngineClient(recording.produced("orders", [b"b"], 1))
    assert [live.produce("orders", [value])["error_code"] for value in (b"a", b"b", b"b")] == [0, 19, 0]


def test_errors_of_fetch_come_at_the_same_offset():
    recording = Exchanges().metadata("orders").fetched("orders", 0, batch([b"a"], 0), 1).fetched("orders", 1, b"", -1, error=6)
    live = EngineClient(recording)
    assert live.values("orders", 0) == [b"a"]
    answers = [live.ask(FETCH, 4, fetch("orders", 1)) for _ in range(2)]
    assert [answer["responses"][0]["partitions"][0]["error_code"] for answer in answers] == [6, 0]


def test_an_offset_that_is_not_there_is_out_of_range():
    answer = EngineClient(Exchanges().metadata("orders")).ask(FETCH, 4, fetch("orders", 9))
    assert answer["responses"][0]["partitions"][0]["error_code"] == 1


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_the_old_record_formats_get_their_offsets(magic, codec):
    live = EngineClient(Exchanges().metadata("orders").produced("orders", [b"a"], 0))
    for first in (b"a", b"c"):
        sent = [Record(n, 1000, None, value) for n, value in enumerate((first, b"b"))]
        data = records.encode_messages(sent, magic=magic, codec=codec)
        body = produce("orders", [])
        body["topic_data"][0]["partition_data"][0]["records"] = data
        live.ask(PRODUCE, 2, body)
    answer = live.ask(FETCH, 2, fetch("orders", 0))
    found = [r for e in records.batches(answer["responses"][0]["partitions"][0]["records"]) for r in e.records()]
    assert [(r.offset, r.value) for r in found] == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"b")]


def session_fetch(topic: str, session: int, epoch: int, partitions: list[int]) -> dict[str, Any]:
    parts = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for n in partitions]
    topics = [{"topic": topic, "partitions": parts}] if parts else []
    return {"max_wait_ms": 0, "min_bytes": 1, "session_id": session, "session_epoch": epoch, "topics": topics}


def test_fetch_sessions_send_only_changes():
    live = EngineClient(Exchanges().metadata("orders", partitions=2).produced("orders", [b"a"], 0))
    first = live.ask(FETCH, 7, session_fetch("orders", 0, 0, [0, 1]))
    assert first["session_id"] and len(first["responses"][0]["partitions"]) == 2
    session = first["session_id"]
    second = live.ask(FETCH, 7, session_fetch("orders", session, 1, []))
    assert second["responses"] == []
    live.produce("orders", [b"a"])
    third = live.ask(FETCH, 7, session_fetch("orders", session, 2, []))
    assert [p["partition_index"] for p in third["responses"][0]["partitions"]] == [0]
    unknown = live.ask(FETCH, 7, session_fetch("orders", 999, 1, []))
    assert facts.error_name(unknown["error_code"]) == "FETCH_SESSION_ID_NOT_FOUND"


def committed(live: EngineClient) -> int:
    asked = {"group_id": "billing", "topics": [{"name": "orders", "partition_indexes": [0]}]}
    offset: int = live.ask(OFFSET_FETCH, 3, asked)["topics"][0]["partitions"][0]["committed_offset"]
    return offset


def group_recording() -> Exchanges:
    recording = Exchanges().metadata("orders")
    asked = {"group_id": "billing", "topics": [{"name": "orders", "partition_indexes": [0]}]}
    item = {"partition_index": 0, "committed_offset": 5, "metadata": "", "error_code": 0}
    recording.add(OFFSET_FETCH, 3, asked, {"topics": [{"name": "orders", "partitions": [item]}]})
    joined = {"error_code": 0, "generation_id": 7, "protocol_name": "range", "leader": "till-1", "member_id": "till-1"}
    return recording.add(*join(), {"error_code": 16, "member_id": ""}).add(*join(), joined)


def join(member_id: str = "", version: int = 3, metadata: bytes = b"m") -> tuple[int, int, dict[str, Any]]:
    fields = {"group_id": "billing", "session_timeout_ms": 9000, "rebalance_timeout_ms": 9000, "member_id": member_id,
              "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": metadata}]}  # fmt: skip
    return JOIN, version, fields


def test_committed_offsets_begin_as_recorded_and_go_on_live():
    live = EngineClient(group_recording())
    assert committed(live) == 5
    commit = {"partition_index": 0, "committed_offset": 8, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [commit]}]
    member = {"group_id": "billing", "generation_id_or_member_epoch": -1, "member_id": ""}
    live.ask(OFFSET_COMMIT, 3, member | {"topics": topics})
    assert committed(live) == 8


def test_a_group_forms_with_recorded_ids_errors_and_generations():
    live = EngineClient(group_recording())
    refused = live.ask(*join())
    assert facts.error_name(refused["error_code"]) == "NOT_COORDINATOR"
    first = live.ask(*join())
    assert (first["member_id"], first["generation_id"]) == ("till-1", 7)
    assert [m["member_id"] for m in first["members"]] == ["till-1"]


def test_two_members_wait_for_each_other_and_get_the_live_leaders_assignment():
    live = EngineClient(group_recording())
    live.ask(*join())
    live.ask(*join())
    beat = {"group_id": "billing", "generation_id": 7, "member_id": "till-1"}
    _, follower = live.start(*join(metadata=b"n"))
    assert isinstance(follower, DelayedReply)
    answer = live.ask(HEARTBEAT, 1, beat)
    assert facts.error_name(answer["error_code"]) == "REBALANCE_IN_PROGRESS"
    leader = live.ask(*join("till-1"))
    assert leader["generation_id"] == 8 and len(leader["members"]) == 2
    joined = follower.poll(live.now, False)
    assert joined is not None and joined.fields is not None and joined.fields["leader"] == "till-1"
    other = joined.fields["member_id"]
    sync = {"group_id": "billing", "generation_id": 8}
    _, waiting = live.start(SYNC, 1, sync | {"member_id": other, "assignments": []})
    assert isinstance(waiting, DelayedReply) and waiting.poll(live.now, False) is None
    given = [{"member_id": "till-1", "assignment": b"0"}, {"member_id": other, "assignment": b"1"}]
    mine = live.ask(SYNC, 1, sync | {"member_id": "till-1", "assignments": given})
    theirs = waiting.poll(live.now, False)
    assert mine["assignment"] == b"0"
    assert theirs is not None and theirs.fields is not None and theirs.fields["assignment"] == b"1"


def test_a_member_that_is_silent_is_taken_out():
    live = EngineClient(group_recording())
    live.ask(*join())
    live.ask(*join())
    live.now += 60
    answer = live.ask(HEARTBEAT, 1, {"group_id": "billing", "generation_id": 7, "member_id": "till-1"})
    assert facts.error_name(answer["error_code"]) == "UNKNOWN_MEMBER_ID"


def test_producer_ids_are_the_recorded_ones_and_then_new_ones():
    asked = {"transactional_id": None, "transaction_timeout_ms": 1}
    recording = Exchanges().add(INIT, 1, asked, {"error_code": 0, "producer_id": 4000, "producer_epoch": 0})
    live = EngineClient(recording)
    first, second = (live.ask(INIT, 1, asked)["producer_id"] for _ in range(2))
    assert first == 4000 < second


def test_parts_of_several_answers_make_one():
    def asked(*names: str) -> dict[str, Any]:
        return {
            "resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]
        }

    def response(name: str) -> dict[str, Any]:
        return {"results": [{"error_code": 0, "resource_type": 2, "resource_name": name, "configs": []}]}

    recording = Exchanges()
    for name in ("a", "b"):
        recording.add(DESCRIBE_CONFIGS, 1, asked(name), response(name))
    live = EngineClient(recording)
    answer = live.ask(DESCRIBE_CONFIGS, 1, asked("b", "a"))
    assert [item["resource_name"] for item in answer["results"]] == ["b", "a"]
    assert live.engine.counts == {"composed": 1}
    with pytest.raises(NotRecorded) as missed:
        live.ask(DESCRIBE_CONFIGS, 1, asked("b", "c"))
    assert missed.value.nearest is not None and missed.value.nearest.position == 1


def misses() -> Iterator[tuple[int, int, dict[str, Any], str]]:
    yield METADATA, 4, {"topics": [{"name": "odrers"}]}, "Metadata v4 for odrers"
    yield PRODUCE, 5, produce("odrers", [b"a"]), "Produce v5 for odrers"
    yield FIND, 1, {"key": "others", "key_type": 0}, "FindCoordinator v1 for others"
    yield *join()[:2], join()[2] | {"group_id": "others"}, "JoinGroup v3 for group others"
    commit = {"group_id": "others", "generation_id_or_member_epoch": -1, "member_id": "", "topics": []}
    yield OFFSET_COMMIT, 3, commit, "OffsetCommit v3 for group others"
    fetched = {"group_id": "others", "topics": []}
    yield OFFSET_FETCH, 3, fetched, "OffsetFetch v3 for group others"
    yield HEARTBEAT, 1, {"group_id": "others", "generation_id": 1, "member_id": "m"}, "Heartbeat v1 for group others"
    listed = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "odrers", "partitions": []}]}
    yield LIST_OFFSETS, 2, listed, "ListOffsets v2 for odrers"
    yield INIT, 1, {"transactional_id": "t", "transaction_timeout_ms": 1}, "InitProducerId v1 for transactional id t"
    yield ALTER_CONFIGS, 1, {"resources": []}, "IncrementalAlterConfigs v1"


@pytest.mark.parametrize(("api", "version", "fields", "words"), list(misses()))
def test_a_miss_names_the_request(api, version, fields, words):
    with pytest.raises(NotRecorded) as missed:
        EngineClient(group_recording()).ask(api, version, fields)
    assert missed.value.what == words


def test_versions_are_offered_as_recorded_or_as_can_be_answered():
    keys = [{"api_key": key, "min_version": 0, "max_version": 6} for key in (0, 1, 3, 18, 999)]
    recording = created().add(API_VERSIONS, 0, {}, {"error_code": 0, "api_keys": keys})
    assert {item["api_key"] for item in EngineClient(recording).ask(API_VERSIONS, 0, {})["api_keys"]} == {0, 1, 3, 18}
    only = EngineClient(recording, offer=OfferMode.ANSWERABLE).ask(API_VERSIONS, 0, {})["api_keys"]
    assert {(item["api_key"], item["max_version"]) for item in only} == {(3, 4), (18, 0), (19, 2)}


@pytest.mark.parametrize("recorded", [False, True])
def test_telemetry_is_offered_where_it_was_recorded(recorded: bool) -> None:
    """Clients ask for it by the clock (KIP-714): a run that takes longer than the recorded one would miss its answer."""
    keys = [{"api_key": key, "min_version": 0, "max_version": 6} for key in (0, 3, 18, 71, 72)]
    recording = created().add(API_VERSIONS, 0, {}, {"error_code": 0, "api_keys": keys})
    if recorded:
        recording.add(71, 0, {}, {"error_code": 0})
    there = {item["api_key"] for item in EngineClient(recording).ask(API_VERSIONS, 0, {})["api_keys"]}
    assert there == {0, 3, 18} | ({71, 72} if recorded else set())


def test_a_version_of_api_versions_that_nobody_knows_is_refused_as_brokers_do():
    live = EngineClient(created())
    frame = (18).to_bytes(2, "big") + (30).to_bytes(2, "big") + (77).to_bytes(4, "big") + b"\0\x04live\0\0"
    ask = live.engine.read(live.session, frame, live.now, 0)
    reply = live.engine.answer(ask)
    assert isinstance(reply, Reply)
    answer = live.engine.encode(ask, reply)
    message = decoder.decode_response(answer, api_key=18, api_version=30)
    assert facts.error_name(message["error_code"]) == "UNSUPPORTED_VERSION" and message.api_version == 0


def test_a_plain_login_is_answered_whatever_the_password():
    """Recordings hold no passwords: there is nothing to compare one with."""
    shake, login = {"mechanism": "PLAIN"}, {"auth_bytes": b"*" * 12}
    recording = Exchanges().add(17, 1, shake, {"error_code": 0, "mechanisms": ["PLAIN"]}).add(36, 1, login, {"error_code": 0})
    live = EngineClient(recording)
    shaken = live.ask(17, 1, shake)
    assert shaken["mechanisms"] == ["PLAIN"]
    answer = live.ask(36, 1, {"auth_bytes": b"\0till\0secret"})
    assert answer["error_code"] == 0


def test_a_list_of_everything_names_topics_as_the_live_client_does():
    recording = Exchanges().metadata("orders-11aa22bb33")
    live = EngineClient(recording)
    named = {"topics": [{"name": "orders-99ff88ee77"}], "allow_auto_topic_creation": False}
    answer = live.ask(METADATA, 4, named)
    assert answer["topics"][0]["name"] == "orders-99ff88ee77"
    assert live.produce("orders-99ff88ee77", [b"a"])["base_offset"] == 0
    with pytest.raises(NotRecorded):
        live.ask(METADATA, 4, {"topics": [{"name": "orders-2"}], "allow_auto_topic_creation": False})


def deleted(*partitions: tuple[int, int]) -> dict[str, Any]:
    parts = [{"partition_index": partition, "offset": offset} for partition, offset in partitions]
    return {"topics": [{"name": "orders", "partitions": parts}], "timeout_ms": 1}


def test_the_answer_of_another_partition_is_none():
    answer = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "low_watermark": 40}]}]}
    live = EngineClient(Exchanges().metadata("orders").add(21, 1, deleted((0, 40)), answer))
    for known in (deleted((0, 40)), deleted((0, 39))):  # also with other options
        assert live.ask(21, 1, known)["topics"][0]["partitions"][0]["low_watermark"] == 40
    for unknown in (deleted((1, 40)), deleted((0, 40), (1, 40))):
        with pytest.raises(NotRecorded):
            live.start(21, 1, unknown)


def test_requests_of_share_groups_are_misses():
    topic_id = b"\7" * 16
    asked = {"group_id": "g", "member_id": "m", "share_session_epoch": 0, "topics": [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]}
    answer = {"responses": [{"topic_id": topic_id, "partitions": [{"partition_index": 0, "records": batch([b"a"], 40)}]}]}
    beat = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["orders"]}
    recording = Exchanges().metadata("orders").add(78, 1, asked, answer).add(76, 1, beat, {"member_id": "m", "member_epoch": 1})
    live = EngineClient(recording)
    for partition in (0, 1):
        with pytest.raises(NotRecorded, match="share groups are not supported"):
            live.start(78, 1, asked | {"topics": [{"topic_id": topic_id, "partitions": [{"partition_index": partition}]}]})
    with pytest.raises(NotRecorded, match="share groups are not supported"):
        live.start(76, 1, beat)
