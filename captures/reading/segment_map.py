"""The layout of one closed segment, by its index.

Nearly all packets of a segment are frames that its index names, each without a comment. What stands between them
(handshakes, ends, bytes that are not frames, comments on missing bytes) is read, through `PacketFollower`. The table of
connections needs no more than that and the index: it takes 1 to 3 us an exchange, and 23 to 29 us from the events
(`bench/spark/traffic.py`, 14,000 exchanges of a fleet and 60,000 small ones). tests/captures/reading/test_segment_map.py compares the
two. Needs numpy.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

from ...decoder import Direction
from ...decoder.connection.events import Closed, ConnectionEvent, Missing, NonKafkaData, Opened
from ..pcap.packets import MAX_PAYLOAD
from ..pcap.pcapng import CaptureReader
from ..recording.index import CLOSED, DTYPE
from .indexing.damage import spans
from .indexing.frame_pieces import FramePieces
from .indexing.packet_events import BrokerLegFrame, PacketFollower, missing
from .reader import CaptureFile

_PLAIN = 44
"""Bytes of a block around its packet, where it has no comment: header, direction, end of the options, length."""


class IndexMismatch(Exception):
    """The segment is not as a recorder leaves it: read its packets instead."""


class SegmentMap:
    """A closed segment. `records`: its index, as an array. Raises `IndexMismatch`."""

    def __init__(self, file: CaptureFile) -> None:
        import numpy as np

        self._np, self._file = np, file
        index = file.index
        if file.own is None or file.rebuilt or file.was_removed or not index.head.flags & CLOSED:
            raise IndexMismatch("no closed segment")
        self._data = mmap.mmap(file.stream.fileno(), 0, access=mmap.ACCESS_READ)
        if not all(span.sound for span in spans(self._data)):
            raise IndexMismatch("damaged")
        self.records = index.array() if index.count else np.empty(0, np.dtype(DTYPE))
        asked = np.flatnonzero(self.records["request_offset"] >= 0)
        answered = np.flatnonzero(self.records["response_offset"] >= 0)
        offsets = np.concatenate((self.records["request_offset"][asked], self.records["response_offset"][answered]))
        rows = np.concatenate((asked, answered))
        sides: Any = np.repeat(np.array([0, 1], np.int8), (len(asked), len(answered)))
        sizes = np.concatenate((self.records["request_size"][asked], self.records["response_size"][answered])).astype(
            np.int64
        )
        order = np.argsort(offsets, kind="stable")
        self._offsets, self._rows, self._sides, self._sizes = offsets[order], rows[order], sides[order], sizes[order]
        self._bytes = np.frombuffer(self._data, np.uint8)
        self._find_ends()

    def _little(self, at: Any) -> Any:
        """The 32-bit numbers at some places."""
        parts = [self._bytes[at + byte].astype(self._np.int64) << 8 * byte for byte in range(4)]
        return parts[0] | parts[1] | parts[2] | parts[3]

    def _find_ends(self) -> None:
        """The end of each frame's packets, and which frames have a comment."""
        np, size = self._np, len(self._data)
        if len(self._offsets) and int(self._offsets[-1]) + 28 > size:
            raise IndexMismatch("an index of another file")
        length, captured = self._little(self._offsets + 4), self._little(self._offsets + 20)
        self._commented = length > _PLAIN + (captured + 3 & ~3)
        ends = self._offsets + length
        whole = self._little(self._offsets + 24) == captured  # else it was cut, and is one packet
        left = np.where(whole, self._sizes + 4 - MAX_PAYLOAD, 0)
        while len(more := np.flatnonzero(left > 0)):
            if int(ends[more].max()) + 28 > size:
                raise IndexMismatch("an index of another file")
            ends[more] += self._little(ends[more] + 4)
            left[more] -= MAX_PAYLOAD
        self._ends = ends
        if len(ends) and (int(ends[-1]) > size or bool((ends[:-1] > self._offsets[1:]).any())):
            raise IndexMismatch("overlapping frames")

    def between_frames(self) -> Iterator[ConnectionEvent]:
        """The events that are no requests or responses, in order."""
        np = self._np
        follower = PacketFollower(True, self._file.path.name, pieces=FramePieces(keep=False))
        reader = CaptureReader(self._file.stream, str(self._file.path))
        starts = np.concatenate(([0], self._ends))
        stops = np.concatenate((self._offsets, [len(self._data)]))
        places = np.flatnonzero((starts < stops) | np.concatenate((self._commented, [False])))
        for number, start, stop in zip(places.tolist(), starts[places].tolist(), stops[places].tolist(), strict=True):
            if start < stop:
                for packet in reader.packets(start):
                    if packet.offset >= stop:
                        break
                    yield from _connection_events(follower.packet(packet))
            if number < len(self._commented) and self._commented[number]:
                yield from self._lost(number, reader)

    def _lost(self, number: int, reader: CaptureReader) -> Iterator[ConnectionEvent]:
        """What is missing before a frame, by its comments."""
        packet = next(reader.packets(int(self._offsets[number])))
        connection, side = int(self.records["connection"][self._rows[number]]), Direction(int(self._sides[number]))
        found = missing(packet.comments, connection, side, packet.time_ns)
        if found is not None:
            yield found


def _connection_events(answered: Iterator[ConnectionEvent | BrokerLegFrame]) -> Iterator[ConnectionEvent]:
    for each in answered:
        if isinstance(each, Opened | NonKafkaData | Missing | Closed):
            yield each
        elif not isinstance(each, BrokerLegFrame):
            raise IndexMismatch("a frame that the index does not name")
