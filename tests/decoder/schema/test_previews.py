"""Preview layouts: bytes that the releases' own classes wrote, and their definitions where the jars have been fetched."""

from __future__ import annotations

import subprocess
import uuid
import zipfile
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.reference.definitions import importer, previews
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.notation import parse, write
from barnabas.decoder.schema.plan import compile_plan, plan
from harness.waiting import PATIENCE

CACHE = Path(__file__).parents[3] / ".cache"
TOPIC = uuid.UUID(int=5)

# Written by the classes of kafka-clients 0.8.2.2, 2.7.2, 3.5.2 (the same from 3.6.2), 3.7.2 and 3.9.1 (and 4.0.0).
JOIN_REQUEST = "00026731000075300000000200066f7264657273000573746f636b0003632d31000a726f756e64726f62696e"
JOIN_RESPONSE = "0000000000040003632d310000000100066f7264657273000000020000000000000003"
END_EPOCH = "0002636c0000000100046d6574610000000100000000000000030000000200000009000000020000000100000003"
HEARTBEAT_REQUEST = (
    "036731026d00000000000372310000afc802076f7264657273056f722e2a0672616e67650202610000000201000204010203000100"
)
HEARTBEAT_RESPONSE = (
    "00000000000000026d00000001010000138801000200000000000000000000000000000005030000000000000001"
    "000200000000000000000000000000000005020000000200000102ff0000"
)
DESCRIBE_RESPONSE = (
    "000000000200000003673107537461626c6500000002000000020672616e676502026d0000000000020263032f68"
    "02076f7264657273010200000000000000000000000000000005076f72646572730200000000000000000007"
    "010001010000000802ff0000000000000000"
)
SUMMARY_RESPONSE = "0200000000000000000000000000000005020000000400000000000006000000000012d687000000"

VECTORS = [
    (
        ("0.8.2.2", "0.8.2", "0.8.2-beta"), "request", 11, JOIN_REQUEST,
        {
            "group_id": "g1", "session_timeout": 30000, "topics": ["orders", "stock"], "consumer_id": "c-1",
            "partition_assignment_strategy": "roundrobin",
        },
    ),
    (
        ("0.8.2.2", "0.8.2.0"), "response", 11, JOIN_RESPONSE,
        {
            "error_code": 0, "group_generation_id": 4, "consumer_id": "c-1",
            "assigned_partitions": [{"topic": "orders", "partitions": [0, 3]}],
        },
    ),
    (
        ("2.7", "2.7.0", "v2.7.2"), "request", 54, END_EPOCH,
        {
            "cluster_id": "cl",
            "topics": [
                {
                    "topic_name": "meta",
                    "partitions": [
                        {
                            "partition_index": 0, "replica_id": 3, "leader_id": 2, "leader_epoch": 9,
                            "preferred_successors": [1, 3],
                        }
                    ],
                }
            ],
        },
    ),
    (
        ("3.5", "3.5.2", "3.6", "3.6.2-kraft"), "request", 68, HEARTBEAT_REQUEST,
        {
            "group_id": "g1", "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": "r1",
            "rebalance_timeout_ms": 45000, "subscribed_topic_names": ["orders"], "subscribed_topic_regex": "or.*",
            "server_assignor": "range",
            "client_assignors": [
                {
                    "name": "a", "minimum_version": 0, "maximum_version": 2, "reason": 1, "metadata_version": 2,
                    "metadata_bytes": b"\1\2\3",
                }
            ],
            "topic_partitions": [],
        },
    ),
    (
        ("3.5", "3.6.1"), "response", 68, HEARTBEAT_RESPONSE,
        {
            "throttle_time_ms": 0, "error_code": 0, "error_message": None, "member_id": "m", "member_epoch": 1,
            "should_compute_assignment": True, "heartbeat_interval_ms": 5000,
            "assignment": {
                "error": 0,
                "assigned_topic_partitions": [{"topic_id": TOPIC, "partitions": [0, 1]}],
                "pending_topic_partitions": [{"topic_id": TOPIC, "partitions": [2]}],
                "metadata_version": 1,
                "metadata_bytes": b"\xff",
            },
        },
    ),
    (
        ("3.7", "3.7.0"), "response", 69, DESCRIBE_RESPONSE,
        {
            "throttle_time_ms": 0,
            "groups": [
                {
                    "error_code": 0, "error_message": None, "group_id": "g1", "group_state": "Stable",
                    "group_epoch": 2, "assignment_epoch": 2, "assignor_name": "range",
                    "members": [
                        {
                            "member_id": "m", "instance_id": None, "rack_id": None, "member_epoch": 2,
                            "client_id": "c", "client_host": "/h", "subscribed_topic_names": ["orders"],
                            "subscribed_topic_regex": "",
                            "assignment": {
                                "topic_partitions": [{"topic_id": TOPIC, "topic_name": "orders", "partitions": [0]}],
                                "error": 0, "metadata_version": 7, "metadata_bytes": b"",
                            },
                            "target_assignment": {
                                "topic_partitions": [], "error": 1, "metadata_version": 8, "metadata_bytes": b"\xff",
                            },
                        }
                    ],
                    "authorized_operations": 0,
                }
            ],
        },
    ),
    (
        ("3.9", "3.9.1", "4.0", "4.0.2", "4"), "response", 87, SUMMARY_RESPONSE,
        {
            "results": [
                {
                    "topic_id": TOPIC,
                    "partitions": [
                        {
                            "partition": 4, "error_code": 0, "error_message": None, "state_epoch": 6,
                            "start_offset": 1234567,
                        }
                    ],
                }
            ]
        },
    ),
]  # fmt: skip
IDS = [f"{kind}-{facts.api_name(key)}" for _, kind, key, _, _ in VECTORS]


@pytest.mark.parametrize(("releases", "kind", "key", "data", "fields"), VECTORS, ids=IDS)
def test_bytes_of_the_releases(releases, kind, key, data, fields):
    body = bytes.fromhex(data)
    for release in releases:
        message = previews.decode_body(kind, key, 0, body, release=release)
        assert message.to_dict() == fields
        assert message.encode() == body and (message.api_key, message.api_version) == (key, 0)
        out = bytearray()
        encode_struct(message.plan.root, message.values, out)
        assert out == body
        assert max(span.end for span in message.map()) >= len(body) - 3  # all but the last empty tag sections


@pytest.mark.parametrize(("releases", "kind", "key", "data", "fields"), VECTORS, ids=IDS)
def test_without_a_release_the_final_layout_is_used(releases, kind, key, data, fields):
    body = bytes.fromhex(data)
    for release in (None, "4.1", "0.9", "3.0"):
        try:
            message = previews.decode_body(kind, key, 0, body, release=release)
        except decoder.DecodeError as fault:
            assert fault.api == facts.api_name(key)
        else:
            assert message.plan is plan(kind, key, 0)
            assert message.to_dict() != fields


def test_whole_frames():
    frame = bytes.fromhex("000b0000000000070002" + b"me".hex() + JOIN_REQUEST)
    message = previews.decode_request(frame, release="0.8.2")
    assert message.header["correlation_id"] == 7 and message["topics[1]"] == "stock"
    assert message.replace({"session_timeout": 6000}).encode() == frame.replace(
        b"\x00\x00\x75\x30", b"\x00\x00\x17\x70"
    )
    with pytest.raises(decoder.DecodeError):
        previews.decode_request(frame)
    frame = bytes.fromhex("0000000900" + HEARTBEAT_RESPONSE)
    message = previews.decode_response(frame, api_key=68, api_version=0, release="3.6")
    assert message.header["correlation_id"] == 9 and message["assignment.metadata_version"] == 1
    final = decoder.encode_response(3, 1, {"brokers": []}, correlation_id=3)
    assert previews.decode_response(final, api_key=3, api_version=1, release="3.6")["brokers"] == []
    final = decoder.encode_request(3, 1, {"topics": None})
    assert previews.decode_request(final, release="3.6")["topics"] is None


@pytest.mark.parametrize(("releases", "kind", "key", "data", "fields"), VECTORS, ids=IDS)
def test_cut_bytes_raise_errors_with_a_place(releases, kind, key, data, fields):
    body = bytes.fromhex(data)
    for cut in range(len(body)):
        with pytest.raises(decoder.DecodeError) as caught:
            previews.decode_body(kind, key, 0, body[:cut], release=releases[0])
        assert caught.value.api == facts.api_name(key) and caught.value.path and caught.value.offset <= cut
    with pytest.raises(decoder.TrailingBytes) as caught:
        previews.decode_body(kind, key, 0, body + b"more", release=releases[0])
    assert caught.value.message.to_dict() == fields and caught.value.message.trailing == b"more"


def test_which_previews_a_release_has():
    releases = ["0.8.1", "0.8.2.1", "0.9.0", "2.7.1", "2.8", "3.4", "3.5.0", "3.6", "3.7", "3.8", "3.9", "4.0.1", "4.1"]
    names = {
        release: {f"{o.definition.kind} {o.definition.key}" for o in previews.overlays(release)} for release in releases
    }
    assert {release: found for release, found in names.items() if found} == {
        "0.8.2.1": {"request 11", "response 11"},
        "2.7.1": {"request 54"},
        "3.5.0": {"request 68", "response 68"},
        "3.6": {"request 68", "response 68"},
        "3.7": {"response 69"},
        "3.9": {"response 87"},
        "4.0.1": {"response 87"},
    }


@pytest.mark.parametrize("release", ["", "new", "3,6", "3.", "-1", "3.6 or 3.7"])
def test_names_that_are_no_release(release):
    with pytest.raises(ValueError, match="not a Kafka release"):
        previews.overlays(release)


def test_every_overlay_differs_from_the_final_layout_and_survives_writing():
    for overlay in previews.every():
        of = overlay.definition
        for version in of.versions.every():
            final = getattr(facts.api(of.key), of.kind)
            assert importer.layout(of, version, names=False) != importer.layout(final, version, names=False)
    for entry in facts.schema_folder().joinpath("previews").iterdir():
        text = entry.read_text("utf-8")
        assert write(parse(text, entry.name)) == text


def jar(release: str) -> Path:
    found = list(CACHE.rglob(f"kafka-clients-{release}.jar"))
    assert found, f"kafka-clients {release} is fetched by: make broker"
    return found[0]


@pytest.mark.parametrize("release", ["2.7.2", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.1", "4.0.0", "4.1.0", "4.3.1", "4.4.0"])
def test_layouts_with_overlays_are_those_of_the_release(release):
    with zipfile.ZipFile(jar(release)) as archive:
        names = importer.definition_files(archive.namelist())
        theirs = importer.read_definitions({name: archive.read(name).decode() for name in names})
    count, used = 0, set()
    for definition in theirs.values():
        if definition.kind not in ("request", "response") or definition.key is None:
            continue
        for version in definition.versions.every():
            of = previews.plan(definition.kind, definition.key, version, release)
            if of is not None:
                used.add(definition.name)
            of = of or plan(definition.kind, definition.key, version)
            own, ours = untagged(compile_plan(definition, version, -1).root), untagged(of.root)
            assert own == ours, (definition.name, version)
            count += 1
    assert count > 400
    assert used == {overlay.definition.name for overlay in previews.overlays(release)}


def untagged(struct) -> list:
    """A layout without names, and without tagged fields: a release may add those to a version."""
    return [
        (f.type if f.type != "records" else "bytes", f.array, f.nullable, f.compact, f.struct and untagged(f.struct))
        for f in struct.fields[: struct.untagged]
    ] + [struct.flexible]


DUMP = """
import org.apache.kafka.common.protocol.Protocol;

public class Dump {
    public static void main(String[] args) {
        System.out.println(Protocol.REQUESTS[11][0]);
        System.out.println(Protocol.RESPONSES[11][0]);
    }
}
"""


def test_the_layout_of_0_8_2_is_that_of_its_classes(tmp_path):
    source = tmp_path / "Dump.java"
    source.write_text(DUMP)
    done = subprocess.run(
        ["java", "-cp", str(jar("0.8.2.2")), str(source)], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    ours = [as_0_8_schema(previews.plan(kind, 11, 0, "0.8.2").root) for kind in ("request", "response")]
    assert done.stdout.split() == ours


def as_0_8_schema(struct) -> str:
    fields = []
    for field in struct.fields:
        inner = as_0_8_schema(field.struct) if field.struct else field.type.upper()
        fields.append(f"{field.name}:{f'ARRAY({inner})' if field.array else inner}")
    return "{" + ",".join(fields) + "}"
