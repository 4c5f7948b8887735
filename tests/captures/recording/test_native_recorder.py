"""The fast way of recording: the same files, byte for byte, as without it, whatever comes and wherever it is cut."""

import os
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.captures.native.accelerator import native
from barnabas.captures.recording import native_recorder, recording
from barnabas.captures.recording.index import IndexEncoder
from barnabas.captures.recording.segment import check
from barnabas.decoder import encode_request, encode_response
from barnabas.decoder.connection.correlation import MOST_WAITING
from harness.waiting import PATIENCE
from harness.wire import with_size
from traffic.random_traffic import SECRET, MixedTraffic
from traffic.unusual_messages import versions_asked

needs_accelerator = pytest.mark.skipif(native is None, reason="the accelerator is not there")


class LostResponses:
    """Heartbeats of which every seventh gets no response."""

    def run(self, recorder: Recorder) -> None:
        for n in range(600):
            fields = {"group_id": "g", "generation_id": 1, "member_id": "m"}
            recorder.data(1, 0, 1000 + n, with_size(encode_request(12, 1, fields, correlation_id=n, client_id="c")))
            if n % 7 != 3:
                recorder.data(1, 1, 2000 + n, with_size(encode_response(12, 1, {}, correlation_id=n)))


def record(directory: Path, monkeypatch: pytest.MonkeyPatch, traffic: MixedTraffic | LostResponses, fast: bool, **options) -> Recorder:
    monkeypatch.setattr(recording.os, "urandom", lambda size: bytes(size))
    monkeypatch.setattr(recording.time, "strftime", lambda *a: "20261122-120000")
    with monkeypatch.context() as patch:
        if not fast:
            patch.setattr(native_recorder, "native", None)
        recorder = Recorder(directory, flush_seconds=1000.0, **options)
    traffic.run(recorder)
    recorder.close()
    return recorder


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@needs_accelerator
@pytest.mark.parametrize(
    ("seed", "odd", "options"),
    [
        (1, 0.0, {}),
        (2, 0.0, {"segment_bytes": 150_000}),
        (3, 0.02, {}),
        (4, 0.02, {"segment_bytes": 300_000}),
        (5, 0.1, {"segment_bytes": 400_000}),
        (6, 0.02, {"redact": False}),
        (7, 0.3, {}),
        (8, 0.005, {"segment_bytes": 40_000}),
        (9, 0.0, {"snaplen": 256}),
        (10, 0.02, {"snaplen": 128, "segment_bytes": 40_000}),
        (13, 0.1, {"snaplen": 1000, "segment_bytes": 150_000}),
        (14, 0.02, {"snaplen": 100_000, "redact": False}),
    ],
)
def test_native_recordings_are_byte_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, odd: float, options) -> None:
    counts = {}
    for fast in (False, True):
        name = "fast" if fast else "slow"
        recorder = record(tmp_path / name, monkeypatch, MixedTraffic(seed, 800, odd), fast, **options)
        counts[name] = recorder.counts
        if fast:
            taken = recorder._native.counts["frames"]
    assert counts["fast"] == counts["slow"]
    slow, fast_files = files(tmp_path / "slow"), files(tmp_path / "fast")
    assert fast_files.keys() == slow.keys()
    for name, data in slow.items():
        assert fast_files[name] == data, name
    if odd < 0.1 and options.get("segment_bytes", 10**6) > 100_000:
        assert taken > 200  # or nothing was tested here
    if options.get("redact", True):
        assert not any(SECRET in data for data in slow.values())
    with open_capture(tmp_path / "fast") as capture:
        assert capture.verify() == []
    assert all(check(path) == [] for path in (tmp_path / "fast").glob("*.pcapng"))


CHILD = """
import sys
from pathlib import Path
from barnabas.captures import Recorder
from barnabas.captures.recording import recording
from traffic.random_traffic import MixedTraffic
recording.os.urandom = lambda size: bytes(size)
recording.time.strftime = lambda *a: "20261122-120000"
recorder = Recorder(sys.argv[1], flush_seconds=1000.0, segment_bytes=300_000)
MixedTraffic(11, 500, 0.03).run(recorder)
recorder.close()
"""


@needs_accelerator
def test_recordings_of_pure_python_are_byte_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "fast", monkeypatch, MixedTraffic(11, 500, 0.03), True, segment_bytes=300_000)
    environment = os.environ | {"BARNABAS_PURE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", CHILD, str(tmp_path / "pure")], env=environment, check=True, timeout=PATIENCE)
    assert files(tmp_path / "fast") == files(tmp_path / "pure")


@needs_accelerator
def test_plain_traffic_stays_on_the_fast_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = record(tmp_path, monkeypatch, MixedTraffic(12, 1000, 0.0), True)
    frames = recorder.counts["frames"]
    # The slow way has the first chunks of every connection, and what was held when the recording ended.
    assert recorder._native.counts["frames"] > 0.8 * frames > 500


@needs_accelerator
@pytest.mark.parametrize("data", [b"\0\0\0\1x", b"\0\0\0\1xy", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"], ids=["whole", "more", "negative", "large"])
def test_a_native_recorder_holds_nothing_but_the_beginning_of_a_frame(data: bytes) -> None:
    recorder = native.ConnectionRecorder(native.RecorderContext(lambda *asked: None), 7)
    with pytest.raises(ValueError, match="not the beginning of a frame"):
        recorder.hold(0, data, 5)
    recorder.hold(0, b"\0\0\0\5half", 5)
    assert recorder.release() == ([], (b"\0\0\0\5half", 5, 0), (b"", 0, 0))


@needs_accelerator
def test_the_oldest_of_too_many_requests_are_given_up(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    beat = with_size(encode_request(12, 1, {"group_id": "g", "generation_id": 1, "member_id": "m"}, client_id="c"))
    beats = [beat[:8] + n.to_bytes(4, "big") + beat[12:] for n in range(MOST_WAITING + 3)]
    recorder.data(1, 0, 1000, beats[0])
    recorder.data(1, 0, 1001, b"".join(beats[1:]))
    assert recorder._native.counts["exchanges"] == 3
    recorder.close()
    with open_capture(tmp_path) as capture:
        rows = [(row.correlation_id, str(row.state)) for row in capture.rows()]
    assert rows[:3] == [(n, "no_response") for n in range(3)]
    assert rows[3:] == [(n, "pending") for n in range(3, MOST_WAITING + 3)]


@needs_accelerator
@pytest.mark.parametrize("segment_bytes", [1 << 26, 20_000])
def test_lost_responses_stay_on_the_fast_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int) -> None:
    for fast in (False, True):
        recorder = record(tmp_path / str(fast), monkeypatch, LostResponses(), fast, segment_bytes=segment_bytes)
    assert files(tmp_path / "True") == files(tmp_path / "False")
    assert recorder.counts["exchanges"] == 600 and recorder._native.counts["exchanges"] > 400
    with open_capture(tmp_path / "True") as capture:
        assert sum(str(row.state) == "no_response" for row in capture.rows()) == 86


class VersionsAsked:
    """ApiVersions answered in every way, each on its own connection behind a plain exchange; then many that wait."""

    def run(self, recorder: Recorder) -> None:
        beat = with_size(encode_request(12, 1, {"group_id": "g"}, client_id="c")), with_size(encode_response(12, 1, {}))
        for n, exchange in enumerate(versions_asked()):
            for asked, answered in (beat, exchange, beat):
                recorder.data(10 + n, 0, 1000 + n, asked)
                recorder.data(10 + n, 1, 2000 + n, answered)
            recorder.closed(10 + n, 3000 + n)
        for n in range(3000):
            request = encode_request(18, n % 4, {}, correlation_id=n, client_id="c")
            recorder.data(1, 0, 5000 + n, with_size(request))
        recorder.closed(1, 9000, "fin")


@needs_accelerator
@pytest.mark.parametrize("options", [{}, {"segment_bytes": 20_000}, {"snaplen": 128}], ids=["whole", "segments", "cut"])
def test_versions_asked_are_recorded_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options) -> None:
    counts = {}
    for fast in (False, True):
        recorder = record(tmp_path / str(fast), monkeypatch, VersionsAsked(), fast, **options)
        counts[fast] = recorder.counts
    assert counts[True] == counts[False] and counts[True]["undecoded"] > 0
    assert files(tmp_path / "True") == files(tmp_path / "False")
    assert recorder._native.counts["exchanges"] > 2500


class NeverAnswered:
    """Requests on two connections that wait when these end; a response that is not whole; requests on a third that wait
    until the recording ends."""

    def __init__(self, how: str) -> None:
        self.how = how

    def run(self, recorder: Recorder) -> None:
        for n in range(900):
            fields = {"group_id": "g" * (n % 50), "generation_id": 1, "member_id": "m"}
            client = None if n % 30 == 0 else f"c{n % 7}"
            request = encode_request(12, 1, fields, correlation_id=n, client_id=client)
            recorder.data(n % 3, 0, 1000 + n, with_size(request))
        recorder.data(0, 1, 3000, with_size(encode_response(12, 1, {}, correlation_id=0))[:7])
        recorder.data(0, 0, 3001, b"\0\0\0\x20half")
        if self.how == "carried":
            recorder.rotate()
        if self.how == "half":
            recorder.ended(0, 1, 4000)
            recorder.ended(1, 0, 4000)
        for number in (0, 1):
            recorder.closed(number, 5000, "fin")


@needs_accelerator
@pytest.mark.parametrize("how", ["closed", "carried", "half"])
@pytest.mark.parametrize("options", [{}, {"snaplen": 128}, {"segment_bytes": 30_000}], ids=["whole", "cut", "segments"])
def test_requests_without_response_are_recorded_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, options
) -> None:
    counts, decoded, exchange = {}, Counter(), IndexEncoder.exchange
    for fast in (False, True):
        with monkeypatch.context() as patch:
            count = partial(decoded.update, [fast])
            seen = lambda *args, count=count, **named: count() or exchange(*args, **named)  # noqa: E731
            patch.setattr(IndexEncoder, "exchange", seen)
            counts[fast] = record(tmp_path / str(fast), monkeypatch, NeverAnswered(how), fast, **options).counts
    assert counts[True] == counts[False] and counts[True]["exchanges"] == 600
    assert files(tmp_path / "True") == files(tmp_path / "False")
    # The fast way needs no exchange for them, except where the client's end alone gave them to a decoder.
    assert decoded[False] >= 900
    assert decoded[True] <= (300 if how == "half" else 0)
