"""A recording with one exchange of every kind that the screens must show."""

from __future__ import annotations

from pathlib import Path

from barnabas import decoder
from barnabas.decoder import Direction, records
from barnabas.decoder.records import Record
from harness.recordings import Fields, RecordingBuilder, produce, produced

START_NS = 1_753_000_000_000_000_000
HOSTILE = "x\x1b]52;c;aGFja2Vk\x07\x1b[2J\x9b31m\u202egnp\u2066\x00\x7fy"
"""A topic and a client id that would be control sequences of a terminal."""
PRIVATE = b"private-record-value"
"""The value of a record."""

NAMES = (
    *("versions", "metadata", "not_leader", "lz4", "acks0", "sasl", "truncated", "unknown", "hostile", "heartbeat"),
    "crc",
)
NUMBERS = {name: number for number, name in enumerate(NAMES)}
"""The row of each exchange of the story, by what it is."""


def recording(directory: Path) -> RecordingBuilder:
    """Begins a recording at the story's time."""
    return RecordingBuilder(directory, start_ns=START_NS)


def batch(codec: int = 0, values: tuple[bytes, ...] = (PRIVATE, b"second")) -> bytes:
    """A record batch with keys and one header."""
    return records.encode_batch(
        [
            Record(100 + i, 1_753_000_000_000 + i, b"key-%d" % i, value, (("trace", b"header-value"),))
            for i, value in enumerate(values)
        ],
        codec=codec,
    )


def write_story(directory: Path) -> None:
    """The exchanges that `NAMES` names, in that order, a millisecond apart, each answered after 4.2 ms."""
    written = recording(directory)
    for connection in (1, 2):
        written.open(connection, broker=("127.0.0.1", 9092 + connection), at=0)
    count = 0

    def add(
        connection: int, api: str, version: int, request: Fields, response: Fields | bytes | None, client_id: str = "stock-1"
    ) -> None:
        nonlocal count
        count += 1
        if response is None:
            written.request(api, version, request, connection=connection, client_id=client_id, correlation_id=count, at=count)
        else:
            written.exchange(
                api, version, request, response,
                connection=connection, client_id=client_id, correlation_id=count, at=count, took=4.2,
            )  # fmt: skip

    def add_produce(topic: str, data: bytes, error: int = 0, client_id: str = "billing-7") -> None:
        add(2, "Produce", 9, produce(topic, data, partition=3), produced(topic, error, partition=3), client_id)

    add(1, "ApiVersions", 3, {}, {"api_keys": [{"api_key": key, "max_version": 9} for key in range(20)]})
    topics = [{"name": f"orders-{i}", "partitions": [{"partition_index": p} for p in range(3)]} for i in range(2)]
    brokers = [{"node_id": i, "host": "kafka", "port": 9092 + i} for i in range(3)]
    add(1, "Metadata", 9, {"topics": None}, {"brokers": brokers, "cluster_id": "lab", "topics": topics})
    add_produce("orders", batch(), 6)
    add_produce("orders", batch(codec=3))
    add(2, "Produce", 9, produce("logs", batch(), partition=3, acks=0), None, "billing-7")
    add(1, "SaslAuthenticate", 2, {"auth_bytes": b"\0user\0pa55word"}, {"auth_bytes": b"tokentoken"})
    truncated = decoder.encode_response(3, 9, {"brokers": brokers, "topics": topics}, correlation_id=7)[:-30]
    add(1, "Metadata", 9, {"topics": None}, truncated)
    count += 1
    unknown = (1234).to_bytes(2, "big") + bytes(2) + count.to_bytes(4, "big") + b"\0\x03odd" + b"\x01\x02\x03\x04"
    written.frame(Direction.REQUEST, unknown, at=count)
    written.frame(Direction.RESPONSE, count.to_bytes(4, "big") + b"answer", at=count + 1)
    add_produce(HOSTILE, batch(), 3, HOSTILE)
    add(1, "Heartbeat", 4, {"group_id": "stock", "generation_id": 5, "member_id": "m-1"}, {"error_code": 27})
    damaged = bytearray(batch())
    damaged[-3] ^= 0x55
    add_produce("broken", bytes(damaged), 2)
    written.close()
