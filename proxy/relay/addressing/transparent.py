"""Transparent mode: clients connect to the brokers' own addresses and the kernel brings them here.

Nothing in the traffic is changed: where a connection was meant to go is asked of the kernel (Linux), and that is
where the relay connects to. Two ways, see `netfilter` for the rules that go with them:

- ``redirect``: the destination was rewritten to the proxy's port (nftables ``redirect``); the original one is the
  socket option SO_ORIGINAL_DST. Needs no rights.
- ``tproxy``: nothing was rewritten; the accepted socket's own address is the broker's. Listening for it needs
  CAP_NET_ADMIN, and so does going on to the broker with the client's source address (`keep_source`).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from ....errors import BarnabasError
from ...events import Address, show
from ...processes.worker_shared_state import SharedState
from .address_map import AddressMap, reason
from .destinations import is_local

MODES = ("redirect", "tproxy")
PROXY_MARK = 0x6B61
"""Firewall mark of the proxy's own connections: the rules let them pass."""
EVERYWHERE: Address = ("*", 0)
"""Stands for the upstream: wherever a client wanted to go."""

_ORIGINAL_DESTINATION = 80  # SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv4.h and _ipv6
_MARK = getattr(socket, "SO_MARK", 36)
_TRANSPARENT = {socket.AF_INET: (socket.SOL_IP, 19), socket.AF_INET6: (socket.IPPROTO_IPV6, 75)}
_BIND_NO_PORT = 24  # IP_BIND_ADDRESS_NO_PORT: the port is chosen at connect, when the whole address is known
_IPV4 = struct.Struct(">2xH4s8x")
_IPV6 = struct.Struct(">2xHI16sI")


@dataclass(frozen=True, slots=True)
class TransparentConfig:
    """mode: "redirect" or "tproxy". keep_source: go to the broker with the client's address (tproxy only)."""

    mode: str
    keep_source: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"transparent mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        if self.keep_source and self.mode != "tproxy":
            raise ValueError("the client's source address can only be kept in tproxy mode")


class NotIntercepted(BarnabasError):
    """A connection that the kernel did not redirect here; the text has what it is and what to do."""


class Unchanged(AddressMap):
    """An address map without a single address: clients keep those that the brokers gave."""

    def port_for(self, broker: Address, node: int) -> int | None:
        return None

    def unknown_names(self, brokers: Iterable[Address]) -> list[Address]:
        return []

    def open_in_order(self, brokers: Iterable[tuple[int, Address]], moves: bool = False) -> None:
        return


def plain(host: str) -> str:
    """An IPv4 address as such, also where an IPv6 socket gives it as ::ffff:A.B.C.D."""
    return host.removeprefix("::ffff:") if "." in host else host


def prepare_listener(listener: socket.socket, mode: str) -> None:
    """Before the listener is bound. OSError without the right that the mode needs."""
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    if mode != "tproxy":
        return
    level, option = _TRANSPARENT[listener.family]
    try:
        listener.setsockopt(level, option, 1)
    except PermissionError:
        raise OSError(
            None, "tproxy needs the capability CAP_NET_ADMIN: run as root, or choose --transparent redirect"
        ) from None


def original_destination(client: socket.socket) -> Address:
    """Where a redirected connection was meant to go; OSError where the kernel does not know of any redirect."""
    if client.family == socket.AF_INET6 and not client.getsockname()[0].startswith("::ffff:"):
        port, _, packed, _ = _IPV6.unpack(client.getsockopt(socket.IPPROTO_IPV6, _ORIGINAL_DESTINATION, _IPV6.size))
        return socket.inet_ntop(socket.AF_INET6, packed), port
    port, packed = _IPV4.unpack(client.getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, _IPV4.size))
    return socket.inet_ntop(socket.AF_INET, packed), port


class Interception:
    """What the relay asks in transparent mode: where does this client want to go, and prepare the way there."""

    def __init__(self, config: TransparentConfig, listener: socket.socket, shared_state: SharedState | None = None) -> None:
        self._shared_state = shared_state
        self._config = config
        self._port: int = listener.getsockname()[1]
        # (our address, the broker's) of every connection to a broker: one that comes in again is a loop
        self._own: set[tuple[Address, Address]] = set()
        self._by_fd: dict[int, tuple[Address, Address]] = {}

    def destination(self, client: socket.socket, peer: Address) -> Address:
        """The broker that a client, just accepted, wanted. NotIntercepted: it is to be refused."""
        here: Address = client.getsockname()[:2]
        here = plain(here[0]), here[1]
        peer = plain(peer[0]), peer[1]
        if self._config.mode == "redirect":
            try:
                wanted = original_destination(client)
            except OSError:
                wanted = here
        else:
            wanted = here
        if (peer, wanted) in self._own or (self._shared_state and self._shared_state.claimed(peer[1], _mark(peer, wanted))):
            raise NotIntercepted(
                f"the proxy's own connection to {show(wanted)} came back to it: run the proxy with CAP_NET_ADMIN, so "
                "that it can mark its connections, or use `barnabas transparent up --exclude-uid USER` with the user it runs as"
            )
        if wanted[1] == self._port and is_local(wanted[0]):
            raise NotIntercepted(
                f"{show(peer)} connected to the proxy itself ({show(wanted)}): clients keep the brokers' own addresses, "
                "and `barnabas transparent up` redirects their connections here"
            )
        return wanted

    def prepare(self, sock: socket.socket, peer: Address) -> None:
        """Before a connect: mark it as ours, and take the client's address if it is to be kept (else OSError)."""
        try:
            sock.setsockopt(socket.SOL_SOCKET, _MARK, PROXY_MARK)
        except OSError:
            pass  # without the right to it, the rules have to know the user: --exclude-uid
        host = plain(peer[0])
        if not self._config.keep_source or host.startswith("127.") or host == "::1":
            return
        try:
            level, option = _TRANSPARENT[sock.family]
            sock.setsockopt(level, option, 1)
            sock.setsockopt(socket.SOL_IP, _BIND_NO_PORT, 1)
            sock.bind((host, 0))
        except OSError as error:
            raise OSError(error.errno, f"the client's address {host} cannot be kept: {reason(error)}") from None

    def connecting(self, sock: socket.socket, broker: tuple[str | int, ...]) -> None:
        """A connect has begun: its own address is known now."""
        host, port = sock.getsockname()[:2]
        ends = ((host, port), (str(broker[0]), int(broker[1])))
        self._by_fd[sock.fileno()] = ends
        self._own.add(ends)
        if self._shared_state is not None:  # it may come in at another worker
            self._shared_state.claim(port, _mark(*ends))

    def forget(self, fd: int) -> None:
        """A socket is about to be closed."""
        ends = self._by_fd.pop(fd, None)
        if ends is not None:
            self._own.discard(ends)
            if self._shared_state is not None:
                self._shared_state.disclaim(ends[0][1], _mark(*ends))


def _mark(own: Address, broker: Address) -> int:
    """The same number in every worker, never 0."""
    return int.from_bytes(blake2b(repr((own, broker)).encode(), digest_size=8).digest()) | 1
