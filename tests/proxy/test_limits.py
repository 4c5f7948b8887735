"""Limits: connections, idle time, time to connect, frame size, files; and what a stalled or silent peer costs."""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
import time
from typing import Any

import pytest
from barnabas.proxy.events import ConnectionClosed, ConnectionOpened, NotKafka, UpstreamFailed
from barnabas.proxy.life_events import ConnectionsFull, FewFiles, FilesUsedUp, IdleClosed
from barnabas.proxy.limits import Limits
from harness import wire
from harness.testbed import Testbed, next_event


def echo(sock: socket.socket) -> None:
    while data := sock.recv(65536):
        sock.sendall(data)


def silent(sock: socket.socket, seconds: float = 0.4) -> bool:
    sock.settimeout(seconds)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(60)
    return False


def relay_pid(proxy: Any) -> int:
    return proxy._children["relay"].pid


def resident(pid: int) -> int:
    """Bytes of memory that only this process has: the ring is shared."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


def test_connections_over_the_limit_wait_and_come_in_turn(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address, limits=Limits(max_connections=2))
    first, second, third, fourth = (testbed.client(proxy.address) for _ in range(4))
    frame = wire.request(18, 0, 1)
    for sock in (first, second, third, fourth):
        sock.sendall(frame)
    assert wire.read_frame(first) == frame
    assert wire.read_frame(second) == frame
    full = next_event(proxy, ConnectionsFull)
    assert full.limit == 2 and "--max-connections" in full.text
    assert silent(third)
    first.close()
    assert wire.read_frame(third) == frame
    assert silent(fourth)
    second.close()
    third.close()
    assert wire.read_frame(fourth) == frame


def test_idle_connections_are_closed_and_busy_ones_are_not(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address, limits=Limits(idle_seconds=2.5))
    idle, busy, quiet = (testbed.client(proxy.address) for _ in range(3))
    frame = wire.request(18, 0, 1)
    idle.sendall(frame)
    assert wire.read_frame(idle) == frame
    until = time.monotonic() + 60
    while select.select([idle, quiet], [], [], 0.1)[0] != [idle, quiet]:
        busy.sendall(frame)
        assert wire.read_frame(busy) == frame
        assert time.monotonic() < until, "idle connections stay open"
    assert idle.recv(1) == b"" and quiet.recv(1) == b""
    closed = next_event(proxy, IdleClosed)
    assert closed.seconds == 2.5 and "2.5 s" in closed.text
    busy.sendall(frame)
    assert wire.read_frame(busy) == frame


def test_without_a_limit_nothing_idle_is_closed(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address)
    client = testbed.client(proxy.address)
    assert silent(client, 2.5)
    client.sendall(wire.request(18, 0, 1))
    assert wire.read_frame(client)


def test_the_time_to_connect(testbed: Testbed) -> None:
    # A backlog that is full drops what comes: the connect hangs.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        time.sleep(0.2)
        proxy = testbed.proxy(address, limits=Limits(connect_seconds=0.5))  # the kernel gives up after minutes
        client = testbed.client(proxy.address)
        client.settimeout(60)
        failed = next_event(proxy, UpstreamFailed)
        assert "timed out" in failed.text
        assert client.recv(1) == b""
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("by", ["client", "broker"])
@pytest.mark.parametrize("oversize", ["pass", "close"])
def test_a_frame_larger_than_the_limit(testbed: Testbed, oversize: str, by: str) -> None:
    large = struct.pack(">i", 2_000_000) + wire.request(0, 9, 5)[4:] + bytes(100_000)

    def script(sock: socket.socket) -> None:
        wire.read_frame(sock)
        sock.sendall(wire.response(1))
        if by == "broker":
            sock.sendall(large)
            sock.recv(1)
            return
        while data := sock.recv(65536):
            sock.sendall(data)

    proxy = testbed.proxy(testbed.broker(script).address, limits=Limits(max_frame=1_000_000, oversize=oversize))
    client = testbed.client(proxy.address)
    client.sendall(wire.request(18, 0, 1))
    assert wire.read_frame(client) == wire.response(1)
    if by == "client":
        client.sendall(large)
    told = next_event(proxy, NotKafka)  # before the rest, which never comes
    assert "2000000 bytes" in told.text and "--max-frame" in told.text and f"the {by}" in told.text
    if oversize == "pass":
        assert wire.exactly(client, len(large)) == large
    else:
        assert "reset" in told.text
        with pytest.raises(ConnectionResetError):
            wire.exactly(client, 2_000_000)
        assert next_event(proxy, ConnectionClosed).how == "rst"


def test_a_frame_just_below_the_limit_passes(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address, limits=Limits(max_frame=200_000, oversize="close"))
    client = testbed.client(proxy.address)
    frame = wire.request(0, 9, 5, bytes(200_000 - 11))
    assert int.from_bytes(frame[:4], "big") == 200_000
    for _ in range(3):
        client.sendall(frame)
        assert wire.exactly(client, len(frame)) == frame


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"oversize": "drop"}, "pass, close"),
        ({"max_frame": 0}, "largest frame"),
        ({"connect_seconds": 0}, "time to connect"),
        ({"idle_seconds": -1}, "0 (none) or more"),
    ],
)
def test_limits_that_make_no_sense(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as refused:
        Limits(**options)
    assert text in str(refused.value)


def test_few_files_are_told_at_the_start(testbed: Testbed) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    proxy = testbed.proxy(("127.0.0.1", 9), limits=Limits(max_connections=hard))
    few = next_event(proxy, FewFiles)
    assert few.files == hard == few.wanted and hard // 2 - 50 < few.connections < hard // 2 and "ulimit -n" in few.text


def test_clients_without_files_left_wait_and_come_in_turn(testbed: Testbed) -> None:
    """Accepted without a file for the way to the broker, they would be turned away, and the broker blamed."""
    proxy = testbed.proxy(testbed.broker(echo).address)
    frame, pid = wire.request(18, 0, 1), relay_pid(proxy)
    clients = [testbed.client(proxy.address)]
    clients[0].sendall(frame)
    assert wire.read_frame(clients[0]) == frame
    taken = [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
    most = max(taken) + 12
    count = (most - len(taken)) // 2 + 10  # it has two files for each; low numbers may be free
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    clients += [testbed.client(proxy.address) for _ in range(count)]
    for sock in clients[1:]:
        sock.sendall(frame)
    short = next_event(proxy, FilesUsedUp)
    assert short.files == most and 1 < short.connections < count and "ulimit -n" in short.text
    assert silent(clients[-1])
    for sock in clients[1:]:
        assert wire.read_frame(sock) == frame
        sock.close()
    clients[0].sendall(frame)
    assert wire.read_frame(clients[0]) == frame


def test_silent_clients_cost_the_others_nothing(testbed: Testbed) -> None:
    """Slow-loris: connect and say nothing, or half a frame, or a byte at a time."""
    proxy = testbed.proxy(testbed.broker(echo).address)
    silent_ones = [testbed.client(proxy.address) for _ in range(150)]
    for number, sock in enumerate(silent_ones):
        sock.sendall(wire.request(18, 0, 1)[: number % 9])
    client = testbed.client(proxy.address)
    frame = wire.request(18, 0, 1)
    for _ in range(200):
        for sock in silent_ones[::50]:
            sock.sendall(b"\0")
        client.sendall(frame)
        assert wire.read_frame(client) == frame


def test_a_stalled_peer_costs_little(testbed: Testbed) -> None:
    """Clients that send on and never read, and a broker that sends on: at most 256 KiB a direction in the relay."""

    def flood(sock: socket.socket) -> None:
        wire.read_frame(sock)
        while True:
            sock.sendall(frame)

    frame = wire.response(1, bytes(100_000))
    proxy = testbed.proxy(testbed.broker(flood).address)

    def stalled() -> socket.socket:
        client = testbed.client(proxy.address, SO_RCVBUF=16384)
        client.sendall(wire.request(1, 4, 1))
        return client

    assert wire.exactly(stalled(), 10 * len(frame))  # once through the code
    time.sleep(1.0)
    before = resident(relay_pid(proxy))
    count = 20
    clients = [stalled() for _ in range(count)]
    time.sleep(2.0)
    grown = resident(relay_pid(proxy)) - before
    print(f"{grown / count / 1024:.1f} KiB each")
    assert grown <= count * 256 * 1024, grown
    for client in clients[:2]:
        assert wire.exactly(client, 10 * len(frame)) == 10 * frame  # nothing was lost meanwhile


def test_a_thousand_connections(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address)
    frame = wire.request(18, 0, 1)
    warm = testbed.client(proxy.address)
    warm.sendall(frame)
    assert wire.read_frame(warm) == frame
    pid = relay_pid(proxy)
    before, files = resident(pid), len(os.listdir(f"/proc/{pid}/fd"))
    clients = [testbed.client(proxy.address) for _ in range(1000)]
    for client in clients:
        client.sendall(frame)
    for client in clients:
        assert wire.read_frame(client) == frame
    each = (resident(pid) - before) / 1000
    print(f"{each / 1024:.1f} KiB each")
    assert each <= 64 * 1024, each
    for client in clients:
        client.close()
    deadline = time.monotonic() + 60
    while len(os.listdir(f"/proc/{pid}/fd")) > files and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(os.listdir(f"/proc/{pid}/fd")) == files
    assert next_event(proxy, ConnectionOpened)
