"""Records of internal topics, one by one and inside of Produce, Fetch and FetchSnapshot."""

from __future__ import annotations

import uuid

import pytest
from barnabas.decoder import DecodeError, UnknownApi, UnknownVersion, embedded, records
from barnabas.decoder.embedded import topics
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts


def int16(number: int) -> bytes:
    return number.to_bytes(2, "big", signed=True)


def coordinator(name: str, version: int, key: dict, value: dict) -> tuple[bytes, bytes]:
    """A record as CoordinatorRecordSerde writes it."""
    return (
        int16(definition_key(f"{name}Key")) + embedded.encode(f"{name}Key", 0, key),
        int16(version) + embedded.encode(f"{name}Value", version, value),
    )


def definition_key(name: str) -> int:
    return next(d[name].key for d in map(facts.extra, facts.extra_files()) if name in d)


def metadata(name: str, version: int, fields: dict) -> bytes:
    """A metadata record's value: frame version 1, type, version (small numbers are varints of one byte)."""
    return bytes((1, definition_key(name), version)) + embedded.encode(name, version, fields)


# Bytes written by hand from the layouts: type 1, group g, topic t, partition 5; value version 1 with its expiry.
OFFSET_KEY = bytes.fromhex("0001 0001 67 0001 74 00000005")
OFFSET_VALUE_1 = bytes.fromhex("0001 000000000000002a 0001 6d 0000000000000064 00000000000000c8")


def test_offset_commit_by_hand():
    assert embedded.of_record("__consumer_offsets", OFFSET_KEY, OFFSET_VALUE_1) == {
        "type": "OffsetCommit",
        "key": {"group": "g", "topic": "t", "partition": 5},
        "value_version": 1,
        "value": {"offset": 42, "metadata": "m", "commit_timestamp": 100, "expire_timestamp": 200},
    }
    tombstone = embedded.of_record("__consumer_offsets", OFFSET_KEY, None)
    assert tombstone["value"] is None and tombstone["value_version"] is None
    old = embedded.of_record("__consumer_offsets", b"\0\0" + OFFSET_KEY[2:], OFFSET_VALUE_1)
    assert old["type"] == "LegacyOffsetCommit" and old["value"]["offset"] == 42


def test_every_type_of_every_coordinator():
    count = 0
    for topic in sorted(topics.COORDINATORS):
        definitions = facts.extra(f"embedded/{topic.strip('_')}")
        for name in definitions:
            if not name.endswith("Value") or name.startswith("Legacy"):
                continue
            base = name.removesuffix("Value")
            for version in definitions[name].versions.every():
                key, value = coordinator(base, version, {}, {})
                found = embedded.of_record(topic, key, value)
                assert found["type"] == base and found["value_version"] == version, (topic, name)
                assert "surplus_bytes" not in found["value"] and "surplus_bytes" not in found["key"]
                count += 1
    assert count >= 24 + 1 + 2


def test_every_metadata_record():
    count = 0
    for topic in sorted(topics.METADATA):
        for name, definition in facts.extra(f"embedded/{topic.strip('_')}").items():
            for version in definition.versions.every():
                found = embedded.of_record(topic, None, metadata(name, version, {}))
                assert (found["type"], found["version"]) == (name, version)
                count += 1
    assert count >= 37


def test_a_topic_record_by_hand():
    # frame 1, type 2, version 0, compact string "ab", uuid, no tags
    found = embedded.of_record("__cluster_metadata", None, bytes((1, 2, 0, 3)) + b"ab" + bytes(15) + b"\7\0")
    assert found == {"type": "TopicRecord", "version": 0, "value": {"name": "ab", "topic_id": uuid.UUID(int=7)}}


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        (b"\0", b"", DecodeError),
        (b"\0\x63", b"", UnknownApi),
        (OFFSET_KEY, b"\0", DecodeError),
        (OFFSET_KEY, b"\0\x09", UnknownVersion),
        (OFFSET_KEY[:-1], OFFSET_VALUE_1, DecodeError),
        (OFFSET_KEY, OFFSET_VALUE_1[:-1], DecodeError),
    ],
)
def test_damaged_coordinator_records(key, value, kind):
    with pytest.raises(kind):
        embedded.of_record("__consumer_offsets", key, value)


def test_a_damaged_value_leaves_the_key_readable():
    with pytest.raises(DecodeError) as caught:
        embedded.of_record("__consumer_offsets", OFFSET_KEY, OFFSET_VALUE_1[:-9])
    assert caught.value.partial["key"]["group"] == "g" and caught.value.partial["value"]["offset"] == 42


@pytest.mark.parametrize("value", [b"", b"\0\2\0", b"\1", b"\1\x63\0", b"\1\2\x09", b"\1" + b"\x80" * 6, b"\1\2\0\3a"])
def test_damaged_metadata_records(value):
    with pytest.raises(DecodeError):
        embedded.of_record("__cluster_metadata", None, value)


def test_records_that_are_not_internal():
    assert embedded.of_record("orders", b"k", b"v") is None
    assert embedded.of_record("__consumer_offsets", None, b"v") is None
    assert embedded.of_record("__cluster_metadata", None, None) is None
    assert embedded.of_control(None, b"v") is None and embedded.of_control(b"\0\0\0", b"v") is None


def test_credentials_in_metadata_records_are_masked():
    canary = b"c4nary-S3CRET"
    keys = dict.fromkeys(("salt", "stored_key", "server_key"), canary)
    scram = metadata("UserScramCredentialRecord", 0, {"name": "alice", "mechanism": 1, **keys, "iterations": 4096})
    found = embedded.of_record("__cluster_metadata", None, scram)
    assert "c4nary" not in str(found) and found["value"]["name"] == "alice" and found["value"]["iterations"] == 4096
    for name, shown in (("ssl.keystore.password", False), ("retention.ms", True)):
        config = metadata("ConfigRecord", 0, {"name": name, "value": canary.decode()})
        assert ("c4nary" in str(embedded.of_record("__cluster_metadata", None, config))) is shown


CONTROLS = [
    ("abort", 0, bytes.fromhex("0000 00000007"), {"version": 0, "coordinator_epoch": 7}),
    ("commit", 1, bytes.fromhex("0000 00000007"), {"version": 0, "coordinator_epoch": 7}),
    ("leader_change", 2, bytes.fromhex("0000 00000003 02 00000003 00 01 00"),
     {"version": 0, "leader_id": 3, "voters": [{"voter_id": 3}], "granting_voters": []}),
    ("snapshot_header", 3, bytes.fromhex("0000 0000000000000009 00"), {"version": 0, "last_contained_log_timestamp": 9}),
    ("snapshot_footer", 4, bytes.fromhex("0000 00"), {"version": 0}),
    ("kraft_version", 5, bytes.fromhex("0000 0001 00"), {"version": 0, "kraft_version": 1}),
    ("kraft_voters", 6, bytes.fromhex("0000 01 00"), {"version": 0, "voters": []}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "number", "value", "fields"), CONTROLS)
def test_control_records(name, number, value, fields):
    assert embedded.of_control(int16(0) + int16(number), value) == {"type": name, "key_version": 0, "value": fields}
    with pytest.raises(DecodeError):
        embedded.of_control(int16(0) + int16(number), value[:-1])


def test_unknown_control_records():
    assert embedded.of_control(b"\0\1\0\x63", b"x") == {"type": "unknown(99)", "key_version": 1, "value": None}
    newer = embedded.of_control(b"\0\0\0\2", bytes.fromhex("0005 00000003 01 01 00"))
    assert newer["value"]["version"] == 5 and newer["value"]["leader_id"] == 3


def area(*entries: Record, **header) -> bytes:
    return encode_batch(entries, **header)


def test_records_inside_messages(body):
    commits = area(Record(0, 0, OFFSET_KEY, OFFSET_VALUE_1), Record(1, 0, OFFSET_KEY, None))
    damaged = area(Record(0, 0, OFFSET_KEY, OFFSET_VALUE_1[:-1]), Record(1, 0, b"\0\x63", b""))
    topic = {"name": "orders", "partition_data": [{"records": commits}]}
    offsets = {"name": "__consumer_offsets", "partition_data": [{"records": area} for area in (commits, damaged, None)]}
    found = list(embedded.of(body("request", "Produce", 9, {"topic_data": [topic, offsets]})))
    places = ("[0].records[0]", "[0].records[1]", "[1].records[0]", "[1].records[1]")
    assert [p.path for p in found] == [f"topic_data[1].partition_data{place}" for place in places]
    assert all(p.kind == "__consumer_offsets" for p in found)
    assert found[0].fields["value"]["offset"] == 42 and found[1].fields["value"] is None
    assert "unreadable" in found[2].fields and "record type 99" in found[3].fields["unreadable"]


def test_control_records_of_any_topic_and_the_count_of_records(body):
    data = area(Record(0, 0, b"k", b"v"), Record(1, 0, b"k", b"v")) + area(
        Record(2, 0, b"\0\0\0\1", bytes.fromhex("0000 00000007")), control=True, transactional=True
    )
    response = body("response", "Fetch", 12, {"responses": [{"topic": "orders", "partitions": [{"records": data}]}]})
    (payload,) = embedded.of(response)
    assert payload.path == "responses[0].partitions[0].records[2]" and payload.kind == "control record"
    assert payload.fields["type"] == "commit" and payload.fields["value"]["coordinator_epoch"] == 7


def test_topics_by_id(body):
    topic_id = uuid.UUID(int=77)
    data = area(Record(0, 0, OFFSET_KEY, OFFSET_VALUE_1))
    meta = area(Record(0, 0, None, metadata("NoOpRecord", 0, {})))
    areas = {topic_id: data, topics.CLUSTER_METADATA_ID: meta}
    responses = [{"topic_id": key, "partitions": [{"records": area}]} for key, area in areas.items()]
    response = body("response", "Fetch", 17, {"responses": responses})
    assert [p.fields["type"] for p in embedded.of(response)] == ["NoOpRecord"]
    named = embedded.of(response, topic_names={topic_id: "__consumer_offsets"})
    assert [p.fields["type"] for p in named] == ["OffsetCommit", "NoOpRecord"]


def test_snapshots(body):
    header = area(Record(0, 0, b"\0\0\0\3", bytes.fromhex("0000 0000000000000009 00")), control=True)
    rest = area(Record(0, 0, None, metadata("TopicRecord", 0, {"name": "t"})), Record(1, 0, None, b"\1"))
    partitions = [
        {"position": 0, "unaligned_records": header + rest + header[:30]},
        {"position": 4096, "unaligned_records": header[7:]},
    ]
    snapshot = [{"name": "__cluster_metadata", "partitions": partitions}]
    response = body("response", "FetchSnapshot", 1, {"topics": snapshot})
    found = list(embedded.of(response))
    assert [p.kind for p in found] == ["control record", "__cluster_metadata", "__cluster_metadata"]
    assert found[1].fields["value"]["name"] == "t" and "unreadable" in found[2].fields


def test_damaged_areas_end_without_an_exception(body):
    broken = bytearray(area(Record(0, 0, OFFSET_KEY, OFFSET_VALUE_1)))
    broken[61] = 0x7F  # the length of the record
    topic = {"name": "__consumer_offsets", "partition_data": [{"records": bytes(broken)}, {"records": b"\xff" * 40}]}
    found = list(embedded.of(body("request", "Produce", 9, {"topic_data": [topic]})))
    assert [p.kind for p in found] == ["records", "records"] and all("unreadable" in p.fields for p in found)


def test_members_in_group_records(body, group_payloads):
    member = {
        "member_id": "m",
        "subscription": group_payloads["consumer-subscription", 1],
        "assignment": group_payloads["consumer-assignment", 1],
    }
    group = coordinator(
        "GroupMetadata", 3, {"group": "g"}, {"protocol_type": "consumer", "protocol": "range", "members": [member]}
    )
    classic = {"supported_protocols": [{"name": "range", "metadata": group_payloads["consumer-subscription", 2]}]}
    modern = coordinator(
        "ConsumerGroupMemberMetadata", 0, {"group_id": "g", "member_id": "m"}, {"classic_member_metadata": classic}
    )
    plain = coordinator("ConsumerGroupMemberMetadata", 0, {}, {"classic_member_metadata": None})
    data = area(*(Record(i, 0, key, value) for i, (key, value) in enumerate((group, modern, plain))))
    topic = {"name": "__consumer_offsets", "partition_data": [{"records": data}]}
    found = list(embedded.of(body("request", "Produce", 9, {"topic_data": [topic]})))
    prefix = "topic_data[0].partition_data[0].records"
    assert [(p.path.removeprefix(prefix), p.kind) for p in found] == [
        ("[0]", "__consumer_offsets"),
        ("[0].value.members[0].subscription", "consumer subscription"),
        ("[0].value.members[0].assignment", "consumer assignment"),
        ("[1]", "__consumer_offsets"),
        ("[1].value.classic_member_metadata.supported_protocols[0].metadata", "consumer subscription"),
        ("[2]", "__consumer_offsets"),
    ]


def test_null_in_a_tagged_struct_is_a_zero():
    # tag 0 of one byte: Kafka writes 0 there, not the -1 of a struct that stands in line
    data = embedded.encode("ConsumerGroupMemberMetadataValue", 0, {"classic_member_metadata": None})
    assert data.endswith(b"\1\0\1\0")
    assert embedded.decode("ConsumerGroupMemberMetadataValue", 0, data)["classic_member_metadata"] is None


def test_compressed_batches_are_opened(body):
    for codec in range(1, 5):
        data = area(Record(0, 0, OFFSET_KEY, OFFSET_VALUE_1), codec=codec)
        assert next(iter(records.batches(data))).codec == codec
        topic = {"name": "__consumer_offsets", "partition_data": [{"records": data}]}
        (payload,) = embedded.of(body("request", "Produce", 9, {"topic_data": [topic]}))
        assert payload.fields["type"] == "OffsetCommit"
