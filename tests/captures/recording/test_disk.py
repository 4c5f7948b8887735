"""When things go wrong underneath: a killed recorder, a full disk, a directory that disappears."""

import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from barnabas.captures import NotACapture, Recorder, open_capture
from barnabas.captures.recording import recording
from barnabas.captures.recording.segment import check
from harness.recordings import metadata_answer, metadata_request
from harness.run.slices import thin
from harness.waiting import PATIENCE, until

NOW = 1_795_223_022_000_000_000

# Writes exchanges as fast as it can and prints how many are flushed.
CHILD = """
import sys, time
from barnabas import decoder
from barnabas.captures import Recorder
recorder = Recorder(sys.argv[1], segment_bytes=200_000, flush_seconds=0.05)
recorder.opened(1, time.time_ns(), client=("10.0.0.1", 5), broker=("10.0.0.2", 9092))
def with_size(frame):
    return len(frame).to_bytes(4, "big") + frame
i = 0
while True:
    recorder.data(1, 0, time.time_ns(), with_size(decoder.encode_request(12, 1,
        {"group_id": "g" * (i % 50 * 100), "generation_id": 1, "member_id": "m"}, correlation_id=i, client_id="c")))
    recorder.data(1, 1, time.time_ns(), with_size(decoder.encode_response(12, 1,
        {"throttle_time_ms": 0, "error_code": 0}, correlation_id=i)))
    i += 1
    if i % 50 == 0:
        recorder.flush()
        print(i, flush=True)
"""


@pytest.mark.parametrize("seed", thin(range(5), 1))
def test_a_killed_recorder(tmp_path: Path, complaints, seed: int) -> None:
    """Killed after a number of flushes; everything flushed by then is there."""
    directory, log = tmp_path / "rec", tmp_path / "log"
    with log.open("w") as out:
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(directory)], stdout=out)
        flushes = random.Random(seed).randrange(1, 60)
        until(
            lambda: log.read_text().count("\n") >= flushes,
            lambda: f"flushes so far: {log.read_text().splitlines()}",
            pause=0.001,
        )
        child.send_signal(signal.SIGKILL)
        child.wait()
    flushed = [int(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    files = sorted(path for path in directory.glob("*.pcapng*") if path.stat().st_size)
    for path in files:
        if path in files[-2:]:
            assert complaints(path) == []
        assert [line for line in check(path) if "are not what" in line] == []
    assert 1 <= len(list(directory.glob("*.part"))) <= 2  # two in the middle of a rotation
    with open_capture(directory) as capture:
        rows = capture.rows()
        assert not capture.live
        assert [r.correlation_id for r in rows] == list(range(len(rows)))
        assert len(rows) >= flushed[-1] > 0
        assert all(e.undecoded is None for e in capture.exchanges())
    # A new recording in the same directory leaves the old part alone.
    Recorder(directory).close()
    with open_capture(directory) as capture:
        assert len(capture.rows()) == len(rows)


def test_flushed_by_itself_once_the_period_is_over(tmp_path: Path) -> None:
    recorder, clock = Recorder(tmp_path, flush_seconds=0.05), [time.monotonic()]
    recorder._recording._clock = lambda: clock[0]
    recorder.data(1, 0, NOW, metadata_request(1))
    recorder.data(1, 1, NOW, metadata_answer(1))
    with open_capture(tmp_path) as capture:
        assert len(capture.rows()) == 0
        clock[0] += 60
        recorder.data(1, 0, NOW, metadata_request(2))
        assert capture.refresh() == 1
    recorder.close()


def test_every_cut_of_the_tail(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for i in range(2):
        recorder.data(1, 0, NOW + i, metadata_request(i))
        recorder.data(1, 1, NOW + i, metadata_answer(i))
    recorder.close()
    assert len(list(tmp_path.glob("*.pcapng"))) == 1
    path = next(tmp_path.glob("*.pcapng"))
    whole = path.read_bytes()
    with open_capture(path) as capture:
        offsets = [offset for row in capture.rows() for offset in (row.request_offset, row.response_offset)]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        try:
            with open_capture(path) as capture:
                found = list(capture.exchanges())
                complete = sum(1 for offset in [*offsets[1:], len(whole)] if offset is not None and offset <= cut)
                frames = sum((e.request is not None) + (e.response is not None) for e in found)
                assert frames in (complete, complete + 1)  # the sync block stands behind the last frame
        except NotACapture:
            assert cut < 12


# The limit on file sizes stands for the end of the disk: write(2) fails with EFBIG as it does with ENOSPC.
FULL = """
import resource, signal, sys, time
from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.captures.recording import recording
recording._RETRY_SECONDS = 0.0
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
events = []
recorder = Recorder(sys.argv[1], flush_seconds=0.0, on_event=lambda kind, text: events.append(kind))
def with_size(frame):
    return len(frame).to_bytes(4, "big") + frame
def ask(i, conn=1):
    recorder.data(conn, 0, 10**18 + i, with_size(decoder.encode_request(12, 1,
        {"group_id": "g" * 500, "generation_id": 1, "member_id": "m"}, correlation_id=i, client_id="c")))
def answer(i):
    recorder.data(1, 1, 10**18 + i, with_size(decoder.encode_response(12, 1,
        {"throttle_time_ms": 0, "error_code": 0}, correlation_id=i)))
recorder.opened(1, 10**18, client=("10.0.0.1", 5), broker=("10.0.0.2", 9092))
recorder.opened(2, 10**18, client=("10.0.0.1", 6), broker=("10.0.0.2", 9092))
ask(1000, 2)   # waits through all of it
for i in range(100):
    ask(i)
    if i == 50:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    if i == 80:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if i != 79:
        answer(i)
answer(79)
recorder.close()
print(events, recorder.counts)
"""


def test_a_full_disk_pauses_the_recording(tmp_path: Path, complaints) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.startswith("['paused', 'resumed', 'segment'] ")
    counts = ast.literal_eval(done.stdout.partition("] ")[2])
    assert counts["unrecorded"] > 50
    paths = sorted(tmp_path.glob("*.pcapng"))
    assert len(paths) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        path.with_suffix(suffix).name for path in paths for suffix in (".pcapng", ".index", ".strings")
    )
    for path in paths:
        assert complaints(path) == []
    assert check(paths[1]) == []
    with open_capture(tmp_path) as capture:
        assert capture.note == f"{paths[0].name}: the recording was interrupted at the end of this segment"
        seen = [(r.correlation_id, str(r.state)) for r in capture.rows()]
        assert [s for s in seen if s[0] < 50] == [(i, "paired") for i in range(50)]
        assert [s for s in seen if s[0] > 80] == [(i, "paired") for i in range(81, 100)] + [(1000, "pending")]
        assert len({number for number, _ in seen}) == len(seen)


def test_a_directory_that_is_removed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said at the next flush, whether something has come since or not."""
    monkeypatch.setattr(recording, "_RETRY_SECONDS", 0.0)
    directory = tmp_path / "rec"
    events: list[tuple[str, str]] = []
    recorder = Recorder(directory, on_event=lambda *event: events.append(event))
    for i in range(60):
        if i == 20:
            recorder.flush()
            shutil.rmtree(directory)
            recorder.flush()
            assert [kind for kind, _ in events] == ["paused"] and "No such file" in events[0][1]
        recorder.data(1, 0, NOW + i, metadata_request(i))
        recorder.data(1, 1, NOW + i, metadata_answer(i))
    recorder.close()
    assert [kind for kind, _ in events] == ["paused", "resumed", "segment"]
    with open_capture(directory) as capture:
        assert [r.correlation_id for r in capture.rows()] == list(range(20, 60))


def test_a_directory_that_disappears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_RETRY_SECONDS", 0.0)
    directory = tmp_path / "rec"
    events: list[tuple[str, str]] = []
    recorder = Recorder(directory, segment_bytes=3000, on_event=lambda *event: events.append(event))
    for i in range(60):
        if i == 20:
            shutil.rmtree(directory)
            directory.touch()  # so that it cannot be made again
        if i == 40:
            directory.unlink()
        recorder.data(1, 0, NOW + i, metadata_request(i))
        recorder.data(1, 1, NOW + i, metadata_answer(i))
    recorder.close()
    kinds = [kind for kind, _ in events if kind in ("paused", "resumed")]
    assert kinds == ["paused", "resumed"]
    text = next(text for kind, text in events if kind == "paused")
    assert str(directory) in text and "No such file" in text and "\n" not in text
    with open_capture(directory) as capture:
        assert [r.correlation_id for r in capture.rows()] == list(range(40, 60))


def test_descriptors_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_RETRY_SECONDS", 0.0)
    before = descriptors()
    directory = tmp_path / "rec"
    recorder = Recorder(directory, segment_bytes=1)
    for i in range(30):
        recorder.data(1, 0, NOW + i, metadata_request(i))
    shutil.rmtree(directory)
    for i in range(30):
        recorder.data(1, 0, NOW + i, metadata_request(i))
    recorder.close()
    assert descriptors() <= before  # fewer: an earlier test's files may be closed at any time


def descriptors() -> set[tuple[str, str]]:
    """The descriptors of this process: number, and what it leads to."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the folder's own is gone
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found
