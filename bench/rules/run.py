"""What rules cost that do not match, and how exactly a delay is kept: one run, interleaved rounds, medians.

    python bench/rules/run.py [--rounds 7] [--seconds 0.5] [--shapes TEXT] [--only NAME,...] [--delays 1,20,200] [--json]

The load is that of bench/relay (its client, its sink, its frames). Every candidate is the same relay, with one rule that
never matches; what it costs is the ratio to the relay without rules in the same round. A delay is measured by clients
that ask and wait, as the time beyond the delay; beside it the same without a rule, which is what the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from barnabas.plugins.rules.rules import Rule

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "relay"))

from frames import Shape, first_of_a_session, shapes
from load import Load, build, cpu_seconds
from run import barnabas

RULES = {
    "other API": "api == ListTransactions",
    "other client": "api in {Produce, Fetch, Heartbeat} and client == nobody",
    "other topic": "api in {Produce, Fetch} and topic == elsewhere",
    "other partition": "api in {Produce, Fetch} and topic == orders and partition == 7",
    "other group": "api == Heartbeat and group == elsewhere",
    "other error": "api in {Produce, Heartbeat, Fetch} and err == UNKNOWN_SERVER_ERROR",
}
"""Filters that are true of nothing in the load; those of APIs that a shape has not are as `other API` there."""
WARM = 3
"""Exchanges that are not measured: a proxy that has just begun has much else to do."""
SHAPES = ("100 B ping-pong", "100 B pipelined", "1 KiB pipelined", "16 KiB produce", "1 MiB produce", "1 MiB fetch", "session fetch")


def rounds_of(shape: Shape, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """By rule: median of frames a second, and of the ratio to the round without rules."""
    load = Load(folder, shape)
    with ExitStack() as stack:
        upstream = stack.enter_context(load.sink())
        running: dict[str, tuple[int, list[int]]] = {}
        for name, match in {"": "", **RULES}.items():
            if options.only and name not in ("", *options.only.split(",")):
                continue
            do: Any = {"drop": "response"} if name == "other error" else {"delay": "1ms"}
            rules = [Rule.of(match, do)] if match else []
            running[name] = stack.enter_context(barnabas(rules=rules)(upstream, folder))
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in running}
        for number in range(options.rounds):
            names = list(running)
            turn = number % len(names)
            done: dict[str, tuple[float, float]] = {}
            for name in names[turn:] + names[:turn]:
                port, pids = running[name]
                before = cpu_seconds(pids)
                one = load.measure(port, options.seconds)
                # The load counts four fifths of what passes: its first frames only warm the way.
                cpu = (cpu_seconds(pids) - before) / max(one["frames"] * 1.25, 1)
                done[name] = one["frames"] / max(one["seconds"], 1e-9), 1e6 * cpu
            for name, each in done.items():
                rates[name].append(each)
    found: dict[str, Any] = {}
    for name, measured in rates.items():
        # One that was starved (the machine did something else) says nothing, and nor does its round about others.
        pairs = [(one, base) for one, base in zip(measured, rates[""], strict=True) if one[0] and base[0]]
        if pairs:
            found[name or "no rule"] = {
                "frames_per_s": statistics.median(one[0] for one, _ in pairs),
                "ratio": statistics.median(one[0] / base[0] for one, base in pairs),
                "cpu_us_per_frame": statistics.median(one[1] for one, _ in pairs),
                "cpu_ratio": statistics.median(one[1] / max(base[1], 1e-9) for one, base in pairs),
            }
    return found


def late(port: int, shape: Shape, delay: float, count: int, pause: float = 0.0) -> list[float]:
    """Seconds beyond the delay, of so many exchanges one after the other, with a pause before each."""
    found = []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        time.sleep(random.random() * 0.2)  # several do not ask at the same time
        for number in range(count + WARM):
            if pause:
                time.sleep(pause)
            begun = time.perf_counter()
            sock.sendall(shape.request)
            left = len(shape.response)
            while left:
                left -= len(sock.recv(left))
            if number >= WARM:
                found.append(time.perf_counter() - begun - delay)
    return found


def delays(shape: Shape, wanted: list[float], seconds: float, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        upstream = stack.enter_context(Load(folder, shape).sink())
        # What wakes up after a pause is slow by itself: beside each delay stands the same pause without a rule.
        for milliseconds, paused in [(0.0, 0.0), *((each, way) for each in wanted for way in (each, 0.0))]:
            delay = 0.0 if paused else milliseconds
            rules = [Rule.of("api == Heartbeat", delay=f"{delay}ms")] if delay else []
            port, _ = stack.enter_context(barnabas(rules=rules)(upstream, folder))
            # Of few exchanges the 99th percentile is the worst: long delays are waited for by several clients at a time.
            clients = 1 if milliseconds < 10 else 2 if milliseconds < 100 else 10
            count = int(min(max(seconds / (milliseconds / 1e3 + 1e-3), 50), 2000))
            with ThreadPoolExecutor(clients) as pool:
                each = [pool.submit(late, port, shape, delay / 1e3, count, paused / 1e3) for _ in range(clients)]
                times = sorted(1e3 * second for one in each for second in one.result())
            name = f"{delay:g} ms" if delay else f"none, {paused:g} ms apart" if paused else "no rule"
            found[name] = {
                "exchanges": len(times),
                "p50_ms": statistics.median(times),
                "p99_ms": times[int(0.99 * len(times))],
                "least_ms": times[0],
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--shapes", default="", help="only shapes whose name contains this")
    parser.add_argument("--only", default="", help="names of rules, separated by commas")
    parser.add_argument("--delays", default="1,20,200", help="milliseconds, separated by commas; empty: none")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    everything: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        folder = Path(scratch)
        build(folder)
        known = {shape.name: shape for shape in (*shapes(), first_of_a_session())}
        for name in SHAPES:
            if options.shapes in name:
                everything[name] = rounds_of(known[name], options, folder)
        wanted = [float(each) for each in options.delays.split(",") if each]
        if wanted:
            everything["delays"] = delays(known["100 B ping-pong"], wanted, 10 * options.seconds, folder)
    if options.json:
        print(json.dumps(everything, indent=1))
        return
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {options.rounds} rounds of {options.seconds} s"
    )
    for name, found in everything.items():
        print(f"\n{name}")
        for each, r in found.items():
            if name == "delays":
                print(
                    f"  {each:18} late by {r['p50_ms']:7.3f} ms (p50), {r['p99_ms']:7.3f} ms (p99), "
                    f"at least {r['least_ms']:7.3f} ms, of {r['exchanges']}"
                )
            else:
                rate = f"{r['frames_per_s']:10.0f} frames/s   {r['ratio']:5.2f}x"
                print(f"  {each:18} {rate}   CPU {r['cpu_us_per_frame']:7.2f} us a frame")


if __name__ == "__main__":
    main()
