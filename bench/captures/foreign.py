"""A foreign capture that is made up, and the programs that open and import one, each in a process of its own."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

from barnabas.captures.pcap.packets import build
from barnabas.decoder import encode_request, encode_response

OPEN = """
import sys, time
from pathlib import Path
from barnabas.captures import open_capture
begun, cpu = time.perf_counter(), time.process_time()
capture = open_capture(Path(sys.argv[1]), background=True)
first, rows_first = time.perf_counter() - begun, len(capture.rows())
while capture.live:
    capture.wait(0.5)
capture.refresh()
whole, cpu = time.perf_counter() - begun, time.process_time() - cpu
private = sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Private_"))
print(len(capture.rows()), rows_first, first, whole, cpu, private / 1024)
"""
IMPORT = """
import sys, time
from pathlib import Path
from barnabas.captures.foreign.importer import Importer
from barnabas.captures.pcap.sources import CaptureSource
begun, cpu = time.perf_counter(), time.process_time()
importer = Importer(Path(sys.argv[2]))
importer.begin(CaptureSource(Path(sys.argv[1])))
while importer.advance():
    pass
importer.close()
print(importer.counts["exchanges"], time.perf_counter() - begun, time.process_time() - cpu)
"""
REOPEN = """
import sys, time
from barnabas.captures import open_capture
begun = time.perf_counter()
capture = open_capture(sys.argv[1])
row = capture.rows()[len(capture.rows()) - 1]
print(len(capture.rows()), time.perf_counter() - begun)
"""


def made_up(path: Path, megabytes: int, payload: int) -> None:
    """Write a capture; `payload`: bytes of records in each Produce request."""
    chance = random.Random(1)
    records = chance.randbytes(payload)
    topic = {"name": "orders", "partition_data": [{"index": 3, "records": records}]}
    answer = {"name": "orders", "partition_responses": [{"index": 3, "error_code": 0, "base_offset": 5}]}
    produce = encode_request(
        0, 3, {"transactional_id": None, "acks": -1, "timeout_ms": 30000, "topic_data": [topic]}, client_id="stock-1"
    )
    produced = encode_response(0, 3, {"responses": [answer], "throttle_time_ms": 0})
    beat = encode_request(12, 1, {"group_id": "g", "generation_id": 5, "member_id": "m-1"}, client_id="stock-1")
    beaten = encode_response(12, 1, {"throttle_time_ms": 0, "error_code": 0})
    ends = [((f"10.0.0.{i + 1}", 40000 + i), ("10.0.1.1", 9092)) for i in range(64)]
    next_ = [[1000, 5000] for _ in ends]
    time_us = 1_700_000_000_000_000
    with open(path, "wb", buffering=1 << 20) as out:
        size = out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))

        def put(number: int, side: int, data: bytes, flags: int = 0x18) -> int:
            nonlocal time_us
            time_us += 20
            done = 0
            for start in range(0, max(len(data), 1), 1448):
                part = data[start : start + 1448]
                own, other = next_[number][side], next_[number][1 - side]
                packet = build(ends[number][side], ends[number][1 - side], own, other, flags, part, side)
                next_[number][side] += len(part) + (flags & 2 != 0)
                head = struct.pack("<IIII", time_us // 10**6, time_us % 10**6, len(packet), len(packet))
                done += out.write(head + packet)
            return done

        for number in range(64):
            size += put(number, 0, b"", 2) + put(number, 1, b"", 0x12) + put(number, 0, b"", 0x10)
        count = 0
        while size < megabytes * 10**6:
            number, correlation_id = chance.randrange(64), struct.pack(">i", count)
            asked, answered = (produce, produced) if count % 4 else (beat, beaten)
            asked, answered = asked[:4] + correlation_id + asked[8:], correlation_id + answered[4:]
            size += put(number, 0, len(asked).to_bytes(4, "big") + asked)
            size += put(number, 1, len(answered).to_bytes(4, "big") + answered)
            count += 1


def run(program: str, *arguments: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]
