"""A recording with one exchange of every kind that the screens must show, made by the Recorder itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.decoder import Direction, facts, records
from barnabas.decoder.records import Record
from harness.wire import with_size

_BASE_NS = 1_753_000_000_000_000_000
_HOSTILE = "x\x1b]52;c;aGFja2Vk\x07\x1b[2J\x9b31m\u202egnp\u2066\x00\x7fy"
_PRIVATE = b"private-record-value"


class Scribe:
    """Writes whole exchanges into a recording, one millisecond apart."""

    def __init__(self, directory: Path):
        self.recorder = Recorder(directory)
        self.count = 0

    def opened(self, conn: int) -> None:
        self.recorder.opened(
            conn, _BASE_NS, client=("127.0.0.1", 50000 + conn), broker=("127.0.0.1", 9092 + conn), upstream=None
        )

    def raw(self, conn: int, direction: Direction, frame: bytes, time_ns: int) -> None:
        self.recorder.data(conn, direction, time_ns, with_size(frame))

    def exchange(
        self,
        conn: int,
        api: str,
        version: int,
        request: dict[str, Any],
        response: dict[str, Any] | bytes | None,
        client_id: str = "stock-1",
    ) -> None:
        key = facts.api_key(api)
        self.count += 1
        now = _BASE_NS + self.count * 1_000_000
        frame = decoder.encode_request(key, version, request, correlation_id=self.count, client_id=client_id)
        self.raw(conn, Direction.REQUEST, frame, now)
        if response is not None:
            if isinstance(response, dict):
                response = decoder.encode_response(key, version, response, correlation_id=self.count)
            self.raw(conn, Direction.RESPONSE, response, now + 4_200_000)

    def close(self) -> None:
        self.recorder.close()


def batch(codec: int = 0, values: tuple[bytes, ...] = (_PRIVATE, b"second")) -> bytes:
    """A record batch with keys and one header."""
    return records.encode_batch(
        [
            Record(100 + i, 1_753_000_000_000 + i, b"key-%d" % i, value, (("trace", b"header-value"),))
            for i, value in enumerate(values)
        ],
        codec=codec,
    )


def produce(topic: str, data: bytes, acks: int = -1) -> dict[str, Any]:
    """The fields of a Produce request of one partition."""
    return {
        "acks": acks,
        "timeout_ms": 30000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 3, "records": data}]}],
    }


def produced(topic: str, error: int = 0) -> dict[str, Any]:
    """The fields of its response."""
    return {
        "responses": [{"name": topic, "partition_responses": [{"index": 3, "error_code": error, "base_offset": 7}]}]
    }


def write_story(directory: Path) -> None:
    """What `_NUMBERS` names, in that order."""
    scribe = Scribe(directory)
    scribe.opened(1)
    scribe.opened(2)
    scribe.exchange(1, "ApiVersions", 3, {}, {"api_keys": [{"api_key": k, "max_version": 9} for k in range(20)]})
    topics = [{"name": f"orders-{i}", "partitions": [{"partition_index": p} for p in range(3)]} for i in range(2)]
    brokers = [{"node_id": i, "host": "kafka", "port": 9092 + i} for i in range(3)]
    scribe.exchange(1, "Metadata", 9, {"topics": None}, {"brokers": brokers, "cluster_id": "lab", "topics": topics})
    scribe.exchange(2, "Produce", 9, produce("orders", batch()), produced("orders", 6), "billing-7")
    scribe.exchange(2, "Produce", 9, produce("orders", batch(codec=3)), produced("orders"), "billing-7")
    scribe.exchange(2, "Produce", 9, produce("logs", batch(), acks=0), None, "billing-7")
    scribe.exchange(1, "SaslAuthenticate", 2, {"auth_bytes": b"\0user\0pa55word"}, {"auth_bytes": b"tokentoken"})
    truncated = decoder.encode_response(3, 9, {"brokers": brokers, "topics": topics}, correlation_id=7)[:-30]
    scribe.exchange(1, "Metadata", 9, {"topics": None}, truncated)
    unknown = (1234).to_bytes(2, "big") + bytes(2) + (8).to_bytes(4, "big") + b"\0\x03odd" + b"\x01\x02\x03\x04"
    scribe.raw(1, Direction.REQUEST, unknown, _BASE_NS + 8_000_000)
    scribe.raw(1, Direction.RESPONSE, (8).to_bytes(4, "big") + b"answer", _BASE_NS + 9_000_000)
    scribe.count = 8
    scribe.exchange(2, "Produce", 9, produce(_HOSTILE, batch()), produced(_HOSTILE, 3), _HOSTILE)
    scribe.exchange(
        1, "Heartbeat", 4, {"group_id": "stock", "generation_id": 5, "member_id": "m-1"}, {"error_code": 27}
    )
    damaged = bytearray(batch())
    damaged[-3] ^= 0x55
    scribe.exchange(2, "Produce", 9, produce("broken", bytes(damaged)), produced("broken", 2), "billing-7")
    scribe.close()


_NUMBERS = {
    name: i
    for i, name in enumerate(
        [
            "versions",
            "metadata",
            "not_leader",
            "lz4",
            "acks0",
            "sasl",
            "truncated",
            "unknown",
            "hostile",
            "heartbeat",
            "crc",
        ]
    )
}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's settings or history are read or written."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="session")
def story_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("story") / "run"
    write_story(path)
    return path


@pytest.fixture
def story(story_path: Path) -> Iterator[Capture]:
    with open_capture(story_path) as capture:
        yield capture


@pytest.fixture(scope="session")
def numbers() -> dict[str, int]:
    """The row of each exchange of the story, by what it is."""
    return _NUMBERS


@pytest.fixture(scope="session")
def scribe_at() -> type[Scribe]:
    """Begins a recording in a directory: ``scribe_at(path)``."""
    return Scribe


@pytest.fixture
def frames() -> SimpleNamespace:
    """Parts of the story's frames: batch(), produce(), produced(), and what is hostile and private in it."""
    return SimpleNamespace(batch=batch, produce=produce, produced=produced, hostile=_HOSTILE, private=_PRIVATE)
