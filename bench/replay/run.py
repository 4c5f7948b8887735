"""How fast, and how punctually, a recording is replayed: small requests to a sink on this machine.

    python bench/replay/run.py [--requests N] [--json FILE]

Rates are of one replaying process; the sink is another one. The recording is made here: half Produce of 100 bytes, a
quarter each Heartbeat and Metadata, over 8 connections, one request in flight on each when recorded ("order") or many.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from barnabas.captures import Recorder
from barnabas.decoder import encode_request
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.wire.frame import Direction
from barnabas.proxy.replay.session import Replay
from barnabas.proxy.replay.settings import Order, Pace, Settings

sys.path.insert(0, str(Path(__file__).parent))
from sink import answer

SECOND = 1_000_000_000
CONNECTIONS = 8


def small_requests(partition: int = 0) -> list[tuple[int, int, bytes]]:
    """(key, version, frame) of the kinds in the mix."""
    value = b"x" * 100
    batch = encode_batch([Record(0, 1_700_000_000_000, b"key", value, ())])
    rows = [{"name": "bench", "partition_data": [{"index": partition, "records": batch}]}]
    produce = encode_request(0, 9, {"acks": 1, "timeout_ms": 1000, "topic_data": rows}, client_id="bench")
    beat = {"group_id": f"g-{partition}", "generation_id": 0, "member_id": ""}
    heartbeat = encode_request(12, 4, beat, client_id="bench")
    metadata = encode_request(3, 12, {"topics": []}, client_id="bench")
    return [(0, 9, produce), (12, 4, heartbeat), (0, 9, produce), (3, 12, metadata)]


def make(folder: Path, count: int, every_ns: int, apart: bool = False) -> None:
    """A recording of `count` requests, one each `every_ns`, answered 50 us later. `apart`: each connection has a
    partition and a group of its own."""
    kinds = [small_requests(number if apart else 0) for number in range(CONNECTIONS)]
    answers = {(key, version): answer(key, version, 9092) for key, version, _ in kinds[0]}
    recorder = Recorder(folder, redact=True)
    start = 1_700_000_000 * SECOND
    for number in range(CONNECTIONS):
        recorder.opened(number, start, client=("127.0.0.1", 40_000 + number), broker=("127.0.0.1", 9092))
    for number in range(count):
        key, version, frame = kinds[number % CONNECTIONS][number // CONNECTIONS % len(kinds[0])]
        at, conn, identity = start + SECOND // 10 + number * every_ns, number % CONNECTIONS, (number + 1).to_bytes(4, "big")
        sent = frame[:4] + identity + frame[8:]
        recorder.data(conn, Direction.REQUEST, at, len(sent).to_bytes(4, "big") + sent)
        body = identity + answers[key, version]
        recorder.data(conn, Direction.RESPONSE, at + min(50_000, every_ns // 2), len(body).to_bytes(4, "big") + body)
    end = start + SECOND + count * every_ns
    for number in range(CONNECTIONS):
        recorder.closed(number, end, "fin", "client")
    recorder.close()


def measured(folder: Path, port: int, name: str, settings: Settings) -> dict[str, Any]:
    begun, cpu = time.monotonic(), time.process_time()
    report = Replay(folder, ("127.0.0.1", port), settings=settings).run()
    figures = report.to_dict()
    found = {
        "case": name,
        "requests": report.sent,
        "differences": report.count,
        "per_second": figures["requests_per_second"],
        "per_second_with_reading": round(report.sent / (time.monotonic() - begun), 1),
        "cpu_us_per_request_with_reading": round((time.process_time() - cpu) * 1e6 / max(1, report.sent), 1),
        "timing_error_ms": figures["timing_error_ms"],
        "held_back": report.held_back,
    }
    print(json.dumps(found), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sink = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("sink.py"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert sink.stdout is not None and sink.stdin is not None
    port = int(sink.stdout.readline())
    cases = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            fast, slow = Path(folder) / "fast", Path(folder) / "slow"
            make(fast, options.requests, 10_000)
            make(slow, 20_000, 2 * SECOND // 1000)  # 500 requests a second, 40 s of it
            quick = Path(folder) / "quick"
            make(quick, 20_000, SECOND // 5000)
            apart = Path(folder) / "apart"
            make(apart, options.requests, 10_000, apart=True)
            for order in (Order.FREE, Order.CONNECTION, Order.RECORDED):
                for what, where in (("one partition", fast), ("a partition each", apart)):
                    cases.append(measured(where, port, f"max, order {order}, {what}", Settings(Pace(0.0), order)))
            cases.append(measured(fast, port, "20000/s, order free", Settings(Pace(0.0, 20_000), Order.FREE)))
            cases.append(measured(quick, port, "1x of 5,000 a second", Settings(Pace(1.0))))
            cases.append(measured(slow, port, "4x of 500 a second", Settings(Pace(4.0))))
            cases.append(measured(slow, port, "4x of 500 a second, order free", Settings(Pace(4.0), Order.FREE)))
    finally:
        sink.stdin.close()
        sink.wait(10)
    if options.json:
        options.json.write_text(json.dumps({"cpus": os.cpu_count(), "cases": cases}, indent=2) + "\n")


if __name__ == "__main__":
    main()
