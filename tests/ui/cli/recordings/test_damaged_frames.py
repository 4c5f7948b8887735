"""More commands that read a capture, on damaged ones: the screen, `replay`, `serve`, `pipeline`, `index`, single exchanges.

What is damaged here is inside of frames (nulls, lengths, bits), where packets and their sums are as they should be; or the
index beside a recording.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from barnabas.captures import open_capture, rebuild
from barnabas.captures.export import NoProgram, case, program
from barnabas.captures.pcap.packets import build
from barnabas.captures.recording.index import HEADER, RECORD, paths
from barnabas.captures.serving import DelayedReply, Engine, LiveSession, NotRecorded
from barnabas.decoder import DecodeError
from barnabas.proxy.serve import Served
from harness import commands
from harness.wire import with_size
from traffic.packets import as_pcapng

TESTS = Path(__file__).parents[3]
RECORDED = TESTS / "captures/serving/recorded"
SMALL = TESTS / "decoder/findings/captures/versions-two-brokers.pcapng"


def spoiled(frame: bytes, chance: random.Random) -> bytes:
    out = bytearray(frame)
    for _ in range(chance.choice([1, 1, 2, 6])):
        at, how = chance.randrange(8, len(out)), chance.random()
        if how < 0.5:
            out[at] ^= 1 << chance.randrange(8)
        elif how < 0.7:
            out[at] = chance.choice([0, 0xFF, 0x7F, 0x80])
        elif how < 0.85:
            out[at : at + 4] = struct.pack(">i", chance.choice([-1, -2, 0, (1 << 31) - 1, -(1 << 31)]))
        elif how < 0.95:
            del out[at : at + chance.randrange(1, 9)]
        else:
            out[at:at] = bytes(chance.randrange(1, 9))
        if len(out) < 12:
            break
    return bytes(out)


def with_spoiled_frames(recording: Path, seed: int, share: float = 0.3) -> bytes:
    """The same conversation as a capture in which some frames are not what they should be."""
    chance = random.Random(seed)
    with open_capture(recording) as capture:
        frames = [
            (time_ns, exchange.connection, side, frame)
            for exchange in capture.exchanges()
            for side, (time_ns, frame) in enumerate(
                ((exchange.request_time_ns, exchange.request), (exchange.response_time_ns, exchange.response))
            )
            if frame is not None and time_ns is not None
        ]
    packets, sequences = [], {}
    for time_ns, connection, side, frame in sorted(frames, key=lambda each: each[0]):
        ends = ("10.0.0.1", 40000 + connection), ("10.0.0.9", 9092)
        if connection not in sequences:
            sequences[connection] = [1001, 1001]
            packets.append((time_ns, build(*ends, 1000, 0, 2, b"", 0)))
            packets.append((time_ns, build(*reversed(ends), 1000, 1001, 0x12, b"", 1)))
        next_ = sequences[connection]
        data = with_size(spoiled(frame, chance) if chance.random() < share and len(frame) > 12 else frame)
        for start in range(0, len(data), 1400):
            part = data[start : start + 1400]
            way = ends if side == 0 else tuple(reversed(ends))
            packets.append((time_ns, build(*way, next_[side], next_[1 - side], 0x18, part, side)))
            next_[side] += len(part)
    return as_pcapng(packets)


def with_damaged_index(folder: Path, seed: int) -> Path:
    chance = random.Random(seed)
    segment = folder / "a.pcapng"
    shutil.copy(SMALL, segment)
    count = rebuild(segment)
    index = bytearray(paths(segment)[0].read_bytes())
    for _ in range(6):
        at = HEADER.size + chance.randrange(count) * RECORD.size + 8 * chance.randrange(8)
        struct.pack_into("<q", index, at, chance.choice([-5, 0, 8800, 1 << 40, (1 << 63) - 1]))
    paths(segment)[0].write_bytes(index)
    return segment


COMMANDS = {
    "replay --dry-run": ("replay", "{capture}", "--broker", "127.0.0.1:1", "--dry-run"),
    "replay": ("replay", "{capture}", "--broker", "127.0.0.1:1", "--speed", "max"),
    "ui --plain": ("ui", "--plain", "{capture}"),
    "ui without a terminal": ("ui", "{capture}"),
    "pipeline": ("pipeline", "run", "{folder}", "--output", "{out}", "--master", "none"),
    "index": ("index", "{capture}"),
    "export an exchange as python": ("export", "{capture}", "--exchange", "3", "--as", "python", "--show-values"),
    "export an exchange as pytest": ("export", "{capture}", "--exchange", "3", "--as", "pytest"),
    "export an exchange as text": ("export", "{capture}", "--exchange", "3", "--as", "text"),
    "export an exchange as json": ("export", "{capture}", "--exchange", "3", "--as", "json"),
    "export an exchange as hex": ("export", "{capture}", "--exchange", "3", "--as", "hex"),
}


EVERY_DAY = {
    "frames": ("replay --dry-run", "pipeline", "index", "export an exchange as python"),
    "index": ("ui --plain", "export an exchange as text"),
}


def complaints(capture: Path, out: Path, names: Iterable[str]) -> list[str]:
    """The commands that end otherwise than with a result or a line about what is wrong."""
    found = []
    for number, name in enumerate(names):
        places = {"capture": capture, "folder": capture.parent, "out": out / f"out-{number}"}
        done = commands.run(*(word.format(**places) for word in COMMANDS[name]))
        if "Traceback" in done.stderr + done.stdout or done.returncode not in (0, 1, 2):
            found.append(f"{name}: exit {done.returncode}\n{done.stderr[-1500:]}")
    return found


@pytest.mark.parametrize(
    ("seed", "what"),
    [(13, "frames"), (1, "index"), *(pytest.param(s, w, marks=pytest.mark.slow) for s in range(20, 40) for w in EVERY_DAY)],
)
def test_no_command_shows_a_traceback(seed: int, what: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    if what == "index":
        capture = with_damaged_index(tmp_path / "in", seed)
    else:
        capture = tmp_path / "in/a.pcapng"
        capture.write_bytes(with_spoiled_frames(RECORDED / "two-members.pcapng", seed))
    found = complaints(capture, tmp_path, EVERY_DAY[what] if seed < 20 else COMMANDS)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 60), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["admin", "transactions", "two-members"])
def test_a_recording_with_frames_that_are_not_what_they_should_be_is_served(name: str, seeds: range, tmp_path: Path) -> None:
    """What a damaged recording has is answered, and what clients of the sound one ask; anything else is a miss."""
    with open_capture(RECORDED / f"{name}.pcapng") as capture:
        sound = [exchange for exchange in capture.exchanges() if exchange.request is not None]
    path = tmp_path / "a.pcapng"
    for seed in seeds:
        path.write_bytes(with_spoiled_frames(RECORDED / f"{name}.pcapng", seed))
        with open_capture(path) as capture:
            recorded = list(capture.exchanges())
        engine = Engine(recorded)
        engine.ports.update(dict.fromkeys(range(10), 9092))
        sessions: dict[int, LiveSession] = {}
        for exchange in [*sound, *(e for e in recorded if e.request is not None)]:
            assert exchange.request is not None
            session = sessions.setdefault(exchange.connection, LiveSession(exchange.connection, "127.0.0.1"))
            try:
                ask = engine.read(session, exchange.request, 1.0, 1)
                answer = engine.answer(ask)
                if not isinstance(answer, DelayedReply):
                    engine.encode(ask, answer)
            except (NotRecorded, DecodeError):
                continue


def test_serve_starts_with_a_damaged_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(with_spoiled_frames(RECORDED / "two-members.pcapng", 13, 0.8))
    with Served(path) as served:
        assert served.bootstrap.startswith("127.0.0.1:")


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 60), marks=pytest.mark.slow)])
def test_single_exchanges_of_frames_that_are_not_what_they_should_be(seeds: range, tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    for seed in seeds:
        path.write_bytes(with_spoiled_frames(RECORDED / "transactions.pcapng", seed))
        with open_capture(path) as capture:
            for row in capture.rows():
                for make in (program, case):
                    try:
                        compile(make(capture.exchange(row), True), "made", "exec")
                    except NoProgram:
                        continue
