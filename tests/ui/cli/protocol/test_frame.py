"""One message on the command line, in and out."""

from __future__ import annotations

import json

from barnabas import decoder
from harness.wire import with_size

FRAME = decoder.encode_request(3, 12, {"topics": [{"name": "orders"}]}, correlation_id=7, client_id="me")


def test_encode_and_decode_are_inverse(run):
    fields = '{"topics": [{"name": "orders"}]}'
    made = run("encode", fields, "--api", "Metadata", "--api-version", 12, "--correlation-id", 7, "--client-id", "me")
    assert made.returncode == 0 and bytes.fromhex(made.stdout) == FRAME, made.stderr
    back = json.loads(run("decode", "--hex", made.stdout.strip(), "--request", "--json").stdout)
    assert back["correlation_id"] == 7 and back["client_id"] == "me" and back["topics"][0]["name"] == "orders"
    sized = run(
        "encode", fields, "--api", "3", "--api-version", 12, "--correlation-id", 7, "--client-id", "me", "--size"
    ).stdout
    assert bytes.fromhex(sized) == with_size(FRAME)
    assert (
        run("decode", "--hex", sized, "--request", "--json").stdout
        == run("decode", "--hex", FRAME.hex(), "--request", "--json").stdout
    )


def test_a_response_as_tree_and_as_a_map_of_its_bytes(run):
    frame = decoder.encode_response(12, 4, {"error_code": 27}, correlation_id=9)
    tree = run("decode", "--hex", frame.hex(":"), "--response", "--api", "Heartbeat", "--api-version", 4)
    assert tree.returncode == 0 and "error_code: 27 REBALANCE_IN_PROGRESS" in tree.stdout
    mapped = run("decode", "--hex", frame.hex(), "--response", "--api", 12, "--api-version", 4, "--hexmap").stdout
    assert [line.split()[:3] for line in mapped.splitlines()] == [
        ["5", "4", "throttle_time_ms"],
        ["9", "2", "error_code"],
    ]
    assert mapped.splitlines()[1].endswith("00 1b")


def test_a_damaged_message_shows_what_was_read_and_where_it_ends(run):
    done = run("decode", "--hex", FRAME[:-4].hex(), "--request")
    assert (
        done.returncode == 2 and "Metadata v12: " in done.stderr and "topics[0]._tagged_fields (offset" in done.stderr
    )
    assert json.loads(done.stdout)["topics"][0]["name"] == "orders"


def test_a_preview_layout_is_read_when_its_release_is_named(run):
    # EndQuorumEpoch v0 of 2.7 had one more int32 per partition
    final = decoder.encode_request(54, 0, {"topics": []}, correlation_id=1, client_id="c")
    assert run("decode", "--hex", final.hex(), "--request", "--release", "2.7").returncode == 0
    done = run("decode", "--hex", final.hex(), "--request", "--release", "banana")
    assert done.returncode == 2 and "--release" in done.stderr and "Traceback" not in done.stderr


def test_numbers_have_their_names_beside_them(run):
    frame = decoder.encode_response(3, 12, {"topics": [{"error_code": 6, "name": "t"}]}, correlation_id=1)
    shown = run("decode", "--hex", frame.hex(), "--response", "--api", "Metadata", "--api-version", 12).stdout
    assert "error_code: 6 NOT_LEADER_OR_FOLLOWER" in shown and "topic_authorized_operations: -2147483648 (not requested)" in shown
    frame = decoder.encode_request(1, 12, {"isolation_level": 1, "session_epoch": -1}, correlation_id=1)
    shown = run("decode", "--hex", frame.hex(), "--request").stdout
    for line in ("request_api_key: 1 Fetch", "isolation_level: 1 READ_COMMITTED", "session_epoch: -1 (no session)"):
        assert line in shown
    telemetry = decoder.encode_response(71, 0, {"accepted_compression_types": [4, 2]}, correlation_id=1)
    shown = run("decode", "--hex", telemetry.hex(), "--response", "--api", 71, "--api-version", 0).stdout
    assert "  accepted_compression_types\n    [0]: 4 zstd\n    [1]: 2 snappy\n" in shown
    # JSON is for programs: the numbers alone.
    assert json.loads(run("decode", "--hex", frame.hex(), "--request", "--json").stdout)["isolation_level"] == 1


def test_former_names_of_apis(run):
    done = run("encode", "{}", "--api", "Offsets", "--api-version", 1)
    assert done.stdout == run("encode", "{}", "--api", "ListOffsets", "--api-version", 1).stdout and done.returncode == 0
    assert done.stderr == "barnabas: Offsets (Kafka 0.8 to 0.11) is ListOffsets today\n"
    done = run("schema", "show", "groupcoordinator", 0)
    assert done.stdout.startswith("FindCoordinatorRequest v0") and "is FindCoordinator today" in done.stderr
    done = run("encode", "{}", "--api", "Offsetz")
    assert done.returncode == 2 and "did you mean ListOffsets?" in done.stderr


def test_drafts_are_written_read_and_shown(run):
    fields = '{"topic_name": "t", "partitions": 6, "replicas": 3}'
    made = run("encode", fields, "--api", "KIP-4.CreateTopic")
    assert made.stdout == "000174010000000601000000030000000000\n", made.stderr
    back = run("decode", "--hex", made.stdout.strip(), "--request", "--api", "kip-4.createtopicrequest", "--api-version", 0)
    assert back.stdout.splitlines()[:4] == [
        "CreateTopicRequest v0 request", '  topic_name: "t"', "  partitions: 6", "  replicas: 3",
    ]  # fmt: skip
    mapped = run("decode", "--hex", "00000001", "--response", "--api", "kip-4.ReassignPartition", "--hexmap")
    assert mapped.returncode == 2 and "left over" in mapped.stderr
    shown = run("schema", "show", "kip-4.ReassignPartition", 0).stdout
    assert "ReassignPartitionsRequest v0  (kip-4.ReassignPartitions, a draft: no header)\n  manual_assignment  string  The partitions" in shown
    # A draft is described as it was, not as what shipped under the same name.
    assert "null for none" in run("schema", "show", "kip-35.Metadata").stdout
    assert "ReassignPartitionsResponse v0" in shown and "error_description  string? = null" in shown


def test_drafts_that_are_not_there(run):
    done = run("schema", "show", "kip-4.DescribeTopix")
    assert done.returncode == 2 and "did you mean 'kip-4.DescribeTopic'?; there are kip-133.AlterConfigs" in done.stderr
    done = run("encode", "{}", "--api", "kip-4.DescribeTopic", "--api-version", 1)
    assert (done.returncode, done.stderr) == (2, "barnabas: kip-4.DescribeTopic has version 0, not 1\n")


def test_schema_show_says_what_fields_mean(run, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    shown = run("schema", "show", "Fetch", 12).stdout
    (line,) = (line for line in shown.splitlines() if "  max_wait_ms " in line)
    assert line.split(maxsplit=2) == ["max_wait_ms", "int32", "How long the broker may wait for min_bytes, in ms"]
    assert max(map(len, shown.splitlines())) <= 100
    # In a narrow terminal below the field.
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run("schema", "show", "Fetch", 12).stdout
    assert "  max_wait_ms               int32\n      How long the broker may wait" in narrow
    assert "Vote" in (undescribed := run("schema", "show", "Vote", 0).stdout) and max(map(len, undescribed.splitlines())) < 80
