"""Pipes for the rest of large frames (`splicing`)."""

from __future__ import annotations

import fcntl
import os

PIPE_BYTES = 1 << 20
MOST_PIPES = 32
"""The kernel lets a user without privileges have 64 MiB of pipes."""
Pipe = tuple[int, int]


class Pipes:
    """Pipes that halves borrow while bytes are in them. `snaplen`: bytes of a frame that are wanted; 0: all."""

    def __init__(self, snaplen: int) -> None:
        self.wanted = snaplen + 4 if snaplen and hasattr(os, "splice") else 0
        """How much of a frame, its size included, has to pass before the rest may go unseen; 0: nothing may."""
        self._free: list[Pipe] = []
        self._count = 0

    def take(self) -> Pipe | None:
        """An empty pipe: its end to read, its end to write. None if there are enough."""
        if self._free:
            return self._free.pop()
        if self._count >= MOST_PIPES:
            return None
        try:
            pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        self._count += 1
        try:
            fcntl.fcntl(pipe[1], getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)
        except OSError:
            pass  # the usual size works as well
        return pipe

    def give(self, pipe: Pipe) -> None:
        """Give back an empty one."""
        self._free.append(pipe)

    def discard(self, pipe: Pipe) -> None:
        """Give up one with what is in it."""
        self._count -= 1
        for fd in pipe:
            os.close(fd)

    def refuse(self) -> None:
        """This kernel does not splice these sockets: never again."""
        self.wanted = 0
