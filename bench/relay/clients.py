"""A real producer and a real consumer at a real broker: directly, through barnabas, through other proxies.

    python bench/relay/clients.py [--rounds 5] [--megabytes 40] [--only NAME,...] [--json]

Needs what the tests of `tests/real` need (Java, `make broker`) and confluent-kafka; others are taken from the PATH and from
where bench/peers/run.py puts them. One topic with one partition, so that every way leads to one broker. A proxy that
rewrites no addresses is one more advertised address of the same broker: a listener of the broker for each. Rounds are interleaved;
printed are medians, and the median of the rounds' ratios to direct.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from barnabas.proxy import Proxy, ProxyConfig
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests")]

from proxies import PEERS  # noqa: E402
from real.brokers.broker import Cluster, free_ports, start_cluster  # noqa: E402

PEERS_BIN = HERE.parents[1] / ".cache" / "peers" / "bin"
BYTE_PROXIES = ("haproxy", "toxiproxy", "mitmproxy")

VALUE = 1024
SYNCHRONOUS = 200
QUIET = {"log_level": 2}
"""No word about connections that end with their proxy."""


def produce(bootstrap: str, topic: str, values: list[bytes]) -> float:
    """MB/s of as many records as there are values, acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 1_000_000, "acks": "all", **QUIET})
    producer.list_topics(topic, 10)
    begun = time.perf_counter()
    for value in values:
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(60):
        raise RuntimeError("records were not acknowledged within a minute")
    return sum(map(len, values)) / (time.perf_counter() - begun) / 1e6


def synchronous(bootstrap: str, topic: str) -> float:
    """Median microseconds of one record of 100 bytes at a time."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", **QUIET})
    took = []
    for number in range(SYNCHRONOUS + 20):
        begun = time.perf_counter()
        producer.produce(topic, b"x" * 100)
        producer.flush(30)
        if number >= 20:
            took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


def consume(bootstrap: str, topic: str, count: int) -> float:
    """MB/s of the first `count` records of a topic that is already full, from `subscribe` on: the way to the group's
    coordinator, joining and all fetches are part of it, whichever way leads there."""
    group = {"group.id": uuid.uuid4().hex, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **group, **QUIET})
    size = got = 0
    begun = time.perf_counter()
    consumer.subscribe([topic])
    while got < count:
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None and got < count:
                size += len(message.value())
                got += 1
        if time.perf_counter() - begun > 120:
            raise RuntimeError(f"only {got} of {count} records came within two minutes")
    took = time.perf_counter() - begun
    consumer.close()
    return size / took / 1e6


@dataclass(frozen=True)
class Listener:
    """Where the broker listens for the clients of one proxy, and the port that it advertises to them: the proxy's own."""

    advertised: int
    behind: int


OURS: dict[str, dict[str, Any]] = {
    "barnabas": {},
    "barnabas recording": {"record": True},
    "barnabas findings": {"findings": True},
}


@contextmanager
def ways(cluster: Cluster, listeners: dict[str, Listener], names: list[str], folder: Path) -> Iterator[dict[str, str]]:
    """Name -> bootstrap servers."""
    upstream = cluster.addresses[0]
    with ExitStack() as stack:
        found = {"direct": f"{upstream[0]}:{upstream[1]}"}
        for name in names:
            if name in OURS:
                settings = OURS[name] | ({"record": folder / "recording"} if "record" in OURS[name] else {})
                address = stack.enter_context(Proxy(ProxyConfig(upstream=upstream, probe=False, **settings))).address
                found[name] = f"{address[0]}:{address[1]}"
            else:
                listener = listeners.get(name, Listener(0, upstream[1]))
                port, _ = stack.enter_context(PEERS[name][1](listener.behind, folder, listener.advertised))
                found[name] = f"127.0.0.1:{port}"
        yield found


def measure(rounds: int, megabytes: int, names: list[str]) -> dict[str, dict[str, list[float]]]:
    values = [os.urandom(VALUE) for _ in range(1000)] * (megabytes * 1_000_000 // VALUE // 1000)
    bytewise = [name for name in names if name in BYTE_PROXIES]
    main, controller, *ports = free_ports(2 + 2 * len(bytewise))
    listeners = {name: Listener(*ports[2 * n : 2 * n + 2]) for n, name in enumerate(bytewise)}
    own = ("PLAINTEXT", main, main), ("CONTROLLER", controller, controller)
    every = [*own, *((name.upper(), each.behind, each.advertised) for name, each in listeners.items())]
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        settings = {
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name, _, _ in every),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port, _ in every),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, _, port in every),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        }
        with patch("real.brokers.broker.free_ports", return_value=[controller, main]):
            cluster = start_cluster(1, settings)
        with cluster, ways(cluster, listeners, names, Path(scratch)) as bootstraps:
            admin = AdminClient({"bootstrap.servers": bootstraps["direct"]})
            topics = {name: uuid.uuid4().hex for name in bootstraps}
            for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics.values()]).values():
                made.result(30)
            for name, bootstrap in bootstraps.items():  # warm: the broker's code, its group coordinator, the page cache
                produce(bootstrap, topics[name], values[: len(values) // 4])
                synchronous(bootstrap, topics[name])
                consume(bootstrap, topics[name], len(values) // 4)
            found: dict[str, dict[str, list[float]]] = {
                name: {"produce MB/s": [], "sync p50 us": [], "consume MB/s": []} for name in bootstraps
            }
            every_way = list(bootstraps)
            for number in range(rounds):
                # Side by side, each round beginning with another: what changes on the machine is nobody's merit.
                turn = number % len(every_way)
                order = every_way[turn:] + every_way[:turn]
                for name in order:
                    found[name]["produce MB/s"].append(produce(bootstraps[name], topics[name], values))
                for name in order:
                    found[name]["sync p50 us"].append(synchronous(bootstraps[name], topics[name]))
                for name in order:
                    found[name]["consume MB/s"].append(consume(bootstraps[name], topics[name], len(values)))
            return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", help="names of ways, separated by commas; direct is always there")
    options = parser.parse_args()
    os.environ["PATH"] = f"{PEERS_BIN}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin"
    known = {**dict.fromkeys((*BYTE_PROXIES, "kroxylicious")), **OURS}
    wanted = options.only.split(",") if options.only else list(known)
    if unknown := set(wanted) - known.keys() - {"direct"}:
        parser.error(f"no way is called {', '.join(sorted(unknown))}; there are direct, {', '.join(known)}")
    names = [name for name in known if name in wanted and (name in OURS or shutil.which(str(PEERS[name][0])))]
    if missing := [name for name in known if name in wanted and name not in names]:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    found = measure(options.rounds, options.megabytes, names)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(
        f"medians of {options.rounds} rounds, {options.megabytes} MB of records of {VALUE} B; load {os.getloadavg()[0]:.1f}"
    )
    for name, kinds in found.items():
        cells = []
        for kind, rounds in kinds.items():
            ratio = statistics.median(one / base for one, base in zip(rounds, found["direct"][kind], strict=True))
            cells.append(f"{kind} {statistics.median(rounds):8.1f} ({ratio:4.2f}x)")
        print(f"  {name:20} {'   '.join(cells)}")


if __name__ == "__main__":
    main()
