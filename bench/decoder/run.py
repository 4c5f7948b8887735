"""The decoder beside its peers, in one run: medians of interleaved rounds, as ratios.

    python bench/decoder/run.py [--rounds 7] [--json]

Peers come from their packages: kio (Rust), kafka-python, aiokafka (Cython records), tshark. What is not installed is
left out, which is printed. Every peer decodes the same bytes, and its result is used up the same way (a full decode to its
own objects).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from barnabas import decoder
from barnabas.captures import Recorder, open_capture
from barnabas.decoder import records
from barnabas.decoder.codec.decode import python_decoder
from barnabas.decoder.codec.plan import plan, snake_case
from barnabas.decoder.native import accelerator
from barnabas.decoder.native.accelerator import description
from barnabas.decoder.schema import facts
from frames import Case, cases

SECONDS = 0.08
Work = Callable[[], object]


def rate(work: Work) -> float:
    """Calls per second, over about `SECONDS`."""
    times = 1
    while True:
        start = time.perf_counter()
        for _ in range(times):
            work()
        took = time.perf_counter() - start
        if took > SECONDS / 2:
            return times / took
        times = max(times + 1, int(times * SECONDS / max(took, 1e-7)))


def compare(candidates: dict[str, Work], rounds: int) -> dict[str, float]:
    """Median rate of each, the rounds interleaved so that a slow moment hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, work in candidates.items():
            gc.collect()
            found[name].append(rate(work))
    return {name: statistics.median(rates) for name, rates in found.items()}


def kio_reader(case: Case) -> Work | None:
    try:
        from kio.serial import entity_reader
    except ImportError:
        return None
    name = facts.api_name(case.key)
    module = importlib.import_module(f"kio.schema.{snake_case(name)}.v{case.version}.{case.kind}")
    read = entity_reader(getattr(module, name + case.kind.capitalize()))
    return lambda: read(case.body, 0)


def kafka_python_reader(case: Case) -> Work | None:
    try:
        import kafka.protocol as protocol
        from kafka.protocol.api_message import ApiMessage
    except ImportError:
        return None
    name = facts.api_name(case.key) + case.kind.capitalize()
    found = None
    for module in ("metadata", "admin", "consumer", "producer", "api_versions"):
        try:
            found = getattr(importlib.import_module(f"{protocol.__name__}.{module}"), name, None)
        except ImportError:
            continue
        if found is not None:
            break
    if found is None or not issubclass(found, ApiMessage):
        return None
    try:
        found.decode(case.body, version=case.version)
    except Exception:
        return None
    return lambda: found.decode(case.body, version=case.version)


def bodies(rounds: int) -> list[dict[str, object]]:
    rows = []
    for case in cases():
        of = plan(case.kind, case.key, case.version)
        pure = python_decoder(of)
        work: dict[str, Work] = {"pure": lambda pure=pure, case=case: pure(case.body, 0)}  # type: ignore[misc]
        if accelerator.native is not None:
            fast = accelerator.native.Reader(description(of.root))
            work["accelerated"] = lambda fast=fast, case=case: fast(case.body, 0)  # type: ignore[misc]
        for name, make in (("kio", kio_reader), ("kafka-python", kafka_python_reader)):
            peer = make(case)
            if peer:
                work[name] = peer
        rows.append({"case": case.name, "bytes": len(case.body), **compare(work, rounds)})
    return rows


PROJECTIONS = {
    "Metadata error codes": ("Metadata v12, 100 x 10", ["topics[*].error_code", "topics[*].partitions[*].error_code"]),
    "Metadata, two fields": ("Metadata v12, 100 x 10", ["cluster_id", "controller_id"]),
    "Fetch high watermarks": ("Fetch v12 response", ["responses[*].partitions[*].high_watermark"]),
}


def projections(rounds: int) -> list[dict[str, object]]:
    rows = []
    by_name = {case.name: case for case in cases()}
    for name, (of, paths) in PROJECTIONS.items():
        case = by_name[of]
        read = decoder.project(case.kind, case.key, case.version, paths)
        work: dict[str, Work] = {"ours": lambda read=read, case=case: read(case.body)}  # type: ignore[misc]
        kio = kio_reader(case)
        if kio:
            work["kio"] = kio  # it has no projection: the whole message
        rows.append({"case": name, **compare(work, rounds)})
    return rows


def record_batches(rounds: int) -> list[dict[str, object]]:
    rows = []
    for count, size in ((1000, 100), (100, 100), (10, 10_000)):
        data = records.encode_batch([records.Record(i, 1_700_000_000_000, b"key", b"v" * size) for i in range(count)])

        def indexed(data: bytes = data) -> object:
            batch = next(iter(records.batches(data)))
            return batch.crc_ok, records.RecordIndex(batch)

        def positions(data: bytes = data) -> object:
            batch = next(iter(records.batches(data)))
            return batch.crc_ok, list(records.spans(data, 61, len(data), batch.record_count))

        def every(data: bytes = data) -> object:
            batch = next(iter(records.batches(data)))
            return batch.crc_ok, list(batch.records())

        work: dict[str, Work] = {"index": indexed, "index, pure": positions, "records": every}
        for name, module in (("kafka-python", "kafka.record"), ("aiokafka", "aiokafka.record.memory_records")):
            try:
                theirs = importlib.import_module(module).MemoryRecords
            except ImportError:
                continue

            def peer(data: bytes = data, theirs: Any = theirs) -> object:
                batch = theirs(data).next_batch()
                return batch.validate_crc(), list(batch)

            work[name] = peer
        found = compare(work, rounds)
        rows.append({"case": f"{count} x {size} B", **{name: each * count for name, each in found.items()}})
    return rows


def peeks(rounds: int) -> dict[str, float]:
    frame = decoder.encode_request(0, 9, {"acks": -1}, correlation_id=5, client_id="client-1")
    found = compare(
        {"peek": lambda: decoder.peek_request(frame), "header": lambda: decoder.decode_request_header(frame)}, rounds
    )
    return {name: 1e6 / each for name, each in found.items()}


def capture(folder: Path, exchanges: int) -> Path:
    """A recording of small and middling exchanges on port 9092."""
    recorder = Recorder(folder, segment_bytes=1 << 40)
    recorder.opened(1, 1, ("127.0.0.1", 50_000), ("127.0.0.1", 9092))
    partitions = [{"partition_index": p, "replica_nodes": [1, 2, 3]} for p in range(20)]
    answer = decoder.encode_body("response", 3, 9, {"topics": [{"name": "orders", "partitions": partitions}]})
    at = 1_700_000_000_000_000_000
    for number in range(exchanges):
        fields = {"topics": [{"name": "orders"}]}
        ask = decoder.encode_request(3, 9, fields, correlation_id=number, client_id="client-1")
        reply = number.to_bytes(4, "big") + b"\x00" + answer
        for direction, frame in ((0, ask), (1, reply)):
            at += 50_000
            recorder.data(1, direction, at, len(frame).to_bytes(4, "big") + frame)
    recorder.close()
    return next(folder.glob("*.pcapng"))


def rows_of_capture(rounds: int) -> dict[str, object] | None:
    """Seconds from a file to its rows; tshark's start-up is measured on its own and taken off."""
    if shutil.which("tshark") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        exchanges = 20_000
        path = capture(Path(folder) / "recording", exchanges)
        foreign = Path(folder) / "foreign.pcapng"
        foreign.write_bytes(path.read_bytes())
        empty = Path(folder) / "empty.pcapng"
        empty.write_bytes(path.read_bytes()[:400])

        def ours(file: Path) -> float:
            start = time.perf_counter()
            with open_capture(file) as opened:
                total = sum(1 for _ in opened.rows())
            assert total == exchanges
            return time.perf_counter() - start

        def tshark(file: Path, *how: str) -> float:
            start = time.perf_counter()
            subprocess.run(["tshark", "-r", file, *how], capture_output=True, check=False)
            return time.perf_counter() - start

        fields = ["-T", "fields", "-Y", "kafka", "-e", "frame.time_epoch", "-e", "tcp.stream", "-e", "kafka.api_key"]
        fields += ["-e", "kafka.api_version", "-e", "kafka.correlation_id", "-e", "kafka.error"]
        found: dict[str, list[float]] = {"index": [], "foreign": [], "tshark start": [], "fields": [], "json": []}
        for _ in range(max(3, rounds // 2)):
            found["index"].append(ours(path))
            found["foreign"].append(ours(foreign))
            found["tshark start"].append(tshark(empty, *fields))
            found["fields"].append(tshark(path, *fields))
            found["json"].append(tshark(path, "-T", "json", "-Y", "kafka"))
        seconds = {name: statistics.median(each) for name, each in found.items()}
        return {"exchanges": exchanges, "megabytes": path.stat().st_size / 1e6, **seconds}


def start(rounds: int) -> dict[str, float]:
    """Milliseconds from import to the first decoded message, without the interpreter's own start."""
    program = (
        "import time; t = time.perf_counter(); from barnabas import decoder;"
        "f = bytes.fromhex('0003000c00000007ffff0002000000000000000000000000000000000000')[:10] + bytes.fromhex('00010100 00'.replace(' ', ''));"
        "decoder.decode_request(f); print((time.perf_counter() - t) * 1000)"
    )
    each = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(rounds)
    ]
    schema = sum(p.stat().st_size for p in (Path(facts.__file__).parent / "definitions").glob("[0-9h]*.kafka"))
    return {"first decode, ms": statistics.median(each), "schema of requests and responses, kB": schema / 1000}


def ratio(row: dict[str, object], ours: str, peer: str) -> str:
    a, b = row.get(ours), row.get(peer)
    return f"{float(str(a)) / float(str(b)):.2f}" if a and b else "-"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--json", action="store_true", help="the raw figures")
    given = arguments.parse_args()
    result: dict[str, object] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "accelerator": accelerator.native is not None,
        "bodies": (body_rows := bodies(given.rounds)),
        "projections": (projection_rows := projections(given.rounds)),
        "records": (record_rows := record_batches(given.rounds)),
        "peek_us": (peeked := peeks(given.rounds)),
        "start": (started := start(given.rounds)),
        "capture": (captured := rows_of_capture(given.rounds)),
    }
    if given.json:
        print(json.dumps(result, indent=2))
        return
    print(result["machine"], "| accelerator", "built" if result["accelerator"] else "not built")
    print(
        f"\n{'full decode':<26} {'bytes':>6} {'pure/s':>9} {'accel/s':>9} {'pure/kio':>8} {'acc/kio':>8} {'pure/k-py':>9} {'acc/k-py':>9}"
    )
    for row in body_rows:
        print(
            f"{row['case']:<26} {row['bytes']:>6} {row['pure']:>9.0f} {row.get('accelerated', 0):>9.0f}"
            f" {ratio(row, 'pure', 'kio'):>8} {ratio(row, 'accelerated', 'kio'):>8}"
            f" {ratio(row, 'pure', 'kafka-python'):>9} {ratio(row, 'accelerated', 'kafka-python'):>9}"
        )
    print("\nprojection against kio's full decode")
    for row in projection_rows:
        print(f"{row['case']:<26} {row['ours']:>9.0f}/s   x kio {ratio(row, 'ours', 'kio')}")
    print("\nrecords per second, CRC checked")
    for row in record_rows:
        print(
            f"{row['case']:<14} index {row['index']:>11.0f}  pure index {row['index, pure']:>11.0f}  records {row['records']:>11.0f}"
            f"   index x aiokafka {ratio(row, 'index', 'aiokafka')}  pure index x kafka-python {ratio(row, 'index, pure', 'kafka-python')}"
            f"  records x kafka-python {ratio(row, 'records', 'kafka-python')}"
        )
    print(f"\nheader peek {peeked['peek']:.2f} us, whole header {peeked['header']:.2f} us")
    print("; ".join(f"{name} {value:.1f}" for name, value in started.items()))
    if captured:
        s = {k: float(str(v)) for k, v in captured.items()}
        less = s["tshark start"]
        print(
            f"\n{s['exchanges']:.0f} exchanges, {s['megabytes']:.1f} MB to rows: own index {s['index']:.3f} s, foreign {s['foreign']:.2f} s;"
            f" tshark fields {s['fields'] - less:.2f} s, json {s['json'] - less:.2f} s (start {less:.2f} s taken off)\n"
            f"fields/index {(s['fields'] - less) / s['index']:.0f}x, fields/foreign {(s['fields'] - less) / s['foreign']:.1f}x,"
            f" json/index {(s['json'] - less) / s['index']:.0f}x, json/foreign {(s['json'] - less) / s['foreign']:.1f}x"
        )


if __name__ == "__main__":
    main()
