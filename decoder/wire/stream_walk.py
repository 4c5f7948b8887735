"""A generator that reads a message in pieces: it asks for bytes, and they may come cut anywhere."""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, TypeVar

R = TypeVar("R")


class StreamWalk(Generic[R]):
    """Runs a walk over bytes that are fed to it. The walk yields how many bytes it wants, or, as a negative number, how many are
    passed over (it gets ``b""`` for those). `result`: what it has returned, None before that."""

    def __init__(self, walk: Generator[int, bytes, R]) -> None:
        self.result: R | None = None
        self._walk = walk
        self.wanted = next(walk)
        self._got = b""

    @property
    def skipping(self) -> int:
        """How many of the next bytes need not be fed, but may be given to `skip`."""
        return max(-self.wanted, 0)

    def skip(self, count: int) -> None:
        """`count` bytes pass unseen, at most `skipping`. StopIteration: that was the end of the walk."""
        self.wanted += count
        if not self.wanted:
            self.wanted = self._walk.send(b"")

    def feed(self, data: bytes | bytearray | memoryview) -> int:
        """The place in `data` where the walk has ended, -1 if not yet. Nothing may be fed after that. Raises what the walk raises."""
        at = 0
        try:
            while at < len(data):
                if self.wanted < 0:
                    passed = min(-self.wanted, len(data) - at)
                    at += passed
                    self.skip(passed)
                    continue
                part = bytes(data[at : at + self.wanted - len(self._got)])
                at += len(part)
                self._got += part
                if len(self._got) == self.wanted:
                    got, self._got = self._got, b""
                    self.wanted = self._walk.send(got)
        except StopIteration as end:
            self.result = end.value
            return at
        return -1
