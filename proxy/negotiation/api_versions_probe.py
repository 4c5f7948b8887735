"""Asking a broker what it offers on a connection of the proxy's own, while the clients that need to know it wait.

A broker that has no ApiVersions shows that: 0.8 closes the connection (that is believed the second time: brokers close
connections for other reasons, too), 0.9 never answers. Only where a connection needs neither TLS nor a login, and the kernel
does not bring clients here: there `learning` asks on the client's own.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...decoder import api_versions
from ..addressing.resolver import SocketAddress
from ..interception.frame_editor import framed

if TYPE_CHECKING:
    from ..events import Address
    from ..relay.loop import Relay

ANSWERED_WITHIN = 3_000_000_000
"""Nanoseconds for a broker to answer ApiVersions."""
AGAIN_AFTER = 300_000_000
"""Nanoseconds before a broker that has closed the connection is asked a second time."""
CLOSES, IS_SILENT = "0.8.2", "0.9.0"
"""Which brokers close the connection at an ApiVersions request, and which do not answer it."""
ASKING = api_versions.request(correlation_id=0, client_id="barnabas")
_LARGEST = 1 << 20


def possible(relay: Relay) -> bool:
    """Whether connections of the proxy's own need nothing that only a client's has."""
    return relay.security is None and relay.interception is None


class Inquiry:
    """One question. `relay.spoken` hears the answer; everyone in `waiting` is called when it is over, answered or not."""

    def __init__(self, relay: Relay, broker: Address, at: SocketAddress) -> None:
        self._relay = relay
        self._broker = broker
        self._at = at
        self._sock: socket.socket | None = None
        self._heard = bytearray()
        self._refusals = 0
        self.waiting: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Connect and ask. Whatever comes of it comes later, with a turn of the loop."""
        family, address = self._at
        self._heard.clear()
        try:
            if self._relay.refusal(self._broker, address[0], address[1]):
                raise OSError
            sock = self._sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            refused = sock.connect_ex(address) not in (0, errno.EINPROGRESS)
        except OSError:
            refused = True
        if refused:
            self._relay.timers.after(0, self._over)
            return
        self._relay.attend(sock.fileno(), self._connected)
        self._relay.timers.after(ANSWERED_WITHIN, lambda: self._silent(sock))

    def _connected(self) -> None:
        sock = self._sock
        if sock is None:
            return
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._over()
            return
        try:
            sock.send(framed(ASKING))
        except BlockingIOError:
            return  # it does not stand yet
        except OSError:
            self._closed()
            return
        self._relay.attend(sock.fileno(), self._come)

    def _come(self) -> None:
        sock, heard = self._sock, self._heard
        if sock is None:
            return
        ended = False
        try:
            while len(heard) < _LARGEST and (more := sock.recv(1 << 16)):
                heard.extend(more)
            ended = True
        except BlockingIOError:
            pass
        except OSError:
            ended = True
        if len(heard) > 8 and len(heard) >= 4 + int.from_bytes(heard[:4], "big"):
            self._relay.spoken.heard(self._broker, bytes(heard[4:]), 0)
            self._over()
        elif ended:
            self._closed()

    def _closed(self) -> None:
        self._refusals += 1
        if self._refusals == 1:
            self._end()
            self._relay.timers.after(AGAIN_AFTER, self.begin)
            return
        self._relay.spoken.taken_for(self._broker, CLOSES)
        self._over()

    def _silent(self, sock: socket.socket) -> None:
        if self._sock is sock:
            self._relay.spoken.taken_for(self._broker, IS_SILENT)
            self._over()

    def _end(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._relay.forget(sock)
            sock.close()

    def _over(self) -> None:
        self._end()
        waiting, self.waiting = self.waiting, []
        self._relay.spoken.answered(self._broker)
        for each in waiting:
            each()
