"""Scripted connections that end anywhere. What real clients and brokers make of faults is in test_cluster."""

from __future__ import annotations

import random
import socket

from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import ConnectionClosed
from harness.proxies import Proxy
from harness.scripted import Broker
from harness.waiting import until
from harness.wire import connect, read_frame
from torture.proxy.peers.plain_clients import echo, reset, sockets, taken, unfaulted, warm
from torture.proxy.test_correlation import heartbeat


def test_ends_at_any_point() -> None:
    """Scripted connections end in the middle of anything, by either side; nothing is left of them."""
    chance = random.Random(4)

    def script(sock: socket.socket) -> None:
        fate = chance.random()
        if fate < 0.4:
            echo(sock)
            return
        for _ in range(chance.randrange(4)):
            frame = read_frame(sock)
            sock.sendall((len(frame) + 4).to_bytes(4, "big") + frame[8:12] + frame)
        sock.sendall(b"\0\0\x10\0"[: chance.randrange(5)])
        if fate < 0.8:
            reset(sock)

    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        relay = warm(proxy)
        base = sockets(relay)
        for round_ in range(120):
            frame = heartbeat(round_).request
            try:
                sock = connect(proxy.address)
            except ConnectionResetError:
                continue  # the broker was quicker
            try:
                for _ in range(chance.randrange(4)):
                    sock.sendall(frame)
                sock.sendall(frame[: chance.randrange(len(frame))])
                if chance.random() < 0.3:
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(4096):
                        pass
            except OSError:
                pass
            reset(sock) if chance.random() < 0.5 else sock.close()
        until(
            lambda: len(sockets(relay)) <= len(base), lambda: f"connections do not end: {base} became {sockets(relay)}"
        )
        events = taken(proxy)
        unfaulted(events)
        assert sum(isinstance(event, ConnectionClosed) for event in events) > 20
