"""Subscriptions and assignments that Kafka's own classes wrote, and where messages carry them."""

from __future__ import annotations

import uuid

import pytest
from barnabas.decoder import BadLength, DecodeError, Truncated, UnknownVersion, embedded
from barnabas.decoder.embedded import groups

OWNED = [{"topic": "orders", "partitions": [0, 2]}]


@pytest.mark.parametrize("version", range(4))
def test_consumer(group_payloads, version):
    asked = embedded.subscription(group_payloads["consumer-subscription", version])
    expected = {"version": version, "topics": ["clicks", "orders"], "user_data": b"\1\2\3"}
    if version >= 1:
        expected["owned_partitions"] = OWNED
    if version >= 2:
        expected["generation_id"] = 7
    if version >= 3:
        expected["rack_id"] = "rack-a"
    assert asked == expected
    got = embedded.assignment(group_payloads["consumer-assignment", version])
    assert got == {"version": version, "assigned_partitions": OWNED, "user_data": b"\1\2\3"}


def test_a_newer_version_is_read_as_the_newest_known(group_payloads):
    newer = b"\x00\x09" + group_payloads["consumer-subscription", 3][2:] + b"new"
    fields = embedded.subscription(newer)
    assert (fields["version"], fields["rack_id"], fields["surplus_bytes"]) == (9, "rack-a", 3)


def test_fields_of_version_0_under_the_number_1(group_payloads):
    old = b"\0\1" + group_payloads["consumer-subscription", 0][2:]
    expected = {"version": 1, "layout_version": 0, "topics": ["clicks", "orders"], "user_data": b"\1\2\3"}
    assert embedded.subscription(old) == expected
    with pytest.raises(Truncated):
        embedded.subscription(group_payloads["consumer-subscription", 1][:-1])


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"", Truncated), (b"\0", Truncated), (b"\xff\xff", UnknownVersion), (b"\0\0\0\0\0\5", BadLength)],
)
def test_bytes_that_are_no_subscription(data, kind):
    with pytest.raises(kind):
        embedded.subscription(data)


@pytest.mark.parametrize("version", range(1, 12))
def test_streams_subscription(group_payloads, version):
    fields = groups.streams_subscription(group_payloads["streams-subscription", version])
    assert fields["version"] == version and "surplus_bytes" not in fields
    assert fields["process_id"] == uuid.UUID(int=1 << 64 | 2)
    if version >= 2:
        assert fields["user_end_point"] == "app:9080"
    if version < 7:
        assert fields["prev_tasks"] == [{"topic_group_id": 1, "partition": 0}]
    elif version < 10:
        sums = {t["topic_group_id"]: t["partition_to_offset_sum"] for t in fields["task_offset_sums"]}
        assert sums[0] == [{"partition": 1, "offset_sum": 4711}]
    else:
        assert {(t["topic_group_id"], t["partition"], t["offset_sum"]) for t in fields["task_offset_sums"]} == {
            (0, 1, 4711),
            (1, 0, -2),
        }
    if version == 11:
        assert fields["client_tags"] == [{"key": "zone", "value": "eu"}]


@pytest.mark.parametrize("version", range(1, 12))
def test_streams_assignment(group_payloads, version):
    fields = groups.streams_assignment(group_payloads["streams-assignment", version])
    assert fields["used_version"] == version and "surplus_bytes" not in fields
    assert [(t["subtopology"], t["partition"]) for t in fields["active_tasks"]] == [(0, 0), (0, 2)]
    assert fields["standby_tasks"][0]["partitions"] == [{"topic": "clicks", "partition": 1}]
    if version >= 2:
        (host,) = fields["partitions_by_host"]
        assert (host["host"], host["port"]) == ("app-1", 9080)
        assert host["partitions"] == [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 2}]
    if version >= 6:
        (standby,) = fields["standby_partitions_by_host"]
        assert (standby["host"], standby["partitions"]) == ("app-2", [{"topic": "clicks", "partition": 1}])
    assert fields.get("error_code") == (3 if version >= 4 else None)
    assert fields.get("next_rebalance_ms") == (1234567890123 if version >= 7 else None)
    assert [t.get("named_topology") for t in fields["standby_tasks"]] == ["top" if version >= 10 else None]


def test_unknown_and_damaged_streams_payloads():
    newer = groups.streams_subscription((12).to_bytes(4, "big") + (13).to_bytes(4, "big") + b"??")
    assert newer == {"version": 12, "latest_supported_version": 13, "surplus_bytes": 2}
    with pytest.raises(UnknownVersion):
        groups.streams_assignment((12).to_bytes(4, "big") + bytes(40))
    for data in (b"\0\0\0", bytes(4)):
        with pytest.raises(DecodeError):
            groups.streams_subscription(data)
    hosts = [{"host": "h", "port": 1, "partitions": [{"topic_index": 7, "partition": 0}]}]
    fields = {"used_version": 5, "topic_names": [{"index": 0, "topic": "t"}], "partitions_by_host": hosts}
    with pytest.raises(BadLength, match="topic index 7"):
        groups.streams_assignment(embedded.encode("AssignmentInfo", 5, fields))


@pytest.mark.parametrize("version", range(3))
def test_connect(group_payloads, version):
    got = embedded.assignment(group_payloads["connect-assignment", version], "connect")
    assert (got["leader"], got["leader_url"], got["config_offset"]) == ("leader-1", "http://w1:8083/", 42)
    tasks = {entry["connector"]: entry["tasks"] for entry in got["assignment"]}
    assert tasks == {"sink": [-1, 0], "source": [3]}  # -1 stands for the connector itself
    asked = embedded.subscription(group_payloads["connect-subscription", version], "connect")
    assert (asked["version"], asked["url"], asked["config_offset"]) == (version, "http://w1:8083/", 42)
    if version:
        assert got["revoked"] == [{"connector": "old", "tasks": [-1]}] and got["delay"] == 300000
        assert asked["allocation"] == got


def test_user_data_of_sticky_assignors():
    fields = {"previous_assignment": OWNED, "generation": 4}
    newer = embedded.encode("StickyAssignorUserData", 1, fields)
    assert groups.user_data(newer, "subscription", "sticky") == ("sticky assignor", fields)
    older = embedded.encode("StickyAssignorUserData", 0, {"previous_assignment": OWNED})
    assert groups.user_data(older, "subscription", "sticky") == ("sticky assignor", {"previous_assignment": OWNED})
    assert groups.user_data(b"\0\0\0\7", "subscription", "cooperative-sticky") == ("sticky assignor", {"generation": 7})
    assert groups.user_data(b"\0\0\0\7", "subscription", "range") is None


def test_the_kind_is_guessed_without_a_protocol_type(group_payloads):
    for (name, version), data in group_payloads.items():
        kind, _, which = name.partition("-")
        if kind in ("consumer", "connect"):
            found = groups.guess(data, which)
            assert found is not None and found[0] == kind and found[1]["version"] == version, (name, version)
    assert groups.guess(b"\0\0something else altogether", "assignment") is None
    assert groups.guess(b"\0\0", "assignment", "my-own-protocol") is None
    with pytest.raises(DecodeError):
        groups.guess(b"\0\0", "assignment", "consumer")


def test_join_group(body, group_payloads):
    asked = group_payloads["consumer-subscription", 3]
    streams = embedded.encode("ConsumerProtocolSubscription", 1, {"user_data": group_payloads["streams-subscription", 9]})
    protocols = [{"name": "range", "metadata": asked}, {"name": "stream", "metadata": b"\0\1" + streams}]
    request = body("request", "JoinGroup", 9, {"protocol_type": "consumer", "protocols": protocols})
    found = {p.path: p for p in embedded.of(request)}
    assert list(found) == ["protocols[0].metadata", "protocols[1].metadata", "protocols[1].metadata.user_data"]
    assert found["protocols[0].metadata"].kind == "consumer subscription"
    assert found["protocols[0].metadata"].fields["topics"] == ["clicks", "orders"]
    assert found["protocols[1].metadata.user_data"].kind == "streams subscription"
    assert found["protocols[1].metadata.user_data"].fields["user_end_point"] == "app:9080"
    # version 5 has no protocol type: the request has it, else it is guessed
    members = [{"member_id": "m", "metadata": asked}]
    response = body("response", "JoinGroup", 5, {"protocol_name": "range", "members": members})
    for others in ({"request": request}, {}):
        (payload,) = embedded.of(response, **others)
        assert payload.path == "members[0].metadata" and payload.kind == "consumer subscription"


def test_sync_group(body, group_payloads):
    connect = group_payloads["connect-assignment", 2]
    assignments = [{"assignment": connect}, {"assignment": b""}]
    fields = {"protocol_type": "connect", "protocol_name": "sessioned", "assignments": assignments}
    request = body("request", "SyncGroup", 5, fields)
    (payload,) = embedded.of(request)
    assert (payload.path, payload.kind) == ("assignments[0].assignment", "connect assignment")
    for version in range(6):
        (payload,) = embedded.of(body("response", "SyncGroup", version, {"assignment": connect}), request)
        assert payload.fields["leader"] == "leader-1"
        (guessed,) = embedded.of(body("response", "SyncGroup", version, {"assignment": connect}))
        assert guessed == payload


def test_describe_groups_with_damaged_payloads(body, group_payloads):
    streams = embedded.encode("ConsumerProtocolAssignment", 0, {"user_data": group_payloads["streams-assignment", 11]})
    members = [
        {"member_metadata": group_payloads["consumer-subscription", 0], "member_assignment": b"\0\0" + streams},
        {"member_metadata": b"\0\0\0\0\0\x7f", "member_assignment": b""},
    ]
    group = {"protocol_type": "consumer", "protocol_data": "stream", "members": members}
    found = list(embedded.of(body("response", "DescribeGroups", 5, {"groups": [group]})))
    assert [p.path for p in found] == [
        "groups[0].members[0].member_metadata",
        "groups[0].members[0].member_metadata.user_data",
        "groups[0].members[0].member_assignment",
        "groups[0].members[0].member_assignment.user_data",
        "groups[0].members[1].member_metadata",
    ]
    # b"\1\2\3" is no Streams user data, and the damaged subscription is none at all
    assert "too short" in found[1].fields["unreadable"] and "do not fit" in found[4].fields["unreadable"]
    assert found[3].fields["active_tasks"][1]["partition"] == 2


def test_payloads_recorded_by_kafkajs(vectors):
    count = 0
    for row in vectors("kafkajs_bodies.jsonl"):
        name = row["src"].rsplit("_", 1)[-1]
        if name == "memberAssignment.json":
            (topic,) = embedded.assignment(bytes.fromhex(row["hex"]))["assigned_partitions"]
        elif name == "memberMetadata.json":
            (topic,) = embedded.subscription(bytes.fromhex(row["hex"]))["topics"]
        else:
            continue
        assert topic
        count += 1
    assert count >= 3
