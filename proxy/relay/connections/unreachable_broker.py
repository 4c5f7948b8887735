"""A client whose broker cannot be reached: its first requests are read before it is turned away.

The first requests, as far as they come at once or within `LINGER_SECONDS`, go to the observers like any others, so
that they are recorded, and an event names them. Nothing is answered. Then the client's connection is closed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ....decoder import DecodeError, peek_request
from ....decoder.schema import facts
from ....decoder.wire.frame import Framer, FramingError
from ...events import ClientTried
from ...ring.clock import now_ns
from ...ring.ring import NONE, Kind

if TYPE_CHECKING:
    from ..interfaces import ConnectionInterface

LINGER_SECONDS = 0.5
LIMIT = 64 * 1024
"""Most bytes that are read."""
SHOWN = 5
"""Most requests that are named in the event."""
_BUFFER = memoryview(bytearray(LIMIT))


class UnreachableBroker:
    """Reads from a client until it has sent a whole request, or its time is over."""

    def __init__(self, connection: ConnectionInterface) -> None:
        self._connection = connection
        self._framer = Framer()
        self._read = 0
        self._requests: list[str] = []
        self.until = time.monotonic() + LINGER_SECONDS
        connection.relay.attend(connection.client.fileno(), self._readable)
        connection.relay.lingering.append(self)
        self._readable()

    @property
    def over(self) -> bool:
        """Whether the client is gone."""
        return self._connection.closed

    def _readable(self) -> None:
        connection = self._connection
        over = connection.closed
        while not over:
            try:
                count = connection.client.recv_into(_BUFFER)
            except BlockingIOError:
                break
            except OSError:
                count = 0
            if not count:
                over = True
                break
            data = bytes(_BUFFER[:count])
            # The place of the first frame is only asked for after a loss; what is cut here starts with the stream.
            connection.relay.writer.write(
                Kind.DATA, connection.number, 0, now_ns(), data, NONE if self._read else 0, self._read
            )
            self._read += count
            connection.request.position = self._read
            over = self._take(data) or self._read >= LIMIT
        if over or self._requests:
            self.end()

    def _take(self, data: bytes) -> bool:
        """Name the requests that are complete. Whether nothing more is to be expected."""
        try:
            for frame, _ in self._framer.feed(data):
                if len(self._requests) < SHOWN:
                    self._requests.append(_named(frame))
        except FramingError as error:
            self._requests.append(str(error))
            return True
        return False

    def end(self) -> None:
        """Turn the client away."""
        connection = self._connection
        if connection.closed:
            return
        if self._requests:
            connection.relay.emit(
                ClientTried(connection.number, connection.peer, connection.broker, tuple(self._requests))
            )
        connection.close("fin")


def _named(frame: bytes) -> str:
    try:
        key, version, _ = peek_request(frame)
    except DecodeError:
        return "a frame that is not a request"
    return f"{facts.api_name(key)} v{version}"
