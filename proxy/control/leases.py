"""Leases of intercepts: an intercept ends when its owner no longer renews it.

A screen that is killed cannot remove its intercepts, and clients would wait for a decision that nobody makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Leases:
    """`end(number)` is called, as a task, when the lease of an intercept has run out. For one event loop."""

    def __init__(self, end: Callable[[int], Awaitable[object]]) -> None:
        self._end = end
        self._timers: dict[int, tuple[float, asyncio.TimerHandle]] = {}
        self._ending: set[asyncio.Future[object]] = set()

    def begin(self, number: int, seconds: float) -> None:
        """End the intercept after so many seconds without `renew`."""
        self.forget(number)
        self._timers[number] = seconds, asyncio.get_running_loop().call_later(seconds, self._over, number)

    def renew(self, number: int) -> float | None:
        """Start its seconds again; how many there are, None if it has no lease."""
        found = self._timers.get(number)
        if found is None:
            return None
        self.begin(number, found[0])
        return found[0]

    def forget(self, number: int) -> None:
        """Drop the lease of an intercept that was removed."""
        found = self._timers.pop(number, None)
        if found is not None:
            found[1].cancel()

    def _over(self, number: int) -> None:
        del self._timers[number]
        task = asyncio.ensure_future(self._end(number))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
