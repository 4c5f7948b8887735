"""Ids, epochs and offsets of the target in the recording's place."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from barnabas.captures.replay.mapping import IdMapping, NameMap, OffsetMap, RecordedCluster, UnknownId
from barnabas.captures.replay.preparer import Preparer, RecordedFetchSessions
from barnabas.captures.replay.rewrite import changed, read
from barnabas.captures.replay.script import RecordedCall
from barnabas.decoder import Exchange, decode_body, decode_request, embedded, encode_body, encode_request
from barnabas.decoder.codec.message import Message
from barnabas.decoder.records import Record, batches, encode_batch
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.meaning import Meaning
from hypothesis import example, given
from hypothesis import strategies as st

ORDERS, THERE = uuid.UUID(int=7), uuid.UUID(int=8)


def request(api: str, version: int, fields: dict[str, Any]) -> Message:
    return decode_request(encode_request(facts.api_key(api), version, fields))


def response(api: str, version: int, fields: dict[str, Any]) -> Message:
    key = facts.api_key(api)
    return decode_body("response", key, version, encode_body("response", key, version, fields))


def mapping(**names: Any) -> IdMapping:
    recorded = RecordedCluster(topics={ORDERS.bytes: "orders"})
    recorded.given |= {(Meaning.MEMBER_ID, "m-1"), (Meaning.PRODUCER_ID, 40), (Meaning.GENERATION, ("g", 3))}
    return IdMapping(NameMap(**names), recorded)


def prepared(ids: IdMapping, message: Message) -> dict[str, Any]:
    exchange = Exchange(request=message.frame, api_key=message.api_key, api_version=message.api_version)
    return Preparer(ids, None).request(RecordedCall(0, 0, 0, exchange)).to_dict()


def test_member_ids_and_generations_are_unknown_until_their_response() -> None:
    ids = mapping()
    beat = request("Heartbeat", 4, {"group_id": "g", "generation_id": 3, "member_id": "m-1"})
    with pytest.raises(UnknownId):
        prepared(ids, beat)
    join = request("JoinGroup", 7, {"group_id": "g", "protocols": []})
    ids.learn(
        join,
        response("JoinGroup", 7, {"generation_id": 3, "member_id": "m-1", "leader": "m-1"}),
        response("JoinGroup", 7, {"generation_id": 12, "member_id": "longer-member", "leader": "x"}),
    )
    rewritten = prepared(ids, beat)
    assert (rewritten["generation_id"], rewritten["member_id"]) == (12, "longer-member")
    other = prepared(ids, request("Heartbeat", 4, {"group_id": "h", "generation_id": 3, "member_id": "made-by-client"}))
    assert (other["generation_id"], other["member_id"]) == (3, "made-by-client")


def test_producers_in_fields_and_in_records() -> None:
    ids = mapping()
    batch = encode_batch(
        [Record(0, 5, None, b"v", ())], producer_id=40, producer_epoch=2, base_sequence=9, transactional=True
    )
    rows = [{"name": "t", "partition_data": [{"index": 0, "records": batch + batch}]}]
    produce = request("Produce", 9, {"transactional_id": "x", "topic_data": rows})
    with pytest.raises(UnknownId) as waits:
        prepared(ids, produce)
    assert waits.value.role is Meaning.PRODUCER_ID and waits.value.value == 40
    ids.learn_producer((40, 2), (1000, 0))
    found = list(batches(prepared(ids, produce)["topic_data"][0]["partition_data"][0]["records"]))
    assert [(b.producer_id, b.producer_epoch, b.base_sequence, b.crc_ok) for b in found] == [(1000, 0, 9, True)] * 2
    end = prepared(ids, request("EndTxn", 3, {"transactional_id": "x", "producer_id": 40, "producer_epoch": 2}))
    assert (end["producer_id"], end["producer_epoch"]) == (1000, 0)


def test_the_epoch_of_a_new_transaction_is_learnt() -> None:
    ids = mapping()
    ids.learn(
        request("EndTxn", 5, {"transactional_id": "x"}),
        response("EndTxn", 5, {"producer_id": 40, "producer_epoch": 3}),
        response("EndTxn", 5, {"producer_id": 9, "producer_epoch": 77}),
    )
    assert ids.producer(40, 3) == (9, 77)


def test_topic_ids_by_name_by_answer_and_not_at_all() -> None:
    ids = mapping(topics={"orders": "orders-b"})
    with pytest.raises(UnknownId):
        ids.change(Meaning.TOPIC_ID, ORDERS.bytes, {}, "topic_id")
    ids.topics["orders-b"] = THERE.bytes
    assert ids.change(Meaning.TOPIC_ID, ORDERS.bytes, {}, "topic_id") == THERE.bytes
    ids.learn(
        request("Metadata", 12, {}),
        response("Metadata", 12, {"topics": [{"name": "orders", "topic_id": ORDERS}, {"name": "a", "topic_id": uuid.UUID(int=1)}]}),
        response("Metadata", 12, {"topics": [{"name": "a", "topic_id": uuid.UUID(int=2)}, {"name": "orders-b", "topic_id": THERE}]}),
    )  # fmt: skip
    assert ids.topic_ids == {ORDERS.bytes: THERE.bytes, uuid.UUID(int=1).bytes: uuid.UUID(int=2).bytes}


def test_renamed_topics_in_everything_that_names_them() -> None:
    ids = mapping(
        topics={"orders": "o"}, groups={"g": "h"}, transactional_ids={"x": "y"}, client_ids={"c": "other client"}
    )
    metadata = prepared(ids, request("FindCoordinator", 3, {"key": "g", "key_type": 0}))
    assert metadata["key"] == "h"
    assert prepared(ids, request("FindCoordinator", 4, {"coordinator_keys": ["x", "g"], "key_type": 1}))[
        "coordinator_keys"
    ] == ["y", "g"]
    plan = {
        "topics": ["orders", "kept"],
        "user_data": b"\0\0\0\1",
        "owned_partitions": [{"topic": "orders", "partitions": [1]}],
    }
    data = b"\0\1" + embedded.encode("ConsumerProtocolSubscription", 1, plan)
    join = prepared(ids, request("JoinGroup", 5, {"group_id": "g", "protocols": [{"name": "range", "metadata": data}]}))
    assert join["group_id"] == "h"
    rewritten = embedded.subscription(join["protocols"][0]["metadata"])
    assert rewritten["topics"] == ["o", "kept"] and rewritten["owned_partitions"] == [{"topic": "o", "partitions": [1]}]
    configs = request(
        "DescribeConfigs",
        1,
        {"resources": [{"resource_type": 2, "resource_name": "orders"}, {"resource_type": 4, "resource_name": "1"}]},
    )
    ids.brokers[1] = 5
    assert [r["resource_name"] for r in prepared(ids, configs)["resources"]] == ["o", "5"]
    frame = encode_request(12, 4, {"group_id": "g", "member_id": "m"}, client_id="c", correlation_id=3)
    exchange = Exchange(request=frame, api_key=12, api_version=4)
    out = decode_request(Preparer(ids, None).request(RecordedCall(0, 0, 0, exchange)).frame)
    assert out.header["client_id"] == "other client" and out["group_id"] == "h"


def test_offsets_follow_the_partition() -> None:
    ids = mapping()
    rows = [{"name": "orders", "partition_responses": [{"index": 1, "base_offset": 100}]}]
    there = [{"name": "orders", "partition_responses": [{"index": 1, "base_offset": 7}]}]
    ids.learn(
        request("Produce", 8, {}),
        response("Produce", 8, {"responses": rows}),
        response("Produce", 8, {"responses": there}),
    )
    commit = request("OffsetCommit", 8, {"group_id": "g", "topics": [{"name": "orders", "partitions": [
        {"partition_index": 1, "committed_offset": 103}, {"partition_index": 2, "committed_offset": 50}]}]})  # fmt: skip
    assert [p["committed_offset"] for p in prepared(ids, commit)["topics"][0]["partitions"]] == [10, 50]


@example([(0, 1), (1, 2), (0, 0)], 0)
@example([(0, 1), (5, 6), (3, 3)], 0)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=20), st.integers(-3, 2000))
def test_offset_maps_meet_their_points_and_are_never_negative(points: list[tuple[int, int]], asked: int) -> None:
    offsets = OffsetMap()
    for recorded, there in points:
        offsets.point(recorded, there)
    last = dict(points)
    for recorded, there in last.items():
        assert offsets.target(recorded) == there
    assert offsets.target(asked) == asked if asked < 0 else offsets.target(asked) >= 0


def test_unchanged_fields_keep_their_bytes() -> None:
    ids = mapping()
    message = request("OffsetCommit", 8, {"group_id": "g", "topics": [{"name": "orders", "partitions": []}]})
    assert (
        changed(message, lambda role, value, scope, name: ids.change(role, value, scope, name)).frame == message.frame
    )


def test_scopes_name_where_a_field_stands() -> None:
    rows = [{"topic_id": ORDERS, "partitions": [{"partition": 4, "fetch_offset": 9}]}]
    found = [
        (value, scope[Meaning.TOPIC_ID], scope[Meaning.PARTITION])
        for role, value, scope, _ in read(request("Fetch", 13, {"topics": rows}))
        if role is Meaning.OFFSET and value == 9
    ]
    assert found == [(9, ORDERS.bytes, 4)]


# --- fetch sessions


def fetch(session: int, epoch: int, partitions: list[int], forgotten: list[int] = []) -> Message:  # noqa: B006
    rows = [{"partition": p, "fetch_offset": 10 + epoch} for p in partitions]
    gone = [{"topic": "t", "partitions": forgotten}] if forgotten else []
    return request("Fetch", 12, {"session_id": session, "session_epoch": epoch,
                                 "topics": [{"topic": "t", "partitions": rows}] if rows else [], "forgotten_topics_data": gone})  # fmt: skip


def answer(session: int, error: int = 0) -> Message:
    return response("Fetch", 12, {"session_id": session, "error_code": error})


def epoch_and_partitions(message: Message) -> tuple[int, int, list[tuple[int, int]]]:
    fields = message.to_dict()
    rows = [(p["partition"], p["fetch_offset"]) for t in fields["topics"] for p in t["partitions"]]
    return fields["session_id"], fields["session_epoch"], rows


def test_sessions_are_the_targets() -> None:
    sessions = RecordedFetchSessions()
    first = fetch(0, 0, [0, 1])
    assert epoch_and_partitions(sessions.prepared(first, 1)) == (0, 0, [(0, 10), (1, 10)])
    sessions.answered(first, 1, answer(500), answer(9))
    second = fetch(500, 1, [1])
    assert epoch_and_partitions(sessions.prepared(second, 2)) == (9, 1, [(1, 11)])
    sessions.answered(second, 2, answer(500), answer(9))
    # Sent once more, the epoch goes on at the target.
    third = fetch(500, 2, [], [0])
    assert epoch_and_partitions(sessions.prepared(third, 3)) == (9, 2, [])
    assert epoch_and_partitions(sessions.prepared(third, 3)) == (9, 3, [])


def test_a_session_that_the_target_refuses_gets_full_requests() -> None:
    sessions = RecordedFetchSessions()
    first = fetch(0, 0, [0, 1, 2])
    sessions.prepared(first, 1)
    sessions.answered(first, 1, answer(500), answer(0))
    second = fetch(500, 1, [1], [2])
    assert epoch_and_partitions(sessions.prepared(second, 2)) == (0, -1, [(0, 10), (1, 11)])


def test_a_forgotten_session_gets_full_requests() -> None:
    sessions = RecordedFetchSessions()
    first = fetch(0, 0, [0])
    sessions.prepared(first, 1)
    sessions.answered(first, 1, answer(500), answer(9))
    second = fetch(500, 1, [])
    sessions.prepared(second, 2)
    sessions.answered(second, 2, answer(500), answer(0, facts.error_code("FETCH_SESSION_ID_NOT_FOUND")))
    assert epoch_and_partitions(sessions.prepared(second, 2)) == (0, -1, [(0, 10)])


def test_a_connection_is_meant_for_the_targets_cluster() -> None:
    """ApiVersions v5 (KIP-1242) names the cluster and the broker that a client means to have reached; a broker of another one
    refuses it with REBOOTSTRAP_REQUIRED."""
    fields = {"client_software_name": "java", "client_software_version": "4.4.0", "cluster_id": "recorded", "node_id": 3}
    ids = mapping()
    assert prepared(ids, request("ApiVersions", 5, fields)) == fields | {"cluster_id": None, "node_id": -1}
    ids.cluster_id = "there"
    assert prepared(ids, request("ApiVersions", 5, fields)) == fields | {"cluster_id": "there", "node_id": -1}
    first = fields | {"cluster_id": None, "node_id": -1}
    assert prepared(ids, request("ApiVersions", 5, first)) == first
