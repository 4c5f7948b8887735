"""Two questions about brokers besides their connections: can the upstream be reached, and are two names one machine?"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from .addresses import reason
from .events import UpstreamFailed
from .resolver import Answer

if TYPE_CHECKING:
    from .relay import Relay

SAME_HOST_SECONDS = 0.5
"""How long each of the two names may take to be looked up."""


class Prober:
    """Asks for a relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._same: dict[tuple[str, str], bool] = {}

    def probe(self, answer: Answer) -> None:
        """Tell at once, and not only when a client comes, that the broker cannot be reached."""
        relay = self._relay
        if isinstance(answer, OSError):
            relay.emit(UpstreamFailed(0, relay.upstream, reason(answer)))
            return
        if not answer:
            return
        family, address = answer[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        rest = answer[1:]

        def done() -> None:
            relay.forget(sock)
            sock.close()

        def outcome() -> None:
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            done()
            if not code:
                relay.spoken.look(relay.upstream, (family, address))
            elif rest:
                self.probe(rest)
            else:
                relay.emit(UpstreamFailed(0, relay.upstream, reason(OSError(code, os.strerror(code)))))

        sock.connect_ex(address)
        relay.attend(sock.fileno(), outcome)

    def same_host(self, one: str, other: str, port: int) -> bool:
        """Whether two names lead to the same machine; asked once per pair, and it may take a second."""
        if (one, other) not in self._same:
            wait_for = self._relay.resolver.wait_for
            first = {address[0] for _, address in wait_for(one, port, SAME_HOST_SECONDS)}
            second = {address[0] for _, address in wait_for(other, port, SAME_HOST_SECONDS)}
            self._same[one, other] = bool(first & second)
        return self._same[one, other]
