"""What the relay does later: a heap of times and functions, looked at with every turn of the loop."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count

Call = Callable[[], None]


class Timers:
    """Functions with the time (monotonic seconds) to call them at. A function that was called is forgotten."""

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Call]] = []
        self._number = count()

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def next(self) -> float:
        """When the first is due; infinity without any."""
        return self._heap[0][0] if self._heap else float("inf")

    def after(self, ns: int, call: Call) -> None:
        """Call it after so many nanoseconds."""
        heapq.heappush(self._heap, (time.monotonic() + ns / 1e9, next(self._number), call))

    def run(self, now: float) -> None:
        """Call what is due."""
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2]()
