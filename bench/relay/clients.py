"""A real producer and a real consumer against a real broker: straight, through haproxy, through barnabas.

    python bench/relay/clients.py [--rounds 5] [--megabytes 40] [--json]

Needs what the tests of `tests/real` need (Java, `make broker`) and confluent-kafka. One topic with one partition, so
that every way leads to one broker. haproxy is one more advertised address of the same broker: a listener of the
broker stands for every way that rewrites nothing. Rounds are interleaved; printed are medians, and the median of the
rounds' ratios to direct.
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
from pathlib import Path
from unittest.mock import patch

from barnabas.proxy import Proxy, ProxyConfig
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests")]

from real.broker import Cluster, free_ports, start_cluster  # noqa: E402
from run import process  # noqa: E402

VALUE = 1024
SYNCHRONOUS = 200


@contextmanager
def haproxy(port: int, target: int, folder: Path) -> Iterator[str]:
    config = folder / "haproxy.cfg"
    config.write_text(
        "global\n nbthread 1\n maxconn 4000\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 1m\n"
        f" timeout server 1m\nlisten kafka\n bind 127.0.0.1:{port}\n server broker 127.0.0.1:{target}\n"
    )
    with process(["haproxy", "-db", "-f", str(config)], port):
        yield f"127.0.0.1:{port}"


def produce(bootstrap: str, topic: str, values: list[bytes]) -> float:
    """MB/s of as many records as there are values, acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 1_000_000, "acks": "all"})
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
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
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
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
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


@contextmanager
def ways(cluster: Cluster, ports: dict[str, int], folder: Path) -> Iterator[dict[str, str]]:
    """Name -> bootstrap servers."""
    with ExitStack() as stack:
        found = {"direct": f"127.0.0.1:{cluster.nodes[0].port}"}
        if shutil.which("haproxy"):
            found["haproxy"] = stack.enter_context(haproxy(ports["advertised"], ports["behind"], folder))
        upstream = cluster.addresses[0]
        for name, options in {
            "barnabas": {},
            "barnabas recording": {"record": folder / "recording"},
            "barnabas findings": {"findings": True},
        }.items():
            proxy = stack.enter_context(Proxy(ProxyConfig(upstream=upstream, probe=False, **options)))  # type: ignore[arg-type]
            host, port = proxy.address
            found[name] = f"{host}:{port}"
        yield found


def measure(rounds: int, megabytes: int) -> dict[str, dict[str, list[float]]]:
    values = [os.urandom(VALUE) for _ in range(1000)] * (megabytes * 1_000_000 // VALUE // 1000)
    main, advertised, behind, controller = free_ports(4)
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        # A second listener whose advertised address is haproxy's: clients that come by it stay on it.
        settings = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,HAPROXY:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"PLAINTEXT://127.0.0.1:{main},HAPROXY://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{main},HAPROXY://127.0.0.1:{advertised},"
            f"CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        }
        with patch("real.broker.free_ports", return_value=[controller, main]):
            cluster = start_cluster(1, settings)
        with cluster, ways(cluster, {"advertised": advertised, "behind": behind}, Path(scratch)) as bootstraps:
            admin = AdminClient({"bootstrap.servers": bootstraps["direct"]})
            topics = {name: uuid.uuid4().hex for name in bootstraps}
            for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics.values()]).values():
                made.result(30)
            for name, bootstrap in bootstraps.items():  # warm: the broker's code, the page cache
                produce(bootstrap, topics[name], values[: len(values) // 4])
                synchronous(bootstrap, topics[name])
            found: dict[str, dict[str, list[float]]] = {
                name: {"produce MB/s": [], "sync p50 us": [], "consume MB/s": []} for name in bootstraps
            }
            names = list(bootstraps)
            for number in range(rounds):
                # Side by side, each round beginning with another: what changes on the machine is nobody's merit.
                turn = number % len(names)
                order = names[turn:] + names[:turn]
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
    options = parser.parse_args()
    found = measure(options.rounds, options.megabytes)
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
