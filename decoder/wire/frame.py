"""Cut a byte stream, which may be split anywhere, into frames: a 4-byte size and as many bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from ..errors import DecoderError

MAX_FRAME = 512 * 1024 * 1024
"""Larger sizes count as damage or another protocol. Brokers refuse requests over 100 MiB by default
(``socket.request.max.bytes``); fetch responses may be larger if a client asks for it."""

HEAD = 18
"""Bytes of a frame, its size included, that say what it is."""

_SIZE = struct.Struct(">i").unpack_from


class Direction(IntEnum):
    """The direction of bytes: from client to broker (REQUEST) or from broker to client (RESPONSE)."""

    REQUEST = 0
    RESPONSE = 1

    @property
    def other(self) -> Direction:
        """The opposite direction."""
        return Direction(1 - self)


class FramingError(DecoderError):
    """The stream is no Kafka; the text has what it looks like."""


def foreign_protocol(data: bytes) -> str | None:
    """The protocol that a stream with these first bytes looks like, or None if it may be Kafka."""
    if len(data) >= 3 and data[0] == 0x16 and data[1] == 3 and data[2] <= 4:
        return "a TLS hello"
    if len(data) >= 4 and data[0] == 0x15 and data[1] == 3 and data[2] <= 4 and data[3:5] in (b"\0", b"\0\2"):
        return "a TLS alert"  # of a broker that does not accept the hello
    if data[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD", b"HTTP", b"OPTI", b"DELE"):
        return "HTTP"
    if data[:4] == b"SSH-":
        return "SSH"
    return None


class Framer:
    """Cuts a stream into frames. After a `FramingError` it must not be used any more.

    `limit`: the largest frame. `keep`: keep at most this many bytes of a frame. `missing`: how many bytes at the end of the
    last frame were not kept, or skipped.
    """

    __slots__ = ("_buffer", "_first", "_rest", "_start", "keep", "limit", "missing", "time_ns")

    def __init__(self, limit: int = MAX_FRAME, keep: int | None = None):
        self.limit, self.keep = limit, keep
        self._buffer = bytearray()
        self._start = 0
        self._first = True
        self._rest = 0  # bytes to come of the current frame that are not kept
        self.missing = 0
        self.time_ns = 0
        """Arrival of the first byte of the current frame."""

    def feed(self, data: bytes | bytearray | memoryview, time_ns: int = 0) -> Iterator[tuple[bytes, int]]:
        """The frames that `data` completes, each with the arrival time of its first byte."""
        if self._rest:
            passed = min(self._rest, len(data))
            yield from self._pass(passed, time_ns)
            data = memoryview(data)[passed:]
            if not data:
                return
        buffer = self._buffer
        if len(buffer) == self._start:
            self.time_ns = time_ns
        buffer += data
        at = self._start
        try:
            while len(buffer) - at >= 4:
                size = self._size(at)
                end = at + 4 + size
                stop = end if self.keep is None else min(end, at + 4 + self.keep)
                if len(buffer) < end:
                    if stop <= len(buffer):
                        self._rest = end - len(buffer)
                        del buffer[stop:]
                    break
                frame = bytes(memoryview(buffer)[at + 4 : stop])
                self._first = False
                self.missing = end - stop
                started, self.time_ns, at = self.time_ns, time_ns, end
                yield frame, started
        finally:
            self._start = at
            if at == len(buffer) or at > 1 << 16:
                del buffer[:at]
                self._start = 0

    def _size(self, at: int) -> int:
        buffer = self._buffer
        size: int = _SIZE(buffer, at)[0]
        # Read as a size, a TLS hello is 369 MB: it is recognised only as the first frame of a stream.
        looks = foreign_protocol(bytes(buffer[at : at + 8])) if self._first else None
        if looks or not 0 <= size <= self.limit:
            raise FramingError(f"not Kafka: {looks}" if looks else f"not a frame: size {size}")
        return size

    def pass_whole(self, size: int, time_ns: int, missing: int = 0) -> bool:
        """Count a frame of that size as fed, or its last `missing` bytes as skipped. False, and nothing done, unless a frame was
        complete before and none is begun."""
        if self._first or not self.empty or self.keep is not None or size > self.limit:
            return False
        self.missing, self.time_ns = missing, time_ns
        return True

    def can_skip(self, count: int) -> bool:
        """Whether that many bytes may be missing here, of a frame that is known by its `HEAD`."""
        have = len(self._buffer) - self._start
        return have >= HEAD and count <= (self._rest or 4 + self._size(self._start) - have)

    def skip(self, count: int, time_ns: int = 0) -> Iterator[tuple[bytes, int]]:
        """Skip `count` bytes that are missing; yields the current frame if they complete it. Raises `FramingError` if the size
        of that frame was not fed, or if more bytes are missing than it has."""
        if not self._rest:
            have = len(self._buffer) - self._start
            if have < 4:
                raise FramingError("bytes are missing at the start of a frame")
            self._rest = 4 + self._size(self._start) - have
        if count > self._rest:
            self._rest = 0
            raise FramingError("bytes are missing after the end of a frame")
        return self._pass(count, time_ns)

    def _pass(self, count: int, time_ns: int) -> Iterator[tuple[bytes, int]]:
        """Count bytes of the current frame that are not kept."""
        self._rest -= count
        if self._rest:
            return
        head = self._buffer[self._start :]
        self._buffer.clear()
        self._start = 0
        self._first = False
        self.missing = _SIZE(head)[0] + 4 - len(head)
        started, self.time_ns = self.time_ns, time_ns
        yield bytes(head[4:]), started

    @property
    def begun(self) -> bool:
        """Whether a frame was complete."""
        return not self._first

    @property
    def empty(self) -> bool:
        """Whether no frame is incomplete."""
        return len(self._buffer) == self._start and not self._rest

    @property
    def cutting(self) -> bool:
        """Whether the rest of the current frame is not kept."""
        return self._rest > 0

    def rest(self) -> bytes:
        """The bytes of an incomplete frame; the framer drops them."""
        rest = bytes(self._buffer[self._start :])
        self._buffer.clear()
        self._start = self._rest = 0
        return rest
