"""Retention: what is removed, what never is, and readers that are in the middle of it."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.captures.pcap.pcapng import CaptureReader
from barnabas.captures.reading.events import EventReader
from barnabas.captures.recording.index import paths
from barnabas.captures.recording.retention import Keep, Retention
from harness.recordings import metadata_answer, metadata_request

from ..event_words import import_captures

NOW = 1_795_223_022_000_000_000
Record = Callable[..., Recorder]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """`record(count)`: a recorder with so many exchanges, in segments of about 10 exchanges; not closed."""

    def make(count: int, directory: Path = tmp_path / "rec", first: int = 0) -> Recorder:
        recorder = Recorder(directory, segment_bytes=6_000, flush_seconds=0)
        recorder.opened(1, NOW, client=("10.0.0.1", 50001), broker=("kafka", 9092))
        for i in range(first, first + count):
            recorder.data(1, 0, NOW + 1000 * i, metadata_request(i))
            recorder.data(1, 1, NOW + 1000 * i + 500, metadata_answer(i))
        return recorder

    return make


def segments(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.pcapng*"))


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_the_oldest_segments_go_with_their_indexes(tmp_path: Path, record: Record) -> None:
    directory = tmp_path / "rec"
    recorder = record(200)
    before = segments(directory)
    assert len(before) > 10
    limit = size_of(directory) // 2
    removed = Retention(directory, Keep(bytes=limit)).apply()
    after = segments(directory)
    assert removed is not None and removed.failed == ""
    assert list(removed.names) == before[: len(removed.names)] and after == before[len(removed.names) :]
    assert limit * 3 // 4 < size_of(directory) <= limit
    assert {path.stem for path in directory.iterdir() if path.suffix in (".index", ".strings")} == {
        name.partition(".")[0] for name in after
    }
    recorder.close()
    with open_capture(directory) as capture:
        assert capture.note is None
        seen = [row.correlation_id for row in capture.rows()]
        assert seen == list(range(seen[0], 200))
    assert Retention(directory, Keep(bytes=limit)).apply() is None


def test_room_for_the_segment_that_is_being_written(tmp_path: Path, record: Record) -> None:
    recorder = record(100)
    total = size_of(tmp_path / "rec")
    assert Retention(tmp_path / "rec", Keep(bytes=total + 10)).apply() is None
    assert Retention(tmp_path / "rec", Keep(bytes=total + 10), reserve=20_000).apply() is not None
    recorder.close()


def test_old_segments_are_removed(tmp_path: Path, record: Record) -> None:
    directory = tmp_path / "rec"
    record(100).close()
    names = segments(directory)
    now = directory.joinpath(names[-1]).stat().st_mtime
    for name in names[:4]:
        os.utime(directory / name, (now - 100, now - 100))
    removed = Retention(directory, Keep(seconds=60)).apply(now)
    assert removed is not None and list(removed.names) == names[:4]
    assert Retention(directory, Keep(seconds=60)).apply(now + 59) is None
    everything = Retention(directory, Keep(seconds=60)).apply(now + 1000)
    assert everything is not None and segments(directory) == []


def test_the_live_segment_stays(tmp_path: Path, record: Record) -> None:
    directory = tmp_path / "rec"
    recorder = record(55)
    live = [name for name in segments(directory) if name.endswith(".part")]
    removed = Retention(directory, Keep(bytes=1, seconds=0.001)).apply(now=2e10)
    assert removed is not None
    assert segments(directory) == live and len(live) == 1
    assert sorted(path.suffix for path in directory.iterdir()) == [".index", ".part", ".strings"]
    recorder.close()
    with open_capture(directory) as capture:
        assert capture.rows()[-1].correlation_id == 54


def test_an_abandoned_part_file_is_removed(tmp_path: Path, record: Record) -> None:
    directory = tmp_path / "rec"
    record(5).close()
    left = directory / segments(directory)[0]
    part = left.rename(left.with_name(left.name + ".part"))
    assert Retention(directory, Keep(bytes=1)).apply() is None  # it might only just be in the making
    os.utime(part, (1, 1))
    assert Retention(directory, Keep(bytes=1)).apply() is not None
    assert list(directory.iterdir()) == []


def test_files_of_others_are_not_touched(tmp_path: Path, record: Record) -> None:
    directory = tmp_path / "rec"
    record(30).close()
    ours = directory / segments(directory)[0]
    elsewhere = tmp_path / "elsewhere.pcapng"
    shutil.copy(ours, elsewhere)
    strangers = {
        directory / "mine.pcapng": ours.read_bytes(),  # ours by its content, not by its name
        directory / "20200101-000000-0000.pcapng": b"\x0a\x0d\x0d\x0a" + bytes(100),  # by its name, not by its content
        directory / "20200101-000001-0000.pcapng": b"",
        directory / "20200101-000000-0000.index.bak": b"x",
        directory / "notes.txt": b"x",
        directory / "mine.index": b"x",
    }
    for path, content in strangers.items():
        path.write_bytes(content)
        os.utime(path, (1, 1))
    link = directory / "20200101-000002-0000.pcapng"
    link.symlink_to(elsewhere)
    (directory / "20200101-000003-0000.pcapng").mkdir()
    assert Retention(directory, Keep(bytes=1, seconds=0.001)).apply(now=2e10) is not None
    for path, content in strangers.items():
        assert path.read_bytes() == content
    assert link.is_symlink() and elsewhere.exists()
    assert sorted(path.name for path in directory.iterdir()) == sorted(
        [path.name for path in strangers] + [link.name, "20200101-000003-0000.pcapng"]
    )


def test_indexes_without_a_segment_are_swept(tmp_path: Path, record: Record) -> None:
    directory = tmp_path / "rec"
    record(30).close()
    first = directory / segments(directory)[0]
    first.unlink()  # as if killed in the middle of removing it
    Retention(directory, Keep(bytes=1 << 30)).apply()
    assert all(path.exists() for path in paths(first))
    for path in paths(first):
        os.utime(path, (1, 1))
    Retention(directory, Keep(bytes=1 << 30)).apply()
    assert not any(path.exists() for path in paths(first))


def test_a_segment_that_cannot_be_removed_is_reported(tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "rec"
    record(30).close()
    first = segments(directory)[0]
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.name == first:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    removed = Retention(directory, Keep(bytes=1)).apply()
    assert removed is not None and first in removed.failed and "not permitted" in removed.failed
    assert segments(directory) == [first]
    assert Retention(tmp_path / "nowhere", Keep(bytes=1)).apply() is None


@pytest.mark.parametrize("limits", [{"bytes": 0}, {"seconds": 0.0}, {"bytes": -1}])
def test_limits_must_be_above_0(limits: dict) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Keep(**limits)


def test_retention_of_an_import_in_progress(tmp_path: Path, record: Record) -> None:
    """As `barnabas sniff` does it: whenever a segment was closed."""
    record(300, tmp_path / "given").close()
    foreign = tmp_path / "foreign.pcap"
    with open(foreign, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for path in sorted((tmp_path / "given").glob("*.pcapng")):
            with open(path, "rb") as file:
                for packet in CaptureReader(file).packets():
                    if out.tell() < 100 or not packet.comments:  # one connection, introduced once
                        out.write(
                            struct.pack("<IIII", *divmod(packet.time_ns, 10**9), *[len(packet.data)] * 2) + packet.data
                        )
    directory = tmp_path / "rec"
    retention = Retention(directory, Keep(bytes=40_000), reserve=6_000)
    names: list[str] = []

    def apply() -> None:
        removed = retention.apply()
        names.extend(removed.names if removed else ())
        assert size_of(directory) < 50_000

    import_captures(directory, foreign, segment_bytes=6_000, on_segment=apply)
    assert len(names) > 10 and names == sorted(names)
    with open_capture(directory) as capture:
        assert 0 < len(capture.rows()) < 200 and capture.note is None


# readers


def test_a_reader_goes_on(tmp_path: Path, record: Record) -> None:
    directory = tmp_path / "rec"
    recorder = record(100)
    with open_capture(directory) as capture:
        rows = [row.correlation_id for row in capture.rows()]
        Retention(directory, Keep(bytes=1)).apply()
        assert [e.correlation_id for e in capture.exchanges()] == rows  # what is open can be read
        assert all(e.request is not None for e in capture.exchanges())
        recorder.data(1, 0, NOW, b"\0\0\0\x0e" + b"\0\x12\0\0\0\0\x30\x39\0\x04live")
        recorder.flush()
        capture.refresh()
        # Now it is let go: the rows keep their numbers, their frames are gone.
        assert capture.removed == len(capture.segments) - 1
        assert [row.correlation_id for row in capture.rows()][: len(rows)] == rows
        gone = capture.exchange(0)
        assert gone.request is None and gone.response is None and gone.api == "Metadata"
        assert "was removed" in gone.marks.notes[0] and capture.segments[0].path.name in gone.marks.notes[0]
        assert gone.to_dict()["request"] is None
        last = capture.exchange(len(rows) - 1)
        assert last.request is not None
        assert capture.verify() == []
    recorder.close()


def test_a_reader_gives_the_disk_its_bytes_back(tmp_path: Path, record: Record) -> None:
    directory = tmp_path / "rec"
    recorder = record(60)
    with open_capture(directory) as capture:
        assert len([path for path in _held(directory) if path.endswith(".pcapng")]) > 3
        Retention(directory, Keep(bytes=1)).apply()
        assert any("(deleted)" in path for path in _held(directory))
        capture.refresh()
        assert not any("(deleted)" in path for path in _held(directory))
    recorder.close()


def _held(directory: Path) -> list[str]:
    """The segments in this directory that the process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return [path for path in found if path.startswith(str(directory)) and ".pcapng" in path]


def test_events_continue_after_a_segment_was_removed(tmp_path: Path, record: Record) -> None:
    directory = tmp_path / "rec"
    record(100).close()
    reader = EventReader(directory)
    iterator = reader.read()
    next(iterator)
    Retention(directory, Keep(bytes=15_000)).apply()
    list(iterator)
    list(reader.end())
    assert reader.note is not None and "was removed before it was read" in reader.note
