"""Signals and the end of the terminal, for commands that run until they are stopped."""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: in order."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def has_terminal() -> bool:
    """Whether there is an open terminal to stop this from."""
    try:
        # While it is being closed, writing to it fails already and /dev/tty still opens.
        if any(_is_terminal(stream.fileno()) and hung_up(stream.fileno()) for stream in (sys.stdout, sys.stderr)):
            return False
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def hung_up(fd: int) -> bool:
    """Whether the other side of a terminal has gone."""
    poller = select.poll()
    poller.register(fd, 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poller.poll(0))


def discard_output() -> None:
    """Discard output to a terminal that has closed, as writing would fail. Files and pipes are kept."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if _is_terminal(stream.fileno()):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _is_terminal(fd: int) -> bool:
    """Whether it is a terminal, also a closed one, for which `isatty` is false."""
    return stat.S_ISCHR(os.fstat(fd).st_mode)
