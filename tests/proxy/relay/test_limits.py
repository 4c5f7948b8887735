"""Limits: connections, idle time, time to connect, frame size, files; and what a stalled or silent peer costs."""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from barnabas.proxy import Proxy
from barnabas.proxy.events import (
    ConnectionClosed,
    ConnectionOpened,
    ConnectionsFull,
    Event,
    FewFiles,
    FilesUsedUp,
    IdleClosed,
    NotKafka,
    UpstreamFailed,
)
from barnabas.proxy.relay.guard import LimitGuard
from barnabas.proxy.relay.limits import Limits
from harness import wire
from harness.run.lines import line
from harness.scripted import echo
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, attempts, until

from ..addressing.test_destinations import Brokers, metadata_addresses, naming


def is_left_waiting(sock: socket.socket, served: socket.socket) -> bool:
    """Whether nothing has come, though the relay has served another connection since, more than once."""
    frame = wire.request(18, 0, 99)
    for _ in range(5):
        assert wire.ask(served, frame) == frame
    return not wire.readable(sock)


def relay_pid(proxy: Proxy) -> int:
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
    assert is_left_waiting(third, second)
    first.close()
    assert wire.read_frame(third) == frame
    assert is_left_waiting(fourth, third)
    second.close()
    third.close()
    assert wire.read_frame(fourth) == frame


def test_idle_connections_are_closed(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address, limits=Limits(idle_seconds=0.5))
    frame = wire.request(18, 0, 1)

    def used() -> socket.socket | None:
        """A connection that has had an answer: on a busy machine its time may be up before it asks."""
        client = testbed.client(proxy.address)
        try:
            return client if wire.ask(client, frame) == frame else None
        except ConnectionError:
            return None

    idle, quiet = until(used), testbed.client(proxy.address)
    assert idle.recv(1) == b"" and quiet.recv(1) == b""
    closed = next_event(proxy, IdleClosed)
    assert closed.seconds == 0.5 and "0.5 s" in closed.text


@dataclass
class Half:
    """One direction: how many bytes have come."""

    position: int = 0


class Standing:
    """A connection as the guard sees it, and how it closed it."""

    def __init__(self, number: int, established: bool = True) -> None:
        self.number, self.peer, self.established = number, ("10.0.0.1", number), established
        self.request, self.response = Half(), Half()
        self.closed = ""

    def close(self, how: str) -> None:
        self.closed = how


@dataclass
class Listening:
    """As much of a relay as the guard needs."""

    emit: Callable[[Event], None]


def guard(**limits: Any) -> tuple[LimitGuard, list[Event]]:
    """That of a relay, and its events. Each tick gives it the time."""
    reported: list[Event] = []
    relay: Any = Listening(reported.append)
    return LimitGuard(relay, Limits(**limits)), reported


def test_who_is_idle_and_who_is_not() -> None:
    """Bytes of either side count, and a connection that is only just being made is not idle."""
    keeper, reported = guard(idle_seconds=2.5)
    idle, asks, answers, begins = Standing(1), Standing(2), Standing(3), Standing(4, established=False)
    standing: Any = [idle, asks, answers, begins]
    for second in range(3):
        keeper.tick(float(second), standing)
        asks.request.position += 1
        answers.response.position += 1
    assert reported == []
    keeper.tick(3.0, standing)
    assert reported == [IdleClosed(1, idle.peer, 2.5)]
    assert [each.closed for each in (idle, asks, answers, begins)] == ["fin", "", "", ""]
    keeper.tick(3.5, standing[1:])
    asks.request.position += 1
    keeper.tick(6.0, standing[1:])
    assert [each.closed for each in (asks, answers, begins)] == ["", "fin", ""]


def test_without_a_limit_nothing_idle_is_closed() -> None:
    keeper, reported = guard()
    connection: Any = Standing(1)
    for now in (0.0, 10.0, 1e9):
        keeper.tick(now, [connection])
    assert not reported and not connection.closed


def test_the_time_to_connect(testbed: Testbed) -> None:
    # A backlog that is full drops what comes: the connect hangs.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        fillers: list[socket.socket] = []
        while not fillers or select.select([], fillers[-1:], [], 0)[1]:  # connected
            fillers.append(socket.socket())
            fillers[-1].setblocking(False)
            fillers[-1].connect_ex(address)
        proxy = testbed.proxy(address, limits=Limits(connect_seconds=0.5))  # the kernel gives up after minutes
        client = testbed.client(proxy.address)
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
    assert wire.ask(client, wire.request(18, 0, 1)) == wire.response(1)
    if by == "client":
        client.sendall(large)
    reported = next_event(proxy, NotKafka)  # before the rest, which never comes
    assert "2000000 bytes" in reported.text and "--max-frame" in reported.text and f"the {by}" in reported.text
    if oversize == "pass":
        assert wire.exactly(client, len(large)) == large
    else:
        assert "reset" in reported.text
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
        ({"max_frame": 0}, "maximum frame size"),
        ({"connect_seconds": 0}, "time limit for connecting"),
        ({"idle_seconds": -1}, "0 (none) or more"),
    ],
)
def test_limits_that_make_no_sense(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as refused:
        Limits(**options)
    assert text in str(refused.value)


def test_few_files_are_reported_at_the_start(testbed: Testbed) -> None:
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
    assert is_left_waiting(clients[-1], clients[0])
    for sock in clients[1:]:
        assert wire.read_frame(sock) == frame
        sock.close()
    clients[0].sendall(frame)
    assert wire.read_frame(clients[0]) == frame


def test_silent_clients_cost_the_others_nothing(testbed: Testbed) -> None:
    """Slow-loris: connect and send nothing, or half a frame, or a byte at a time."""
    proxy = testbed.proxy(testbed.broker(echo).address)
    silent_ones = [testbed.client(proxy.address) for _ in range(150)]
    for number, sock in enumerate(silent_ones):
        sock.sendall(wire.request(18, 0, 1)[: number % 9])
    client = testbed.client(proxy.address)
    frame = wire.request(18, 0, 1)
    for _ in range(200):
        for sock in silent_ones[::50]:
            sock.sendall(b"\0")
        assert wire.ask(client, frame) == frame


def test_a_stalled_peer_costs_little(testbed: Testbed) -> None:
    """Clients that send on and never read, and a broker that sends on: at most 256 KiB a direction in the relay."""
    flooded = [0]
    """Frames that the broker's end of the connections has taken."""

    def script(sock: socket.socket) -> None:
        asked = wire.read_frame(sock)
        if asked[4:6] == wire.request(18, 0, 1)[4:6]:
            sock.sendall(asked)
            echo(sock)
            return
        while True:
            sock.sendall(frame)
            flooded[0] += 1

    frame = wire.response(1, bytes(100_000))
    proxy = testbed.proxy(testbed.broker(script).address)
    served = testbed.client(proxy.address)

    def stalled() -> socket.socket:
        client = testbed.client(proxy.address, SO_RCVBUF=16384)
        client.sendall(wire.request(1, 4, 1))
        return client

    def all_is_full() -> bool:
        """Whether the broker can send no more, though the relay has served somebody else meanwhile."""
        before = flooded[0]
        return all(is_left_waiting(served, served) for _ in range(10)) and flooded[0] == before

    assert wire.exactly(stalled(), 10 * len(frame))  # once through the code
    until(all_is_full)
    before = resident(relay_pid(proxy))
    count = 20
    clients = [stalled() for _ in range(count)]
    until(all_is_full)
    grown = resident(relay_pid(proxy)) - before
    print(f"{grown / count / 1024:.1f} KiB each")
    assert grown <= count * 256 * 1024, grown
    for client in clients[:2]:
        assert wire.exactly(client, 10 * len(frame)) == 10 * frame  # nothing was lost meanwhile


def test_a_thousand_connections(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address)
    frame = wire.request(18, 0, 1)
    warm = testbed.client(proxy.address)
    assert wire.ask(warm, frame) == frame
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
    for _ in attempts():
        if (left := len(os.listdir(f"/proc/{pid}/fd"))) <= files:
            break
    assert left == files
    assert next_event(proxy, ConnectionOpened)


FILES = 256
MANY: Brokers = [(number, f"10.0.{number >> 8}.{number & 255}", 9092) for number in range(700)]
REQUEST = wire.request(18, 0, 3)


def served(client: socket.socket) -> None:
    assert wire.ask(client, REQUEST) == wire.response(3, bytes(6))


def listening(process: subprocess.Popen[str]) -> tuple[str, int]:
    while True:
        address = json.loads(line(process, "where it listens")).get("address")
        if address is not None:
            host, _, port = address.rpartition(":") if isinstance(address, str) else (address[0], "", address[1])
            return host, int(port)


@pytest.mark.slow
def test_a_proxy_started_with_so_few_files_goes_on(testbed: Testbed) -> None:
    host, port = naming(testbed, lambda: MANY)
    command = [sys.executable, "-m", "barnabas", "proxy", "--broker", f"{host}:{port}", "--listen", "127.0.0.1:0", "--json"]

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=few)
    try:
        address = listening(process)
        first = testbed.client(address)
        own = [each for each in metadata_addresses(first) if each[0] == "127.0.0.1"]
        assert 1 < len(own) <= FILES // 2
        for _ in range(30):
            with testbed.client(address) as client:
                served(client)
        with testbed.client(own[-1]) as client:  # a broker's listener takes clients, whatever becomes of them
            client.sendall(REQUEST)
        assert sorted(metadata_addresses(first)) == sorted(metadata_addresses(first)) and len([each for each in metadata_addresses(first) if each[0] == "127.0.0.1"]) == len(own)
        served(first)
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(PATIENCE)
