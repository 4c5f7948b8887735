"""A pcapng of many interfaces costs what they are, and each packet has the time and the link type of its own."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.captures.pcap import pcapng
from barnabas.captures.pcap.packet_windows import PacketWindows
from barnabas.decoder.schema import facts
from harness.wire import with_size

COUNT = 2_000
SECOND = 10**9
HEARTBEAT = facts.api_key("Heartbeat")
RESOLUTIONS = (0, 3, 6, 9)


def block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


def interface(resolution: int) -> bytes:
    """Whose stamps count 10^-resolution seconds."""
    option = struct.pack("<HHBxxx", 9, 1, resolution)
    return block(pcapng.INTERFACE_DESCRIPTION, struct.pack("<HHI", 1, 0, 65535) + option + struct.pack("<HH", 0, 0))


def packet(number: int, ticks: int, data: bytes) -> bytes:
    head = struct.pack("<IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return block(pcapng.ENHANCED_PACKET, head + data)


def segment(sequence: int, data: bytes, flags: int = 0x18) -> bytes:
    """Ethernet, IPv4 and TCP, from a client to a broker."""
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(data), 0, 0x4000, 64, 6, 0, bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
    return bytes(12) + b"\x08\0" + ip + struct.pack(">HHIIBBHHH", 40000, 9092, sequence, 1, 0x50, flags, 65535, 0, 0) + data


@pytest.mark.parametrize("sections", [1, 3])
def test_interfaces_between_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: int) -> None:
    """A new one in front of every packet, which was quadratic: 10,000 took 41 s. Counted, not timed."""
    asked: list[int] = []
    stamp = PacketWindows.stamp
    monkeypatch.setattr(PacketWindows, "stamp", lambda self, number: asked.append(number) or stamp(self, number))
    blocks, sequence, seconds = [], 1, 1_700_000_000
    expected = []
    for number in range(COUNT):
        at = number % (COUNT // sections + 1)
        if at == 0:
            blocks.append(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
        resolution = RESOLUTIONS[number % 4]
        fields = {"group_id": "g", "member_id": "m"}
        data = with_size(decoder.encode_request(HEARTBEAT, 4, fields, correlation_id=number))
        blocks += [interface(resolution), packet(at, (seconds + number) * 10**resolution, segment(sequence, data))]
        expected.append((number, (seconds + number) * SECOND))
        sequence += len(data)
    path = tmp_path / "many.pcapng"
    path.write_bytes(b"".join(blocks))
    with open_capture(path) as capture:
        found = [(row.correlation_id, row.time_ns) for row in capture.rows()]
        assert capture.note is None or "damaged" not in capture.note
    assert found == expected
    assert len(asked) <= 2 * COUNT, f"{len(asked)} for {COUNT} interfaces"
