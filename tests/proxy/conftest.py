"""Scripted peers: a broker that does what a test says, clients on plain sockets, and a proxy between them."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from barnabas import decoder
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import Event
from starting.proxies import Proxy
from starting.scripted import Broker, exactly, read_frame

Script = Callable[[socket.socket], None]


def request(api_key: int, api_version: int, correlation_id: int, body: bytes = b"") -> bytes:
    """A request with size, header 1 (client id "t") and any body."""
    frame = struct.pack(">hhih", api_key, api_version, correlation_id, 1) + b"t" + body
    return struct.pack(">i", len(frame)) + frame


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


class Bench:
    """Brokers, proxies and clients of one test; everything is closed behind it."""

    def __init__(self) -> None:
        self._closing: list[Callable[[], Any]] = []

    def broker(self, script: Script) -> Broker:
        broker = Broker(script)
        self._closing.append(broker.close)
        return broker

    def proxy(self, upstream: tuple[str, int], **options: Any) -> Proxy:
        config = ProxyConfig(upstream=upstream, **({"probe": False, "drain_seconds": 1.0} | options))
        proxy = Proxy(config)
        proxy.start()
        self._closing.append(proxy.stop)
        return proxy

    def nobody(self) -> tuple[str, int]:
        """An address where connects are refused, and that nobody else is given meanwhile; a test may listen there."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        self._closing.append(sock.close)
        address: tuple[str, int] = sock.getsockname()[:2]
        return address

    def client(self, address: tuple[str, int], **options: int) -> socket.socket:
        sock = socket.socket()
        for name, value in options.items():
            sock.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        sock.settimeout(60)
        sock.connect(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._closing.append(sock.close)
        return sock

    def close(self) -> None:
        for close in reversed(self._closing):
            close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture
def wire() -> Any:
    """The functions above, for test modules (which cannot import this one)."""

    class Wire:
        pass

    for function in (request, response, framed, exactly, read_frame, wait_for, metadata_response, comes_to_rest):
        setattr(Wire, function.__name__, staticmethod(function))
    return Wire


def wait_for(proxy: Proxy, kind: type[Event], seconds: float = 60.0) -> Any:
    """The next event of a kind; the others before it are dropped."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        event = proxy.next_event(left)
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} within {seconds} s")


def comes_to_rest(ticks: Callable[[], int], most: int = 4) -> None:
    """Sooner or later (on a machine with much else to do the start takes its time) processes use no more than so many
    ticks (10 ms each) in two seconds; `ticks` says what they have used so far."""
    used = []
    for _ in range(15):
        before = ticks()
        time.sleep(2.0)
        used.append(ticks() - before)
        if used[-1] <= most:
            return
    raise AssertionError(f"ticks used in two seconds each: {used}")


def metadata_response(correlation_id: int, brokers: list[tuple[int, str, int]], version: int = 8) -> bytes:
    """A whole Metadata response frame with these (node id, host, port)."""
    fields = {
        "brokers": [{"node_id": node, "host": host, "port": port} for node, host, port in brokers],
        "controller_id": 1,
    }
    return framed(decoder.encode_response(3, version, fields, correlation_id=correlation_id))
