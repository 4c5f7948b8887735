"""Events of a closed segment are the same whether packets that are a whole frame are taken as such or followed as packets."""

from __future__ import annotations

import pickle
import random
import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Recorder
from barnabas.captures.pcap import pcapng
from barnabas.captures.pcap.packets import ACK, MAX_PAYLOAD, PSH, SYN
from barnabas.captures.reading.events import CarriedEvents, EventReader
from barnabas.captures.reading.indexing.damage import DamageTolerantReader
from barnabas.captures.reading.indexing.packet_events import PacketFollower
from barnabas.captures.tables import find_segments
from barnabas.decoder import Exchange, Topics, encode_request
from barnabas.decoder.connection import connection
from barnabas.decoder.connection.api_versions import PeerInfo
from crc32c import crc32c
from harness.run.slices import only, thin
from harness.wire import with_size
from traffic.random_traffic import START, MixedTraffic

ALL = sorted(path for path in Path(__file__).parents[2].rglob("*.pcapng") if path.is_file())


class Reading:
    """What a reader gives, event by event as it is then, and what it knows in the end; by the packets, or as it is read."""

    def __init__(self, path: Path, by_packets: bool, carried: CarriedEvents | None = None) -> None:
        self.whole = 0  # frames that were taken whole
        with pytest.MonkeyPatch.context() as patch:
            if by_packets:
                patch.setattr(DamageTolerantReader, "frames", lambda self: self.packets())
            else:
                patch.setattr(PacketFollower, "whole_frame", self._counted(PacketFollower.whole_frame))
            reader = EventReader(path, carried=pickle.loads(pickle.dumps(carried)))
            self.events = [
                (plain(event), reader.bytes_read, reader.bytes_known) for event in chain(reader.read(), reader.end())
            ]
        self.carried = reader.carry()
        self.notes = reader.note, reader.lost, reader.bytes_read
        self.waiting = [plain(self.carried), [plain(each.decoder.pending()) for each in self.carried.streams.values()]]

    def _counted(self, whole_frame: Any) -> Any:
        def counted(follower: PacketFollower, *given: Any) -> Any:
            events = whole_frame(follower, *given)
            self.whole += events is not None
            return events

        return counted


def plain(value: Any) -> Any:
    """A value with all that is in it, as it is now."""
    if isinstance(value, Topics):
        return dict(value.names)
    if isinstance(value, PeerInfo):
        return value.software_name, value.software_version, dict(value.offered or {})
    if is_dataclass(value):
        # what was decoded of an exchange depends on who asked
        shown = [each.name for each in fields(value) if not (isinstance(value, Exchange) and each.name.startswith("_"))]
        return type(value).__name__, [plain(getattr(value, name)) for name in shown]
    if isinstance(value, dict):
        return [(plain(key), plain(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if isinstance(value, (int, str, bytes, frozenset, type(None))) else type(value).__name__


def compare(path: Path, carried: CarriedEvents | None = None) -> Reading:
    reading, reference = Reading(path, False, carried), Reading(path, True, carried)
    for number, (found, expected) in enumerate(zip(reading.events, reference.events, strict=False)):
        assert found == expected, (path, number)
    assert len(reading.events) == len(reference.events)
    assert reading.notes == reference.notes
    assert reading.waiting == reference.waiting
    return reading


@pytest.fixture(scope="module", params=only((None, 200), None))
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Recordings with requests carried over between segments, broker legs, notes, losses, bytes that are no frames; one is plain."""
    place = tmp_path_factory.mktemp("odd")
    for seed, odd in ((2, 0), (3, 0.05), (4, 0.3)):
        recorder = Recorder(place / str(seed), segment_bytes=200_000, snaplen=request.param, redact=seed != 4)
        MixedTraffic(seed, 1500, odd=odd, large=0.02).run(recorder)
        recorder.close()
    return sorted(place.iterdir())


def test_recordings(recorded: list[Path]) -> None:
    for directory in recorded:
        reading = compare(directory)
        assert reading.whole > len(reading.events) / 10


def test_segment_by_segment(recorded: list[Path]) -> None:
    """Each way goes on where the other one left."""
    for directory in recorded:
        carried = None
        for number, segment in enumerate(find_segments(directory).segments):
            compare(segment.path, carried)
            carried = Reading(segment.path, bool(number % 2), carried).carried
        compare(segment.path)


@pytest.mark.slow
@pytest.mark.parametrize("part", thin(range(4), 1))
def test_every_segment_of_the_tests(tmp_path: Path, part: int) -> None:
    whole = 0
    for number, path in enumerate(ALL[part::4]):
        copy = tmp_path / f"{number}.pcapng"
        shutil.copy(path, copy)
        whole += compare(copy).whole
    assert whole > 100


def test_wrong_packets_whose_sums_fit(recorded: list[Path], tmp_path: Path) -> None:
    """A segment as another program might write it: any number may be wrong, and packets may lack, or come again."""
    chance, path = random.Random(8), tmp_path / "20260101-000000-0000.pcapng"
    segments = [segment.path.read_bytes() for directory in recorded for segment in find_segments(directory).segments]
    whole = 0
    for _ in range(60):
        blocks = list(blocks_of(chance.choice(segments)))
        for _ in range(chance.choice((1, 3, 30))):
            at = chance.randrange(4, len(blocks) - 2)  # the last block stays the last
            if kind_of(blocks[at]) == pcapng.ENHANCED_PACKET:
                blocks[at : at + 2] = chance.choice(WRONG)(blocks[at], blocks[at + 1], chance)
        if chance.random() < 0.1:
            resolution = blocks[1].index(b"\x09\0\1\0\x09")
            blocks[1][resolution + 4] = 6  # microseconds
        path.write_bytes(sealed(blocks))
        with path.open("rb") as file:
            assert DamageTolerantReader(file).sealed
        whole += compare(path).whole
    assert whole > 1000


def blocks_of(data: bytes) -> Iterator[bytearray]:
    at = 0
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 4)[0]
        yield bytearray(data[at : at + size])
        at += size


def kind_of(block: bytes | bytearray) -> int:
    return int.from_bytes(block[:4], "little")


def sealed(blocks: list[bytearray]) -> bytes:
    """These blocks as a segment, with the sums that fit them."""
    data, start = bytearray(), 0
    for block in blocks:
        if kind_of(block) == pcapng.CUSTOM_NO_COPY:
            struct.pack_into("<I", block, 20, crc32c(bytes(data[start:])))
            struct.pack_into("<q", block, 28, len(data) - start)
            start = len(data) + len(block)
        data += block
    return bytes(data)


def flipped(block: bytearray, following: bytearray, chance: random.Random) -> list[bytearray]:
    """A bit of the headers, of the frame's first bytes, or behind the packet."""
    places = (*range(8, min(len(block) - 4, 130)), *range(len(block) - 16, len(block) - 4))
    block[chance.choice(places)] ^= 1 << chance.randrange(8)
    return [block, following]


def with_number(at: int, numbers: tuple[bytes, ...]) -> Any:
    def wrong(block: bytearray, following: bytearray, chance: random.Random) -> list[bytearray]:
        number = chance.choice(numbers)
        place = at if at >= 0 else len(block) + at
        block[place : place + len(number)] = number
        return [block, following]

    return wrong


WRONG: tuple[Any, ...] = (
    flipped,
    flipped,
    with_number(-16, (b"\1\0\4\0note", b"\1\0\4\0", b"\0\0\0\0")),  # a comment in place of the direction
    with_number(8, (b"\1\0\0\0",)),  # the broker leg
    with_number(12, (b"\xff\xff\xff\xff", b"\0\0\0\x80")),  # a time that no clock has shown
    with_number(24, (b"\xff\0\0\0", b"\xff\xff\0\0", b"\0\0\0\x20")),  # the length on the wire
    with_number(82, (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\1\0", b"GET ")),  # the size of a frame
    with_number(-4, (b"\0\0\0\0", b"\x10\0\0\0")),  # the length again
    with_number(75, (b"\x02", b"\x10", b"\x11", b"\x14")),  # SYN, ACK, FIN, RST
    lambda block, following, chance: [following],
    lambda block, following, chance: [following, block],
    lambda block, following, chance: [block, block, following],
    lambda block, following, chance: [bytearray(b"\x02\0\0\0" + block[4:]), following],
    lambda block, following, chance: [block, bytearray(struct.pack("<3I", 99, 12, 12)), following],
    lambda block, following, chance: [block, bytearray(pcapng.section_header("barnabas")), following],
)


@pytest.mark.parametrize("lacking", [{SYN, SYN | ACK}, {SYN | ACK}, {SYN}])
@pytest.mark.parametrize("first", [0, 40])
def test_responses_alone(recorded: list[Path], tmp_path: Path, lacking: set[int], first: int) -> None:
    """Without handshakes or requests, a response is taken from where its request is known. `first`: packets with all requests."""
    for segment in find_segments(recorded[0]).segments:
        kept = []
        for number, block in enumerate(blocks_of(segment.path.read_bytes())):
            if kind_of(block) == pcapng.ENHANCED_PACKET:
                tcp = block[62 if block[40:42] == b"\x08\0" else 82 :]
                if tcp[13] in lacking or (number > first and tcp[13] & PSH and tcp[2:4] == (9092).to_bytes(2, "big")):
                    continue
            kept.append(block)
        (tmp_path / segment.path.name).write_bytes(sealed(kept))
    compare(tmp_path)


@pytest.mark.parametrize("carried", [False, True])
def test_the_end_of_a_large_frame_that_looks_like_one(tmp_path: Path, carried: bool) -> None:
    """The last packet of a request holds bytes that would be a whole one."""
    inside = with_size(encode_request(12, 4, {"group_id": "inside"}, correlation_id=9, client_id=None))
    head = encode_request(12, 4, {"group_id": "outside"}, correlation_id=7, client_id=None)
    frame = with_size(head + bytes(MAX_PAYLOAD - 4 - len(head)) + inside)
    recorder = Recorder(tmp_path, redact=False)
    recorder.opened(1, START, ("10.0.0.1", 1001), ("10.0.0.9", 9092))
    for number in (5, 6):
        recorder.data(1, 0, START + number, with_size(encode_request(12, 4, {}, correlation_id=number, client_id=None)))
    recorder.data(1, 0, START + 7, frame)
    if carried:
        recorder.rotate()
    recorder.data(1, 0, START + 8, with_size(encode_request(12, 4, {}, correlation_id=8, client_id=None)))
    recorder.closed(1, START + 9)
    recorder.close()
    asked = [event[1][0][1][5] for event, *_ in compare(tmp_path).events if event[0] == "RequestSeen"]
    assert asked == [5, 6, 7, 8]


def test_broker_legs_before_their_requests(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.opened(1, START, ("10.0.0.1", 1001), ("10.0.0.9", 9092))
    for number in range(9):
        if number % 3 == 2:
            leg = with_size(encode_request(12, 3, {"group_id": "other"}, correlation_id=number, client_id=None))
            recorder.broker_leg(1, 0, START + number, leg, "changed")
        recorder.data(1, 0, START + number, with_size(encode_request(12, 4, {}, correlation_id=number, client_id=None)))
    recorder.close()
    marks = [event[1][0][1][16][1] for event, *_ in compare(tmp_path).events if event[0] == "RequestSeen"]
    assert [bool(each[8]) for each in marks] == 3 * [False, False, True]


def test_a_fault_of_the_decoder(recorded: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the frames of its connection, and of no other."""
    read_header = connection.read_header

    def faulty(exchange: Exchange) -> bool:
        if (exchange.request or b"")[4:8] == (20).to_bytes(4, "big") and exchange.connection == 1:
            raise ZeroDivisionError
        return read_header(exchange)

    monkeypatch.setattr(connection, "read_header", faulty)
    events = [event for event, *_ in compare(recorded[0]).events if event[0] == "RequestSeen"]
    asked = Counter(event[1][0][1][0] for event in events)
    assert asked[1] == 20 and asked[2] > 100


def test_damaged_segments(recorded: list[Path], tmp_path: Path) -> None:
    chance, path = random.Random(9), tmp_path / "20260101-000000-0000.pcapng"
    data = bytearray(find_segments(recorded[0]).segments[0].path.read_bytes())
    for _ in range(5):
        data[chance.randrange(len(data))] ^= 0x55
        path.write_bytes(data)
        assert compare(path).whole == 0
    path.write_bytes(data[: len(data) // 2])
    assert compare(path).whole == 0
