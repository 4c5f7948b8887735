"""No command shows a traceback for what stands in a file: a corpus of damaged captures through every command that reads one."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.captures.pcap import pcapng
from harness import commands
from traffic.packets import as_pcap, as_pcapng, traffic

RECORDING = Path(__file__).parents[3] / "decoder/findings/captures/versions-two-brokers.pcapng"
FUTURE = (1 << 63) + 5


def stamps(data: bytes, stamp: int, every: int = 1, first: int = 0) -> bytes:
    """A pcapng in little endian whose packets have another time, from the `first` one on, every so many."""
    out, at, number = bytearray(data), 0, 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == pcapng.ENHANCED_PACKET:
            if number >= first and number % every == 0:
                struct.pack_into("<II", out, at + 12, stamp >> 32, stamp & 0xFFFFFFFF)
            number += 1
        at += length
    return bytes(out)


def foreign() -> bytes:
    return as_pcapng(traffic(3))


def with_interface(options: bytes) -> bytes:
    """A capture whose interface has such options instead of nanoseconds."""
    body = struct.pack("<HHI", 1, 0, 0) + options + struct.pack("<HH", 0, 0)
    head = pcapng.section_header("somebody") + struct.pack("<II", 1, len(body) + 12) + body + struct.pack("<I", len(body) + 12)
    return head + b"".join(pcapng.enhanced_packet(0, t, data) for t, data in traffic(3))


def flipped(data: bytes, seed: int, count: int = 20) -> bytes:
    chance, out = random.Random(seed), bytearray(data)
    for _ in range(count):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def spliced(data: bytes, seed: int) -> bytes:
    """Without some bytes, and with others twice."""
    chance = random.Random(seed)
    a, b, c = sorted(chance.randrange(200, len(data)) for _ in range(3))
    return data[:a] + data[b:] + data[a:c]


CORPUS: dict[str, Callable[[], bytes]] = {
    "foreign, beyond 2^63 ns": lambda: stamps(foreign(), FUTURE),
    "foreign, some beyond 2^63 ns": lambda: stamps(foreign(), FUTURE, 7, 20),
    "foreign, all ones": lambda: stamps(foreign(), (1 << 64) - 1, 5),
    "foreign, just below 2^63": lambda: stamps(foreign(), (1 << 63) - 1, 3),
    "foreign, seconds as unit": lambda: with_interface(struct.pack("<HHB3x", 9, 1, 0)),
    "foreign, far offset": lambda: with_interface(struct.pack("<HHB3xHHq", 9, 1, 9, 14, 8, (1 << 63) - 1)),
    "foreign, far offset back": lambda: with_interface(struct.pack("<HHB3xHHq", 9, 1, 9, 14, 8, -(1 << 63))),
    "foreign, tiny unit": lambda: with_interface(struct.pack("<HHB3x", 9, 1, 0xFF)),
    "recording, beyond 2^63 ns": lambda: stamps(RECORDING.read_bytes(), FUTURE),
    "recording, some beyond 2^63 ns": lambda: stamps(RECORDING.read_bytes(), FUTURE, 5, 6),
    "recording, cut": lambda: RECORDING.read_bytes()[:5000],
    "recording, flipped": lambda: flipped(RECORDING.read_bytes(), 1),
    "pcap, cut": lambda: as_pcap(traffic(4))[:9000],
    "pcap, flipped": lambda: flipped(as_pcap(traffic(4)), 2),
    "pcapng, spliced": lambda: spliced(foreign(), 3),
}
EVERY_DAY = {"recording, flipped"}
READING = {
    "decode": ("decode",),
    "decode --json": ("decode", "--json"),
    "findings": ("findings",),
    "findings --json": ("findings", "--json"),
    "versions": ("versions",),
    "compat": ("compat", "--against", "4.1"),
    "index": ("index", "--dry-run"),
    "diff": ("diff",),
    "export": ("export", "--as", "csv"),
    "import": ("import",),
    "redact": ("redact",),
    "cut": ("cut",),
    "merge": ("merge",),
    "report": ("report",),
}


def arguments(command: str, path: Path, out: Path) -> list[object]:
    words: list[object] = [*READING[command]]
    if command == "diff":
        return [*words, path, path]
    if command == "merge":
        return [*words, path, path, "-o", out]
    if command in ("import", "redact", "cut", "export"):
        return [*words, path, "-o", out]
    return [*words, path]


@pytest.mark.parametrize("name", [name if name in EVERY_DAY else pytest.param(name, marks=pytest.mark.slow) for name in CORPUS])
def test_no_command_shows_a_traceback(name: str, tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    path.write_bytes(CORPUS[name]())
    failed = []
    for number, command in enumerate(READING):
        done = commands.run(*arguments(command, path, tmp_path / f"out-{number}"))
        if "Traceback" in done.stderr + done.stdout or done.returncode not in (0, 1, 2, 3):
            failed.append(f"{command}: exit {done.returncode}\n{done.stderr[-1500:]}")
        assert "53730" not in done.stdout
    assert not failed, "\n".join(failed)


DAMAGES = {"flipped": flipped, "spliced": spliced}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("of", ["recording", "foreign"])
@pytest.mark.parametrize("seeds", [range(15), pytest.param(range(15, 400), marks=pytest.mark.slow)])
def test_a_damaged_capture_read_by_the_python_api_raises_nothing_but_that_it_is_none(
    how: str, of: str, seeds: range, tmp_path: Path
) -> None:
    whole = RECORDING.read_bytes() if of == "recording" else foreign()
    for seed in seeds:
        path = tmp_path / f"{seed}.pcapng"
        path.write_bytes(DAMAGES[how](whole, seed))
        try:
            capture = open_capture(path)
        except pcapng.NotACapture:
            continue
        with capture:
            for exchange in capture.exchanges():
                exchange.to_dict()
            for row in capture.rows():
                capture.exchange(row)
            list(capture.events())
            capture.verify()
