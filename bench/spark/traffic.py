"""Recordings to measure with, written by the recorder itself from frames that were encoded once.

    python bench/spark/traffic.py DIRECTORY [--megabytes 500] [--mixed] [--connections 50] [--seed 1]

Small exchanges: heartbeats (1 in 50 with an error), Metadata, FindCoordinator; 120 bytes a frame as packets. They cost
most per byte. `--mixed`: a fleet at work: producers and consumers with batches of 1 and 16 kB, empty fetches, commits, heartbeats.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.decoder.records import Record, encode_batch

START_NS = 1_700_000_000_000_000_000
SMALL = ((12, 4),) * 6 + ((3, 12),) * 2 + ((10, 3),)
"""API keys and versions of the small exchanges: mostly Heartbeat, some Metadata, some FindCoordinator."""


def framed(data: bytes) -> bytes:
    """A frame behind its size."""
    return len(data).to_bytes(4, "big") + data


def _both(
    key: int, version: int, client_id: str, asked: dict[str, object], answered: dict[str, object]
) -> tuple[bytes, bytes]:
    return (
        framed(decoder.encode_request(key, version, asked, correlation_id=0, client_id=client_id)),
        framed(decoder.encode_response(key, version, answered, correlation_id=0)),
    )


@cache
def _small(key: int, version: int, group: str, client_id: str, error: int) -> tuple[bytes, bytes]:
    asked: dict[str, object] = {"group_id": group, "member_id": client_id, "generation_id": 1} if key == 12 else {}
    return _both(key, version, client_id, asked, {"error_code": error} if error else {})


def numbered(asked: bytes, answered: bytes, number: int) -> tuple[bytes, bytes]:
    """The two frames with another correlation id."""
    mark = number.to_bytes(4, "big")
    return asked[:8] + mark + asked[12:], answered[:4] + mark + answered[8:]


def record(
    directory: Path, exchanges: int = 200_000, connections: int = 50, seed: int = 1, start_ns: int = START_NS
) -> None:
    """A recording of small exchanges, the connections one after the other."""
    chance = random.Random(seed)

    def frames(conn: int, number: int) -> tuple[bytes, bytes]:
        if number < connections:  # each begins with ApiVersions; groups are seen from the middle on
            return numbered(*_hello(f"app-{conn}"), number)
        key, version = chance.choice(SMALL)
        error = 15 if key == 12 and chance.random() < 0.02 else 0
        return numbered(*_small(key, version, f"g{conn % 5}", f"app-{conn}", error), number)

    _write(directory, exchanges, connections, seed, frames, start_ns)


def mixed(
    directory: Path, exchanges: int = 50_000, connections: int = 50, seed: int = 1, versions: tuple[int, int] = (9, 12)
) -> None:
    """A recording of a fleet at work: of three connections one produces, one fetches, one is a coordinator's. `versions`: of
    Produce and Fetch."""
    chance = random.Random(seed)
    turns = [0] * connections

    def frames(conn: int, number: int) -> tuple[bytes, bytes]:
        turns[conn] += 1
        role, turn = conn % 3, turns[conn]
        if turn == 1:
            return numbered(*_hello(f"app-{conn}"), number)
        if turn % 500 == 0 or turn == 2:
            return numbered(*_topics(f"app-{conn}"), number)
        if role == 0:
            return numbered(*_produce(f"app-{conn}", conn % 8, turn, chance.choice((1000, 16000)), versions[0]), number)
        if role == 1:
            size = chance.choice((0, 0, 1000, 16000))
            return numbered(*_fetch(f"app-{conn}", conn % 8, turn, size, versions[1]), number)
        if turn % 4:
            return numbered(*_small(12, 4, f"g{conn % 5}", f"app-{conn}", 0), number)
        return numbered(*_commit(f"app-{conn}", f"g{conn % 5}", turn), number)

    _write(directory, exchanges, connections, seed, frames)


def _write(
    directory: Path, exchanges: int, connections: int, seed: int, frames: Callable[[int, int], tuple[bytes, bytes]], start_ns: int = START_NS
) -> None:
    chance, recorder, time_ns = random.Random(seed), Recorder(directory), start_ns
    for conn in range(connections):
        recorder.opened(conn, time_ns, (f"10.0.{conn >> 8}.{conn & 255}", 20000 + conn), ("10.0.0.9", 9092))
    for number in range(exchanges):
        for direction, frame in enumerate(frames(number % connections, number)):
            time_ns += chance.randrange(1, 20_000_000)
            recorder.data(number % connections, direction, time_ns, frame)
    recorder.close()


@cache
def _hello(client_id: str) -> tuple[bytes, bytes]:
    offered = [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, low, high in ((0, 3, 11), (1, 4, 17), (3, 0, 12), (8, 2, 9), (10, 0, 6), (12, 0, 4), (18, 0, 4))
    ]
    asked = {"client_software_name": "bench", "client_software_version": "1"}
    return _both(18, 3, client_id, asked, {"api_keys": offered})


@cache
def _topics(client_id: str) -> tuple[bytes, bytes]:
    partitions = [
        {"partition_index": n, "leader_id": 1, "leader_epoch": 1, "replica_nodes": [1], "isr_nodes": [1]}
        for n in range(8)
    ]
    answered = {
        "brokers": [{"node_id": 1, "host": "10.0.0.9", "port": 9092}], "cluster_id": "bench", "controller_id": 1,
        "topics": [{"name": "orders", "topic_id": bytes(15) + b"\1", "partitions": partitions}],
    }  # fmt: skip
    return _both(3, 12, client_id, {"topics": [{"name": "orders"}]}, answered)


@cache
def _batch(size: int, turn: int) -> bytes:
    """A batch of magic 2 with one record."""
    value = random.Random(turn).randbytes(size)
    return encode_batch([Record(offset=0, timestamp=1_700_000_000_000, key=None, value=value)])


def _produce(client_id: str, partition: int, turn: int, size: int, version: int) -> tuple[bytes, bytes]:
    part = {"index": partition, "records": _batch(size, turn % 16)}
    asked = {"acks": -1, "timeout_ms": 30000, "topic_data": [{"name": "orders", "partition_data": [part]}]}
    done = {"index": partition, "base_offset": turn, "log_append_time_ms": -1, "log_start_offset": 0}
    return _both(0, version, client_id, asked, {"responses": [{"name": "orders", "partition_responses": [done]}]})


def _fetch(client_id: str, partition: int, turn: int, size: int, version: int) -> tuple[bytes, bytes]:
    part = {"partition": partition, "fetch_offset": turn, "partition_max_bytes": 1 << 20, "current_leader_epoch": 1}
    asked = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 25, "session_id": 7, "session_epoch": turn,
             "topics": [{"topic": "orders", "partitions": [part] if size else []}]}  # fmt: skip
    fetched = {"partition_index": partition, "high_watermark": turn + 10, "last_stable_offset": turn + 10,
            "log_start_offset": 0, "records": _batch(size, turn % 16) if size else b""}  # fmt: skip
    answered = {"session_id": 7, "responses": [{"topic": "orders", "partitions": [fetched]}] if size else []}
    return _both(1, version, client_id, asked, answered)


def _commit(client_id: str, group: str, turn: int) -> tuple[bytes, bytes]:
    part = {"partition_index": 0, "committed_offset": turn, "committed_leader_epoch": 1}
    asked = {"group_id": group, "generation_id_or_member_epoch": 1, "member_id": "m",
             "topics": [{"name": "orders", "partitions": [part]}]}  # fmt: skip
    done = {"name": "orders", "partitions": [{"partition_index": 0, "error_code": 0}]}
    return _both(8, 8, client_id, asked, {"topics": [done]})


def written(
    directory: Path, megabytes: int, mixture: bool = False, connections: int = 50, seed: int = 1
) -> Iterator[Path]:
    """Recordings of about 250 MB each under `directory` until there are so many megabytes; those that are there stay."""
    for part in range(max(megabytes // 250, 1)):
        place = directory / f"part-{part}"
        if not place.exists():
            make, per_megabyte = (mixed, 215) if mixture else (record, 4150)
            make(place, min(megabytes, 250) * per_megabyte, connections, seed + part)
        yield place


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for made in written(given.directory, given.megabytes, given.mixed, given.connections, given.seed):
        print(made, f"{sum(file.stat().st_size for file in made.glob('*.pcapng')) / 1e6:.0f} MB", flush=True)
