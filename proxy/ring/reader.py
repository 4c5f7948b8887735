"""The reading end of the ring: a cursor, exact losses, and the way back to a frame start after a loss.

`RingReader.read` yields records (`RingRecord`). When the writer has overwritten chunks that were not read, the reader goes on half a ring
behind the head and asks the writer which connections are open. Each direction of a connection then goes on at the first frame start;
a `Lost` with the exact number of bytes comes before it.

Plain data of a connection with a native recorder (`captures.recording.native_recorder`) need not become records: with the accelerator, `read` lets the recorders of a
`NativeConsumer` take such chunks from the ring themselves, and yields the rest.
"""

from __future__ import annotations

import json
import select
import time
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from ..native.accelerator import native
from .ring import (
    _HEADER,
    _SLOT,
    _W_BLOCKED,
    _W_POSITION,
    _W_SEQUENCE,
    ACTIVE,
    BLOCK,
    CHUNK,
    DESCRIPTOR,
    NONE,
    POSITION,
    SEQUENCE,
    SNAPSHOT,
    WAITING,
    Kind,
    Ring,
)
from .wakeup import hush, sound

_KINDS = {int(kind): kind for kind in Kind}
_DATA = Kind.DATA


class RingRecord(NamedTuple):
    """One descriptor with its bytes. When the writer waits for this reader, those of `Kind.DATA` are a view of the ring itself, valid
    until the next record is asked for."""

    kind: Kind
    connection: int
    direction: int
    time_ns: int
    data: bytes | memoryview
    first_frame: int


class Lost(NamedTuple):
    """`nbytes` of one direction were lost; its next data starts at a frame."""

    connection: int
    direction: int
    nbytes: int


class NativeRecorders(NamedTuple):
    """NativeRecorders by connection, connections that must not use theirs now, and `base` and `stop` of `native.ConnectionRecorder.feed`."""

    by_connection: dict[int, Any]
    barred: set[int]
    base: int
    stop: int


class NativeConsumer(Protocol):
    """A consumer that has connections on recorders."""

    def begin(self) -> NativeRecorders | None:
        """The recorders that may take chunks now; None if none may."""

    def end(self, requests: int, responses: int) -> None:
        """So many bytes of each direction went onto recorders, not counting the rest of a chunk that comes as a record next."""

    def failed(self, connection: int, error: Exception) -> None:
        """A native recorder could not take a chunk; the rest of the chunk comes as a record."""


def total_before(ring: Ring, sequence: int) -> int | None:
    """All data bytes that were written before the chunk of this number; None if that is not known any more."""
    place = _HEADER + (sequence - 1 & ring.slots - 1) * _SLOT
    found, meta, _, _, length, _, _, total = DESCRIPTOR.unpack_from(ring.buffer, place)
    if not sequence or found != sequence - 1:
        return None
    return int(total + (length if meta & 0xFF == _DATA else 0))


class RingReader:
    """One reader with its own cursor. bell: wakes it. writer_bell: wakes a writer that waits for room."""

    def __init__(self, ring: Ring, reader: int, bell: int, writer_bell: int) -> None:
        self._ring = ring
        self._words = ring.words
        self._sequence_word = ring.reader_word(reader, SEQUENCE)
        self._position_word = ring.reader_word(reader, POSITION)
        self._waiting_word = ring.reader_word(reader, WAITING)
        self._snapshot_word = ring.reader_word(reader, SNAPSHOT)
        self._active_word = ring.reader_word(reader, ACTIVE)
        self._bell = bell
        self._writer_bell = writer_bell
        self._cursor: int = self._words[self._sequence_word]
        # By connection: the position where each direction should go on; then, for each direction that waits for a frame
        # start, the position from which bytes are lost, else -1
        self._streams: dict[int, array[int]] = {}
        self._feed: Any = None
        if native is not None and hasattr(native, "RingFeed"):
            place = ring.map, ring.data, _HEADER, ring.slots, ring.data_at, ring.data_size
            self._feed = native.RingFeed(*place, reader, writer_bell)
        self._open: set[int] = set()
        # Connections that the writer has named since our last loss; None: nothing lost since the last complete list
        self._present: set[int] | None = None
        self._total = 0
        self.lost_chunks = 0
        self.lost_bytes = 0
        """Data bytes that were not yielded: overwritten, or skipped to reach a frame start. Exact."""
        if self._cursor:
            self._begin_late()

    def _begin_late(self) -> None:
        """Take over from another reader: what it has read does not count as lost, and the writer is asked for open connections."""
        self._total = total_before(self._ring, self._cursor) or 0
        self._present = set()
        self._words[self._snapshot_word] = 1

    @property
    def unread_bytes(self) -> int:
        """Data bytes that were written and not read yet, without those that are lost for certain (`lost_bytes`)."""
        return max((total_before(self._ring, self._words[_W_SEQUENCE]) or 0) - self._total, 0)

    def wait(self, timeout: float) -> None:
        """Sleep until there is something to read, at most `timeout` seconds."""
        words = self._words
        if words[_W_SEQUENCE] != self._cursor:
            return
        # Under steady load the next chunk comes soon: a short sleep costs the writer nothing, a bell costs it a system call.
        time.sleep(0.002)
        if words[_W_SEQUENCE] != self._cursor:
            return
        words[self._waiting_word] = 1
        if words[_W_SEQUENCE] == self._cursor and select.select([self._bell], [], [], timeout)[0]:
            hush(self._bell)
        words[self._waiting_word] = 0

    def arm(self) -> bool:
        """Ask for the bell, for a reader that waits in a loop of its own. False if there is something to read. Call `disarm` when
        the bell has rung or the time is up."""
        self._words[self._waiting_word] = 1
        return self._words[_W_SEQUENCE] == self._cursor

    def disarm(self) -> None:
        """No bell is needed any more."""
        self._words[self._waiting_word] = 0
        hush(self._bell)

    def read(self, limit: int = 512, consumer: NativeConsumer | None = None) -> Iterator[RingRecord | Lost]:
        """What has been written since, at most `limit` chunks, without those that the consumer's recorders take."""
        ring, words, slots = self._ring, self._words, self._ring.slots
        unpack, area, size = DESCRIPTOR.unpack_from, ring.data, ring.data_size
        awaited = words[self._active_word] == BLOCK
        if self._feed is None:
            consumer = None
        while limit > 0:
            limit -= 1
            if consumer is not None:
                taken, rest = self._take(consumer, limit + 1)
                limit -= taken
                if rest is not None:
                    connection, direction, time_ns, data, end = rest
                    yield RingRecord(_DATA, connection, direction, time_ns, data, NONE)
                    self._publish(self._cursor - 1, end)
                    continue
            cursor = self._cursor
            head = words[_W_SEQUENCE]
            if cursor == head:
                break
            if head - cursor >= slots:
                self._overtaken()
                continue
            sequence, meta, time_ns, position, length, first, stream, total = unpack(
                ring.buffer, _HEADER + (cursor & (slots - 1)) * _SLOT
            )
            offset = position % size
            data = area[offset : offset + length]
            if not awaited or meta & 0xFF != _DATA:
                data = bytes(data)
            # Only now is it certain that the chunk was not overwritten: the writer may be filling up to a chunk beyond its
            # head, and may have skipped the rest of the area.
            if (
                sequence != cursor
                or words[_W_SEQUENCE] - cursor >= slots
                or (words[_W_POSITION] + 2 * CHUNK - position > size and not awaited)
            ):
                self._overtaken()
                continue
            self._cursor = cursor + 1
            kind, direction, connection = _KINDS[meta & 0xFF], meta >> 8 & 0xFF, meta >> 16
            self.lost_bytes += total - self._total
            self._total = total
            if kind is _DATA:
                self._total += length
                streams = self._streams_of(connection)
                if streams[direction] == stream and streams[2 + direction] < 0:
                    streams[direction] = stream + length
                    yield RingRecord(_DATA, connection, direction, time_ns, data, first)
                else:
                    yield from self._data(streams, connection, direction, time_ns, data, first, stream)
            else:
                yield from self._other(kind, connection, direction, time_ns, data, first, stream)
            self._publish(cursor, position + length)

    def _publish(self, cursor: int, end: int) -> None:
        """A chunk was read: the writer may use its room again."""
        words, ring = self._words, self._ring
        words[self._position_word] = end
        words[self._sequence_word] = cursor + 1
        # A writer that waits is woken when there is room for more than the next chunk: each wake-up costs two context switches.
        if words[_W_BLOCKED] and (
            words[_W_POSITION] - end < ring.data_size * 3 // 16 and words[_W_SEQUENCE] - cursor < ring.slots // 4
        ):
            words[_W_BLOCKED] = 0
            sound(self._writer_bell)

    def _take(self, consumer: NativeConsumer, most: int) -> tuple[int, Any]:
        """How many chunks went onto recorders, and the rest of the last: (connection, direction, time_ns, data, position of its end),
        or None."""
        begun = consumer.begin()
        if begun is None:
            return 0, None
        before = self._cursor
        recorders, barred, base, stop = begun
        self._cursor, self._total, lost, chunks, (requests, responses), rest = self._feed.feed(
            self._cursor, self._total, self._streams, recorders, barred, base, stop, most
        )
        self.lost_bytes += lost
        error = None
        if rest is not None:
            *rest, error = rest
            if rest[1]:
                responses -= len(rest[3])
            else:
                requests -= len(rest[3])
        if self._cursor != before:
            consumer.end(requests, responses)
        if error is not None:
            consumer.failed(rest[0], error)
        return chunks, rest

    def _streams_of(self, connection: int) -> array[int]:
        streams = self._streams.get(connection)
        if streams is None:
            streams = self._streams[connection] = array("q", (0, 0, -1, -1))
        return streams

    def _data(
        self,
        streams: array[int],
        connection: int,
        direction: int,
        time_ns: int,
        data: bytes | memoryview,
        first: int,
        stream: int,
    ) -> Iterator[RingRecord | Lost]:
        expected = streams[direction]
        streams[direction] = stream + len(data)
        if stream != expected and streams[2 + direction] < 0:
            streams[2 + direction] = expected
        if streams[2 + direction] >= 0:
            if first == NONE or connection not in self._open:
                self.lost_bytes += len(data)
                return
            self.lost_bytes += first
            missed = stream + first - streams[2 + direction]
            streams[2 + direction] = -1
            yield Lost(connection, direction, missed)
            data = data[first:]
            first = 0
        yield RingRecord(Kind.DATA, connection, direction, time_ns, data, first)

    def _other(
        self, kind: Kind, connection: int, direction: int, time_ns: int, data: bytes | memoryview, first: int, stream: int
    ) -> Iterator[RingRecord | Lost]:
        if kind in (Kind.OPENED, Kind.PRESENT):
            if kind == Kind.PRESENT and self._present is not None:
                self._present.add(connection)
            if connection in self._open:
                return
            self._open.add(connection)
            streams = self._streams_of(connection)
            for direction_of, position in enumerate(json.loads(bytes(data)).get("streams", ())):
                streams[direction_of] = position
                if position:
                    streams[2 + direction_of] = 0
            yield RingRecord(Kind.OPENED, connection, direction, time_ns, data, first)
        elif kind == Kind.PRESENT_END:
            # an incomplete list, part of which was overwritten, does not show which connections are gone
            if self._present is None or len(self._present) != json.loads(bytes(data))["open"]:
                return
            gone = self._open - self._present
            self._present = None
            for connection_gone in sorted(gone):
                self._forget(connection_gone)
                yield RingRecord(Kind.CLOSED, connection_gone, 0, time_ns, b'{"how": "lost"}', NONE)
        elif kind == Kind.SKIPPED:
            streams = self._streams_of(connection)
            expected, synced = streams[direction], streams[2 + direction] < 0
            streams[direction] = stream + first
            if stream == expected and synced:
                yield RingRecord(kind, connection, direction, time_ns, data, first)
            elif synced:
                streams[2 + direction] = expected
        elif kind == Kind.ENDED:
            if connection in self._open:
                yield from self._lost_before(connection, direction, stream)
                yield RingRecord(kind, connection, direction, time_ns, data, first)
        elif kind == Kind.CLOSED:
            announced = connection in self._open
            for direction_of, end in enumerate(json.loads(bytes(data)).get("streams", ()) if announced else ()):
                yield from self._lost_before(connection, direction_of, end)
            self._forget(connection)
            if announced:
                yield RingRecord(kind, connection, direction, time_ns, data, first)
        elif kind == Kind.GONE:
            for ended in sorted(self._open):
                self._forget(ended)
                yield RingRecord(Kind.CLOSED, ended, 0, time_ns, b'{"how": "lost"}', NONE)
        else:
            yield RingRecord(kind, connection, direction, time_ns, data, first)

    def _lost_before(self, connection: int, direction: int, end: int) -> Iterator[Lost]:
        """What was lost at the end of a direction."""
        streams = self._streams_of(connection)
        resumed = streams[2 + direction]
        missed = end - (streams[direction] if resumed < 0 else resumed)
        streams[direction], streams[2 + direction] = end, -1
        if missed > 0:
            yield Lost(connection, direction, missed)

    def _forget(self, connection: int) -> None:
        self._open.discard(connection)
        self._streams.pop(connection, None)

    def _overtaken(self) -> None:
        """Go on half a ring behind the head and ask for the open connections."""
        ring, words = self._ring, self._words
        head, newest = words[_W_SEQUENCE], words[_W_POSITION]
        low, high = max(self._cursor + 1, head - ring.slots // 2), head
        oldest = newest - ring.data_size // 2
        while low < high:
            middle = (low + high) // 2
            _, _, _, position, *_ = DESCRIPTOR.unpack_from(
                ring.buffer, _HEADER + (middle & (ring.slots - 1)) * _SLOT
            )
            if position < oldest:
                low = middle + 1
            else:
                high = middle
        self.lost_chunks += low - self._cursor
        self._cursor = low
        self._present = set()
        words[self._sequence_word] = low
        words[self._snapshot_word] = 1
