"""The address map: every broker that a client hears of gets a listener of its own, as it appears.

Ports: bootstrap port + 1, + 2 ... (the next free one) when the bootstrap port was chosen by the user, else any
free port. The bootstrap listener itself serves the broker whose address is the upstream address, also when the
broker spells its host differently. Ports that the proxy itself uses for other things (the control API) are passed
over, and a broker that claims to live there gets no listener.

Several workers keep one map (`board`): who meets a new broker opens its listener under the lock, hands the socket
to the others by way of the supervisor, and writes down the port.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext

from .board import Board
from .events import Address, BrokerFound, Event, ListenerFailed
from .life_events import PortPassedOver

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
    `reserved`: ports of this machine that the proxy uses for something else -> for what.
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
        board: Board | None = None,
        reserved: Mapping[int, str] | None = None,
    ) -> None:
        self._host = bootstrap[0]
        self._ports: dict[Address, int | None] = {upstream: bootstrap[1]}
        self._next = bootstrap[1] + 1 if fixed else 0
        self._bootstrap = bootstrap
        self._upstream = upstream
        self._same_host = same_host
        self._opened = opened
        self._emit = emit
        self._board = board
        self._reserved = reserved or {}
        self.found: list[BrokerFound] = []
        """Every broker that has been found, by whichever worker."""

    def port_for(self, broker: Address, node: int) -> int | None:
        """The port that stands for a broker; None if it has to stay as it is."""
        if broker in self._ports:
            return self._ports[broker]
        host, port = broker
        if not host or not 0 < port < 65536:
            return None
        if port in self._reserved and _is_here(host, self._host):
            self._ports[broker] = None
            self._emit(ListenerFailed(broker, f"this is the address of {self._reserved[port]}"))
            return None
        upstream_host, upstream_port = self._upstream
        if port == upstream_port and self._same_host(host, upstream_host, port):
            self._ports[broker] = self._bootstrap[1]
            return self._bootstrap[1]
        with nullcontext(False) if self._board is None else self._board.locked() as shared:
            self.catch_up()
            if broker not in self._ports:
                self._add(broker, node, shared)
        return self._ports[broker]

    def _add(self, broker: Address, node: int, shared: bool) -> None:
        """Open a listener. `shared`: the map of all workers may be changed."""
        try:
            listener = self._open(broker, shared)
        except OSError as error:
            self._ports[broker] = None
            self._emit(ListenerFailed(broker, reason(error)))
            return
        own: Address = listener.getsockname()[:2]
        self._ports[broker] = own[1]
        self._opened(listener, broker)
        if shared and self._board is not None:
            self._board.append([node, *broker, own[1]])  # behind the socket: what is written there can be connected to
        found = BrokerFound(node, broker, own)
        self.found.append(found)
        self._emit(found)

    def catch_up(self) -> None:
        """Take over what other workers have learned."""
        if self._board is not None:
            for node, host, port, own in self._board.news():
                self._ports.setdefault((host, port), own)
                self.found.append(BrokerFound(node, (host, port), (self._host, own)))

    def stands_for(self, broker: Address, node: int, local_host: str) -> Address | None:
        """The address that a client is given for a broker, if it found the proxy as `local_host`."""
        port = self.port_for(broker, node)
        return None if port is None else (local_host, port)

    def open_in_order(self, brokers: Iterable[tuple[int, Address]], moves: bool = False) -> None:
        """Give listeners to brokers that came in one response, by node id: ports do not depend on the order.
        moves: the response says where brokers are now (see `named`)."""
        for node, broker in sorted(brokers):
            self.port_for(broker, node)

    def _open(self, broker: Address, shared: bool) -> socket.socket:
        if not self._next:
            return listen((self._host, 0))
        for _ in range(TRIES):
            port = self._next_port(shared)
            if port > 65535:
                break
            why = self._reserved.get(port)
            if why is None:
                try:
                    return listen((self._host, port))
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise
            self._emit(PortPassedOver(broker, port, why or ""))
        raise OSError(errno.EADDRINUSE, "no free port")

    def _next_port(self, shared: bool) -> int:
        """The port to try now; the one behind it is next."""
        if shared and self._board is not None:
            self._next = max(self._next, self._board.next_port)
            self._board.next_port = self._next + 1
        port, self._next = self._next, self._next + 1
        return port


def _is_here(host: str, own: str) -> bool:
    """Whether an address is this machine's, as far as it can be told without asking anybody."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback or host == own
    except ValueError:
        return host in ("localhost", "localhost.localdomain")
