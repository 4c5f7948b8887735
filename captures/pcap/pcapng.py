"""pcapng blocks: a small writer, and a reader for pcapng and classic pcap.

Writing: functions that return the bytes of one block (section header, interface description, enhanced packet,
custom block), always little-endian with nanosecond stamps. Reading: `CaptureReader`, for any byte order and any
time resolution; unknown blocks are skipped and a torn tail ends the reading with a note instead of an error,
because a recording that is still running, or was killed, looks exactly like that.

Formats: draft-ietf-opsawg-pcapng and draft-ietf-opsawg-pcap.
"""

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from ...errors import BarnabasError

LINKTYPE_ETHERNET = 1

SECTION_HEADER = 0x0A0D0D0A
INTERFACE_DESCRIPTION = 1
PACKET = 2  # obsolete, but old files have it
SIMPLE_PACKET = 3
ENHANCED_PACKET = 6
DECRYPTION_SECRETS = 10
CUSTOM = 0x0BAD
CUSTOM_NO_COPY = 0x4000_0BAD  # not to be copied by tools that change the file: its content speaks of offsets

INBOUND, OUTBOUND = 1, 2

_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_MAX_COMMENT = 4000
_CLASSIC = {  # first four bytes: (byte order, nanoseconds per unit of the stamp's fraction)
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
TORN = "ends in the middle of a {what} at byte {offset}: {rest} bytes at the end were not read"
BEYOND = "byte {offset} is not in the file, which has {size} bytes"


class NotACapture(BarnabasError, ValueError):
    """A file is neither pcapng nor pcap, or a directory holds none; the message names the path and what was found instead."""


# writing


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _pad(value)


def _text(value: str) -> bytes:
    """UTF-8, cut to a length that tools still show; lone surrogates from damaged names are replaced."""
    return value.encode("utf-8", "replace")[:_MAX_COMMENT].decode("utf-8", "ignore").encode()


def _block(kind: int, body: bytes) -> bytes:
    size = len(body) + 12
    return b"%b%b%b" % (struct.pack("<II", kind, size), body, struct.pack("<I", size))


def section_header(application: str, comment: str = "") -> bytes:
    """A section header block of unknown section length."""
    options = _option(1, _text(comment)) if comment else b""
    options += _option(4, _text(application)) + _option(0, b"")
    return _block(SECTION_HEADER, struct.pack("<IHHq", _BYTE_ORDER_MAGIC, 1, 0, -1) + options)


def interface_description(name: str) -> bytes:
    """An interface description block: Ethernet, with nanosecond resolution (if_tsresol = 9)."""
    options = _option(2, _text(name)) + _option(9, b"\x09") + _option(0, b"")
    return _block(INTERFACE_DESCRIPTION, struct.pack("<HHI", LINKTYPE_ETHERNET, 0, 262144) + options)


def enhanced_packet(
    interface: int, time_ns: int, data: bytes, comments: tuple[str, ...] = (), direction: int = 0, cut: int = 0
) -> bytes:
    """An enhanced packet block; `direction` is 0 (unknown), `INBOUND` or `OUTBOUND`. `cut`: bytes of the packet behind
    `data` that were not kept."""
    size = len(data)
    parts = [
        struct.pack("<IIIII", interface, time_ns >> 32 & 0xFFFFFFFF, time_ns & 0xFFFFFFFF, size, size + cut),
        data,
        bytes(-size % 4),
    ]
    parts.extend(_option(1, _text(comment)) for comment in comments)
    if direction:
        parts.append(struct.pack("<HHI", 2, 4, direction))
    if comments or direction:
        parts.append(b"\x00\x00\x00\x00")
    return _block(ENHANCED_PACKET, b"".join(parts))


def custom_block(enterprise: int, data: bytes) -> bytes:
    """A custom block that other tools skip and drop when they rewrite the file."""
    return _block(CUSTOM_NO_COPY, struct.pack("<I", enterprise) + _pad(data))


# reading


LATEST_NS = 9 * 10**18
"""In the year 2255. What counts on from such a time still fits into 64 bits."""


def possible_ns(time_ns: int) -> int:
    """A time, or 0 for one before 1970 or too late: the stamp is damaged."""
    return time_ns if 0 <= time_ns <= LATEST_NS else 0


class Interface(NamedTuple):
    """An interface description: link type, name, and how its stamps become nanoseconds."""

    linktype: int
    name: str
    units_per_second: int
    offset_seconds: int

    def time_ns(self, ticks: int) -> int:
        """A stamp as nanoseconds since the epoch; 0, not known, for one that no clock has shown."""
        if self.units_per_second != 1_000_000_000:
            ticks = ticks * 1_000_000_000 // self.units_per_second
        return possible_ns(ticks + self.offset_seconds * 1_000_000_000)


class Packet(NamedTuple):
    """One captured packet.

    `interface` counts within the file; `offset` is the file offset of its block (of the record in classic pcap),
    `data_offset` that of the packet's first byte. `size` is the length on the wire, at least `len(data)`.
    """

    interface: int
    linktype: int
    time_ns: int
    data: bytes
    offset: int
    data_offset: int
    size: int
    comments: tuple[str, ...]


class Block(NamedTuple):
    """One pcapng block: file offset, type, body, and the byte order of its section (a struct prefix)."""

    offset: int
    kind: int
    body: bytes
    order: str


class CaptureReader:
    """Reads a capture from an open file. Iterate `packets()` or, for pcapng, `blocks()`.

    After the iteration `note` is where and why it ended early, or None. Raises `NotACapture`
    when the file does not start like a capture.
    """

    def __init__(self, file: BinaryIO, name: str = "") -> None:
        self._file = file
        self.name = name or str(getattr(file, "name", "capture"))
        self.interfaces: list[Interface] = []
        self.application = ""
        self.comment = ""
        self.last_custom: Block | None = None
        self.secrets = False  # it holds decryption secrets, such as a TLS key log
        self.first_interface = 0  # of the section that is being read
        self.order = "<"  # its byte order
        self.note: str | None = None
        self.end = 0  # file offset behind the last whole block that was read
        file.seek(0)
        head = file.read(12)
        self.classic = _CLASSIC.get(head[:4])
        if self.classic is None and not (
            len(head) == 12
            and head[:4] == b"\x0a\x0d\x0d\x0a"
            and head[8:12] in (b"\x4d\x3c\x2b\x1a", b"\x1a\x2b\x3c\x4d")
        ):
            raise NotACapture(f"{self.name}: {_what_it_is(head)}")

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Yield every whole pcapng block from file offset `start` on (0, or where an earlier reading ended)."""
        file, offset = self._file, start
        order = self.order if start else "<"
        size = self._size()
        if not 0 <= start <= size:  # file systems refuse offsets beyond any file
            self.note = BEYOND.format(offset=start, size=size)
            return
        file.seek(start)
        while True:
            self.end = offset
            head = file.read(12)
            if len(head) < 12:
                if head:
                    self.note = TORN.format(what="block", offset=offset, rest=len(head))
                return
            if head[:4] == b"\x0a\x0d\x0d\x0a":
                self.order = order = "<" if head[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
            kind, length = struct.unpack_from(order + "II", head)
            if length < 12 or length % 4:
                self.note = f"damaged block at byte {offset} (length {length}): the rest was not read"
                return
            if offset + length > size:
                size = self._size()  # a live recording has grown meanwhile
            if offset + length > size:
                self.note = TORN.format(what="block", offset=offset, rest=size - offset)
                return
            rest = file.read(length - 12)
            if len(rest) < length - 12:
                self.note = TORN.format(what="block", offset=offset, rest=len(rest) + 12)
                return
            if length > 12:
                whole = head[8:] + rest
                body, trailer = whole[:-4], whole[-4:]
            else:
                body, trailer = b"", head[8:]
            if struct.unpack(order + "I", trailer)[0] != length:
                self.note = f"damaged block at byte {offset} (its two lengths differ): the rest was not read"
                return
            offset += length
            self.end = offset
            yield Block(offset - length, kind, body, order)

    def packets(self, start: int = 0) -> Iterator[Packet]:
        """Yield the packets in file order. `start`: the offset of a block or packet; for pcapng an earlier
        `packets()` must have read the interface descriptions in front of it."""
        return self._classic_packets(*self.classic, start) if self.classic else self._pcapng_packets(start)

    def _pcapng_packets(self, start: int) -> Iterator[Packet]:
        if start == 0:
            self.interfaces.clear()
            self.first_interface = 0
        for block in self.blocks(start):
            try:
                packet = self.take(block)
            except ValueError as error:
                self.note = str(error)
                self.end = block.offset
                return
            if packet is not None:
                yield packet

    def take(self, block: Block) -> Packet | None:
        """The packet of a block; None for other blocks, of which interfaces, texts and such are remembered.

        Blocks must come in the order of the file. Raises ValueError (a line for `note`) for a damaged one.
        """
        kind, body, order = block.kind, block.body, block.order
        try:
            if kind in (ENHANCED_PACKET, PACKET):
                if kind == ENHANCED_PACKET:
                    number, high, low, captured, size = struct.unpack_from(order + "IIIII", body)
                else:
                    number, _drops, high, low, captured, size = struct.unpack_from(order + "HHIIII", body)
                if captured > len(body) - 20:
                    raise ValueError("packet longer than its block")
                number += self.first_interface
                interface = self.interfaces[number]
                options = 20 + (captured + 3 & ~3)
                comments: tuple[str, ...] = ()
                if len(body) > options:
                    comments = tuple(_decoded(v) for c, v in _options(body, options, order) if c == 1)
                return Packet(
                    number,
                    interface.linktype,
                    interface.time_ns(high << 32 | low),
                    body[20 : 20 + captured],
                    block.offset,
                    block.offset + 28,
                    size,
                    comments,
                )
            if kind == SIMPLE_PACKET:
                (size,) = struct.unpack_from(order + "I", body)
                number = self.first_interface
                data = body[4 : 4 + size]
                linktype = self.interfaces[number].linktype
                return Packet(number, linktype, 0, data, block.offset, block.offset + 12, size, ())
            if kind == INTERFACE_DESCRIPTION:
                self.interfaces.append(_interface(body, order))
            elif kind == SECTION_HEADER:
                # Interfaces count from 0 in each section; here they count through the file.
                self.first_interface = len(self.interfaces)
                for code, value in _options(body, 16, order):
                    if code == 1:
                        self.comment = _decoded(value)
                    elif code == 4:
                        self.application = _decoded(value)
            elif kind == DECRYPTION_SECRETS:
                self.secrets = True
            elif kind in (CUSTOM, CUSTOM_NO_COPY):
                self.last_custom = block
        except (struct.error, IndexError, ValueError) as error:
            raise ValueError(f"damaged block at byte {block.offset} ({error}): the rest was not read") from None
        return None

    def _classic_packets(self, order: str, unit_ns: int, start: int) -> Iterator[Packet]:
        file = self._file
        if not self.classic_head():
            return
        linktype = self.interfaces[0].linktype
        record, offset, file_size = struct.Struct(order + "IIII"), max(start, 24), self._size()
        if offset > file_size:
            self.note = BEYOND.format(offset=offset, size=file_size)
            return
        file.seek(offset)
        while True:
            self.end = offset
            head = file.read(16)
            if len(head) < 16:
                if head:
                    self.note = TORN.format(what="packet", offset=offset, rest=len(head))
                return
            seconds, fraction, captured, size = record.unpack(head)
            if offset + 16 + captured > file_size:
                file_size = self._size()  # it may have grown meanwhile
            if offset + 16 + captured > file_size:
                self.note = TORN.format(what="packet", offset=offset, rest=file_size - offset)
                return
            data = file.read(captured)
            time_ns = seconds * 1_000_000_000 + fraction * unit_ns
            yield Packet(0, linktype, time_ns, data, offset, offset + 16, size, ())
            offset += 16 + captured

    def classic_head(self) -> bool:
        """Read the header of a classic pcap; False, with a note, when it is not whole."""
        assert self.classic is not None
        order, unit_ns = self.classic
        self._file.seek(0)
        head = self._file.read(24)
        if len(head) < 24:
            self.note = TORN.format(what="file header", offset=0, rest=len(head))
            return False
        linktype = struct.unpack_from(order + "I", head, 20)[0] & 0x03FFFFFF
        self.interfaces[:] = [Interface(linktype, "", 1_000_000_000 // unit_ns, 0)]
        return True


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "replace").rstrip("\0")


def _options(body: bytes, start: int, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield (code, value); options that do not fit their block end the list."""
    while start + 4 <= len(body):
        code, length = struct.unpack_from(order + "HH", body, start)
        if code == 0 or start + 4 + length > len(body):
            return
        yield code, body[start + 4 : start + 4 + length]
        start += 4 + (length + 3 & ~3)


def _interface(body: bytes, order: str) -> Interface:
    (linktype,) = struct.unpack_from(order + "H", body)
    name, units, offset = "", 1_000_000, 0
    for code, value in _options(body, 8, order):
        if code == 2:
            name = _decoded(value)
        elif code == 9 and value:
            units = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        elif code == 14 and len(value) == 8:
            (offset,) = struct.unpack(order + "q", value)
    return Interface(linktype, name, units, offset)


def _what_it_is(head: bytes) -> str:
    if not head:
        return "the file is empty, not a capture"
    for magic, text in (
        (b"\x1f\x8b", "gzip data inside gzip or zstd data; unpack it first, then open the result"),
        (b"\x28\xb5\x2f\xfd", "zstd data inside gzip or zstd data; unpack it first, then open the result"),
        (b"PAR1", "a Parquet file, not a capture"),
        (b"BRNBIDX1", "a Barnabas index; open the .pcapng file next to it"),
        (b"BRNBSTR1", "a Barnabas string table; open the .pcapng file next to it"),
    ):
        if head.startswith(magic):
            return text
    text = f"not a capture: it starts with {head[:4].hex(' ')}, unlike pcapng and pcap"
    return text + "; if Wireshark opens it, convert it with `editcap -F pcapng FILE OUT`"
