"""Recorders that are killed (SIGKILL) at random moments, and what they leave behind.

    python tests/torture/captures/killed.py --count 1000 --seed 1 [--keep DIR]

Each round forks a recorder, feeds it frames from memory as fast as it goes, kills it, and looks: every file opens, and
every frame is there that was handed over a flush period before the last one was. No clock but the recorder's own
counts: it notes when each frame is handed over, so that a busy machine changes nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from barnabas.captures import NotACapture, Recorder, open_capture
from barnabas.captures.recording.segment import check
from barnabas.decoder import encode_request, encode_response
from harness.waiting import until
from harness.wire import with_size

Frame = tuple[int, int, bytes]
"""connection, direction, the frame with its size"""
MOST_FRAMES = 1 << 19
CONNECTIONS = 5


@dataclass
class Kill:
    """One kill. `handed`: frames that the recorder was given; `due`: those of them that have to be there; `there`: those
    that are; `faults`: what is wrong, if anything."""

    seed: int
    handed: int = 0
    due: int = 0
    there: int = 0
    files: int = 0
    torn: int = 0
    faults: list[str] = field(default_factory=list)


def frames(seed: int) -> Iterator[Frame]:
    """Traffic without end, the same for the same seed: pipelined, of all sizes, some without answers."""
    chance = random.Random(seed)
    beaten = encode_response(12, 1, {"throttle_time_ms": 0, "error_code": 0})
    number = 0
    while True:
        conn = chance.randrange(CONNECTIONS)
        answers = []
        for _ in range(chance.choice([1, 1, 1, 4])):
            number += 1
            if chance.random() < 0.2:
                value = bytes([number & 0xFF]) * chance.choice([10, 10, 10, 100, 1000, 1000, 1000, 70_000])
                rows = [{"name": "t", "partition_data": [{"index": 0, "records": value}]}]
                body = {"transactional_id": None, "acks": 0, "timeout_ms": 1, "topic_data": rows}
                yield conn, 0, with_size(encode_request(0, 3, body, correlation_id=number, client_id="c"))
            else:
                body = {"group_id": "g" * chance.randrange(400), "generation_id": 1, "member_id": "m"}
                yield conn, 0, with_size(encode_request(12, 1, body, correlation_id=number, client_id="c"))
                answers.append(with_size(number.to_bytes(4, "big") + beaten[4:]))
        for answer in answers:
            yield conn, 1, answer


def record(directory: Path, seed: int, flush_seconds: float, segment_bytes: int, log: memoryview) -> None:
    """Never returns. `log[0]` counts the frames that were handed over, `log[1:]` has the time of each."""
    recorder = Recorder(directory, redact=False, flush_seconds=flush_seconds, segment_bytes=segment_bytes)
    start = time.time_ns()
    for conn in range(CONNECTIONS):
        recorder.opened(conn, start, client=("10.0.0.1", 40_000 + conn), broker=("10.0.0.2", 9092))
    for number, (conn, direction, data) in enumerate(frames(seed), 1):
        if number == MOST_FRAMES:
            signal.pause()
        log[number] = time.monotonic_ns()
        log[0] = number
        recorder.data(conn, direction, start + number, data)


def at_the_start(seed: int) -> bool:
    """Whether a recorder is killed while it begins; all others are when they record."""
    return seed % 10 == 0


def _records(log: memoryview, seconds: float) -> bool:
    """A hundred frames were handed over so long before the last one, or there are no more."""
    handed = log[0]
    return handed > 200 and (log[handed] - log[100] > seconds * 1e9 or handed >= MOST_FRAMES - 1)


def kill_one(seed: int, directory: Path) -> Kill:
    """A round: record into `directory`, kill, look."""
    chance = random.Random(seed)
    flush_seconds, segment_bytes = chance.choice([0.01, 0.03, 0.08]), chance.choice([250_000, 1 << 20, 64 << 20])
    after = chance.random() * 0.15
    shared = mmap.mmap(-1, 8 * (MOST_FRAMES + 1))
    log = memoryview(shared).cast("q")
    child = os.fork()
    if child == 0:
        try:
            record(directory, seed, flush_seconds, segment_bytes, log)
        finally:
            os._exit(1)
    if at_the_start(seed):
        time.sleep(after)
    else:
        until(
            lambda: _records(log, flush_seconds + after), lambda: f"frames that were handed over: {log[0]}", pause=0.002
        )
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    kill = Kill(seed, handed=log[0])
    if not os.WIFSIGNALED(status):
        kill.faults.append("the recorder ended by itself")
    # Frame n is handed over after the call for frame n-1 has returned: what was handed over a flush period before that one
    # was written by then.
    handed = kill.handed
    last = log[handed - 1] if handed > 1 else 0
    while kill.due + 1 < handed and log[kill.due + 1] <= last - int(flush_seconds * 1e9):
        kill.due += 1
    try:
        look(kill, directory)
    except Exception as error:
        kill.faults.append(f"{type(error).__name__}: {error}")
    log.release()
    shared.close()
    return kill


def look(kill: Kill, directory: Path) -> None:
    """Open what is there, and compare it with what was handed over."""
    files = sorted(path for path in directory.glob("*.pcapng*") if path.stat().st_size) if directory.exists() else []
    kill.files = len(files)
    for path in files:
        damage = check(path)
        kill.torn += any("in the middle" in line for line in damage)
        kill.faults += [line for line in damage if "in the middle" not in line]
    if len([path for path in files if path.name.endswith(".part")]) > 2:  # two in the middle of a rotation
        kill.faults.append("too many .part files")
    found: set[Frame] = set()
    if files:
        try:
            with open_capture(directory) as capture:
                for exchange in capture.exchanges():
                    for direction, frame in ((0, exchange.request), (1, exchange.response)):
                        if frame is not None:
                            found.add((exchange.connection, direction, with_size(frame)))
        except NotACapture as error:
            kill.faults.append(str(error))
    source = frames(kill.seed)
    for number in range(1, kill.handed + 1):
        frame = next(source)
        if frame in found:
            found.remove(frame)
            kill.there += 1
        elif number <= kill.due:
            kill.faults.append(f"frame {number} of {kill.due} that are due ({kill.handed} handed over) is missing")
            break
    else:
        if found:
            kill.faults.append(f"{len(found)} frames that nobody handed over")


def opened_by_tshark(directory: Path) -> list[str]:
    """What tshark cannot open, or finds wrong with the packets, in the files that one round left: those that were being
    written, and the one before."""
    program = shutil.which("tshark")
    assert program is not None
    faults = []
    for path in sorted(directory.glob("*.pcapng*"))[-3:]:
        if path.stat().st_size:
            command = [program, "-n", "-r", str(path), "-Y", "_ws.malformed || tcp.checksum.status == 0"]
            checked = ("-o", "tcp.check_checksum:TRUE", "--disable-protocol", "kafka")
            done = subprocess.run([*command, *checked], capture_output=True, text=True, check=False)
            if done.returncode and "cut short in the middle of a packet" not in done.stderr:
                faults.append(f"{path.name}: {done.stderr.strip()}")
            faults += [f"{path.name}: {line}" for line in done.stdout.splitlines()[:3]]
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tshark", type=int, default=1, help="let tshark open the files of each Nth round; 0: of none")
    parser.add_argument("--keep", type=Path, help="where what is at fault is kept")
    options = parser.parse_args()
    gc.freeze()
    kills, faulty = [], 0
    with tempfile.TemporaryDirectory(prefix="barnabas-killed-") as folder:
        for number in range(options.count):
            directory = Path(folder) / f"{number}"
            kill = kill_one(options.seed * 1_000_000 + number, directory)
            if options.tshark and number % options.tshark == 0 and directory.exists():
                kill.faults += opened_by_tshark(directory)
            kills.append(kill)
            if kill.faults:
                faulty += 1
                print(json.dumps(asdict(kill)), file=sys.stderr, flush=True)
                if options.keep:
                    shutil.copytree(directory, options.keep / str(kill.seed), dirs_exist_ok=True)
            shutil.rmtree(directory, ignore_errors=True)
    sums = {name: sum(getattr(kill, name) for kill in kills) for name in ("handed", "due", "there", "files", "torn")}
    at_start = sum(at_the_start(kill.seed) for kill in kills)
    print(json.dumps({"kills": len(kills), "at_the_start": at_start, "faulty": faulty, **sums}))
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
