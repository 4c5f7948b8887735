"""Indexes rebuilt from packets: of a segment, and of a foreign capture.

A recording's own segment gives the same records that were written beside it. A foreign capture (tcpdump, dumpcap, ...) has no
index on disk; its frames may be scattered over packets, so its offsets are numbers of `FramePieces` in memory.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ...decoder import ExchangeDone
from ...decoder.connection.events import ConnectionEvent, Missing, Opened
from ..foreign.frame_pieces import FramePieces
from ..pcap import packets
from ..pcap.pcapng import CaptureReader
from ..pcap.reassembly import KAFKA_PORTS
from ..pcap.regular_files import open_file
from ..pcap.sources import CaptureSource
from ..recording.index import CONTINUED, Head, Index, IndexEncoder, IndexFiles
from ..recording.segment import APPLICATION, FINAL, parse_sync
from ..recording.segment import CONTINUED as SEGMENT_CONTINUED
from .damage import DamageTolerantReader, checksums_fit
from .packet_events import BrokerLegFrame, PacketFollower

_IDENTITY = re.compile(r"recording ([0-9a-f]{32}) segment (\d+)")
_FOREIGN_IDENTITY = "0" * 32


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
        elif isinstance(event, Missing):
            self.encoder.lost(event.connection, event.direction, event.size + event.unread)


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
