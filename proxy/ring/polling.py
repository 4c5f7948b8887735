"""What the relay waits with: epoll, edge-triggered and registered once, or `selectors` where there is no epoll.

The relay remembers per half what can be done, so that with epoll no call is needed to change interest. Selectors
report again and again what was not done yet (level-triggered): `SelectorPoll` therefore asks the relay before every
wait what each half is waiting for, and leaves out the rest. Sockets that are no half's (a handshake, a listener)
rest for a moment after each report, so that one that nobody serves yet does not keep the loop busy.

`BARNABAS_POLL=selectors` chooses them anywhere, along with the other means of systems that are not Linux (`bells`).
"""

from __future__ import annotations

import os
import select
import selectors
import time
from collections.abc import Callable
from typing import Protocol

PORTABLE = os.environ.get("BARNABAS_POLL") == "selectors" or not hasattr(select, "epoll")

# The values of epoll, which the relay works with on every system.
READ, WRITE, ERROR, HANGUP, READ_HANGUP, EDGE = 0x1, 0x4, 0x8, 0x10, 0x2000, 1 << 31
ALL = READ | WRITE | READ_HANGUP | EDGE

LEAD = 0.0005
"""Seconds before a time that is to be kept in which the relay does not sleep."""

_REST = {READ: 0.001, WRITE: 0.02}
"""Seconds that a socket which is no half's is left out after it was reported."""

Interest = Callable[[int], int | None]
"""What the halves of a file descriptor wait for: READ and WRITE, or 0; None: it belongs to no half."""


class Poll(Protocol):
    """As `select.epoll`: masks and events are bits, times are seconds."""

    def register(self, fd: int, mask: int, /) -> None: ...
    def modify(self, fd: int, mask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]: ...


def make_poll(interest: Interest) -> Poll:
    """The one for this system."""
    return SelectorPoll(interest) if PORTABLE else select.epoll()


def rest(poll: Poll, seconds: float) -> float:
    """Wait for something to be ready, or nearly so long; what `poll` may wait after that.

    epoll counts whole milliseconds and rounds them up; `select` of the epoll itself counts microseconds. Linux lets it be
    late by a thousandth of its time, and a processor that sleeps takes a while to get up: so the wait ends `LEAD` before
    the time, and the caller, who asks again until it has come, is awake when it comes."""
    if PORTABLE or not isinstance(poll, select.epoll):
        return seconds
    if seconds > LEAD:
        select.select((poll,), (), (), (seconds - LEAD) * 0.999)
    return 0.0


class SelectorPoll:
    """Selectors behind epoll's face. Costs a look at every socket per wait."""

    def __init__(self, interest: Interest) -> None:
        self._interest = interest
        self._selector = selectors.DefaultSelector()
        self._masks: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        """What the selector is asked for, by file descriptor; not there: nothing."""
        self._resting: dict[int, dict[int, float]] = {}
        """File descriptor -> bit -> until when it rests."""

    def register(self, fd: int, mask: int) -> None:
        self._masks[fd] = mask

    def modify(self, fd: int, mask: int) -> None:
        self._masks[fd] = mask
        self._resting.pop(fd, None)

    def unregister(self, fd: int) -> None:
        self._masks.pop(fd, None)
        self._resting.pop(fd, None)
        self._ask(fd, 0)

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        now = time.monotonic()
        for fd, mask in list(self._masks.items()):
            wanted = self._interest(fd)
            if wanted is None:
                wanted = mask & (READ | WRITE)
                for bit, until in self._resting.get(fd, {}).items():
                    if wanted & bit and until > now:
                        wanted &= ~bit
                        timeout = min(timeout, until - now)
            self._ask(fd, wanted)
        found = []
        for key, ready in self._selector.select(timeout):
            event = (READ if ready & selectors.EVENT_READ else 0) | (WRITE if ready & selectors.EVENT_WRITE else 0)
            found.append((key.fd, event))
            if self._masks[key.fd] & EDGE and self._interest(key.fd) is None:
                rests = self._resting.setdefault(key.fd, {})
                now = time.monotonic()
                for bit, seconds in _REST.items():
                    if event & bit:
                        rests[bit] = now + seconds
        return found

    def _ask(self, fd: int, wanted: int) -> None:
        """Bring the selector up to date; it knows no interest in nothing."""
        before = self._asked.get(fd, 0)
        if wanted == before:
            return
        bits = (selectors.EVENT_READ if wanted & READ else 0) | (selectors.EVENT_WRITE if wanted & WRITE else 0)
        if not bits:
            self._selector.unregister(fd)
        elif before:
            self._selector.modify(fd, bits)
        else:
            self._selector.register(fd, bits)
        if bits:
            self._asked[fd] = wanted
        else:
            del self._asked[fd]
