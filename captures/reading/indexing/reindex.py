"""What indexes lack, from packets: whole indexes, of a segment and of a foreign capture, and the requests in flight of a segment that is
being written.

A recording's own segment gives the same records that were written beside it. A foreign capture (tcpdump, dumpcap, ...) has no
index on disk; its frames may be scattered over packets, so its offsets are numbers of `FramePieces` in memory. The index of a
segment that is being written gets a request when it is answered, or the segment ends. The last sync block names those in flight before
it; the packets behind it, about a MiB at most, have the others.
"""

import os
import struct
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from crc32c import crc32c

from ....decoder import DecodeError, ExchangeDone, State, decode_request_header
from ....decoder.connection.events import ConnectionEvent, Missing, Opened
from ...pcap import packets
from ...pcap.packet_comments import CARRIED_COMMENT, MARK, OPAQUE_COMMENT
from ...pcap.pcapng import CUSTOM_NO_COPY, LINKTYPE_ETHERNET, CaptureReader, Packet
from ...pcap.reassembly import KAFKA_PORTS
from ...pcap.regular_files import open_file
from ...pcap.sources import CaptureSource
from ...recording.index import (
    CARRIED,
    CHANGED,
    CONTINUED,
    CUT,
    NOTED,
    RECORD,
    STATES,
    Head,
    Index,
    IndexEncoder,
    IndexFiles,
    Record,
)
from ...recording.segment import CLIENT_LEG, FINAL, SYNC_MAGIC, Identity, Sync, parse_sync, read_identity
from ...recording.segment import CONTINUED as SEGMENT_CONTINUED
from .damage import DamageTolerantReader, checksums_fit
from .frame_pieces import FramePieces
from .packet_events import BrokerLegFrame, PacketFollower

_FOREIGN_IDENTITY = "0" * 32


def first_time(source: CaptureSource) -> int:
    """The time of a capture's first packet; 0 when it has none."""
    first = next(CaptureReader(source.file, str(source.path)).packets(), None)
    return first.time_ns if first is not None else 0


class IndexBuilder:
    """Builds the index of one capture file. `own`: it is a segment of a recording."""

    def __init__(self, own: Identity | None, ports: Collection[int] = KAFKA_PORTS) -> None:
        self.own = own
        self.encoder = IndexEncoder()
        self.pieces = FramePieces()
        self.complete = False  # it ends with the last sync block of a segment
        self._follower = PacketFollower(own is not None, ports=ports, pieces=self.pieces)

    @property
    def lost(self) -> int:
        """Bytes that are missing."""
        return self._follower.lost

    @property
    def foreign(self) -> int:
        """The number of conversations with data that are not Kafka."""
        return self._follower.reassembler.foreign

    def build(self, reader: CaptureReader) -> None:
        """Read all packets; afterwards the encoder holds the whole index."""
        follow = self._follower.packet
        for packet in reader.packets():
            for event in follow(packet):
                self._event(event)
        for event in self._follower.finish():
            self._event(event)
        flags = final_flags(reader)
        self.complete = flags is not None
        continued = CONTINUED if flags and flags & SEGMENT_CONTINUED else 0
        for exchange in self._follower.pending():
            self.encoder.exchange(exchange, continued, pending=True)

    def _event(self, event: ConnectionEvent | BrokerLegFrame) -> None:
        if isinstance(event, ExchangeDone):
            self.encoder.exchange(event.exchange)
        elif isinstance(event, Opened):
            self.encoder.connection(event.connection, event.time_ns, event.client, event.broker)
        elif isinstance(event, BrokerLegFrame):
            self.encoder.leg_frame(event.frame)
        elif isinstance(event, Missing) and event.size:
            self.encoder.lost(event.connection, event.direction, event.size)


def final_flags(reader: CaptureReader) -> int | None:
    """The flags of the sync block that ends a segment; None when what was read ends otherwise."""
    sync = parse_sync(reader.last_custom.body) if reader.last_custom else None
    return sync.flags if sync is not None and sync.flags & FINAL else None


def build(file: BinaryIO, name: str, ports: Collection[int] = KAFKA_PORTS) -> tuple[IndexBuilder, CaptureReader]:
    """Read an open capture file from its beginning. Raises `NotACapture`."""
    own = read_identity(file, name)
    reader = DamageTolerantReader(file, name) if own else CaptureReader(file, name)
    builder = IndexBuilder(own, ports)
    builder.build(reader)
    return builder, reader


def in_memory(builder: IndexBuilder) -> Index:
    """The index that a builder has made."""
    recording, number = builder.own or (_FOREIGN_IDENTITY, 0)
    return Index.from_encoder(builder.encoder, Head(0, number, recording, -1, -1, -1))


def rebuild(path: str | Path) -> int:
    """Rewrite the index files of a closed segment from its packets; returns the number of records (exchanges).

    Raises `NotACapture`, ValueError for a capture that is not a segment of a recording, or OSError.
    """
    path = Path(path)
    with open_file(path) as file:
        builder, reader = build(file, str(path))
    if builder.own is None:
        raise ValueError(f"{path}: not recorded by barnabas, so it has no index file; open it directly")
    count = len(builder.encoder.records) // 64
    files = IndexFiles(path, *builder.own)
    files.write(builder.encoder)
    if reader.note is None:
        files.finish(path.stat().st_size)
    else:
        files.close()
    return count


def payload(reader: CaptureReader, offset: int, size: int) -> tuple[bytes, tuple[str, ...]]:
    """The frame of `size` bytes, or what was kept of it, whose first packet's block is at `offset` of a segment, and its
    comments.

    Raises ValueError if there is no such frame.
    """
    parts: list[bytes] = []
    comments: tuple[str, ...] = ()
    missing = 4 + size
    for packet in reader.packets(offset):
        segment = packets.parse(packet.linktype, packet.data, packet.size)
        if segment is None:
            break
        if not checksums_fit(packet.data, packet.size):
            raise ValueError(f"{reader.name}: the packet at byte {packet.offset} is damaged")
        if not parts:
            comments = packet.comments
            if segment.payload[:4] != size.to_bytes(4, "big"):
                break
        parts.append(segment.payload)
        missing -= len(segment.payload) + segment.cut
        if missing <= 0:
            break
    if missing:
        raise ValueError(f"{reader.name}: no frame of {size} bytes at byte {offset}: the index belongs to another file")
    return b"".join(parts)[4:], comments


MOST_IN_FLIGHT = 10_000
"""Requests in flight that are shown: the oldest ones."""
_BEFORE_MAGIC = 12
"""Bytes of a sync block before its magic: type, length, enterprise number."""
_BLOCK = struct.Struct("<II")
_WINDOW, _MOST_ALIKE = 1 << 20, 8
_HEAD = struct.Struct(">Ihhi")
_TO_BROKER = packets.head(("0.0.0.0", 0), ("0.0.0.0", 0), 0)[:6]
_REQUEST_OFFSET = Record._fields.index("request_offset")


class _Seen(NamedTuple):
    """A request that was found in the segment; `flow`: the packed ends."""

    flow: tuple[bytes, bytes]
    client_id: str | None
    record: Record


class SegmentInFlight:
    """Finds the requests in flight of the segment in `file`."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._reader = CaptureReader(file, name)
        next(self._reader.packets(), None)  # reads the interfaces
        self._at = 0
        self._answered = 0
        """Records of the index that were looked at."""
        self._waiting: dict[int, _Seen] = {}
        """By the offset in the file."""
        self._missing: dict[tuple[bytes, bytes], int] = {}
        """Of a frame in several packets: bytes that are to come, by its ends."""
        self._flows: dict[tuple[bytes, bytes], int] = {}
        self._connections = 0

    def show(self, index: Index) -> None:
        """Make them the last records of the segment's index, which was refreshed before."""
        index.copy()
        before = self._answered
        self._read()
        index.refresh()  # after the packets: a request is not shown whose response was written meanwhile
        for record in RECORD.iter_unpack(index.records(before, index.done)):
            self._waiting.pop(record[_REQUEST_OFFSET], None)
        self._answered = index.done
        self._learn_flows(index)
        found = sorted(self._named(index), key=lambda seen: seen.record.time_ns)[:MOST_IN_FLIGHT]
        index.show_waiting((seen.record for seen in found), (seen.client_id for seen in found), time.time_ns())

    def _named(self, index: Index) -> Iterator[_Seen]:
        """The requests of known connections, with their numbers."""
        for seen in self._waiting.values():
            number = self._flows.get(seen.flow)
            if number is not None:
                changed = CHANGED * ((number, seen.record.correlation_id) in index.leg_frames)
                yield seen._replace(record=seen.record._replace(connection=number, flags=seen.record.flags | changed))

    def _learn_flows(self, index: Index) -> None:
        for number, entry in list(index.connections.items())[self._connections :]:
            client, broker = _address(entry.client), _address(entry.broker)
            if client is not None and broker is not None:
                head = packets.parse(LINKTYPE_ETHERNET, packets.head(client, broker, 0))
                if head is not None:
                    self._flows[head.source, head.target] = number
        self._connections = len(index.connections)

    def _read(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        if size <= self._at:
            return
        found = _last_sync(self._file, self._at, size)
        if found is not None:
            self._at, sync = found
            known, self._waiting = self._waiting, {}
            self._missing.clear()
            for entry in sync.in_flight[:MOST_IN_FLIGHT]:
                if entry.offset in known:
                    self._waiting[entry.offset] = known[entry.offset]
                elif 0 <= entry.offset < self._at and (packet := next(self._reader.packets(entry.offset), None)) is not None:
                    self._take(packet)
            self._missing.clear()
        for packet in self._reader.packets(self._at):
            self._take(packet)
        self._at = max(self._reader.end, self._at)

    def _take(self, packet: Packet) -> None:
        if packet.interface != CLIENT_LEG or not packet.data.startswith(_TO_BROKER):
            return
        segment = packets.parse(packet.linktype, packet.data, packet.size)
        if segment is None or not segment.payload:
            return
        flow = segment.source, segment.target
        length = len(segment.payload) + segment.cut
        if missing := self._missing.get(flow):
            self._missing[flow] = max(missing - length, 0)
            return
        if any(comment.startswith(OPAQUE_COMMENT) for comment in packet.comments) or len(segment.payload) < _HEAD.size:
            return
        size, key, version, correlation_id = _HEAD.unpack_from(segment.payload)
        if 4 + size > length:
            self._missing[flow] = 4 + size - length
        try:
            client_id = decode_request_header(segment.payload[4:])[0]["client_id"]
        except DecodeError:
            client_id = None
        flags = STATES.index(State.PENDING) | CUT * bool(segment.cut)
        flags |= CARRIED * any(comment.startswith(CARRIED_COMMENT) for comment in packet.comments)
        flags |= NOTED * any(not comment.startswith(MARK) for comment in packet.comments)
        record = Record(packet.time_ns, -1, packet.offset, -1, size, 0, correlation_id, 0, key, version, 0, flags, 0, 0)
        self._waiting[packet.offset] = _Seen(flow, client_id, record)


def _address(text: str) -> packets.Address | None:
    host, _, port = text.rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdecimal() else None


def _last_sync(file: BinaryIO, start: int, size: int) -> tuple[int, Sync] | None:
    """The last sync block between `start` and `size`, and where it ends. Bytes of a message may look like one: its checksum decides, for
    the last few."""
    number, high, left = file.fileno(), size, _MOST_ALIKE
    while high > start:
        low = max(start, high - _WINDOW)
        data = os.pread(number, min(high + len(SYNC_MAGIC), size) - low, low)
        at = len(data)
        while (at := data.rfind(SYNC_MAGIC, 0, at)) >= 0:
            begin = low + at - _BEFORE_MAGIC
            if begin >= start and (found := _sync_at(number, begin, size)) is not None:
                return found
            left -= 1
            if not left:
                return None
        high = low
    return None


def _sync_at(number: int, begin: int, size: int) -> tuple[int, Sync] | None:
    kind, length = _BLOCK.unpack(os.pread(number, _BLOCK.size, begin))
    if kind != CUSTOM_NO_COPY or length < 12 or begin + length > size:
        return None
    sync = parse_sync(os.pread(number, length, begin)[8:-4])
    if sync is None or not 0 <= sync.covered <= begin:
        return None
    crc = 0
    for at in range(begin - sync.covered, begin, _WINDOW):
        crc = crc32c(os.pread(number, min(_WINDOW, begin - at), at), crc)
    return (begin + length, sync) if crc == sync.crc else None
