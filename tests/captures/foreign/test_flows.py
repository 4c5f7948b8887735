"""The accelerator's way through foreign captures against the pure Python one: the same of everything."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from barnabas.captures.foreign.importer import Importer
from barnabas.captures.native import accelerator
from barnabas.captures.pcap import packet_windows
from barnabas.captures.pcap.pcapng import CaptureReader
from barnabas.captures.pcap.sources import CaptureSource
from barnabas.captures.reading.indexing import scan
from barnabas.captures.reading.indexing.index_builder import ForeignIndex
from barnabas.captures.recording.segment import check
from traffic.packets import LINKS, Packet, as_pcapng, traffic

TAGS = (b"\x81\0\0\x05", b"\x88\xa8\0\x05\x81\0\0\x06", b"\x91\0\0\x05")


def read(path: Path) -> list[object]:
    """Everything in the index of a capture."""
    source = CaptureSource(path)
    made = ForeignIndex(source, str(path))
    made.read_all()
    index, scanner = made.index, made.scanner
    try:
        content = [index.connections, index.lost, made.notes(), scanner.windows.offset, scanner.cut_packets, scanner.now_ns]
        strings = [index.string(number) for number in range(1, 6)]
        return [index.records(0, index.count).hex(), repr(content), strings]
    finally:
        made.close()
        index.close()
        source.close()


def with_options(data: bytes) -> bytes:
    """An IPv4 packet with 4 bytes of IP options."""
    length = int.from_bytes(data[16:18], "big") + 4
    return data[:14] + b"\x46" + data[15:16] + length.to_bytes(2, "big") + data[18:34] + b"\x01\x01\x01\x00" + data[34:]


def random_capture(seed: int) -> bytes:
    """Any link type, spoiled in some way, some packets cut, some tagged, as pcap or pcapng."""
    chance = random.Random(seed)
    how = chance.choice(["as sent", "reordered", "doubled", "lost", "late"])
    six = chance.random() < 0.3
    found = traffic(seed, how, "fd00::%x" if six else "10.0.0.%d")
    link = chance.choice(list(LINKS))
    snap = chance.choice([0, 0, 0, 120, 200, 600])
    packets: list[tuple[int, bytes, int]] = []
    for time_ns, data in found:
        odd = chance.random()
        if odd < 0.05 and not six:
            data = with_options(data)
        elif odd < 0.1 and not six:
            data = data[:16] + b"\0\0" + data[18:]  # as before the network card has split it
        data = data if link != 1 or odd < 0.6 else data[:12] + chance.choice(TAGS) + data[12:]
        data = LINKS[link](data)
        packets.append((time_ns, data[:snap] if snap else data, len(data)))
    if chance.random() < 0.3 and link == 1 and not snap:
        return as_pcapng([(t, d) for t, d, _ in packets])
    order, unit = chance.choice("<>"), chance.choice([1, 1000])
    head = struct.pack(order + "IHHiIII", 0xA1B23C4D if unit == 1 else 0xA1B2C3D4, 2, 4, 0, 0, 262144, link)
    return head + b"".join(
        struct.pack(order + "IIII", t // 10**9, t % 10**9 // unit, len(d), size) + d for t, d, size in packets
    )


needs_native = pytest.mark.skipif(accelerator.native is None, reason="the accelerator is not built")


@needs_native
@pytest.mark.parametrize("seed", range(40))
def test_the_walk_is_the_same(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "made"
    path.write_bytes(random_capture(seed))
    monkeypatch.setattr(packet_windows, "WINDOW", 3000 + 997 * (seed % 5))
    quick = read(path)
    monkeypatch.setattr(scan, "native", None)
    assert quick == read(path)
    assert quick[0] or " cut when captured" in str(quick[1])


@needs_native
def test_damage_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(8)
    path = tmp_path / "made"
    for seed in range(4):
        whole = random_capture(seed)
        for _ in range(15):
            data = bytearray(whole)
            for _ in range(chance.randint(1, 12)):
                data[chance.randrange(24, len(data))] = chance.randrange(256)
            path.write_bytes(data[: chance.randrange(300, len(data))])
            monkeypatch.setattr(scan, "native", accelerator.native)
            quick = read(path)
            monkeypatch.setattr(scan, "native", None)
            assert quick == read(path)


def blocks(order: str) -> bytes:
    """A pcapng of two sections: interfaces of odd resolutions, blocks nobody knows, simple packets, old packet blocks."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = struct.pack(order + "I", len(body) + 12)
        return struct.pack(order + "I", kind) + size + body + size

    def interface(link: int, resolution: int | None, offset: int = 0) -> bytes:
        options = b"" if resolution is None else struct.pack(order + "HHB3x", 9, 1, resolution)
        options += struct.pack(order + "HHq", 14, 8, offset) if offset else b""
        return block(1, struct.pack(order + "HHI", link, 0, 0) + options + bytes(4))

    section = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    units = {0: 10**6, 1: 10**9, 2: 1 << 20, 3: 10**9}
    out = section + interface(1, None) + interface(1, 9, 5) + interface(101, 0x80 | 20) + interface(113, 9)
    for number, (time_ns, data) in enumerate(traffic(9)):
        if number == 40:
            out += section + interface(1, None) + interface(1, 9, 5) + interface(101, 0x80 | 20) + interface(113, 9)
        which = number % 4
        ticks = time_ns * units[which] // 10**9 - (5 * units[which] if which == 1 else 0)
        packet = LINKS[{2: 101, 3: 113}.get(which, 1)](data)
        stamp = struct.pack(order + "II", ticks >> 32, ticks & 0xFFFFFFFF)
        sizes = struct.pack(order + "II", len(packet), len(packet))
        if number % 11 == 5:
            out += block(2, struct.pack(order + "HH", which, 0) + stamp + sizes + packet)
        elif number % 13 == 7 and which == 0:
            out += block(3, struct.pack(order + "I", len(packet)) + packet)
        else:
            out += block(6, struct.pack(order + "I", which) + stamp + sizes + packet + bytes(-len(packet) % 4))
        if number % 9 == 4:
            out += block(0x7777, b"nobody knows") + block(5, bytes(20)) + block(4, bytes(4))
    return out


@needs_native
@pytest.mark.parametrize("order", "<>")
def test_blocks_of_every_kind(tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "made.pcapng"
    path.write_bytes(blocks(order))
    monkeypatch.setattr(packet_windows, "WINDOW", 4000)
    quick = read(path)
    monkeypatch.setattr(scan, "native", None)
    assert quick == read(path)
    assert len(quick[0]) > 64 * 2 * 40


def imported(path: Path, folder: Path, redact: bool) -> list[object]:
    """The segments and indexes that an import makes, without what is different every time: identity and names."""
    importer = Importer(folder, redact=redact, segment_bytes=30_000)
    importer.begin(CaptureSource(path))
    while importer.advance():
        pass
    importer.close()
    assert not any(line for segment in sorted(folder.glob("*.pcapng")) for line in check(segment))
    content: list[object] = [importer.counts, importer.notes]
    for segment in sorted(folder.glob("*.pcapng")):
        data = segment.read_bytes()
        packets = [
            (p.interface, p.time_ns, p.data, p.comments, p.offset) for p in CaptureReader(segment.open("rb")).packets()
        ]
        index = segment.with_suffix(".index").read_bytes()
        content += [len(data), packets, index[64:], segment.with_suffix(".strings").read_bytes()]
    return content


@needs_native
@pytest.mark.parametrize("redact", [True, False])
@pytest.mark.parametrize("seed", range(14))
def test_imports_are_the_same(tmp_path: Path, seed: int, redact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "made"
    path.write_bytes(random_capture(seed + 200))
    monkeypatch.setattr(packet_windows, "WINDOW", 5000 + 997 * (seed % 5))
    quick = imported(path, tmp_path / "quick", redact)
    monkeypatch.setattr(scan, "native", None)
    assert quick == imported(path, tmp_path / "plain", redact)


PURE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_flows import read
print(json.dumps([read(Path(name)) for name in sys.argv[2:]]))
"""


@needs_native
def test_without_the_accelerator(tmp_path: Path) -> None:
    paths = [tmp_path / f"{seed}.pcap" for seed in range(100, 112)]
    for seed, path in enumerate(paths, 100):
        path.write_bytes(random_capture(seed))
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", PURE, str(here), *map(str, paths)],
        env={
            **os.environ,
            "BARNABAS_PURE": "1",
            "PYTHONPATH": os.pathsep.join([str(here.parent), *filter(None, sys.path)]),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [json.loads(json.dumps(read(path))) for path in paths]


def test_packets_with_a_time_of_their_own(tmp_path: Path) -> None:
    found: list[Packet] = traffic(3)
    path = tmp_path / "late.pcap"
    head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
    path.write_bytes(head + b"".join(struct.pack("<IIII", 0xFFFFFFFF, 0, len(d), len(d)) + d for _, d in found))
    assert len(str(read(path)[0])) > 64 * 40
