"""Two questions about brokers besides their connections: can the upstream be reached, and are two names one machine?"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from ...events import Address, UpstreamFailed
from .address_map import reason
from .resolver import Answer

if TYPE_CHECKING:
    from ..interfaces import RelayInterface

NAMES_SECONDS = 1.0
"""How long a response waits at most for the names in it to be looked up, all together."""


class Prober:
    """Asks for a relay."""

    def __init__(self, relay: RelayInterface) -> None:
        self._relay = relay

    def probe(self, broker: Address, answer: Answer) -> None:
        """Tell at once, and not only when a client comes, that the broker cannot be reached."""
        relay = self._relay
        if isinstance(answer, OSError):
            relay.emit(UpstreamFailed(0, broker, reason(answer)))
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
                relay.version_negotiation.probe_early(broker, (family, address))
            elif rest:
                self.probe(broker, rest)
            else:
                relay.emit(UpstreamFailed(0, broker, reason(OSError(code, os.strerror(code)))))

        sock.connect_ex(address)
        relay.attend(sock.fileno(), outcome)

    def same_host(self, one: str, other: str, port: int) -> bool:
        """Whether two names lead to the same machine, as far as it is known by now (`look_up`)."""
        known = self._relay.resolver.known
        first, second = ({address[0] for _, address in known(host, port) or ()} for host in (one, other))
        return bool(first & second)

    def look_up(self, names: Collection[Address], then: Callable[[], None]) -> None:
        """Call `then` when all of these are known, or after `NAMES_SECONDS`: once, and not before this returns."""
        left = set(names)
        over = False

        def end() -> None:
            nonlocal over
            if not over:
                over = True
                then()

        def answered(name: Address, _: Answer) -> None:
            left.discard(name)
            if not left:
                self._relay.timers.after(0, end)

        self._relay.timers.after(int(NAMES_SECONDS * 1e9), end)
        for name in names:
            self._relay.resolver.resolve(*name, partial(answered, name))
