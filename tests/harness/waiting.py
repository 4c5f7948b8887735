"""Waiting for conditions, with one generous bound for all tests.

No test passes or fails by the speed of the machine: it waits until something is true. Only a test that would wait forever
runs into ``PATIENCE``, and its failure shows what happened instead.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

PATIENCE = min(float(os.environ.setdefault("BARNABAS_TEST_PATIENCE", "180")), 300.0)  # the control API waits no longer
"""Seconds that anything may take on a busy machine. The Java, Go and JavaScript programs of the tests read the variable."""

PATIENCE_MS = int(PATIENCE * 1000)
"""The same in milliseconds, as settings of Kafka clients want it."""

_PAUSE = 0.02


class NeverHappened(AssertionError):
    """A condition did not become true within the bound."""


def attempts(seconds: float = PATIENCE, pause: float = _PAUSE) -> Iterator[float]:
    """Yield the seconds that are left, with a pause between, until none are; at least twice."""
    end = time.monotonic() + seconds
    yield seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        yield max(end - time.monotonic(), 0.0)


def until(
    condition: Callable[[], T], saw: str | Callable[[], object] = "", seconds: float = PATIENCE, pause: float = _PAUSE
) -> T:
    """Return the first true result of ``condition()``.

    ``saw`` is what the failure says: a text, or a function called then (the events of a proxy, the last exchanges of a
    recording). Raises NeverHappened.
    """
    for _ in attempts(seconds, pause):
        if result := condition():
            return result
    raise NeverHappened(f"not within {seconds:g} s: {saw() if callable(saw) else saw or condition}")


async def until_async(condition: Callable[[], T], saw: str | Callable[[], object] = "", seconds: float = PATIENCE) -> T:
    """``until`` for coroutines: the event loop runs meanwhile."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            raise NeverHappened(f"not within {seconds:g} s: {saw() if callable(saw) else saw or condition}")
        await asyncio.sleep(_PAUSE)
    return result
