"""What the proxy's processes cost on the way: by connections, by size of a frame, by partitions in Metadata.

Each size is run for a while and for three times as long; the difference is what frames cost, what is left is what
connecting cost. Waited for is what the observers still have to do.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.decoder.schema import facts
from capture_costs import Row
from frames import Shape, fetch, heartbeat, pair, produce
from load import Load, build, cpu_seconds
from run import barnabas

WARM = 1.25
"""The load counts frames after a quarter of its time."""
CONNECTIONS = (1, 10, 100, 1000)
SIZES = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20)
PARTITIONS = (10, 100, 1000, 10_000)
IDLE_SECONDS, STILL = 10.0, 0.005


def _settled(pids: list[int]) -> float:
    """CPU seconds so far, once the processes have next to nothing more to do."""
    until, before = time.monotonic() + IDLE_SECONDS, cpu_seconds(pids)
    while time.monotonic() < until:
        time.sleep(0.2)
        now = cpu_seconds(pids)
        if now - before < STILL:
            return now
        before = now
    return before


def _costs(folder: Path, shape: Shape, options: argparse.Namespace, **settings: Any) -> tuple[float, float]:
    """(microseconds of CPU for a frame and its answer, for a connection), medians over rounds."""
    load = Load(folder, shape)
    if not (folder / "load").exists():
        build(folder)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    frames, opened = [], []
    with ExitStack() as stack:
        upstream = stack.enter_context(load.sink())
        port, pids = stack.enter_context(barnabas(**settings)(upstream, folder))
        load.warm(port)
        for _ in range(options.rounds):
            runs = []
            for seconds in (options.seconds, options.seconds * 3):
                before = _settled(pids)
                moved = load.measure(port, seconds)["frames"] * WARM
                runs.append((moved, _settled(pids) - before))
            (few, little), (many, much) = runs
            each = (much - little) / max(many - few, 1)
            frames.append(each)
            opened.append(max(little - few * each, 0) / shape.connections)
    return 1e6 * statistics.median(frames), 1e6 * statistics.median(opened)


def connections(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Heartbeats of 100 bytes, one in flight on each: with more, frames that come together would share what they cost."""
    for count in CONNECTIONS:
        shape = Shape("", *heartbeat(100), 1, count)
        frame, opened = _costs(folder, shape, options)
        recorded, _ = _costs(folder, shape, options, record=True)
        costs = {"passed": (frame, "us a frame"), "recorded": (recorded, "us a frame"), "connected": (opened, "us")}
        yield Row(f"{count:,}", costs if count >= 1000 else {k: v for k, v in costs.items() if k != "connected"})


def frames(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Produce requests and Fetch responses of growing size; per KiB, of which a small frame is a part."""
    for size in SIZES:
        costs = {}
        for name, made in (("produced", produce), ("fetched", fetch)):
            shape = Shape("", *made(size), 4, 8)
            kib = (len(shape.request) + len(shape.response)) / 1024
            costs[name] = (_costs(folder, shape, options)[0] / kib, "us a KiB")
            costs[f"{name}, recorded"] = (_costs(folder, shape, options, record=True)[0] / kib, "us a KiB")
        yield Row(f"{size:,} B", costs)


def _metadata(count: int) -> tuple[bytes, bytes, bytes]:
    """(request, response, the response's body) of topics of 100 partitions at most on three brokers."""
    key, version, most = facts.api_key("Metadata"), 12, min(count, 100)
    partition = {"replica_nodes": [0, 1, 2], "isr_nodes": [0, 1, 2]}
    partitions = [{"partition_index": n, "leader_id": n % 3, **partition} for n in range(most)]
    topics = [{"name": f"topic-{topic:04d}", "partitions": partitions} for topic in range(count // most)]
    brokers = [{"node_id": n, "host": "127.0.0.1", "port": 19000 + n} for n in range(3)]
    body = {"brokers": brokers, "cluster_id": "growth", "controller_id": 1, "topics": topics}
    return *pair(key, version, {"topics": None}, body), decoder.encode_body("response", key, version, body)


def partitions(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Metadata, whose addresses the proxy changes: passed on, decoded, and its errors alone."""
    key = facts.api_key("Metadata")
    errors = decoder.project("response", key, 12, ["topics[*].partitions[*].error_code"])
    for count in PARTITIONS:
        asked, answered, body = _metadata(count)
        passed, _ = _costs(folder, Shape("", asked, answered, 1, 1), options)
        found = {"passed, addresses changed": (1e3 * passed / count, "ns a partition")}
        works = {"decoded": lambda body=body: decoder.decode_body("response", key, 12, body), "errors": lambda body=body: errors(body)}
        for name, work in works.items():
            times = max(20_000 // count, 3)
            work()  # compiled, and its memory is there
            taken = []
            for _ in range(options.rounds):
                before = time.process_time()
                for _ in range(times):
                    work()
                taken.append((time.process_time() - before) / times)
            found[name] = (1e9 * statistics.median(taken) / count, "ns a partition")
        yield Row(f"{count:,}", found)
