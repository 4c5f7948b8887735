"""The relay beside its peers, in one run: medians of interleaved rounds, as ratios to a plain C proxy.

    python bench/relay/run.py [--rounds 5] [--seconds 0.5] [--only NAME,...] [--shapes TEXT] [--check] [--json]
    python bench/relay/run.py [--hung-observer] [--connections 1000] [--stalled 50]      (see bounds.py)

Builds `load.c` (client and sink) and `yardstick.c` (the C proxy) with cc. Peers are taken from the PATH where they
are installed (see proxies.py); those left out are printed. Every candidate
moves the same frames between the same two programs; with --check every byte is compared (and nothing is timed well).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from barnabas.plugins.rules.rules import Rule
from barnabas.proxy import Proxy, ProxyConfig

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import bounds  # noqa: E402
from frames import Shape, shapes  # noqa: E402
from load import Load, Started, build, children, cpu_seconds, free_port, process  # noqa: E402
from proxies import PEERS  # noqa: E402

# --- candidates: each a function (port of the sink, scratch folder) -> context manager -------------------------


@contextmanager
def direct(upstream: int, folder: Path) -> Started:
    yield upstream, []


def yardstick(upstream: int, folder: Path) -> Any:
    port = free_port()
    return process([str(folder / "yardstick"), str(port), str(upstream)], port)


def writing_yardstick(upstream: int, folder: Path) -> Any:
    """The bound of lossless recording here: the C proxy, with a bare loop that writes every byte to a file."""
    port = free_port()
    return process([str(folder / "yardstick"), str(port), str(upstream), str(folder / f"bare-{port}")], port)


def barnabas(**settings: Any) -> Callable[[int, Path], Any]:
    @contextmanager
    def start(upstream: int, folder: Path) -> Started:
        chosen = dict(settings)
        if chosen.get("record"):
            chosen["record"] = Path(tempfile.mkdtemp(dir=folder))
        before = children()
        with Proxy(ProxyConfig(upstream=("127.0.0.1", upstream), probe=False, **chosen)) as proxy:
            yield proxy.address[1], sorted(children() - before)

    return start


# A rule on an API that is not in the load: every request and response is followed, none is held.
ELSEWHERE = [Rule.of("api == ListTransactions", error="INVALID_REQUEST")]

CANDIDATES: dict[str, tuple[str | None, Callable[[int, Path], Any]]] = {
    "direct": (None, direct),
    "C": (None, yardstick),
    "C writing": (None, writing_yardstick),
    **PEERS,
    "barnabas": (None, barnabas()),
    "barnabas 2 workers": (None, barnabas(workers=2)),
    "barnabas inline": (None, barnabas(rules=ELSEWHERE)),
    "barnabas recording": (None, barnabas(record=True)),
    "barnabas findings": (None, barnabas(findings=True)),
    "barnabas lossless": (None, barnabas(record=True, lossless=True)),
    "barnabas snaplen": (None, barnabas(record=True, snaplen=4096)),
}

COMPILED_WHILE_RUNNING = {"kroxylicious"}
WARM_UP_SECONDS = 5.0
"""How long a Java program works before it is measured."""


def role(pid: int) -> str:
    """What a process of a candidate is: the last part of its module, or its program and pid."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return words[words.index("-m") + 1].rpartition(".")[2] if "-m" in words else f"{Path(words[0]).name} {pid}"


def one_shape(
    shape: Shape, chosen: dict[str, Any], folder: Path, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """All candidates on one shape, side by side: started together, measured in turn."""
    load = Load(folder, shape, options.check)
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        upstream = stack.enter_context(load.sink())
        running: dict[str, tuple[int, list[int]]] = {}
        for name, (_, start) in chosen.items():
            try:
                running[name] = stack.enter_context(start(upstream, folder))
            except (OSError, RuntimeError) as error:
                found[name] = {"failed": str(error)}
        for name, (port, _) in running.items():
            load.warm(port)
            if name in COMPILED_WHILE_RUNNING:
                load.measure(port, WARM_UP_SECONDS)
        results: dict[str, list[dict[str, float]]] = {name: [] for name in running}
        for _ in range(options.rounds):
            for name, (port, pids) in list(running.items()):
                before = [cpu_seconds([pid]) for pid in pids]
                try:
                    result = load.measure(port, options.seconds)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    found[name] = {"failed": str(error)}
                    del running[name]
                    continue
                if not result["frames"]:
                    continue  # starved: the client never came to measure
                spent = [cpu_seconds([pid]) - used for pid, used in zip(pids, before, strict=True)]
                result["cpu"] = sum(spent)
                result |= {f"cpu of {role(pid)}": used for pid, used in zip(pids, spent, strict=True)}
                results[name].append(result)
                time.sleep(0.15)  # what an observer still has to do is not the next candidate's burden
        for name in running:
            rounds = results[name]
            if not rounds:
                found[name] = {"failed": "no round was measured"}
                continue
            rates = sorted(r["frames"] / r["seconds"] for r in rounds)
            found[name] = {
                "frames_per_s": statistics.median(rates),
                "spread": (rates[-1] - rates[0]) / statistics.median(rates),
                "mb_per_s": statistics.median(r["bytes"] / r["seconds"] / 1e6 for r in rounds),
                "p50_us": statistics.median(r["p50_us"] for r in rounds),
                "p99_us": statistics.median(r["p99_us"] for r in rounds),
                "cpu_us_per_frame": statistics.median(1e6 * r["cpu"] / max(r["frames"] * 1.25, 1) for r in rounds),
                "cpu_us_by_process": {
                    key[7:]: statistics.median(1e6 * r[key] / max(r["frames"] * 1.25, 1) for r in rounds)
                    for key in rounds[0]
                    if key.startswith("cpu of ")
                },
                "mismatches": sum(r["mismatches"] for r in rounds),
            }
    return found


def show(shape: Shape, found: dict[str, dict[str, Any]]) -> None:
    sizes = f"{len(shape.request)} B up, {len(shape.response)} B down"
    print(f"\n{shape.name}: {sizes}, {shape.depth} in flight, {shape.connections} connections")
    print(
        f"  {'':20} {'frames/s':>10} {'x C':>6} {'MB/s':>8} {'p50 us':>9} {'x C':>6} {'p99 us':>9} {'CPU us':>8} {'spread':>7}"
    )
    base = found.get("C", {})
    for name, r in found.items():
        if "failed" in r:
            print(f"  {name:20} failed: {r['failed']}")
            continue
        rate = r["frames_per_s"] / base["frames_per_s"] if base.get("frames_per_s") else float("nan")
        p50 = r["p50_us"] / base["p50_us"] if base.get("p50_us") else float("nan")
        wrong = f"  {r['mismatches']:.0f} BYTES OR IDS WRONG" if r["mismatches"] else ""
        each = r["cpu_us_by_process"]
        parts = "  " + ", ".join(f"{process} {spent:.2f}" for process, spent in each.items()) if len(each) > 1 else ""
        print(
            f"  {name:20} {r['frames_per_s']:10.0f} {rate:6.2f} {r['mb_per_s']:8.0f} {r['p50_us']:9.1f} {p50:6.2f} "
            f"{r['p99_us']:9.1f} {r['cpu_us_per_frame']:8.2f} {r['spread']:7.0%}{wrong}{parts}"
        )


def measure_bounds(options: argparse.Namespace) -> None:
    """What was asked for of bounds.py."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        folder = Path(scratch)
        build(folder)
        if options.hung_observer:
            found["hung observer"] = bounds.hung_observer(folder, options.rounds, options.seconds)
            if not options.json:
                bounds.show_hung(found["hung observer"])
        if options.connections:
            found["connections"] = bounds.many(folder, options.connections)
            if not options.json:
                bounds.show_many(found["connections"])
        if options.stalled:
            found["stalled peers"] = bounds.stalled(folder, options.stalled)
            if not options.json:
                bounds.show_stalled(found["stalled peers"])
    if options.json:
        print(json.dumps(found, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", help="names of candidates, separated by commas; direct and C are always there")
    parser.add_argument("--shapes", default="", help="only shapes whose name contains this")
    parser.add_argument("--check", action="store_true", help="compare every byte")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--hung-observer", action="store_true", help="only this: forwarding while the observer is stopped"
    )
    parser.add_argument("--connections", type=int, metavar="N", help="only this: the relay's memory for each of N")
    parser.add_argument(
        "--stalled", type=int, metavar="N", help="only this: its memory for each of N peers that do not read"
    )
    options = parser.parse_args()
    if options.hung_observer or options.connections or options.stalled:
        measure_bounds(options)
        return
    wanted = set(options.only.split(",")) | {"direct", "C"} if options.only else set(CANDIDATES)
    missing = [n for n, (needs, _) in CANDIDATES.items() if n in wanted and needs and not shutil.which(needs)]
    chosen = {n: c for n, c in CANDIDATES.items() if n in wanted and n not in missing}
    everything: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.python_version()}"
    }
    if not options.json:
        print(f"{everything['machine']}; medians of {options.rounds} rounds of {options.seconds} s")
        if missing:
            print(f"not installed, left out: {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        folder = Path(scratch)
        build(folder)
        for shape in shapes():
            if options.shapes not in shape.name:
                continue
            everything[shape.name] = one_shape(shape, chosen, folder, options)
            if not options.json:
                show(shape, everything[shape.name])
    if options.json:
        print(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
