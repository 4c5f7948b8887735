"""The drafts that never shipped: every message against bytes written by hand, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import BadLength, EncodeError, TrailingBytes, Truncated, UnknownApi, UnknownVersion
from barnabas.decoder.reference.definitions import drafts

OK = ("0000 00", {"error_code": 0, "error_description": None})
FAILED = ("0024 01 0006 657869737473", {"error_code": 36, "error_description": "exists"})
TOPIC = ("0001 74", {"topic_name": "t"})
ASSIGNMENT = ("0002 7b7d", {"manual_assignment": "{}"})
MEMBER = {
    "member_id": "m",
    "host": "h",
    "client_id": "c",
    "member_metadata": b"\1\2",
    "member_assignment": b"",
}
BROKER = "00000001 0001 68 00002384"
PARTITION = "0000 00000000 00000001 00000002 00000001 00000002 00000001 00000001"
PARTITION_FIELDS = {
    "partition_error_code": 0,
    "partition_id": 0,
    "leader": 1,
    "replicas": [1, 2],
    "isr": [1],
}

VECTORS: list[tuple[str, str, int, str, dict[str, Any]]] = [
    (
        "kip-4.CreateTopic", "request", 0,
        "0001 74 01 00000006 01 00000003 00 00000001 0001 6b 0001 76",
        {"topic_name": "t", "partitions": 6, "replicas": 3, "replica_assignment": None,
         "config_entry": [{"config_key": "k", "config_value": "v"}]},
    ),
    (
        "kip-4.CreateTopic", "request", 0, "0001 74 00 00 01 0003 313a32 00000000",
        {"topic_name": "t", "partitions": None, "replicas": None, "replica_assignment": "1:2", "config_entry": []},
    ),
    ("kip-4.CreateTopic", "response", 0, *OK),
    ("kip-4.CreateTopic", "response", 0, *FAILED),
    (
        "kip-4.AlterTopic", "request", 0,
        "0001 74 01 00000006 00 00000001 0001 6b 0001 76 00000001 0001 64",
        {"topic_name": "t", "partitions": 6, "replica_assignment": None,
         "added_config_entry": [{"config_key": "k", "config_value": "v"}], "deleted_config": ["d"]},
    ),
    (
        "kip-4.AlterTopic", "request", 0,
        "0001 74 00 01 0003 313a32 00000000 00000000",
        {"topic_name": "t", "partitions": None, "replica_assignment": "1:2", "added_config_entry": [],
         "deleted_config": []},
    ),
    ("kip-4.AlterTopic", "response", 0, *FAILED),
    ("kip-4.DeleteTopic", "request", 0, *TOPIC),
    ("kip-4.DeleteTopic", "response", 0, *OK),
    ("kip-4.DescribeTopic", "request", 0, *TOPIC),
    ("kip-4.DescribeTopic", "response", 0, "0003 00 00",
     {"error_code": 3, "error_description": None, "topic_description": None}),
    (
        "kip-4.DescribeTopic", "response", 0,
        "0000 00 01 0001 74 00000002 00000001 00000001 0001 6b 0001 76 00000002"
        "00000000 01 00000007 00000001 00000007 00000001 00000007"
        "00000001 00 00000001 00000008 00000000",
        {"error_code": 0, "error_description": None, "topic_description": {
            "topic_name": "t",
            "topic_config_details": {
                "partitions": 2, "replication_factor": 1, "config_entry": [{"key": "k", "value": "v"}]},
            "topic_partition_details": [
                {"partition_id": 0, "leader": 7, "replica": [7], "isr": [7]},
                {"partition_id": 1, "leader": None, "replica": [8], "isr": []},
            ]}},
    ),
    ("kip-4.ListTopics", "request", 0, "", {}),
    ("kip-4.ListTopics", "response", 0, "0000 00 01 00000002 0001 61 0001 62",
     {"error_code": 0, "error_description": None, "topics_list": ["a", "b"]}),
    ("kip-4.ListTopics", "response", 0, "0008 01 0001 78 00",
     {"error_code": 8, "error_description": "x", "topics_list": None}),
    ("kip-4.ReassignPartitions", "request", 0, *ASSIGNMENT),
    ("kip-4.ReassignPartitions", "response", 0, *OK),
    ("kip-4.VerifyReassignPartitions", "request", 0, *ASSIGNMENT),
    (
        "kip-4.VerifyReassignPartitions", "response", 0, "00000002 0001 74 00000001 0001 0001 74 00000002 ffff 0000 00",
        {"reassignment_result": [
            {"topic_and_partition": {"topic": "t", "partition": 1}, "result_code": 1},
            {"topic_and_partition": {"topic": "t", "partition": 2}, "result_code": -1}],
         "error_code": 0, "error_description": None},
    ),
    ("kip-4.PreferredReplicaLeaderElection", "request", 0, "0002 7b7d", {"partitions_serialized": "{}"}),
    ("kip-4.PreferredReplicaLeaderElection", "response", 0, *FAILED),
    ("kip-35.ApiVersion", "request", 0, "", {}),
    ("kip-35.ApiVersion", "response", 0, "0000 00000001 0003 0000 0001",
     {"error_code": 0, "api_versions": [{"api_key": 3, "min_version": 0, "max_version": 1}]}),
    ("kip-35.Metadata", "request", 1, "00000000 ffffffff", {"api_keys": [], "topics": None}),
    ("kip-35.Metadata", "request", 1, "ffffffff 00000001 0001 74", {"api_keys": None, "topics": ["t"]}),
    ("kip-35.Metadata", "request", 1, "00000002 0000 0003 00000000", {"api_keys": [0, 3], "topics": []}),
    (
        "kip-35.Metadata", "response", 1,
        f"00000001 0003 0000 0001 00000001 {BROKER} 00000001 0000 0001 74 00000001 {PARTITION}",
        {"api_versions": [{"api_key": 3, "min_version": 0, "max_version": 1}],
         "brokers": [{"node_id": 1, "host": "h", "port": 9092}],
         "topic_metadata": [{"topic_error_code": 0, "topic": "t", "partition_metadata": [PARTITION_FIELDS]}]},
    ),
    ("kip-40.ListGroups", "request", 0, "", {}),
    ("kip-40.ListGroups", "response", 0, "00000001 0001 67 0008 636f6e73756d6572",
     {"groups": [{"group_id": "g", "protocol_type": "consumer"}]}),
    ("kip-40.DescribeGroup", "request", 0, "0001 67", {"group_id": "g"}),
    (
        "kip-40.DescribeGroup", "response", 0,
        "0000 0006 537461626c65 0001 70 0001 71 0001 6c 00000001"
        "0001 6d 0001 68 0001 63 00000002 0102 00000000",
        {"error_code": "", "state": "Stable", "protocol_type": "p", "protocol": "q", "leader": "l", "members": [MEMBER]},
    ),
    ("kip-78.Metadata", "request", 2, "ffffffff", {"topics": None}),
    ("kip-78.Metadata", "request", 2, "00000001 0001 74", {"topics": ["t"]}),
    (
        "kip-78.Metadata", "response", 2,
        f"0001 63 00000001 {BROKER} ffff 00000001 00000001 0000 0001 74 01 00000001 {PARTITION}",
        {"cluster_id": "c", "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": None}], "controller_id": 1,
         "topic_metadata": [
             {"topic_error_code": 0, "topic": "t", "is_internal": True, "partition_metadata": [PARTITION_FIELDS]}]},
    ),
    ("kip-133.DescribeConfigs", "request", 0, "00000001 02 0001 74 00000001 0001 6b",
     {"resources": [{"resource": {"resource_type": 2, "resource_name": "t"}, "config_name": ["k"]}]}),
    (
        "kip-133.DescribeConfigs", "response", 0, "0000 00000001 0000 02 0001 74 00000001 0001 6b 0001 76 00 01 00",
        {"error_code": 0, "entities": [{"error_code": 0, "resource_type": 2, "resource_name": "t", "configs": [
            {"config_name": "k", "config_value": "v", "read_only": False, "is_default": True,
             "is_sensitive": False}]}]},
    ),
    (
        "kip-133.AlterConfigs", "request", 0, "00000001 02 0001 74 00000001 0001 6b 0001 76 01",
        {"resources": [{"resource_type": 2, "resource_name": "t",
                        "configs": [{"config_name": "k", "config_value": "v"}]}], "validate_only": True},
    ),
    ("kip-133.AlterConfigs", "response", 0, "00000001 02 0001 74 0000 0000",
     {"responses": [{"resource_type": 2, "resource_name": "t", "error_code": 0, "error_message": ""}]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "version", "text", "fields"), VECTORS)
def test_bytes_and_fields(name: str, kind: str, version: int, text: str, fields: dict[str, Any]) -> None:
    data = bytes.fromhex(text)
    message = drafts.decode(name, kind, version, data)
    assert message.to_dict() == fields
    assert message.encode() == data
    assert drafts.encode(name, kind, version, fields) == data
    assert message.replace({}).encode() == data


def test_every_draft_has_bytes_here() -> None:
    held = set()
    for name in drafts.names():
        for kind in ("request", "response"):
            held |= {(name, kind, version) for version in drafts.definition(name, kind).versions.every()}
    assert held == {vector[:3] for vector in VECTORS}


@pytest.mark.parametrize(("name", "kind", "version", "text", "fields"), VECTORS)
def test_cut_anywhere_or_lengthened(name: str, kind: str, version: int, text: str, fields: dict[str, Any]) -> None:
    data = bytes.fromhex(text)
    for end in range(len(data)):
        with pytest.raises((Truncated, BadLength)) as caught:
            drafts.decode(name, kind, version, data[:end])
        assert 0 <= caught.value.offset <= end
    with pytest.raises(TrailingBytes) as left:
        drafts.decode(name, kind, version, data + b"\7")
    assert left.value.offset == len(data)
    assert left.value.message.to_dict() == fields
    assert left.value.message.encode() == data + b"\7"


@pytest.mark.parametrize(("name", "kind", "version", "text", "fields"), VECTORS)
def test_the_map_covers_every_byte(name: str, kind: str, version: int, text: str, fields: dict[str, Any]) -> None:
    data = bytes.fromhex(text)
    spans = drafts.decode(name, kind, version, data).map()
    covered = {offset for span in spans for offset in range(span.start, span.end)}
    assert covered == set(range(len(data)))
    assert len({span.path for span in spans}) == len(spans)


def test_an_optional_value_is_set_and_removed() -> None:
    message = drafts.decode("kip-4.AlterTopic", "request", 0, bytes.fromhex("0001 74 00 00 00000000 00000000"))
    assert message["partitions"] is None
    more = message.replace({"partitions": 12})
    assert more.encode() == bytes.fromhex("0001 74 01 0000000c 00 00000000 00000000")
    assert more["partitions"] == 12
    assert more.replace({"partitions": None}).encode() == message.encode()
    assert [span[1:] for span in more.map() if span.path == "partitions"] == [(3, 8)]


def test_any_byte_but_zero_means_present() -> None:
    data = bytes.fromhex("0000 ff 0001 78")
    message = drafts.decode("kip-4.DeleteTopic", "response", 0, data)
    assert message["error_description"] == "x"
    assert message.encode() == data


def test_a_count_larger_than_the_bytes_is_refused() -> None:
    with pytest.raises(BadLength) as caught:
        drafts.decode("kip-35.Metadata", "request", 1, bytes.fromhex("7fffffff 00000000"))
    assert (caught.value.path, caught.value.offset) == ("api_keys", 0)


def test_a_draft_is_not_what_shipped() -> None:
    """The same key, version and kind of bytes, read as what shipped and as the draft."""
    shipped = decoder.encode_body("response", 3, 2, {"cluster_id": "c", "brokers": [], "topics": []})
    draft = drafts.encode("kip-78.Metadata", "response", 2, {"cluster_id": "c"})
    assert shipped != draft
    assert decoder.decode_body("response", 3, 2, shipped)["cluster_id"] == "c"
    assert drafts.decode("kip-78.Metadata", "response", 2, draft)["cluster_id"] == "c"


@pytest.mark.parametrize(
    ("name", "kind", "version", "error", "text"),
    [
        ("kip-4.DescribeTopix", "request", 0, UnknownApi, "did you mean 'kip-4.DescribeTopic'?"),
        ("Metadata", "request", 1, UnknownApi, "there is no draft 'Metadata'"),
        ("kip-35.Metadata", "request", 0, UnknownVersion, "version 0 is not known; known versions: 1"),
    ],
)
def test_unknown_drafts(name: str, kind: str, version: int, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=".*" + text.replace("?", r"\?")):
        drafts.decode(name, kind, version, b"")
    with pytest.raises(error, match=".*" + text.replace("?", r"\?")):
        drafts.encode(name, kind, version, {})


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("KIP-4.describetopic", "kip-4.DescribeTopic"),
        ("kip-4.DescribeTopicResponse", "kip-4.DescribeTopic"),
        ("kip-4.ReassignPartition", "kip-4.ReassignPartitions"),
        ("kip-4.VerifyReassignPartitionRequest", "kip-4.VerifyReassignPartitions"),
        ("kip-40.listgroup", "kip-40.ListGroups"),
    ],
)
def test_names_in_any_case_and_in_the_singular(written: str, name: str) -> None:
    assert drafts.is_draft(written) and drafts.named(written) == name
    data = drafts.encode(written, "request", 0, {})
    assert drafts.decode(written, "request", 0, data).to_dict() == drafts.decode(name, "request", 0, data).to_dict()


def test_names_of_apis_are_no_drafts() -> None:
    assert not any(map(drafts.is_draft, ("Metadata", "KIP-4", "kip-4", "topic.name")))


@pytest.mark.parametrize(
    ("edits", "path"),
    [({"nothing": 1}, "nothing"), ({"topic_name": None}, "topic_name"), ({"deleted_config[0]": "x"}, "deleted_config[0]"),
     ({"partitions": "six"}, "partitions"), ({"partitions": 1 << 31}, "partitions"), ({"topic_name.x": 1}, "topic_name.x")],
)  # fmt: skip
def test_impossible_edits(edits: dict[str, Any], path: str) -> None:
    message = drafts.decode("kip-4.AlterTopic", "request", 0, bytes.fromhex("0001 74 00 00 00000000 00000000"))
    with pytest.raises(EncodeError) as caught:
        message.replace(edits)
    assert caught.value.path == path
