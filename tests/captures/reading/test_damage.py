"""Damaged segments: a damaged block costs that block alone, and its place is reported."""

import random
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import NotACapture, Recorder, open_capture
from barnabas.captures.pcap.packets import ACK, PSH, SYN, build
from barnabas.captures.reading.indexing.damage import DamageTolerantReader, checksums_fit, spans
from barnabas.captures.reading.verify import verify
from barnabas.captures.recording.index import paths
from barnabas.captures.recording.segment import SYNC_MAGIC
from harness.recordings import metadata_answer, metadata_request
from harness.run.slices import thin
from harness.wire import with_size

NOW = 1_795_223_022_000_000_000
COUNT = 900
EPB_HEAD = 28  # block type, length, interface, stamp, two lengths


class Damaged:
    """A segment of 4 connections with some large frames, over several sync blocks, and what happens to it."""

    def __init__(self, directory: Path) -> None:
        recorder = Recorder(directory)
        for conn in range(1, 5):
            recorder.opened(conn, NOW, client=("10.0.0.1", 50000 + conn), broker=("10.0.0.2", 9092))
        for i in range(COUNT):
            names = ["x" * 30_000] * (i % 7) if i % 61 == 0 else ["y" * (i % 700)]
            request = decoder.encode_request(
                3, 1, {"topics": [{"name": name} for name in names]}, correlation_id=i, client_id="c"
            )
            response = decoder.encode_response(3, 1, {"topics": [{"name": name} for name in names]}, correlation_id=i)
            recorder.data(i % 4 + 1, 0, NOW + 1000 * i, with_size(request))
            recorder.data(i % 4 + 1, 1, NOW + 1000 * i + 500, with_size(response))
        recorder.close()
        self.path = next(directory.glob("*.pcapng"))
        self.good = self.path.read_bytes()
        with open_capture(directory) as capture:
            self.rows = {row.correlation_id: row for row in capture.rows()}
        with open(self.path, "rb") as file:
            reader = DamageTolerantReader(file)
            self.blocks = [(packet.offset, len(packet.data)) for packet in reader.packets()]
            assert reader.damage == [] and all(span.sound for span in reader.spans)
        assert len(spans(self.good)) >= 3

    def hit(self, *places: tuple[int, bytes]) -> None:
        """Overwrite bytes, and take the index away."""
        data = bytearray(self.good)
        for at, new in places:
            assert data[at : at + len(new)] != new
            data[at : at + len(new)] = new
        self.path.write_bytes(data)
        for path in paths(self.path):
            path.unlink(missing_ok=True)

    def block_of(self, at: int) -> tuple[int, int]:
        """Where the packet that holds a byte begins and ends."""
        start, size = max(block for block in self.blocks if block[0] <= at)
        return start, start + EPB_HEAD + size

    def frames_in(self, start: int, end: int) -> set[int]:
        """The exchanges with a frame that is, even in part, within these bytes."""
        found = set()
        for number, row in self.rows.items():
            for offset, size in ((row.request_offset, row.request_size), (row.response_offset, row.response_size)):
                if offset is not None and size is not None and offset < end and offset + size > start:
                    found.add(number)
        return found


@pytest.fixture
def damaged(tmp_path: Path) -> Damaged:
    return Damaged(tmp_path)


def check(damaged: Damaged, hit: list[int], certain: bool = True) -> None:
    """All exchanges but those in hit blocks are there; every hit is reported with its place."""
    touched = set().union(*(damaged.frames_in(*damaged.block_of(at)) for at in hit))
    with open_capture(damaged.path) as capture:
        rows = {row.correlation_id: row for row in capture.rows()}
        whole = {number for number, row in rows.items() if row.state == "paired"}
        assert set(damaged.rows) - whole <= touched
        assert set(rows) <= set(damaged.rows)
        for number in whole - touched:
            exchange = capture.exchange(rows[number])
            assert exchange.correlation_id == number and exchange.undecoded is None
            assert exchange.latency_ns == 500
        assert capture.note is not None and "damaged" in capture.note
        events = {e.exchange.correlation_id for e in capture.events() if type(e).__name__ == "ExchangeDone"}
        assert whole <= events
    damage = verify(damaged.path).damage
    for at in hit if certain else ():
        assert any(each.start <= at < each.end for each in damage), (at, damage)
    for each in damage:
        assert any(each.start <= at < each.end or damaged.frames_in(each.start, each.end) & touched for at in hit)


@pytest.mark.parametrize("seed", thin(range(3), 1))
def test_flipped_bytes_in_several_blocks(damaged: Damaged, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(2):
        hit = []
        for start, size in chance.sample(damaged.blocks[20:], chance.randint(2, 8)):
            # anywhere in the packet: Ethernet has no checksum here, so from the IP header on
            hit.append(start + EPB_HEAD + chance.randrange(14, size))
        damaged.hit(*((at, bytes([damaged.good[at] ^ chance.randrange(1, 256)])) for at in hit))
        check(damaged, hit)


@pytest.mark.parametrize("field", thin((0, 4, 8, 20, 24, "trailer"), 3))
def test_broken_block_structure(damaged: Damaged, field: int | str) -> None:
    chance = random.Random(str(field))
    hit = []
    for start, size in chance.sample(damaged.blocks[20:], 5):
        length = int.from_bytes(damaged.good[start + 4 : start + 8], "little")
        assert length >= EPB_HEAD + size
        hit.append(start + length - 4 if field == "trailer" else start + int(field))
    damaged.hit(*((at, b"\xfe\xdc\xba\x98") for at in hit))
    check(damaged, hit)


def test_a_hole_of_many_blocks(damaged: Damaged) -> None:
    start, end = 300_000, 380_000
    damaged.hit((start, bytes(end - start)))
    lost = damaged.frames_in(damaged.block_of(start)[0], end)
    with open_capture(damaged.path) as capture:
        whole = {row.correlation_id for row in capture.rows() if row.state == "paired"}
    assert set(damaged.rows) - whole <= lost and len(lost) < COUNT / 4
    damage = verify(damaged.path).damage
    assert damage[0].start <= start < damage[0].end and damage[-1].end >= end - 4


def test_damaged_sync_blocks(damaged: Damaged) -> None:
    first = damaged.good.find(SYNC_MAGIC)
    second = damaged.good.find(SYNC_MAGIC, first + 1)
    last = damaged.good.rfind(SYNC_MAGIC)
    damaged.hit((first, b"XX"), (second + 8, b"XXXX"), (last + 8, b"XXXX"))
    with open_capture(damaged.path) as capture:
        assert {row.correlation_id for row in capture.rows() if row.state == "paired"} == set(damaged.rows)
    damage = verify(damaged.path).damage
    assert any(each.start <= first < each.end for each in damage)


def test_a_connection_without_its_syn_keeps_its_exchanges(damaged: Damaged) -> None:
    """Without its SYN nobody knows which connection it is; its exchanges are there all the same."""
    syn = damaged.blocks[0][0]
    damaged.hit((syn + EPB_HEAD + 30, b"\xff\xff"))
    with open_capture(damaged.path) as capture:
        assert {row.correlation_id for row in capture.rows() if row.state == "paired"} == set(damaged.rows)
        assert {row.connection for row in capture.rows()} - {2, 3, 4} == {(1 << 31) + 1} or 1 in {
            row.connection for row in capture.rows()
        }


def test_traffic_that_looks_like_a_sync_block(tmp_path: Path) -> None:
    """Somebody sends one of our own segments through Kafka."""
    (tmp_path / "first").mkdir()
    inner = Damaged(tmp_path / "first").good
    recorder = Recorder(tmp_path / "second")
    for i in range(20):
        frame = (i + 100).to_bytes(4, "big") + inner[i * 60_000 : (i + 1) * 60_000]
        recorder.data(1, 0, NOW + i, metadata_request(i))
        recorder.data(1, 1, NOW + i, metadata_answer(i))
        recorder.data(1, 1, NOW + i, with_size(frame))
    recorder.close()
    path = next((tmp_path / "second").glob("*.pcapng"))
    assert [span.sound for span in spans(path.read_bytes())].count(False) == 0
    assert verify(path).is_well


def test_random_damage_never_raises(damaged: Damaged) -> None:
    """Whatever the bytes are: no exception, no end of the world."""
    chance = random.Random(7)
    for _ in range(12):
        data = bytearray(damaged.good[:400_000])
        for _ in range(chance.randint(1, 40)):
            at = chance.randrange(len(data))
            if chance.random() < 0.5:
                data[at] ^= chance.randrange(1, 256)
            else:
                del data[at : at + chance.randrange(1, 3000)]
        damaged.path.write_bytes(data)
        try:
            with open_capture(damaged.path) as capture:
                assert len(list(capture.exchanges())) == len(capture.rows())
            verify(damaged.path)
        except NotACapture:
            pass


@pytest.mark.parametrize("host", ["10.1.2.3", "2001:db8::7"])
@pytest.mark.parametrize("payload", [b"", b"x", b"xy" * 500, bytes(65_000), b"\xff" * 1001])
def test_checksums(host: str, payload: bytes) -> None:
    packet = build((host, 9092), (host, 1), 5, 6, ACK | PSH if payload else SYN, payload)
    assert checksums_fit(packet)
    for at in range(14, len(packet), max(len(packet) // 50, 1)):
        wrong = bytearray(packet)
        wrong[at] ^= 0x41
        if ":" in host and at in (14, 15, 16, 17, 21):
            continue  # traffic class, flow label and hop limit: IPv6 has no checksum of its own
        assert not checksums_fit(bytes(wrong)), at
    for cut in (0, 10, 30, len(packet) - 1):
        assert not checksums_fit(packet[:cut])
