"""The decoder beside its peers, in one run: what users call, and the same answer from the peer. Ratios of interleaved rounds.

    python bench/decoder/run.py [--rounds 7] [--json] [--only bodies]
    BARNABAS_PURE=1 python bench/decoder/run.py --only bodies     without the accelerator

Peers come from their packages: kio (Rust), kafka-python, aiokafka (Cython records), tshark. What is not installed is
left out, which is printed. Each figure is the best of many short bursts, which other processes disturb least; records and captures,
which take longer, are medians.
"""

from __future__ import annotations

import argparse
import dataclasses
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
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from barnabas import decoder
from barnabas.captures import Recorder, open_capture
from barnabas.decoder import records
from barnabas.decoder.codec.decode import decoder as inner_reader
from barnabas.decoder.native import accelerator
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.notation import snake_case
from barnabas.decoder.schema.plan import plan
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


BURST = 0.001
"""Seconds of a burst."""
BURSTS = 40
"""Per round."""


def microseconds(statements: dict[str, str], names: dict[str, Any], rounds: int) -> dict[str, float]:
    """The least time of each statement, the bursts interleaved. Whoever reads this can run the statement."""
    timers = {name: timeit.Timer(statement, globals=names) for name, statement in statements.items()}
    times = {}
    for name, timer in timers.items():
        times[name] = 1
        while min(timer.repeat(5, times[name])) < BURST:  # the first calls do more
            times[name] *= 2
    found = dict.fromkeys(statements, float("inf"))
    for _ in range(rounds * BURSTS):
        for name, timer in timers.items():
            found[name] = min(found[name], 1e6 * timer.timeit(times[name]) / times[name])
    return found


def kio_names(case: Case) -> dict[str, Any]:
    """What a user of kio calls: `kio`, and `kio_header` for the header of a request."""
    try:
        from kio.serial import entity_reader
    except ImportError:
        return {}
    name = facts.api_name(case.key)
    module = importlib.import_module(f"kio.schema.{snake_case(name)}.v{case.version}.{case.kind}")
    found = {"kio": entity_reader(getattr(module, name + case.kind.capitalize()))}
    if case.kind == "request":
        header = plan(case.kind, case.key, case.version).header_version
        module = importlib.import_module(f"kio.schema.request_header.v{header}.header")
        found["kio_header"] = entity_reader(module.RequestHeader)
    return found


def kafka_python_names(case: Case) -> dict[str, Any]:
    """What a user of kafka-python calls: `Theirs`, a class."""
    try:
        from kafka.protocol.api_message import ApiMessage
    except ImportError:
        return {}
    name = facts.api_name(case.key) + case.kind.capitalize()
    for module in ("metadata", "admin", "consumer", "producer", "api_versions"):
        try:
            found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        except ImportError:
            continue
        if found is not None and issubclass(found, ApiMessage):
            return {"Theirs": found}
    return {}


def statements(case: Case, names: dict[str, Any]) -> dict[str, str]:
    """By question and decoder. The question without a name is the whole call that only has to decode."""
    ours, theirs = "decode_body(kind, key, version, body)", "Theirs.decode(body, version=version)"
    kio = "kio(body, 0)[0]"
    field = "throttle_time" if case.field == "throttle_time_ms" else case.field
    made = {
        "decode": ours,
        "field": f"{ours}[{case.field!r}]",
        "values": f"{ours}.values",
        "use": f"m = {ours}.values; {case.use}",
        "dict": f"{ours}.to_dict()",
        "map": f"{ours}.map()",
        "inner reader": "inner(body, 0)",
    }
    if "kio" in names:
        made |= {
            "decode kio": kio,
            "field kio": f"{kio}.{field}",
            "use kio": f"m = {kio}; {case.use}",
            "dict kio": f"asdict({kio})",
        }
    if "kio_header" in names:
        made["frame"] = "decode_request(frame)"
        made["frame kio"] = "h, at = kio_header(frame, 0); m = kio(frame, at)[0]"
    if "Theirs" in names:
        made |= {
            "decode kafka-python": theirs,
            "field kafka-python": f"{theirs}.{case.field}",
            "use kafka-python": f"m = {theirs}; {case.use}",
            "dict kafka-python": f"{theirs}.to_dict()",
        }
    return made


def bodies(rounds: int) -> list[dict[str, object]]:
    rows = []
    for case in cases():
        names = kio_names(case) | kafka_python_names(case)
        names |= {"decode_body": decoder.decode_body, "decode_request": decoder.decode_request, "asdict": dataclasses.asdict}
        names |= {"kind": case.kind, "key": case.key, "version": case.version, "body": case.body}
        names["inner"] = inner_reader(plan(case.kind, case.key, case.version))
        if case.kind == "request":
            fields = decoder.decode_body(case.kind, case.key, case.version, case.body).to_dict()
            names["frame"] = decoder.encode_request(case.key, case.version, fields, correlation_id=70_000, client_id="client-1")
        rows.append({"case": case.name, "bytes": len(case.body), **microseconds(statements(case, names), names, rounds)})
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
        work: dict[str, str] = {"ours": "read(body)"}
        names = kio_names(case) | {"read": read, "body": case.body}
        if "kio" in names:
            work["kio"] = "kio(body, 0)"  # it has no projection: the whole message
        rows.append({"case": name, **microseconds(work, names, rounds)})
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


HEADS = {
    "peek": "peek_request(frame)",
    "header": "decode_request_header(frame)",
    "head": "m = decode_request(frame); m.api, m.api_version, m.header['client_id'], m['client_software_name']",
}
"""What a request is, and who sends it: an ApiVersions request names the client's software."""


def heads(rounds: int) -> dict[str, float]:
    software = {"client_software_name": "apache-kafka-java", "client_software_version": "4.1.0"}
    frame = decoder.encode_request(18, 3, software, correlation_id=70_000, client_id="client-1")
    names = {name: getattr(decoder, name) for name in ("peek_request", "decode_request_header", "decode_request")}
    return microseconds(HEADS, names | {"frame": frame}, rounds)


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


def ratio(row: dict[str, object], question: str, peer: str) -> str:
    """How many times as long the peer takes."""
    ours, theirs = row.get(question), row.get(f"{question} {peer}")
    return f"{float(str(theirs)) / float(str(ours)):.2f}" if ours and theirs else "-"


def print_bodies(rows: list[dict[str, object]]) -> None:
    print("\nus per call, and how many times as long the peer takes (kio, kafka-python)")
    for row in rows:
        print(f"{row['case']}, {row['bytes']} bytes")
        for question in ("decode", "frame", "field", "use", "dict", "values", "map", "inner reader"):
            if question in row:
                print(f"  {question:<14}{row[question]:>10.3f} {ratio(row, question, 'kio'):>8} {ratio(row, question, 'kafka-python'):>8}")


def print_projections(rows: list[dict[str, object]]) -> None:
    print("\nprojection against kio's full decode")
    for row in rows:
        kio = f"{float(str(row['kio'])) / float(str(row['ours'])):.2f}" if "kio" in row else "-"
        print(f"{row['case']:<26} {row['ours']:>9.3f} us   x kio {kio}")


def print_records(rows: list[dict[str, object]]) -> None:
    def faster(row: dict[str, object], ours: str, peer: str) -> str:
        a, b = row.get(ours), row.get(peer)
        return f"{float(str(a)) / float(str(b)):.2f}" if a and b else "-"

    print("\nrecords per second, CRC checked")
    for row in rows:
        print(
            f"{row['case']:<14} index {row['index']:>11.0f}  pure index {row['index, pure']:>11.0f}  records {row['records']:>11.0f}"
            f"   index x aiokafka {faster(row, 'index', 'aiokafka')}  pure index x kafka-python {faster(row, 'index, pure', 'kafka-python')}"
            f"  records x kafka-python {faster(row, 'records', 'kafka-python')}"
        )


def print_heads(found: dict[str, float]) -> None:
    print("\nus:", ", ".join(f"{HEADS[name]}: {each:.3f}" for name, each in found.items()))


def print_start(found: dict[str, float]) -> None:
    print("\n" + "; ".join(f"{name} {value:.1f}" for name, value in found.items()))


def print_capture(found: dict[str, object] | None) -> None:
    if found:
        s = {k: float(str(v)) for k, v in found.items()}
        less = s["tshark start"]
        print(
            f"\n{s['exchanges']:.0f} exchanges, {s['megabytes']:.1f} MB to rows: own index {s['index']:.3f} s, foreign {s['foreign']:.2f} s;"
            f" tshark fields {s['fields'] - less:.2f} s, json {s['json'] - less:.2f} s (start {less:.2f} s taken off)\n"
            f"fields/index {(s['fields'] - less) / s['index']:.0f}x, fields/foreign {(s['fields'] - less) / s['foreign']:.1f}x,"
            f" json/index {(s['json'] - less) / s['index']:.0f}x, json/foreign {(s['json'] - less) / s['foreign']:.1f}x"
        )


PARTS: dict[str, tuple[Callable[[int], Any], Callable[[Any], None]]] = {
    "bodies": (bodies, print_bodies),
    "projections": (projections, print_projections),
    "heads": (heads, print_heads),
    "records": (record_batches, print_records),
    "start": (start, print_start),
    "capture": (rows_of_capture, print_capture),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--only", choices=PARTS, action="append", help="a part; may be repeated")
    arguments.add_argument("--json", action="store_true", help="the raw figures")
    given = arguments.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    accelerated = accelerator.native is not None
    if not given.json:
        print(machine, "| accelerator", "built" if accelerated else "not built, or left out")
    result: dict[str, object] = {"machine": machine, "accelerator": accelerated}
    for part, (measure, show) in PARTS.items():
        if part in (given.only or PARTS):
            result[part] = found = measure(given.rounds)
            if not given.json:
                show(found)
    if given.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
