"""What the accelerator reads of what others send, each as a function of one input, as libFuzzer wants its targets.

    PYTHONPATH=tests python -m torture.native.targets                     each target, over its corpus and 2,000 mutations
    PYTHONPATH=tests python -m torture.native.targets packets --runs 100000 --seed 7
    PYTHONPATH=tests python -m torture.native.targets header_prefixes --input FILE

An input may be refused, and never ends the process, writes beside its memory, or hangs. Where there is a reference in Python the
results are the same. `corpus/NAME` holds a few small inputs of each, and one for every input that once made a fault; a new one
is added by writing the file. Under sanitizers: `make sanitize`. With atheris: `atheris.Setup(sys.argv, TARGETS[name])`.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.captures import NotACapture, open_capture
from barnabas.captures.native.accelerator import native as recording
from barnabas.captures.recording.native_recorder import shape
from barnabas.decoder import records
from barnabas.decoder.codec.project import reader
from barnabas.decoder.schema.plan import plan
from barnabas.plugins.rules.rule_engine import RuleEngine
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.native.accelerator import native
from barnabas.proxy.relay.addressing.node_endpoint_scanner import NodeEndpointScanner, PlainNodeEndpointScanner
from barnabas.proxy.relay.interception.interest.api_version_bitmap import api_version_bitmap
from barnabas.proxy.relay.interception.interest.header_prefix import HeaderPrefix, asked_paths
from barnabas.proxy.relay.interception.interest.response_interest import ResponseInterest
from harness.peers.frame_scan import FrameScan
from torture.decoder.mutate import mutated

CORPUS = Path(__file__).with_name("corpus")
MOST = 1 << 16
"""Bytes of an input."""
HANGS = 60
"""Seconds after which an input that is still being read ends the process, with a traceback."""
Target = Callable[[bytes], Any]


def chosen(data: bytes) -> tuple[str, int, int, bytes]:
    """A message by the first four bytes of an input, and the rest; refused if there is none such."""
    key, version = int.from_bytes(data[:2].ljust(2, b"\0"), "big"), int.from_bytes(data[2:4].ljust(2, b"\0"), "big")
    kind = "response" if key >> 15 else "request"
    plan(kind, key & 0x7FFF, version)
    return kind, key & 0x7FFF, version, data[4:]


def selecting(kind: str, key: int, version: int) -> bytes:
    """The four bytes for a message."""
    return (key | (kind == "response") << 15).to_bytes(2, "big") + version.to_bytes(2, "big")


def header_prefixes(data: bytes) -> Any:
    """A frame (with its size) without its records, of any message, also of those that have none."""
    kind, key, version, frame = chosen(data)
    of = plan(kind, key, version)
    made = native.header_prefix(reader(of, asked_paths(of)), of.header_version, kind == "request", frame)
    prefix = HeaderPrefix(kind, key, version)
    assert made == (prefix.frame if prefix.feed(frame) else None), "not what Python makes"
    return made


def bodies(data: bytes) -> Any:
    """A body of any message: the values are those of the reference, or both refuse."""
    from torture.decoder import entry_points

    kind, key, version, body = chosen(data)
    return entry_points.both(entry_points.Input("both", kind, key, version, 0, body))


@cache
def _rules() -> ResponseInterest:
    rule = Rule.of("(api == Heartbeat or api == Produce or api == Fetch) and (err or latency > 5s)", delay="1ms")
    return ResponseInterest(RuleEngine([rule]), frozenset(), 40)


def streams(data: bytes) -> Any:
    """Requests, then responses, as the relay goes over them under rules. The first two bytes: how long the requests are."""
    cut = 2 + int.from_bytes(data[:2].ljust(2, b"\0"), "big")
    asked, given = data[2:cut], data[cut:]
    rules = _rules()
    passing = api_version_bitmap(key << 16 | version for key in (0, 1, 12) for version in range(20))
    scan = FrameScan(passing, passing, rules, most=MOST, bulk=passing)
    one = scan.requests(asked)
    kept = scan.queue.kept(), len(scan.queue), scan.queue.memory()
    two = scan.responses(given)
    plain = FrameScan(passing, most=MOST)
    return one, kept, two, plain.note(0, asked), plain.note(1, given)


def node_endpoints(data: bytes) -> Any:
    """A bulk response that passes in pieces; the third byte says of how many bytes. The reference finds the same place."""
    bulk = [(0, 10), (0, 12), (1, 16), (1, 17), (78, 1), (79, 1)]
    key, version = bulk[data[0] % len(bulk)] if data else bulk[0]
    step, frame = (data[1] if len(data) > 1 else 0) + 1, data[2:]
    found = []
    for scanner in (NodeEndpointScanner(key, version), PlainNodeEndpointScanner(key, version)):
        place = -1
        for at in range(0, len(frame), step):
            place = scanner.feed(memoryview(frame)[at : at + step])
            if place >= 0:
                place += at
                break
        found.append(place)
    assert found[0] == found[1], f"{found}: not where Python finds it"
    return found[0]


def recorders(data: bytes) -> Any:
    """A connection as a recorder takes it. The first byte: whether it only counts, and how pieces are cut; a piece's first byte
    says whose it is."""
    how, at = data[0] if data else 0, 1
    context = recording.RecorderContext(lambda *asked: shape(False, *asked), 64 if how & 2 else 0)
    context.counting = how & 1
    recorder, buffer, rows = recording.ConnectionRecorder(context, 7), recording.Buffer(), bytearray()
    if not how & 1:
        recorder.attach(array("Q", [1, 1]), bytes(54), bytes(54), buffer, rows, lambda text: 1)
    step = (how >> 2) + 1
    while at < len(data):
        direction, piece, place = data[at] & 1, data[at + 1 : at + 1 + step * 8], 0
        while place < len(piece):
            before, place = place, recorder.feed(direction, piece, place, 5, 0, 1 << 40)
            if place == before:
                return recorder.waiting(), recorder.release()
        at += 1 + step * 8
    return recorder.waiting(), context.waiting([recorder]), recorder.release(), len(buffer)


def record_areas(data: bytes) -> Any:
    """What stands where records do: batches and messages of every format, with counts that are wrong."""
    from torture.decoder import entry_points

    return entry_points.record_area(entry_points.Input("records", "request", 0, 0, 0, data))


def packets(data: bytes) -> Any:
    """A pcap or pcapng file."""
    with tempfile.NamedTemporaryFile(suffix=".pcapng") as file:
        file.write(data)
        file.flush()
        with open_capture(file.name) as capture:
            return [tuple(row) for row in capture.rows()], capture.note


TARGETS: dict[str, Target] = {
    each.__name__: each for each in (header_prefixes, bodies, streams, node_endpoints, recorders, record_areas, packets)
}
REFUSING = (decoder.DecodeError, records.RecordsError, NotACapture)


def inputs(name: str) -> Iterator[tuple[Path, bytes]]:
    for path in sorted((CORPUS / name).iterdir()):
        yield path, path.read_bytes()


@contextmanager
def input_kept(name: str, data: bytes) -> Iterator[None]:
    """Keeps the input in a file while it is read, and names that file if there is a fault."""
    kept = Path(tempfile.gettempdir()) / f"barnabas-{name}-{random.Random(data).randrange(1 << 30):08x}"
    kept.write_bytes(data)  # before: it may be the last thing that this process does
    faulthandler.dump_traceback_later(HANGS, exit=True)
    try:
        yield
    except BaseException:
        print(f"the input is in {kept}", file=sys.stderr)
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()
    kept.unlink()


def tried(name: str, data: bytes) -> bool:
    """Whether an input was read, not refused; anything else that it raises is a fault."""
    try:
        TARGETS[name](data)
    except REFUSING:
        return False
    return True


def run(name: str, runs: int, seed: int) -> tuple[int, int]:
    """The corpus, and so many mutations of it: how many were read, and how many refused."""
    chance = random.Random(f"{name} {seed}")
    seeds = [data for _, data in inputs(name)]
    counts = [0, 0]
    for number in range(len(seeds) + runs):
        data = seeds[number] if number < len(seeds) else chance.choice(seeds)
        if number >= len(seeds):
            data = mutated(chance, data, (), chance.choice(seeds))[:MOST]
        with input_kept(name, data):
            counts[not tried(name, data)] += 1
    return counts[0], counts[1]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="torture.native.targets")
    parser.add_argument("names", nargs="*", help=", ".join(TARGETS))
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", type=Path)
    given = parser.parse_args(arguments)
    for name in given.names or TARGETS:
        if given.input is not None:
            print(f"{name}: {'read' if tried(name, given.input.read_bytes()) else 'refused'}")
            continue
        read, refused = run(name, given.runs, given.seed)
        print(f"{name}: {read} read, {refused} refused", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
