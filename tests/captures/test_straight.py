"""Exchanges straight from a segment's bytes are those that are read packet by packet, or are left to that."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import tables
from barnabas.captures.reader import CaptureFile
from barnabas.decoder import Direction
from barnabas.decoder.records import Record, encode_batch
from harness.recordings import RecordingBuilder

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")
COUNT = 200


def produce(number: int, size: int, acks: int) -> bytes:
    batch = encode_batch([Record(offset=0, timestamp=1_700_000_000_000, key=None, value=bytes(size))])
    topic = {"name": "orders", "partition_data": [{"index": 0, "records": batch}]}
    body = {"acks": acks, "timeout_ms": 1000, "topic_data": [topic]}
    return decoder.encode_request(0, 9, body, correlation_id=number, client_id="stock")


def record(directory: Path, host: str) -> Path:
    """Produce of all sizes, some over several packets, some that nobody answers; an orphan; a client id of 2,000 bytes."""
    with RecordingBuilder(directory, broker=(host, 9092)) as recording:
        recording.open(client=(host, 50001))
        done = {"name": "orders", "partition_responses": [{"index": 0, "error_code": 6, "base_offset": -1}]}
        for number in range(COUNT):
            acks = 0 if number % 7 == 0 else -1
            recording.frame(Direction.REQUEST, produce(number, 200_000 if number % 100 == 1 else number, acks))
            if acks:
                told = {"responses": [done if number % 2 else {**done, "partition_responses": []}]}
                recording.response("Produce", 9, told, number)
        recording.exchange("Heartbeat", 4, {}, {"error_code": 27}, client_id="x" * 2_000, correlation_id=COUNT)
        recording.response("Heartbeat", 4, {}, COUNT + 7)
    (path,) = directory.glob("*.pcapng")
    return path


def said(exchange: decoder.Exchange) -> tuple[object, ...]:
    names = (
        "connection", "client", "broker", "api_key", "api_version", "correlation_id", "client_id", "request", "response",
        "request_time_ns", "response_time_ns", "state", "request_cut", "response_cut", "error", "marks",
    )  # fmt: skip
    return tuple(getattr(exchange, name) for name in names)


@pytest.mark.parametrize("host", ["10.1.2.3", "fd00::7"])
def test_it_is_what_the_packets_say(tmp_path: Path, host: str) -> None:
    from barnabas.captures.tables.files import bytes_of
    from barnabas.captures.tables.straight import Straight

    file = CaptureFile(record(tmp_path, host))
    try:
        numbers = np.arange(file.index.count)
        straight = Straight(file, numbers, bytes_of(file.path))
        left = []
        for number in numbers.tolist():
            careful, quick = file.exchange(file.index.record(number)), straight.exchange(number)
            if quick is None:
                left.append(len(careful.request or b"") > 65_000 or len(careful.client_id or "") >= 1_000)
            else:
                assert said(quick) == said(careful)
        assert len(left) == COUNT // 100 + 1 and all(left)
    finally:
        file.close()


def body_rows(path: Path, *more: str) -> list[dict[str, object]]:
    options = [tables.Options(tables.described(n), tables.described(n).chosen()) for n in ("batches", "errors", *more)]
    return [row for name, batch in tables.Unit(path, options) if name != "segments" for row in batch.to_pylist()]


def test_tables_are_the_same_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.captures.tables import from_bodies as made

    path, asked = record(tmp_path, "10.1.2.3"), []
    before = made.Straight.exchange
    monkeypatch.setattr(made.Straight, "exchange", lambda self, number: asked.append(number) or before(self, number))
    monkeypatch.setattr(made, "native", None)  # or it is asked only for what is odd
    monkeypatch.setattr(made, "_MANY", 1)
    rows = body_rows(path)
    assert len(asked) > COUNT / 2 and len(rows) > COUNT
    monkeypatch.setattr(made, "_MANY", 1 << 30)
    del asked[:]
    assert body_rows(path) == rows and not asked
    assert body_rows(path, "segments") == rows and asked


def test_a_segment_that_is_damaged_is_read_with_care(tmp_path: Path) -> None:
    path = record(tmp_path, "10.1.2.3")
    file = CaptureFile(path)
    offset = file.index.record(5).request_offset
    file.close()
    data = bytearray(path.read_bytes())
    data[offset + 28 + 14 + 20 + 20 + 4 + 60] ^= 0xFF  # in the body: no size and no index says anything of it
    path.write_bytes(data)
    found = {(row["number"], row.get("direction")) for row in body_rows(path, "segments")}
    assert (5, "request") not in found and {(4, "request"), (6, "request")} <= found
