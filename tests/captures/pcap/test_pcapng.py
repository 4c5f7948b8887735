"""The pcapng blocks against scapy, and against damage."""

import random
import struct
from pathlib import Path

import pytest
from barnabas.captures import NotACapture
from barnabas.captures.pcap import packets, pcapng
from barnabas.captures.pcap.pcapng import CaptureReader, Packet
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgReader, PcapNgWriter, RawPcapNgReader, wrpcap

NOW = 1_795_223_022_323_024_604
SAMPLE = packets.build(("127.0.0.1", 50000), ("127.0.0.1", 9092), 1, 2, packets.ACK, b"payload")


def read(path: Path) -> tuple[list[Packet], CaptureReader]:
    with path.open("rb") as file:
        reader = CaptureReader(file)
        return list(reader.packets()), reader


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "a.pcapng"
    blocks = [
        pcapng.section_header("tester", "a section"),
        pcapng.interface_description("client leg"),
        pcapng.interface_description("broker leg"),
        pcapng.enhanced_packet(0, NOW, SAMPLE, ("first", "second é"), pcapng.INBOUND),
        pcapng.custom_block(32473, b"12345"),
        pcapng.enhanced_packet(1, NOW + 1, SAMPLE[:-1]),
        pcapng.enhanced_packet(0, NOW + 2, SAMPLE, (), pcapng.OUTBOUND),
    ]
    path.write_bytes(b"".join(blocks))
    return path


def test_written_blocks_are_read(written: Path) -> None:
    found, reader = read(written)
    assert [(p.interface, p.time_ns, p.data, p.comments) for p in found] == [
        (0, NOW, SAMPLE, ("first", "second é")),
        (1, NOW + 1, SAMPLE[:-1], ()),
        (0, NOW + 2, SAMPLE, ()),
    ]
    assert (reader.application, reader.comment, reader.note) == ("tester", "a section", None)
    assert [(i.name, i.units_per_second) for i in reader.interfaces] == [
        ("client leg", 10**9),
        ("broker leg", 10**9),
    ]
    raw = written.read_bytes()
    assert all(raw[p.data_offset :].startswith(p.data) for p in found)
    assert reader.last_custom is not None
    assert reader.last_custom.body[4:9] == b"12345"


def test_scapy_reads_the_same_packets_and_times(written: Path) -> None:
    with RawPcapNgReader(str(written)) as reader:
        found = [(data, (meta.tshigh << 32) + meta.tslow, meta.tsresol, meta.ifname) for data, meta in reader]
    assert found == [
        (SAMPLE, NOW, 10**9, b"client leg"),
        (SAMPLE[:-1], NOW + 1, 10**9, b"broker leg"),
        (SAMPLE, NOW + 2, 10**9, b"client leg"),
    ]
    with PcapNgReader(str(written)) as reader:
        dissected = list(reader)
    assert bytes(dissected[0][TCP].payload) == b"payload"
    assert dissected[0].comments == [b"first", "second é".encode()]


def test_tshark_reads_comments_names_and_direction(written: Path, tshark) -> None:
    fields = ["frame.time_epoch", "frame.interface_name", "frame.comment", "frame.packet_flags_direction"]
    lines = tshark(written, "tcp", "-T", "fields", *(f"-e{field}" for field in fields))
    first = lines[0].split("\t")
    assert first[0] == "1795223022.323024604"
    assert first[1] == "client leg"
    assert "first" in first[2] and "second é" in first[2]
    assert int(first[3], 0) == 1


@pytest.mark.parametrize("nano", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_classic_pcap_of_scapy(tmp_path: Path, nano: bool, order: str) -> None:
    path = tmp_path / "a.pcap"
    packet = Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1234, dport=9092) / b"abc"
    packet.time = 1_700_000_000.25
    wrpcap(str(path), [packet, packet], nano=nano, endianness=order)
    found, reader = read(path)
    assert reader.note is None
    assert [(p.time_ns, p.data, p.linktype) for p in found] == [(1_700_000_000_250_000_000, bytes(packet), 1)] * 2
    path.write_bytes(path.read_bytes()[:-1])
    found, reader = read(path)
    assert len(found) == 1
    assert "ends in the middle" in str(reader.note)


def test_pcapng_of_scapy(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    packet = Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1234, dport=9092) / b"abc"
    packet.time = 1_700_000_000.25
    writer = PcapNgWriter(str(path))
    writer.write(packet)
    writer.close()
    found, _ = read(path)
    assert [(p.time_ns, p.data) for p in found] == [(1_700_000_000_250_000_000, bytes(packet))]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("resolution", "ticks", "expected"),
    [
        (3, 1_700_000_000_123, 1_700_000_000_123_000_000),
        (6, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (9, 123, 123),
        (12, 5_000, 5),
        (0x80 | 10, 1024 * 5 + 512, 5_500_000_000),
    ],
)
def test_byte_orders_and_resolutions(tmp_path: Path, order: str, resolution: int, ticks: int, expected: int) -> None:
    def block(kind: int, body: bytes) -> bytes:
        size = len(body) + 12
        return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)

    option = struct.pack(order + "HHB3x", 9, 1, resolution) + bytes(4)
    path = tmp_path / "a.pcapng"
    head = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(1, struct.pack(order + "HHI", 101, 0, 0) + option)
    path.write_bytes(head + block(0x80000001, b"somebody else's")[:-5] + b"!" + struct.pack(order + "I", 27)[:4])
    good = (
        head
        + block(0x80000001, b"unknown block!!!")
        + block(6, struct.pack(order + "IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, 4, 9) + b"abcd")
        + block(3, struct.pack(order + "I", 3) + b"xyz\0")
    )
    assert read(path)[1].note is not None
    path.write_bytes(good)
    found, reader = read(path)
    assert reader.note is None
    assert [(p.time_ns, p.data, p.size, p.linktype) for p in found] == [
        (expected, b"abcd", 9, 101),
        (0, b"xyz", 3, 101),
    ]


def test_a_second_section_has_its_own_interfaces(written: Path) -> None:
    written.write_bytes(written.read_bytes() * 2)
    found, reader = read(written)
    assert [p.interface for p in found] == [0, 1, 0, 2, 3, 2]
    assert reader.note is None


def test_every_cut_of_the_last_block_ends_cleanly(written: Path) -> None:
    whole = written.read_bytes()
    last = read(written)[0][-1].offset
    for cut in range(last, len(whole)):
        written.write_bytes(whole[:cut])
        found, reader = read(written)
        assert len(found) == 2
        assert reader.end == last
        assert (reader.note is None) == (cut == last)


def test_damage_never_raises(written: Path) -> None:
    whole, chance = written.read_bytes(), random.Random(7)
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        written.write_bytes(data)
        try:
            assert len(read(written)[0]) <= 4
        except NotACapture:
            assert data[:12] != whole[:12]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (b"\x1f\x8b\x08\x00" + bytes(20), "gzip"),
        (b"\n\r\r\n" + bytes(40), "not a capture"),
        (b"hello, world", "not a capture: it starts with 68 65 6c 6c"),
        (b"BRNBIDX1" + bytes(56), "next to it"),
    ],
)
def test_files_that_are_no_captures(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(NotACapture, match=text) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
