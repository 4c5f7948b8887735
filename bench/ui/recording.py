"""Recordings to look at: many exchanges at once, or a steady rate.

    python bench/ui/recording.py DIR --exchanges 1000000
    python bench/ui/recording.py DIR --rate 10000 --seconds 30
    python bench/ui/recording.py DIR --topics 770

Heartbeat, Metadata and small Produce exchanges of 64 connections, an error in every thousandth.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.decoder.schema import facts

CONNECTIONS = 64
BASE_NS = 1_795_000_000_000_000_000


def frames() -> list[tuple[bytes, bytes]]:
    """(request, response) with their 4 size bytes; the correlation id is at 8 and at 4."""
    heartbeat = {"group_id": "stock", "generation_id": 5, "member_id": "m-1"}
    of = [
        ("Heartbeat", 4, heartbeat, {}),
        ("Produce", 9, {"acks": -1, "topic_data": [{"name": "orders", "partition_data": [{"index": 3, "records": b""}]}]},
         {"responses": [{"name": "orders", "partition_responses": [{"index": 3, "base_offset": 7}]}]}),
        ("Heartbeat", 4, heartbeat, {"error_code": 27}),
    ]  # fmt: skip
    made = []
    for api, version, asked, answered in of:
        key = facts.api_key(api)
        pair = (
            decoder.encode_request(key, version, asked, correlation_id=0, client_id="stock-1"),
            decoder.encode_response(key, version, answered, correlation_id=0),
        )
        request, response = (len(frame).to_bytes(4, "big") + frame for frame in pair)
        made.append((request, response))
    return made


class Writer:
    """Writes exchanges into a recording, `batch` of a connection at a time."""

    def __init__(self, directory: Path):
        self.recorder = Recorder(directory)
        self.count = 0
        self._frames = frames()
        for number in range(1, CONNECTIONS + 1):
            self.recorder.opened(number, BASE_NS, client=("10.0.0.5", 50000 + number), broker=("10.0.1.1", 9092))

    def write(self, batch: int, now: int) -> None:
        """So many exchanges on the next connection."""
        connection = 1 + self.count // batch % CONNECTIONS
        asked, answered = [], []
        for number in range(self.count, self.count + batch):
            request, response = self._frames[2 if number % 1000 == 999 else number % 2]
            corr = (number & 0x7FFFFFFF).to_bytes(4, "big")
            asked.append(request[:8] + corr + request[12:])
            answered.append(response[:4] + corr + response[8:])
        self.count += batch
        self.recorder.data(connection, decoder.Direction.REQUEST, now, b"".join(asked))
        self.recorder.data(connection, decoder.Direction.RESPONSE, now + 1_300_000, b"".join(answered))


def many(directory: Path, exchanges: int) -> None:
    """A recording of so many exchanges, 10,000 in a second of its time."""
    writer = Writer(directory)
    while writer.count < exchanges:
        writer.write(100, BASE_NS + writer.count * 100_000)
    writer.recorder.close()


def large(directory: Path, topics: int) -> None:
    """One Metadata exchange with so many topics of 50 partitions; 770 of them are 313,000 fields, 1.6 MB."""
    recorder = Recorder(directory)
    key = facts.api_key("Metadata")
    partition = {"leader_id": 1, "leader_epoch": 5, "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}
    partitions = [{"partition_index": p, **partition} for p in range(50)]
    named = [{"name": f"topic-{topic}", "partitions": partitions} for topic in range(topics)]
    asked = decoder.encode_request(key, 12, {"topics": None}, correlation_id=1, client_id="stock-1")
    answered = decoder.encode_response(key, 12, {"topics": named, "controller_id": 1}, correlation_id=1)
    recorder.opened(1, BASE_NS, client=("10.0.0.5", 50001), broker=("10.0.1.1", 9092))
    for direction, frame in ((decoder.Direction.REQUEST, asked), (decoder.Direction.RESPONSE, answered)):
        recorder.data(1, direction, BASE_NS, len(frame).to_bytes(4, "big") + frame)
    recorder.close()


def steady(directory: Path, rate: int, seconds: float) -> None:
    """So many exchanges in a second, flushed as the observer does."""
    writer = Writer(directory)
    began = time.monotonic()
    while (past := time.monotonic() - began) < seconds:
        due = int(past * rate)
        while writer.count < due:
            writer.write(20, time.time_ns())
        writer.recorder.flush()
        time.sleep(0.05)
    writer.recorder.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--exchanges", type=int, default=0)
    parser.add_argument("--topics", type=int, default=0)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    if given.topics:
        large(given.directory, given.topics)
    elif given.rate:
        steady(given.directory, given.rate, given.seconds)
    else:
        many(given.directory, given.exchanges or 100_000)


if __name__ == "__main__":
    main()
