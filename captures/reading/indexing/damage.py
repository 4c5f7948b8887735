"""Reading segments that were damaged on disk: a damaged block costs only that block, and its place is reported.

Sync blocks show which spans of a segment are intact (`spans`). In the others every packet is held to its own checksums (IPv4,
TCP), and behind a block with wrong lengths the next good one is searched. `DamageTolerantReader` is a `CaptureReader` that leaves the
damaged blocks out, so that their bytes are a gap. docs/formats.md has the layout.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from crc32c import crc32c

from ....decoder.wire.frame import MAX_FRAME
from ...pcap import packets, pcapng
from ...pcap.packet_comments import OPAQUE_COMMENT
from ...pcap.packets import ACK, FIN, PSH, SYN, TcpSegment
from ...pcap.pcapng import Block, CaptureReader, Interface, Packet
from ...pcap.whole_frames import WholeFrame, whole_frames
from ...recording.segment import CLIENT_LEG, ENTERPRISE, FINAL, INTERFACES, SYNC_MAGIC, Sync, parse_sync

_KNOWN = (pcapng.ENHANCED_PACKET, pcapng.CUSTOM_NO_COPY)
_STARTS = tuple(struct.pack("<I", kind) for kind in _KNOWN)
_INTERFACES = [Interface(pcapng.LINKTYPE_ETHERNET, name, 1_000_000_000, 0) for name in INTERFACES]
_MONTH_NS = 30 * 86_400 * 10**9
_MOST_NAMED = 5
"""Most damaged places named in a note; the others are counted."""


class Damage(NamedTuple):
    """Bytes `start` to `end` of a segment are not what was recorded."""

    start: int
    end: int
    why: str

    @property
    def text(self) -> str:
        return f"bytes {self.start} to {self.end}: {self.why}"


class CheckedSpan(NamedTuple):
    """Bytes `start` to `end` with the sync block behind them, and whether its sum fits them."""

    start: int
    end: int
    sound: bool


def spans(data: mmap.mmap | bytes) -> list[CheckedSpan]:
    """The spans between the sync blocks of a segment, in order."""
    found = _chain(data)
    if found is not None:
        return found
    found = []
    place = 0
    # A block that looks like a sync block may be bytes of the traffic: it counts if the sum fits, or if the next one
    # begins behind it.
    doubtful: CheckedSpan | None = None
    for start, end, sync in _syncs(data):
        covered = start - sync.covered
        if doubtful is not None and covered == doubtful.end:
            found.append(doubtful)
            place, doubtful = doubtful.end, None
        if covered < place or covered < 0:
            continue
        with memoryview(data) as view:
            sound = crc32c(view[covered:start]) == sync.crc
        if not sound and covered == place:
            doubtful = CheckedSpan(place, end, False)
            continue
        if not sound:
            continue
        if covered > place:
            found.append(CheckedSpan(place, covered, False))
        found.append(CheckedSpan(covered, end, True))
        place, doubtful = end, None
    if place < len(data):
        # Behind the last sync block: sound as far as is known, unless a sync block in it shows otherwise.
        found.append(CheckedSpan(place, len(data), doubtful is None and not _ended(data, place)))
    return found


def _chain(data: mmap.mmap | bytes) -> list[CheckedSpan] | None:
    """The spans of a file that ends with a sync block, from the last one to the first, each of which begins where the one
    before it ends; None where one does not fit: then they have to be looked for. Looking at every byte takes far longer."""
    found: list[CheckedSpan] = []
    end = len(data)
    with memoryview(data) as view:
        while end >= 12:
            size = int.from_bytes(view[end - 4 : end], "little")
            start = end - size
            if size % 4 or start < 0 or not _is_whole(data, start, size):
                return None
            kind, _, enterprise = struct.unpack_from("<III", view, start)
            sync = parse_sync(bytes(view[start + 8 : end - 4])) if size >= 28 else None
            if (kind, enterprise) != (pcapng.CUSTOM_NO_COPY, ENTERPRISE) or sync is None:
                return None
            if not 0 <= start - sync.covered < end or crc32c(view[start - sync.covered : start]) != sync.crc:
                return None
            if not found and not sync.flags & FINAL:
                return None
            found.append(CheckedSpan(start - sync.covered, end, True))
            end = start - sync.covered
    return found[::-1] if end == 0 else None


def _ended(data: mmap.mmap | bytes, place: int) -> bool:
    """Whether a segment ended at `place` already: nothing belongs behind it."""
    size = int.from_bytes(data[place - 4 : place], "little") if place else 0
    sync = parse_sync(bytes(data[place - size + 8 : place - 4])) if 12 <= size <= place else None
    return sync is not None and bool(sync.flags & FINAL)


def _syncs(data: mmap.mmap | bytes) -> Iterator[tuple[int, int, Sync]]:
    """(start, end, content) of everything that looks like a sync block."""
    at = data.find(SYNC_MAGIC)
    while at >= 0:
        start = at - 12
        if start >= 0 and start % 4 == 0:
            kind, size, enterprise = struct.unpack_from("<III", data, start)
            if (kind, enterprise) == (pcapng.CUSTOM_NO_COPY, ENTERPRISE) and _is_whole(data, start, size):
                sync = parse_sync(bytes(data[start + 8 : start + size - 4]))
                if sync is not None:
                    yield start, start + size, sync
        at = data.find(SYNC_MAGIC, at + 1)


def _is_whole(data: mmap.mmap | bytes, start: int, size: int) -> bool:
    """Whether a block of that size fits, and repeats its size at its end."""
    end = start + size
    return size >= 12 and size % 4 == 0 and end <= len(data) and data[end - 4 : end] == struct.pack("<I", size)


class DamageTolerantReader(CaptureReader):
    """Reads a segment that is no longer written; `damage` lists what was left out, in order. `data`: its bytes; `sealed`: sums fit
    all of them, up to its end."""

    def __init__(self, file: BinaryIO, name: str = "") -> None:
        super().__init__(file, name)
        self.damage: list[Damage] = []
        self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.spans = spans(self.data)
        self.sealed = all(span.sound for span in self.spans) and _ended(self.data, len(self.data))
        self._next_byte: dict[tuple[int, bytes, bytes], int] = {}  # of each direction of a conversation: its number

    def packets(self, start: int = 0) -> Iterator[Packet]:
        if start:
            yield from super().packets(start)
        else:
            yield from self._all_from(0)

    def frames(self) -> Iterator[WholeFrame | Packet]:
        """What `packets` gives; of a sealed segment, packets that are one frame as `WholeFrame`. `packet` makes them packets."""
        at = 0
        while self.sealed and at < len(self.data):
            if self.interfaces and self.interfaces[0] == _INTERFACES[CLIENT_LEG]:
                for frame in whole_frames(self.data, at):
                    self.end = at = frame.end
                    yield frame
            block = self._block(at)
            if block is None or (block.kind == pcapng.SECTION_HEADER and at):
                break
            try:
                packet = self.take(block)
            except ValueError:
                break
            self.end = at = at + len(block.body) + 12
            if packet is not None:
                yield packet
        yield from self._all_from(at)

    def packet(self, frame: WholeFrame) -> Packet:
        """The packet that is this frame."""
        block = self._block(frame.offset)
        packet = self.take(block) if block is not None else None
        assert packet is not None
        return packet

    def _block(self, at: int) -> Block | None:
        """The whole block at `at`, if there is one."""
        data = self.data
        kind, size = struct.unpack_from("<II", data, at) if at + 8 <= len(data) else (0, 0)
        return Block(at, kind, data[at + 8 : at + size - 4], "<") if _is_whole(data, at, size) else None

    def _all_from(self, start: int) -> Iterator[Packet]:
        """The packets from a block on, which is the first or the one behind those that were read."""
        reported = 0
        if all(span.sound for span in self.spans):
            yield from super().packets(start)
            end = len(self.data)
            if self.note is None or self._next(self.end + 4, end) == end:
                return
            reported = self.end  # there is more behind what stopped it
        self.note = None
        self.interfaces.clear()
        self.first_interface = 0
        self.damage.clear()
        for span in self.spans:
            found = list(self._blocks_of(span))
            times = sorted(packet.time_ns for _, packet in found if packet is not None)
            usual = times[len(times) // 2] if times else 0
            for number, (end, packet) in enumerate(found):
                if packet is None:
                    continue
                if not span.sound and not _is_good(packet, usual):
                    self._leave_out(packet.offset, end, "a packet whose checksum, or time, is wrong")
                elif self._is_usable(packet, found[number:]) and packet.offset >= reported:
                    self.end = end
                    yield packet
        self.end = len(self.data)
        self._set_note()

    def _blocks_of(self, span: CheckedSpan) -> Iterator[tuple[int, Packet | None]]:
        """(where it ends, the packet in it) of every block of a span that is whole."""
        data = self.data
        at = span.start
        while at < span.end:
            block = self._block(at)
            kind, size = (block.kind, len(block.body) + 12) if block else (0, 0)
            head = (kind == pcapng.SECTION_HEADER and at == 0) or kind == pcapng.INTERFACE_DESCRIPTION
            if block is None or at + size > span.end or not (span.sound or head or kind in _KNOWN):
                following = self._next(at + 4, span.end)
                torn = following == len(data) and span.end == len(data)
                self._leave_out(at, following, "the end is cut off" if torn else "these bytes are not a block")
                at = following
                continue
            at += size
            if kind == pcapng.ENHANCED_PACKET:
                self._make_interfaces()
            try:
                if kind == pcapng.CUSTOM_NO_COPY and parse_sync(block.body) is None:
                    raise ValueError
                yield at, self.take(block)
            except ValueError:
                self._leave_out(block.offset, at, "a block whose parts do not fit together")

    def _make_interfaces(self) -> None:
        """Even if the head of the file is damaged, a segment has these interfaces."""
        self.interfaces += _INTERFACES[len(self.interfaces) :]

    def _next(self, at: int, end: int) -> int:
        """Where the next good block begins, `end` if none does."""
        data = self.data
        places = [data.find(start, at, end) for start in _STARTS]
        while any(place >= 0 for place in places):
            which = min((place, i) for i, place in enumerate(places) if place >= 0)[1]
            place = places[which]
            if place % 4 == 0 and self._is_block(place, _KNOWN[which], end):
                return place
            places[which] = data.find(_STARTS[which], place + 1, end)
        return end

    def _is_block(self, at: int, kind: int, end: int) -> bool:
        data = self.data
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if at + size > end or not _is_whole(data, at, size):
            return False
        body = bytes(data[at + 8 : at + size - 4])
        if kind == pcapng.CUSTOM_NO_COPY:
            return parse_sync(body) is not None
        captured, size = struct.unpack_from("<II", body, 12)
        return captured <= len(body) - 20 and checksums_fit(body[20 : 20 + captured], size)

    def _is_usable(self, packet: Packet, following: list[tuple[int, Packet | None]]) -> bool:
        """Whether it does not belong to a frame of which an earlier packet was left out."""
        segment = packets.parse(packet.linktype, packet.data, packet.size)
        if segment is None:
            return True
        key = packet.interface, segment.source, segment.target
        expected = self._next_byte.get(key)
        if segment.flags & SYN:
            self._next_byte[key] = segment.sequence + 1 & 0xFFFFFFFF
            return True
        gap = expected is not None and expected != segment.sequence and segment.payload
        if gap and not _starts_frame(segment, key, following) and not _is_announced(packet):
            self._leave_out(packet.offset, following[0][0], "the rest of a frame whose beginning is damaged")
            return False  # the next one is behind a gap, too
        self._next_byte[key] = segment.sequence + len(segment.payload) + segment.cut & 0xFFFFFFFF
        return True

    def _leave_out(self, start: int, end: int, why: str) -> None:
        if self.damage and self.damage[-1].end == start and self.damage[-1].why == why:
            self.damage[-1] = self.damage[-1]._replace(end=end)
        else:
            self.damage.append(Damage(start, end, why))

    def _set_note(self) -> None:
        """Make the note, and report damaged spans in which every block is good: a stamp, a flag or a comment has changed."""
        for span in self.spans:
            if not span.sound and not any(span.start <= each.start < span.end for each in self.damage):
                self.damage.append(Damage(span.start, span.end, "a time or a comment in this block is not what was recorded"))
        self.damage.sort()
        if not self.damage:
            return
        shown = "; ".join(each.text for each in self.damage[:_MOST_NAMED])
        more = f"; and {len(self.damage) - _MOST_NAMED} more places" if len(self.damage) > _MOST_NAMED else ""
        self.note = f"damaged: {shown}{more}"


def _is_good(packet: Packet, usual_ns: int) -> bool:
    """Whether a packet of a damaged span can be trusted. Stamps have no checksum of their own."""
    return checksums_fit(packet.data, packet.size) and abs(packet.time_ns - usual_ns) < _MONTH_NS


def _starts_frame(
    segment: TcpSegment, key: tuple[int, bytes, bytes], following: list[tuple[int, Packet | None]]
) -> bool:
    """Whether the first 4 bytes are the size of what comes until the end of a frame, as far as that can be seen."""
    size = int.from_bytes(segment.payload[:4], "big") + 4
    if segment.flags & PSH:  # the last packet of a frame, or its only one
        return size == len(segment.payload) + segment.cut
    if not len(segment.payload) < size <= MAX_FRAME + 4:
        return False
    length = 0
    for _, packet in following:
        found = packets.parse(packet.linktype, packet.data) if packet and packet.interface == key[0] else None
        if found is None or (found.source, found.target) != key[1:] or not found.payload:
            continue
        if found.sequence != segment.sequence + length & 0xFFFFFFFF:
            break  # another one is missing in it
        length += len(found.payload)
        if found.flags & PSH:
            return length == size
    return True


def _is_announced(packet: Packet) -> bool:
    """Whether the packet is marked as data that is no frames."""
    return any(comment.startswith(OPAQUE_COMMENT) for comment in packet.comments)


def checksums_fit(data: bytes, size: int | None = None) -> bool:
    """Whether the checksums of an Ethernet packet of ours fit: those of IPv4 and TCP, and its lengths. `size`: of the
    packet, if `data` may be only its beginning."""
    size = len(data) if size is None else size
    if size < len(data):
        return False
    kind, start = data[12:14], 14
    if kind == b"\x08\x00":
        if data[start : start + 1] != b"\x45" or int.from_bytes(data[start : start + 20], "big") % 65535:
            return False
        if int.from_bytes(data[start + 2 : start + 4], "big") != _length_field(size - start):
            return False
        ends, tcp = data[start + 12 : start + 20], start + 20
    elif kind == b"\x86\xdd":
        ends, tcp = data[start + 8 : start + 40], start + 40
        if int.from_bytes(data[start + 4 : start + 6], "big") != _length_field(size - tcp):
            return False
        if data[start + 6 : start + 7] != b"\x06":
            if size - tcp <= packets.MAX_LENGTH or data[start + 6 : start + 7] != b"\x00":
                return False
            tcp += 8
            if data[tcp - 8 : tcp] != packets.jumbo(size - tcp):
                return False
    else:
        return False
    body = data[tcp:]
    if len(body) < 20:
        return False
    padded = body + b"\0" if len(body) % 2 else body
    total = int.from_bytes(ends + b"\x00\x06" + (size - tcp).to_bytes(4, "big") + padded, "big")
    return total % 65535 == 0 and bool(body[13] & (ACK | SYN | FIN))


def _length_field(length: int) -> int:
    """A length as an IP header holds it."""
    return length if length <= packets.MAX_LENGTH else 0
