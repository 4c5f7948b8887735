"""The flight recorder: what is written out, when, how often, and what a crash or a full disk leaves."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.captures.recording import flight_recorder
from barnabas.captures.recording.flight_recorder import (
    Failed,
    FlightReason,
    FlightRecorder,
    Full,
    Window,
    Written,
    flight_summary,
    label,
    read_note,
)
from barnabas.captures.recording.retention import Keep, Retention
from harness.recordings import metadata_answer, metadata_request

NOW = 1_795_223_022_000_000_000


class RecordingWithFlights:
    """A recording in short segments with a flight recorder, and a clock of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.ring, self.out = tmp_path / "out" / "ring", tmp_path / "out"
        self.now = 1000.0
        self.events: list[Written | Failed | Full] = []
        self.count = 0
        self.recorder = Recorder(self.ring, segment_bytes=6_000, flush_seconds=0, on_event=self._on_event)
        self.retention: Retention | None = None
        self.flight: FlightRecorder

    def start_flight(self, window: Window, **options: Any) -> FlightRecorder:
        self.flight = FlightRecorder(
            self.out,
            window,
            lambda: self.ring,
            self.recorder.rotate,
            self.events.append,
            clock=lambda: self.now,
            **options,
        )
        return self.flight

    def _on_event(self, kind: str, text: str) -> None:
        if kind == "segment":
            self.flight.segment(Path(text))
            if self.retention:
                self.retention.apply()

    def record_exchanges(self, count: int = 10) -> None:
        for i in range(self.count, self.count + count):
            self.recorder.data(1, 0, NOW + 1000 * i, metadata_request(i))
            self.recorder.data(1, 1, NOW + 1000 * i + 500, metadata_answer(i))
        self.count += count

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.flight.tick()

    @property
    def written(self) -> list[str]:
        return [event.path for event in self.events if isinstance(event, Written)]


@pytest.fixture
def recording(tmp_path: Path) -> RecordingWithFlights:
    return RecordingWithFlights(tmp_path)


def numbers(path: str | Path) -> list[int]:
    with open_capture(path) as capture:
        assert capture.note is None and capture.verify() == []
        assert all(e.request and e.response for e in capture.exchanges())
        return [row.correlation_id for row in capture.rows()]


def asked(text: str = "because", **fields: Any) -> FlightReason:
    return FlightReason("asked", text, **fields)


def matched(text: str = "err: Fetch v16") -> FlightReason:
    return FlightReason("filter", text, "match", about={"filter": "err"})


def test_a_flight_recording_holds_the_past_and_what_follows(recording: RecordingWithFlights) -> None:
    recording.start_flight(Window(None, 1 << 30, after=10))
    recording.record_exchanges(50)
    done = recording.flight.trigger(asked("the brokers fell over", label="incident 7"))
    assert "incident-7-" in done.flight and not Path(done.flight).exists()
    recording.record_exchanges(20)
    recording.after(9.9)
    assert recording.written == []
    recording.after(0.2)
    assert recording.written == [done.flight]
    recording.record_exchanges(20)  # is not in it any more
    assert numbers(done.flight) == list(range(70))
    event = recording.events[-1]
    assert event.segments == len(list(Path(done.flight).glob("*.pcapng"))) >= 5 and event.bytes > 20_000
    recording.recorder.close()
    assert numbers(recording.ring) == list(range(90))
    with open_capture(done.flight) as capture:
        assert capture.about and "the brokers fell over" in capture.about
    with open_capture(recording.ring) as capture:
        assert capture.about is None


def test_a_flight_recording_without_aftermath_is_written_at_once(recording: RecordingWithFlights) -> None:
    recording.start_flight(Window(None, 1 << 30, after=0))
    recording.record_exchanges(5)
    done = recording.flight.trigger(asked())
    assert recording.written == [done.flight] and numbers(done.flight) == list(range(5))


def test_a_flight_recording_survives_retention(recording: RecordingWithFlights) -> None:
    recording.start_flight(Window(None, 1 << 30, after=5))
    recording.retention = Retention(recording.ring, Keep(bytes=20_000), reserve=6_000)
    recording.record_exchanges(100)
    kept = len(list(recording.ring.glob("*.pcapng")))
    done = recording.flight.trigger(asked())
    recording.record_exchanges(200)
    recording.after(5)
    found = numbers(done.flight)
    assert found == list(range(found[0], 300)) and 10 < found[0] < 100
    assert len(list(Path(done.flight).glob("*.pcapng"))) > 2 * kept
    shutil.rmtree(recording.ring)
    assert numbers(done.flight) == found


def test_the_window_in_bytes_and_in_seconds(recording: RecordingWithFlights) -> None:
    recording.start_flight(Window(None, 20_000, after=0))
    recording.record_exchanges(100)
    size = sum(path.stat().st_size for path in Path(recording.flight.trigger(asked()).flight).iterdir())
    assert 10_000 < size < 20_000 + 2_000  # and the note
    closed = sorted(recording.ring.glob("*.pcapng"))
    now = closed[-1].stat().st_mtime
    for path in closed[:5]:
        os.utime(path, (now - 100, now - 100))
    recording.start_flight(Window(60.0, 1 << 30, after=0))
    done = recording.flight.trigger(asked(time_ns=int(now * 1e9)))
    names = {path.name for path in Path(done.flight).glob("*.pcapng")}
    assert not names & {path.name for path in closed[:5]} and {path.name for path in closed[5:]} <= names


def test_a_thousand_matches_are_one_recording(recording: RecordingWithFlights) -> None:
    recording.start_flight(Window(None, 1 << 30, after=10), every=300)
    recording.record_exchanges(10)
    for _ in range(1000):
        recording.flight.trigger(matched())
    recording.after(11)
    assert len(recording.written) == 1 and recording.events[-1].others == 999
    for _ in range(1000):
        recording.after(0.1)
        assert recording.flight.trigger(matched(), others=1).flight is None
    assert len(recording.written) == 1 and recording.flight.counted == 2000
    recording.after(300)
    recording.flight.trigger(matched())
    recording.after(11)
    assert len(recording.written) == 2 and recording.events[-1].others == 2000
    note = read_note(Path(recording.written[1]))
    assert note and note["left_out"] == 2000 and note["kind"] == "filter" and note["about"] == {"filter": "err"}
    # A person gets one whenever he asks.
    recording.flight.trigger(asked())
    recording.after(11)
    assert len(recording.written) == 3


def test_automatic_flight_recordings_are_limited(recording: RecordingWithFlights) -> None:
    recording.start_flight(Window(None, 1 << 30, after=0), every=1, most=2)
    recording.record_exchanges(10)
    for _ in range(4):
        recording.flight.trigger(matched())
        recording.after(2)
    assert len(recording.written) == 2
    assert sum(isinstance(event, Full) for event in recording.events) == 1
    recording.flight.trigger(asked())
    assert len(recording.written) == 3
    shutil.rmtree(recording.written[0])
    recording.after(2)
    recording.flight.trigger(matched())
    assert len(recording.written) == 4


def test_names_stay_in_the_directory(recording: RecordingWithFlights) -> None:
    recording.start_flight(Window(None, 1 << 30, after=0))
    recording.record_exchanges(1)
    for text in ("../../../etc/x", "/abs", "a\0b", "..", "", "x" * 300, "é\n\x1b]0;", "-rf"):
        done = recording.flight.trigger(asked(label=text))
        assert Path(done.flight).parent == recording.out and Path(done.flight).is_dir()
    assert len(set(recording.written)) == 8
    assert label("../a b") == "a-b" and label("\x1b") == "flight"
    assert oct(Path(recording.written[0]).stat().st_mode & 0o777) == "0o700"
    assert {path.stat().st_mode & 0o777 for path in Path(recording.written[0]).iterdir()} == {0o600}


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_copies_where_links_are_impossible(recording: RecordingWithFlights, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(flight_recorder.os, "link", refused)
    recording.start_flight(Window(None, 1 << 30, after=5))
    recording.retention = Retention(recording.ring, Keep(bytes=20_000), reserve=6_000)
    recording.record_exchanges(50)
    done = recording.flight.trigger(asked())
    recording.record_exchanges(50)
    recording.after(5)
    recording.flight.close()
    found = numbers(done.flight)
    assert found == list(range(found[0], 100)) and found[0] < 50
    shutil.rmtree(recording.ring)
    assert numbers(done.flight) == found


def test_a_full_disk(recording: RecordingWithFlights, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    recording.start_flight(Window(None, 1 << 30, after=5))
    recording.record_exchanges(50)
    monkeypatch.setattr(flight_recorder.os, "link", full)
    monkeypatch.setattr(flight_recorder.os, "sendfile", full)
    recording.flight.trigger(asked())
    recording.after(5)
    recording.flight.close()
    (event,) = recording.events
    assert isinstance(event, Failed) and "No space left" in event.text
    assert [path.name for path in recording.out.iterdir()] == ["ring"]
    monkeypatch.undo()
    recording.record_exchanges(10)
    recording.flight.trigger(asked())
    recording.after(5)
    assert len(recording.written) == 1


def test_without_a_recording_a_trigger_fails(recording: RecordingWithFlights, tmp_path: Path) -> None:
    recording.start_flight(Window(None, 1 << 30, after=0))
    recording.flight._source = lambda: None
    assert recording.flight.trigger(asked()).flight is None
    assert recording.events == [Failed("nothing is being recorded")]


def test_a_flight_recording_of_a_killed_writer_is_recovered(recording: RecordingWithFlights) -> None:
    recording.start_flight(Window(None, 1 << 30, after=60))
    recording.record_exchanges(50)
    done = recording.flight.trigger(asked("it was on fire"))
    hidden = recording.out / f".{Path(done.flight).name}.part"
    # Another one in the same directory leaves alone what is being written ...
    FlightRecorder(recording.out, Window(None, None), lambda: None, lambda: None, lambda *_: None)
    assert hidden.exists()
    # ... and takes up what nobody writes any more.
    assert recording.flight._writing is not None
    os.close(recording.flight._writing.lock)
    FlightRecorder(recording.out, Window(None, None), lambda: None, lambda: None, lambda *_: None)
    assert not hidden.exists()
    found = numbers(done.flight)
    assert found == list(range(len(found))) and len(found) > 30
    assert "its writer was killed" in (flight_summary(Path(done.flight)) or "")
    (recording.out / ".empty-1.part").mkdir()
    FlightRecorder(recording.out, Window(None, None), lambda: None, lambda: None, lambda *_: None)
    assert not (recording.out / ".empty-1.part").exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"flight": "x"}', b"[" * 100_000, b"\xff" * 10, bytes(1 << 20)]
)
def test_invalid_notes_are_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "flight.json").write_bytes(content)
    assert read_note(tmp_path) is None and flight_summary(tmp_path) is None


def test_any_note_is_summarized_in_one_line(tmp_path: Path) -> None:
    note = {
        "flight": 1,
        "kind": ["x"],
        "text": {"a": 1},
        "time_ns": 1 << 80,
        "others": "7",
        "left_out": -1,
        "complete": 0,
    }
    (tmp_path / "flight.json").write_text(json.dumps(note))
    assert flight_summary(tmp_path) == "flight recording: {'a': 1}"
