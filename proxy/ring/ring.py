"""A ring in shared memory: one process writes what went through its sockets, others read it at their own pace.

Layout of the memory (all words are native 64-bit, so that each is stored at once):

    header       4096 bytes: magic, data size, slots, head sequence, head position, writer waiting;
                 from byte 512 on, one 64-byte block per reader (`READERS`)
    descriptors  `slots` x 64 bytes: sequence, connection/direction/kind, time_ns, data position, length,
                 first frame, stream position, total bytes so far
    data         `data_size` bytes; sockets are read directly into it

Data positions only grow; the place in the area is `position % data_size`. A chunk never wraps. As long as the readers keep up, the
writer stays in the first part of the area by making its position jump. The writer never waits: a descriptor or chunk is valid
until the head has come round to it, and a reader checks that *after* it has copied. Losses are exact: every data descriptor carries its
position in the stream of its connection and direction, and the running total of all data.

Wake-up: a reader that has nothing to do marks its block; only then does the writer ring its bell (`bells`).
"""

from __future__ import annotations

import mmap
import os
import struct
from enum import IntEnum
from typing import TYPE_CHECKING

from ..native.accelerator import native
from .wakeup import shared_memory, sound

CHUNK = 256 * 1024
"""Most bytes of one chunk; one `recv_into` asks for no more."""
CAREFUL_CHUNK = 64 * 1024
"""The same while frames are looked at one by one (each may become several descriptors)."""
HOT = 1 << 20
"""The part of the area that is used while readers keep up: as much as stays in a processor's cache."""
ASK = 32 * 1024
"""Bytes that are written before the writer looks again whether the readers have read everything."""
NONE = (1 << 64) - 1
"""`first_frame` of a chunk in which no frame starts."""
READERS = 7

_MAGIC = 0x0152474E49524142
_HEADER = 4096
_SLOT = 64
# indices of 64-bit words in the header
_W_MAGIC, _W_DATA, _W_SLOTS, _W_SEQUENCE, _W_POSITION, _W_BLOCKED = range(6)
_W_READERS = 64
# words of a reader's block
ACTIVE, SEQUENCE, POSITION, WAITING, SNAPSHOT = range(5)
DROP, BLOCK = 1, 2

DESCRIPTOR = struct.Struct("=8Q")


class Kind(IntEnum):
    """What a descriptor is about."""

    OPENED = 1
    """A connection; data: JSON with the addresses `client`, `broker`, `upstream`, `streams`, both stream lengths, and `tls`, the legs that are TLS."""
    DATA = 2
    """Bytes of the client leg."""
    CLOSED = 3
    """The end of a connection; data: JSON with how it ended and both stream lengths."""
    BROKER_LEG = 4
    """A frame of the other leg that was changed; data: note length (2 bytes), note, frame. `first_frame`: bytes to come."""
    NOTE = 5
    """Text about an exchange; `first_frame` is the correlation id."""
    PRESENT = 6
    """A connection that is open now, for a reader that lost chunks. Data as in OPENED."""
    PRESENT_END = 7
    """All open connections have been named."""
    STOP = 8
    """Nothing follows."""
    GONE = 9
    """The writer has died, and its connections have ended with it (see `merged_rings`)."""
    SKIPPED = 10
    """Bytes of a frame beyond the snap length, which readers do not want; no data; `first_frame` is their number."""
    ENDED = 11
    """One side has ended, and the other has not yet: `direction` says which. No data; the stream position is the length of its stream."""


class Ring:
    """The mapped memory. `create` makes it, `attach` maps the memory of a file descriptor."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.map = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        self.buffer = memoryview(self.map)
        self.words = self.buffer[:_HEADER].cast("Q")
        if not self.words[_W_MAGIC]:
            return
        self._cut()

    def _cut(self) -> None:
        self.data_size: int = self.words[_W_DATA]
        self.slots: int = self.words[_W_SLOTS]
        self.data_at = _HEADER + self.slots * _SLOT
        self.data = self.buffer[self.data_at : self.data_at + self.data_size]

    @classmethod
    def create(cls, data_size: int = 16 << 20, slots: int = 32768) -> Ring:
        """Create an anonymous ring; it is gone with the last process that maps it.

        data_size: bytes, at least 4 chunks. slots: number of descriptors, a power of two.
        """
        if data_size < 4 * CHUNK or slots & (slots - 1) or slots < 8:
            raise ValueError("a ring needs at least 4 chunks of data and a power of two of slots")
        size = _HEADER + slots * _SLOT + data_size
        fd = shared_memory("barnabas-ring", size)
        ring = cls(fd, size)
        ring.words[_W_DATA] = data_size
        ring.words[_W_SLOTS] = slots
        ring.words[_W_MAGIC] = _MAGIC
        ring._cut()
        return ring

    @classmethod
    def attach(cls, fd: int) -> Ring:
        ring = cls(fd, os.fstat(fd).st_size)
        if ring.words[_W_MAGIC] != _MAGIC:
            raise ValueError("this file descriptor is not a ring")
        return ring

    def close(self) -> None:
        """Unmap and close. Views of it that exist elsewhere keep the memory alive."""
        for view in (self.data, self.words, self.buffer):
            view.release()
        try:
            self.map.close()
        except BufferError:
            pass
        os.close(self.fd)

    def reader_word(self, reader: int, word: int) -> int:
        return _W_READERS + reader * 8 + word

    def admit(self, reader: int, *, lossless: bool) -> None:
        """Reserve a reader's block. It reads what is written from now on."""
        words = self.words
        words[self.reader_word(reader, SEQUENCE)] = words[_W_SEQUENCE]
        words[self.reader_word(reader, POSITION)] = words[_W_POSITION]
        words[self.reader_word(reader, ACTIVE)] = BLOCK if lossless else DROP

    def read_losslessly(self) -> tuple[int, ...]:
        """How far the lossless readers have read."""
        words = self.words
        blocking = (each for each in range(READERS) if words[self.reader_word(each, ACTIVE)] == BLOCK)
        return tuple(words[self.reader_word(each, word)] for each in blocking for word in (SEQUENCE, POSITION))

    def dismiss(self, reader: int) -> None:
        """A reader is gone: the writer no longer waits for it."""
        self.words[self.reader_word(reader, ACTIVE)] = 0


class PlainChunkWriter:
    """Puts chunks into the ring, and looks at its readers. The accelerator has the same (native/ring.c)."""

    def __init__(self, ring: Ring, bells: dict[int, int]) -> None:
        self.ring = ring
        self._buffer = ring.buffer
        self._words = ring.words
        self._size = ring.data_size
        self._mask = ring.slots - 1
        self._slots = ring.slots
        self._pack = DESCRIPTOR.pack_into
        self._bells = [(ring.reader_word(reader, WAITING), fd) for reader, fd in bells.items()]
        self._snapshots = [ring.reader_word(reader, SNAPSHOT) for reader in bells]
        self.sequence: int = ring.words[_W_SEQUENCE]
        self.position: int = ring.words[_W_POSITION]
        self.total = 0
        self._limit_position = 0
        self._limit_sequence = 0
        self._overrun_until = 0
        self._ask_again = 0
        """The position at which to look at the readers again: small chunks need not do so each time."""
        self._read_until = 0
        """Where the last rewind led: every reader had read everything before it, whatever its position is."""
        self._rewound_to = 0
        """The same for every rewind, for lossless readers."""

    # -- room ------------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether one more chunk may be read without overtaking a lossless reader."""
        if self.position <= self._limit_position and self.sequence <= self._limit_sequence:
            return True
        words, ring = self._words, self.ring
        # As if one had just read everything: a reader may be admitted at any time in the place of one that was dismissed.
        position, sequence = self.position, self.sequence
        for reader in range(READERS):
            if words[ring.reader_word(reader, ACTIVE)] == BLOCK:
                position = min(position, max(words[ring.reader_word(reader, POSITION)], self._rewound_to))
                sequence = min(sequence, words[ring.reader_word(reader, SEQUENCE)])
        # What one chunk may still cause (held frames that are written twice, answers) has to fit beyond the limit.
        self._limit_position = position + self._size * 3 // 8 - CHUNK
        self._limit_sequence = sequence + self._slots // 2
        return self.position <= self._limit_position and self.sequence <= self._limit_sequence

    def blocked(self, value: bool) -> None:
        """Set whether the readers are to ring when they have made room."""
        self._words[_W_BLOCKED] = int(value)

    def _may_rewind(self) -> bool:
        """Whether to go on at the beginning of the area, which is still in the processor's cache.

        Yes when every reader has read everything, and also when one is so far behind that it loses most of what comes anyway: then
        its losses cost the connections nothing. Lossless readers must have read everything.
        """
        words, ring = self._words, self.ring
        furthest = self.position
        for reader in range(READERS):
            active = words[ring.reader_word(reader, ACTIVE)]
            if active and words[ring.reader_word(reader, SEQUENCE)] != self.sequence:
                if active == BLOCK:
                    self._ask_again = self.position + ASK
                    return False
                furthest = min(furthest, max(words[ring.reader_word(reader, POSITION)], self._read_until))
        behind = self.position - furthest
        if not behind:
            self._read_until = self.position + self._size - self.position % self._size
            return True
        if behind > self._size * 3 // 4 and self.position >= self._overrun_until:
            self._overrun_until = self.position + 16 * self._size
        self._ask_again = self.position + ASK
        return self.position < self._overrun_until

    # -- writing ---------------------------------------------------------------------------------------------

    def space(self, size: int = CHUNK) -> tuple[int, int]:
        """Where the next chunk can be received: (offset in `data`, length). `take` publishes it."""
        offset = self.position % self._size
        if offset >= HOT and self.position >= self._ask_again and self._may_rewind():
            # Published before it is done: a reader must not take what comes for what was here.
            self.position += self._size - offset
            self._words[_W_POSITION] = self._rewound_to = self.position
            offset = 0
        room = self._size - offset
        if room >= size:
            return offset, size
        if room >= CAREFUL_CHUNK:
            return offset, room
        self.position += room
        return 0, size

    def take(self, kind: int, connection: int, direction: int, time_ns: int, length: int, first: int, stream: int) -> None:
        """Publish the `length` bytes that were received at the place that `space` returned.

        first: offset of the first frame start in the chunk, or NONE. stream: position of its first byte in the stream of this
        connection and direction.
        """
        sequence = self.sequence
        position = self.position
        self._pack(
            self._buffer,
            _HEADER + (sequence & self._mask) * _SLOT,
            sequence,
            kind | direction << 8 | connection << 16,
            time_ns,
            position,
            length,
            first,
            stream,
            self.total,
        )
        if kind == 2:
            self.total += length
        words = self._words
        self.position = words[_W_POSITION] = position + length
        self.sequence = words[_W_SEQUENCE] = sequence + 1

    # -- readers ---------------------------------------------------------------------------------------------

    def ring_bells(self) -> None:
        """Wake the readers that have nothing to do. Call it once per turn, not per chunk."""
        words = self._words
        for word, fd in self._bells:
            if words[word]:
                words[word] = 0
                sound(fd)

    def snapshot_wanted(self) -> bool:
        """Whether a reader has lost chunks since the last call and needs to know which connections are open."""
        words = self._words
        wanted = False
        for word in self._snapshots:
            if words[word]:
                words[word] = 0
                wanted = True
        return wanted


if TYPE_CHECKING or not hasattr(native, "RingPen"):  # without a compiler, or on other systems than Linux
    ChunkWriter = PlainChunkWriter
else:

    class ChunkWriter(native.RingPen):
        """The same in C."""

        def __init__(self, ring: Ring, bells: dict[int, int]) -> None:
            super().__init__(ring.map, _HEADER, ring.slots, ring.data_at, ring.data_size, list(bells.items()))


class RingWriter(ChunkWriter):
    """The one writer of a ring. Not thread-safe. bells: the readers' bells by reader number."""

    def __init__(self, ring: Ring, bells: dict[int, int]) -> None:
        super().__init__(ring, bells)
        self.ring = ring
        self.data = ring.data

    @property
    def hold_limit(self) -> int:
        """Most bytes of a held frame that still fit twice while there is a lossless reader."""
        return self.ring.data_size // 4

    def write(
        self,
        kind: int,
        connection: int,
        direction: int,
        time_ns: int,
        data: bytes | bytearray | memoryview,
        first: int = NONE,
        stream: int = 0,
    ) -> None:
        """Copy `data` in and publish it, in as many chunks as needed. `first` belongs to the first chunk; of a BROKER_LEG each chunk
        is the number of bytes still to come."""
        size = len(data)
        if size <= CAREFUL_CHUNK:
            offset, _ = self.space(CAREFUL_CHUNK)
            self.data[offset : offset + size] = data
            self.take(kind, connection, direction, time_ns, size, 0 if kind == Kind.BROKER_LEG else first, stream)
            return
        with memoryview(data) as view:
            done = 0
            while done < size:
                offset, room = self.space()
                part = min(room, size - done)
                self.data[offset : offset + part] = view[done : done + part]
                left = size - done - part
                if kind == Kind.BROKER_LEG:
                    mark = left
                else:
                    mark = first - done if first != NONE and done <= first < done + part else NONE
                self.take(kind, connection, direction, time_ns, part, mark, stream + done)
                done += part
