"""Kafka conversations as packets of others' captures: made up, spoiled, and written as pcap or pcapng."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

from barnabas.captures.pcap import pcapng
from barnabas.captures.pcap.packets import build
from barnabas.decoder import encode_request, encode_response
from harness.wire import with_size

NOW = 1_795_223_022_000_000_000


Packet = tuple[int, bytes]
LINKS: dict[int, Callable[[bytes], bytes]] = {
    1: lambda p: p,
    113: lambda p: bytes(14) + p[12:],
    276: lambda p: p[12:14] + bytes(18) + p[14:],
    101: lambda p: p[14:],
    0: lambda p: b"\x02\0\0\0" + p[14:],
    108: lambda p: b"\0\0\0\x02" + p[14:],
}
"""An Ethernet packet as one of each link type."""


def conversation(number: int, chance: random.Random, count: int = 30, host: str = "10.0.0.%d") -> list[Packet]:
    """A connection's packets, cut anywhere: Metadata, acks=0, unknown versions, surplus bytes, damaged bodies."""
    client, broker = (host % (number + 1), 40000 + number), (host % 200, 9092)
    next_ = [chance.randrange(1 << 32), chance.randrange(1 << 32)]
    out: list[Packet] = []
    time_ns = NOW + number

    def put(side: int, data: bytes, flags: int = 0x18) -> None:
        nonlocal time_ns
        time_ns += chance.randrange(1, 100_000)
        ends = (client, broker) if side == 0 else (broker, client)
        out.append((time_ns, build(*ends, next_[side], next_[1 - side], flags, data, side)))
        next_[side] = next_[side] + len(data) + (flags & 3 != 0) & 0xFFFFFFFF

    put(0, b"", 2)
    put(1, b"", 0x12)
    put(0, b"", 0x10)
    streams = [b"", b""]
    for i in range(count):
        kind = chance.randrange(10)
        version = 40 if kind == 0 else 1
        topics = [{"name": "t" * chance.randrange(1, 300)} for _ in range(chance.randrange(1, 4))]
        request = encode_request(3, 1, {"topics": topics}, correlation_id=i, client_id=f"c-{number}")
        if kind == 0:
            request = request[:2] + struct.pack(">h", version) + request[4:]
        if kind == 1:
            request += b"surplus"
        if kind == 2:
            request = request[:-3]
        if kind == 3:
            body = {"transactional_id": None, "acks": 0, "timeout_ms": 1, "topic_data": []}
            request = encode_request(0, 3, body, correlation_id=i, client_id=None)
        streams[0] += with_size(request)
        answer = encode_response(
            3,
            1,
            {
                "brokers": [{"node_id": 1, "host": "b" * chance.randrange(200), "port": 9092, "rack": None}],
                "controller_id": 1,
                "topics": [
                    {"error_code": chance.choice([0, 0, 3]), "name": "t", "is_internal": False, "partitions": []}
                ],
            },
            correlation_id=i,
        )
        if kind == 4:
            answer = answer[: len(answer) // 2]
        if kind == 5:
            answer += b"!"
        if kind != 3 and chance.random() > 0.05:
            streams[1] += with_size(answer)
        if chance.random() < 0.03:
            streams[1] += with_size(struct.pack(">i", 9999) + b"orphan")
        if chance.random() < 0.6:
            for side in (0, 1):
                while streams[side]:
                    step = chance.choice([len(streams[side]), 1, 7, 100, 1448])
                    put(side, streams[side][:step])
                    streams[side] = streams[side][step:]
                    if chance.random() < 0.2:
                        put(1 - side, b"", 0x10)
    end = chance.choice(["fin", "rst", "open"])
    if end == "fin":
        put(0, b"", 0x11)
        put(1, b"", 0x11)
        put(0, b"", 0x10)
    elif end == "rst":
        put(1, b"", 0x14)
    return out


def spoiled(found: list[Packet], chance: random.Random, how: str) -> list[Packet]:
    """Packets as networks and capture tools deliver them."""
    out = list(found)
    for _ in range(len(out) // 10):
        i = chance.randrange(len(out) - 1)
        if how == "reordered":
            out[i], out[i + 1] = out[i + 1], out[i]
        elif how == "doubled":
            out.insert(i + 1, out[i])
        elif how == "lost":
            del out[i]
        elif how == "late":
            out = out[i // 3 :]
            break
    return out


def as_pcap(found: list[Packet], order: str = "<", nano: bool = True) -> bytes:
    head = struct.pack(order + "IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)
    return head + b"".join(
        struct.pack(order + "IIII", t // 10**9, t % 10**9 // (1 if nano else 1000), len(data), len(data)) + data
        for t, data in found
    )


def pcap_file(folder: Path, found: list[Packet], name: str = "capture.pcap") -> Path:
    """The packets as a pcap file in this folder."""
    path = folder / name
    path.write_bytes(as_pcap(found))
    return path


def as_pcapng(found: list[Packet]) -> bytes:
    head = pcapng.section_header("somebody") + pcapng.interface_description("eth0")
    return head + b"".join(pcapng.enhanced_packet(0, t, data, ("x",) if t % 7 == 0 else ()) for t, data in found)


def traffic(seed: int, how: str = "as sent", host: str = "10.0.0.%d") -> list[Packet]:
    chance = random.Random(seed)
    together = sorted(p for n in range(4) for p in conversation(n, chance, host=host))
    return spoiled(together, chance, how)


def one_connection(*parts: tuple[int, bytes], port: int = 9092) -> list[tuple[int, bytes]]:
    client, broker = ("10.0.0.1", 40000), ("10.0.0.2", port)
    found, next_ = [], [1000, 2000]
    for side, data in ((0, b"syn"), (1, b"syn"), *parts):
        flags = (2, 0x12)[side] if data == b"syn" else 0x18
        ends = (client, broker) if side == 0 else (broker, client)
        payload = b"" if data == b"syn" else data
        acknowledged = next_[1 - side] if flags != 2 else 0
        found.append((NOW + len(found) * 1000, build(*ends, next_[side], acknowledged, flags, payload, side)))
        next_[side] += len(payload) + (data == b"syn")
    return found


def snapped(found: list[Packet], size: int) -> bytes:
    """A pcap of packets that were cut at `size` bytes when they were captured (tcpdump -s)."""
    head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, size, 1)
    return head + b"".join(
        struct.pack("<IIII", t // 10**9, t % 10**9, min(len(d), size), len(d)) + d[:size] for t, d in found
    )
