"""The address map: every broker that a client hears of gets a listener of its own, as it appears.

Ports: bootstrap port + 1, + 2 ... (the next free one) when the bootstrap port was chosen by the user, else any
free port. The bootstrap listener itself serves the broker whose address is the upstream address, also when the
broker spells its host differently.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable

from .events import Address, BrokerFound, Event, ListenerFailed

TRIES = 64
"""Ports that are tried one after the other from the fixed start."""


def listen(address: Address, before_bind: Callable[[socket.socket], None] | None = None) -> socket.socket:
    """A listening, non-blocking socket on `address` (port 0: any); OSError when it cannot be had."""
    host, port = address
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if before_bind is not None:
            before_bind(sock)
        sock.bind(where)
        sock.listen(1024)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def reason(error: OSError) -> str:
    """The system's words for an error, without numbers."""
    if error.errno == errno.EADDRINUSE:
        return "the port is in use"
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    return (os.strerror(error.errno) if error.errno else str(error)).lower()


class AddressMap:
    """(host, port) of a broker -> port of its listener.

    `same_host(a, b, port)` says whether two names are one machine; `opened(socket, broker)` takes a new listener.
    """

    def __init__(
        self,
        bootstrap: Address,
        upstream: Address,
        *,
        fixed: bool,
        same_host: Callable[[str, str, int], bool],
        opened: Callable[[socket.socket, Address], None],
        emit: Callable[[Event], None],
    ) -> None:
        self._host = bootstrap[0]
        self._ports: dict[Address, int | None] = {upstream: bootstrap[1]}
        self._next = bootstrap[1] + 1 if fixed else 0
        self._bootstrap = bootstrap
        self._upstream = upstream
        self._same_host = same_host
        self._opened = opened
        self._emit = emit

    def port_for(self, broker: Address, node: int) -> int | None:
        """The port that stands for a broker; None if it has to stay as it is."""
        if broker in self._ports:
            return self._ports[broker]
        host, port = broker
        if not host or not 0 < port < 65536:
            return None
        upstream_host, upstream_port = self._upstream
        if port == upstream_port and self._same_host(host, upstream_host, port):
            self._ports[broker] = self._bootstrap[1]
            return self._bootstrap[1]
        try:
            listener = self._open()
        except OSError as error:
            self._ports[broker] = None
            self._emit(ListenerFailed(broker, reason(error)))
            return None
        own: Address = listener.getsockname()[:2]
        self._ports[broker] = own[1]
        self._opened(listener, broker)
        self._emit(BrokerFound(node, broker, own))
        return own[1]

    def stands_for(self, broker: Address, node: int, local_host: str) -> Address | None:
        """The address that a client is given for a broker, if it found the proxy as `local_host`."""
        port = self.port_for(broker, node)
        return None if port is None else (local_host, port)

    def open_in_order(self, brokers: Iterable[tuple[int, Address]], moves: bool = False) -> None:
        """Give listeners to brokers that came in one response, by node id: ports do not depend on the order.
        moves: the response says where brokers are now (see `named`)."""
        for node, broker in sorted(brokers):
            self.port_for(broker, node)

    def _open(self) -> socket.socket:
        if not self._next:
            return listen((self._host, 0))
        for _ in range(TRIES):
            port, self._next = self._next, self._next + 1
            if port > 65535:
                break
            try:
                return listen((self._host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(errno.EADDRINUSE, "no free port")
