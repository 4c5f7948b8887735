"""A real producer and a real consumer at a real broker: directly, through barnabas, through other proxies.

    python bench/relay/clients.py [--rounds 9] [--megabytes 150] [--only NAME,...] [--records TEXT,...] [--json]

Needs what the tests of `tests/real` need (Java, `make broker`) and confluent-kafka; others are taken from the PATH and from
where bench/peers/run.py puts them. One topic with one partition, so that every way leads to one broker. A proxy that
rewrites no addresses is one more advertised address of the same broker: a listener of the broker for each. Rounds are interleaved,
each beginning with another way. Printed are medians, in brackets the median of the rounds' ratios to direct and their quartiles, and
the CPU time in ms per MB of payload that client, proxy and broker have used.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.metrics.settings import MeterConfig
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests")]

from load import children, cpu_seconds  # noqa: E402
from proxies import PEERS  # noqa: E402
from real.brokers.broker import Cluster, free_ports, start_cluster  # noqa: E402

PEERS_BIN = HERE.parents[1] / ".cache" / "peers" / "bin"
BYTE_PROXIES = ("haproxy", "toxiproxy", "mitmproxy")

SYNCHRONOUS = 200
PARTS = ("client", "proxy", "broker")
QUIET = {"log_level": 2}
"""No word about connections that end with their proxy."""


@dataclass(frozen=True)
class Records:
    """What a producer sends: values of `size` bytes, by a client with these `settings`."""

    size: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    compressible: bool = False

    def values(self, megabytes: int) -> list[bytes]:
        """Records of so many MB in all."""
        if self.compressible:
            few = [json.dumps({"order": n, "state": "paid", "items": [n % 7] * 9}).encode() for n in range(1000)]
            few = [(one * (self.size // len(one) + 1))[: self.size] for one in few]
        else:
            few = [os.urandom(self.size) for _ in range(1000)]
        return few * max(1, megabytes * 1_000_000 // self.size // 1000)


RECORDS = {
    "1 KiB": Records(1024),
    "10 KiB": Records(10240),
    "1 KiB lz4": Records(1024, {"compression.type": "lz4"}, compressible=True),
    "1 KiB idempotent": Records(1024, {"enable.idempotence": True}),
}


def produce(bootstrap: str, topic: str, values: list[bytes], settings: Mapping[str, Any]) -> float:
    """MB/s of as many records as there are values, acknowledged."""
    batches = {"linger.ms": 5, "batch.size": 1_000_000, "acks": "all"}
    producer = Producer({"bootstrap.servers": bootstrap, **batches, **settings, **QUIET})
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
    "barnabas all": {"record": True, "findings": True, "meter": MeterConfig(metrics=("127.0.0.1", 0))},
}


@dataclass(frozen=True)
class Way:
    """Where clients connect, and the processes in between."""

    bootstrap: str
    pids: list[int]


@contextmanager
def ways(cluster: Cluster, listeners: dict[str, Listener], names: list[str], folder: Path) -> Iterator[dict[str, Way]]:
    """Every way by its name."""
    upstream = cluster.addresses[0]
    with ExitStack() as stack:
        found = {"direct": Way(f"{upstream[0]}:{upstream[1]}", [])}
        for name in names:
            if name in OURS:
                settings = OURS[name] | ({"record": folder / name.replace(" ", "-")} if "record" in OURS[name] else {})
                before = children()
                address = stack.enter_context(Proxy(ProxyConfig(upstream=upstream, probe=False, **settings))).address
                found[name] = Way(f"{address[0]}:{address[1]}", sorted(children() - before))
            else:
                listener = listeners.get(name, Listener(0, upstream[1]))
                port, pids = stack.enter_context(PEERS[name][1](listener.behind, folder, listener.advertised))
                found[name] = Way(f"127.0.0.1:{port}", pids)
        yield found


@contextmanager
def started(names: list[str]) -> Iterator[tuple[list[int], dict[str, Way]]]:
    """The broker's processes, and all ways to it."""
    bytewise = [name for name in names if name in BYTE_PROXIES]
    main, controller, *ports = free_ports(2 + 2 * len(bytewise))
    listeners = {name: Listener(*ports[2 * n : 2 * n + 2]) for n, name in enumerate(bytewise)}
    own = ("PLAINTEXT", main, main), ("CONTROLLER", controller, controller)
    every = [*own, *((name.upper(), each.behind, each.advertised) for name, each in listeners.items())]
    settings = {
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name, _, _ in every),
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port, _ in every),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, _, port in every),
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
    }
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        before = children()
        with patch("real.brokers.broker.free_ports", return_value=[controller, main]):
            cluster = start_cluster(1, settings)
        broker = sorted(pid for guard in children() - before for pid in children(of=guard))
        with cluster, ways(cluster, listeners, names, Path(scratch)) as every_way:
            yield broker, every_way


Round = dict[str, float]
"""A figure for each column."""


def measure(
    broker: list[int], every_way: dict[str, Way], records: Records, rounds: int, megabytes: int
) -> dict[str, list[Round]]:
    """What each way has reached in each round, with a topic of its own that is deleted in the end."""
    values = records.values(megabytes)
    size = sum(map(len, values)) / 1e6
    admin = AdminClient({"bootstrap.servers": every_way["direct"].bootstrap, **QUIET})
    topics = {name: uuid.uuid4().hex for name in every_way}
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics.values()]).values():
        made.result(30)
    for name, way in every_way.items():  # warm: the broker's code, its group coordinator, the page cache
        produce(way.bootstrap, topics[name], values[: len(values) // 4], records.settings)
        synchronous(way.bootstrap, topics[name])
        consume(way.bootstrap, topics[name], len(values) // 4)
    found: dict[str, list[Round]] = {name: [{} for _ in range(rounds)] for name in every_way}
    names = list(every_way)

    def timed(number: int, column: str, name: str, run: Callable[[str, str], float]) -> None:
        """One figure and the CPU time that it took, of client, proxy and broker."""
        way = every_way[name]
        before = time.process_time(), cpu_seconds(way.pids), cpu_seconds(broker)
        row = found[name][number]
        row[column] = run(way.bootstrap, topics[name])
        after = time.process_time(), cpu_seconds(way.pids), cpu_seconds(broker)
        for part, one, other in zip(PARTS, before, after, strict=True):
            row[f"{column} {part}"] = (other - one) / size * 1e3

    for number in range(rounds):
        # Interleaved, and each round begins with another way, so that changes on the machine affect all of them.
        turn = number % len(names)
        order = names[turn:] + names[:turn]
        for name in order:
            timed(number, "produce", name, lambda way, topic: produce(way, topic, values, records.settings))
        for name in order:
            timed(number, "synchronous", name, synchronous)
        for name in order:
            timed(number, "consume", name, lambda way, topic: consume(way, topic, len(values)))
    for deleted in admin.delete_topics(list(topics.values())).values():
        deleted.result(30)
    return found


def cell(column: str, rounds: list[Round], direct: list[Round]) -> str:
    """One figure: its median, its ratio to direct with quartiles, and the CPU time of the parts."""
    ratios = [one[column] / base[column] for one, base in zip(rounds, direct, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    text = f"{statistics.median(one[column] for one in rounds):6.0f} ({middle:4.2f}, {low:4.2f}-{high:4.2f})"
    if column != "synchronous":
        text += " " + "/".join(f"{statistics.median(one[f'{column} {part}'] for one in rounds):.2f}" for part in PARTS)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", help="names of ways, separated by commas; direct is always there")
    parser.add_argument(
        "--records", default="1 KiB", help=f"kinds of records, separated by commas, or 'all': {', '.join(RECORDS)}"
    )
    options = parser.parse_args()
    os.environ["PATH"] = f"{PEERS_BIN}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin"
    known = {**dict.fromkeys((*BYTE_PROXIES, "kroxylicious")), **OURS}
    wanted = options.only.split(",") if options.only else list(known)
    kinds = list(RECORDS) if options.records == "all" else options.records.split(",")
    if unknown := set(wanted) - known.keys() - {"direct"}:
        parser.error(f"no way is called {', '.join(sorted(unknown))}; there are direct, {', '.join(known)}")
    if unknown := set(kinds) - RECORDS.keys():
        parser.error(f"no records are called {', '.join(sorted(unknown))}; there are {', '.join(RECORDS)}")
    names = [name for name in known if name in wanted and (name in OURS or shutil.which(str(PEERS[name][0])))]
    if missing := [name for name in known if name in wanted and name not in names]:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    everything = {}
    for kind in kinds:
        with started(names) as (broker, every_way):
            found = everything[kind] = measure(broker, every_way, RECORDS[kind], options.rounds, options.megabytes)
        if options.json:
            continue
        print(f"{kind}: {options.rounds} rounds of {options.megabytes} MB; load {os.getloadavg()[0]:.1f}")
        print(f"  {'':20} {'produce, MB/s':38} {'one at a time, p50 us':24} consume, MB/s")
        for name, rounds in found.items():
            figures = {
                column: cell(column, rounds, found["direct"]) for column in ("produce", "synchronous", "consume")
            }
            print(f"  {name:20} {figures['produce']:38} {figures['synchronous']:24} {figures['consume']}", flush=True)
    if options.json:
        print(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
