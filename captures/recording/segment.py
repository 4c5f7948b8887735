"""One segment: a pcapng file that stands alone.

`SegmentWriter` turns connections and whole frames into synthetic packets of the real endpoints, with running
sequence numbers, so that Wireshark shows an undisturbed conversation. The file is `*.pcapng.part` until it is
closed. About every MiB a sync block (a pcapng custom block) holds the CRC-32C of what came before and the requests
still in flight. `check` verifies those sums.

Everything is collected in memory until `flush`; only `flush`, `close` and the constructor touch the disk and may
raise OSError. After a failed flush the file is cut back to its last whole block. docs/formats.md has the layout.
"""

import errno
import fcntl
import os
import re
import struct
import time
from array import array
from collections.abc import Iterable
from itertools import starmap
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple

from crc32c import crc32c

from ..native.accelerator import native
from ..pcap import packets, pcapng
from ..pcap.packets import ACK, FIN, PSH, RST, SYN, Address
from ..pcap.pcapng import CaptureReader
from ..pcap.regular_files import open_file

APPLICATION = "barnabas"
ENTERPRISE = 32473  # RFC 5612: the number for documentation; ours by the magic that follows
SYNC_MAGIC = b"BRNBSYNC"
SYNC_EVERY = 1 << 20
FINAL, CONTINUED = 1, 2  # flags of a sync block: the last of its segment; open requests go on in the next segment
CLIENT_LEG, BROKER_LEG = 0, 1
INTERFACES = ("client leg", "broker leg")

_SYNC = struct.Struct("<8sIIqI")  # magic, CRC-32C, flags, bytes covered, number of requests in flight
IN_FLIGHT = struct.Struct("<IihhQ")  # connection, correlation id, api key, api version, file offset
_FIRST_SEQUENCE = 1000
_AHEAD = 16 << 20  # disk space reserved ahead of the writing, once a segment has grown to a MiB


class InFlight(NamedTuple):
    """A request that waits for its response; `offset` is the file offset of its first packet's block."""

    connection: int
    correlation_id: int
    api_key: int
    api_version: int
    offset: int


class Sync(NamedTuple):
    """A sync block taken apart. `covered` bytes before the block have the CRC-32C `crc`."""

    crc: int
    covered: int
    flags: int
    in_flight: tuple[InFlight, ...]


def parse_sync(body: bytes) -> Sync | None:
    """Read a custom block's body; None when it is foreign or damaged."""
    if len(body) < 4 + _SYNC.size or struct.unpack_from("<I", body)[0] != ENTERPRISE:
        return None
    magic, crc, flags, covered, count = _SYNC.unpack_from(body, 4)
    entries = body[4 + _SYNC.size :]
    if magic != SYNC_MAGIC or count * IN_FLIGHT.size > len(entries):
        return None
    cut = entries[: count * IN_FLIGHT.size]
    return Sync(crc, covered, flags, tuple(InFlight(*entry) for entry in IN_FLIGHT.iter_unpack(cut)))


def check(path: str | Path) -> list[str]:
    """Verify every CRC-32C of a segment; one line per damaged span, empty when all is well."""
    damage = []
    with open_file(path) as file, open_file(path) as raw:
        reader = pcapng.CaptureReader(file, str(path))
        start = 0
        for block in reader.blocks():
            sync = parse_sync(block.body) if block.kind == pcapng.CUSTOM_NO_COPY else None
            if sync is None:
                continue
            raw.seek(start)
            span = raw.read(block.offset - start)
            if sync.covered != len(span) or crc32c(span) != sync.crc:
                damage.append(f"{path}: bytes {start} to {block.offset} are not what was recorded")
            start = block.offset + len(block.body) + 12
        if reader.note:
            damage.append(f"{path}: {reader.note}")
    return damage


def pack_in_flight(entries: Iterable[InFlight]) -> bytes:
    """The entries of a sync block, in the order of the file."""
    return b"".join(starmap(IN_FLIGHT.pack, sorted(entries, key=attrgetter("offset"))))


def _buffer(start: bytes) -> bytearray:
    return native.Buffer(start) if native is not None else bytearray(start)


class _Stream:
    """The TCP state of one leg of one connection within this segment."""

    __slots__ = ("ended", "ends", "next")

    def __init__(self, client: Address, broker: Address) -> None:
        self.ends = (client, broker)
        self.ended = -1  # whose FIN was written
        self.next = array("Q", (_FIRST_SEQUENCE, _FIRST_SEQUENCE))


class SegmentWriter:
    """Writes one segment. `path` is its final name; the bytes go to `path` + ".part" until `close`."""

    def __init__(self, path: Path, recording: str, number: int) -> None:
        self.path = path
        self.part = path.with_name(path.name + ".part")
        self.number = number
        self.frames = 0  # frames not flushed yet
        self._streams: dict[tuple[int, int], _Stream] = {}
        self.flushed = 0  # bytes that the operating system has
        self._reserved = 0  # file offset up to which there is room on the disk
        self.synced = 0  # file offset up to which the last sync block covers the file
        self._crc = 0
        self._summed = 0  # offset in the buffer up to which the running CRC goes
        self.buffer = _buffer(
            pcapng.section_header(APPLICATION, f"recording {recording} segment {number}")
            + b"".join(pcapng.interface_description(name) for name in INTERFACES)
        )
        self._file = os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        # Readers see by this lock whether a .part file is still being written or was left behind.
        for _ in range(100):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.001)  # a reader is just looking; it lets go at once

    @property
    def size(self) -> int:
        """Bytes of the segment so far, those in memory included."""
        return self.flushed + len(self.buffer)

    @property
    def unflushed(self) -> int:
        """Bytes that `flush` would write."""
        return len(self.buffer)

    @property
    def sync_due(self) -> bool:
        """More than about 1 MiB since the last sync block."""
        return self.size - self.synced >= SYNC_EVERY

    def knows(self, connection: int, leg: int = CLIENT_LEG) -> bool:
        """The connection's handshake is in this segment."""
        return (connection, leg) in self._streams

    def headers(self, connection: int) -> tuple["array[int]", bytes, bytes]:
        """For writers of packets of the client leg directly into `buffer`: the next sequence number of the client and
        of the broker, to be kept up, and the heads of packets from either (`packets.head`)."""
        stream = self._streams[connection, CLIENT_LEG]
        client, broker = stream.ends
        return stream.next, packets.head(client, broker, 0), packets.head(broker, client, 1)

    def _packet(
        self,
        stream: _Stream,
        leg: int,
        side: int,
        time_ns: int,
        flags: int,
        payload: bytes,
        comments: tuple[str, ...],
        cut: int = 0,
    ) -> None:
        ends, next_ = stream.ends, stream.next
        sequence, acknowledged = next_[side], next_[1 - side] if flags & ACK else 0
        next_[side] += len(payload) + cut + (1 if flags & (SYN | FIN) else 0)
        # Seen from the proxy: requests come in on the client leg and go out on the broker leg.
        direction = pcapng.INBOUND if side == leg else pcapng.OUTBOUND
        packet = ends[side], ends[1 - side], sequence, acknowledged, flags, payload, side
        if comments or cut:
            self.buffer += pcapng.enhanced_packet(leg, time_ns, packets.build(*packet, cut), comments, direction, cut)
        else:
            self.buffer += packets.block(*packet, leg, time_ns, direction)

    def begin(
        self, connection: int, leg: int, time_ns: int, client: Address, broker: Address, *comments: str
    ) -> None:
        """Write the handshake: from now on the segment knows this leg of the connection."""
        stream = self._streams[connection, leg] = _Stream(client, broker)
        self._packet(stream, leg, 0, time_ns, SYN, b"", comments)
        self._packet(stream, leg, 1, time_ns, SYN | ACK, b"", ())
        self._packet(stream, leg, 0, time_ns, ACK, b"", ())

    def write(
        self,
        connection: int,
        leg: int,
        direction: int,
        time_ns: int,
        data: bytes,
        comments: tuple[str, ...] = (),
        cut: int = 0,
    ) -> int:
        """Write bytes (a frame with its size) as consecutive packets; return the first block's file offset. A frame of
        which `cut` bytes were not kept is one packet, cut as well."""
        stream = self._streams[connection, leg]
        offset = self.size
        if cut or len(data) <= packets.MAX_PAYLOAD:
            self._packet(stream, leg, direction, time_ns, ACK | PSH, data, comments, cut)
        else:
            for start in range(0, len(data), packets.MAX_PAYLOAD):
                part = data[start : start + packets.MAX_PAYLOAD]
                last = start + packets.MAX_PAYLOAD >= len(data)
                self._packet(stream, leg, direction, time_ns, ACK | PSH if last else ACK, part, comments)
                comments = ()
        self.frames += 1
        return offset

    def gap(self, connection: int, leg: int, direction: int, size: int) -> None:
        """Leave out sequence numbers for bytes that were lost before they could be written."""
        # At most 1 GiB: beyond half the number space a gap would look like a step back.
        self._streams[connection, leg].next[direction] += min(max(size, 1), 1 << 30)

    def end_side(self, connection: int, side: int, time_ns: int, comment: str = "") -> None:
        """Write the FIN of the client (side 0) or the broker (1) on every leg of the connection that this segment knows."""
        for leg in (CLIENT_LEG, BROKER_LEG):
            stream = self._streams.get((connection, leg))
            if stream is not None and stream.ended < 0:
                stream.ended = side
                self._packet(stream, leg, side, time_ns, FIN | ACK, b"", (comment,) if comment else ())

    def end(self, connection: int, time_ns: int, how: str, side: int = 0, comment: str = "") -> None:
        """Write the end of every leg of the connection that this segment knows: "fin" or "rst", first from the
        client (side 0) or the broker (1), unless one of them has ended; "": only forget it."""
        if how not in ("", "rst"):
            self.end_side(connection, side, time_ns, comment)
        for leg in (CLIENT_LEG, BROKER_LEG):
            stream = self._streams.pop((connection, leg), None)
            if stream is None or not how:
                continue
            if how == "rst":
                self._packet(stream, leg, side, time_ns, RST | ACK, b"", (comment,) if comment else ())
                continue
            self._packet(stream, leg, 1 - stream.ended, time_ns, FIN | ACK, b"", ())
            self._packet(stream, leg, stream.ended, time_ns, ACK, b"", ())

    def sync(self, in_flight: bytes = b"", flags: int = 0) -> None:
        """Write a sync block over everything since the last one; `in_flight`: packed `InFlight` entries."""
        self._sum()
        count = len(in_flight) // IN_FLIGHT.size
        head = _SYNC.pack(SYNC_MAGIC, self._crc, flags, self.size - self.synced, count)
        self.buffer += pcapng.custom_block(ENTERPRISE, head + in_flight)
        self._crc, self._summed, self.synced = 0, len(self.buffer), self.size

    def _sum(self) -> None:
        if self._summed < len(self.buffer):
            with memoryview(self.buffer) as view:
                self._crc = crc32c(view[self._summed :], self._crc)
            self._summed = len(self.buffer)

    def flush(self) -> None:
        """Hand everything to the operating system. On OSError nothing of it counts as written: there is one also if the file was
        removed, as nobody would ever read it."""
        if not os.fstat(self._file).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not self.buffer:
            return
        self._sum()
        self._reserve(self.size)
        view = memoryview(self.buffer)
        try:
            done = 0
            while done < len(view):
                done += os.write(self._file, view[done:])
        except OSError:
            os.ftruncate(self._file, self.flushed)
            raise
        finally:
            view.release()
        self.flushed += len(self.buffer)
        self.buffer.clear()
        self._summed = 0
        self.frames = 0

    def _reserve(self, end: int) -> None:
        if native is None or end <= max(self._reserved, SYNC_EVERY):
            return
        size = end - self._reserved + _AHEAD
        # Where that is not possible, or there is not so much room any more, it is not asked for again.
        self._reserved = self._reserved + size if native.reserve(self._file, self._reserved, size) else 1 << 62

    def seal(self, in_flight: bytes = b"", continued: bool = False) -> None:
        """Write the last sync block and flush."""
        self.sync(in_flight, FINAL | (CONTINUED if continued else 0))
        self.flush()

    def release(self) -> None:
        """Give the file its final name and close it."""
        file, self._file = self._file, -1
        try:
            if self._reserved:
                os.ftruncate(file, self.flushed)  # gives back what was reserved and not used
            self.part.rename(self.path)
        finally:
            os.close(file)

    def close(self, in_flight: bytes = b"", continued: bool = False) -> None:
        """`seal` and `release`."""
        self.seal(in_flight, continued)
        self.release()

    def abandon(self) -> int:
        """Close after a disk error, without writing. Returns the number of frames that are not in the file."""
        lost, self.frames = self.frames, 0
        self.buffer.clear()
        if self.flushed:
            self.release()
        else:
            os.close(self._file)
            self.part.unlink(missing_ok=True)
        return lost


_IDENTITY = re.compile(r"recording ([0-9a-f]{32}) segment (\d+)")


class Identity(NamedTuple):
    """Which recording a segment belongs to, and which one of its segments it is."""

    recording: str
    number: int


def identity(comment: str, application: str) -> Identity | None:
    """Read a section header's texts; None for a capture that is not ours."""
    match = _IDENTITY.fullmatch(comment) if application == APPLICATION else None
    return Identity(match[1], int(match[2])) if match else None


def read_identity(file: BinaryIO, name: str = "") -> Identity | None:
    """The identity of an open capture file; None when it is not ours. Raises `NotACapture`."""
    reader = CaptureReader(file, name)
    if reader.classic is None:
        next(reader.packets(), None)
    return identity(reader.comment, reader.application)


def being_written(file: BinaryIO) -> bool:
    """Whether a recorder holds the segment."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
