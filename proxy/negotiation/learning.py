"""What a broker offers, asked before a client's first request goes on.

It is asked on a connection of the proxy's own where that is possible (`inquiry`), so that a broker without ApiVersions spoils
no client's; else on the client's, over its TLS and behind its login. If the broker does not answer there, or closes, the client
loses its connection; it comes again, and by then it is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...decoder import releases
from ...plugins.versions.dialect import Asked, Dialect, Step
from ..clock import now_ns
from ..interception import fault_executor
from ..interception.frame_editor import API_VERSIONS
from .api_versions_probe import ANSWERED_WITHIN, CLOSES, IS_SILENT, possible

if TYPE_CHECKING:
    from ..relay.connection import Connection
    from .version_negotiation import Spoken

ABOUT = Asked(API_VERSIONS, 0, 0)


class Learning:
    """Stands in for the dialect of a connection until it is known what its broker offers."""

    def __init__(self, spoken: Spoken, connection: Connection) -> None:
        self._spoken = spoken
        self._connection = connection
        self._then: Callable[[int], None] | None = None
        self._aside = False

    def wants(self, api_key: int, api_version: int) -> bool:
        return True

    def request(self, frame: bytes) -> Step:
        raise AssertionError("the first request waits")

    def response(self, asked: Asked, frame: bytes) -> bytes:
        raise AssertionError("no request has gone on")

    def begin(self, then: Callable[[int], None]) -> bool:
        """Let the client's requests wait until the broker has answered; `then` goes on with the first. Whether the broker is
        to be asked on this connection."""
        self._then = then
        connection = self._connection
        half = connection.request
        half.paused = True
        half.waits += 1
        if possible(connection.relay):
            self._aside = True
            self._spoken.inquire(connection, self._go_on)
            return False
        connection.relay.timers.after(ANSWERED_WITHIN, self._overdue)
        return True

    def response_before(self, asked: Asked, place: int, frame: bytes) -> None:
        self._spoken.heard(self._connection.broker, frame, 0)
        self._go_on()

    def _go_on(self) -> None:
        """It is known, or cannot be known."""
        connection = self._connection
        then, self._then = self._then, None
        if then is None or connection.closed:
            return
        if not self._spoken.knows(connection.broker):
            connection.close("fin")
            return
        self._spoken.renew(connection)
        half, now = connection.request, now_ns()
        half.waits -= 1
        then(now)
        fault_executor.go_on(half, now)

    def _overdue(self) -> None:
        if self._then is None or self._connection.closed:
            return
        self._then = None
        self._spoken.taken_for(self._connection.broker, IS_SILENT)
        self._connection.close("fin")

    def ended(self) -> None:
        """The broker has closed the connection."""
        if self._then is None or self._aside:
            return
        self._then = None
        self._spoken.hung_up(self._connection.broker, CLOSES)
        self._connection.close("fin")


def offers_of(release: str) -> dict[int, tuple[int, int]]:
    """What brokers of a release offer, or read, if they have no ApiVersions."""
    return dict(releases.release(release).offered)


def learning(dialect: Dialect | None) -> Learning | None:
    """The dialect, if it is one that has not learned yet."""
    return dialect if isinstance(dialect, Learning) else None
