"""Starting, stopping, and what is left behind: nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from barnabas.proxy import Proxy, ProxyConfig, ProxyError
from barnabas.proxy.control.startup import ControlConfig
from barnabas.proxy.events import Counts, Listening, ProcessFailed, Recording
from barnabas.proxy.processes import children
from harness import wire
from harness.run.lines import line
from harness.run.processes import comes_to_rest
from harness.scripted import answering, echo
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, until


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def pids(proxy: Proxy) -> list[int]:
    return [child.pid for child in proxy._children.values()]


def refuses(address: tuple[str, int]) -> bool:
    """Whether nobody listens there any more."""
    with socket.socket() as sock:
        return sock.connect_ex(address) != 0


def test_nothing_is_left_after_stop(testbed: Testbed) -> None:
    broker = testbed.broker(echo)
    before, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    proxy = Proxy(ProxyConfig(upstream=broker.address, probe=False))
    with proxy:
        client = socket.create_connection(proxy.address)
        assert wire.ask(client, wire.request(18, 0, 1))
        children = pids(proxy)
        client.close()
    assert not any(map(alive, children))
    assert [child.returncode for child in proxy._children.values()] == [0, 0]
    until(lambda: len(os.listdir("/proc/self/fd")) <= len(before) + 1)  # the scripted broker closes its end
    broker.close()
    assert set(os.listdir("/proc/self/fd")) <= before
    assert not [thread for thread in threading.enumerate() if thread.name == "proxy events" and thread not in threads]
    events = list(proxy.events())
    assert isinstance(events[0], Listening)
    assert isinstance(events[-1], Counts)
    assert list(proxy.events()) == []
    proxy.stop()


def test_no_process_survives_a_killed_supervisor(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import signal
        from barnabas.proxy import Proxy, ProxyConfig
        proxy = Proxy(ProxyConfig(upstream=("127.0.0.1", 9), probe=False))
        proxy.start()
        print(*(child.pid for child in proxy._children.values()), flush=True)
        signal.pause()
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    children = [int(pid) for pid in line(process, "the processes").split()]
    assert len(children) == 2 and all(map(alive, children))
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: not any(map(alive, children)))


def test_stop_lets_a_response_in_flight_arrive(testbed: Testbed) -> None:
    asked, stops = threading.Event(), threading.Event()

    def script(sock: socket.socket) -> None:
        wire.read_frame(sock)
        asked.set()
        stops.wait(PATIENCE)
        sock.sendall(wire.response(5, b"late"))
        sock.recv(1)

    proxy = testbed.proxy(testbed.broker(script).address, drain_seconds=600.0)  # longer than a test may take
    client = testbed.client(proxy.address)
    client.sendall(wire.request(0, 3, 5))
    assert asked.wait(PATIENCE)
    stopping = threading.Thread(target=proxy.stop, daemon=True)
    stopping.start()
    until(lambda: refuses(proxy.address))
    stops.set()
    assert wire.read_frame(client) == wire.response(5, b"late")
    assert client.recv(1) == b""
    stopping.join(PATIENCE)
    assert not stopping.is_alive()


def test_a_client_that_never_ends_does_not_hold_up_stop(testbed: Testbed) -> None:
    asked, over = threading.Event(), threading.Event()

    def script(sock: socket.socket) -> None:
        wire.read_frame(sock)
        asked.set()
        over.wait(PATIENCE)  # no answer

    proxy = testbed.proxy(testbed.broker(script).address, drain_seconds=0.5)
    client = testbed.client(proxy.address)
    client.sendall(wire.request(0, 3, 5))
    assert asked.wait(PATIENCE)
    proxy.stop()
    over.set()


def test_ctrl_c_is_the_supervisors_business(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(answering(bytes(6))).address)
    client = testbed.client(proxy.address)
    assert wire.ask(client, wire.request(18, 0, 1))
    next_event(proxy, Counts)
    assert all(os.getpgid(pid) != os.getpgrp() for pid in pids(proxy))
    for pid in pids(proxy):
        os.kill(pid, signal.SIGINT)
    assert wire.ask(client, wire.request(18, 0, 2))
    proxy.stop()
    assert [child.returncode for child in proxy._children.values()] == [0, 0]
    assert [event.exchanges for event in proxy.events() if isinstance(event, Counts)][-1] == 2


def test_a_port_in_use_is_one_clear_line(testbed: Testbed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()[:2]
        with pytest.raises(ProxyError, match=f"cannot listen on 127.0.0.1:{address[1]}: the port is in use"):
            testbed.proxy(("127.0.0.1", 9092), listen=address)


@pytest.mark.parametrize(
    ("listen", "upstream", "text"),
    [
        (("no-such-host.invalid", 0), ("127.0.0.1", 1), "the host name is not known"),
        (("127.0.0.1", 70000), ("127.0.0.1", 1), "cannot listen"),
        (("127.0.0.1", 0), ("", 9092), "--broker"),
        (("127.0.0.1", 0), ("127.0.0.1", 0), "--broker"),
    ],
)
def test_bad_addresses_are_refused(testbed: Testbed, listen: tuple[str, int], upstream: tuple[str, int], text: str) -> None:
    with pytest.raises(ProxyError, match=text):
        testbed.proxy(upstream, listen=listen)


def test_counts_of_the_observer(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(answering(bytes(6))).address)
    client = testbed.client(proxy.address)
    for number in range(50):
        wire.ask(client, wire.request(18, 0, number))
    client.close()
    proxy.stop()
    last = [event for event in proxy.events() if isinstance(event, Counts)][-1]
    assert (last.opened, last.connections, last.exchanges, last.undecoded) == (1, 0, 50, 0)
    assert (last.request_bytes, last.response_bytes, last.lost_bytes) == (50 * 15, 50 * 14, 0)


@pytest.mark.parametrize("lossless", [False, True])
def test_a_stopped_observer_loses_exactly_or_slows_the_sender(testbed: Testbed, lossless: bool) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address, lossless=lossless, ring_bytes=4 << 20, drain_seconds=0.2)
    client = testbed.client(proxy.address)
    frame = wire.request(0, 3, 1, os.urandom(100_000))
    client.sendall(frame)
    assert wire.exactly(client, len(frame)) == frame
    observer = proxy._children["observer"].pid
    count = 200
    os.kill(observer, signal.SIGSTOP)
    try:
        writer = threading.Thread(target=client.sendall, args=(frame * count,))
        writer.start()
        client.settimeout(1.0 if lossless else PATIENCE)  # what is held back is shown by nothing that comes
        got = 0
        try:
            while got < count * len(frame):
                got += len(client.recv(1 << 20))
        except TimeoutError:
            pass
        assert (got == count * len(frame)) is not lossless
    finally:
        os.kill(observer, signal.SIGCONT)
    client.settimeout(PATIENCE)
    while got < count * len(frame):
        got += len(client.recv(1 << 20))
    writer.join(PATIENCE)
    assert not writer.is_alive()
    client.sendall(frame)
    assert wire.exactly(client, len(frame)) == frame
    next_event(proxy, Counts, lambda event: event.request_bytes + event.response_bytes + event.lost_bytes == 2 * (count + 2) * len(frame))
    client.sendall(frame)
    assert wire.exactly(client, len(frame)) == frame
    client.close()
    proxy.stop()
    last = [event for event in proxy.events() if isinstance(event, Counts)][-1]
    total = (count + 3) * len(frame)
    assert last.request_bytes + last.response_bytes + last.lost_bytes == 2 * total
    assert (last.lost_bytes == 0) is lossless


def test_a_dead_observer_is_reported_and_traffic_goes_on(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address, lossless=True, ring_bytes=4 << 20)
    client = testbed.client(proxy.address)
    os.kill(proxy._children["observer"].pid, signal.SIGKILL)
    assert next_event(proxy, ProcessFailed).process == "observer"
    frame = wire.request(0, 3, 1, os.urandom(1 << 20))
    for _ in range(12):
        threading.Thread(target=client.sendall, args=(frame,), daemon=True).start()
        assert wire.exactly(client, len(frame)) == frame


@pytest.mark.slow  # what processes use is measured for seconds
def test_an_idle_proxy_costs_next_to_nothing(testbed: Testbed) -> None:
    proxy = testbed.proxy(("127.0.0.1", 9))

    def ticks() -> int:
        total = 0
        for pid in pids(proxy):
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total

    comes_to_rest(ticks)


def test_recording_is_written(testbed: Testbed, tmp_path: Path) -> None:
    directory = tmp_path / "recordings"
    proxy = testbed.proxy(testbed.broker(echo).address, record=directory)
    assert next_event(proxy, Recording).path == str(directory)
    client = testbed.client(proxy.address)
    assert wire.ask(client, wire.request(18, 0, 1))
    client.close()
    proxy.stop()
    assert [path.suffix for path in directory.iterdir() if path.suffix == ".pcapng"]
    assert not list(directory.glob("*.part"))


@pytest.mark.parametrize("findings", [False, True])
def test_an_inspector_whose_findings_nobody_hears_is_not_waited_for(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch, findings: bool
) -> None:
    waited: list[float] = []

    def wait_or_kill(child: children.Process, seconds: float) -> None:
        if child.pid == inspector:
            waited.append(seconds)
        child.wait(PATIENCE)

    monkeypatch.setattr(children, "wait_or_kill", wait_or_kill)
    with Proxy(ProxyConfig(upstream=testbed.broker(echo).address, probe=False, control=ControlConfig(), findings=findings)) as proxy:
        inspector = proxy._children["inspector"].pid
    assert waited == [children.READER_SECONDS if findings else children.UNHEARD_SECONDS]
