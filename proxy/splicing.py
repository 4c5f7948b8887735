"""The rest of a large frame from socket to socket inside the kernel, where a snap length says that nobody wants it.

The beginning of the frame (`snaplen`) goes through the ring as everything else. What follows goes through a pipe
(`splice(2)`), unseen, and the ring's readers are told how much it was (`Kind.SKIPPED`). Bytes that the sink does not take
stay in the pipe; a few of them are taken out of it into `pending`, so that everybody who looks there sees a lane that
waits. Where `splice` is missing or refuses, the lane copies as before.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket

from .ring.ring import Kind
from .sift import SIZE, Sifting

LEAST = 64 * 1024
"""Fewer bytes cost less when they are copied."""
BEGINNING = 16 * 1024
"""So much is received where another large frame is expected to begin: what comes behind it is to be spliced."""
PIPE_BYTES = 1 << 20
MOST_PIPES = 32
"""The kernel lets a user without privileges have 64 MiB of pipes."""
KEPT_OUT = 4096
"""Bytes of a stalled pipe that wait in `pending`."""
_SKIPPED = int(Kind.SKIPPED)
_NONBLOCK = getattr(os, "SPLICE_F_NONBLOCK", 2) | getattr(os, "SPLICE_F_MOVE", 1)

Pipe = tuple[int, int]


class Pipes:
    """Pipes that lanes borrow while bytes are in them. `snaplen`: bytes of a frame that are wanted; 0: all."""

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


class Splicing(Sifting):
    """What a lane knows of the bytes that it moves without seeing them."""

    __slots__ = ()

    def note_kept(self, data: memoryview, base: int, count: int, first: int) -> None:
        """A chunk has passed through the ring: how much of the frame at its end has. `first`: as published."""
        if self.left < LEAST:
            self.kept = 0
            self.was_large = False
            return
        end = base + count
        if first < 0 or first >= count:
            self.kept += count
            return
        at = base + first
        while end - at >= 4:
            after = at + 4 + SIZE(data, at)[0]
            if after >= end:
                break
            at = after
        self.kept = end - at

    def unseen(self, sifting: bool) -> int:
        """How many of the next bytes nobody wants. `sifting`: the frame's last byte is for `sift`."""
        wanted = self.connection.relay.pipes.wanted
        if not wanted or self.kept < wanted or self._part or self._carry or self.opaque:
            return 0
        if type(self.source) is not socket.socket or type(self.sink) is not socket.socket:
            return 0
        rest = self.left - sifting
        return rest if self.tail is None else min(self.left - 1, self.tail.skipping)

    def splice(self, most: int, now: int) -> int | None:
        """Move up to `most` bytes unseen: how many came (0: none for now, or no more ever). None: it cannot be done,
        and nothing was."""
        connection = self.connection
        pipes = connection.relay.pipes
        pipe = self.pipe or pipes.take()
        if pipe is None:
            return None
        self.pipe = pipe
        try:
            count = os.splice(self.source.fileno(), pipe[1], min(most, PIPE_BYTES), flags=_NONBLOCK)
        except BlockingIOError:
            self.readable = False
            self._free_pipe()
            return 0
        except OSError as error:
            self._free_pipe()
            if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EPERM):
                pipes.refuse()
                return None
            self.readable = False
            connection.abort()
            return 0
        if not count:
            self._free_pipe()
            self.readable = False
            self.ended(now)
            return 0
        self.left -= count
        if self.tail is not None:
            self.tail.skip(count)
        connection.relay.writer.take(_SKIPPED, connection.number, self.direction, now, 0, count, self.position)
        self.position += count
        self.piped = count
        self.was_large = True
        self.drain_pipe()
        return count

    def drain_pipe(self) -> None:
        """Send what is in the pipe; what the sink does not take waits."""
        pipe = self.pipe
        if pipe is None:
            return
        try:
            while self.piped and not self.pending:
                if type(self.sink) is not socket.socket:
                    self.empty_pipe()
                    return
                self.piped -= os.splice(pipe[0], self.sink.fileno(), self.piped, flags=_NONBLOCK)
        except BlockingIOError:
            self._wait_out(pipe, KEPT_OUT)
            return
        except OSError:
            self.drop_pipe()
            self.connection.sink_failed(self)
            return
        if not self.piped:
            self._free_pipe()

    def empty_pipe(self) -> None:
        """Take everything out of the pipe into `pending`: something is to go behind it."""
        pipe = self.pipe
        if pipe is not None:
            while self.piped:
                self._wait_out(pipe, self.piped)
            self._free_pipe()

    def _wait_out(self, pipe: Pipe, most: int) -> None:
        data = os.read(pipe[0], min(most, self.piped))
        self.piped -= len(data)
        self.pending += data

    def _free_pipe(self) -> None:
        pipe, self.pipe = self.pipe, None
        if pipe is not None:
            self.connection.relay.pipes.give(pipe)

    def drop_pipe(self) -> None:
        """The connection ends: what is in the pipe goes nowhere."""
        pipe, self.pipe, piped, self.piped = self.pipe, None, self.piped, 0
        if pipe is not None:
            pipes = self.connection.relay.pipes
            if piped:
                pipes.discard(pipe)
            else:
                pipes.give(pipe)
