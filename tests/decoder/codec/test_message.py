"""Messages: paths, edits, byte map, errors with their place."""

from __future__ import annotations

import pickle
import uuid

import pytest
from barnabas import decoder
from barnabas.decoder.codec.message import error_names
from barnabas.decoder.codec.message_view import view_of
from barnabas.decoder.present import payload_ranges
from barnabas.decoder.records import Record, encode_batch

METADATA = {
    "brokers": [{"node_id": 1, "host": "one", "port": 9092}, {"node_id": 2, "host": "two", "port": 9093, "rack": "r"}],
    "cluster_id": "c",
    "topics": [{"name": "orders", "topic_id": uuid.UUID(int=5), "partitions": [
        {"partition_index": 0, "error_code": 5, "replica_nodes": [1, 2]}
    ]}],
}  # fmt: skip


@pytest.fixture
def metadata() -> decoder.Message:
    frame = decoder.encode_response(3, 12, METADATA, correlation_id=9)
    return decoder.decode_response(frame, api_key=3, api_version=12)


def test_paths(metadata):
    assert metadata["brokers[1].host"] == "two"
    assert metadata["brokers[1]"]["rack"] == "r"
    assert metadata["topics[0].partitions[0].replica_nodes"] == [1, 2]
    assert metadata["topics[0].partitions[0].replica_nodes[1]"] == 2
    assert metadata["topics[0].topic_id"] == uuid.UUID(int=5)
    assert metadata.header == {"correlation_id": 9}
    replica = "topics[0].partitions[0].replica_nodes[2]"
    for path in ("brokers[2].host", "brokers.host", "nothing", "cluster_id.x", replica):
        with pytest.raises(KeyError):
            metadata[path]


def test_values_have_the_names_of_fields(metadata):
    def named(message):
        values = message.values
        (partition,) = values.topics[0].partitions
        return values.cluster_id, [b.host for b in values.brokers], values.topics[0].topic_id, partition.replica_nodes

    assert named(metadata) == ("c", ["one", "two"], uuid.UUID(int=5).bytes, (1, 2))
    assert named(metadata.replace({"brokers[1].host": "three"}))[1] == ["one", "three"]
    assert named(view_of(metadata)) == named(metadata)
    assert metadata.values.brokers[0].unknown_tagged_fields == ()
    assert pickle.loads(pickle.dumps(metadata.values)) == metadata.values == decoder.decode_body("response", 3, 12, metadata.frame[5:]).values
    # fields that tuples have a method of that name for
    produced = decoder.encode_body("request", 0, 9, {"topic_data": [{"name": "t", "partition_data": [{"index": 7}]}]})
    assert decoder.decode_body("request", 0, 9, produced).values.topic_data[0].partition_data[0].index == 7


@pytest.mark.parametrize("body", [b"", b"\0\0\0", b"\0\0\0\1\xff\xff\xff\x7f", b"\0\1\0\xff"])
def test_an_error_reads_the_same_after_any_number_of_pickles(body):
    with pytest.raises(decoder.DecodeError) as raised:
        decoder.decode_body("request", 11, 1, body)
    error = copy = raised.value
    for _ in range(3):
        copy = pickle.loads(pickle.dumps(copy))
    assert type(copy) is type(error) and str(copy) == str(error)
    assert (copy.api, copy.version, copy.path, copy.offset) == (error.api, error.version, error.path, error.offset)


def test_an_edit_changes_its_field_and_nothing_else(metadata):
    edited = metadata.replace({"brokers[0].host": "a-much-longer-name", "throttle_time_ms": 500})
    expected = metadata.to_dict()
    expected["brokers"][0]["host"] = "a-much-longer-name"
    expected["throttle_time_ms"] = 500
    assert decoder.decode_response(edited.encode(), api_key=3, api_version=12).to_dict() == expected
    assert edited.replace({"brokers[0].host": "one", "throttle_time_ms": 0}).encode() == metadata.encode()
    assert metadata["brokers[0].host"] == "one"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"throttle": 1}, "no field 'throttle'"),
        ({"brokers[7].host": "x"}, r"no item \[7\]"),
        ({"brokers[0].host": 5}, "expected a string"),
        ({"brokers[0].port": "x"}, "expected a whole number"),
        ({"brokers[0].host": None}, "must not be null"),
        ({"brokers[0].port": 1 << 40}, "is not a valid int32"),
        ({"cluster_id.x": 1}, "has no fields"),
    ],
)
def test_impossible_edits_are_refused_with_their_path(metadata, edit, message):
    with pytest.raises(decoder.EncodeError, match=message):
        metadata.replace(edit)


def test_the_map_has_the_bytes_of_each_field(metadata):
    where = {path: (start, end) for path, start, end in metadata.map()}
    start, end = where["brokers[1].host"]
    assert metadata.frame[start:end] == b"\x04two"
    start, end = where["topics[0].partitions[0].error_code"]
    assert metadata.frame[start:end] == b"\x00\x05"
    assert where["brokers[1]"][0] <= where["brokers[1].node_id"][0]


def test_error_codes_are_found_at_any_depth(metadata):
    assert error_names(metadata) == [("topics[0].partitions[0].error_code", "LEADER_NOT_AVAILABLE")]


def test_unknown_tagged_fields_are_kept():
    body = decoder.encode_body("request", 3, 12, {"topics": [], "_unknown_tagged_fields": {99: b"abc"}})
    message = decoder.decode_body("request", 3, 12, body)
    assert message.to_dict()["_unknown_tagged_fields"] == {99: b"abc"}
    assert b"abc" in message.replace({"allow_auto_topic_creation": False}).encode()


def test_an_unknown_field_name_is_refused_with_the_nearest():
    with pytest.raises(decoder.EncodeError, match="did you mean 'topics'"):
        decoder.encode_request(3, 12, {"topic": []})


def test_faults_have_type_path_offset_and_what_was_read(metadata):
    frame = metadata.frame
    where = {path: start for path, start, _ in metadata.map()}

    def fault(data: bytes) -> decoder.DecodeError:
        with pytest.raises(decoder.DecodeError) as caught:
            decoder.decode_response(data, api_key=3, api_version=12)
        return caught.value

    cut = fault(frame[: where["brokers[1].port"] + 2])
    assert (type(cut), cut.path, cut.offset) == (decoder.Truncated, "brokers[1].port", where["brokers[1].port"])
    assert cut.partial["throttle_time_ms"] == 0
    assert cut.partial["brokers"][0]["port"] == 9092 and cut.partial["brokers"][1] == {"node_id": 2, "host": "two"}

    at = where["brokers[0].host"]
    bad = fault(frame[: at + 1] + b"\xff" + frame[at + 2 :])
    assert (type(bad), bad.path, bad.offset) == (decoder.BadUtf8, "brokers[0].host", at + 1)

    at = where["brokers"]
    bomb = fault(frame[:at] + b"\xff\xff\xff\xff\x07" + frame[at + 1 :])
    assert (type(bomb), bomb.path, bomb.offset) == (decoder.BadLength, "brokers", at)

    more = fault(frame + b"zz")
    assert (type(more), more.offset) == (decoder.TrailingBytes, len(frame))
    assert more.message.to_dict() == metadata.to_dict() and more.message.trailing == b"zz"


def test_a_forbidden_null_is_read_reported_and_kept(metadata):
    at = next(start for path, start, _ in metadata.map() if path == "brokers[0].host")
    frame = metadata.frame[:at] + b"\x00" + metadata.frame[at + 4 :]
    message = decoder.decode_response(frame, api_key=3, api_version=12)
    assert message["brokers[0].host"] is None and list(message.forbidden_nulls()) == ["brokers[0].host"]
    assert message.replace({"throttle_time_ms": 0}).encode() == frame
    assert list(metadata.forbidden_nulls()) == []


def test_unknown_apis_and_versions_are_errors():
    with pytest.raises(decoder.UnknownApi, match="api key 999"):
        decoder.decode_request(bytes.fromhex("03e7 0000 00000001 ffff"))
    with pytest.raises(decoder.UnknownVersion, match="known versions: 0-13") as caught:
        decoder.decode_request(bytes.fromhex("0003 0063 00000001 ffff"))
    assert caught.value.api == "Metadata" and caught.value.version == 99


def test_the_mock_clusters_malformed_fallback_is_still_read():
    # librdkafka's mock answers ApiVersions v3 with error 35 in a body that is neither version 0 nor 3
    frame = bytes.fromhex("00000001 0023 01 00120000 00 02 00000000")
    with pytest.raises(decoder.TrailingBytes) as caught:
        decoder.decode_response(frame, api_key=18, api_version=3)
    assert caught.value.message["error_code"] == 35 and caught.value.message.api_version == 3


@pytest.mark.parametrize("version", [3, 9, 12])
def test_record_payload_is_found_where_the_byte_map_has_it(version):
    batch, head = encode_batch([Record(0, 0, None, b"value")]), 61
    parts = [{"index": n, "records": area} for n, area in enumerate((batch, batch * 2, None, b"", b"\0" * 5))]
    fields = {"acks": 1, "timeout_ms": 1, "topic_data": [{"name": "a", "partition_data": parts}] * 2}
    frame = decoder.encode_request(0, version, fields)
    message = decoder.decode_request(frame)
    expected = []
    for path, _, end in message.map():
        area = message[path] if path.endswith("records") else None
        for at in range(0, len(area or b"") // len(batch) * len(batch), len(batch)):
            start = end - len(area) + at
            expected.append((start + head, start + len(batch)))
    assert len(expected) == 6
    found = payload_ranges(decoder.Direction.REQUEST, "Produce", frame, message)
    assert [each for each in found if each[1] - each[0] == len(batch) - head] == expected
