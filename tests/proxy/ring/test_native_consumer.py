"""Chunks that go from the ring to native recorders: the same files, counts and losses as when they come as records."""

from __future__ import annotations

import json
import mmap
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.captures.recording import recording
from barnabas.proxy.native.accelerator import native
from barnabas.proxy.observers import recordings
from barnabas.proxy.observers.recordings import Recordings
from barnabas.proxy.observers.ring_feed import ConnectionEnds
from barnabas.proxy.observers.settings import RecordingConfig
from barnabas.proxy.processes.control_messages import RecordingState, StartRecording
from barnabas.proxy.ring.reader import Lost, RingReader, RingRecord
from barnabas.proxy.ring.ring import CHUNK, NONE, Kind, Ring, RingWriter
from torture.proxy.peers.traffic import produce
from traffic.random_traffic import SECRET, START, MixedTraffic

pytestmark = pytest.mark.skipif(not hasattr(native, "RingFeed"), reason="the accelerator is not there, or reads no rings")


class Reading:
    """A reader and what it feeds, as an observer has them."""

    def __init__(self, ring: Ring, number: int, bell: int, recordings: Recordings, tracks: bool) -> None:
        self.reader = RingReader(ring, number, bell, bell)
        self.recordings = recordings
        self.tracks = self if tracks else None
        self.bytes = [0, 0]
        self.went = 0
        self.losses: list[Lost] = []

    def begin(self) -> Any:
        return self.recordings.begin()

    def end(self, requests: int, responses: int) -> None:
        self.went += requests + responses
        self.bytes[0] += requests
        self.bytes[1] += responses
        self.recordings.end(requests + responses)

    def failed(self, connection: int, error: Exception) -> None:
        raise error

    def read(self) -> None:
        while records := [self._take(record) for record in self.reader.read(consumer=self.tracks)]:
            assert records
        assert self.reader._words[3] == self.reader._cursor

    def _take(self, record: RingRecord | Lost) -> None:
        to = self.recordings
        if isinstance(record, Lost):
            self.losses.append(record)
            to.lost(record.connection, record.direction, record.nbytes)
            return
        kind, conn, direction, time_ns, data, first = record
        if kind == Kind.DATA:
            self.bytes[direction] += len(data)
            to.data(conn, direction, time_ns, data, first)
        elif kind == Kind.OPENED:
            fields = json.loads(bytes(data))
            to.opened(conn, time_ns, ConnectionEnds(*(tuple(fields[name]) for name in ("client", "broker"))))
        elif kind == Kind.CLOSED:
            to.closed(conn, time_ns, json.loads(bytes(data))["how"])

    def state(self) -> Any:
        reader = self.reader
        return self.recordings.counts, self.bytes, self.losses, reader.lost_bytes, reader.lost_chunks


class Twins:
    """Takes traffic as a recorder does, puts it into a ring, and lets two read it: one by tracks, one record by record."""

    def __init__(self, folder: Path, seed: int, *, lossless: bool, record: bool, often: float) -> None:
        self.chance = random.Random(seed)
        self.lossless, self.often = lossless, often
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)
        self.ring = Ring.create((16 if lossless else 4) * CHUNK, 64 if not lossless else 1024)
        for number in (0, 1):
            self.ring.admit(number, lossless=lossless)
        self.writer = RingWriter(self.ring, {0: self.bell, 1: self.bell})
        self.streams: dict[int, list[int]] = {}
        self.about: dict[int, dict[str, Any]] = {}
        self.both = [
            Reading(
                self.ring,
                number,
                self.bell,
                Recordings(str(folder / name) if record else None, lambda event: None, RecordingConfig(300_000)),
                not number,
            )
            for number, name in enumerate(("tracks", "records"))
        ]

    def read(self) -> None:
        for each in self.both:
            each.read()
        if self.writer.snapshot_wanted():
            for conn, about in self.about.items():
                self._write(Kind.PRESENT, conn, about | {"streams": self.streams[conn]})
            self._write(Kind.PRESENT_END, 0, {"open": len(self.about)})
            for each in self.both:
                each.read()

    def _write(self, kind: Kind, conn: int, about: dict[str, Any], time_ns: int = 1) -> None:
        self.writer.write(kind, conn, 0, time_ns, json.dumps(about).encode())

    def caught_up(self) -> Iterator[Recordings]:
        """Both recordings, after they have read everything."""
        self.read()
        return (each.recordings for each in self.both)

    def opened(self, conn: int, time_ns: int, client: Any, broker: Any) -> None:
        self.about[conn], self.streams[conn] = {"client": client, "broker": broker}, [0, 0]
        self._write(Kind.OPENED, conn, self.about[conn] | {"streams": [0, 0]}, time_ns)

    def data(self, conn: int, direction: int, time_ns: int, data: bytes | memoryview) -> None:
        if not data or conn not in self.about:
            return
        if self.chance.random() < self.often or (self.lossless and not self.writer.has_room()):
            self.read()
        # Where frames begin is not known here; that of a chunk is enough for a reader to go on with something.
        streams = self.streams[conn]
        first = 0 if not streams[direction] or self.chance.random() < 0.3 else NONE
        self.writer.write(Kind.DATA, conn, direction, time_ns, data, first, streams[direction])
        streams[direction] += len(data)

    def closed(self, conn: int, time_ns: int, how: str, by: str = "") -> None:
        self._write(Kind.CLOSED, conn, {"how": how, "streams": self.streams.pop(conn)}, time_ns)
        del self.about[conn]

    def lost(self, conn: int, direction: int, nbytes: int) -> None:
        for each in self.caught_up():
            each.lost(conn, direction, nbytes)

    def note(self, conn: int, correlation_id: int, text: str) -> None:
        for each in self.caught_up():
            each.note(conn, correlation_id, text)

    def broker_leg(self, conn: int, direction: int, time_ns: int, frame: bytes, note: str) -> None:
        for each in self.caught_up():
            each.broker_leg(conn, direction, time_ns, frame, note)

    def flush(self) -> None:
        for each in self.caught_up():
            each.flush()

    def rotate(self) -> None:
        for each in self.caught_up():
            each._rotate()

    def close(self) -> None:
        self.read()
        for each in self.both:
            each.recordings.close()
        os.close(self.bell)


@pytest.fixture(autouse=True)
def _same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording.os, "urandom", lambda size: bytes(size))
    monkeypatch.setattr(recording.time, "strftime", lambda *a: "20261122-120000")
    monkeypatch.setattr(recordings, "now_ns", lambda: START)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize(
    ("seed", "odd", "lossless", "often"),
    [(1, 0.0, True, 0.02), (2, 0.02, True, 0.1), (3, 0.1, True, 0.3), (4, 0.0, False, 0.5), (5, 0.01, False, 0.02)],
)
def test_the_same_files_counts_and_losses(tmp_path: Path, seed: int, odd: float, lossless: bool, often: float) -> None:
    twins = Twins(tmp_path, seed, lossless=lossless, record=True, often=often)
    MixedTraffic(seed, 600, odd).run(twins)  # type: ignore[arg-type]
    twins.close()
    on_tracks, by_record = twins.both
    assert on_tracks.state() == by_record.state()
    assert files(tmp_path / "tracks") == files(tmp_path / "records")
    assert on_tracks.went > (0.5 if odd < 0.05 and lossless else 0.0) * sum(on_tracks.bytes)  # or nothing was tested here
    assert bool(on_tracks.losses) == (often < 0.1 and not lossless)
    with open_capture(tmp_path / "tracks") as capture:
        assert capture.verify() == []
    assert not any(SECRET in data for data in files(tmp_path / "tracks").values())


@pytest.mark.parametrize(("seed", "lossless"), [(6, True), (7, False)])
def test_the_same_counts_where_nothing_is_recorded(tmp_path: Path, seed: int, lossless: bool) -> None:
    twins = Twins(tmp_path, seed, lossless=lossless, record=False, often=0.05)
    MixedTraffic(seed, 400, 0.01).run(twins)  # type: ignore[arg-type]
    twins.close()
    on_tracks, by_record = twins.both
    assert on_tracks.state() == by_record.state()
    assert on_tracks.went > 0
    assert on_tracks.recordings.counts["exchanges"] > 50


def test_a_recording_that_begins_in_the_middle_of_frames(tmp_path: Path) -> None:
    """Nothing of a direction goes onto a track before its next frame start, whatever the other direction does."""
    twins = Twins(tmp_path, 8, lossless=True, record=False, often=0.05)
    traffic = MixedTraffic(8, 300, 0.0)
    traffic.run(twins)  # type: ignore[arg-type]
    twins.read()
    before = twins.both[0].went
    for each, name in zip(twins.both, ("tracks", "records"), strict=True):
        state = each.recordings.command(StartRecording(str(tmp_path / name)))
        assert isinstance(state, RecordingState) and state.recording
        assert each.recordings._barred
    traffic.run(twins)  # type: ignore[arg-type]
    twins.close()
    on_tracks, by_record = twins.both
    assert on_tracks.state() == by_record.state()
    assert on_tracks.went > before
    assert files(tmp_path / "tracks") == files(tmp_path / "records")


ENOUGH, WRITTEN = 0, 1
"""What the two processes share: whether the reader has seen what it waits for, and bytes of the whole stream once it has ended."""


def _write_on(ring: Ring, bell: int, unit: bytes, starts: list[int], least: int, shared: memoryview) -> None:
    """As fast as it goes, in whole chunks: nobody waits for the reader. At least `least` times, and until it has enough."""
    writer = RingWriter(ring, {0: bell})
    about = {"client": ("127.0.0.1", 1), "broker": ("127.0.0.1", 2)}
    writer.write(Kind.OPENED, 1, 0, 1, json.dumps(about | {"streams": [0, 0]}).encode())
    at, size = 0, len(unit) * least
    while at < size:
        within, end = at % len(unit), min(CHUNK, size - at)
        data = (unit + unit)[within : within + end] if within + end <= 2 * len(unit) else (unit * 8)[within : within + end]
        first = next((s - within for s in (*starts, len(unit)) if s >= within), NONE)
        if writer.snapshot_wanted():
            writer.write(Kind.PRESENT, 1, 0, 1, json.dumps(about | {"streams": [at, 0]}).encode())
            writer.write(Kind.PRESENT_END, 0, 0, 1, b'{"open": 1}')
        writer.write(Kind.DATA, 1, 0, 1, data, first if first < len(data) else NONE, at)
        at += len(data)
        if at == size and not shared[ENOUGH]:
            size += len(unit)
    writer.write(Kind.CLOSED, 1, 0, 1, json.dumps({"how": "fin", "streams": [size, 0]}).encode())
    shared[WRITTEN] = size


def test_bytes_that_are_overwritten_while_they_are_read_are_lost_and_no_others() -> None:
    """A chunk is copied part by part where frames are only counted: what was written over it in between is not taken."""
    chance = random.Random(8)
    frames = [produce(9, n, 0, value=chance.randbytes(size)) for n, size in enumerate([300_000, *[9] * 9000, 90_000])]
    starts = [sum(map(len, frames[:n])) for n in range(len(frames))]
    unit, shared = b"".join(frames), memoryview(mmap.mmap(-1, 16)).cast("Q")
    bell = os.eventfd(0, os.EFD_NONBLOCK)
    ring = Ring.create(4 * CHUNK, 64)
    ring.admit(0, lossless=False)
    reading = Reading(ring, 0, bell, Recordings(None, lambda event: None, RecordingConfig()), True)
    child = os.fork()
    if not child:
        try:
            _write_on(ring, bell, unit, starts, 150, shared)
        finally:
            os._exit(0)
    over = False
    while not over:
        over = os.waitpid(child, os.WNOHANG)[0] != 0
        for record in reading.reader.read(consumer=reading):
            reading._take(record)
        shared[ENOUGH] = reading.reader.lost_chunks > 0 and reading.bytes[0] > len(unit)
    reading.read()
    os.close(bell)
    counts, nbytes, losses, lost_bytes, lost_chunks = reading.state()
    assert nbytes[0] + lost_bytes == shared[WRITTEN]
    assert lost_chunks > 0 and losses and nbytes[0] > len(unit)
    assert counts["undecoded"] == counts["errors"] == 0 and 0 < counts["exchanges"] <= len(frames) * shared[WRITTEN] // len(unit)
