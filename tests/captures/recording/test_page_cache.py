"""What was written to a recording leaves the page cache, and room that was reserved is given back."""

import os
import threading
import time
from pathlib import Path

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.captures.native.accelerator import native
from barnabas.captures.recording import page_cache_hints
from barnabas.captures.recording.segment import check
from harness.recordings import metadata_answer, metadata_request
from harness.waiting import PATIENCE

MIB = 1 << 20


def _record(directory: Path, mib: int) -> int:
    recorder = Recorder(directory, segment_bytes=8 * MIB)
    count, each = 0, len(metadata_request(0, 30_000)) + len(metadata_answer(0, 30_000))
    while count * each < mib * MIB:
        recorder.data(1, 0, time.time_ns(), metadata_request(count, 30_000))
        recorder.data(1, 1, time.time_ns(), metadata_answer(count, 30_000))
        count += 1
        for thread in threading.enumerate():
            if thread.name == "page cache hints":
                thread.join(PATIENCE)
    recorder.close()
    return count


def test_written_ranges_are_dropped_from_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[tuple[str, int, int]] = []

    def advise(file: int, start: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        assert start + size <= os.fstat(file).st_size, "only what is written"
        named.append((Path(os.readlink(f"/proc/self/fd/{file}")).name.removesuffix(".part"), start, start + size))

    monkeypatch.setattr(page_cache_hints.os, "posix_fadvise", advise)
    monkeypatch.setattr(page_cache_hints, "STEP", MIB)
    count = _record(tmp_path, 11)
    segments = sorted(tmp_path.glob("*.pcapng"))
    assert len(segments) == 2 and not any(check(path) for path in segments)
    assert sum(1 for _ in open_capture(tmp_path).exchanges()) == count
    # The first segment to its end, without a hole, and of the second all but its last steps.
    for path, least in ((segments[0], segments[0].stat().st_size - 2 * MIB), (segments[1], 1)):
        reached = 0
        for name, start, end in sorted(set(named)):
            if name == path.name:
                assert start <= reached, "a hole"
                reached = max(reached, end)
        assert reached >= least


@pytest.mark.skipif(native is None, reason="room is reserved by the accelerator")
def test_reserved_room_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[bool] = []
    reserve = native.reserve
    monkeypatch.setattr(native, "reserve", lambda *a: reserved.append(reserve(*a)) or reserved[-1])
    _record(tmp_path, 4)
    (segment,) = tmp_path.glob("*.pcapng")
    if not any(reserved):
        pytest.skip("this file system reserves nothing")
    assert segment.stat().st_blocks * 512 < segment.stat().st_size + MIB
