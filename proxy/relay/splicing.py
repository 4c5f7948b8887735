"""The rest of a large frame from socket to socket inside the kernel, where a snap length says that nobody wants it.

The beginning of the frame (`snaplen`) goes through the ring as everything else. What follows goes through a pipe
(`splice(2)`), unseen, and the ring's readers are told how much it was (`Kind.SKIPPED`). Bytes that the sink does not take
stay in the pipe; a few of them are taken out of it into `pending`, so that everybody who looks there sees a half that
waits. Where `splice` is missing or refuses, the half copies as before.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from typing import TYPE_CHECKING

from ..ring.ring import Kind

if TYPE_CHECKING:
    from .half_connection import HalfConnection

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

_SIZE = struct.Struct(">I").unpack_from

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


class Splicer:
    """What a half-connection knows of the bytes that it moves without seeing them."""

    __slots__ = ("_half", "_pipe", "_pipes", "kept", "piped", "was_large")

    def __init__(self, half: HalfConnection, pipes: Pipes) -> None:
        self._half = half
        self._pipes = pipes
        self._pipe: Pipe | None = None
        self.kept = 0
        """At least so many bytes of the current frame have gone through the ring."""
        self.was_large = False
        """The last frame that was large was spliced, and nothing but large ones has come since."""
        self.piped = 0
        """Bytes in the pipe; some of those in front of them are in `pending` then."""

    def forget(self) -> None:
        """Frames come one by one again."""
        self.kept, self.was_large = 0, False

    def note_kept(self, data: memoryview, base: int, count: int, first: int) -> None:
        """A chunk has passed through the ring: how much of the frame at its end has. `first`: as published."""
        if self._half.left < LEAST:
            self.forget()
            return
        end = base + count
        if first < 0 or first >= count:
            self.kept += count
            return
        at = base + first
        while end - at >= 4:
            after = at + 4 + _SIZE(data, at)[0]
            if after >= end:
                break
            at = after
        self.kept = end - at

    def unseen(self, filtering: bool) -> int:
        """How many of the next bytes nobody wants. `filtering`: the frame's last byte is for `filter_frames`."""
        half = self._half
        wanted = self._pipes.wanted
        if not wanted or self.kept < wanted or half.split_head or half.waits_for_more or half.opaque:
            return 0
        if type(half.source) is not socket.socket or type(half.sink) is not socket.socket:
            return 0
        rest = half.left - filtering
        return rest if half.tail is None else min(half.left - 1, half.tail.skipping)

    def splice(self, most: int, now: int) -> int | None:
        """Move up to `most` bytes unseen: how many came (0: none for now, or no more ever). None: it cannot be done,
        and nothing was."""
        half = self._half
        connection = half.connection
        pipe = self._pipe or self._pipes.take()
        if pipe is None:
            return None
        self._pipe = pipe
        try:
            count = os.splice(half.source.fileno(), pipe[1], min(most, PIPE_BYTES), flags=_NONBLOCK)
        except BlockingIOError:
            half.readable = False
            self._free()
            return 0
        except OSError as error:
            self._free()
            if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EPERM):
                self._pipes.refuse()
                return None
            half.readable = False
            connection.abort()
            return 0
        if not count:
            self._free()
            half.readable = False
            half.ended(now)
            return 0
        half.left -= count
        if half.tail is not None:
            half.tail.skip(count)
        connection.relay.writer.take(_SKIPPED, connection.number, half.direction, now, 0, count, half.position)
        half.position += count
        self.piped = count
        self.was_large = True
        self.drain()
        return count

    def drain(self) -> None:
        """Send what is in the pipe; what the sink does not take waits."""
        pipe, half = self._pipe, self._half
        if pipe is None:
            return
        try:
            while self.piped and not half.pending:
                if type(half.sink) is not socket.socket:
                    self.empty()
                    return
                self.piped -= os.splice(pipe[0], half.sink.fileno(), self.piped, flags=_NONBLOCK)
        except BlockingIOError:
            self._take_out(pipe, KEPT_OUT)
            return
        except OSError:
            self.drop()
            half.connection.sink_failed(half)
            return
        if not self.piped:
            self._free()

    def empty(self) -> None:
        """Take everything out of the pipe into `pending`: something is to go behind it."""
        pipe = self._pipe
        if pipe is not None:
            while self.piped:
                self._take_out(pipe, self.piped)
            self._free()

    def _take_out(self, pipe: Pipe, most: int) -> None:
        data = os.read(pipe[0], min(most, self.piped))
        self.piped -= len(data)
        self._half.pending += data

    def _free(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self._pipes.give(pipe)

    def drop(self) -> None:
        """The connection ends: what is in the pipe goes nowhere."""
        pipe, self._pipe, piped, self.piped = self._pipe, None, self.piped, 0
        if pipe is not None:
            if piped:
                self._pipes.discard(pipe)
            else:
                self._pipes.give(pipe)
