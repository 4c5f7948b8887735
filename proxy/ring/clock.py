"""The time of what the proxy sees: the wall clock's when it began, and from then on as the monotonic clock goes.

A wall clock may be set while a request waits for its response; the time between the two is measured all the same. Where the
wall clock has gone elsewhere, this one follows it: by so little at a time that no latency shows it, or at once, if it is far
away (a machine that slept, or whose clock was first set after the start). Every process does so by itself.
"""

from __future__ import annotations

import time

SLEW = 0.005
"""A clock that follows another goes so much faster or slower."""
FAR_NS = 60 * 10**9
"""From here on it does not follow, but goes there at once."""
_LOOK_NS = 10**9


class Clock:
    """Nanoseconds since the epoch. `stepped`: by how many it went at once when it last did, 0: never."""

    def __init__(self) -> None:
        self.offset = time.time_ns() - time.monotonic_ns()
        self.stepped = 0
        self._look = time.monotonic_ns() + _LOOK_NS

    def now_ns(self) -> int:
        now = time.monotonic_ns()
        if now >= self._look:
            self.follow(now)
        return now + self.offset

    def follow(self, now: int) -> None:
        """Go where the wall clock is, or a little towards it. `now`: of the monotonic clock."""
        away = time.time_ns() - now - self.offset
        most = int((now - self._look + _LOOK_NS) * SLEW)
        self._look = now + _LOOK_NS
        if abs(away) >= FAR_NS:
            self.offset += away
            self.stepped += away
        else:
            self.offset += max(min(away, most), -most)


CLOCK = Clock()
now_ns = CLOCK.now_ns
