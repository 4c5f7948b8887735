"""Segments that follow each other: nothing lost, nothing twice, each readable alone."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.captures.reading.events import EventReader
from barnabas.captures.recording.index import paths
from barnabas.captures.recording.recording import Recording
from barnabas.captures.recording.segment import check
from barnabas.decoder import ExchangeDone
from harness.recordings import metadata_answer, metadata_request

NOW = 1_795_223_022_000_000_000
COUNT = 600


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """600 exchanges on 3 connections, up to 4 in flight on each, over some 10 segments; 12 never answered."""
    recorder = Recorder(tmp_path / "rec", segment_bytes=25_000)
    for conn in range(3):
        recorder.opened(conn, NOW + conn, client=("10.0.0.1", 50000 + conn), broker=("kafka", 9092))
    for i in range(COUNT):
        recorder.data(i % 3, 0, NOW + 1000 * i, metadata_request(i))
        if i >= 12:
            recorder.data(i % 3, 1, NOW + 1000 * i + 500, metadata_answer(i - 12))
    recorder.close()
    return tmp_path / "rec"


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.pcapng"))


def test_all_exchanges_once_and_in_order(directory: Path) -> None:
    assert len(segments(directory)) >= 8
    with open_capture(directory) as capture:
        rows = list(capture.rows())
        assert sorted(r.correlation_id for r in rows) == list(range(COUNT))
        assert [r.number for r in rows] == list(range(COUNT))
        assert sum(r.state == "pending" for r in rows) == 12
        assert {r.latency_ns for r in rows if r.latency_ns is not None} == {12_500}
        assert sum(r.carried for r in rows) > 50
        exchanges = list(capture.exchanges())
        assert [e.correlation_id for e in exchanges] == list(range(COUNT))
        assert [capture.exchange(r).correlation_id for r in capture.rows()[100:200]] == [
            r.correlation_id for r in rows[100:200]
        ]
        assert capture.note is None
        assert capture.verify() == []


def test_each_segment_stands_alone(directory: Path, complaints, tmp_path: Path) -> None:
    for path in segments(directory)[1:4]:
        assert complaints(path) == []
        alone = tmp_path / "alone.pcapng"
        shutil.copy(path, alone)
        with open_capture(alone) as capture, open_capture(path) as indexed:
            rows = capture.rows()
            assert [r[:-3] for r in rows] == [r[:-3] for r in indexed.rows()]
            assert all(capture.exchange(r).request for r in rows)
            assert not any(r.state == "orphan" for r in rows)
            assert {r.client for r in rows} <= {f"10.0.0.1:5000{i}" for i in range(3)}
            assert sum(r.state == "pending" for r in rows) in (12, 13)
        assert check(path) == []


def test_a_segment_that_is_missing_hides_nothing(directory: Path) -> None:
    middle = segments(directory)[4]
    for path in (middle, *paths(middle)):
        path.unlink()
    with open_capture(directory) as capture:
        seen = [r.correlation_id for r in capture.rows()]
        # What went on in the missing one is now shown, as pending, where it was asked.
        assert len(set(seen)) == len(seen)
        assert sum(r.state == "pending" for r in capture.rows()) in (24, 25)


def test_names_sort_by_time_even_if_the_clock_steps_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = iter(["20261121-103000", "20261121-103001", "20261121-102959", "20261121-103002"])
    monkeypatch.setattr("barnabas.captures.recording.recording.time.strftime", lambda *a: next(stamps))
    recorder = Recorder(tmp_path, segment_bytes=4000)
    for i in range(2000):
        recorder.data(1, 0, NOW + i, metadata_request(i))
        recorder.data(1, 1, NOW + i, metadata_answer(i))
        if recorder.counts["segments"] == 4:
            break
    recorder.close()
    assert [p.name for p in segments(tmp_path)] == [
        "20261121-103000-0000.pcapng",
        "20261121-103001-0001.pcapng",
        "20261121-103001-0002.pcapng",
        "20261121-103002-0003.pcapng",
    ]


def test_two_recordings_in_one_directory(tmp_path: Path) -> None:
    for _ in range(3):
        recorder = Recorder(tmp_path)
        recorder.data(1, 0, NOW, metadata_request(1))
        recorder.data(1, 1, NOW + 1, metadata_answer(1))
        recorder.close()
    with open_capture(tmp_path) as capture:
        assert [r.state for r in capture.rows()] == ["paired"] * 3


def test_rotation_by_time(tmp_path: Path) -> None:
    clock = [0.0]
    recording = Recording(tmp_path, lambda: (), lambda *event: None, segment_seconds=10, clock=lambda: clock[0])
    for clock[0] in (5.0, 9.9, 10.0, 15.0, 21.0):
        recording.tick()
    recording.close()
    assert len(segments(tmp_path)) == 3


def test_live_rows_keep_their_numbers(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, segment_bytes=20_000, flush_seconds=0)
    capture: Capture | None = None
    seen: list[tuple[int, int]] = []
    for i in range(300):
        recorder.data(1, 0, NOW + 1000 * i, metadata_request(i))
        if i >= 3:
            recorder.data(1, 1, NOW + 1000 * i + 1, metadata_answer(i - 3))
        if i == 0:
            capture = open_capture(tmp_path)
            assert capture.live
        assert capture is not None
        if i % 7 == 0 or i > 290:
            new = capture.refresh()
            rows = capture.rows()
            done = rows[: rows.done]
            assert [(r.number, r.correlation_id) for r in done[: len(seen)]] == seen
            assert len(done) == len(seen) + new
            seen = [(r.number, r.correlation_id) for r in done]
            waiting = rows[rows.done :]
            assert [(r.number, r.correlation_id, r.state) for r in waiting] == [
                (j, j, "pending") for j in range(max(i - 2, 0), i + 1)
            ]
            assert all(capture.exchange(r).request == metadata_request(r.correlation_id)[4:] for r in waiting)
            assert [(r.client, r.client_id) for r in waiting] == [(rows[0].client, rows[0].client_id)] * len(waiting)
            if i >= 3:
                assert seen[-1] == (i - 3, i - 3)
                assert capture.exchange(done[-1]).response == metadata_answer(i - 3)[4:]
    assert capture is not None
    assert len(capture.segments) > 5
    assert all(one.own != two.own for one, two in pairwise(capture.segments))
    recorder.close()
    assert capture.refresh() == 3
    assert not capture.live
    assert [r.state for r in capture.rows()[-4:]] == ["paired", "pending", "pending", "pending"]
    capture.close()


def test_only_a_recording_whose_recorder_is_gone_was_interrupted(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "rec", flush_seconds=0)
    recorder.data(1, 0, NOW, metadata_request(0))
    recorder.data(1, 1, NOW + 1, metadata_answer(0))
    shutil.copytree(tmp_path / "rec", tmp_path / "as if killed")
    notes = {}
    for name in ("rec", "as if killed"):
        reader = EventReader(tmp_path / name)
        assert sum(isinstance(each, ExchangeDone) for each in [*reader.read(), *reader.end()]) == 1
        notes[name] = reader.note or ""
    recorder.close()
    assert notes["rec"] == ""
    assert notes["as if killed"].endswith("the recording was interrupted at the end of this segment")


def test_a_live_segment_by_the_name_it_will_have(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.data(1, 0, NOW, metadata_request(1))
    recorder.data(1, 1, NOW + 1, metadata_answer(1))
    recorder.flush()
    assert recorder.path is not None
    with open_capture(recorder.path) as capture:
        assert len(capture.rows()) == 1
        recorder.data(1, 0, NOW, metadata_request(2))
        recorder.close()
        assert capture.refresh() == 1
        assert capture.segments[0].path == recorder.path or capture.segments[0].path.exists()
