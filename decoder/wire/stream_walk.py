"""Run a generator that asks for bytes over data that may be split anywhere."""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, TypeVar

R = TypeVar("R")


class StreamWalk(Generic[R]):
    """Runs a walk over bytes that are fed to it. The walk yields how many bytes it wants, or as a negative number how many to
    skip, for which it gets ``b""``. `result`: what it has returned; None before that."""

    def __init__(self, walk: Generator[int, bytes, R]) -> None:
        self.result: R | None = None
        self._walk = walk
        self.wanted = next(walk)
        self._got = b""

    @property
    def skipping(self) -> int:
        """How many of the next bytes may be skipped by `skip` instead of being fed."""
        return max(-self.wanted, 0)

    def skip(self, count: int) -> None:
        """Skip `count` bytes, at most `skipping`. Raises StopIteration at the end of the walk."""
        self.wanted += count
        if not self.wanted:
            self.wanted = self._walk.send(b"")

    def feed(self, data: bytes | bytearray | memoryview) -> int:
        """Where in `data` the walk has ended, or -1 if it has not. Raises what the walk raises. Feed nothing after the end."""
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
