"""Moves the part of a large frame beyond the snap length from socket to socket inside the kernel.

The beginning of the frame (`snaplen`) goes through the ring as everything else. What follows goes through a pipe
(`splice(2)`), unseen, and the ring's readers get its size (`Kind.SKIPPED`). Bytes that the sink does not take
stay in the pipe; a few of them are taken out of it into `pending`, so that everybody who looks there sees a half that
waits. Where `splice` is missing or refuses, the half copies as before.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import TYPE_CHECKING

from ...ring.ring import Kind
from .pipes import PIPE_BYTES, Pipe, Pipes

if TYPE_CHECKING:
    from ..interfaces import HalfConnectionInterface

LEAST = 64 * 1024
"""Fewer bytes cost less when they are copied."""
BEGINNING = 16 * 1024
"""So much is received where another large frame is expected to begin: what comes behind it is to be spliced."""
KEPT_OUT = 4096
"""Bytes of a stalled pipe that wait in `pending`."""
_SKIPPED = int(Kind.SKIPPED)
_NONBLOCK = getattr(os, "SPLICE_F_NONBLOCK", 2) | getattr(os, "SPLICE_F_MOVE", 1)

_SIZE = struct.Struct(">I").unpack_from

class Splicer:
    """What a half-connection knows of the bytes that it moves without seeing them."""

    __slots__ = ("_half", "_pipe", "_pipes", "kept", "piped", "was_large")

    def __init__(self, half: HalfConnectionInterface, pipes: Pipes) -> None:
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
        return rest if half.endpoint_scanner is None else min(half.left - 1, half.endpoint_scanner.skipping)

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
        if half.endpoint_scanner is not None:
            half.endpoint_scanner.skip(count)
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
