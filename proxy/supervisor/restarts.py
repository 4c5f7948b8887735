"""When a process of the proxy that has ended is restarted.

The first time at once, then after a delay that doubles from 0.5 to 30 seconds while the process keeps ending. A process that ran for a
minute starts over with no delay. Readers of the ring and the control server are restarted for as long as the proxy runs. A relay that
ends more than `MOST` times in a minute is given up; a proxy without any relay ends with an error, so that its own supervisor can
restart it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

MOST = 5
"""A relay is restarted at most so often ..."""
WITHIN_SECONDS = 60.0
"""... in this time; ends that are further apart are not counted together."""
FIRST_SECONDS, LONGEST_SECONDS = 0.5, 30.0


class Restarts:
    """The ends of each process, by name."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: dict[str, deque[float]] = {}
        self._in_a_row: dict[str, int] = {}

    def ended(self, name: str) -> float:
        """A process has ended. Return how long to wait before it is restarted (seconds)."""
        now = self._clock()
        ends = self._ends.setdefault(name, deque(maxlen=MOST + 1))
        lasted = not ends or now - ends[-1] > WITHIN_SECONDS
        ends.append(now)
        count = self._in_a_row[name] = 0 if lasted else self._in_a_row[name] + 1
        return min(FIRST_SECONDS * 2.0 ** min(count - 1, 16), LONGEST_SECONDS) if count else 0.0

    def too_often(self, name: str) -> bool:
        """Whether it has ended more than `MOST` times in the last minute."""
        ends = self._ends.get(name)
        return ends is not None and len(ends) > MOST and self._clock() - ends[0] <= WITHIN_SECONDS
