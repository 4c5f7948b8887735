"""What stalled peers, many connections and odd first bytes may cost."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import ConnectionClosed, NotKafka
from harness.proxies import Proxy
from harness.run.slices import only, thin
from harness.scripted import Broker
from harness.testbed import next_event
from harness.waiting import PATIENCE, until
from harness.wire import connect, exactly, read_frame
from torture.proxy.peers.plain_clients import descriptors, echo, memory, pid_of, reset, warm
from torture.proxy.test_correlation import heartbeat

MIB = 1 << 20


@pytest.fixture(autouse=True)
def files() -> Iterator[None]:
    """Enough of them for both ends of a thousand connections; other tests get their limits back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(8192, hard)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def nothing_moves(moved: list[int]) -> None:
    """Return when something was sent, and no more of it within a second."""
    samples: list[int] = []

    def stands() -> bool:
        samples.append(moved[0])
        return len(samples) >= 5 and samples[-5] == samples[-1] > 0

    until(stands, lambda: f"bytes sent so far: {samples[-5:]}", pause=0.25)


@pytest.mark.parametrize(("stalled", "count"), only([("client", 10), ("client", 100), ("broker", 100)], ("client", 10)))
def test_stalled_peers(stalled: str, count: int) -> None:
    """Peers that take nothing, each offered a gigabyte: the relay holds a bounded part of it."""
    stop = threading.Event()
    moved = [0]
    frame = (64 * 1024).to_bytes(4, "big") + bytes(64 * 1024)

    def pour(sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
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
            stop.wait()

    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        relay = warm(proxy)
        before = memory(relay)
        clients = [connect(proxy.address, SO_RCVBUF=32768, SO_SNDBUF=32768) for _ in range(count)]
        if stalled == "broker":
            for sock in clients:
                threading.Thread(target=pour, args=(sock,), daemon=True).start()
        nothing_moves(moved)
        grown = memory(relay) - before
        stop.set()
        for sock in clients:
            sock.close()
    assert grown <= 64 * MIB and grown <= count * 2 * 256 * 1024, f"{grown / MIB:.1f} MiB for {count} stalled peers"


def reset_when_full(sock: socket.socket) -> None:
    """Send until the other side takes no more for half a second, then reset."""
    sock.settimeout(0.5)
    try:
        while True:
            sock.send(b"\0\x01\0\0" + bytes(65536))
    except OSError:
        pass
    reset(sock)


@pytest.mark.parametrize("gone", thin(("client", "broker"), 1))
def test_a_reset_is_noticed_while_the_other_side_takes_nothing(gone: str) -> None:
    """The relay reads no more, so it has to hear of the reset by itself."""
    done = threading.Event()

    def script(sock: socket.socket) -> None:
        if gone == "broker":
            reset_when_full(sock)
        done.wait()

    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        client = connect(proxy.address)
        if gone == "client":
            reset_when_full(client)
        closed = next_event(proxy, ConnectionClosed)
        done.set()
        assert (closed.how, closed.by) == ("rst", gone)


@pytest.mark.parametrize("count", only((100, 1000), 100))
def test_many_connections(count: int, scale: float) -> None:
    """Held, used, closed: what each costs, and that nothing of it stays."""
    with Broker(echo) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        relay = pid_of(proxy, "relay")
        for _ in range(3):
            with connect(proxy.address) as sock:
                sock.sendall(heartbeat(1).request)
                assert read_frame(sock)
        for _ in range(3):
            next_event(proxy, ConnectionClosed)
        base, fds = memory(relay), descriptors(relay)
        clients = [connect(proxy.address) for _ in range(count)]
        for round_ in range(3):
            for sock in clients:
                sock.sendall(heartbeat(round_).request)
            for sock in clients:
                assert read_frame(sock)
        if scale > 1:
            time.sleep(20)  # what the relay does with idle connections costs nothing more
        assert descriptors(relay) == fds + 2 * count
        assert memory(relay) - base <= count * 64 * 1024
        for sock in clients:
            sock.close()
        until(lambda: descriptors(relay) <= fds, lambda: f"{descriptors(relay)} descriptors where {fds} were before")
        assert descriptors(relay) == fds


ODD = {
    "negative": b"\xff\xff\xff\xff\0\x03\0\x09",
    "largest negative": b"\x80\0\0\0",
    "largest": b"\x7f\xff\xff\xff\0\x03\0\x09",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(190),
    "HTTP": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
}


@pytest.mark.parametrize(
    ("what", "after", "side"),  # in the middle of a stream, the beginnings of other protocols are sizes like others
    only(
        [
            (what, after, side)
            for what in ODD
            for after in (0, 3)
            if not after or what not in ("TLS", "HTTP")
            for side in ("client", "broker")
        ],
        ("TLS", 0, "client"),
        ("largest", 3, "broker"),
    ),
)
def test_impossible_frame_sizes(what: str, after: int, side: str) -> None:
    """Reported at once, passed on, nothing allocated; TLS and HTTP are recognized at the beginning of a stream."""
    odd = ODD[what]

    def script(sock: socket.socket) -> None:
        for _ in range(after):
            frame = read_frame(sock)
            sock.sendall(heartbeat(int.from_bytes(frame[8:12], "big")).response or b"")
        sock.sendall(odd if side == "broker" else exactly(sock, len(odd)))
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
            reported = next_event(proxy, NotKafka)
            if side == "client" and what in ("TLS", "HTTP"):
                assert what in reported.text
            assert memory(relay) - before < 2 * MIB


@pytest.mark.slow
def test_a_reset_is_noticed_after_a_half_close() -> None:
    """The client has closed its half, so nothing of it is read any more; then it goes altogether."""
    ended, done = threading.Event(), threading.Event()

    def script(sock: socket.socket) -> None:
        while sock.recv(4096):
            pass
        ended.set()
        done.wait()

    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        client = connect(proxy.address)
        client.sendall(heartbeat(1).request)
        client.shutdown(socket.SHUT_WR)
        assert ended.wait(PATIENCE)
        reset(client)
        closed = next_event(proxy, ConnectionClosed)
        done.set()
        assert (closed.how, closed.by) == ("rst", "client")
