"""Where a half's bytes go when a rule has made its way narrow or blind: sockets to the half, but for `send`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SLICE = 0.02
"""Seconds: bytes go in portions of so much time."""


class BlackholeSocket:
    """Takes everything and sends nothing. The socket below stays open; `ended` is called when there would be an end."""

    def __init__(self, sock: Any, ended: Callable[[], None]) -> None:
        self._sock = sock
        self._ended = ended

    def send(self, data: Any) -> int:
        return len(data)

    def shutdown(self, how: int) -> None:
        self._ended()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class ThrottledSocket:
    """Sends at most `rate` bytes a second. `later`: called with the seconds after which more may be sent."""

    def __init__(self, sock: Any, rate: int, later: Callable[[float], None]) -> None:
        self._sock = sock
        self.rate = rate
        self._later = later
        self._free_at = time.monotonic()

    def send(self, data: Any) -> int:
        """As of a socket that takes no more for now."""
        now = time.monotonic()
        if now < self._free_at:
            self._later(self._free_at - now)
            raise BlockingIOError
        portion = max(int(self.rate * SLICE), 1)
        sent: int = self._sock.send(data[:portion])
        self._free_at = max(self._free_at, now - SLICE) + sent / self.rate
        if sent < len(data):
            self._later(self._free_at - now)
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)
