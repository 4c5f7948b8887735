"""Filters on topics and groups over a recording of a million exchanges: the first one, the next ones, and those of the next command.

    python bench/filter/names.py [--rows 1000000] [--rounds 7]

A recorder writes small Produce, Fetch, OffsetCommit and Heartbeat exchanges of 61 topics and groups (seeded; 400 MB a million).
The first filter is measured once, as it decodes; the others as medians. "Opened anew" includes opening and reading the names.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import tempfile
import time
from pathlib import Path

from barnabas import decoder
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.captures.reading.selection import Selection
from barnabas.decoder import records
from barnabas.decoder.filter import compile

START_NS = 1_780_000_000_000_000_000
TOPICS = ("orders", *(f"topic-{number}" for number in range(60)))
OFFSET = 0x0102030405060708
"""Stands for the offset of a Produce response, which counts up."""
FILTERS = (
    "topic == orders",
    "topic == orders and err == 0",
    'topic ~ "^topic-[1-3]"',
    "topic != orders",
    "group == orders or api == Fetch",
    "topic == orders and partition == 1",
)


def write(directory: Path, count: int) -> None:
    recorder = Recorder(directory, flush_seconds=3600)
    for connection in range(64):
        recorder.opened(connection, START_NS, client=(f"10.0.0.{connection}", 50000 + connection), broker=("kafka", 9092))
    batch = records.encode_batch([records.Record(0, START_NS // 10**6, b"k", b"v" * 100, ())])
    frames: list[tuple[bytes, bytes]] = []
    for topic in TOPICS:
        for part in range(3):
            named = [{"name": topic, "partitions": [{"partition_index": part}]}]
            for api, version, asked, answered in (
                (0, 9, {"acks": -1, "topic_data": [{"name": topic, "partition_data": [{"index": part, "records": batch}]}]},
                 {"responses": [{"name": topic, "partition_responses": [{"index": part, "base_offset": OFFSET}]}]}),
                (1, 12, {"topics": [{"topic": topic, "partitions": [{"partition": part}]}]},
                 {"responses": [{"topic": topic, "partitions": [{"partition_index": part, "high_watermark": 1, "records": batch}]}]}),
                (8, 8, {"group_id": topic, "topics": named}, {"topics": named}),
                (12, 4, {"group_id": topic}, {}),
            ):  # fmt: skip
                request = decoder.encode_request(api, version, asked, correlation_id=0, client_id="stock-1")
                frames.append((request, decoder.encode_response(api, version, answered, correlation_id=0)))
    chosen = random.Random(7)
    for number in range(count):
        request, response = chosen.choice(frames)
        at, correlation = START_NS + number * 100_000, number.to_bytes(4, "big")
        response = response.replace(OFFSET.to_bytes(8, "big"), number.to_bytes(8, "big"))
        recorder.data(number % 64, 0, at, len(request).to_bytes(4, "big") + request[:4] + correlation + request[8:])
        recorder.data(number % 64, 1, at + 5000, len(response).to_bytes(4, "big") + correlation + response[4:])
    recorder.close()


def found(capture: Capture, text: str) -> tuple[float, int, int]:
    """Milliseconds, hits, and how many exchanges were decoded."""
    gc.collect()
    start = time.perf_counter()
    selection = Selection(capture, compile(text))
    hits = len(list(selection.rows()))
    return (time.perf_counter() - start) * 1e3, hits, selection.decoded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        recording = Path(directory) / "recording"
        write(recording, options.rows)
        with open_capture(recording) as capture:
            ms, hits, decoded = found(capture, FILTERS[0])
            print(f"{FILTERS[0]}, the first time: {ms:.0f} ms, {hits} of {options.rows} found, {decoded} decoded")
            start = time.perf_counter()
            capture.save_names()
        print(f"writing the names: {(time.perf_counter() - start) * 1e3:.0f} ms")
        size = sum(path.stat().st_size for path in recording.glob("*.names"))
        print(f"their files: {size / options.rows:.1f} bytes an exchange")
        anew = []
        for _ in range(options.rounds):
            start = time.perf_counter()
            with open_capture(recording) as capture:
                assert found(capture, FILTERS[0])[1:] == (hits, 0)
            anew.append((time.perf_counter() - start) * 1e3)
        print(f"{FILTERS[0]}, opened anew: {statistics.median(anew):.0f} ms")
        with open_capture(recording) as capture:
            for text in FILTERS:
                rounds = [found(capture, text) for _ in range(1 if "partition" in text else options.rounds)]
                ms = statistics.median(each[0] for each in rounds)
                print(f"{text:<36} {rounds[0][1]:>7} found {rounds[0][2]:>7} decoded {ms:>8.1f} ms")


if __name__ == "__main__":
    main()
