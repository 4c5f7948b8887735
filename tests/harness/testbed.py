"""Scripted brokers, proxies and plain clients of one test."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import Event
from harness import wire
from harness.proxies import Proxy
from harness.scripted import Broker

from .waiting import PATIENCE, NeverHappened, attempts

E = TypeVar("E", bound=Event)
Script = Callable[[socket.socket], Any]
"""What a scripted broker does with one connection; the socket is closed behind it."""


class Testbed:
    """Brokers, proxies and clients of one test; ``close`` ends them, the newest first."""

    __test__ = False  # pytest takes classes named Test… for tests

    def __init__(self) -> None:
        self._closing: list[Callable[[], Any]] = []

    def broker(self, script: Script) -> Broker:
        """A broker on a port of its own that runs `script(socket)` for every connection."""
        broker = Broker(script)
        self._closing.append(broker.close)
        return broker

    def proxy(self, upstream: tuple[str, int], **options: Any) -> Proxy:
        """A running proxy in front of ``upstream``; ``options`` are those of ``ProxyConfig``."""
        config = ProxyConfig(upstream=upstream, **({"probe": False, "drain_seconds": 1.0} | options))
        proxy = Proxy(config)
        proxy.start()
        self._closing.append(proxy.stop)
        return proxy

    def closed_port(self) -> tuple[str, int]:
        """An address where connects are refused, and that nobody else is given meanwhile; a test may listen there."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        self._closing.append(sock.close)
        address: tuple[str, int] = sock.getsockname()[:2]
        return address

    def client(self, address: tuple[str, int], **options: int) -> socket.socket:
        """See ``wire.connect``; it is closed with the others."""
        sock = wire.connect(address, **options)
        self._closing.append(sock.close)
        return sock

    def close(self) -> None:
        for close in reversed(self._closing):
            close()


def next_event(proxy: Proxy, kind: type[E], so: Callable[[E], bool] = lambda event: True) -> E:
    """The next event of a kind (for which ``so`` holds); those before it are dropped, and named by a failure."""
    dropped: list[Event] = []
    for left in attempts(pause=0):
        event = proxy.next_event(left)
        if isinstance(event, kind) and so(event):
            return event
        if event is not None:
            dropped.append(event)
    raise NeverHappened(f"no {kind.__name__} within {PATIENCE:g} s; the proxy reported {dropped}")
