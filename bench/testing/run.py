"""How long a test waits for the fixture `barnabas`: until it has one, until the first request is answered through it, until
its control API answers, and at the end.

    python bench/testing/run.py [--rounds 9] [--json] [--check]

In front of the embedded cluster, which is started once per session and shown on a line of its own. Medians, seconds of wall-clock
time; the CPU seconds of all processes of a proxy beside them with `--fresh` (those of forks are another process's). `--check`
ends with status 1 where the goal is missed: a fixture within 0.5 s, or when something of it is left behind.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

GOAL_SECONDS = 0.5


def cpu() -> float:
    """Of all children that have ended, and of this process."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + time.process_time()


def answered(bootstrap: str, request: bytes) -> None:
    """Ask and have the answer."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(len(request).to_bytes(4, "big") + request)
        size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
        assert len(client.recv(size, socket.MSG_WAITALL)) == size


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--fresh", action="store_true", help="without the fork server")
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()

    began = time.perf_counter()
    from barnabas import decoder
    from barnabas.proxy.processes.fork_server import ForkServer
    from barnabas.ui.testing.cluster import EmbeddedCluster
    from barnabas.ui.testing.fixture import Barnabas

    once = {"import": time.perf_counter() - began}
    fork_server = ForkServer() if ForkServer.available and not given.fresh else None
    cluster = EmbeddedCluster()
    began = time.perf_counter()
    upstream = cluster.address
    once["cluster"] = time.perf_counter() - began

    request = decoder.encode_request(18, 0, {}, correlation_id=1, client_id="bench")
    times: dict[str, list[float]] = {
        name: [] for name in ("fixture", "first answer", "first control", "teardown", "cpu")
    }
    left: list[str] = []
    for _ in range(given.rounds):
        directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
        before = cpu()
        began = time.perf_counter()
        bench = Barnabas(upstream, directory, fork_server=fork_server).start()
        times["fixture"].append(time.perf_counter() - began)
        answered(bench.bootstrap, request)
        times["first answer"].append(time.perf_counter() - began)
        bench.expect("api == ApiVersions", exactly=1)
        times["first control"].append(time.perf_counter() - began)
        began = time.perf_counter()
        bench.stop()
        times["teardown"].append(time.perf_counter() - began)
        times["cpu"].append(cpu() - before)
        left += [path.name for path in directory.rglob("*")]
        shutil.rmtree(directory)
    cluster.stop()
    if fork_server is not None:
        fork_server.close()

    if not given.fresh:
        del times["cpu"]
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    missed = medians["fixture"] > GOAL_SECONDS or bool(left)
    if given.json:
        print(json.dumps({"once per session": once, "medians": medians, "worst": {n: max(t) for n, t in times.items()},
                          "left": left, "goal": GOAL_SECONDS, "missed": missed}, indent=1))  # fmt: skip
    else:
        print("once per session: " + ", ".join(f"{name} {taken:.2f} s" for name, taken in once.items()))
        for name, taken in medians.items():
            print(f"{name:<15}{taken:>7.3f} s   worst {max(times[name]):.3f} s")
        print(f"left behind: {', '.join(left) or 'nothing'}")
        print(f"goal: a fixture within {GOAL_SECONDS} s: {'missed' if missed else 'kept'}")
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
