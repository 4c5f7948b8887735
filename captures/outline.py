"""The story of one closed segment by its index: what it says is not read from the packets again.

Nearly all packets of a segment are frames that its index names, each without a comment. What stands between them
(handshakes, ends, bytes that are no frames, comments that say what is missing) goes the careful road, through `Follower`.
So what a connection did is known after reading little more than the index, and in the order in which `Happenings` tells it;
tests/captures/test_outline.py holds the two together. Needs numpy.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..decoder import Direction, State
from ..decoder.happening import Closed, Happening, Missing, Opened, Stray
from .damage import spans
from .following import Follower, LegSeen, missing
from .index import CARRIED, CHANGED, CLOSED, CUT, DTYPE, NOTED, STATE_MASK, STATES, SURPLUS, UNDECODED
from .packets import MAX_PAYLOAD
from .pcapng import CaptureReader
from .pieces import Pieces
from .reader import CaptureFile

_PLAIN = 44
"""Bytes of a block around its packet, where it has no comment: header, direction, end of the options, length."""


class Unlike(Exception):
    """The segment is not as a recorder leaves it: read its packets instead."""


class Aside(NamedTuple):
    """What happened beside the frames, in front of frame `before` (a place in `Outline.offsets`). `inside`: the frame's own
    comment says so."""

    before: int
    happening: Happening
    inside: bool = False


class Outline:
    """A closed segment. `offsets`: where its frames begin, in the order of the file; `rows`: which records of the index they
    belong to, `sides`: 0 for requests, 1 for responses. Raises `Unlike`."""

    def __init__(self, file: CaptureFile) -> None:
        import numpy as np

        self._np, self.file = np, file
        index = file.index
        if file.own is None or file.rebuilt or file.gone or not index.head.flags & CLOSED:
            raise Unlike("no closed segment")
        self.data = mmap.mmap(file.stream.fileno(), 0, access=mmap.ACCESS_READ)
        if not all(span.sound for span in spans(self.data)):
            raise Unlike("damaged")
        self.records = index.array() if index.count else np.empty(0, np.dtype(DTYPE))
        asked = np.flatnonzero(self.records["request_offset"] >= 0)
        told = np.flatnonzero(self.records["response_offset"] >= 0)
        offsets = np.concatenate((self.records["request_offset"][asked], self.records["response_offset"][told]))
        rows = np.concatenate((asked, told))
        sides: Any = np.repeat(np.array([0, 1], np.int8), (len(asked), len(told)))
        sizes = np.concatenate((self.records["request_size"][asked], self.records["response_size"][told])).astype(
            np.int64
        )
        order = np.argsort(offsets, kind="stable")
        self.offsets, self.rows, self.sides, self.sizes = offsets[order], rows[order], sides[order], sizes[order]
        self._bytes = np.frombuffer(self.data, np.uint8)
        self._ends()

    def _little(self, at: Any) -> Any:
        """The 32-bit numbers at some places."""
        parts = [self._bytes[at + byte].astype(self._np.int64) << 8 * byte for byte in range(4)]
        return parts[0] | parts[1] | parts[2] | parts[3]

    def _ends(self) -> None:
        """Where each frame's packets end, and which frames come with a comment."""
        np, size = self._np, len(self.data)
        if len(self.offsets) and int(self.offsets[-1]) + 28 > size:
            raise Unlike("an index of another file")
        length, self.captured = self._little(self.offsets + 4), self._little(self.offsets + 20)
        self.commented = length > _PLAIN + (self.captured + 3 & ~3)
        ends = self.offsets + length
        whole = self._little(self.offsets + 24) == self.captured  # else it was cut, and is one packet
        self._whole = whole
        left = np.where(whole, self.sizes + 4 - MAX_PAYLOAD, 0)
        while len(more := np.flatnonzero(left > 0)):
            if int(ends[more].max()) + 28 > size:
                raise Unlike("an index of another file")
            ends[more] += self._little(ends[more] + 4)
            left[more] -= MAX_PAYLOAD
        self.ends = ends
        if len(ends) and (int(ends[-1]) > size or bool((ends[:-1] > self.offsets[1:]).any())):
            raise Unlike("frames over frames")

    def asides(self) -> Iterator[Aside]:
        """What is no request or response, in order; `before` of those behind the last frame is the number of frames."""
        np = self._np
        follower = Follower(True, self.file.path.name, pieces=Pieces(keep=False))
        reader = CaptureReader(self.file.stream, str(self.file.path))
        starts = np.concatenate(([0], self.ends))
        stops = np.concatenate((self.offsets, [len(self.data)]))
        places = np.flatnonzero((starts < stops) | np.concatenate((self.commented, [False])))
        for before, start, stop in zip(places.tolist(), starts[places].tolist(), stops[places].tolist(), strict=True):
            if start < stop:
                for packet in reader.packets(start):
                    if packet.offset >= stop:
                        break
                    yield from self._told(before, follower.packet(packet))
            if before < len(self.commented) and self.commented[before]:
                yield from self._lost(before, reader)

    def _told(self, before: int, told: Iterator[Happening | LegSeen]) -> Iterator[Aside]:
        for each in told:
            if isinstance(each, Opened | Stray | Missing | Closed):
                yield Aside(before, each)
            elif not isinstance(each, LegSeen):
                raise Unlike("a frame that the index does not name")

    def _lost(self, number: int, reader: CaptureReader) -> Iterator[Aside]:
        """What the comments of a frame say is missing in front of it."""
        packet = next(reader.packets(int(self.offsets[number])))
        connection, side = int(self.records["connection"][self.rows[number]]), Direction(int(self.sides[number]))
        found = missing(packet.comments, connection, side, packet.time_ns)
        if found is not None:
            yield Aside(number, found, True)

    def read(self) -> tuple[Any, Any]:
        """Two masks of the records: those whose frames are one packet each, whole and without a comment, and of these those
        that were answered well. Sets `begins`, where the content of such frames begins in the file, and `answers`, the same of
        the response by record. Raises `Unlike` where the sizes there are others than in the index."""
        np, records = self._np, self.records
        ip = self.offsets + 28 + 14
        tcp = ip + np.where(self._bytes[ip] >> 4 == 6, 40, (self._bytes[ip] & 15).astype(np.int64) * 4)
        size = tcp + (self._bytes[tcp + 12] >> 4).astype(np.int64) * 4
        self.begins = size + 4
        simple = ~self.commented & self._whole & (self.sizes + 4 <= MAX_PAYLOAD)
        parts = [self._bytes[size + byte].astype(np.int64) << 24 - 8 * byte for byte in range(4)]
        if bool(((parts[0] | parts[1] | parts[2] | parts[3]) != self.sizes)[simple].any()):
            raise Unlike("an index of another file")
        odd = np.zeros(len(records), bool)
        odd[self.rows[~simple]] = True
        odd |= records["flags"] & (CARRIED | CHANGED | CUT | NOTED) != 0
        self.answers = np.zeros(len(records), np.int64)
        told = self.sides == 1
        self.answers[self.rows[told]] = self.begins[told]
        paired = records["flags"] & (STATE_MASK | UNDECODED | SURPLUS) == STATES.index(State.PAIRED)
        return ~odd, ~odd & paired & (records["error"] == 0)
