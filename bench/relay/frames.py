"""The frames that the load is made of: real Kafka requests and responses of the sizes that matter."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

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


def pair(key: int, version: int, asked: dict[str, Any], answered: dict[str, Any]) -> tuple[bytes, bytes]:
    """A request and its response with these fields, each behind its size."""
    request = decoder.encode_request(key, version, asked, correlation_id=0, client_id="load")
    response = decoder.encode_response(key, version, answered, correlation_id=0)
    return len(request).to_bytes(4, "big") + request, len(response).to_bytes(4, "big") + response


def _records(size: int) -> bytes:
    # Values that do not compress, of 1 KiB, as producers of binary data send them.
    count, rest = divmod(size, 1024)
    values = [os.urandom(1024)] * count + ([os.urandom(rest)] if rest else [])
    return bytes(encode_batch([Record(n, 1_700_000_000_000, None, value) for n, value in enumerate(values)]))


def produce(size: int) -> tuple[bytes, bytes]:
    partition = {"index": 0, "records": _records(size)}
    asked = {"acks": -1, "timeout_ms": 30000, "topic_data": [{"name": "orders", "partition_data": [partition]}]}
    answered = {"responses": [{"name": "orders", "partition_responses": [{"index": 0, "base_offset": 1}]}]}
    return pair(facts.api_key("Produce"), 11, asked, answered)


def fetch(size: int) -> tuple[bytes, bytes]:
    topic_id = "00000000-0000-4000-8000-000000000001"
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size}
    asked = {"max_wait_ms": 500, "min_bytes": 1, "topics": [{"topic_id": topic_id, "partitions": [partition]}]}
    answered = {"responses": [{"topic_id": topic_id, "partitions": [{"partition_index": 0, "records": _records(size)}]}]}
    return pair(facts.api_key("Fetch"), 16, asked, answered)


def first_of_a_session() -> Shape:
    """Fetches that would begin a session (KIP-227), with empty responses: what clients of a broker that lets no session begin
    send each time."""
    topics = [{"topic": "orders", "partitions": [{"partition": n, "fetch_offset": 5} for n in range(6)]}]
    return Shape("session fetch", *pair(facts.api_key("Fetch"), 12, {"session_epoch": 0, "topics": topics}, {}), 8, 4)


def heartbeat(size: int) -> tuple[bytes, bytes]:
    asked = {"group_id": "orders", "generation_id": 1, "member_id": "load-" + "m" * (size - 46)}
    return pair(facts.api_key("Heartbeat"), 4, asked, {})


def shapes() -> list[Shape]:
    """What is measured, the sizes approximate: ping-pong, pipelined small requests, big requests, big responses."""
    return [
        Shape("100 B ping-pong", *heartbeat(100), 1, 1),
        Shape("100 B pipelined", *heartbeat(100), 64, 64),
        Shape("1 KiB pipelined", *produce(900), 64, 8),
        Shape("16 KiB produce", *produce(16 << 10), 5, 8),
        Shape("1 MiB produce", *produce(1 << 20), 5, 8),
        Shape("1 MiB fetch", *fetch(1 << 20), 1, 4),
    ]
