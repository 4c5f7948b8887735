"""The index: the same when rebuilt, never trusted when damaged."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import DTYPE, NotACapture, Recorder, open_capture, rebuild
from barnabas.captures.recording.index import CLOSED, HEADER, RECORD, paths
from harness.recordings import metadata_answer, metadata_request
from harness.waiting import PATIENCE
from harness.wire import with_size

NOW = 1_795_223_022_000_000_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A bit of everything: rotation, errors, notes, both legs, loss, opaque bytes, SASL, orphans, no response."""
    recorder = Recorder(tmp_path / "rec", segment_bytes=40_000)
    time = NOW
    for conn in range(3):
        recorder.opened(conn, NOW, client=("10.0.0.1" if conn else "::1", 50000 + conn), broker=("kafka.example", 9092))
    for i in range(150):
        conn, time = i % 3, time + 1000
        recorder.data(conn, 0, time, metadata_request(i, 900 if i % 10 == 0 else 0, client_id=f"client-{i % 5}"))
        if i % 20 == 3:
            recorder.note(conn, i - 3, "rule: slow")
        if i % 25 == 4:
            recorder.broker_leg(conn, 0, time, metadata_request(i, 70), "rule: edit")
            recorder.broker_leg(conn, 1, time, metadata_answer(i - 3, 10), "addresses rewritten")
        if i % 31 == 7:
            recorder.lost(conn, 1, 77)
        elif i >= 3:
            recorder.data(conn, 1, time + 5, metadata_answer(i - 3, 20_000 if i % 40 == 9 else 0, i % 4))
        if i == 100:
            recorder.data(conn, 1, time, with_size(b"\x00\x00\x03\xe7orphan"))
            recorder.closed(2, time, "rst")
            recorder.opened(7, time, client=("10.0.0.2", 1), broker=("10.0.0.3", 9092))
            recorder.data(
                7, 0, time, with_size(decoder.encode_request(17, 0, {"mechanism": "PLAIN"}, correlation_id=1))
            )
            ok = {"error_code": 0, "mechanisms": ["PLAIN"]}
            recorder.data(7, 1, time, with_size(decoder.encode_response(17, 0, ok, correlation_id=1)))
            recorder.data(7, 0, time, with_size(b"\0user\0password"))
            recorder.data(7, 1, time, with_size(b""))
            body = {"transactional_id": None, "acks": 0, "timeout_ms": 1, "topic_data": []}
            recorder.data(7, 0, time, with_size(decoder.encode_request(0, 3, body, correlation_id=2)))
            recorder.data(7, 0, time, with_size(b"\x00\x03\x00\x01\x00\x00\x00\x09\x00\x00\xff\xff"))
            recorder.closed(7, time + 1)
    recorder.close()
    return tmp_path / "rec"


def test_a_rebuilt_index_is_identical(directory: Path) -> None:
    segments = sorted(directory.glob("*.pcapng"))
    assert len(segments) >= 3
    for segment in segments:
        before = [path.read_bytes() for path in paths(segment)]
        assert rebuild(segment) == (len(before[0]) - 64) // 64
        after = [path.read_bytes() for path in paths(segment)]
        assert list(RECORD.iter_unpack(after[0][64:])) == list(RECORD.iter_unpack(before[0][64:]))
        assert after == before


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("damage", ["missing", "short", "empty", "header", "other", "longer"])
def test_a_damaged_index_is_rebuilt_in_memory(directory: Path, which: int, damage: str) -> None:
    with open_capture(directory) as capture:
        before = list(capture.rows())
        bodies = [e.to_dict() for e in capture.exchanges()]
    first, second, *_ = sorted(directory.glob("*.pcapng"))
    path = paths(first)[which]
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "other":
        shutil.copy(paths(second)[which], path)
    else:
        path.write_bytes({"short": data[:-3], "empty": b"", "header": b"X" + data[1:], "longer": data * 2}[damage])
    kept = path.read_bytes() if path.exists() else None
    with open_capture(directory) as capture:
        assert list(capture.rows()) == before
        assert [e.to_dict() for e in capture.exchanges()] == bodies
    assert (path.read_bytes() if path.exists() else None) == kept


def test_the_layout(directory: Path) -> None:
    segment = min(directory.glob("*.pcapng"))
    data = paths(segment)[0].read_bytes()
    magic, version, size, flags, number, _, _, segment_size, strings_size, count = HEADER.unpack_from(data)
    assert (magic, version, size, flags, number) == (b"BRNBIDX1", 1, 64, CLOSED, 0)
    assert segment_size == segment.stat().st_size
    assert strings_size == paths(segment)[1].stat().st_size
    assert len(data) == 64 + 64 * count
    with open_capture(segment) as capture:
        for row, record in zip(capture.rows(), RECORD.iter_unpack(data[64:]), strict=True):
            assert (row.time_ns, row.correlation_id, row.api_key, row.error) == (
                record[0],
                record[6],
                record[8],
                record[10],
            )


def test_the_numpy_view_agrees(directory: Path) -> None:
    with open_capture(directory) as capture:
        for segment in capture.segments:
            array = segment.index.array()
            assert array.dtype.names == tuple(name for name, _ in DTYPE)
            assert array.dtype.itemsize == 64
            unpacked = list(RECORD.iter_unpack(segment.index.records(0, segment.index.count)))
            assert [tuple(record) for record in array.tolist()] == unpacked
            assert not array.flags.owndata


def test_reading_needs_no_numpy() -> None:
    code = "import sys; sys.modules['numpy'] = None; import barnabas.captures"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def test_only_own_segments_have_an_index_file(tmp_path: Path) -> None:
    from scapy.layers.l2 import Ether
    from scapy.utils import wrpcap

    path = tmp_path / "foreign.pcap"
    wrpcap(str(path), [Ether() / b"x"])
    with pytest.raises(ValueError, match="not recorded by barnabas"):
        rebuild(path)
    path.write_text("text")
    with pytest.raises(NotACapture):
        rebuild(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_million_rows_cost_no_memory(directory: Path) -> None:
    import tracemalloc

    segment = max(directory.glob("*.pcapng"), key=lambda p: p.stat().st_size)
    index = paths(segment)[0]
    data = index.read_bytes()
    count = 1_000_000
    head = bytearray(data[:64])
    head[56:64] = count.to_bytes(8, "little")
    index.write_bytes(bytes(head) + (data[64:128] * count))
    with open_capture(segment) as capture:
        tracemalloc.start()
        rows = capture.rows()
        assert len(rows) == count
        assert rows[count - 1].number == count - 1
        assert rows[500_000:500_003][1].number == 500_001
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 1_000_000
