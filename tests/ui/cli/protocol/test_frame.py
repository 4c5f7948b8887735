"""One message on the command line, in and out."""

from __future__ import annotations

import json

from barnabas import decoder
from harness.wire import with_size

FRAME = decoder.encode_request(3, 12, {"topics": [{"name": "orders"}]}, correlation_id=7, client_id="me")


def test_encode_and_decode_are_inverse(run):
    fields = '{"topics": [{"name": "orders"}]}'
    made = run("encode", fields, "--api", "Metadata", "--version", 12, "--correlation-id", 7, "--client-id", "me")
    assert made.returncode == 0 and bytes.fromhex(made.stdout) == FRAME, made.stderr
    back = json.loads(run("decode", "--hex", made.stdout.strip(), "--request", "--json").stdout)
    assert back["correlation_id"] == 7 and back["client_id"] == "me" and back["topics"][0]["name"] == "orders"
    sized = run(
        "encode", fields, "--api", "3", "--version", 12, "--correlation-id", 7, "--client-id", "me", "--size"
    ).stdout
    assert bytes.fromhex(sized) == with_size(FRAME)
    assert (
        run("decode", "--hex", sized, "--request", "--json").stdout
        == run("decode", "--hex", FRAME.hex(), "--request", "--json").stdout
    )


def test_a_response_as_tree_and_as_a_map_of_its_bytes(run):
    frame = decoder.encode_response(12, 4, {"error_code": 27}, correlation_id=9)
    tree = run("decode", "--hex", frame.hex(":"), "--response", "--api", "Heartbeat", "--version", 4)
    assert tree.returncode == 0 and "error_code: 27 REBALANCE_IN_PROGRESS" in tree.stdout
    mapped = run("decode", "--hex", frame.hex(), "--response", "--api", 12, "--version", 4, "--hexmap").stdout
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
