"""What a broker offers, asked on a client's connection before that client's first request goes on.

So it works over TLS and behind a login as well, and the broker sees no connection more. A broker that has no ApiVersions
shows that: 0.8 closes the connection (that is believed the second time: brokers close connections for other reasons,
too), 0.9 never answers. The client's connection is closed then; it comes again, and by then it is known.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import decoder
from ..decoder import releases
from ..plugins.versions.dialect import Asked, Dialect, Step
from . import carrying
from .editing import API_VERSIONS, framed

if TYPE_CHECKING:
    from .connection import Connection
    from .relay import Relay
    from .spoken import Spoken

ANSWERED_WITHIN = 3_000_000_000
"""Nanoseconds for a broker to answer ApiVersions."""
CLOSES, IS_SILENT = "0.8.2", "0.9.0"
"""Which brokers close the connection at an ApiVersions request, and which do not answer it."""
ASKING = decoder.encode_request(API_VERSIONS, 0, {}, correlation_id=0, client_id="barnabas")
ABOUT = Asked(API_VERSIONS, 0, 0)
_LARGEST = 1 << 20


class Learning:
    """Stands in for the dialect of a connection until it is known what its broker offers."""

    def __init__(self, spoken: Spoken, connection: Connection) -> None:
        self._spoken = spoken
        self._connection = connection
        self._then: Callable[[int], None] | None = None

    def wants(self, api_key: int, api_version: int) -> bool:
        return True

    def request(self, frame: bytes) -> Step:
        raise AssertionError("the first request waits")

    def response(self, asked: Asked, frame: bytes) -> bytes:
        raise AssertionError("no request has gone on")

    def begin(self, then: Callable[[int], None]) -> None:
        """Let the client's requests wait until the broker has answered; `then` goes on with the first."""
        self._then = then
        lane = self._connection.request
        lane.paused = True
        lane.waits += 1
        self._connection.relay.timers.after(ANSWERED_WITHIN, self._overdue)

    def response_before(self, asked: Asked, place: int, frame: bytes) -> None:
        connection = self._connection
        self._spoken.heard(connection.broker, frame, 0)
        then, self._then = self._then, None
        if then is None:
            return
        self._spoken.renew(connection)
        lane, now = connection.request, time.time_ns()
        lane.waits -= 1
        then(now)
        carrying.go_on(lane, now)

    def _overdue(self) -> None:
        if self._then is None or self._connection.closed:
            return
        self._then = None
        self._spoken.taken_for(self._connection.broker, IS_SILENT)
        self._connection.close("fin")

    def ended(self) -> None:
        """The broker has closed the connection."""
        if self._then is None:
            return
        self._then = None
        self._spoken.hung_up(self._connection.broker, CLOSES)
        self._connection.close("fin")


def offers_of(release: str) -> dict[int, tuple[int, int]]:
    """What brokers of a release offer, or read, if they have no ApiVersions."""
    return dict(releases.release(release).offered)


def ask(relay: Relay, sock: socket.socket, done: Callable[[], None]) -> None:
    """Ask a broker on a connection that stands, and tell `relay.spoken`; `done` is called in any case."""
    heard = bytearray()

    def come() -> None:
        try:
            while len(heard) < _LARGEST and (more := sock.recv(1 << 16)):
                heard.extend(more)
        except BlockingIOError:
            if len(heard) < 8 or len(heard) < 4 + int.from_bytes(heard[:4], "big"):
                return
        except OSError:
            pass
        if len(heard) > 8:
            relay.spoken.heard(relay.upstream, bytes(heard[4:]), 0)
        done()

    try:
        sock.send(framed(ASKING))
    except OSError:
        done()
        return
    relay.attend(sock.fileno(), come)


def learning(dialect: Dialect | None) -> Learning | None:
    """The dialect, if it is one that has not learned yet."""
    return dialect if isinstance(dialect, Learning) else None
