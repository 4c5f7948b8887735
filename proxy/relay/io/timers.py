"""What the relay does later: a heap of times and functions, looked at with every turn of the loop."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count

Call = Callable[[], None]


class Timers:
    """Functions with the time (monotonic seconds) to call them at. A function that was called is forgotten."""

    __slots__ = ("_number", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Call]] = []
        """What is to be called, the first entry first: (when, number, function). The relay's loop looks at it directly."""
        self._number = count()

    def after(self, ns: int, call: Call) -> None:
        """Call it after so many nanoseconds."""
        heapq.heappush(self.heap, (time.monotonic() + ns / 1e9, next(self._number), call))

    def run(self, now: float) -> None:
        """Call what is due."""
        while self.heap and self.heap[0][0] <= now:
            heapq.heappop(self.heap)[2]()
