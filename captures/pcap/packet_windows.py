"""The packets of a capture file, window by window: where each one stands, and its time.

`PacketWindows` holds a window of the file in memory and finds the packets in it; its `scan` callback consumes them and returns
how far it came.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

from .pcapng import ENHANCED_PACKET, TORN, Block, CaptureReader, possible_ns

WINDOW = 4 << 20
MOST_PACKET = 16 << 20
"""A larger packet is damage: capture tools write no more than 256 KiB."""

_FILE_BITS = 42  # offsets in the files behind the first one count from a multiple of 4 TiB
Place = tuple[int, int, int, int, int]
"""A packet: time, start and end in the window, size on the wire, link type."""


class PacketWindows:
    """`advance` reads the next window of `file`; `begin` goes on with another file, as the next part of the same capture.
    Raises `NotACapture`.

    `scan` takes the packets of a window, from `first` on, and returns how many bytes they are. `offset`: bytes that were read;
    `note`: why the reading stopped before the end of the file, or None. `base`: the file offset of the window; `used`: where in
    it the last packet ends that was whole.
    """

    def __init__(self, scan: Callable[[bytes], int]) -> None:
        self._scan = scan
        self._files: list[BinaryIO] = []

    def begin(self, file: BinaryIO, name: str) -> None:
        """Read this file from now on; those before it must stay open, frames may reach over."""
        self._origin = len(self._files) << _FILE_BITS
        self._files.append(file)
        self.file = file
        self.reader = CaptureReader(file, name)
        self.offset = 0
        self.damaged = False
        self.note: str | None = None
        self.window, self.base = b"", self._origin
        self._want = WINDOW

    @property
    def secrets(self) -> bool:
        """The file holds decryption secrets."""
        return self.reader.secrets

    def advance(self) -> bool:
        """Read on; False when there is nothing new in the file."""
        if self.damaged:
            return False
        window = os.pread(self.file.fileno(), self._want, self.offset)
        self.note = None
        if not window:
            return False
        self.window, self.base = window, self._origin + self.offset
        if self.reader.classic is not None and self.offset == 0 and not self.reader.classic_head():
            self.note = self.reader.note
            return False
        used = self._scan(window)
        self.offset += used
        if self.damaged:
            return False
        if used:
            self._want = WINDOW
            return True
        rest = os.fstat(self.file.fileno()).st_size - self.offset
        if rest > len(window):
            self._want = min(max(self._want * 2, WINDOW), MOST_PACKET + 1024)
            return True
        what = "block" if self.reader.classic is None else "packet"
        self.note = TORN.format(what=what, offset=self.offset, rest=rest)
        return False

    def read(self, pieces: list[tuple[int, int]]) -> bytes:
        """The bytes at (offset, length): of this window, or read again."""
        window, base = self.window, self.base
        out = []
        for offset, length in pieces:
            at = offset - base
            if at >= 0 and at + length <= len(window):
                out.append(window[at : at + length])
            else:
                file = self._files[offset >> _FILE_BITS]
                out.append(os.pread(file.fileno(), length, offset & (1 << _FILE_BITS) - 1))
        return b"".join(out)

    @property
    def first(self) -> int:
        """The first possible packet offset in the window: behind the header of a classic pcap."""
        return 24 if self.reader.classic is not None and self.offset == 0 else 0

    def places(self, window: bytes) -> Iterator[Place]:
        """The packets of a window; behind the last one that is whole, `used` is where it ends."""
        return self.blocks(window, 0) if self.reader.classic is None else self.records(window, self.first)

    def records(self, window: bytes, at: int) -> Iterator[Place]:
        """The packets of a classic pcap, from a place in the window on."""
        assert self.reader.classic is not None
        order, unit_ns = self.reader.classic
        record = struct.Struct(order + "IIII").unpack_from
        linktype = self.reader.interfaces[0].linktype
        end = len(window)
        self.used = at
        while at + 16 <= end:
            seconds, fraction, captured, size = record(window, at)
            start = at + 16
            at = start + captured
            if at > end:
                if captured > MOST_PACKET:
                    self._damage(start - 16, f"a packet of {captured} bytes")
                return
            self.used = at
            yield seconds * 1_000_000_000 + fraction * unit_ns, start, at, size, linktype

    def blocks(self, window: bytes, at: int, once: bool = False) -> Iterator[Place]:
        """The packets of a pcapng, from a place in the window on. `once`: of the block that stands there, and of those behind
        it that are not for the accelerator either."""
        reader, end, first = self.reader, len(window), at
        order = reader.order
        enhanced = struct.Struct(order + "IIIIIII").unpack_from
        head = struct.Struct(order + "II").unpack_from
        last = struct.Struct(order + "I").unpack_from
        self.used = at
        stamps: dict[int, tuple[int, int, int]] = {}  # by interface: nanoseconds per tick, seconds to add, link type
        while at + 28 <= end:
            kind, length, number, high, low, captured, size = enhanced(window, at)
            start, behind = at + 28, at + length
            if kind == ENHANCED_PACKET and behind <= end and captured <= length - 32 and last(window, behind - 4)[0] == length:
                found = stamps.get(number)
                if found is None:
                    if reader.first_interface + number >= len(reader.interfaces):
                        self._damage(at, f"no interface {number}")
                        return
                    found = stamps[number] = self.stamp(number)
                unit, seconds, linktype = found
                if once and unit and at != first:
                    return
                ticks = high << 32 | low
                if unit:
                    time_ns = possible_ns(ticks * unit + seconds)
                else:
                    time_ns = reader.interfaces[reader.first_interface + number].time_ns(ticks)
                self.used = at = behind
                yield time_ns, start, start + captured, size, linktype
                continue
            if window[at : at + 4] == b"\x0a\x0d\x0d\x0a":
                reader.order = order = "<" if window[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
                enhanced = struct.Struct(order + "IIIIIII").unpack_from
                head = struct.Struct(order + "II").unpack_from
                last = struct.Struct(order + "I").unpack_from
                stamps.clear()
            kind, length = head(window, at)
            if length < 12 or length % 4:
                self._damage(at, f"length {length}")
                return
            if at + length > end:
                if length > MOST_PACKET:
                    self._damage(at, f"a block of {length} bytes")
                return
            yield from self._block(at, kind, length, order)
            if self.damaged:
                return
            at += length
            self.used = at
        # Blocks of less than 28 bytes may stand at the end.
        while at + 12 <= end:
            kind, length = head(window, at)
            if length < 12 or length % 4 or at + length > end:
                return
            yield from self._block(at, kind, length, order)
            if self.damaged:
                return
            at += length
            self.used = at

    def _block(self, at: int, kind: int, length: int, order: str) -> Iterator[Place]:
        """Any block, the careful way."""
        window = self.window
        if struct.unpack_from(order + "I", window, at + length - 4)[0] != length:
            self._damage(at, "its two lengths differ")
            return
        try:
            packet = self.reader.take(Block(self.offset + at, kind, window[at + 8 : at + length - 4], order))
        except ValueError as error:
            self.damaged, self.note = True, str(error)
            return
        if packet is not None:
            start = packet.data_offset - self.offset
            yield packet.time_ns, start, start + len(packet.data), packet.size, packet.linktype

    def stamp(self, number: int) -> tuple[int, int, int]:
        """Of an interface of this section: nanoseconds of a tick (0: no whole number), nanoseconds to add, link type."""
        interface = self.reader.interfaces[self.reader.first_interface + number]
        per_tick, rest = divmod(1_000_000_000, interface.units_per_second)
        rest = rest or interface.offset_seconds  # the sum may be no time: `Interface.time_ns` knows
        return 0 if rest else per_tick, 0, interface.linktype

    def _damage(self, at: int, what: str) -> None:
        kind = "block" if self.reader.classic is None else "packet"
        self.damaged = True
        self.note = f"damaged {kind} at byte {self.offset + at} ({what}): the rest was not read"
