"""A process's link to its supervisor: the control socket, the settings that come as its first packet, and the events it sends: no more
than people can use, and never at the cost of the traffic."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ... import diagnostics
from ..events import Event, InternalError, Suppressed
from . import messages
from .serialization import from_json

S = TypeVar("S")
_log = logging.getLogger(__name__)

PACKET = 1 << 20
"""Most bytes of one packet between the supervisor and a process."""


def receive_settings(fd: int, kind: type[S]) -> tuple[socket.socket, S]:
    """The control socket, and the settings from its first packet. The process ignores SIGINT and SIGTERM from now on, and logs as its
    parent does."""
    # Ctrl-C and `kill` may reach the whole group; when to stop is the supervisor's decision.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    diagnostics.configure_child()
    _log.info("process %s begins", Path(sys.argv[0]).stem)
    control = socket.socket(fileno=fd)
    packet = control.recv(PACKET)
    if not packet:
        raise SystemExit(0)
    return control, from_json(kind, packet)


class Parent:
    """The process that started this one.

    A fork of the fork server is the fork server's child and outlives it: only the end of the control socket shows that its proxy is gone.
    """

    forked = False
    """Whether this process is such a fork."""

    def __init__(self) -> None:
        self._pid = os.getppid()

    @property
    def gone(self) -> bool:
        return not Parent.forked and os.getppid() != self._pid


EVENTS_PER_SECOND = 200


class EventSender:
    """Sends events. Calls `gone` when the supervisor is gone."""

    def __init__(self, control: socket.socket, gone: Callable[[], None]) -> None:
        self._control = control
        self._gone = gone
        self._second = 0
        self._in_second = 0
        self._suppressed = 0
        self._sent: set[Event] = set()
        diagnostics.listen(lambda error: self.emit(InternalError(error.what, error.error, error.count)))

    def emit(self, event: Event) -> None:
        """Send an event; too many in one second are counted instead. Never waits."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
            if self._suppressed:
                count, self._suppressed = self._suppressed, 0
                self.emit(Suppressed(count))
        self._in_second += 1
        if self._in_second > EVENTS_PER_SECOND:
            self._suppressed += 1
            return
        try:
            self._control.send(messages.encode(event), socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._suppressed += 1
        except OSError:
            self._gone()

    def begin(self) -> None:
        """Report that this relay accepts clients from now on."""
        try:
            self._control.send(messages.encode(messages.Accepting()))
        except OSError:
            self._gone()

    def is_new(self, event: Event) -> bool:
        """Whether this is the first call with this event; for events that are the same for every connection."""
        if event in self._sent:
            return False
        self._sent.add(event)
        return True
