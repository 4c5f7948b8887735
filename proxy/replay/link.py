"""One TCP connection of a replay: what waits to be written, what waits for an answer. Non-blocking."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Iterator
from typing import Any

from ...captures.replay.script import Call
from ...decoder.wire.frame import MAX_FRAME

_READ = 1 << 18


class TargetConnection:
    """A connection to one broker. It takes requests before it is there; `take` gives it its socket."""

    __slots__ = ("_in", "ended", "ending", "failed", "fd", "node", "out", "owner", "pending", "sock", "tls", "wants_write")

    def __init__(self, node: Any, owner: Any) -> None:
        self.node, self.owner = node, owner
        self.sock: socket.socket | None = None
        self.fd = -1
        self.tls = False
        self.out = bytearray()
        # (correlation id, call, version asked at), in the order of asking, which is the order of answers.
        self.pending: deque[tuple[int, Call, int]] = deque()
        self.wants_write = False
        self.ending = False
        """to be closed when everything is written"""
        self.ended = False
        self.failed = ""
        self._in = bytearray()

    def take(self, sock: socket.socket) -> None:
        """It is connected."""
        sock.setblocking(False)
        self.sock, self.fd, self.tls = sock, sock.fileno(), isinstance(sock, ssl.SSLSocket)

    def flush(self) -> bool:
        """Write what can be; whether everything is written. OSError when the connection is gone."""
        if self.sock is None:
            return True
        while self.out:
            try:
                sent = self.sock.send(self.out)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return False
            del self.out[:sent]
        return True

    def frames(self) -> Iterator[bytes]:
        """The frames that have come, until nothing more is there. EOFError when the peer ended, OSError when it broke."""
        assert self.sock is not None
        buffer = self._in
        while True:
            try:
                data = self.sock.recv(_READ)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not data:
                raise EOFError
            buffer += data
            at, size = 0, len(buffer)
            while size - at >= 4:
                length = int.from_bytes(buffer[at : at + 4], "big", signed=True)
                if not 0 <= length <= MAX_FRAME:
                    raise OSError(f"what came is no frame (size {length})")
                end = at + 4 + length
                if end > size:
                    break
                yield bytes(memoryview(buffer)[at + 4 : end])
                at = end
            if at:
                del buffer[:at]
            if len(data) < _READ and not self.tls:
                return

    def close(self) -> None:
        self.ended = True
        if self.sock is not None:
            self.sock.close()
            self.sock = None
            self.fd = -1
