"""TCP reassembly: packets in, the byte streams of Kafka connections out, in order.

Handles packets that are out of order, retransmitted or missing, and conversations whose beginning was not captured. It also
decides which conversations are Kafka, and which side is the client: by the broker's port, by the handshake, or by what they
send (see recognition.py). All queues are bounded.
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial

from ...decoder.connection.connection import plausible_request
from ...decoder.connection.events import HALF_CLOSED_NS
from ...decoder.wire.frame import MAX_FRAME, foreign_protocol
from ...decoder.wire.tls_records import starts_tls
from .flows import Data, Flow, FlowClosed, FlowOpened, Gap, PlainSide, Recognition, Side, StreamEvent, show
from .packets import ACK, FIN, RST, SYN, Address, TcpSegment, endpoint
from .pcapng import Packet
from .recognition import MOST_KEPT, KafkaRecognizer, may_begin

KAFKA_PORTS = (9092,)
_TLS_PORTS = (9093, 9094, 9095, 9096, 9098, 9194, 9196, 9198)
"""Usual ports of listeners with TLS (Kafka's examples, Amazon MSK): a TLS hello to them is taken for a Kafka client's. Other services use
them too, so everything else there has to look like Kafka."""
_MAX_WAITING = 128  # packets kept per direction while one before them is missing
_MAX_WAITING_BYTES = 4 << 20
_MAX_BROKERS = 10_000
_MAX_ON_TRIAL = 16 * MOST_KEPT  # bytes of all conversations of which it is not known yet whether they are Kafka
UNANSWERED_NS = 10 * 10**9
"""A SYN that has no answer for so long gets none: by then it was sent four times (RFC 6298)."""
_SENT_AGAIN_NS = 10**9  # after so long an unanswered SYN is sent again for the first time
_HALF = 1 << 31
_FULL = 1 << 32


class Reassembler:
    """Feed it packets in file order. `awaited(flow, correlation_id)`: whether a request waits for that
    response; it is asked where a stream has to be picked up in the middle.

    `in_order` is for our own recordings: nothing to reorder, every gap is final, and frames start packets. Who takes the data
    counts bytes that were cut; if it cannot go on behind them, it ends `Side.synced` and adds them to `Side.skipped`.
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
        self._undecided = 0  # bytes kept
        self._foreign = 0
        self._strangers: set[frozenset[bytes]] = set()
        self._tls: set[frozenset[bytes]] = set()
        self._brokers: set[Address] = set()  # known Kafka brokers, on any port
        self.opening: dict[int, Flow] = {}  # tried, not answered yet, oldest first
        self.half_open: dict[int, Flow] = {}  # ended by one side, and not returned by `half_closed` yet

    def feed(self, packet: Packet, segment: TcpSegment) -> Iterator[StreamEvent]:
        """The events that this packet completes."""
        events = self._feed(packet, segment)
        return events if self._in_order else self._known(events)

    def _known(self, events: Iterator[StreamEvent]) -> Iterator[StreamEvent]:
        """These events and those kept back, of conversations known to be Kafka."""
        for event in events:
            flow = event.flow
            recognizer = flow.recognizer
            if recognizer is None:
                if flow.kafka:
                    yield event
                continue
            before = recognizer.kept
            verdict = recognizer.add(event)
            self._undecided += recognizer.kept - before
            if self._is_known(flow):
                verdict = Recognition.KAFKA  # another connection to this broker has shown it
            elif verdict is Recognition.UNDECIDED and (isinstance(event, FlowClosed) or self._undecided > _MAX_ON_TRIAL):
                verdict = recognizer.last()
            if verdict is not Recognition.UNDECIDED:
                yield from self._decided(flow, verdict)

    def _decided(self, flow: Flow, verdict: Recognition) -> Iterator[StreamEvent]:
        recognizer, flow.recognizer = flow.recognizer, None
        assert recognizer is not None
        self._undecided -= recognizer.kept
        if verdict is Recognition.KAFKA:
            yield self._accept(flow)
            yield from recognizer.events
            return
        flow.kafka, flow.foreign = False, True
        flow.held.clear()
        for side in flow.sides:
            side.next, side.synced, side.skipped, side.waiting_bytes = None, False, 0, 0
            side.waiting.clear()
        flow.unread = [0, 0]
        client, broker = flow.ends
        if (flow.interface, client, broker) not in self._flows:
            self._foreign += 1  # it is closed
        elif not flow.handshake:
            # Which side asks is not known either.
            self._forget(flow)
            if len(self._strangers) < 10_000:
                self._strangers.add(frozenset(flow.ends))

    def _forget(self, flow: Flow) -> None:
        self.half_open.pop(id(flow), None)
        client, broker = flow.ends
        self._flows.pop((flow.interface, client, broker), None)
        self._flows.pop((flow.interface, broker, client), None)

    def _feed(self, packet: Packet, segment: TcpSegment) -> Iterator[StreamEvent]:
        # The same packet seen on two interfaces ("any", or a bridge) is sent-again data of one flow. Our own
        # recordings have one leg per interface.
        interface = packet.interface if self._in_order else 0
        key = (interface, segment.source, segment.target)
        found = self._flows.get(key)
        if self.opening:
            yield from self.unanswered(packet.time_ns - UNANSWERED_NS, packet.time_ns)
        if segment.flags & SYN:
            if found and found[0].sides[found[1]].next in (None, segment.sequence + 1 & _FULL - 1):
                flow, direction = found  # the answer to a handshake, or the same packet again
            else:
                if found and not found[0].over:
                    yield from self._close(found[0], packet.time_ns)
                flow, direction = self._open(key, 1 if segment.flags & ACK else 0, packet.time_ns)
                flow.comments, flow.handshake = packet.comments, True
                if not segment.flags & ACK and not self._in_order:
                    self.opening[id(flow)] = flow
            if self._in_order or direction == 1:
                yield from self._established(flow)
            side = flow.sides[direction]
            if side.next is None:
                side.next, side.synced = segment.sequence + 1 & _FULL - 1, True
            return
        if found is not None and found[0].over:
            if segment.payload or segment.flags & (FIN | RST):
                self._forget(found[0])
            found = None
        if found is None:
            if not segment.payload:
                return  # the last acknowledgement of a closed connection, or a probe
            if endpoint(segment.source)[1] in self._ports:
                found = self._open(key, 1, packet.time_ns)
            elif endpoint(segment.target)[1] in self._ports or may_begin(segment.payload):
                found = self._open(key, 0, packet.time_ns)
            else:
                if len(self._strangers) < 10_000:
                    self._strangers.add(frozenset(key[1:]))
                self._look(key, segment.payload)
                return
        flow, direction = found
        side = flow.sides[direction]
        if not segment.flags & RST:
            yield from self._established(flow)
        if segment.payload or segment.cut or (self._in_order and packet.comments and not segment.flags & (FIN | RST)):
            if not flow.kafka and direction == 0 and flow.broker[1] in _TLS_PORTS and starts_tls(segment.payload):
                yield self._accept(flow)
            if not flow.kafka:
                if not (direction == 0 and may_begin(segment.payload)):
                    flow.foreign = True
                    self._look(key, segment.payload)
                    if side.next is not None:
                        side.next, side.synced = None, False
                    return
                flow.recognizer, flow.kafka = KafkaRecognizer(), True
            elif flow.recognizer is not None and direction == 1:
                flow.recognizer.answered = True
            at = packet.data_offset + segment.start
            data = Data(flow, direction, packet.time_ns, segment.payload, packet.offset, at, packet.comments, segment.cut)
            if flow.sides[1 - direction].waiting:
                # What the other side sends now may refer to bytes that are still missing: an answer must not
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
            if id(flow) in self.opening and self._is_known(flow):
                # Reset before it was established; the client itself may have thought better of it.
                yield self._accept(flow, False)
                yield from self._close(flow, packet.time_ns, "refused" if direction else "unreached", direction)
                return
            # What came first ended it: a RST behind a FIN may only answer bytes sent to an end that had closed.
            closing = flow.ender >= 0
            if not closing:
                flow.ender, flow.ended_ns, flow.end_comments = direction, packet.time_ns, packet.comments
            if segment.flags & RST or flow.sides[1 - direction].finished:
                how = "fin" if closing or not segment.flags & RST else "rst"
                yield from self._close(flow, packet.time_ns, how, flow.ender)
            else:
                self.half_open[id(flow)] = flow

    def _open(self, key: tuple[int, bytes, bytes], direction: int, time_ns: int) -> tuple[Flow, int]:
        interface, source, target = key
        client, broker = (source, target) if direction == 0 else (target, source)
        flow = Flow(endpoint(client), endpoint(broker), (Side(), Side()), (client, broker), interface, time_ns)
        self._flows[interface, client, broker] = flow, 0
        self._flows[interface, broker, client] = flow, 1
        return flow, direction

    def _is_known(self, flow: Flow) -> bool:
        return self._in_order or flow.broker[1] in self._ports or flow.broker in self._brokers

    def _established(self, flow: Flow) -> Iterator[StreamEvent]:
        """The flow has gone beyond its SYN: report it, if its broker makes it Kafka."""
        self.opening.pop(id(flow), None)
        if flow.given_up:  # late, but there
            flow.given_up = flow.kafka = False
        if not flow.kafka and self._is_known(flow):
            yield self._accept(flow)

    def _accept(self, flow: Flow, established: bool = True) -> FlowOpened:
        self._kafka += 1
        flow.kafka, flow.number = True, self._kafka
        if len(self._brokers) < _MAX_BROKERS:
            self._brokers.add(flow.broker)
        return FlowOpened(flow, flow.opened_ns, established)

    def unanswered(self, before_ns: int, time_ns: int) -> Iterator[StreamEvent]:
        """Tell of the connections tried before a time, and in vain."""
        while self.opening:
            first = next(iter(self.opening.values()))
            if first.opened_ns > before_ns:
                return
            del self.opening[id(first)]
            if self._is_known(first):
                # It stays among the flows: its SYN may be sent again, or be answered after all.
                first.given_up = True
                yield self._accept(first, False)
                yield FlowClosed(first, time_ns, "unreached")

    @property
    def foreign(self) -> int:
        """The number of conversations with data known not to be Kafka."""
        flows = {id(flow): flow for flow, _ in self._flows.values()}.values()
        return self._foreign + len(self._strangers) + sum(flow.foreign and not flow.kafka for flow in flows)

    def _look(self, key: tuple[int, bytes, bytes], payload: bytes) -> None:
        """Remember conversations that are closed to us by TLS."""
        if payload[:1] == b"\x16" and len(self._tls) < 10_000 and foreign_protocol(payload[:8]) == "a TLS hello":
            self._tls.add(frozenset(key[1:]))

    @property
    def tls(self) -> int:
        """The number of foreign conversations that begin with a TLS hello."""
        return len(self._tls)

    def _close(self, flow: Flow, time_ns: int, how: str = "", by: int = -1) -> Iterator[StreamEvent]:
        """End a flow: what still waited for missing packets comes out. `by`: the direction that ended it."""
        self._forget(flow)
        if not how and flow.ender >= 0:
            how, by = "fin", flow.ender  # the other end's FIN was not captured
        if flow.ender == 1 and by == 1:
            time_ns = flow.ended_ns  # no answer comes after a broker's FIN, whenever the client closes
        if self.opening.pop(id(flow), None) and not how and self._is_known(flow):
            # Its port is used again, and no answer to the SYN was seen.
            yield self._accept(flow, False)
            how = "unreached"
        if flow.kafka and not flow.given_up:
            yield from self._give_up_waiting(flow)
            yield FlowClosed(flow, time_ns, how, ("client", "broker")[by] if by >= 0 else "")
        elif flow.foreign:
            self._foreign += 1

    def finish(self, time_ns: int = 0) -> Iterator[StreamEvent]:
        """The capture ends (at `time_ns`): what still waited for missing packets comes out. Connections stay open, except those that
        a broker has ended: no answer can come. A client may still get answers after its own FIN, so its end counts only if the capture
        goes on for `HALF_CLOSED_NS`."""
        for flow in self.flows():
            yield from self._known(self._give_up_waiting(flow))
            if flow.recognizer is not None:
                yield from self._decided(flow, flow.recognizer.last())
            if flow.kafka and (flow.ender == 1 or (flow.ender == 0 and time_ns - flow.ended_ns >= HALF_CLOSED_NS)):
                yield from self._close(flow, flow.ended_ns)
                flow.over = True
                client, broker = flow.ends
                self._flows[flow.interface, client, broker] = flow, 0
                self._flows[flow.interface, broker, client] = flow, 1
        yield from self.unanswered(time_ns - _SENT_AGAIN_NS, time_ns)

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

    def _arrived(self, side: PlainSide, sequence: int, data: Data) -> Iterator[StreamEvent]:
        if side.next is None:
            side.next = sequence
        ahead = sequence - side.next & _FULL - 1
        if ahead >= _HALF:  # starts before the next byte: sent again, at least in part
            old = _FULL - ahead
            if old >= data.length:
                return
            data = data.behind(old)
        elif ahead:
            kept = side.waiting.get(sequence)
            if kept is None or kept.length < data.length:
                side.waiting_bytes += len(data.data) - (len(kept.data) if kept else 0)
                side.waiting[sequence] = data
            if self._in_order or len(side.waiting) > _MAX_WAITING or side.waiting_bytes > _MAX_WAITING_BYTES:
                yield from self._skip_gap(side)
            return
        yield from self._deliver(side, data)
        yield from self._drain(side)

    def _drain(self, side: PlainSide) -> Iterator[StreamEvent]:
        """Deliver what waited for the bytes that have just come."""
        while side.waiting and side.next is not None:
            sequence = min(side.waiting, key=lambda s: (s - (side.next or 0) + _HALF) % _FULL)
            ahead = sequence - side.next & _FULL - 1
            if 0 < ahead < _HALF:
                return
            data = side.waiting.pop(sequence)
            side.waiting_bytes -= len(data.data)
            old = -ahead % _FULL
            if old < data.length or not (data.length or old):
                yield from self._deliver(side, data.behind(old))

    def _skip_gap(self, side: PlainSide) -> Iterator[StreamEvent]:
        """Stop waiting for the missing bytes and go on behind them."""
        start = side.next or 0
        sequence = min(side.waiting, key=lambda s: (s - start) % _FULL)
        missing = sequence - start & _FULL - 1
        side.next, side.synced = sequence, self._in_order
        if self._in_order:
            data = side.waiting[sequence]
            yield Gap(data.flow, data.direction, missing, data.time_ns)
        else:
            side.skipped += missing
        yield from self._drain(side)

    def _deliver(self, side: PlainSide, data: Data) -> Iterator[StreamEvent]:
        side.next = (side.next or 0) + data.length & _FULL - 1
        if not side.synced:
            # Pick the stream up at a packet that starts like a frame.
            if not self._starts_frame(data):
                side.skipped += data.length if self._in_order else data.cut
                data.flow.unread[data.direction] += 0 if self._in_order else len(data.data)
                return
            side.synced = True
            unread = data.flow.unread[data.direction]
            if side.skipped or unread:
                yield Gap(data.flow, data.direction, side.skipped, data.time_ns, unread)
                side.skipped = data.flow.unread[data.direction] = 0
        yield data

    def flows(self) -> list[Flow]:
        """All flows that are open."""
        return list({id(flow): flow for flow, _ in self._flows.values() if not flow.over}.values())

    def half_closed(self, time_ns: int) -> list[Flow]:
        """Flows that one side ended `HALF_CLOSED_NS` before a time, once each. They stay open for what may still come."""
        due = [flow for flow in self.half_open.values() if time_ns - flow.ended_ns >= HALF_CLOSED_NS and self.is_settled(flow)]
        for flow in due:
            del self.half_open[id(flow)]
        return due

    def flow_of(self, segment: TcpSegment) -> Flow | None:
        """The flow of a segment, as far as it is known; for foreign captures."""
        found = self._flows.get((0, segment.source, segment.target))
        return found[0] if found and not found[0].over else None

    def show(self, segment: TcpSegment) -> bool:
        """Keep what a segment shows of bytes that it does not carry; False when its connection is not known yet."""
        flow = self.flow_of(segment)
        if flow is not None:
            show(flow.sides[0 if segment.source == flow.ends[0] else 1], segment)
        return flow is not None

    def is_settled(self, flow: Flow) -> bool:
        """Whether a flow is a Kafka connection with nothing held back."""
        first, second = flow.sides
        return (
            flow.kafka
            and not flow.over
            and flow.recognizer is None
            and not flow.given_up
            and not flow.held
            and not first.waiting
            and not second.waiting
            and id(flow) not in self.opening
        )

    def _starts_frame(self, data: Data) -> bool:
        if data.direction == 0:
            return _starts_request(data.data)
        awaits = partial(self._awaited, data.flow) if data.flow.recognizer is None else data.flow.recognizer.awaits
        size = int.from_bytes(data.data[:4], "big")
        correlation_id = int.from_bytes(data.data[4:8], "big", signed=True)
        return len(data.data) >= 8 and 4 <= size <= MAX_FRAME and awaits(correlation_id)


def _starts_request(data: bytes) -> bool:
    """Whether bytes start with the size and header of a request."""
    return 8 <= int.from_bytes(data[:4], "big") <= MAX_FRAME and plausible_request(data[4:])
