"""The ring: what is written is read, what is overtaken is counted exactly, and a reader finds back to a frame."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator

import pytest
from barnabas.proxy.ring.reader import Lost, RingReader, RingRecord
from barnabas.proxy.ring.ring import CHUNK, HOT, NONE, Kind, Ring, RingWriter
from harness.waiting import PATIENCE, until

SIZE = 4 * CHUNK


class Setup:
    def __init__(self, *, lossless: bool = False, slots: int = 1024, size: int = SIZE) -> None:
        self.ring = Ring.create(size, slots)
        self.bell, self.room_bell = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)
        self.ring.admit(0, lossless=lossless)
        self.writer = RingWriter(self.ring, {0: self.bell})
        self.reader = RingReader(Ring.attach(os.dup(self.ring.fd)), 0, self.bell, self.room_bell)
        self.streams: dict[tuple[int, int], int] = {}

    def open(self, connection: int) -> None:
        self._about(Kind.OPENED, connection)

    def _about(self, kind: Kind, connection: int) -> None:
        streams = [self.streams.get((connection, direction), 0) for direction in (0, 1)]
        self.writer.write(kind, connection, 0, 1, json.dumps({"streams": streams, "how": "fin"}).encode())

    def data(self, connection: int, direction: int, data: bytes, first: int) -> None:
        key = (connection, direction)
        self.writer.write(Kind.DATA, connection, direction, 1, data, first, self.streams.get(key, 0))
        self.streams[key] = self.streams.get(key, 0) + len(data)

    def snapshot(self, *connections: int) -> None:
        for connection in connections:
            self._about(Kind.PRESENT, connection)
        self.writer.write(Kind.PRESENT_END, 0, 0, 1, json.dumps({"open": len(connections)}).encode())

    def close(self, connection: int) -> None:
        self._about(Kind.CLOSED, connection)

    def read_all(self) -> Iterator[RingRecord | Lost]:
        while records := list(self.reader.read()):
            yield from records


def test_everything_is_read_in_order() -> None:
    setup = Setup()
    setup.open(1)
    sent = bytearray()
    got = bytearray()
    chance = random.Random(1)
    for number in range(3000):
        data = chance.randbytes(chance.choice((1, 100, 5000, 200_000, 600_000)) if number % 10 == 0 else 700)
        data = data[: SIZE // 4]
        setup.data(1, 0, data, 0)
        sent += data
        for record in setup.reader.read(4096):
            assert isinstance(record, RingRecord)
            got += record.data if record.kind == Kind.DATA else b""
    assert got == sent
    assert (setup.reader.lost_bytes, setup.reader.lost_chunks) == (0, 0)


@pytest.mark.parametrize(("size", "count"), [(64, 5000), (40_000, 200)], ids=["by descriptors", "by bytes"])
def test_a_loss_is_exact_and_ends_at_a_frame(size: int, count: int) -> None:
    """Frames are written cut in the middle; whatever was lost, the bytes handed out start at a frame again."""
    setup = Setup()
    setup.open(7)
    frame = size.to_bytes(4, "big") + bytes(range(256)) * (size // 256) + bytes(size % 256)
    half = len(frame) // 2
    read = {0: 0, 1: 0}
    lost = {0: 0, 1: 0}
    after_loss: list[bytes] = []

    def take() -> None:
        waiting = None
        for record in setup.read_all():
            if isinstance(record, Lost):
                lost[record.direction] += record.nbytes
                waiting = record.direction
            elif record.kind == Kind.DATA:
                if waiting == record.direction:
                    after_loss.append(record.data[:4])
                    waiting = None
                read[record.direction] += len(record.data)

    setup.data(7, 0, frame[:half], 0)
    take()
    for _ in range(count):  # every chunk: the rest of one frame and the beginning of the next
        for direction in (0, 1):
            setup.data(7, direction, frame[half:] + frame[:half], len(frame) - half)
    take()
    setup.snapshot(7)
    for direction in (0, 1):
        setup.data(7, direction, frame[half:] + frame, len(frame) - half)
    setup.close(7)
    take()
    for direction in (0, 1):
        assert lost[direction] > 0
        assert read[direction] + lost[direction] == setup.streams[7, direction]
    assert set(after_loss) == {frame[:4]}
    assert setup.reader.lost_bytes == sum(lost.values())
    assert setup.reader.lost_chunks > 0


def test_connections_that_came_and_went_during_a_loss() -> None:
    setup = Setup(slots=64)
    for connection in (1, 2):
        setup.open(connection)
    assert [record.connection for record in setup.read_all()] == [1, 2]
    setup.close(1)
    setup.open(3)
    setup.data(3, 1, b"abcd", 0)
    for _ in range(200):
        setup.data(2, 0, b"0123456789", 0)
    records = list(setup.read_all())
    assert Lost(2, 0, 10 * 200 - sum(len(r.data) for r in records if isinstance(r, RingRecord))) in records
    setup.snapshot(2, 3)
    setup.data(3, 1, b"efgh", 0)
    after = list(setup.read_all())
    assert [(r.kind, r.connection) for r in after if isinstance(r, RingRecord)] == [
        (Kind.OPENED, 3),
        (Kind.CLOSED, 1),
        (Kind.DATA, 3),
    ]
    assert Lost(3, 1, 4) in after
    assert setup.reader.lost_bytes == 4 + next(r.nbytes for r in records if isinstance(r, Lost))


def test_what_is_lost_at_the_very_end_is_reported_with_the_close() -> None:
    setup = Setup()
    setup.open(1)
    setup.data(1, 0, b"x" * 10, 0)
    list(setup.read_all())
    setup.data(1, 0, b"y" * 90, NONE)
    for _ in range(3000):
        setup.writer.write(Kind.NOTE, 9, 0, 1, b"fills the descriptors", 1)
    list(setup.read_all())
    setup.snapshot(1)
    setup.close(1)
    assert Lost(1, 0, 90) in list(setup.read_all())
    assert setup.reader.lost_bytes == 90


def test_what_is_lost_before_one_side_ends_is_reported_first() -> None:
    """An answer that was lost must not look like one that never came."""
    setup = Setup()
    setup.open(1)
    setup.data(1, 1, b"x" * 10, 0)
    list(setup.read_all())
    setup.data(1, 1, b"y" * 90, NONE)
    for _ in range(3000):
        setup.writer.write(Kind.NOTE, 9, 0, 1, b"fills the descriptors", 1)
    list(setup.read_all())
    setup.writer.write(Kind.ENDED, 1, 1, 1, b"", NONE, setup.streams[1, 1])
    setup.writer.write(Kind.ENDED, 2, 1, 1, b"", NONE, 0)  # of a connection that this reader does not know
    setup.close(1)
    found = [each for each in setup.read_all() if isinstance(each, Lost) or each.connection != 9]
    assert [each if isinstance(each, Lost) else each.kind for each in found] == [Lost(1, 1, 90), Kind.ENDED, Kind.CLOSED]
    assert setup.reader.lost_bytes == 90


def test_a_lossless_reader_stops_the_writer_and_loses_nothing() -> None:
    setup = Setup(lossless=True, slots=32768)
    setup.open(1)
    written = 0
    while setup.writer.has_room():
        setup.data(1, 0, bytes(CHUNK // 2), 0)
        written += CHUNK // 2
        assert written < SIZE
    setup.writer.blocked(True)
    assert sum(len(r.data) for r in setup.read_all() if isinstance(r, RingRecord) and r.kind == Kind.DATA) == written
    assert setup.writer.has_room()
    assert os.eventfd_read(setup.room_bell) >= 1
    assert setup.reader.lost_bytes == 0


def test_a_reader_that_is_gone_blocks_nobody() -> None:
    setup = Setup(lossless=True)
    while setup.writer.has_room():
        setup.data(1, 0, bytes(CHUNK // 2), 0)
    setup.ring.dismiss(0)
    assert setup.writer.has_room()


def test_an_idle_reader_is_woken_only_when_it_waits() -> None:
    setup = Setup()
    setup.data(1, 0, b"x", 0)
    setup.writer.ring_bells()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(setup.bell)
    list(setup.read_all())
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: (setup.reader.wait(600), woken.append(True)), daemon=True)
    thread.start()
    until(lambda: setup.reader._words[setup.reader._waiting_word])
    assert not woken
    setup.data(1, 0, b"x", 0)
    setup.writer.ring_bells()
    thread.join(PATIENCE)
    assert woken


def test_only_a_ring_can_be_attached() -> None:
    fd = os.memfd_create("other")
    os.ftruncate(fd, 8192)
    with pytest.raises(ValueError, match="not a ring"):
        Ring.attach(fd)
    os.close(fd)


def place(setup: Setup) -> int:
    """Where in the area the next chunk would go."""
    return setup.writer.space()[0]


@pytest.mark.parametrize("lossless", [False, True])
def test_while_readers_keep_up_the_same_memory_is_used_again(lossless: bool) -> None:
    setup = Setup(size=16 * CHUNK, lossless=lossless)
    setup.open(1)
    list(setup.read_all())
    for number in range(200):
        data = bytes([number % 251]) * CHUNK
        setup.data(1, 0, data, 0)
        (record,) = setup.read_all()
        assert isinstance(record, RingRecord) and record.data == data
        assert place(setup) <= HOT and setup.writer.has_room()
    assert setup.reader.lost_bytes == 0


def test_a_reader_that_hangs_costs_no_fresh_memory_and_comes_back_with_exact_losses() -> None:
    setup = Setup(size=16 * CHUNK)
    setup.open(1)
    list(setup.read_all())
    places = []
    for _ in range(100):
        setup.data(1, 0, b"x" * CHUNK, 0)
        places.append(place(setup))
    assert max(places[:12]) > HOT  # first all of the room is used, so that nothing is lost that need not be
    assert max(places[20:]) <= HOT
    setup.snapshot(1)
    got = [record for record in setup.read_all() if not isinstance(record, RingRecord) or record.kind == Kind.DATA]
    lost = sum(record.nbytes for record in got if isinstance(record, Lost))
    read = sum(len(record.data) for record in got if isinstance(record, RingRecord))
    setup.data(1, 0, b"y" * 10, 0)
    for record in setup.read_all():
        if isinstance(record, Lost):
            lost += record.nbytes
        elif record.kind == Kind.DATA:
            read += len(record.data)
    assert read + lost == 100 * CHUNK + 10
    assert setup.reader.lost_bytes == lost


def test_a_reader_that_must_not_lose_any_is_never_passed_over() -> None:
    setup = Setup(size=16 * CHUNK, lossless=True)
    setup.open(1)
    while setup.writer.has_room():
        setup.data(1, 0, b"x" * CHUNK, 0)
    written = setup.streams[1, 0]
    assert sum(len(r.data) for r in setup.read_all() if isinstance(r, RingRecord) and r.kind == Kind.DATA) == written
    assert setup.reader.lost_bytes == 0


def test_bytes_that_are_being_read_stay_where_they_are() -> None:
    setup = Setup(size=16 * CHUNK, lossless=True)
    chance = random.Random(5)
    setup.open(1)
    (_,) = setup.read_all()
    written: list[bytes] = []
    taken, records, record = 0, iter(()), None
    rewound, before = 0, 0
    for _ in range(1500):
        for _ in range(chance.randrange(4)):
            if setup.writer.has_room():
                written.append(chance.randbytes(8) * chance.choice((1, 1000, CHUNK // 40)))
                setup.data(1, 0, written[-1], 0)
            rewound += place(setup) < before
            before = place(setup)
        for _ in range(chance.choice((0, 1, 2, 9))):
            # what was written meanwhile has not touched it
            assert record is None or record.data == written[taken - 1]
            record = next(records, None)
            if record is None:
                records = setup.reader.read(chance.randrange(1, 20))
                continue
            assert isinstance(record, RingRecord) and record.data == written[taken]
            taken += 1
    list(records)
    assert taken > 500 and rewound > 5 and setup.reader.lost_bytes == 0


def test_a_burst_after_the_same_memory_was_used_again_is_not_taken_for_a_hung_reader() -> None:
    setup = Setup(size=16 * CHUNK)
    setup.open(1)
    for number in range(200):
        setup.data(1, 0, bytes([number % 251]) * (HOT // 3), 0)
        list(setup.read_all())
    for burst in range(1, 8):
        # nothing is read meanwhile, and it fits into half of the ring
        written = [bytes([burst, number]) * 10_000 for number in range(burst * 14)]
        for data in written:
            setup.data(1, 0, data, 0)
        assert [r.data for r in setup.read_all() if isinstance(r, RingRecord)] == written
    assert setup.reader.lost_bytes == 0
