"""Captures as other programs might have written them."""

from __future__ import annotations

from pathlib import Path

from barnabas.captures.pcap.pcapng import CaptureReader
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import wrpcap


def as_pcap(source: Path, target: Path) -> Path:
    """The packets of a recording's segment as a pcap file with nanoseconds, without the recorder's blocks and comments."""
    with open(source, "rb") as file, open(target, "wb") as out:
        out.write(bytes.fromhex("4d3cb2a1020004000000000000000000ffff000001000000"))
        for packet in CaptureReader(file, str(source)).packets():
            seconds, nanoseconds = divmod(packet.time_ns, 1_000_000_000)
            sizes = len(packet.data), len(packet.data)
            out.write(b"".join(n.to_bytes(4, "little") for n in (seconds, nanoseconds, *sizes)) + bytes(packet.data))
    return target


CLIENT, BROKER = "10.0.0.1", "10.0.0.2"


class TcpConversations:
    """TCP conversations made by scapy, on one clock; `packets` are those captured, which tests reorder, repeat and remove.

    side: 0 is the client. Every connection is known by the client's `port` and the `broker`'s. The client's sequence numbers run over
    the end of their space.
    """

    def __init__(self) -> None:
        self.packets: list[Packet] = []
        self.seconds = 0.0
        self._next: dict[tuple[int, int], list[int]] = {}

    def send(self, side: int, data: bytes = b"", flags: str = "PA", port: int = 40001, broker: int = 9092) -> None:
        """A packet, 1 ms behind the one before."""
        numbers = self._next.setdefault((port, broker), [0xFFFFFF00, 5000])
        ends, ports = (CLIENT, BROKER), (port, broker)
        tcp = TCP(sport=ports[side], dport=ports[1 - side], seq=numbers[side], ack=numbers[1 - side], flags=flags)
        packet = Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02") / IP(src=ends[side], dst=ends[1 - side]) / tcp / data
        self.seconds += 0.001
        packet.time = 1_700_000_000 + self.seconds
        self.packets.append(packet)
        self.step_back(side, -len(data) - ("S" in flags or "F" in flags), port, broker)

    def step_back(self, side: int, count: int, port: int = 40001, broker: int = 9092) -> None:
        """The next packet begins so many bytes earlier: they are sent again."""
        numbers = self._next.setdefault((port, broker), [0xFFFFFF00, 5000])
        numbers[side] = (numbers[side] - count) % (1 << 32)

    def handshake(self, port: int = 40001, broker: int = 9092) -> None:
        for side, flags in ((0, "S"), (1, "SA"), (0, "A")):
            self.send(side, b"", flags, port, broker)

    def stream(self, side: int, data: bytes, step: int = 100) -> None:
        """Bytes in packets of this size."""
        for start in range(0, len(data), step):
            self.send(side, data[start : start + step])

    def close(self) -> None:
        for side, flags in ((0, "FA"), (1, "FA"), (0, "A")):
            self.send(side, b"", flags)

    def save(self, folder: Path) -> Path:
        """The packets as a pcap file."""
        path = folder / "foreign.pcap"
        wrpcap(str(path), self.packets)
        return path
