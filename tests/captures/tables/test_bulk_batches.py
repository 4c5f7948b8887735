"""Batches and throttle times that C reads are those of the reference: every version, odd areas, frames with wrong bytes,
frames of several packets, IPv4 and IPv6, damaged segments."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import Recorder, tables
from barnabas.captures.reading.reader import CaptureFile
from barnabas.captures.recording import bulk_frames
from barnabas.decoder import Direction
from barnabas.decoder.records import Record, encode_batch, encode_messages
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import plan
from harness.recordings import RecordingBuilder, as_pcap
from harness.wire import with_size

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")
from barnabas.captures.tables import bulk_batches, segment_tables  # noqa: E402

pytestmark = pytest.mark.skipif(segment_tables.native is None, reason="the accelerator is not built")
COUNT = 200
KNOWN, UNKNOWN = bytes(range(1, 17)), bytes(range(2, 18))
BATCH = encode_batch(
    [Record(offset=n, timestamp=10**12 + n, key=b"k", value=bytes(40)) for n in range(3)],
    producer_id=0x1122334455667788, producer_epoch=0x1A2B, base_sequence=0x3C4D5E6F,
)  # fmt: skip
DROPPED = encode_batch(
    [Record(offset=3, timestamp=10**12, key=b"k", value=b"v")],
    transactional=True, producer_id=7, producer_epoch=0, base_sequence=0,
)  # fmt: skip
BAD_SUM = BATCH[:-1] + bytes([BATCH[-1] ^ 1])
LAST = bytes(4) + b"\x7f" + BATCH[5:]
AREAS = (
    BATCH, BATCH + BATCH, BAD_SUM, b"", BATCH + BATCH[:-9], BATCH + BATCH[:30], BATCH + BATCH[:17], BATCH[:16], BATCH[:5],
    b"\x7f" + b"\xff" * 7 + BATCH[8:], LAST, BATCH[:8] + b"\xff" * 4 + BATCH[12:], BATCH[:16] + b"\x07" + BATCH[17:],
    BATCH[:22] + b"\x3f" + BATCH[23:], BATCH[:22] + b"\xfe" + BATCH[23:], BATCH[:8] + bytes(3) + b"\x30" + BATCH[12:],
    encode_messages([Record(offset=3, timestamp=5, key=None, value=b"old")], magic=1) + BATCH,
    BATCH + DROPPED, DROPPED[:-1],
)  # fmt: skip


def partitions(name: str, chance: random.Random) -> list[dict[str, Any]]:
    return [
        {
            name: number, "records": chance.choice(AREAS), "error_code": 3,
            "high_watermark": chance.choice((-1, 0, 8, 2**62)),
            "aborted_transactions": chance.choice(([], [], [{"producer_id": 7, "first_offset": 0}])),
        }
        for number in range(chance.randrange(3))
    ]  # fmt: skip


def bodies(api: str, version: int, chance: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A request and a response of Produce, Fetch or ShareFetch."""
    topics = [
        {"name": name, "topic": name, "topic_id": topic_id}
        for name, topic_id in (("orders", KNOWN), ("größe", UNKNOWN), ("", bytes(16)))[: chance.randrange(4)]
    ]
    wait = {"throttle_time_ms": chance.choice((0, 7, -1))}
    if api == "Produce":
        parts = [partitions("index", chance) for _ in topics]
        asked = [{**topic, "partition_data": part} for topic, part in zip(topics, parts, strict=True)]
        response = [{**topic, "partition_responses": [{"index": 1, "error_code": 6}]} for topic in topics]
        head = {"acks": chance.choice((-1, 1)), "transactional_id": chance.choice((None, "", "pay-1", "größe"))}
        return {**head, "topic_data": asked}, {"responses": response, **wait}
    parts = [partitions("partition_index", chance) for _ in topics]
    response = [{**topic, "partitions": part} for topic, part in zip(topics, parts, strict=True)]
    return {}, {"responses": response, **wait}


def fitting(kind: str, key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Only the fields that this version has."""

    def of(struct: Any, given: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for field in struct.fields:
            if field.name in given:
                value = given[field.name]
                found[field.name] = [of(field.struct, each) for each in value] if field.struct else value
        return found

    return of(plan(kind, key, version).root, fields)


def exchanges(damage: bool) -> Iterator[tuple[bytes, bytes]]:
    """Requests and responses of every version of the three, and throttle times of others; with wrong bytes, if asked for."""
    chance = random.Random(20)
    for api in ("Produce", "Fetch", "ShareFetch", "Heartbeat", "Metadata"):
        key = facts.api_key(api)
        for version in facts.api(key).versions.every():
            for _ in range(6):
                asked, response = bodies(api, version, chance) if api in ("Produce", "Fetch", "ShareFetch") else ({}, {})
                if api in ("Heartbeat", "Metadata"):
                    response = {"throttle_time_ms": chance.choice((0, 20))}
                frames = [
                    decoder.encode_request(key, version, fitting("request", key, version, asked), client_id="café"),
                    decoder.encode_response(key, version, fitting("response", key, version, response)),
                ]
                if damage:
                    which = chance.randrange(2)
                    frame = bytearray(frames[which])
                    head = 8 if which == 0 else 4
                    for _ in range(chance.choice((1, 1, 3))):
                        if len(frame) > head:
                            frame[chance.randrange(head, len(frame))] = chance.choice((0, 1, 127, 128, 255))
                    cut = chance.choice((0, 0, 0, 1, 9))
                    frames[which] = bytes(frame[: max(len(frame) - cut, head)]) + bytes(chance.choice((0, 0, 0, 2)))
                yield frames[0], frames[1]


def record(directory: Path, damage: bool) -> Path:
    recorder = Recorder(directory)
    recorder.opened(1, 1_000, ("10.0.0.1", 50001), ("10.0.0.9", 9092))
    named = {"topics": [{"name": "orders", "topic_id": KNOWN, "partitions": []}]}
    first = decoder.encode_request(3, 12, {}), decoder.encode_response(3, 12, named)
    time_ns = 10**18
    for number, frames in enumerate((first, *exchanges(damage))):
        for direction, frame in enumerate(frames):
            time_ns += 1_000_000
            at = 0 if direction else 4
            frame = frame[:at] + number.to_bytes(4, "big") + frame[at + 4 :]
            recorder.data(1, direction, time_ns, with_size(frame))
    recorder.close()
    (path,) = directory.glob("*.pcapng")
    return path


def rows(path: Path, *names: str, status: str = "ok") -> dict[str, list[dict[str, Any]]]:
    options = [tables.Options(tables.described(name), tables.described(name).chosen()) for name in names]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for name, batch in tables.SegmentTables(
        path, [*options, tables.Options(tables.described("segments"), tables.described("segments").chosen())]
    ):
        found.setdefault(name, []).extend(batch.to_pylist())
    assert found["segments"][0]["status"] == status
    return found


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("damage", [False, True])
def test_rows_are_those_of_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bool, foreign: bool) -> None:
    path, odd = record(tmp_path, damage), []
    if foreign:
        path = as_pcap(tmp_path, tmp_path / "other.pcap")
    before = bulk_batches.BulkReader.read

    def read(self: bulk_batches.BulkReader, numbers: Any) -> Any:
        made, left = before(self, numbers)
        odd.append((len(left), len(numbers)))
        return made, left

    monkeypatch.setattr(bulk_batches.BulkReader, "read", read)
    monkeypatch.setattr(bulk_frames, "_CHUNK", 1 << 15)  # several pieces
    for names in (("batches", "throttles"), ("batches",), ("throttles", "errors")):
        del odd[:]
        quick = rows(path, *names)
        left, seen = map(sum, zip(*odd, strict=True))
        assert len(odd) > 1 and seen > left and (left > 0 or "batches" not in names)
        with monkeypatch.context() as without:
            without.setattr(segment_tables, "native", None)
            assert rows(path, *names) == quick
        assert all(quick[name] for name in names)
        if "batches" in names and not damage:
            marks = {(row["api"], row["direction"], row["high_watermark"]) for row in quick["batches"]}
            assert marks >= {("Fetch", "response", mark) for mark in (None, 0, 8, 2**62)}
            assert {mark for api, direction, mark in marks if (api, direction) != ("Fetch", "response")} == {None}
            named = {(row["api"], row["transactional_id"]) for row in quick["batches"]}
            assert named >= {("Produce", name) for name in (None, "", "pay-1", "größe")}
            assert {name for api, name in named if api != "Produce"} == {None}


def test_current_versions_are_read_in_bulk() -> None:
    for api in ("Produce", "Fetch", "ShareFetch"):
        key = facts.api_key(api)
        for version in facts.api(key).versions.every():
            ways = [bulk_batches._way(request, key, version, True, True) for request in (True, False)]
            assert None not in ways and any(ways), (api, version)


def test_rows_have_the_size_that_c_uses() -> None:
    assert np.dtype(list(bulk_batches.ROW)).itemsize == 104


def produce(number: int, size: int, acks: int) -> bytes:
    batch = encode_batch([Record(offset=0, timestamp=1_700_000_000_000, key=None, value=bytes(size))])
    topic = {"name": "orders", "partition_data": [{"index": 0, "records": batch}]}
    body = {"acks": acks, "timeout_ms": 1000, "topic_data": [topic]}
    return decoder.encode_request(0, 9, body, correlation_id=number, client_id="stock")


def record_produce(directory: Path, host: str) -> Path:
    """Produce of all sizes, some over several packets, some that nobody answers; an orphan; a client id of 2,000 bytes."""
    with RecordingBuilder(directory, broker=(host, 9092)) as recording:
        recording.open(client=(host, 50001))
        done = {"name": "orders", "partition_responses": [{"index": 0, "error_code": 6, "base_offset": -1}]}
        for number in range(COUNT):
            acks = 0 if number % 7 == 0 else -1
            recording.frame(Direction.REQUEST, produce(number, 200_000 if number % 100 == 1 else number, acks))
            if acks:
                response = {"responses": [done if number % 2 else {**done, "partition_responses": []}]}
                recording.response("Produce", 9, response, number)
        recording.exchange("Heartbeat", 4, {}, {"error_code": 27}, client_id="x" * 2_000, correlation_id=COUNT)
        recording.response("Heartbeat", 4, {}, COUNT + 7)
    (path,) = directory.glob("*.pcapng")
    return path


@pytest.mark.parametrize("host", ["10.1.2.3", "fd00::7"])
def test_frames_lie_where_their_packets_are(tmp_path: Path, host: str) -> None:
    file = CaptureFile(record_produce(tmp_path, host))
    try:
        data, records = file.path.read_bytes(), file.index.array()
        left = []
        found = bulk_frames.in_segment(data, records)
        for number, (plain, request, response) in enumerate(zip(found.plain, found.requests, found.responses, strict=True)):
            read, record = file.exchange(file.index.record(number)), records[number]
            if not plain:
                left.append(number)
                continue
            assert (None if request < 0 else data[request : request + record["request_size"]]) == read.request
            assert (None if response < 0 else data[response : response + record["response_size"]]) == read.response
        assert left == [1, 101]  # of several packets
    finally:
        file.close()


def test_rows_are_the_same_where_few_exchanges_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = record_produce(tmp_path, "10.1.2.3"), []
    before = bulk_batches.BulkReader.read
    monkeypatch.setattr(
        bulk_batches.BulkReader, "read", lambda self, numbers: asked.append(len(numbers)) or before(self, numbers)
    )
    with_segments = rows(path, "batches", "errors")
    assert sum(asked) == COUNT
    del asked[:], with_segments["segments"]
    options = [tables.Options(tables.described(name), tables.described(name).chosen()) for name in ("batches", "errors")]
    alone: dict[str, list[dict[str, Any]]] = {"batches": [], "errors": []}
    for name, batch in tables.SegmentTables(path, options):
        alone[name].extend(batch.to_pylist())
    assert alone == with_segments and not asked


@pytest.mark.parametrize("host", ["10.1.2.3", "fd00::7"])
def test_frames_of_another_tools_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Also those over many packets; the reference reads only what is left."""
    record_produce(tmp_path, host)
    path = as_pcap(tmp_path, tmp_path / "other.pcap")
    quick, left = rows(path, "batches"), []
    before = segment_tables._BodyTables._of
    monkeypatch.setattr(segment_tables._BodyTables, "_of", lambda self, *given: left.append(given[0]) or before(self, *given))
    assert rows(path, "batches") == quick and not left
    monkeypatch.setattr(segment_tables, "native", None)
    assert rows(path, "batches") == quick and len(left) >= COUNT == len(quick["batches"])


def test_damaged_segments_are_read_by_the_reference_path(tmp_path: Path) -> None:
    path = record_produce(tmp_path, "10.1.2.3")
    file = CaptureFile(path)
    offset = file.index.record(5).request_offset
    file.close()
    data = bytearray(path.read_bytes())
    data[offset + 28 + 14 + 20 + 20 + 4 + 60] ^= 0xFF  # in the body: no size and no index covers it
    path.write_bytes(data)
    found = {(row["number"], row["direction"]) for row in rows(path, "batches", status="corrupt")["batches"]}
    assert (5, "request") not in found and {(4, "request"), (6, "request")} <= found
