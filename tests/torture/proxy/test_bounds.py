"""What stalled peers, many connections and odd first bytes may cost."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import ConnectionClosed, ConnectionOpened, Event, NotKafka
from harness.scripted import Broker
from harness.wire import exactly, read_frame
from torture.proxy.peers import connect, descriptors, echo, memory, pid_of, reset, warm
from torture.proxy.test_correlation import heartbeat

MIB = 1 << 20


def until(proxy: Proxy, kind: type[Event], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        event = proxy.next_event(left)
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} within {seconds} s")


@pytest.fixture(autouse=True)
def files() -> Iterator[None]:
    """Enough of them for both ends of a thousand connections; other tests get their limits back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(8192, hard)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("stalled", ["client", "broker"])
def test_stalled_peers(stalled: str) -> None:
    """A hundred of them, each offered a gigabyte."""
    stop = threading.Event()
    moved = [0]
    frame = (64 * 1024).to_bytes(4, "big") + bytes(64 * 1024)

    def pour(sock: socket.socket) -> None:
        sock.settimeout(30)
        sent = 0
        try:
            while sent < 1 << 30 and not stop.is_set():
                done = sock.send(frame[sent % len(frame) :])
                sent += done
                moved[0] += done
        except OSError:
            pass

    def script(sock: socket.socket) -> None:
        if stalled == "client":
            pour(sock)
        if len(broker.sockets) > 1:
            stop.wait(30)

    count = 100
    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        relay = warm(proxy)
        before = memory(relay)
        clients = [connect(proxy.address, SO_RCVBUF=32768, SO_SNDBUF=32768) for _ in range(count)]
        if stalled == "broker":
            for sock in clients:
                threading.Thread(target=pour, args=(sock,), daemon=True).start()
        standing: list[int] = []
        while len(standing) < 5 or not standing[-5] == standing[-1] > 0:  # until nothing moves any more
            time.sleep(0.25)
            standing.append(moved[0])
        grown = memory(relay) - before
        stop.set()
        for sock in clients:
            sock.close()
    assert grown <= 64 * MIB and grown <= count * 2 * 256 * 1024, f"{grown / MIB:.1f} MiB for {count} stalled peers"


@pytest.mark.parametrize("gone", ["client", "broker"])
def test_a_reset_is_noticed_while_the_other_side_takes_nothing(gone: str) -> None:
    """The relay reads no more, so it has to hear of the reset by itself."""
    done = threading.Event()

    def script(sock: socket.socket) -> None:
        if gone == "broker":
            sock.settimeout(0.5)
            try:
                while True:
                    sock.send(b"\0\x01\0\0" + bytes(65536))
            except OSError:
                pass
            reset(sock)
        done.wait(90)

    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        client = connect(proxy.address)
        if gone == "client":
            client.settimeout(0.5)
            try:
                while True:
                    client.send(b"\0\x01\0\0" + bytes(65536))
            except OSError:
                pass
            reset(client)
        closed = until(proxy, ConnectionClosed)
        done.set()
        assert (closed.how, closed.by) == ("rst", gone)


def test_a_thousand_connections(scale: float) -> None:
    """Held, used, closed: what each costs, and that nothing of it stays."""
    count = 1000
    with Broker(echo) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        relay = pid_of(proxy, "relay")
        for _ in range(3):
            with connect(proxy.address) as sock:
                sock.sendall(heartbeat(1).request)
                assert read_frame(sock)
        for _ in range(3):
            until(proxy, ConnectionClosed)
        base, fds = memory(relay), descriptors(relay)
        clients = [connect(proxy.address) for _ in range(count)]
        for round_ in range(3):
            for sock in clients:
                sock.sendall(heartbeat(round_).request)
            for sock in clients:
                assert read_frame(sock)
        time.sleep(min(20 * (scale > 1), 20))
        assert descriptors(relay) == fds + 2 * count
        assert memory(relay) - base <= count * 64 * 1024
        for sock in clients:
            sock.close()
        deadline = time.monotonic() + 10
        while descriptors(relay) > fds and time.monotonic() < deadline:
            time.sleep(0.1)
        assert descriptors(relay) == fds


ODD = {
    "negative": b"\xff\xff\xff\xff\0\x03\0\x09",
    "largest negative": b"\x80\0\0\0",
    "largest": b"\x7f\xff\xff\xff\0\x03\0\x09",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(190),
    "HTTP": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
}


@pytest.mark.parametrize("side", ["client", "broker"])
@pytest.mark.parametrize(
    ("what", "after"),  # in the middle of a stream, the beginnings of other protocols are sizes like others
    [(what, after) for what in ODD for after in (0, 3) if not after or what not in ("TLS", "HTTP")],
)
def test_sizes_that_cannot_be(what: str, side: str, after: int) -> None:
    """Named at once, passed on, nothing allocated; a TLS hello and HTTP are told apart at the beginning of a stream."""
    odd = ODD[what]

    def script(sock: socket.socket) -> None:
        for _ in range(after):
            frame = read_frame(sock)
            sock.sendall(heartbeat(int.from_bytes(frame[8:12], "big")).response or b"")
        if side == "broker":
            sock.sendall(odd)
            sock.recv(1)
        else:
            sock.sendall(exactly(sock, len(odd)))
            sock.recv(1)

    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        relay = warm(proxy)
        before = memory(relay)
        with connect(proxy.address) as client:
            for number in range(after):
                client.sendall(heartbeat(number).request)
                assert read_frame(client)
            if side == "client":
                client.sendall(odd)
            assert exactly(client, len(odd)) == odd
            told = until(proxy, NotKafka)
            if side == "client" and what in ("TLS", "HTTP"):
                assert what in told.text
            assert memory(relay) - before < 2 * MIB


def test_a_reset_is_noticed_behind_an_end() -> None:
    """The client has closed its half, so nothing of it is read any more; then it goes altogether."""
    done = threading.Event()

    def script(sock: socket.socket) -> None:
        done.wait(90)

    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        client = connect(proxy.address)
        client.sendall(heartbeat(1).request)
        client.shutdown(socket.SHUT_WR)
        time.sleep(0.3)
        until(proxy, ConnectionOpened, 20)
        time.sleep(0.3)
        reset(client)
        closed = until(proxy, ConnectionClosed)
        done.set()
        assert (closed.how, closed.by) == ("rst", "client")
