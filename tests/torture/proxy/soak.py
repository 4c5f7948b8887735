"""A proxy with everything that watches, for as long as one likes: does it grow, does it slow down, does it lose anything?

    PYTHONPATH=tests python -m torture.proxy.soak --minutes 60 [--rate 300] [--json FILE]

A real broker, a producer, a consumer, and every ten seconds a new client that asks and goes. Each sample sums what the
processes of ``barnabas proxy`` hold: memory that they wrote and nobody else has (KiB; pages of files are left out, as they
come and go with whoever else maps them), open files, threads. Reported are the slope of the memory over the second half
(least squares, KiB per hour), in all and of each process, and how late acknowledgements were in the first and the last
tenth. What the proxy keeps on purpose fills up first: 10,000 events, 20,000 exchanges, the index of the open segment.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from real.brokers.broker import start_cluster
from torture.proxy.peers.clients import QUICK, Consumption, Production, check, make_topic, stop

SAMPLE_SECONDS = 5.0


class Timed(Production):
    """Also keeps when each acknowledgement came (s since the epoch), and how late (ms)."""

    def __init__(self, bootstrap: str, topic: str, pause: float) -> None:
        super().__init__(bootstrap, topic, True, pause)
        self.late: list[tuple[float, float]] = []

    def _delivered(self, error: Any, message: Message) -> None:
        super()._delivered(error, message)
        latency = message.latency()
        if latency is not None:
            self.late.append((time.time(), latency * 1e3))


def family(pid: int) -> list[int]:
    """A process and all that come from it."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def named(pid: int) -> str:
    """What a process of the proxy is: its module, or the command itself."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    modules = [word.removeprefix("barnabas.proxy.") for word in words if word.startswith("barnabas.proxy.")]
    return modules[0] if modules else "supervisor"


def sample(pid: int) -> dict[str, Any]:
    """What a family of processes holds: private memory in KiB (also of each), open files, threads."""
    files = threads = 0
    each_kib: dict[str, int] = {}
    members = family(pid)
    for each in members:
        for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_Dirty:"):
                name = named(each)
                each_kib[name] = each_kib.get(name, 0) + int(line.split()[1])
        files += len(os.listdir(f"/proc/{each}/fd"))
        threads += len(os.listdir(f"/proc/{each}/task"))
    return {"kib": sum(each_kib.values()), "each": each_kib, "files": files, "threads": threads, "processes": len(members)}


def slope(samples: list[dict[str, Any]], name: str = "") -> float:
    """KiB per hour over the second half, of all processes or of one."""
    half = samples[len(samples) // 2 :]
    held = [each["each"].get(name, 0) if name else each["kib"] for each in half]
    return statistics.linear_regression([each["at"] for each in half], held).slope * 3600


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else 0.0


def soak(minutes: float, rate: float, verbose: bool = False) -> dict[str, Any]:
    """Run it. Raises AssertionError when a record is lost or comes twice, or the proxy does not stay."""
    with start_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        arguments = ["--broker", cluster.bootstrap, "--listen", "127.0.0.1:0", "--record", f"{folder}/recording"]
        arguments += ["--rotate-size", "8MiB", "--keep-size", "64MiB", "--findings", "--metrics", "127.0.0.1:0"]
        arguments += ["--control", "127.0.0.1:0", "--json"]
        proxy = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "proxy", *arguments], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": folder},
        )  # fmt: skip
        try:
            return _soaked(proxy, minutes, rate, verbose)
        finally:
            proxy.send_signal(signal.SIGTERM)  # a shell's background jobs ignore SIGINT
            proxy.wait(60)


def _soaked(proxy: subprocess.Popen[str], minutes: float, rate: float, verbose: bool) -> dict[str, Any]:
    assert proxy.stdout
    while (event := json.loads(proxy.stdout.readline()))["event"] != "Listening":
        pass
    threading.Thread(target=proxy.stdout.read, daemon=True).start()  # a full pipe would stop it
    host, port = event["address"]
    bootstrap = f"{host}:{port}"
    AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60)  # every process is there
    make_topic(bootstrap, "soak")
    production, consumption = Timed(bootstrap, "soak", 1 / rate), Consumption(bootstrap, "soak")
    production.start()
    consumption.start()
    began = time.time()
    samples: list[dict[str, Any]] = []
    clients = 0
    while time.time() - began < minutes * 60:
        time.sleep(SAMPLE_SECONDS)
        samples.append({"at": time.time() - began, **sample(proxy.pid)})
        if len(samples) % 2 == 0:
            AdminClient({"bootstrap.servers": bootstrap, **QUICK}).list_topics(timeout=30)
            clients += 1
        if verbose and len(samples) % 12 == 0:
            last = samples[-1]
            print(f"{last['at'] / 60:5.1f} min  {last['kib']} KiB  {last['files']} files", file=sys.stderr, flush=True)
        assert proxy.poll() is None, "the proxy did not stay"
    ended = time.time()
    stop(production, consumption)
    check(production, consumption, True)
    tenth = (ended - began) / 10
    first = [late for at, late in production.late if at < began + tenth]
    last = [late for at, late in production.late if at > ended - tenth]
    return {
        "minutes": round((ended - began) / 60, 1),
        "records": len(production.acknowledged),
        "clients": clients,
        "kib_after_a_minute": next((each["kib"] for each in samples if each["at"] > 60), samples[0]["kib"]),
        "kib_at_the_end": samples[-1]["kib"],
        "kib_per_hour": round(slope(samples)),
        "kib_each": {
            name: {"first": first_kib, "last": samples[-1]["each"].get(name, 0), "per_hour": round(slope(samples, name))}
            for name, first_kib in samples[0]["each"].items()
        },
        "files": [samples[len(samples) // 2]["files"], samples[-1]["files"]],
        "threads": [samples[len(samples) // 2]["threads"], samples[-1]["threads"]],
        "p99_ms": [round(p99(first), 1), round(p99(last), 1)],
        "p50_ms": [round(statistics.median(each), 2) for each in (first, last)],
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="torture.proxy.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=300, help="records a second")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    given = parser.parse_args()
    found = soak(given.minutes, given.rate, verbose=True)
    print(json.dumps(found, indent=2))
    if given.json:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
