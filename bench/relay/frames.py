"""The frames that the load is made of: real Kafka requests and responses of the sizes that matter."""

from __future__ import annotations

import os
from dataclasses import dataclass

from barnabas import decoder
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts


@dataclass(frozen=True)
class Shape:
    """One cell of the table: what is asked and answered, how many at a time, on how many connections."""

    name: str
    request: bytes
    response: bytes
    depth: int
    connections: int


def _sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _records(size: int) -> bytes:
    # Values that do not compress, of 1 KiB, as producers of binary data send them.
    count, rest = divmod(size, 1024)
    values = [os.urandom(1024)] * count + ([os.urandom(rest)] if rest else [])
    return bytes(encode_batch([Record(n, 1_700_000_000_000, None, value) for n, value in enumerate(values)]))


def _produce(size: int) -> tuple[bytes, bytes]:
    key = facts.api_key("Produce")
    partition = {"index": 0, "records": _records(size)}
    body = {"acks": -1, "timeout_ms": 30000, "topic_data": [{"name": "orders", "partition_data": [partition]}]}
    request = decoder.encode_request(key, 11, body, correlation_id=0, client_id="load")
    answer = {"responses": [{"name": "orders", "partition_responses": [{"index": 0, "base_offset": 1}]}]}
    return _sized(request), _sized(decoder.encode_response(key, 11, answer, correlation_id=0))


def _fetch(size: int) -> tuple[bytes, bytes]:
    key = facts.api_key("Fetch")
    topic_id = "00000000-0000-4000-8000-000000000001"
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size}
    body = {"max_wait_ms": 500, "min_bytes": 1, "topics": [{"topic_id": topic_id, "partitions": [partition]}]}
    request = decoder.encode_request(key, 16, body, correlation_id=0, client_id="load")
    answer = {"responses": [{"topic_id": topic_id, "partitions": [{"partition_index": 0, "records": _records(size)}]}]}
    return _sized(request), _sized(decoder.encode_response(key, 16, answer, correlation_id=0))


def first_of_a_session() -> Shape:
    """Fetches that would begin a session (KIP-227), with answers that hold nothing: what clients of a broker that lets no
    session begin send each time."""
    key = facts.api_key("Fetch")
    topics = [{"topic": "orders", "partitions": [{"partition": n, "fetch_offset": 5} for n in range(6)]}]
    request = decoder.encode_request(key, 12, {"session_epoch": 0, "topics": topics}, correlation_id=0, client_id="load")
    return Shape("session fetch", _sized(request), _sized(decoder.encode_response(key, 12, {}, correlation_id=0)), 8, 4)


def _heartbeat(size: int) -> tuple[bytes, bytes]:
    key = facts.api_key("Heartbeat")
    member = "load-" + "m" * (size - 46)
    body = {"group_id": "orders", "generation_id": 1, "member_id": member}
    request = decoder.encode_request(key, 4, body, correlation_id=0, client_id="load")
    return _sized(request), _sized(decoder.encode_response(key, 4, {}, correlation_id=0))


def shapes() -> list[Shape]:
    """What is measured, the sizes approximate: ping-pong, pipelined small requests, big requests, big responses."""
    return [
        Shape("100 B ping-pong", *_heartbeat(100), 1, 1),
        Shape("100 B pipelined", *_heartbeat(100), 64, 64),
        Shape("1 KiB pipelined", *_produce(900), 64, 8),
        Shape("16 KiB produce", *_produce(16 << 10), 5, 8),
        Shape("1 MiB produce", *_produce(1 << 20), 5, 8),
        Shape("1 MiB fetch", *_fetch(1 << 20), 1, 4),
    ]
