"""TCP reassembly: packets in, the byte streams of Kafka connections out, in order.

Handles packets out of order, sent again, missing, and conversations whose beginning was not captured. Which
conversations are Kafka, and which side is the client, is found out here: by the broker's port, by the handshake,
or by the first bytes that look like a request. All queues are bounded.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..decoder.connection import plausible_request
from ..decoder.frame import MAX_FRAME
from .packets import ACK, FIN, RST, SYN, Address, TcpSegment, endpoint
from .pcapng import Packet

KAFKA_PORTS = (9092,)
_MAX_WAITING = 128  # packets kept per direction while one before them is missing
_MAX_WAITING_BYTES = 4 << 20
_HALF = 1 << 31
_FULL = 1 << 32


class Opened(NamedTuple):
    """A connection begins (or the capture does, in the middle of it)."""

    flow: "Flow"
    time_ns: int


class Data(NamedTuple):
    """The next bytes of one direction. `offset` is the file offset of the packet's block, `at` that of the bytes."""

    flow: "Flow"
    direction: int
    time_ns: int
    data: bytes
    offset: int
    at: int
    comments: tuple[str, ...]


class Gap(NamedTuple):
    """Bytes are missing here; the next `Data` of this direction starts at a frame."""

    flow: "Flow"
    direction: int
    size: int


class Closed(NamedTuple):
    """The connection ended."""

    flow: "Flow"
    time_ns: int


StreamEvent = Opened | Data | Gap | Closed


class _Side:
    """One direction of a flow."""

    __slots__ = ("finished", "next", "skipped", "synced", "waiting", "waiting_bytes")

    def __init__(self) -> None:
        self.next: int | None = None  # the sequence number of the next byte
        self.synced = False  # the next byte is known to start a frame, or to continue one that did
        self.finished = False
        self.skipped = 0  # bytes given up since the last Data
        self.waiting: dict[int, Data] = {}
        self.waiting_bytes = 0


@dataclass(slots=True, eq=False)
class Flow:
    """One TCP connection. `number` counts the Kafka connections from 1; 0 until the flow turns out to be one."""

    client: Address
    broker: Address
    sides: tuple[_Side, _Side]
    ends: tuple[bytes, bytes]
    interface: int
    number: int = 0
    kafka: bool = False
    foreign: bool = False
    comments: tuple[str, ...] = ()
    held: list[tuple[int, Data]] = field(default_factory=list)


class Reassembler:
    """Feed it packets in file order. `awaited(flow, correlation_id)` says whether a request waits for that
    response; it is asked where a stream has to be picked up in the middle.

    `in_order` is for our own recordings: nothing to reorder, every gap is final, and frames start packets.
    """

    def __init__(
        self,
        awaited: Callable[[Flow, int], bool],
        ports: Collection[int] = KAFKA_PORTS,
        in_order: bool = False,
    ) -> None:
        self._awaited, self._ports, self._in_order = awaited, ports, in_order
        self._flows: dict[tuple[int, bytes, bytes], tuple[Flow, int]] = {}
        self._kafka = 0
        self._foreign = 0
        self._strangers: set[frozenset[bytes]] = set()

    def feed(self, packet: Packet, segment: TcpSegment) -> Iterator[StreamEvent]:
        """What this packet makes known."""
        # The same packet seen on two interfaces ("any", or a bridge) is sent-again data of one flow. Our own
        # recordings have one leg per interface.
        interface = packet.interface if self._in_order else 0
        key = (interface, segment.source, segment.target)
        found = self._flows.get(key)
        if segment.flags & SYN:
            if found and found[0].sides[found[1]].next in (None, segment.sequence + 1 & _FULL - 1):
                flow, direction = found  # the answer to a handshake, or the same packet again
            else:
                if found:
                    yield from self.close(found[0], packet.time_ns)
                flow, direction = self._open(key, 1 if segment.flags & ACK else 0)
                flow.comments = packet.comments
                if self._is_known(flow):
                    yield self._accept(flow, packet.time_ns)
            side = flow.sides[direction]
            if side.next is None:
                side.next, side.synced = segment.sequence + 1 & _FULL - 1, True
            return
        if found is None:
            if not segment.payload:
                return  # the last acknowledgement of a closed connection, or a probe
            if endpoint(segment.source)[1] in self._ports:
                found = self._open(key, 1)
            elif endpoint(segment.target)[1] in self._ports or _starts_request(segment.payload):
                found = self._open(key, 0)
            else:
                if len(self._strangers) < 10_000:
                    self._strangers.add(frozenset(key[1:]))
                return
        flow, direction = found
        side = flow.sides[direction]
        if segment.payload:
            if not flow.kafka:
                if not (self._is_known(flow) or (direction == 0 and _starts_request(segment.payload))):
                    flow.foreign = True
                    if side.next is not None:
                        side.next, side.synced = None, False
                    return
                yield self._accept(flow, packet.time_ns)
            at = packet.data_offset + segment.start
            data = Data(flow, direction, packet.time_ns, segment.payload, packet.offset, at, packet.comments)
            if flow.sides[1 - direction].waiting:
                # What the other side says now may be about bytes that are still missing: an answer must not
                # overtake its question.
                flow.held.append((segment.sequence, data))
                if len(flow.held) > _MAX_WAITING:
                    yield from self._give_up_waiting(flow)
            else:
                yield from self._arrived(side, segment.sequence, data)
                if flow.held and not side.waiting:
                    yield from self._release(flow)
        if segment.flags & (FIN | RST):
            side.finished = True
            if segment.flags & RST or self._in_order or flow.sides[1 - direction].finished:
                yield from self.close(flow, packet.time_ns)

    def _open(self, key: tuple[int, bytes, bytes], direction: int) -> tuple[Flow, int]:
        interface, source, target = key
        client, broker = (source, target) if direction == 0 else (target, source)
        flow = Flow(endpoint(client), endpoint(broker), (_Side(), _Side()), (client, broker), interface)
        self._flows[interface, client, broker] = flow, 0
        self._flows[interface, broker, client] = flow, 1
        return flow, direction

    def _is_known(self, flow: Flow) -> bool:
        return self._in_order or flow.broker[1] in self._ports

    def _accept(self, flow: Flow, time_ns: int) -> Opened:
        self._kafka += 1
        flow.kafka, flow.number = True, self._kafka
        return Opened(flow, time_ns)

    @property
    def foreign(self) -> int:
        """How many conversations with data are not Kafka, as far as anybody can tell."""
        flows = {id(flow): flow for flow, _ in self._flows.values()}.values()
        return self._foreign + len(self._strangers) + sum(flow.foreign and not flow.kafka for flow in flows)

    def close(self, flow: Flow, time_ns: int) -> Iterator[StreamEvent]:
        """End a flow: what still waited for missing packets comes out."""
        client, broker = flow.ends
        self._flows.pop((flow.interface, client, broker), None)
        self._flows.pop((flow.interface, broker, client), None)
        if flow.kafka:
            yield from self._give_up_waiting(flow)
            yield Closed(flow, time_ns)
        elif flow.foreign:
            self._foreign += 1

    def finish(self) -> Iterator[StreamEvent]:
        """The capture ends: what still waited for missing packets comes out; connections stay open."""
        for flow in {id(flow): flow for flow, _ in self._flows.values()}.values():
            yield from self._give_up_waiting(flow)

    def _give_up_waiting(self, flow: Flow) -> Iterator[StreamEvent]:
        while flow.held or flow.sides[0].waiting or flow.sides[1].waiting:
            for side in flow.sides:
                while side.waiting:
                    yield from self._skip_gap(side)
            yield from self._release(flow)

    def _release(self, flow: Flow) -> Iterator[StreamEvent]:
        held, flow.held = flow.held, []
        for sequence, data in held:
            yield from self._arrived(flow.sides[data.direction], sequence, data)

    def _arrived(self, side: _Side, sequence: int, data: Data) -> Iterator[StreamEvent]:
        if side.next is None:
            side.next = sequence
        ahead = sequence - side.next & _FULL - 1
        if ahead >= _HALF:  # starts before the next byte: sent again, at least in part
            old = _FULL - ahead
            if old >= len(data.data):
                return
            data = data._replace(data=data.data[old:], at=data.at + old)
        elif ahead:
            kept = side.waiting.get(sequence)
            if kept is None or len(kept.data) < len(data.data):
                side.waiting_bytes += len(data.data) - (len(kept.data) if kept else 0)
                side.waiting[sequence] = data
            if self._in_order or len(side.waiting) > _MAX_WAITING or side.waiting_bytes > _MAX_WAITING_BYTES:
                yield from self._skip_gap(side)
            return
        yield from self._deliver(side, data)
        yield from self._drain(side)

    def _drain(self, side: _Side) -> Iterator[StreamEvent]:
        """Deliver what waited for the bytes that have just come."""
        while side.waiting and side.next is not None:
            sequence = min(side.waiting, key=lambda s: (s - (side.next or 0) + _HALF) % _FULL)
            ahead = sequence - side.next & _FULL - 1
            if 0 < ahead < _HALF:
                return
            data = side.waiting.pop(sequence)
            side.waiting_bytes -= len(data.data)
            old = -ahead % _FULL
            if old < len(data.data):
                yield from self._deliver(side, data._replace(data=data.data[old:], at=data.at + old))

    def _skip_gap(self, side: _Side) -> Iterator[StreamEvent]:
        """Stop waiting for the missing bytes and go on behind them."""
        start = side.next or 0
        sequence = min(side.waiting, key=lambda s: (s - start) % _FULL)
        missing = sequence - start & _FULL - 1
        side.next, side.synced = sequence, self._in_order
        if self._in_order:
            data = side.waiting[sequence]
            yield Gap(data.flow, data.direction, missing)
        else:
            side.skipped += missing
        yield from self._drain(side)

    def _deliver(self, side: _Side, data: Data) -> Iterator[StreamEvent]:
        side.next = (side.next or 0) + len(data.data) & _FULL - 1
        if not side.synced:
            # Pick the stream up at a packet that starts like a frame.
            if not self._starts_frame(data):
                side.skipped += len(data.data)
                return
            side.synced = True
            if side.skipped:
                yield Gap(data.flow, data.direction, side.skipped)
                side.skipped = 0
        yield data

    def _starts_frame(self, data: Data) -> bool:
        if data.direction == 0:
            return _starts_request(data.data)
        size = int.from_bytes(data.data[:4], "big")
        correlation_id = int.from_bytes(data.data[4:8], "big", signed=True)
        return len(data.data) >= 8 and 4 <= size <= MAX_FRAME and self._awaited(data.flow, correlation_id)


def _starts_request(data: bytes) -> bool:
    """Whether bytes start with the size and header of a request."""
    return 8 <= int.from_bytes(data[:4], "big") <= MAX_FRAME and plausible_request(data[4:])
