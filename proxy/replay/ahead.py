"""The steps that are read ahead of the replay, bounded by bytes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from ...captures.replay.script import Do, Step


def _cost(step: Step) -> int:
    """About how many bytes a step that is read ahead takes."""
    if step.call is None:
        return 100
    exchange = step.call.exchange
    return 1000 + len(exchange.request or b"") if step.do is Do.SEND else 100 + len(exchange.response or b"")


class Ahead:
    """`steps` are those that were read and not taken; `exhausted` says that there are no more to read."""

    def __init__(self, source: Iterator[Step]) -> None:
        self.steps: deque[Step] = deque()
        self.exhausted = False
        self._source = source
        self._bytes = 0

    def fill(self, most: int, until_ns: int | None = None) -> None:
        """Read until so many bytes are ahead, or until that time (of the monotonic clock)."""
        while not self.exhausted and self._bytes < most:
            step = next(self._source, None)
            if step is None:
                self.exhausted = True
                return
            self.steps.append(step)
            self._bytes += _cost(step)
            if until_ns is not None and time.monotonic_ns() >= until_ns:
                return

    def take(self) -> Step:
        """The next step; it is not ahead any more."""
        step = self.steps.popleft()
        self._bytes -= _cost(step)
        return step
