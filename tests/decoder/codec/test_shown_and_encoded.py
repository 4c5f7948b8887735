"""`encode` makes the same bytes from what `decode --json --show-values` shows of a message, records included."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.decoder import DecodeError, EncodeError
from barnabas.decoder.present import present
from barnabas.decoder.records import Record
from barnabas.decoder.records.codecs import GZIP, NONE
from barnabas.decoder.records.write import encode_batch, encode_messages
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.notation import VersionRange
from barnabas.decoder.schema.plan import field_paths, plan
from harness import commands

CAPTURES = Path(__file__).parents[1] / "findings/captures"
PRODUCE, FETCH = facts.api_key("Produce"), facts.api_key("Fetch")
RECORDS = [Record(offset=n, timestamp=1_700_000_000_000 + n, key=b"k%d" % n, value=b"\x00\xff" * n) for n in range(4)]


def areas() -> dict[str, bytes | None]:
    batch, packed = encode_batch(RECORDS), encode_batch(RECORDS, codec=GZIP)
    sets = [encode_messages(RECORDS, magic=magic, codec=codec) for magic in (0, 1) for codec in (NONE, GZIP)]
    return {
        "a batch": batch, "two, one compressed": batch + packed, "old formats": b"".join(sets), "nothing": b"", "null": None,
        "cut": batch + packed[:-7], "wrong sum": batch[:17] + b"\0\0\0\0" + batch[21:], "garbage": random.Random(1).randbytes(80),
        "wrong inside": packed[:61] + b"\xff" * 9 + packed[70:], "a few bytes behind": batch + b"\0\0\0",
    }  # fmt: skip


def again(kind: str, key: int, version: int, body: bytes, message: decoder.Message) -> bytes:
    shown = json.loads(json.dumps(present(message, True, lambda topic_id: "t")))
    return decoder.encode_body(kind, key, version, shown)


@pytest.mark.parametrize("name", areas())
@pytest.mark.parametrize("version", [3, 7, 12, 13])
def test_produce_and_fetch(name: str, version: int) -> None:
    area = areas()[name]
    topic = {"topic_data": [{"partition_data": [{"index": 0, "records": area}]}], "acks": -1, "timeout_ms": 1}
    answer = {"partition_index": 0, "error_code": 0, "high_watermark": 3, "records": area}
    for kind, key, fields in (("request", PRODUCE, topic), ("response", FETCH, {"responses": [{"partitions": [answer]}]})):
        body = decoder.encode_body(kind, key, version, fields)
        message = decoder.decode_body(kind, key, version, body)
        assert again(kind, key, version, body, message) == body


@pytest.mark.parametrize("name", ["fetching-throttled-producer", "fetching-behind-a-transaction", "fetching-falls-behind"])
def test_recordings(name: str) -> None:
    with open_capture(CAPTURES / f"{name}.pcapng") as capture:
        for exchange in capture.exchanges():
            for kind, message in (("request", exchange.request_message), ("response", exchange.response_message)):
                if message is None or message.trailing:
                    continue
                body = message.frame[message.body_start :]
                assert again(kind, message.api_key, message.api_version, body, message) == body


def test_with_the_commands(tmp_path: Path) -> None:
    path = CAPTURES / "fetching-throttled-producer.pcapng"
    done = commands.run("decode", path, "--json", "--show-values", "--filter", "api == Produce")
    shown = json.loads(done.stdout.splitlines()[0])
    fields = json.dumps(shown["request"])
    made = commands.run("encode", fields, "--api", "Produce", "--api-version", str(shown["api_version"]), "--body")
    assert made.returncode == 0, made.stderr
    with open_capture(path) as capture:
        exchange = next(e for e in capture.exchanges() if e.api == "Produce")
    message = exchange.request_message
    assert message is not None and bytes.fromhex(made.stdout) == message.frame[message.body_start :]


def test_records_without_their_values_are_refused_with_a_remedy() -> None:
    body = decoder.encode_body("request", PRODUCE, 7, {"topic_data": [{"name": "t", "partition_data": [{"records": encode_batch(RECORDS)}]}]})
    shown = present(decoder.decode_body("request", PRODUCE, 7, body))
    with pytest.raises(EncodeError, match="--show-values"):
        decoder.encode_body("request", PRODUCE, 7, shown)
    assert DecodeError is not EncodeError


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("values", [True, False])
def test_messages_that_were_compressed_twice_are_shown_and_marked(magic: int, values: bool) -> None:
    twice = wrapped(encode_messages(RECORDS, magic=magic, codec=GZIP), magic)
    body = decoder.encode_body("request", PRODUCE, 1, {"topic_data": [{"name": "t", "partition_data": [{"records": twice}]}]})
    message = decoder.decode_body("request", PRODUCE, 1, body)
    (entry,) = present(message, values)["topic_data"][0]["partition_data"][0]["records"]
    assert "compressed twice" in entry["unreadable"]
    (inner,) = entry["wrapped"]
    assert inner["codec"] == "gzip" and [r["offset"] for r in inner["records"]] == [0, 1, 2, 3]
    assert not values or inner["records"][2]["key"] == "k2"


def wrapped(messages: bytes, magic: int) -> bytes:
    """A message whose value is these messages, compressed."""
    out = bytearray(encode_messages([Record(offset=3, timestamp=1, key=None, value=gzip.compress(messages))], magic=magic))
    out[17] |= GZIP
    out[12:16] = zlib.crc32(out[16:]).to_bytes(4, "big")
    return bytes(out)


def test_a_bomb_of_wrappers_is_bounded() -> None:
    level = encode_messages([Record(offset=0, timestamp=1, key=None, value=bytes(1 << 16))], magic=1)
    for _ in range(3):
        level = wrapped(level * 30, 1)
    body = decoder.encode_body("request", PRODUCE, 1, {"topic_data": [{"name": "t", "partition_data": [{"records": level}]}]})
    shown = json.dumps(present(decoder.decode_body("request", PRODUCE, 1, body)))
    assert len(shown) < 1 << 17


def fetched(transactions: list[dict[str, int]] | None) -> decoder.Message:
    """Records of producers 7 (aborted) and 8 (not), then the markers of both, then producer 7 again."""

    def batch(offset: int, producer: int, control: bytes = b"") -> bytes:
        record = Record(offset, 1, control or b"key", b"\0\0\0\0\0\0" if control else b"value")
        return encode_batch([record], transactional=True, control=bool(control), producer_id=producer, producer_epoch=0, base_sequence=0)

    abort, commit = b"\0\0\0\0", b"\0\0\0\1"
    area = batch(0, 7) + batch(1, 8) + batch(2, 7, abort) + batch(3, 8, commit) + batch(4, 7)
    partition = {"partition_index": 0, "aborted_transactions": transactions, "records": area}
    body = {"responses": [{"topic": "orders", "partitions": [partition]}]}
    return decoder.decode_response(decoder.encode_response(1, 11, body, correlation_id=1), api_key=1, api_version=11)


def test_records_of_aborted_transactions_are_marked() -> None:
    for listed, marked in (([{"producer_id": 7, "first_offset": 0}], [0]), ([], []), (None, [])):
        message = fetched(listed)
        shown = present(message, values=True)
        batches = shown["responses"][0]["partitions"][0]["records"]
        assert [each["base_offset"] for each in batches if each.get("aborted")] == marked
        again = decoder.encode_response(1, 11, shown, correlation_id=1)
        assert again == message.frame


NOTHING = [
    ("Metadata", 0, {"topics": []}, {"_topics": "all topics"}),
    ("Metadata", 1, {"topics": None}, {"_topics": "all topics"}),
    ("Metadata", 13, {"topics": None}, {"_topics": "all topics"}),
    ("Metadata", 13, {"topics": []}, {"_topics": "no topics, brokers only"}),
    ("Metadata", 0, {"topics": [{"name": "a"}]}, {}),
    ("OffsetFetch", 7, {"topics": None}, {"_topics": "all topics with committed offsets"}),
    ("OffsetFetch", 7, {"topics": []}, {}),
    ("ListGroups", 5, {}, {"_states_filter": "all states", "_types_filter": "all types"}),
    ("ListGroups", 4, {}, {"_states_filter": "all states"}),
    ("ListGroups", 5, {"states_filter": ["Empty"], "types_filter": ["share"]}, {}),
    ("DescribeUserScramCredentials", 0, {"users": None}, {"_users": "all users"}),
    ("DescribeUserScramCredentials", 0, {"users": []}, {"_users": "all users"}),
]


@pytest.mark.parametrize(("api", "version", "body", "meaning"), NOTHING)
def test_what_null_and_empty_fields_mean(api: str, version: int, body: dict[str, Any], meaning: dict[str, str]) -> None:
    key = facts.api_key(api)
    frame = decoder.encode_request(key, version, body, correlation_id=1)
    shown = present(decoder.decode_request(frame))
    assert {name: text for name, text in shown.items() if name.startswith("_")} == meaning
    assert decoder.encode_request(key, version, shown, correlation_id=1) == frame


def test_what_null_fields_of_items_mean() -> None:
    topic = {"resource_type": 2, "resource_name": "t"}
    resources = [{**topic, "configuration_keys": keys} for keys in (None, ["retention.ms"])]
    frame = decoder.encode_request(32, 4, {"resources": resources}, correlation_id=1)
    shown = present(decoder.decode_request(frame))
    assert [each.get("_configuration_keys") for each in shown["resources"]] == ["all settings", None]
    assert decoder.encode_request(32, 4, shown, correlation_id=1) == frame


def test_every_line_about_null_and_empty_fields_has_its_place() -> None:
    """A field of some version that may be null or empty: a line that says otherwise would never be shown."""
    lines = (facts.schema_folder() / "null_and_empty.txt").read_text().splitlines()
    stated = [line.split(None, 4) for line in lines if line and not line.startswith("#")]
    assert len(stated) > 25
    for apis, paths, versions, values, _ in stated:
        for api in apis.split(","):
            for path in paths.split(","):
                for version in facts.api(facts.api_key(api)).versions.every():
                    if version not in VersionRange.parse(versions):
                        continue
                    root = plan("request", facts.api_key(api), version).root
                    found = {at: field for at, field, _ in field_paths(root)}.get(path)
                    assert found is not None, (api, path, version)
                    assert found.nullable or "null" not in values, (api, path, version)
                    assert found.array or found.type == "string" or "empty" not in values, (api, path, version)
