"""What the relay promises besides speed, measured: a hung observer, many connections, peers that do not read.

Options of run.py: --hung-observer, --connections N, --stalled N. Memory is what the relay has for itself (RssAnon; the
ring is shared and of a fixed size).
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from barnabas.proxy import Proxy, ProxyConfig
from frames import shapes
from load import Load, children, cpu_seconds

KIB = 1024
SETTLED = 0.5
"""Seconds without change that count as the end of a change."""
CONNECTION_GOAL, STALLED_GOAL, HUNG_GOAL = 64.0, 256.0, 5.0


@contextmanager
def _proxy(upstream: int, **settings: Any) -> Iterator[tuple[int, int, int]]:
    """A proxy in front of a port here: (its port, the relay's pid, the observer's)."""
    modules = ("barnabas.proxy.relay.loop", "barnabas.proxy.observers.observer")
    before = [children(module) for module in modules]
    with Proxy(ProxyConfig(upstream=("127.0.0.1", upstream), probe=False, **settings)) as proxy:
        pids = [(children(module) - old).pop() for module, old in zip(modules, before, strict=True)]
        yield proxy.address[1], pids[0], pids[1]


def _memory(pid: int) -> float:
    """KiB that a process has for itself."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return float(line.split()[1])
    raise RuntimeError(f"process {pid} has no memory")


def _settled(value: Callable[[], float], seconds: float = 20.0) -> float:
    """A number when it has not changed for a while."""
    last = value()
    since = begun = time.monotonic()
    while time.monotonic() - since < SETTLED and time.monotonic() - begun < seconds:
        time.sleep(0.05)
        now = value()
        if now != last:
            last, since = now, time.monotonic()
    return last


def _round_trip(sock: socket.socket, request: bytes, size: int) -> None:
    sock.sendall(request)
    got = 0
    while got < size:
        part = sock.recv(size - got)
        if not part:
            raise RuntimeError("the connection has ended")
        got += len(part)


def _raise_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def hung_observer(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Forwarding with an observer that records beside one that is stopped (SIGSTOP), in turn."""
    found: dict[str, Any] = {}
    for shape in shapes():
        if shape.name not in ("100 B ping-pong", "1 KiB pipelined"):
            continue
        with ExitStack() as stack:
            load = Load(folder, shape)
            upstream = stack.enter_context(load.sink())
            record = Path(tempfile.mkdtemp(dir=folder))
            port, relay, observer = stack.enter_context(_proxy(upstream, record=record))
            load.measure(port, seconds)
            kinds: dict[str, list[dict[str, float]]] = {"running": [], "hung": []}
            most = _memory(relay)
            for number in range(rounds):
                for kind in ("running", "hung") if number % 2 else ("hung", "running"):
                    if kind == "hung":
                        os.kill(observer, signal.SIGSTOP)
                    before = cpu_seconds([relay])
                    try:
                        result = load.measure(port, seconds)
                    finally:
                        os.kill(observer, signal.SIGCONT)
                    if result["frames"]:  # else starved: the client never came to measure
                        result["cpu"] = cpu_seconds([relay]) - before
                        kinds[kind].append(result)
                    most = max(most, _memory(relay))
                    time.sleep(0.3)  # what it missed is not the next round's burden
            if not all(kinds.values()):
                raise RuntimeError("the machine is too busy: no round was measured")
            cell: dict[str, Any] = {"relay_kib": most}
            for kind, results in kinds.items():
                cell[kind] = {
                    "frames_per_s": statistics.median(r["frames"] / r["seconds"] for r in results),
                    "p50_us": statistics.median(r["p50_us"] for r in results),
                    # a quarter of a round's time is not counted by the load
                    "cpu_us": 1e6 * sum(r["cpu"] for r in results) / sum(r["frames"] * 1.25 for r in results),
                }
            found[shape.name] = cell
    return found


def show_hung(found: dict[str, Any]) -> None:
    print(f"\nobserver hung beside observer running (goal: at most {HUNG_GOAL:.0f} % slower)")
    for name, cell in found.items():
        running, hung = cell["running"], cell["hung"]
        rate = 100 * (hung["frames_per_s"] / running["frames_per_s"] - 1)
        p50 = 100 * (hung["p50_us"] / running["p50_us"] - 1)
        cpu = 100 * (hung["cpu_us"] / running["cpu_us"] - 1) if running["cpu_us"] else 0.0
        print(
            f"  {name:20} frames/s {running['frames_per_s']:9.0f} -> {hung['frames_per_s']:9.0f} ({rate:+5.1f} %)   "
            f"p50 {running['p50_us']:7.1f} -> {hung['p50_us']:7.1f} us ({p50:+5.1f} %)   "
            f"CPU {running['cpu_us']:.2f} -> {hung['cpu_us']:.2f} us ({cpu:+5.1f} %)   relay {cell['relay_kib'] / KIB:.1f} MiB"
        )


def many(folder: Path, count: int) -> dict[str, Any]:
    """The relay's memory with so many connections that have had an exchange."""
    _raise_files()
    shape = shapes()[0]
    with Load(folder, shape).sink() as upstream, _proxy(upstream) as (port, relay, _), ExitStack() as stack:

        def more(number: int) -> float:
            for _ in range(number):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
                _round_trip(sock, shape.request, len(shape.response))
            return _settled(lambda: _memory(relay))

        base = more(5)
        full = more(count)
    return {"connections": count, "base_kib": base, "kib_each": (full - base) / count}


def show_many(found: dict[str, Any]) -> None:
    print(
        f"\n{found['connections']} connections: {found['kib_each']:.1f} KiB each over {found['base_kib'] / KIB:.1f} MiB "
        f"(goal: at most {CONNECTION_GOAL:.0f})"
    )


def stalled(folder: Path, count: int) -> dict[str, Any]:
    """The relay's memory per connection whose peer reads nothing: clients of large responses, brokers of requests."""
    _raise_files()
    fetch = next(shape for shape in shapes() if shape.name == "1 MiB fetch")
    found: dict[str, Any] = {"connections": count}
    with Load(folder, fetch).sink() as upstream, _proxy(upstream) as (port, relay, _), ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 20)) for _ in range(count + 1)]
        _round_trip(socks[0], fetch.request, len(fetch.response))
        base = _settled(lambda: _memory(relay))
        for sock in socks[1:]:
            sock.sendall(fetch.request * 60)
        found["client"] = (_settled(lambda: _memory(relay)) - base) / count
    produce = next(shape for shape in shapes() if shape.name == "16 KiB produce")
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server, ExitStack() as stack:
        silent: list[socket.socket] = []
        accept = threading.Thread(target=_accept, args=(server, silent), daemon=True)
        accept.start()
        port, relay, _ = stack.enter_context(_proxy(server.getsockname()[1]))
        socks = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 20)) for _ in range(count + 1)]
        socks[0].sendall(produce.request)
        base = _settled(lambda: _memory(relay))
        for sock in socks[1:]:
            sock.setblocking(False)
        sent = 1
        until = time.monotonic() + 20
        while sent and time.monotonic() < until:
            sent = 0
            for number, sock in enumerate(socks[1:]):
                sent += _stuff(sock, produce.request, number)
            time.sleep(0.3)
        found["broker"] = (_settled(lambda: _memory(relay)) - base) / count
        server.close()
        for sock in silent:
            # a reset: nothing is to be read to the end
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
    return found


def _accept(server: socket.socket, silent: list[socket.socket]) -> None:
    while True:
        try:
            silent.append(server.accept()[0])
        except OSError:
            return


_rest: dict[socket.socket, bytes] = {}


def _stuff(sock: socket.socket, request: bytes, number: int) -> int:
    """Send requests until the socket takes no more; how many bytes it took."""
    total = 0
    while True:
        data = _rest.get(sock) or request[:8] + struct.pack(">I", number) + request[12:]
        try:
            sent = sock.send(data)
        except BlockingIOError:
            return total
        total += sent
        _rest[sock] = data[sent:]


def show_stalled(found: dict[str, Any]) -> None:
    print(f"\n{found['connections']} stalled peers, KiB of the relay each (goal: at most {STALLED_GOAL:.0f}):", end="")
    print(f" clients that do not read {found['client']:.1f}, brokers that do not read {found['broker']:.1f}")
