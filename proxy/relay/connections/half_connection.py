"""One direction of one connection: from a socket through the ring to the other socket.

`HalfConnection.pump` is the hot path: receive into the ring, send the same memory on, note where frames begin, publish. It
looks at no more than sizes (and, in requests, at api keys that are watched). When a frame of this direction has to
be held, or the order of responses matters, the same bytes go through `filter_frames` instead: frame by frame, still
forwarding everything that was not asked for before it is complete. Which frames are held is the connection's decision
(`Connection.holds`), made from their first bytes.

Where it can be, `pump` is done in C (`proxy/native/mover.c`, see `native`): both share the fields of `State`, and a half-connection may
change between the two with every chunk.

Its life is a `HalfConnectionState`. Beside that: nothing is read while bytes are `pending` (the sink did not take them) or it is
`paused` (a frame waits for a decision, or as a rule wants it); an `opaque` stream is no Kafka, its bytes pass as they come.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from ....decoder.wire.acks import ACKS_REACH, acks_end
from ....decoder.wire.frame import Direction, foreign_protocol
from ...native.accelerator import native
from ...ring.clock import now_ns
from ...ring.ring import CAREFUL_CHUNK, CHUNK, NONE, Kind
from ..addressing.node_endpoint_scanner import NodeEndpointScanner
from ..interception.frame_editor import PRODUCE
from ..interception.interest.header_prefix import HeaderPrefix
from .correlation import CORRELATION, REQUEST
from .states import HalfConnectionState, follow

if TYPE_CHECKING:
    from ..interfaces import ConnectionInterface

TURN = 4
"""Chunks one half-connection may move before the others get their turn."""
OWED_LIMIT = 1 << 20
"""Bytes of answers a client may leave unread before its next requests are not read."""
KEPT = 4096
"""A response of up to this size that has to be looked at is kept until it is there as a whole."""
HEAD = (12, 8)
"""Bytes of a frame, size included, that identify it, by direction."""
PASS, JUMP, SCAN, FILTER = range(4)
"""The ways of a chunk; see `HalfConnection._way`."""

SIZE = struct.Struct(">I").unpack_from

FLOWING = HalfConnectionState.FLOWING
_now = now_ns
_DATA = int(Kind.DATA)


class PlainState:
    """The fields of a half-connection that the accelerator knows, too: its type for them is `native.HalfConnectionFields`."""

    __slots__ = (
        "_begun",
        "_carry",
        "_part",
        "connection",
        "direction",
        "endpoint_scanner",
        "foreign",
        "hangup",
        "header_prefix",
        "hold",
        "hold_left",
        "last_head",
        "last_id",
        "left",
        "opaque",
        "paused",
        "pending",
        "position",
        "readable",
        "sink",
        "source",
        "state",
        "waits",
    )


def _fields(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("__")}


MOVES = native is not None and hasattr(native, "Mover") and _fields(native.HalfConnectionFields) == set(PlainState.__slots__)
"""Whether the accelerator can move bytes from socket to socket (`proxy/native/mover.c`): it is there, and no older one with other fields."""
if TYPE_CHECKING or not MOVES:
    State = PlainState
else:
    State = native.HalfConnectionFields


class HalfConnection(State):
    """See the module. Everything here runs on the relay's one thread."""

    __slots__ = ()

    connection: ConnectionInterface
    direction: int
    source: socket.socket
    sink: socket.socket
    state: int
    last_id: int | None

    def __init__(self, connection: ConnectionInterface, direction: Direction) -> None:
        self.connection = connection
        self.direction = int(direction)
        self.state = HalfConnectionState.WAITING
        self.readable = self.hangup = self.opaque = False
        self.pending = bytearray()
        self.position = 0
        """Bytes of the client leg so far."""
        self.left = 0
        """Bytes of the current frame that are still to come (and simply pass)."""
        self.hold: list[bytes] | None = None
        self.hold_left = 0
        self.endpoint_scanner: NodeEndpointScanner | None = None
        """Follows the current frame to its end, if that end may have to be changed."""
        self.header_prefix: HeaderPrefix | None = None
        """Of the frame that is held, if it may turn out in the middle of it that it need not be."""
        self.last_id: int | None = None
        """Correlation id of the last frame seen (only the last one of a chunk is looked at)."""
        self.last_head = b""
        """The beginning of the last request that passed, where it may be asked for (`tracking_mode`)."""
        self.paused = False
        """A frame waits, for a decision (`intercepts`) or as a rule wants it (`fault_executor`): nothing behind it is read or sent."""
        self.waits = 0
        """How many rules let it wait."""
        self.foreign: bytes | None = None
        """The bytes that are no frame, until the connection has dealt with them."""
        self._begun = False
        self._part = b""  # start of a frame's head that has been forwarded already
        self._carry = b""  # start of a frame's head that waits for the decision whether to hold it

    @property
    def open(self) -> bool:
        """Whether both sockets stand."""
        return HalfConnectionState.WAITING < self.state < HalfConnectionState.CLOSED

    @property
    def eof(self) -> bool:
        """Whether the source has ended."""
        return self.state in (HalfConnectionState.ENDED, HalfConnectionState.DONE)

    @property
    def done(self) -> bool:
        """Whether the end was passed on."""
        return self.state == HalfConnectionState.DONE

    def enter(self, state: HalfConnectionState) -> None:
        """Go over to another state."""
        self.state = follow(HalfConnectionState(self.state), state)

    # -- the hot path ----------------------------------------------------------------------------------------

    def pump(self) -> bool:
        """Move what can be moved. True: there is more, come back after the others."""
        if self.state != FLOWING or self.pending or self.paused:
            return False
        connection = self.connection
        relay = connection.relay
        if relay.mover is not None and (moved := relay.mover.pump(self)) is not None:
            return bool(moved)
        writer = relay.writer
        data = writer.data
        direction = self.direction
        receive = self.source.recv_into
        for _ in range(TURN):
            if not writer.has_room():
                relay.wait_for_room(self)
                return False
            way = self._way()
            want = CHUNK
            kept = 0
            if way == FILTER:
                want = CHUNK if self.hold_left > CHUNK else CAREFUL_CHUNK
                if self.left > CAREFUL_CHUNK:
                    # Inside a large frame that passes there is nothing to look at; its last byte is for `filter_frames` again.
                    jump = self.left if self.endpoint_scanner is None else min(self.left, self.endpoint_scanner.skipping)
                    if jump > CAREFUL_CHUNK:
                        way, want = JUMP, min(CHUNK, jump - 1)
            elif way == SCAN:
                kept = len(self._carry)
                if relay.lossless:
                    want = CAREFUL_CHUNK + kept
            if not direction:
                if connection.inline and (connection.response_orderer.owes() > OWED_LIMIT or relay.crowded(connection)):
                    return False
                if connection.draining:
                    if self._at_frame_start() or self.opaque:
                        return False
                    want = min(want, (self.left or self.hold_left or 1) + kept)
            offset, room = writer.space(want)
            if kept:
                # What was kept back of a frame that is not complete yet comes in front of its rest.
                data[offset : offset + kept] = self._carry
                room -= kept
            view = data[offset + kept : offset + kept + room]
            try:
                count = receive(view)
            except BlockingIOError:
                self.readable = False
                return False
            except OSError:
                self.readable = False
                connection.abort()
                return False
            now = _now()
            if not count:
                self.readable = False
                self.ended(now)
                return False
            if way == FILTER:
                self.filter_frames(bytes(view[:count]), now)
                if not self.open or self.paused:
                    return False
            else:
                rest = b""
                cut = count
                if way == SCAN:
                    count += kept
                    first, cut, keep = relay.mover.scan(self, offset, count)
                    if cut < count:
                        rest = bytes(data[offset + cut : offset + count])
                    if keep:
                        self._carry, rest = rest, b""
                    else:
                        self._carry = b""
                if cut:
                    whole = data[offset : offset + cut]
                    try:
                        sent = self.sink.send(whole)
                    except BlockingIOError:
                        sent = 0
                    except OSError:
                        sent = -1
                    if 0 <= sent < cut:
                        # A copy: the ring comes round whether or not the sink reads.
                        self.pending += whole[sent:]
                    if way == JUMP:
                        self.left -= cut
                        if self.endpoint_scanner is not None:
                            self.endpoint_scanner.skip(cut)
                        first = NONE
                    elif way == PASS:
                        first = 0 if self.opaque else relay.mover.note(self, offset, cut)
                    writer.take(_DATA, connection.number, direction, now, cut, first, self.position)
                    self.position += cut
                    if connection.neutralized is not None:
                        connection.note_neutralized(now)
                    if self.foreign is not None:
                        connection.not_kafka(self, now)
                        if not self.open:
                            return False
                    if sent < 0:
                        connection.sink_failed(self)
                        return False
                if rest:
                    self.filter_frames(rest, now)
                    if not self.open or self.paused:
                        return False
            if count - kept < room and not self.hangup:
                self.readable = False
                return False
            if self.pending:
                return False
        return True

    def _way(self) -> int:
        """How the next chunk goes: unseen, scanned for what may pass as it is (in C), or through `filter_frames`."""
        connection = self.connection
        if self.opaque:
            return PASS
        if connection.relay.mover is None:
            return FILTER
        if self.direction:
            if self.hold is not None:
                return FILTER
            if connection.in_flight.out_of_order:
                return FILTER
            if not connection.in_flight and not self._carry and self.endpoint_scanner is None:
                return PASS
            return SCAN if self._begun and not self._part and not connection.in_flight.objects else FILTER
        if not connection.inline:
            # The first requests of a connection settle the versions of all others; see `editing.refuses`.
            return PASS if self._begun and self.hold is None and not self._carry else FILTER
        return SCAN if self._begun and not self._part and self.hold is None else FILTER

    def _at_frame_start(self) -> bool:
        return not self.left and self.hold is None and not self._part and not self._carry

    # -- frame by frame ---------------------------------------------------------------------------------------

    def filter_frames(self, chunk: bytes, now: int) -> None:
        """The chunk frame by frame: pass, hold, or wait for the head."""
        connection = self.connection
        most = connection.relay.guard.limits.max_frame
        data = self._carry + chunk if self._carry else chunk
        self._carry = b""
        at = start = 0
        end = len(data)
        first = NONE
        if self._part:
            at = self.head_complete(memoryview(data), 0, end)
            if self.opaque:
                self._pass(data, now, 0)
                connection.not_kafka(self, now)
                return
        while at < end:
            if not self.open:
                return  # what was sent on just now found nobody, and that has ended the connection
            if self.hold is not None:
                taken = min(self.hold_left, end - at)
                part = data[at : at + taken]
                self.hold.append(part)
                self.hold_left -= taken
                at += taken
                start, first = at, NONE
                connection.relay.held += taken
                if self.header_prefix is not None and self._seen_through(part, now):
                    continue
                if not self.hold_left:
                    self._held(now)
                    if not self.open:
                        return
                    if self.paused:
                        self._carry = data[at:]  # behind a frame that waits for a decision
                        return
                    if self.opaque:
                        self._pass(data[at:], now, 0)
                        return
                elif connection.relay.held > connection.relay.hold_limit:
                    connection.too_large_to_hold(self)
                    if not self.open:
                        return
                    self._let_go(now)
                continue
            if self.left:
                passed = min(self.left, end - at)
                if self.endpoint_scanner is not None:
                    place = self.endpoint_scanner.feed(data[at : at + passed])
                    if place >= 0:
                        at += place
                        self.left -= place
                        self._pass(data[start:at], now, first)
                        start, first = at, NONE
                        self._hold_end()
                        continue
                self.left -= passed
                at += passed
                if not self.left:
                    self.endpoint_scanner = None
                    if self.direction and connection.response_orderer.is_next():
                        self._pass(data[start:at], now, first)
                        start, first = at, NONE
                        connection.response_orderer.deliver(now)
                        if self.paused:
                            self._carry = data[at:]  # behind an answer that is delayed
                            return
                continue
            available = end - at
            size = SIZE(data, at)[0] if available >= 4 else 0
            if available >= 4 and (size > most or (not self._begun and foreign_protocol(data[at : at + 4]))):
                self._pass(data[start:at], now, first)
                rest = data[at:]
                self.not_frames(rest[:8])
                self._pass(rest, now, 0)
                connection.not_kafka(self, now)
                return
            if available < 4 or available < self._head_size(data, at, end):
                break
            self._begun = True
            if at > start and self.direction and connection.correlation.is_overdue(data, at):
                self._pass(data[start:at], now, first)  # answers that are due go behind it
                start, first = at, NONE
            if first == NONE:
                first = at - start
            held = connection.holds(self, data, at, size)
            if not self.open:
                return
            if self.paused:
                self._pass(data[start:at], now, first)
                self._carry = data[at:]  # an answer in front of it is delayed
                return
            if held:
                if at > start:
                    self._pass(data[start:at], now, first)
                    if not self.open:
                        return
                start, first = at, NONE
                self.hold, self.hold_left = [], size + 4
            elif self.endpoint_scanner is not None:
                # The size goes by; the rest is followed.
                at += 4
                self.left = size
            else:
                self.left = size + 4
        if at > start:
            self._pass(data[start:at], now, first)
        self._carry = data[at:]

    def _seen_through(self, part: bytes, now: int) -> bool:
        """Whether the rest of a frame that is held need not be seen, and what is there of it has passed."""
        prefix = self.header_prefix
        if prefix is None or self.hold is None or not self.hold_left or prefix.failed:
            self.header_prefix = None
            return False
        if not prefix.feed(part):
            return False
        self.header_prefix = None
        held = b"".join(self.hold)
        self.hold = [held]
        if not self.connection.passes_by_prefix(self, prefix.frame, held, now):
            return False
        self.take_held()
        self.left, self.hold_left = self.hold_left, 0
        self._pass(held, now, 0)
        return True

    def _hold_end(self) -> None:
        """The end of a frame, whose beginning has passed, is held back."""
        if self.left:
            self.hold, self.hold_left, self.left = [], self.left, 0
        else:
            self.endpoint_scanner = None

    def _held(self, now: int) -> None:
        """What was held is complete."""
        self.header_prefix = None
        frame = self.take_held()
        if self.endpoint_scanner is None:
            self.connection.held_frame(self, frame, now)
            return
        endpoint_scanner, self.endpoint_scanner = self.endpoint_scanner, None
        changed = self.connection.held_end(frame, endpoint_scanner)
        self.connection.note_neutralized(now)
        self._pass(changed, now, NONE)
        if self.open and self.direction:
            self.connection.response_orderer.deliver(now)

    def take_held(self) -> bytes:
        """What is held of a frame, which is held no longer."""
        held = b"".join(self.hold or ())
        self.hold = None
        self.connection.relay.held -= len(held)
        return held

    def head_complete(self, data: memoryview, at: int, count: int) -> int:
        """Read on in a frame's head that is being forwarded: how many bytes of the chunk belong to heads.

        Afterwards `left` is what follows of the frame, or `_part` holds the incomplete head. Frames that are
        shorter than a head are passed over here as well.
        """
        used = 0
        head = self._part
        want = self._head_size(head, 0, len(head))
        while used < count:
            take = min(want - len(head), count - used)
            head += bytes(data[at + used : at + used + take])
            used += take
            if len(head) < want:
                break
            if len(head) == 4:
                (size,) = SIZE(head)
                most = self.connection.relay.guard.limits.max_frame
                if size > most or (not self._begun and foreign_protocol(head)):
                    self._begun = True
                    self._part = b""
                    self.not_frames(head)
                    return used
            self._begun = True
            want = self._head_size(head, 0, len(head))
            if len(head) < want:
                continue
            (size,) = SIZE(head)
            if self.direction:
                if size >= 4:
                    (self.last_id,) = CORRELATION(head, 4)
                    self.connection.correlation.passed(self.last_id)
            elif size >= 8:
                _, key, version, self.last_id = REQUEST(head)
                self.last_head = head
                if (key << 16 | version) in self.connection.relay.watch or self.connection.inline:
                    self.connection.correlation.expect(head, 0, len(head), self.connection.inline)
            self.left = size + 4 - want
            head = b""
            if self.left:
                break
            want = 4
        self._part = head
        return used

    def _head_size(self, data: bytes | memoryview, at: int, end: int) -> int:
        """How many bytes of the frame at `at` identify it, judged by those up to `end`; a Produce's reach to its acks, which
        decide whether it gets a response."""
        if end - at < 4:
            return 4
        whole: int = SIZE(data, at)[0] + 4
        size = HEAD[self.direction]
        if not self.direction and end - at >= size <= whole and data[at + 4] == 0 and data[at + 5] == PRODUCE:
            reach = acks_end(data, at, end) - at
            if reach <= ACKS_REACH:
                size = reach
        return min(size, whole)

    def _pass(self, data: bytes, now: int, first: int) -> None:
        if data:
            self.connection.relay.writer.write(
                Kind.DATA, self.connection.number, self.direction, now, data, first, self.position
            )
            self.position += len(data)
            self.push(data)

    def at_boundary(self) -> bool:
        """Whether a whole frame can be put in here (what waits in `_carry` has not been sent)."""
        return not self.left and self.hold is None and not self._part and not self.opaque and not self.paused

    @property
    def split_head(self) -> bool:
        """Whether a part of a frame's head has passed, so that it is not known yet what the frame is."""
        return bool(self._part)

    def emit(self, data: bytes, now: int) -> None:
        """Send whole frames on and publish them as bytes of the client leg."""
        self._pass(data, now, 0)

    def _let_go(self, now: int) -> None:
        """Give up holding the current frame: forward what is there and let the rest pass."""
        self.header_prefix = None
        if self.hold is None:
            return
        held = self.take_held()
        self.left, self.hold_left = self.hold_left, 0
        first = 0 if self.endpoint_scanner is None else NONE
        self.endpoint_scanner = None
        self._pass(held, now, first)

    def spill(self, now: int) -> None:
        """Forward whatever is kept back, as it came."""
        self._let_go(now)
        carry, self._carry = self._carry, b""
        self._pass(carry, now, NONE)

    def not_frames(self, head: bytes) -> None:
        """The stream holds no frames from here on."""
        self.opaque, self.foreign = True, head

    # -- the sink --------------------------------------------------------------------------------------------

    def push(self, data: bytes) -> None:
        """Send, or keep what the sink does not take."""
        if self.pending or self.state == HalfConnectionState.DONE:
            self.pending += data
            return
        try:
            sent = self.sink.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.connection.sink_failed(self)
            return
        if sent < len(data):
            self.pending += memoryview(data)[sent:]

    def flush(self) -> None:
        """The sink can take bytes again."""
        pending = self.pending
        try:
            while pending:
                with memoryview(pending) as view:
                    sent = self.sink.send(view[:CHUNK])
                del pending[:sent]
        except BlockingIOError:
            return
        except OSError:
            self.connection.sink_failed(self)
            return
        if len(pending) == 0:
            self.pending = bytearray()  # give the memory back
        if self.eof:
            self._pass_end()

    def ended(self, now: int) -> None:
        self.enter(HalfConnectionState.ENDED)
        self.spill(now)
        if self.direction and self.open:
            self.connection.response_orderer.deliver_all(now)
        if self.open:
            self.connection.half_ended(self, now)
            if not self.pending:
                self._pass_end()

    def _pass_end(self) -> None:
        """Pass the end of the stream on: FIN as FIN, the other direction stays open."""
        if self.state != HalfConnectionState.ENDED:
            return
        self.enter(HalfConnectionState.DONE)
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.connection.half_done()
