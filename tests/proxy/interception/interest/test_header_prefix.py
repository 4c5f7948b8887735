"""A header prefix has all fields of the message but its records, and is complete before they are."""

from __future__ import annotations

import random
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.codec.project import reader
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import plan
from barnabas.proxy.native.accelerator import native
from barnabas.proxy.relay.interception.interest.header_prefix import HeaderPrefix, asked_paths, may_have_records
from harness.wire import with_size

PRODUCE, FETCH, SHARE_FETCH = (facts.api_key(name) for name in ("Produce", "Fetch", "ShareFetch"))
CASES = [("request", PRODUCE, v) for v in facts.api(PRODUCE).versions.every()] + [
    (kind, key, v)
    for kind, key in (("response", FETCH), ("response", SHARE_FETCH))
    for v in facts.api(key).versions.every()
]
OPEN = ("records", "acquired_records", "node_endpoints")
"""What a prefix leaves out."""


def without_records(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_records(each) for name, each in value.items() if name not in OPEN}
    return [without_records(each) for each in value] if isinstance(value, list) else value


def message(chance: random.Random, kind: str, key: int, version: int, parts: int) -> tuple[bytes, dict[str, Any]]:
    """A message with its size, and its fields."""
    batch = bytes(encode_batch([Record(0, 1, None, chance.randbytes(chance.choice((3, 300, 5000))))]))
    topic_id = "00000000-0000-4000-8000-000000000001"
    if kind == "request":
        name = {"topic_id": topic_id} if version >= 13 else {"name": "t" * chance.choice((1, 300))}
        topics = [
            name | {"partition_data": [{"index": n, "records": batch} for n in range(parts)]} for _ in range(parts)
        ]
        frame = decoder.encode_request(
            PRODUCE, version, {"acks": -1, "topic_data": topics}, correlation_id=5, client_id="c"
        )
        fields = decoder.decode_request(frame).to_dict()
    else:
        name = (
            {"topic_id": topic_id} if version >= 13 or key == SHARE_FETCH else {"topic": "t" * chance.choice((1, 300))}
        )
        codes = [chance.choice((0, 6)) for _ in range(parts)]
        parted = [{"partition_index": n, "error_code": code, "records": batch} for n, code in enumerate(codes)]
        if key == SHARE_FETCH:
            for each in parted:
                each["acquired_records"] = [{"first_offset": 1, "last_offset": 9, "delivery_count": 1}]
        body = {"responses": [name | {"partitions": parted} for _ in range(parts)]}
        if key == SHARE_FETCH:
            body["node_endpoints"] = [{"node_id": 1, "host": "h", "port": 9, "rack": None}]
        frame = decoder.encode_response(key, version, body, correlation_id=5)
        fields = decoder.decode_response(frame, api_key=key, api_version=version).to_dict()
    return with_size(frame), fields


@pytest.mark.parametrize(("kind", "key", "version"), CASES)
@pytest.mark.parametrize("parts", [1, 3])
def test_the_prefix_has_what_the_message_has(kind: str, key: int, version: int, parts: int) -> None:
    chance = random.Random(version * 10 + parts)
    data, fields = message(chance, kind, key, version, parts)
    prefix = HeaderPrefix(kind, key, version)
    at = 0
    while at < len(data):
        step = chance.choice((1, 2, 7, 90, 2000))
        at += step
        if prefix.feed(data[at - step : at]):
            break
    assert prefix.frame and not prefix.failed
    assert at - step < len(data) - 60  # the last batch need not have come
    found = (
        decoder.decode_request(prefix.frame[4:])
        if kind == "request"
        else decoder.decode_response(prefix.frame[4:], api_key=key, api_version=version)
    )
    assert without_records(found.to_dict()) == without_records(fields)


def test_what_has_none() -> None:
    assert may_have_records("request", PRODUCE, 9) and may_have_records("response", FETCH, 4) and not may_have_records("response", PRODUCE, 9)
    assert not may_have_records("request", PRODUCE, 99)
    share = HeaderPrefix("response", SHARE_FETCH, 1)
    frame = decoder.encode_response(SHARE_FETCH, 1, {"responses": []}, correlation_id=1)
    assert not share.feed(with_size(frame)) and share.failed


def in_c(kind: str, key: int, version: int, data: bytes) -> Any:
    of = plan(kind, key, version)
    made = reader(of, asked_paths(of)), of.header_version, kind == "request"
    return native.header_prefix(*made, data)  # type: ignore[union-attr]


def prefix_of(kind: str, key: int, version: int, data: bytes) -> bytes | None:
    """What Python makes of the beginning of a frame; None if it has no prefix, or not yet."""
    prefix = HeaderPrefix(kind, key, version)
    return prefix.frame if prefix.feed(data) else None


@pytest.mark.skipif(native is None, reason="the accelerator is not built")
@pytest.mark.parametrize(("kind", "key", "version"), CASES)
def test_the_accelerator_makes_the_same(kind: str, key: int, version: int) -> None:
    """Of every beginning of a message, and of its beginnings when a byte of them is another."""
    chance = random.Random(version)
    data = message(chance, kind, key, version, 2)[0]
    found = {}
    for size in [*range(min(len(data), 500)), *range(500, len(data), 97), len(data)]:
        found[size] = prefix_of(kind, key, version, data[:size])
        assert in_c(kind, key, version, data[:size]) == found[size], size
    assert found[len(data)] and not found[60]
    for _ in range(100):
        other = bytearray(data[: chance.choice((100, 400, len(data)))])
        other[chance.randrange(4, min(len(other), 200))] = chance.randrange(256)
        assert in_c(kind, key, version, bytes(other)) == prefix_of(kind, key, version, bytes(other))


@pytest.mark.parametrize("seed", range(30))
def test_any_bytes(seed: int) -> None:
    """It never raises, and a prefix that it gives is a frame."""
    chance = random.Random(seed)
    kind, key, version = chance.choice(CASES)
    data = bytearray(message(chance, kind, key, version, 2)[0])
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(4, min(len(data), 120))] = chance.randrange(256)
    prefix = HeaderPrefix(kind, key, version)
    if prefix.feed(data):
        assert int.from_bytes(prefix.frame[:4], "big") == len(prefix.frame) - 4
