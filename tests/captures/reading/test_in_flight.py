"""The requests in flight of a segment that is being written, wherever its last sync block is."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Capture, Recorder, Row, open_capture
from barnabas.captures.reading.selection import Selection
from barnabas.captures.recording.segment import SYNC_EVERY, SYNC_MAGIC
from barnabas.decoder.filter import compile
from harness import wire

NOW = 1_795_223_022_000_000_000


def request(number: int, size: int = 100) -> bytes:
    """A Metadata request of about `size` bytes."""
    topics = [{"name": f"{number}-{'x' * min(size - 60, 200)}"}] * max(size // 200, 1)
    return wire.with_size(decoder.encode_request(3, 9, {"topics": topics}, correlation_id=number, client_id=f"client {number % 3}"))


def response(number: int) -> bytes:
    return wire.with_size(decoder.encode_response(3, 9, {}, correlation_id=number))


class Traffic:
    """Requests on several connections, answered in order or not yet. `client`: the host of the clients; `broker`: of the broker."""

    def __init__(self, recorder: Recorder, connections: int = 5, client: str = "10.0.0.1", broker: str = "kafka") -> None:
        self.recorder, self.number, self.time_ns = recorder, 0, NOW
        self.waiting: dict[int, list[int]] = {number: [] for number in range(connections)}
        for number in self.waiting:
            recorder.opened(number, NOW, client=(client, 50000 + number), broker=(broker, 9092))

    def ask(self, connection: int, size: int = 100) -> None:
        self.number += 1
        self.time_ns += 1000
        self.recorder.data(connection, 0, self.time_ns, request(self.number, size))
        self.waiting[connection].append(self.number)

    def answer(self, connection: int) -> None:
        self.time_ns += 1000
        self.recorder.data(connection, 1, self.time_ns, response(self.waiting[connection].pop(0)))

    def expected(self) -> list[tuple[int, int, str]]:
        found = [(number, conn, f"client {number % 3}") for conn, numbers in self.waiting.items() for number in numbers]
        return sorted(found)


def waiting(capture: Capture) -> list[tuple[int, int, str | None]]:
    rows: list[Row] = capture.rows()[capture.done :]
    assert all(row.state == "pending" and capture.exchange(row).request == request(row.correlation_id)[4:] for row in rows[:50])
    return [(row.correlation_id, row.connection, row.client_id) for row in rows]


@pytest.mark.parametrize(("client", "broker"), [("10.0.0.1", "kafka"), ("fe80::1", "10.0.0.2"), ("desk", "fe80::2")])
def test_what_waits_is_shown_at_any_time(tmp_path: Path, client: str, broker: str) -> None:
    chance = random.Random(43)
    recorder = Recorder(tmp_path, segment_bytes=60_000)
    traffic = Traffic(recorder, client=client, broker=broker)
    capture: Capture | None = None
    for turn in range(2000):
        connection = chance.randrange(5)
        if traffic.waiting[connection] and chance.random() < 0.5:
            traffic.answer(connection)
        else:
            traffic.ask(connection)
        if turn % 97 == 0:
            recorder.flush()
            capture = capture or open_capture(tmp_path)
            capture.refresh()
            assert waiting(capture) == traffic.expected()
            with open_capture(tmp_path) as anew:
                assert waiting(anew) == traffic.expected()
    assert capture is not None and len(capture.segments) > 3
    recorder.close()
    capture.refresh()
    assert capture.done == len(capture.rows()) == traffic.number
    capture.close()


@pytest.mark.parametrize("hold", [100, 70_000, 300_000])
def test_a_request_that_is_older_than_the_last_sync_block(tmp_path: Path, hold: int) -> None:
    recorder = Recorder(tmp_path)
    traffic = Traffic(recorder)
    recorder.flush()
    with open_capture(tmp_path) as capture:
        traffic.ask(0, hold)
        forged = b"".join((struct.pack("<II", 0x40000BAD, 48), struct.pack("<I", 32473), SYNC_MAGIC, bytes(24), struct.pack("<I", 48)))
        for number in range(12_000):
            traffic.ask(1 + number % 4, 300)
            traffic.answer(1 + number % 4)
        recorder.data(4, 0, traffic.time_ns, wire.with_size(request(0)[4:] + forged))
        recorder.flush()
        assert recorder.path is not None
        assert recorder.path.with_name(recorder.path.name + ".part").stat().st_size > 3 * SYNC_EVERY
        capture.refresh()
        for each in (capture, open_capture(tmp_path)):
            rows = each.rows()
            assert [(row.correlation_id, row.connection) for row in rows[rows.done :]] == [(1, 0), (0, 4)]
            assert each.exchange(rows[rows.done]).request == request(1, hold)[4:]
            assert len(rows) == rows.done + 2 == 12_002
        recorder.data(3, 0, traffic.time_ns, wire.with_size(request(0)[4:] + 100 * forged))
        recorder.flush()
        capture.refresh()
        assert [(row.correlation_id, row.connection) for row in capture.rows()[capture.done :]] == [(1, 0), (0, 4), (0, 3)]
        traffic.answer(0)
        recorder.flush()
        capture.refresh()
        assert [row.correlation_id for row in capture.rows()[capture.done - 1 :]] == [1, 0, 0]
    recorder.close()


@pytest.mark.parametrize("vector", [False, True])
def test_filters_look_at_what_waits_anew(tmp_path: Path, vector: bool) -> None:
    recorder = Recorder(tmp_path)
    traffic = Traffic(recorder)
    topics = {text: compile(text) for text in ("pending > 1ms", "topic ~ '^1-'", "client == 'client 2' and pending > 0", "pending > 1000000h")}
    recorder.flush()
    with open_capture(tmp_path) as capture:
        kept = {text: Selection(capture, wanted, vector) for text, wanted in topics.items()}

        def found(text: str) -> list[int]:
            fresh = [capture.rows()[number].correlation_id for number in Selection(capture, topics[text], vector).rows()]
            assert [capture.rows()[number].correlation_id for number in kept[text].rows()] == fresh
            return fresh

        for connection in range(3):
            traffic.ask(connection)
        recorder.flush()
        capture.refresh()
        assert [found(text) for text in topics] == [[1, 2, 3], [1], [2], []]
        traffic.answer(1)  # 2: now 1 and 3 are in other places
        traffic.ask(4)
        recorder.flush()
        capture.refresh()
        assert [found(text) for text in topics] == [[1, 3, 4], [1], [], []]
        for connection in (0, 2, 4):
            traffic.answer(connection)
        recorder.flush()
        capture.refresh()
        assert [found(text) for text in topics] == [[], [1], [], []]
    recorder.close()
