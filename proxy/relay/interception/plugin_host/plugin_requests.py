"""Requests of plugins' own, to the broker of a client's connection.

They go over that connection itself. So they come with the login that the client has made, whatever its mechanism was and
whether or not this proxy could have made it, and under the same TLS; a connection of their own could have neither where
clients log in through the proxy. Their correlation ids are negative numbers that no client in use counts up to, and that
nothing in flight has; the answer is taken out of the stream. A broker answers in order, so such a request waits for
what the client has asked before, as a long poll; its time is limited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ....ring.clock import now_ns
from ...connections.correlation import InFlight, entry_id
from ...interfaces import PluginRequest
from .messages import AskRequest

if TYPE_CHECKING:
    from ...interfaces import ConnectionInterface, RelayInterface

FIRST, LAST = 0xB000_0000, 0xBFFF_FFFF
"""Their correlation ids, as unsigned numbers."""
LOOK_AGAIN_NS = 2_000_000
MOST = 64
"""Of one connection at one time."""


class ResponseListener(Protocol):
    """Passes the outcome of a request on to the host (`plugin_interceptor.PluginInterceptor`)."""

    def answer(
        self, host: int, number: int, question_number: int, error: str, frame: bytes, *, ended: bool = False
    ) -> None: ...


class PluginRequestQueue:
    """All of them. One per relay."""

    def __init__(self, relay: RelayInterface, listener: ResponseListener) -> None:
        self._relay = relay
        self._listener = listener
        self._waiting: list[PluginRequest] = []
        self._next = FIRST

    def ask(self, host: int, ask: AskRequest, frame: bytes) -> None:
        """A plugin asks the broker of a connection."""
        connection = self._relay.connections.get(ask.connection)
        if connection is None:
            self._listener.answer(host, ask.id, ask.question, "the connection has ended", b"", ended=True)
            return
        asked = PluginRequest(host, ask.id, ask.question, connection, frame, ask.plugin)
        self._waiting.append(asked)
        if len([each for each in self._waiting if each.connection is connection]) > MOST:
            self._fail(asked, f"{MOST} requests of plugins are already waiting on this connection")
            return
        self._relay.timers.after(int(ask.seconds * 1e9), lambda: self._fail(asked, "no response in time"))
        self._try(asked)

    def _try(self, asked: PluginRequest) -> None:
        """Send it as soon as no other frame is in the middle of being sent."""
        connection = asked.connection
        half = connection.request
        if asked.over:
            return
        if connection.closed or half.opaque or half.eof or self._relay.draining:
            self._fail(asked, "the connection ends", ended=True)
            return
        if not connection.established or connection.draining or half.left or half.split_head or not half.open:
            self._relay.timers.after(LOOK_AGAIN_NS, lambda: self._try(asked))
            return
        correlation = self._free(connection)
        frame = asked.frame[:4] + correlation.to_bytes(4, "big") + asked.frame[8:]
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        entry = InFlight(key, version, correlation)
        entry.hooked = asked
        connection.correlation.wait_for(entry, asked.frame)
        connection.asking += 1
        whole = len(frame).to_bytes(4, "big") + frame
        connection.broker_leg(0, whole, f"plugin {asked.by!r} asks", now_ns())
        half.push(whole)

    def _free(self, connection: ConnectionInterface) -> int:
        taken = {entry_id(entry) for entry in connection.in_flight}
        while True:
            found, self._next = self._next, FIRST if self._next >= LAST else self._next + 1
            if found not in taken:
                return found

    def answered(self, asked: PluginRequest, frame: bytes, now: int) -> None:
        """Its response has come (with size); the client does not get it."""
        connection = asked.connection
        connection.asking -= 1
        connection.broker_leg(1, frame, f"to plugin {asked.by!r}", now)
        if not asked.over:
            self._over(asked)
            self._listener.answer(asked.host, asked.number, asked.question, "", frame[4:])

    def gone(self, connection: ConnectionInterface) -> None:
        """A connection ends."""
        for asked in [each for each in self._waiting if each.connection is connection]:
            self._fail(asked, "the connection has ended", ended=True)

    def _fail(self, asked: PluginRequest, why: str, *, ended: bool = False) -> None:
        if not asked.over:
            self._over(asked)
            self._listener.answer(asked.host, asked.number, asked.question, why, b"", ended=ended)

    def _over(self, asked: PluginRequest) -> None:
        asked.over = True
        self._waiting.remove(asked)
