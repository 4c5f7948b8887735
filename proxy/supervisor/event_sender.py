"""How a relay sends events to its supervisor: no more than people can use, and never at the cost of the traffic."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from ..events import Event, Suppressed, encode
from .relay_readiness import ACCEPTING

EVENTS_PER_SECOND = 200


class EventSender:
    """Sends events. Calls `gone` when the supervisor is gone."""

    def __init__(self, control: socket.socket, gone: Callable[[], None]) -> None:
        self._control = control
        self._gone = gone
        self._second = 0
        self._in_second = 0
        self._suppressed = 0
        self._said: set[Event] = set()

    def tell(self, event: Event) -> None:
        """Send an event; too many in one second are counted instead. Never waits."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
            if self._suppressed:
                count, self._suppressed = self._suppressed, 0
                self.tell(Suppressed(count))
        self._in_second += 1
        if self._in_second > EVENTS_PER_SECOND:
            self._suppressed += 1
            return
        try:
            self._control.send(encode(event), socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._suppressed += 1
        except OSError:
            self._gone()

    def begin(self) -> None:
        """Say that this relay accepts clients from now on."""
        try:
            self._control.send(ACCEPTING)
        except OSError:
            self._gone()

    def is_new(self, event: Event) -> bool:
        """Whether this is the first call with this event; for events that are the same for every connection."""
        if event in self._said:
            return False
        self._said.add(event)
        return True
