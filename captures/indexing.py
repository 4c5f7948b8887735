"""From packets back to exchanges: the index of a segment made anew, and the index of a foreign capture.

A recording's own segment gives the same records that were written beside it. A foreign capture (tcpdump, dumpcap,
...) has no index on disk; its frames may be scattered over packets in any order, so its offsets are numbers of
`Pieces` in memory.
"""

import re
from array import array
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..decoder import Connection, Direction, Exchange, ExchangeDone, Opaque, RequestSeen, State
from . import packets
from .index import CONTINUED, Head, Index, IndexEncoder, IndexFiles, LegFrame
from .pcapng import CaptureReader
from .reassembly import KAFKA_PORTS, Closed, Data, Flow, Gap, Opened, Reassembler, StreamEvent
from .recording import CARRIED_COMMENT, MARK, show_address
from .segment import APPLICATION, BROKER_LEG, FINAL, parse_sync
from .segment import CONTINUED as SEGMENT_CONTINUED

_IDENTITY = re.compile(r"recording ([0-9a-f]{32}) segment (\d+)")
_CONNECTION = re.compile(re.escape(MARK) + r"connection (\d+), (?:client (.*), broker (.*)|broker leg)", re.S)
_LOST = re.compile(re.escape(MARK) + r"(\d+) bytes lost before this packet")
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


class Pieces:
    """Where the bytes of a foreign capture's frames are: lists of (file offset, length), by number."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def add(self, pieces: list[tuple[int, int]]) -> int:
        """Keep one frame's pieces; returns their number."""
        number = len(self._numbers)
        self._numbers.append(len(pieces))
        for offset, length in pieces:
            self._numbers.extend((offset, length))
        return number

    def read(self, file: BinaryIO, number: int) -> bytes:
        """The frame's bytes, its 4 size bytes included."""
        out = []
        for i in range(self._numbers[number]):
            offset, length = self._numbers[number + 1 + 2 * i : number + 3 + 2 * i]
            file.seek(offset)
            out.append(file.read(length))
        return b"".join(out)


class _Stream:
    """One Kafka connection: the decoder's state, and the packets that its undecoded bytes came in."""

    def __init__(self, number: int, client: str, broker: str) -> None:
        self.decoder = Connection(number, client, broker)
        self.chunks: tuple[deque[Data], deque[Data]] = (deque(), deque())
        self.used = [0, 0]  # bytes of the first chunk that earlier frames took
        self.broken = False
        self.changed: set[int] = set()


class _Leg:
    """The broker leg of a connection: the frame that is being read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.missing = 0
        self.frame = LegFrame(number, 0, 0, 0, 0)


class Builder:
    """Builds the index of one capture file. `own`: it is a segment of a recording."""

    def __init__(self, own: Identity | None, ports: Collection[int] = KAFKA_PORTS) -> None:
        self.own = own
        self.encoder = IndexEncoder()
        self.pieces = Pieces()
        self.lost = 0
        self.complete = False  # it ends with the last sync block of a segment
        self.reassembler = Reassembler(self._awaited, ports, in_order=own is not None)
        self._streams: dict[int, _Stream] = {}  # by the identity of their flow
        self._numbered: dict[int, _Stream] = {}
        self._legs: dict[int, _Leg] = {}

    def build(self, reader: CaptureReader) -> None:
        """Read all packets; afterwards the encoder holds the whole index."""
        feed = self.reassembler.feed
        for packet in reader.packets():
            segment = packets.parse(packet.linktype, packet.data)
            if segment is not None:
                for event in feed(packet, segment):
                    self._event(event)
        for event in self.reassembler.finish():
            self._event(event)
        sync = parse_sync(reader.last_custom.body) if reader.last_custom else None
        self.complete = sync is not None and bool(sync.flags & FINAL)
        continued = self.complete and sync is not None and bool(sync.flags & SEGMENT_CONTINUED)
        waiting = [e for s in self._streams.values() for e in s.decoder.pending()]
        for exchange in sorted(waiting, key=lambda e: int(e.marks.get("request_offset", -1))):
            self.encoder.exchange(exchange, CONTINUED if continued else 0, pending=True)

    def _awaited(self, flow: Flow, correlation_id: int) -> bool:
        stream = self._streams.get(id(flow))
        return stream is not None and any(e.correlation_id == correlation_id for e in stream.decoder.pending())

    def _event(self, event: StreamEvent) -> None:
        if isinstance(event, Data):
            stream = self._streams.get(id(event.flow))
            if stream is None:
                self._leg_data(event)
            elif not stream.broken:
                self._data(stream, event)
        elif isinstance(event, Opened):
            self._opened(event)
        elif isinstance(event, Gap):
            self._gap(event)
        else:
            self._closed(event)

    def _opened(self, event: Opened) -> None:
        flow = event.flow
        number, client, broker = flow.number, show_address(flow.client), show_address(flow.broker)
        if self.own:
            match = next(filter(None, map(_CONNECTION.fullmatch, flow.comments)), None)
            if match:
                number = int(match[1])
                client, broker = match[2] or client, match[3] or broker
            if flow.interface == BROKER_LEG:
                self._legs[id(flow)] = _Leg(number)
                return
        self._streams[id(flow)] = self._numbered[number] = _Stream(number, client, broker)
        self.encoder.connection(number, event.time_ns, client, broker)

    def _gap(self, event: Gap) -> None:
        stream = self._streams.get(id(event.flow))
        if stream is None:
            return
        self.lost += event.size
        stream.decoder.lost(Direction(event.direction))
        stream.chunks[event.direction].clear()
        stream.used[event.direction] = 0
        if not self.own:  # our own segments say the exact number in a comment
            self.encoder.lost(stream.decoder.number, event.direction, event.size)

    def _closed(self, event: Closed) -> None:
        self._legs.pop(id(event.flow), None)
        stream = self._streams.pop(id(event.flow), None)
        if stream and self._numbered.get(stream.decoder.number) is stream:
            del self._numbered[stream.decoder.number]
        if stream and not stream.broken:
            for found in stream.decoder.close(event.time_ns):
                if isinstance(found, ExchangeDone):
                    self.encoder.exchange(found.exchange)

    def _data(self, stream: _Stream, data: Data) -> None:
        if self.own and any(comment.startswith(MARK + "opaque") for comment in data.comments):
            self._told_lost(stream, data)
            return  # never were frames
        stream.chunks[data.direction].append(data)
        receive = stream.decoder.receive_from_broker if data.direction else stream.decoder.receive_from_client
        try:
            for event in receive(data.data, data.time_ns):
                if isinstance(event, Opaque):
                    self._take(stream, event.direction, len(event.data) + (4 if event.framed else 0))
                elif isinstance(event, RequestSeen):
                    exchange = event.exchange
                    self._located(stream, exchange, 0, len(exchange.request or b""))
                elif event.exchange.state in (State.PAIRED, State.ORPHAN):
                    self._located(stream, event.exchange, 1, len(event.exchange.response or b""))
                    self._done(stream, event.exchange)
                else:
                    self._done(stream, event.exchange)
        except Exception:  # a fault of the decoder ends this connection's frames, not the reading
            stream.broken = True

    def _take(self, stream: _Stream, direction: int, size: int) -> list[tuple[Data, int, int]]:
        """The chunks that hold the next `size` bytes: (chunk, start in it, length)."""
        chunks, taken = stream.chunks[direction], []
        while size > 0 and chunks:
            chunk, start = chunks[0], stream.used[direction]
            length = min(len(chunk.data) - start, size)
            taken.append((chunk, start, length))
            size -= length
            stream.used[direction] += length
            if stream.used[direction] == len(chunk.data):
                chunks.popleft()
                stream.used[direction] = 0
        return taken

    def _located(self, stream: _Stream, exchange: Exchange, direction: int, size: int) -> None:
        chunks = self._take(stream, direction, size + 4)
        marks = exchange.marks
        name = "response_offset" if direction else "request_offset"
        if not self.own:
            marks[name] = self.pieces.add([(chunk.at + start, length) for chunk, start, length in chunks])
            return
        marks[name] = chunks[0][0].offset if chunks else -1
        if chunks:
            self._told_lost(stream, chunks[0][0])
        if direction == 0 and exchange.correlation_id in stream.changed:
            marks["changed"] = True
        for comment in chunks[0][0].comments if chunks else ():
            if comment.startswith(CARRIED_COMMENT):
                marks["carried"] = True
                if comment.endswith(", changed"):
                    marks["changed"] = True
            elif not comment.startswith(MARK):
                marks.setdefault("notes", []).append(comment)

    def _told_lost(self, stream: _Stream, data: Data) -> None:
        for lost in filter(None, map(_LOST.fullmatch, data.comments)):
            self.encoder.lost(stream.decoder.number, data.direction, int(lost[1]))

    def _done(self, stream: _Stream, exchange: Exchange) -> None:
        self.encoder.exchange(exchange)
        stream.changed.discard(exchange.correlation_id)

    def _leg_data(self, data: Data) -> None:
        """Broker-leg frames: whole, each starting a packet; they only mark the exchange they belong to."""
        leg = self._legs[id(data.flow)]
        if leg.missing == 0:
            head = data.data[8:12] if data.direction == 0 else data.data[4:8]
            correlation_id = int.from_bytes(head, "big", signed=True)
            size = int.from_bytes(data.data[:4], "big")
            leg.frame = LegFrame(leg.number, correlation_id, data.direction, size, data.offset)
            leg.missing = 4 + size
        leg.missing = max(leg.missing - len(data.data), 0)
        if leg.missing:
            return
        self.encoder.leg_frame(leg.frame)
        stream = self._numbered.get(leg.number)
        if stream:
            stream.changed.add(leg.frame.correlation_id)
            for exchange in stream.decoder.pending():
                if exchange.correlation_id == leg.frame.correlation_id:
                    exchange.marks["changed"] = True


def build(file: BinaryIO, name: str, ports: Collection[int] = KAFKA_PORTS) -> tuple[Builder, CaptureReader]:
    """Read an open capture file from its beginning. Raises `NotACapture`."""
    own = read_identity(file, name)
    reader = CaptureReader(file, name)
    builder = Builder(own, ports)
    builder.build(reader)
    return builder, reader


def in_memory(builder: Builder) -> Index:
    """The index that a builder has made."""
    recording, number = builder.own or (_FOREIGN_IDENTITY, 0)
    return Index.from_encoder(builder.encoder, Head(0, number, recording, -1, -1, -1))


def rebuild(path: str | Path) -> int:
    """Write the index of a closed segment anew; returns its number of records.

    Raises `NotACapture`, or ValueError for a capture that is no segment of a recording.
    """
    path = Path(path)
    with open(path, "rb") as file:
        builder, reader = build(file, str(path))
    if builder.own is None:
        raise ValueError(f"{path}: not recorded by barnabas, so it has no index file; open it as it is")
    count = len(builder.encoder.records) // 64
    files = IndexFiles(path, *builder.own)
    files.write(builder.encoder)
    if reader.note is None:
        files.finish(path.stat().st_size)
    else:
        files.close()
    return count


def payload(reader: CaptureReader, offset: int, size: int) -> tuple[bytes, tuple[str, ...]]:
    """The frame of `size` bytes whose first packet's block is at `offset` of a segment, and its comments.

    Raises ValueError if there is no such frame.
    """
    parts: list[bytes] = []
    comments: tuple[str, ...] = ()
    missing = 4 + size
    for packet in reader.packets(offset):
        segment = packets.parse(packet.linktype, packet.data)
        if segment is None:
            break
        if not parts:
            comments = packet.comments
            if segment.payload[:4] != size.to_bytes(4, "big"):
                break
        parts.append(segment.payload)
        missing -= len(segment.payload)
        if missing <= 0:
            break
    if missing:
        raise ValueError(f"{reader.name}: no frame of {size} bytes at byte {offset}: the index is not this file's")
    return b"".join(parts)[4:], comments
