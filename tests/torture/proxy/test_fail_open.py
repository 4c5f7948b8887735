"""Whatever becomes of the processes that only look on, bytes go on; and nothing is left when a process is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import NotInspected, Undecoded
from harness.run.lines import line
from harness.run.slices import slow, thin
from harness.scripted import Broker
from harness.waiting import PATIENCE, until
from harness.wire import connect, exactly, read_frame
from torture.proxy.peers.plain_clients import digest, echo, taken
from torture.proxy.peers.traffic import TrafficGenerator

FAULTS = {
    "raises": "raise RuntimeError('a decoder that raises')",
    "hangs": "time.sleep(600)",
    "eats": "kept.extend(bytearray(64 << 20) for _ in range(1 << 20))",
}
SABOTAGE = """
import sys, time
WHO = "observers.observer", "observers.inspector", "metrics.meter"
if any(name in " ".join(sys.orig_argv) for name in WHO):
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    from barnabas.decoder.connection import connection
    kept = []
    def broken(self, *_):
        open({reached!r}, "a").write(next(name for name in WHO if name in " ".join(sys.orig_argv)) + "\\n")
        {fault}
    connection.Connection.receive_from_client = connection.Connection.receive_from_broker = broken
"""


def traffic(proxy: Proxy, count: int = 40) -> None:
    """Frames of every kind there and back, compared."""
    for seed in range(4):
        asked = b"".join(e.request for e in TrafficGenerator(seed).conversation(count, most=100_000))
        with connect(proxy.address) as sock:
            sent = 0
            back = b""
            while sent < len(asked):
                size = int.from_bytes(asked[sent : sent + 4], "big") + 4
                sock.sendall(asked[sent : sent + size])
                sent += size
                back += exactly(sock, size + 8)[8:]
            assert digest(back) == digest(asked)


@pytest.mark.slow
@pytest.mark.parametrize("record", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("fault", thin(FAULTS, 1))
def test_a_broken_decoder(fault: str, record: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traffic goes on, and it is reported once at most per process."""
    (tmp_path / "sitecustomize.py").write_text(SABOTAGE.format(fault=FAULTS[fault], reached=str(tmp_path / "reached")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    config = {"record": tmp_path / "recording" if record else None, "findings": True}
    with Broker(echo) as broker:
        proxy = Proxy(ProxyConfig(upstream=broker.address, probe=False, drain_seconds=0.5, **config))
        proxy.start()
        try:
            traffic(proxy)
            # those that decode have met the fault (without a recording the observer only counts)
            reached = {"observers.inspector"} | ({"observers.observer"} if record else set())
            until(lambda: reached <= set(_lines(tmp_path / "reached")), "the fault is met by nobody")
            traffic(proxy)
            events = taken(proxy)
            kinds = Counter(type(event).__name__ for event in events)
            assert not kinds["RelayFault"]
            # what an echo answers is no response of the API, which is reported of held frames
            warnings = [e.text for e in events if e.warning and not isinstance(e, (NotInspected, Undecoded))]
            assert len(warnings) <= 2 + 8 * record, warnings
            assert proxy._children["relay"].poll() is None
        finally:
            for name in ("observer", "inspector"):
                proxy._children[name].kill()  # one that hangs would take its time
            proxy.stop()


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


SUPERVISOR = """
import sys, time
from barnabas.proxy import Proxy, ProxyConfig
with Proxy(ProxyConfig(upstream=("127.0.0.1", int(sys.argv[1])), listen=("127.0.0.1", int(sys.argv[2])), probe=False,
                       findings=True, record=__import__("pathlib").Path(sys.argv[3]))) as proxy:
    print(proxy.address[1], *(f"{name}={child.pid}" for name, child in proxy._children.items()), flush=True)
    time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "rounds"),
    [("relay", 1), ("inspector", 1), *map(slow, (("supervisor", 2), ("relay", 2), ("observer", 2), ("inspector", 2)))],
)
def test_killed_at_any_time(who: str, rounds: int, tmp_path: Path, scale: float) -> None:
    """SIGKILL in loops: what is left goes on or ends, clients come back, no process and no port stays behind."""
    with Broker(echo) as broker:
        port = 0
        for round_ in range(int(rounds * scale)):
            words = [sys.executable, "-c", SUPERVISOR, str(broker.address[1]), str(port), str(tmp_path / str(round_))]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                first, *children = line(process, "the port and the processes").split()
                port, named = int(first), {name: int(pid) for name, _, pid in (each.partition("=") for each in children)}
                pids, named["supervisor"] = list(named.values()), process.pid
                with connect(("127.0.0.1", port)) as sock:
                    frame = TrafficGenerator(round_).conversation(1)[0].request
                    sock.sendall(frame)
                    assert read_frame(sock)[8:] == frame
                    os.kill(named[who], signal.SIGKILL)
                    if who in ("observer", "inspector"):
                        for _ in range(20):
                            sock.sendall(frame)
                            assert read_frame(sock)[8:] == frame
                    else:
                        try:
                            assert sock.recv(1) == b"", "the connection does not end"
                        except ConnectionResetError:
                            pass
            finally:
                if who != "supervisor":
                    process.kill()
                process.wait(PATIENCE)
            until(lambda pids=pids: not any(map(alive, pids)), "a process is left behind")  # type: ignore[misc]


def refused(port: int) -> bool:
    """Whether nobody listens there any more."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.slow
def test_sigterm_delivers_what_is_in_flight(tmp_path: Path) -> None:
    """A request is with the broker when the command gets SIGTERM, and is answered when it accepts no more connections: the
    response reaches the client, and the command ends with 0."""
    arrived, ending = threading.Event(), threading.Event()
    asked = TrafficGenerator(1).conversation(1)[0].request

    def script(sock: socket.socket) -> None:
        frame = read_frame(sock)
        if frame == asked:  # the proxy has questions of its own
            arrived.set()
            ending.wait(PATIENCE)
        sock.sendall((len(frame) + 4).to_bytes(4, "big") + frame[8:12] + frame)
        sock.recv(1)

    with Broker(script) as broker:
        address = f"127.0.0.1:{broker.address[1]}"
        words = [sys.executable, "-m", "barnabas", "proxy", "--broker", address, "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            while "listening on" not in (output := line(process, "where it listens")):
                pass
            port = int(output.split("listening on ")[1].split()[0].rpartition(":")[2])
            with connect(("127.0.0.1", port)) as sock:
                sock.sendall(asked)
                assert arrived.wait(PATIENCE)
                process.terminate()
                until(lambda: refused(port), "the command goes on listening")
                ending.set()
                assert read_frame(sock)[8:] == asked
                assert sock.recv(1) == b""
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()
