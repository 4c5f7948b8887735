"""The fuzz driver: mutated frames, in a child process that may not take more than 512 MiB.

    PYTHONPATH=tests python -m torture.decoder.fuzz run --count 1000000 [--seed 1] [--pure]
    PYTHONPATH=tests python -m torture.decoder.fuzz replay <way> <kind> <key> <version> <choice> <hex>

A failing input is printed with the command that replays it. The child keeps the input at hand in a file that the
parent reads when the child dies or hangs, so an abort is reported as exactly as an exception.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.decoder.native.accelerator import native
from barnabas.decoder.schema.plan import plan
from harness.waiting import PATIENCE

from .corpus import RECORDS, TOKEN, Seed, every_seed, large_seeds
from .entry_points import ALLOWED, WAYS, Input
from .mutate import mutated

HEADROOM = 512 << 20
"""Bytes of address space that the child may take over what it has after loading the seeds."""
SLOW_NS = 2_000_000_000
"""CPU time allowed per 64 KiB of input, begun or whole: a thousand times what most take; something quadratic takes more."""
LARGE_EVERY = 4000
"""One input in so many is made of a seed of 64 KiB."""
_BOX = 4 << 20
_FAILURES = 10


@dataclass
class Report:
    """What a run of the child saw. `inputs`: per way; `triples`: how many times each (kind, key, version) was used."""

    accelerated: bool
    seed: int
    inputs: Counter[str] = field(default_factory=Counter)
    read: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    triples: int = 0
    least: int = 0
    slowest_ms: float = 0.0
    slowest: str = ""
    cpu_seconds: float = 0.0
    peak_kib: int = 0
    """resident memory over that with the seeds loaded"""
    failures: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.inputs.values())

    def text(self) -> str:
        """A line for people."""
        return (
            f"{self.count} inputs ({'accelerated' if self.accelerated else 'pure'}, seed {self.seed}): {self.read} read, "
            f"{sum(self.refused.values())} refused, each of {self.triples} triples at least {self.least} times, "
            f"{self.cpu_seconds:.0f} s CPU, slowest {self.slowest_ms:.1f} ms per 64 KiB, "
            f"{self.peak_kib / 1024:.0f} MiB over the seeds, {len(self.failures)} failures"
        )


# --- the child ----------------------------------------------------------------------------------------------


def framed(seed: Seed, data: bytes, correlation_id: int) -> bytes:
    """A body as a frame, with the header that belongs to it."""
    version = plan(seed.kind, seed.key, seed.version).header_version
    if seed.kind == "response":
        return struct.pack(">i", correlation_id) + b"\0" * version + data
    client = b"\0\4fuzz" if version else b""
    return struct.pack(">hhi", seed.key, seed.version, correlation_id) + client + b"\0" * (version == 2) + data


class Maker:
    """Makes inputs out of seeds, one after the other from one random generator."""

    def __init__(self, seed: int, rounds: int):
        self.chance = random.Random(seed)
        self.seeds = list(every_seed(seed, rounds))
        self.large = large_seeds(seed, 30)
        messages = [s for s in self.seeds if s.key >= 0]
        self.requests = {(s.key, s.version): s for s in messages if s.kind == "request"}
        self.responses = {(s.key, s.version): s for s in messages if s.kind == "response"}
        self.pairs = list(self.requests)

    def make(self, number: int) -> tuple[Input, Seed]:
        """The input of this number; every seed has its turn."""
        chance = self.chance
        seed = self.seeds[number % len(self.seeds)]
        if number % LARGE_EVERY == 7:
            seed = self.large[number // LARGE_EVERY % len(self.large)]
        choice = int(chance.random() * (1 << 30))
        other = self.seeds[int(chance.random() * len(self.seeds))]
        if seed.kind in (RECORDS, TOKEN):
            return self._input(seed.kind, seed, choice, mutated(chance, seed.data, seed.starts, other.data)), seed
        dice = chance.random()
        if dice < 0.04:
            return self._input("connection", seed, choice, self._streams(seed)), seed
        if dice < 0.3:
            frame = framed(seed, seed.data, choice)
            starts = tuple(s + len(frame) - len(seed.data) for s in seed.starts)
            return self._input(seed.kind, seed, choice, mutated(chance, frame, (0, 2, 4, 8, *starts), other.data)), seed
        data = mutated(chance, seed.data, seed.starts, other.data)
        if dice < 0.33 and other.key >= 0:
            return self._input("body", other, choice, data), seed
        way = "body" if dice < 0.7 else "projection" if dice < 0.8 or native is None else "both"
        return self._input(way, seed, choice, data), seed

    @staticmethod
    def _input(way: str, seed: Seed, choice: int, data: bytes) -> Input:
        return Input(way, seed.kind, seed.key, seed.version, choice, data)

    def _streams(self, seed: Seed) -> bytes:
        """A few requests and their responses behind one another, damaged; the client's length in front."""
        chance = self.chance
        streams = [bytearray(), bytearray()]
        pairs = [(seed.key, seed.version), *chance.choices(self.pairs, k=2)]
        for number, pair in enumerate(pairs):
            for stream, made in zip(streams, (self.requests[pair], self.responses[pair]), strict=True):
                frame = framed(made, made.data, number)
                stream += struct.pack(">i", len(frame)) + frame
        cut = [mutated(chance, bytes(s), (0, 4), seed.data) if chance.random() < 0.7 else bytes(s) for s in streams]
        return struct.pack(">I", len(cut[0])) + cut[0] + cut[1]


def child(seed: int, count: int, box_path: str, timed: bool = True) -> Report:
    """Run `count` inputs here. The input at hand is in the file at `box_path` before it is tried. `timed`: what takes more
    than `SLOW_NS` is a failure."""
    report = Report(accelerated=native is not None, seed=seed)
    maker = Maker(seed, rounds=2 if count < 200_000 else 6)
    for kind in WAYS:  # what is compiled on first use is no cost of an input
        if kind in ("body", "both", "projection"):
            for s in maker.seeds:
                if s.key >= 0:
                    WAYS[kind](Input(kind, s.kind, s.key, s.version, 1, s.data))
    used: Counter[tuple[str, int, int]] = Counter()
    gc.collect()
    gc.freeze()
    with open(box_path, "r+b") as file:
        box = mmap.mmap(file.fileno(), _BOX)
    _limit_memory()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock = time.process_time_ns
    began, reported = clock(), time.monotonic()
    seen_faults: set[str] = set()
    for number in range(count):
        given, origin = maker.make(number)
        raw = pickle.dumps(tuple(given))
        box[:12] = struct.pack(">QI", number + 1, len(raw))
        box[12 : 12 + len(raw)] = raw
        used[(origin.kind, origin.key, origin.version)] += 1
        report.inputs[given.way] += 1
        spent, fault = _try(given)
        if fault is None:
            report.read += 1
        elif isinstance(fault, ALLOWED):
            report.refused[type(fault).__name__] += 1
            fault = None
        blocks = max(1, -(-len(given.data) // 65536))
        if spent / blocks > SLOW_NS / 4 and fault is None:
            # What is slow is slow each time; what the machine did meanwhile is not.
            for _ in range(8):
                spent = min(spent, _try(given)[0])
                if spent / blocks <= SLOW_NS / 4:
                    break
        share = spent / blocks
        if share > report.slowest_ms * 1e6:
            report.slowest_ms, report.slowest = share / 1e6, given.replay()
        if timed and share > SLOW_NS:
            fault = fault or TimeoutError(f"{share / 1e6:.0f} ms of CPU per 64 KiB")
        if fault is not None:
            where = traceback.extract_tb(fault.__traceback__)[-1:] if fault.__traceback__ else []
            name = f"{given.way} {type(fault).__name__} {where and (where[0].filename, where[0].lineno, str(fault)[:30])}"
            if name not in seen_faults and len(report.failures) < _FAILURES:
                seen_faults.add(name)
                trace = "".join(traceback.format_exception(fault)[-4:])
                report.failures.append(f"{trace}replay: {given.replay()}")
        if time.monotonic() - reported > 10:
            reported = time.monotonic()
            print(json.dumps({"done": number + 1, "failures": len(report.failures)}), flush=True)
    report.cpu_seconds = (clock() - began) / 1e9
    report.peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    messages = {triple: n for triple, n in used.items() if triple[1] >= 0}
    report.triples, report.least = len(messages), min(messages.values(), default=0)
    return report


def _try(given: Input) -> tuple[int, BaseException | None]:
    """Nanoseconds of CPU for an input, and what it raised."""
    at = time.process_time_ns()
    try:
        WAYS[given.way](given)
    except BaseException as error:
        return time.process_time_ns() - at, error
    return time.process_time_ns() - at, None


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + HEADROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


# --- the parent ---------------------------------------------------------------------------------------------


def run(
    count: int,
    seed: int,
    pure: bool = False,
    verbose: bool = False,
    env: dict[str, str] | None = None,
    module: tuple[str, ...] = ("torture.decoder.fuzz",),
    timed: bool = True,
) -> Report:
    """Run the child and read its report; if it dies or hangs, that is a failure with the input at hand.

    `module`: what ``python -m`` gets in front of the child's arguments. `timed`: as for `child`.
    """
    tests = Path(__file__).parents[2]
    settings = {**os.environ, "PYTHONPATH": str(tests), "BARNABAS_PURE": "1" if pure else "", **(env or {})}
    with tempfile.NamedTemporaryFile() as box:
        box.truncate(_BOX)
        command = [sys.executable, "-m", *module, "child", str(seed), str(count), box.name]
        command += [] if timed else ["--untimed"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=settings)
        found, errors, verdict = _listen(process, box.name, verbose)
        number, at_hand = _in_box(Path(box.name))
    if found is not None and process.returncode == 0:
        found["inputs"], found["refused"] = Counter(found["inputs"]), Counter(found["refused"])
        return Report(**found)
    report = Report(accelerated=not pure, seed=seed)
    report.inputs["before the end"] = number
    verdict = verdict or f"the child ended with {process.returncode}"
    report.failures.append(f"{verdict} at input {number}\n{errors[-2000:]}\nreplay: {at_hand}")
    return report


def _listen(process: subprocess.Popen[str], box: str, verbose: bool) -> tuple[dict[str, object] | None, str, str]:
    """The child's report (None without one), its error output, and why it had to be ended."""
    assert process.stdout and process.stderr
    lines: list[str] = []
    errors: list[str] = []
    readers = [
        threading.Thread(target=lambda: lines.extend(_echo(process.stdout, verbose)), daemon=True),
        threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True),
    ]
    for reader in readers:
        reader.start()
    last, since, verdict = -1, time.monotonic(), ""
    while process.poll() is None:
        time.sleep(0.05)
        number = _number_in_box(Path(box))
        if number != last or not number:  # 0: it still loads its seeds
            last, since = number, time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            verdict = f"no end after {PATIENCE:.0f} s"
            process.kill()
            process.wait()
    for reader in readers:
        reader.join()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return next((each["report"] for each in found if "report" in each), None), "".join(errors), verdict


def _echo(stream: Iterable[str], verbose: bool) -> Iterator[str]:
    for line in stream:
        if verbose and line.startswith('{"done"'):
            progress = json.loads(line)
            print(f"  {progress['done']} inputs, {progress['failures']} failures", flush=True)
        yield line


def _number_in_box(path: Path) -> int:
    """Which input the child is at; the rest of the box may be half written while the child goes on."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(8), "big")


def _in_box(path: Path) -> tuple[int, str]:
    """The input at hand, once the child has ended."""
    with path.open("rb") as file:
        number, size = struct.unpack(">QI", file.read(12))
        raw = file.read(size)
    if not number:
        return number, "(while loading the seeds)"
    try:
        return number, Input(*pickle.loads(raw)).replay()
    except Exception as error:  # it died between the number and the last byte of the input
        return number, f"(the input was being written: {type(error).__name__})"


def main(arguments: list[str]) -> int:
    """The command line; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="torture.decoder.fuzz", description=(__doc__ or "").splitlines()[0])
    ways = parser.add_subparsers(dest="command", required=True)
    running = ways.add_parser("run", help="try COUNT inputs: six in ten accelerated, the rest in pure Python")
    running.add_argument("--count", type=int, default=1_000_000)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--pure", action="store_true", help="pure Python only")
    alone = ways.add_parser("replay", help="one input, as a failure names it")
    for name, kind in {"way": str, "kind": str, "key": int, "version": int, "choice": int, "hex": str}.items():
        alone.add_argument(name, type=kind)
    inner = ways.add_parser("child")
    inner.add_argument("seed", type=int)
    inner.add_argument("count", type=int)
    inner.add_argument("box")
    inner.add_argument("--untimed", action="store_true")
    given = parser.parse_args(arguments)
    if given.command == "child":
        print(json.dumps({"report": vars(child(given.seed, given.count, given.box, not given.untimed))}), flush=True)
        return 0
    if given.command == "replay":
        data = bytes.fromhex(given.hex.replace("-", ""))
        try:
            WAYS[given.way](Input(given.way, given.kind, given.key, given.version, given.choice, data))
        except ALLOWED as refusal:
            print(f"refused: {type(refusal).__name__}: {refusal}")
        else:
            print("read")
        return 0
    failed = False
    for pure, part, number in portions(given.count, given.pure):
        report = run(part, given.seed + number, pure, verbose=True)
        print(report.text())
        for failure in report.failures:
            failed = True
            print(f"FAILED {failure}", flush=True)
    return int(failed)


def portions(count: int, pure_only: bool) -> Iterator[tuple[bool, int, int]]:
    """(pure, inputs, number) of each child: at most a million inputs, for each six accelerated four pure."""
    number = 0
    while count > 0:
        part = min(count, 1_000_000)
        fast = 0 if pure_only or native is None else part * 6 // 10
        for pure, inputs in ((False, fast), (True, part - fast)):
            if inputs:
                yield pure, inputs, number
                number += 1
        count -= part


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
