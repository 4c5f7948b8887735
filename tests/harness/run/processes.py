"""What processes of a test use and leave behind."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from ..waiting import NeverHappened

_SAMPLE_SECONDS = 2.0


def listens(port: int) -> bool:
    """Whether somebody on this machine takes connections there."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def comes_to_rest(ticks: Callable[[], int], most: int = 4, samples: int = 30) -> None:
    """Return once processes use no more than ``most`` ticks (10 ms of CPU each) in two seconds.

    ``ticks`` gives what they have used so far. On a busy machine their start takes its time; processes that never rest
    raise NeverHappened.
    """
    used = []
    for _ in range(samples):
        before = ticks()
        time.sleep(_SAMPLE_SECONDS)
        used.append(ticks() - before)
        if used[-1] <= most:
            return
    raise NeverHappened(f"ticks used in two seconds each: {used}")
