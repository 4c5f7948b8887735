"""Signals, and the end of the terminal, the pipe or the disk that a command writes to."""

from __future__ import annotations

import io
import os
import select
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO, cast

from .failure import OutputError

READER_GONE = 128 + signal.SIGPIPE
"""Exit status when the reader of a pipe has gone, as shells report it of other tools: 141."""


class _StandardStream(io.FileIO):
    """Standard output or standard error. Its failures are no OSErrors, so that nothing takes them for those of a capture or a connection."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # Python flushes at its end, and would fail again
            raise SystemExit(READER_GONE) from None
        except OSError as error:
            if self.fileno() == 2:
                return len(data)  # there is no place left to report it
            raise OutputError(f"standard output cannot be written: {error.strerror}") from None


def guard_output() -> None:
    """From now on, a command ends with status 141 when the reader of its output has gone, and OutputError is raised when the disk is full.
    Terminals stay as they are."""
    sys.stdout, sys.stderr = _guarded(sys.stdout, 1), _guarded(sys.stderr, 2)


def _guarded(stream: Any, fd: int) -> TextIO:
    if stream is None:  # closed by the shell: >&-
        return open(os.devnull, "w", encoding="utf-8")
    if stream.isatty() or stream not in (sys.__stdout__, sys.__stderr__):
        return cast(TextIO, stream)
    stream.flush()
    lines = stream.line_buffering or stream.write_through
    binary = io.BufferedWriter(_StandardStream(fd, "w", closefd=False))
    return io.TextIOWrapper(binary, stream.encoding, stream.errors, "\n", line_buffering=lines)


def discard_rest() -> None:
    """Discard what standard output could not take, before Python flushes it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


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
