"""From packets to connection events, for one capture file.

`PacketFollower` gives the events (`decoder.connection.events`) with every frame's place in the file in the exchange's `marks`. The
index of a file (`reindex`) and the events of a whole capture (`events`) are made of them.
"""

import re
from collections import deque
from collections.abc import Collection, Iterator
from mmap import mmap
from typing import NamedTuple

from ....decoder import Connection, Direction, Exchange, Opaque, RequestSeen, State, Topics
from ....decoder.connection.connection import Event
from ....decoder.connection.events import NEVER_ESTABLISHED, Closed, ConnectionEvent, Missing, NonKafkaData, Opened
from ....diagnostics import contained
from ...pcap import flows, packets
from ...pcap.flows import Data, Flow, Gap, PlainSide, StreamEvent
from ...pcap.packet_comments import (
    CARRIED_COMMENT,
    ENDED_COMMENT,
    IMPORTED_COMMENT,
    MARK,
    OPAQUE_COMMENT,
    UPSTREAM_COMMENT,
    tls_legs,
)
from ...pcap.packets import show_address
from ...pcap.pcapng import Packet
from ...pcap.reassembly import KAFKA_PORTS, Reassembler
from ...pcap.whole_frames import WholeFrame, ends_of
from ...recording.index import LegFrame
from ...recording.segment import BROKER_LEG, CLIENT_LEG
from .frame_pieces import FramePieces

_CONNECTION = re.compile(re.escape(MARK) + r"connection (\d+), (?:client (.*), broker (.*)|broker leg)", re.S)
_LOST = re.compile(re.escape(MARK) + r"(\d+) bytes lost before this packet")
_UNREAD = re.compile(re.escape(MARK) + r"(\d+) bytes before this packet not read")
_TOKEN = "SASL token"  # the only bytes that are no messages, and framed all the same


class BrokerLegFrame(NamedTuple):
    """A frame of the broker leg, without its size bytes, and the comments of its first packet."""

    frame: LegFrame
    data: bytes
    comments: tuple[str, ...]


class Stream:
    """One Kafka connection: the decoder's state, and the packets that its undecoded bytes came in."""

    def __init__(self, number: int, client: str, broker: str, topics: Topics | None) -> None:
        self.decoder = Connection(number, client, broker, topics=topics)
        self.chunks: tuple[deque[Data], deque[Data]] = (deque(), deque())
        self.used = [0, 0]  # bytes of the first chunk that earlier frames took
        self.broken = False
        self.changed: set[int] = set()
        self.repeated = 0  # bytes to come of a request that was carried over, and is known from an earlier segment
        self.failed = ""  # how the broker was not reached: see `NEVER_ESTABLISHED`

    def restart(self) -> None:
        """The connection goes on in another segment: whole frames, and packets of that one."""
        for direction in Direction:
            self.chunks[direction].clear()
            self.decoder.lost(direction)
        self.used = [0, 0]


class _HalfConnection(NamedTuple):
    """One direction of a connection in a segment."""

    stream: Stream
    direction: Direction
    side: PlainSide


class _Leg:
    """The broker leg of a connection: the frame that is being read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.missing = 0
        self.parts: list[bytes] = []
        self.comments: tuple[str, ...] = ()
        self.frame = LegFrame(number, 0, 0, 0, 0)


class PacketFollower:
    """Follows one file. `own`: it is a segment of a recording; `streams`: the connections, by number, that are known
    from the segments before it, and will be those for the next one; `topics`: shared by all connections. `acknowledged`:
    of a foreign capture, also report bytes at the end of a direction that were acknowledged and not captured.

    Marks: `name` as segment; request_offset, response_offset (for a foreign capture numbers of `pieces`); changed,
    carried, notes.
    """

    def __init__(
        self,
        own: bool,
        name: str = "",
        ports: Collection[int] = KAFKA_PORTS,
        pieces: FramePieces | None = None,
        streams: dict[int, Stream] | None = None,
        topics: Topics | None = None,
        acknowledged: bool = False,
    ) -> None:
        self.pieces = FramePieces() if pieces is None else pieces
        self.cut_packets = 0  # in captures of other tools
        self.lost = self.unread = 0  # bytes that are not in the capture; those that are, but belong to frames whose beginning is not
        self.reassembler = Reassembler(self._awaited, ports, in_order=own)
        self.streams: dict[int, Stream] = {} if streams is None else streams
        self.now_ns = 0  # the time of the latest packet
        self._own, self._name, self._topics = own, name, topics
        self._acknowledged = acknowledged and not own
        self._flows: dict[int, Stream] = {}  # by the identity of their flow
        self._legs: dict[int, _Leg] = {}
        self._halves: dict[bytes, _HalfConnection] = {}  # of a segment, by the ends of its packets

    def packet(self, packet: Packet) -> Iterator[ConnectionEvent | BrokerLegFrame]:
        """The events that a packet completes."""
        segment = packets.parse(packet.linktype, packet.data, packet.size) if len(packet.data) >= packets.LEAST else None
        if segment is not None:
            self.now_ns = packet.time_ns
            noted = not self._acknowledged or self.reassembler.show(segment)
            for event in self.reassembler.feed(packet, segment):
                yield from self._event(event)
            if not noted:
                self.reassembler.show(segment)
            if self._own and segment.flags & packets.FIN and packet.interface == CLIENT_LEG:
                yield from self._broker_ended(self.reassembler.flow_of(segment))

    def whole_frame(self, frame: WholeFrame, data: mmap) -> Iterator[ConnectionEvent] | None:
        """The events of a packet of a segment with these bytes, as `packet` gives them. None, and nothing is done, unless its
        connection is between two frames there."""
        half = self._halves.get(frame.ends)
        if half is None:
            return None
        stream, direction, side = half
        if frame.sequence != side.next or not side.synced or stream.broken or stream.chunks[direction]:
            return None
        if stream.repeated and direction == 0:
            return None
        try:
            events = stream.decoder.receive_frame(direction, data[frame.start : frame.stop], frame.time_ns, frame.cut)
        except Exception as error:
            events = _broken(stream, error)
        if events is None:
            return None
        side.next = frame.sequence + 4 + frame.stop - frame.start + frame.cut & 0xFFFFFFFF
        self.now_ns = frame.time_ns
        return self._marked(stream, events, frame.offset)

    def finish(self) -> Iterator[ConnectionEvent | BrokerLegFrame]:
        """The file ends here."""
        for event in self.reassembler.finish(self.now_ns):
            yield from self._event(event)
        for flow in self.reassembler.flows():
            stream = self._flows.get(id(flow))
            if stream is not None and self._acknowledged:
                yield from self._unseen(flow, stream, self.now_ns)

    def _unseen(self, flow: Flow, stream: Stream, time_ns: int) -> Iterator[ConnectionEvent]:
        """Report bytes at the end that passed and were not captured, or that could not be read."""
        for direction in Direction:
            size, unread = flow.sides[direction].skipped + flow.unseen(direction), flow.unread[direction]
            if size or unread:
                self.lost += size
                self.unread += unread
                yield Missing(stream.decoder.number, direction, size, time_ns, unread)

    def half_closed(self, time_ns: int) -> Iterator[ConnectionEvent]:
        """For a capture that grows: connections that one side ended, once each, as soon as the other has had `HALF_CLOSED_NS` to
        follow. More may come on such a connection."""
        for flow in self.reassembler.half_closed(time_ns):
            yield from self._broker_ended(flow)
            stream = self._flows.get(id(flow))
            if stream is not None:
                by = _ended_by(flow.end_comments) if self._own else ("client", "broker")[flow.ender]
                yield Closed(stream.decoder.number, flow.ended_ns, "fin", by, half=True)

    def _broker_ended(self, flow: Flow | None) -> Iterator[ConnectionEvent]:
        """If a flow's broker has ended it: what waits gets no response."""
        stream = self._flows.get(id(flow))
        if flow is not None and stream is not None and flow.ender == Direction.RESPONSE and not stream.broken:
            yield from _stray(stream, stream.decoder.broker_ended(flow.ended_ns))

    def pending(self) -> list[Exchange]:
        """The requests that wait, in the order of the file."""
        waiting = [e for s in self._flows.values() for e in s.decoder.pending()]
        if not self._own:
            return sorted(waiting, key=lambda e: (e.request_time_ns, e.connection))
        return sorted(waiting, key=lambda e: e.marks.request_offset)

    def _awaited(self, flow: Flow, correlation_id: int) -> bool:
        stream = self._flows.get(id(flow))
        return stream is not None and stream.decoder.awaits(correlation_id)

    def _event(self, event: StreamEvent) -> Iterator[ConnectionEvent | BrokerLegFrame]:
        if isinstance(event, Data):
            stream = self._flows.get(id(event.flow))
            if stream is not None:
                return self._data(stream, event)
            return self._leg_data(event)
        if isinstance(event, flows.FlowOpened):
            return self._opened(event)
        return self._gap(event) if isinstance(event, Gap) else self._closed(event)

    # the beginning and the end

    def _opened(self, event: flows.FlowOpened) -> Iterator[ConnectionEvent]:
        flow = event.flow
        number, client, broker = flow.number, show_address(flow.client), show_address(flow.broker)
        failed, complete = "", self._own and IMPORTED_COMMENT not in flow.comments
        if self._own:
            match = next(filter(None, map(_CONNECTION.fullmatch, flow.comments)), None)
            if match:
                number = int(match[1])
                client, broker = match[2] or client, match[3] or broker
            else:  # the packet with the number is damaged: take one that no connection has
                number |= 1 << 31
            if flow.interface == BROKER_LEG:
                self._legs[id(flow)] = _Leg(number)
                return
            failed = _word_of(flow.comments, UPSTREAM_COMMENT, NEVER_ESTABLISHED)
            known = self.streams.get(number)
            if known is not None:  # from an earlier segment
                known.restart()
                self._follow(flow, known)
                return
        stream = self.streams[number] = Stream(number, client, broker, self._topics)
        self._follow(flow, stream)
        stream.failed = failed
        established, tls = event.established and not failed, tls_legs(flow.comments)
        yield Opened(number, client, broker, event.time_ns, established, complete, tls=tls)

    def _follow(self, flow: Flow, stream: Stream) -> None:
        self._flows[id(flow)] = stream
        if self._own and flow.interface == CLIENT_LEG:
            for direction in Direction:
                ends = ends_of(flow.ends[direction], flow.ends[direction.other])
                self._halves[ends] = _HalfConnection(stream, direction, flow.sides[direction])

    def _closed(self, event: flows.FlowClosed) -> Iterator[ConnectionEvent]:
        if self._legs.pop(id(event.flow), None):
            return
        stream = self._flows.pop(id(event.flow), None)
        if stream is None:
            return
        number, (client, broker) = stream.decoder.number, event.flow.ends
        self._halves.pop(ends_of(client, broker), None)
        self._halves.pop(ends_of(broker, client), None)
        if self.streams.get(number) is stream:
            del self.streams[number]
        if self._acknowledged:
            yield from self._unseen(event.flow, stream, event.time_ns)
        if not stream.broken:
            yield from _stray(stream, stream.decoder.close(event.time_ns))
        how, by = event.how, event.by
        if self._own:
            # The order of synthetic packets means nothing, only the comment does.
            how, by = stream.failed or how, _ended_by(event.flow.end_comments)
        yield Closed(number, event.time_ns, how, by)

    # bytes

    def _gap(self, event: Gap) -> Iterator[ConnectionEvent]:
        stream = self._flows.get(id(event.flow))
        if stream is None:
            return
        direction = Direction(event.direction)
        self.lost += event.size
        self.unread += event.unread
        given_up = stream.decoder.lost(direction)
        stream.chunks[direction].clear()
        stream.used[direction] = 0
        if self._own:
            return  # our own segments have the exact number in a comment
        for opaque in given_up:
            if isinstance(opaque, Opaque):
                cut = Opaque(direction, opaque.data, event.time_ns, opaque.reason, opaque.framed)
                yield NonKafkaData(stream.decoder.number, cut)
        yield Missing(stream.decoder.number, direction, event.size, event.time_ns, event.unread)

    def _data(self, stream: Stream, data: Data) -> Iterator[ConnectionEvent]:
        if self._own:
            if not data.length:  # a packet without bytes reports what is missing at the end of a direction
                yield from self._missing(stream, data)
                return
            if stream.repeated and data.direction == 0:
                stream.repeated = max(stream.repeated - data.length, 0)
                return
            if data.comments:
                reason = next((c[len(OPAQUE_COMMENT) :] for c in data.comments if c.startswith(OPAQUE_COMMENT)), None)
                if reason is not None:
                    yield from self._missing(stream, data)
                    yield NonKafkaData(stream.decoder.number, _opaque(data, reason))
                    return
                if data.direction == 0 and self._is_repeated(stream, data):
                    return
        if stream.broken:
            return
        stream.chunks[data.direction].append(data)
        receive = stream.decoder.receive_from_broker if data.direction else stream.decoder.receive_from_client
        try:
            events = receive(data.data, data.time_ns)
            if data.cut:
                events += self._cut(stream, data)
        except Exception as error:
            events = _broken(stream, error)
        yield from self._marked(stream, events)

    def _cut(self, stream: Stream, data: Data) -> list[Event]:
        """The packet goes on, but was cut when it was captured."""
        direction = Direction(data.direction)
        if self._own or stream.decoder.can_skip(direction, data.cut):
            self.cut_packets += not self._own
            return stream.decoder.skip(direction, data.cut, data.time_ns)
        side = data.flow.sides[direction]
        side.synced = False
        side.skipped += data.cut
        return []

    def _marked(self, stream: Stream, events: list[Event], offset: int | None = None) -> Iterator[ConnectionEvent]:
        """Events of the decoder, with marks. `offset`: of the block that is the frame; None: chunks hold the bytes."""
        for event in events:
            if isinstance(event, Opaque):
                if offset is None:
                    self._take(stream, event.direction, len(event.data) + (4 if event.framed else 0))
                yield NonKafkaData(stream.decoder.number, event)
                continue
            exchange = event.exchange
            if isinstance(event, RequestSeen):
                if offset is None:
                    yield from self._located(stream, exchange, 0, exchange.request_size or 0)
                else:
                    self._mark(stream, exchange, 0, offset)
            else:
                if exchange.state in (State.PAIRED, State.ORPHAN):
                    if offset is None:
                        yield from self._located(stream, exchange, 1, exchange.response_size or 0)
                    else:
                        self._mark(stream, exchange, 1, offset)
                if stream.changed:
                    stream.changed.discard(exchange.correlation_id)
            yield event

    def _mark(self, stream: Stream, exchange: Exchange, direction: int, offset: int) -> None:
        """Set where a frame is."""
        marks = exchange.marks
        marks.segment = self._name
        if direction:
            marks.response_offset = offset
            return
        marks.request_offset = offset
        if self._own and exchange.correlation_id in stream.changed:
            marks.changed = True

    def _is_repeated(self, stream: Stream, data: Data) -> bool:
        """Whether a request that was carried over waits already: then only its place is new."""
        if not any(comment.startswith(CARRIED_COMMENT) for comment in data.comments):
            return False
        correlation_id = int.from_bytes(data.data[8:12], "big", signed=True)
        for exchange in stream.decoder.pending():
            if exchange.correlation_id == correlation_id and exchange.request_time_ns == data.time_ns:
                marks = exchange.marks
                marks.request_offset, marks.carried, marks.segment = data.offset, True, self._name
                size = 4 + int.from_bytes(data.data[:4], "big")
                stream.repeated = max(size - data.length, 0)
                return True
        return False

    def _take(self, stream: Stream, direction: int, size: int) -> list[tuple[Data, int, int]]:
        """The chunks that hold the next `size` bytes: (chunk, start in it, length)."""
        chunks, taken = stream.chunks[direction], []
        while size > 0 and chunks:
            chunk, start = chunks[0], stream.used[direction]
            length = min(chunk.length - start, size)
            taken.append((chunk, start, length))
            size -= length
            stream.used[direction] += length
            if stream.used[direction] == chunk.length:
                chunks.popleft()
                stream.used[direction] = 0
        return taken

    def _located(self, stream: Stream, exchange: Exchange, direction: int, size: int) -> Iterator[ConnectionEvent]:
        chunks = self._take(stream, direction, size + 4)
        if self._own:
            offset = chunks[0][0].offset if chunks else -1
        else:
            offset = self.pieces.add([(chunk.at + start, length) for chunk, start, length in chunks])
        self._mark(stream, exchange, direction, offset)
        if not self._own or not chunks or not chunks[0][0].comments:
            return
        marks = exchange.marks
        yield from self._missing(stream, chunks[0][0])
        for comment in chunks[0][0].comments:
            if comment.startswith(CARRIED_COMMENT):
                marks.carried = True
                if comment.endswith(", changed"):
                    marks.changed = True
            elif not comment.startswith(MARK):
                marks.notes.append(comment)

    def _missing(self, stream: Stream, data: Data) -> Iterator[ConnectionEvent]:
        found = missing(data.comments, stream.decoder.number, Direction(data.direction), data.time_ns)
        if found is not None:
            self.unread += found.unread
            yield found

    def _leg_data(self, data: Data) -> Iterator[BrokerLegFrame]:
        """Broker-leg frames: whole, each starting a packet; they only mark the exchange they belong to."""
        leg = self._legs[id(data.flow)]
        if leg.missing == 0:
            head = data.data[8:12] if data.direction == 0 else data.data[4:8]
            correlation_id = int.from_bytes(head, "big", signed=True)
            size = int.from_bytes(data.data[:4], "big")
            leg.frame = LegFrame(leg.number, correlation_id, data.direction, size, data.offset)
            leg.missing, leg.parts, leg.comments = 4 + size, [], data.comments
        leg.missing = max(leg.missing - data.length, 0)
        leg.parts.append(data.data)
        if leg.missing:
            return
        stream = self.streams.get(leg.number)
        if stream:
            stream.changed.add(leg.frame.correlation_id)
            for exchange in stream.decoder.pending():
                if exchange.correlation_id == leg.frame.correlation_id:
                    exchange.marks.changed = True
        yield BrokerLegFrame(leg.frame, b"".join(leg.parts)[4:], leg.comments)


def _broken(stream: Stream, error: Exception) -> list[Event]:
    """A fault of the decoder ends a connection's frames, not the reading."""
    contained("decoding a connection of a capture", error)
    stream.broken = True
    return []


def missing(comments: tuple[str, ...], connection: int, direction: Direction, time_ns: int) -> Missing | None:
    """What is missing before a packet, by its comments."""
    sizes = [sum(int(found[1]) for found in map(pattern.fullmatch, comments) if found) for pattern in (_LOST, _UNREAD)]
    return Missing(connection, direction, sizes[0], time_ns, sizes[1]) if any(sizes) else None


def _opaque(data: Data, reason: str) -> Opaque:
    content, direction = data.data, Direction(data.direction)
    if reason == _TOKEN and int.from_bytes(content[:4], "big") == len(content) - 4:
        return Opaque(direction, content[4:], data.time_ns, reason, framed=True)
    return Opaque(direction, content, data.time_ns, reason)


def _stray(stream: Stream, events: list[Event]) -> Iterator[ConnectionEvent]:
    """Events of a decoder at an end; the packets of undecoded bytes are not asked for any more."""
    for event in events:
        yield NonKafkaData(stream.decoder.number, event) if isinstance(event, Opaque) else event


def _ended_by(comments: tuple[str, ...]) -> str:
    """Who ended a connection; see `Closed`."""
    found = next((each.removeprefix(ENDED_COMMENT) for each in comments if each.startswith(ENDED_COMMENT)), "")
    return found if found in ("client", "broker", "control API") or found.startswith("plugin ") else ""


def _word_of(comments: tuple[str, ...], start: str, words: tuple[str, ...]) -> str:
    """The word behind `start` in one of the comments; "" if there is none."""
    return next((word for comment in comments for word in words if comment == start + word), "")
