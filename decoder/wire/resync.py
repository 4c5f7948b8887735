"""Find the next frame in the middle of a stream, if a capture begins late or bytes are missing.

A frame starts where the bytes look like its first bytes and the whole frame can be decoded. An incomplete frame counts only if
its header is convincing: a known API and version, and a client id of printable characters. Runs of zeros, which look like
a Produce of version 0, are not.
"""

from __future__ import annotations

import re
import struct
from heapq import heapify, heappop, heappush
from typing import Protocol

from ..schema import facts
from .frame import MAX_FRAME, Direction

_REQUEST = struct.Struct(">ihhih").unpack_from
_SIZE = struct.Struct(">i").unpack_from
HEAD = {Direction.REQUEST: 14, Direction.RESPONSE: 8}
"""Bytes that a first check needs, size included."""
_LARGEST_CLIENT_ID = 1024
_CLEAR_CLIENT_ID = 3  # characters
_PLAUSIBLE = {
    # No size under the limit starts with more than 0x1f; api keys and versions are below 256. Most positions end here.
    Direction.REQUEST: re.compile(rb"(?=[\0-\x1f].{3}\0.\0.)", re.S),
    Direction.RESPONSE: re.compile(rb"(?=[\0-\x1f])(?!\0\0\0[\0-\3])"),
}
_TRIES = 8
"""Bytes of possible frames that may be decoded per byte of the stream up to their end ..."""
_FREE_TRIES = 1 << 20
"""... and this many more."""
_FAILED = 256
"""Bytes that a frame which cannot be decoded counts more than its size."""


_CLEAR, _OTHER = 0, 1
"""Kinds of possible frames: requests with a clear client id, and all others."""


class FrameChecker(Protocol):
    """Decides which frames, without their size, a stream can have."""

    def may_begin(self, head: bytes) -> bool:
        """Whether a frame can begin with these 4 bytes. Must be cheap."""

    def fits(self, frame: bytes) -> bool:
        """Whether a complete frame can be decoded."""


def client_id_of_head(data: bytes | bytearray, at: int, limit: int = MAX_FRAME) -> bytes | None:
    """The client id, as far as it is there, of a plausible size and request header at `at`, else None."""
    size, key, version, _, length = _REQUEST(data, at)
    if not 8 <= size <= limit or length > min(size - 10, _LARGEST_CLIENT_ID) or length < -1:
        return None
    try:
        if version not in facts.api(key).versions:
            return None
    except KeyError:
        return None
    text = bytes(data[at + 14 : at + 14 + max(length, 0)])
    return text if all(32 <= byte < 127 for byte in text) else None


class FrameSearch:
    """Searches for the start of a frame in bytes that arrive in pieces.

    Every position is checked once, and again when the frame that would start there is complete. The bytes decoded for that
    are limited in proportion to the bytes received, so that the search is linear for any input. Requests with a clear client
    id have a budget of their own, so that numbers that look like frames by accident do not hide them. The budget of a frame
    does not depend on what follows it.
    """

    def __init__(self, direction: Direction, limit: int = MAX_FRAME):
        self.direction, self.limit = direction, limit
        self.data = bytearray()
        # Positions in the stream: of the first byte of `data`, of the first unchecked one, and (end, start, kind) of
        # possible frames that are incomplete.
        self._base = self._next = 0
        self._unfinished: list[tuple[int, int, int]] = []
        self._spent = [0, 0]  # by kind

    def feed(self, data: bytes | bytearray | memoryview, checker: FrameChecker) -> int | None:
        """The start of a frame in `self.data`; None if none is known yet."""
        self.data += data
        end = self._base + len(self.data)
        found = []
        while self._unfinished and self._unfinished[0][0] <= end:
            stop, start, kind = heappop(self._unfinished)
            if start >= self._base and self._confirmed(start - self._base, stop - self._base, kind, checker):
                found.append(start - self._base)
        return min(found) if found else self._scan(checker)

    def drop(self, count: int) -> bytes:
        """Remove the first `count` bytes of `data`, and return them."""
        dropped = bytes(self.data[:count])
        del self.data[:count]
        self._base += count
        self._next = max(self._next, self._base)
        if len(self._unfinished) > 2 * len(self.data):
            self._unfinished = [frame for frame in self._unfinished if frame[1] >= self._base]
            heapify(self._unfinished)
        return dropped

    def _scan(self, checker: FrameChecker) -> int | None:
        data, head = self.data, HEAD[self.direction]
        for match in _PLAUSIBLE[self.direction].finditer(data, self._next - self._base):
            at = match.start()
            if at + head > len(data):
                break
            size = _SIZE(data, at)[0]
            if not 4 <= size <= self.limit:
                continue
            stop, kind = at + 4 + size, _OTHER
            if self.direction is Direction.REQUEST:
                client_id = client_id_of_head(data, at, self.limit)
                if client_id is None:
                    continue
                if len(client_id) >= _CLEAR_CLIENT_ID:
                    if stop > len(data):
                        return at
                    kind = _CLEAR
                if at + head + _REQUEST(data, at)[4] > len(data):
                    self._next = self._base + at  # the rest of the client id decides
                    return None
            if stop > len(data):
                heappush(self._unfinished, (self._base + stop, self._base + at, kind))
            elif self._confirmed(at, stop, kind, checker):
                return at
        self._next = self._base + max(0, len(data) - head + 1)
        return None

    def _confirmed(self, at: int, stop: int, kind: int, checker: FrameChecker) -> bool:
        cost = stop - at
        if self._spent[kind] + cost > _FREE_TRIES + _TRIES * (self._base + stop):
            return False
        if not checker.may_begin(bytes(self.data[at + 4 : at + 8])):
            return False
        found = checker.fits(bytes(self.data[at + 4 : stop]))
        self._spent[kind] += cost if found else cost + _FAILED
        return found
