"""The fast road through a foreign capture: packets in large reads, no object per packet.

`Scanner` reads a file window by window. The bytes of a packet that continues a Kafka connection in order go straight
to whoever takes them (`Taker`); every other packet (handshakes, ends, losses, packets out of order, unusual headers,
other traffic) goes through `packets.parse` and `Reassembler.feed`, the careful road, which shares its state with the
fast one: `side.next` is the next byte's sequence number on both.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO, Protocol

from . import packets
from .packets import FIN, RST, SYN
from .pcapng import ENHANCED_PACKET, LINKTYPE_ETHERNET, TORN, Block, CaptureReader, Packet
from .reassembly import KAFKA_PORTS, UNANSWERED_NS, Closed, Data, Flow, Gap, Opened, Reassembler

WINDOW = 4 << 20
MOST_PACKET = 16 << 20
"""A larger packet is damage: capture tools write no more than 256 KiB."""

_FILE_BITS = 42  # offsets in the files behind the first one count from a multiple of 4 TiB
_ENDS = SYN | FIN | RST
_FULL, _HALF = (1 << 32) - 1, 1 << 31
_NETWORK_START = {LINKTYPE_ETHERNET: ("12xH", 14), 113: ("14xH", 16), 276: ("H18x", 20)}
# From the IP header on: version and header length, total length, fragment, protocol, both addresses and ports,
# sequence number, header length, flags. Only headers without options have the ports there.
_IPV4, _IPV6 = "BxH2xHxB2x12sI4xBB", "B3xHBx36sI4xBB"
_Place = tuple[int, int, int, int, int]  # time, start and end in the window, size on the wire, link type


class Taker(Protocol):
    """Who takes the streams. `opened` gives the two ways of a connection, by direction."""

    def opened(self, event: Opened) -> tuple[Any, Any]: ...
    def data(self, way: Any, time_ns: int, data: bytes, offset: int) -> None:
        """The next bytes of a direction; `offset`: in the file."""

    def cut(self, way: Any, size: int) -> bool:
        """Bytes that are not in the capture follow; False: the next frame is to be looked for."""

    def gap(self, way: Any, size: int, time_ns: int) -> None:
        """Bytes are missing; the next data starts a frame."""

    def closed(self, flow: Flow, event: Closed) -> None: ...
    def awaits(self, flow: Flow, correlation_id: int) -> bool: ...


class Scanner:
    """Reads `file` as far as it goes; `advance` reads the next window. `begin` goes on with another file, as the next
    part of the same capture. Raises `NotACapture`.

    `offset`: bytes that were read; `note`: why the reading stopped before the end of the file, or None; `fragments`:
    IP fragments, which are not put together.
    """

    def __init__(self, taker: Taker, ports: Collection[int] = KAFKA_PORTS) -> None:
        self.taker = taker
        self.reassembler = Reassembler(taker.awaits, ports, cuts=True)
        self.fragments = self.lost = self.now_ns = self.cut_packets = 0
        self._sides: dict[bytes, Any] = {}
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
        self._window, self._base = b"", self._origin
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
        self._window, self._base = window, self._origin + self.offset
        if self.reader.classic is None:
            used = self._scan(self._blocks(window))
        else:
            if self.offset == 0 and not self.reader.classic_head():
                self.note = self.reader.note
                return False
            used = self._scan(self._records(window))
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

    def finish(self) -> None:
        """The capture ends here."""
        for event in self.reassembler.finish(self.now_ns):
            self._event(event)
        self._settle_all()

    def read(self, pieces: list[tuple[int, int]]) -> bytes:
        """The bytes at (offset, length): of this window, or read again."""
        window, base = self._window, self._base
        out = []
        for offset, length in pieces:
            at = offset - base
            if at >= 0 and at + length <= len(window):
                out.append(window[at : at + length])
            else:
                file = self._files[offset >> _FILE_BITS]
                out.append(os.pread(file.fileno(), length, offset & (1 << _FILE_BITS) - 1))
        return b"".join(out)

    # where the packets are

    def _records(self, window: bytes) -> Iterator[_Place]:
        """The packets of a classic pcap."""
        assert self.reader.classic is not None
        order, unit_ns = self.reader.classic
        record = struct.Struct(order + "IIII").unpack_from
        linktype = self.reader.interfaces[0].linktype
        at, end = 24 if self.offset == 0 else 0, len(window)
        self._used = at
        while at + 16 <= end:
            seconds, fraction, captured, size = record(window, at)
            start = at + 16
            at = start + captured
            if at > end:
                if captured > MOST_PACKET:
                    self._damage(start - 16, f"a packet of {captured} bytes")
                return
            self._used = at
            yield seconds * 1_000_000_000 + fraction * unit_ns, start, at, size, linktype

    def _blocks(self, window: bytes) -> Iterator[_Place]:
        """The packets of a pcapng."""
        reader, at, end = self.reader, 0, len(window)
        order = reader.order
        enhanced = struct.Struct(order + "IIIIIII").unpack_from
        head = struct.Struct(order + "II").unpack_from
        last = struct.Struct(order + "I").unpack_from
        self._used = 0
        stamps: dict[int, tuple[int, int, int]] = {}  # by interface: nanoseconds per tick, seconds to add, link type
        while at + 28 <= end:
            kind, length, number, high, low, captured, size = enhanced(window, at)
            start, behind = at + 28, at + length
            if kind == ENHANCED_PACKET and behind <= end and captured <= length - 32 and last(window, behind - 4)[0] == length:
                found = stamps.get(number)
                if found is None and not (found := self._stamp(number, stamps)):
                    self._damage(at, f"no interface {number}")
                    return
                unit, seconds, linktype = found
                ticks = high << 32 | low
                if unit:
                    time_ns = ticks * unit + seconds
                else:
                    time_ns = reader.interfaces[reader.first_interface + number].time_ns(ticks)
                self._used = at = behind
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
            self._used = at
        # Blocks of less than 28 bytes may stand at the end.
        while at + 12 <= end:
            kind, length = head(window, at)
            if length < 12 or length % 4 or at + length > end:
                return
            yield from self._block(at, kind, length, order)
            if self.damaged:
                return
            at += length
            self._used = at

    def _block(self, at: int, kind: int, length: int, order: str) -> Iterator[_Place]:
        """Any block, the careful way."""
        window = self._window
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

    def _stamp(self, number: int, stamps: dict[int, tuple[int, int, int]]) -> tuple[int, int, int] | None:
        interfaces = self.reader.interfaces
        number_in_file = self.reader.first_interface + number
        if number_in_file >= len(interfaces):
            return None
        interface = interfaces[number_in_file]
        per_second, rest = divmod(1_000_000_000, interface.units_per_second)
        found = 0 if rest else per_second, interface.offset_seconds * 1_000_000_000, interface.linktype
        stamps[number] = found
        return found

    def _damage(self, at: int, what: str) -> None:
        kind = "block" if self.reader.classic is None else "packet"
        self.damaged = True
        self.note = f"damaged {kind} at byte {self.offset + at} ({what}): the rest was not read"

    # what is in them

    def _scan(self, places: Iterator[_Place]) -> int:
        """Take the packets; returns how many bytes of the window they are."""
        window, base = self._window, self._base
        find, take, cut = self._sides.get, self.taker.data, self.taker.cut
        opening = self.reassembler.opening
        linktype_before, header = -1, 0
        four: Callable[[bytes, int], tuple[Any, ...]] | None = None
        six: Callable[[bytes, int], tuple[Any, ...]]
        time_ns = self.now_ns
        for time_ns, start, end, size, linktype in places:
            if linktype != linktype_before:
                linktype_before = linktype
                how = _NETWORK_START.get(linktype)
                if how is None:
                    four = None
                else:
                    four = struct.Struct(f">{how[0]}{_IPV4}").unpack_from
                    six = struct.Struct(f">{how[0]}{_IPV6}").unpack_from
                    header = how[1]
            if opening:
                for event in self.reassembler.unanswered(time_ns - UNANSWERED_NS, time_ns):
                    self._event(event)
            if four is None or end - start < header + 40:
                self._careful(time_ns, start, end, size, linktype)
                continue
            kind, version, total, fragment, protocol, ends, sequence, offset, flags = four(window, start)
            if kind == 0x0800 and version == 0x45 and protocol == 6 and not fragment & 0x3FFF and total:
                at = start + header + 20 + (offset >> 4 << 2)
                length = start + header + total - at
            elif kind == 0x86DD and end - start >= header + 60:
                kind, version, total, protocol, ends, sequence, offset, flags = six(window, start)
                if protocol != 6 or version >> 4 != 6 or not total:
                    self._careful(time_ns, start, end, size, linktype)
                    continue
                at = start + header + 40 + (offset >> 4 << 2)
                length = start + header + 40 + total - at
            else:
                self._careful(time_ns, start, end, size, linktype)
                continue
            side = find(ends)
            if side is None or not side.quick or flags & _ENDS or length < 0 or offset < 0x50:
                self._careful(time_ns, start, end, size, linktype)
            elif not length:
                continue
            elif sequence == side.next:
                side.next = sequence + length & _FULL
                stop = at + length
                if stop <= end:
                    take(side.way, time_ns, window[at:stop], base + at)
                else:
                    stop = end if end > at else at
                    take(side.way, time_ns, window[at:stop], base + at)
                    self._cut(side, at + length - stop, cut)
            elif (sequence + length - side.next - 1) & _FULL < _HALF:
                self._careful(time_ns, start, end, size, linktype)
        self.now_ns = time_ns
        return self._used

    def _cut(self, side: Any, size: int, cut: Callable[[Any, int], bool]) -> None:
        self.cut_packets += 1
        if not cut(side.way, size):
            side.synced = side.quick = False
            side.skipped += size

    def _careful(self, time_ns: int, start: int, end: int, size: int, linktype: int) -> None:
        """A packet that the fast road leaves alone."""
        self.now_ns = time_ns
        data = self._window[start:end]
        segment = packets.parse(linktype, data, size)
        if segment is None:
            self.fragments += packets.is_fragment(linktype, data)
            return
        at = self._base + start
        packet = Packet(0, linktype, time_ns, data, at, at, size, ())
        for event in self.reassembler.feed(packet, segment):
            self._event(event)
        flow = self.reassembler.flow_of(segment)
        if flow is not None:
            self._settle(flow)

    def _settle_all(self) -> None:
        for flow in self.reassembler.flows():
            self._settle(flow)

    def _settle(self, flow: Flow) -> None:
        """Let the fast road take what comes next, or not."""
        settled = self.reassembler.is_settled(flow)
        for side in flow.sides:
            side.quick = settled and side.synced and side.next is not None and side.way is not None

    # what the careful road tells

    def _event(self, event: Opened | Data | Gap | Closed) -> None:
        if isinstance(event, Data):
            side = event.flow.sides[event.direction]
            if event.data:
                self.taker.data(side.way, event.time_ns, event.data, event.at)
            if event.cut:
                self._cut(side, event.cut, self.taker.cut)
        elif isinstance(event, Opened):
            flow = event.flow
            for side, way, key in zip(flow.sides, self.taker.opened(event), _keys(flow), strict=True):
                side.way = way
                self._sides[key] = side
        elif isinstance(event, Gap):
            self.lost += event.size
            self.taker.gap(event.flow.sides[event.direction].way, event.size, event.time_ns)
        else:
            flow = event.flow
            for side, key in zip(flow.sides, _keys(flow), strict=True):
                side.quick = False
                if self._sides.get(key) is side:
                    del self._sides[key]
            self.taker.closed(flow, event)


def _keys(flow: Flow) -> tuple[bytes, bytes]:
    """Addresses and ports of both directions as they stand in a packet."""
    client, broker = flow.ends
    return client[:-2] + broker[:-2] + client[-2:] + broker[-2:], broker[:-2] + client[:-2] + broker[-2:] + client[-2:]
