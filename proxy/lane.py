"""One direction of one connection: from a socket through the ring to the other socket.

`Lane.pump` is the hot path: receive into the ring, send the same memory on, note where frames begin, publish. It
looks at no more than sizes (and, in requests, at api keys that are watched). When a frame of this direction has to
be held, or the order of responses matters, the same bytes go through `_sift` instead: frame by frame, still
forwarding everything that was not asked for before it is complete.

States a lane can be in: `open` (both sockets stand), `pending` (bytes the sink did not take: nothing is read until
it does), `eof` (source ended), `done` (end passed on), `opaque` (no Kafka: bytes only).
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

from ..decoder.frame import MAX_FRAME, Direction, foreign_protocol
from .ring import CAREFUL_CHUNK, CHUNK, NONE, Kind

if TYPE_CHECKING:
    from .connection import Connection

TURN = 4
"""Chunks one lane may move before the others get their turn."""
OWED_LIMIT = 1 << 20
"""Bytes of answers a client may leave unread before its next requests are not read."""

_SIZE = struct.Struct(">I").unpack_from
_SIZE_KEY = struct.Struct(">IH").unpack_from
_REQUEST = struct.Struct(">IhhI").unpack_from
_CORRELATION = struct.Struct(">I").unpack_from
_HEAD = (12, 8)
"""Bytes of a frame, size included, that tell what it is, by direction."""

_now = time.time_ns


class Lane:
    """See the module. Everything here runs on the relay's one thread."""

    __slots__ = (
        "_begun",
        "_carry",
        "_part",
        "connection",
        "direction",
        "done",
        "eof",
        "foreign",
        "hangup",
        "hold",
        "hold_left",
        "last_id",
        "left",
        "opaque",
        "open",
        "pending",
        "position",
        "readable",
        "sink",
        "source",
    )

    def __init__(self, connection: Connection, direction: Direction) -> None:
        self.connection = connection
        self.direction = int(direction)
        self.source: socket.socket
        self.sink: socket.socket
        self.open = self.readable = self.hangup = False
        self.eof = self.done = self.opaque = False
        self.pending = bytearray()
        self.position = 0
        """Bytes of the client leg so far."""
        self.left = 0
        """Bytes of the current frame that are still to come (and simply pass)."""
        self.hold: bytearray | None = None
        self.hold_left = 0
        self.last_id: int | None = None
        """Correlation id of the last frame seen (only the last one of a chunk is looked at)."""
        self.foreign: bytes | None = None
        """The bytes that are no frame, until the connection has dealt with them."""
        self._begun = False
        self._part = b""  # start of a frame's head that has been forwarded already
        self._carry = b""  # start of a frame's head that waits for the decision whether to hold it

    # -- the hot path ----------------------------------------------------------------------------------------

    def pump(self) -> bool:
        """Move what can be moved. True: there is more, come back after the others."""
        if not self.open or self.pending or self.eof:
            return False
        connection = self.connection
        relay = connection.relay
        writer = relay.writer
        receive = self.source.recv_into
        for _ in range(TURN):
            if not writer.has_room():
                relay.wait_for_room(self)
                return False
            careful = self._careful()
            want = CAREFUL_CHUNK if careful else CHUNK
            if careful and self.left > CAREFUL_CHUNK:
                # Inside a large frame that passes there is nothing to look at; its last byte is for `_sift` again.
                careful = False
                want = min(CHUNK, self.left - 1)
            if self.direction == 0:
                if connection.inline and connection.owes() > OWED_LIMIT:
                    return False
                if relay.draining:
                    if self._at_frame_start() or self.opaque:
                        return False
                    want = min(want, self.left or self.hold_left or 1)
            offset, room = writer.space(want)
            view = writer.data[offset : offset + room]
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
                self._ended(now)
                return False
            if careful:
                self._sift(bytes(view[:count]), now)
                if not self.open:
                    return False
            else:
                whole = view if count == room else view[:count]
                try:
                    sent = self.sink.send(whole)
                except BlockingIOError:
                    sent = 0
                except OSError:
                    sent = -1
                if 0 <= sent < count:
                    # A copy: the ring comes round whether or not the sink reads.
                    self.pending += whole[sent:]
                first = 0 if self.opaque else self._scan(offset, count)
                writer.take(Kind.DATA, connection.number, self.direction, now, count, first, self.position)
                self.position += count
                if self.foreign is not None:
                    connection.not_kafka(self, now)
                if sent < 0:
                    connection.sink_failed(self)
                    return False
            if count < room and not self.hangup:
                self.readable = False
                return False
            if self.pending:
                return False
        return True

    def _careful(self) -> bool:
        connection = self.connection
        if self.opaque:
            return False
        return connection.inline or (
            self.direction == 1 and (bool(connection.in_flight) or self.hold is not None or bool(self._carry))
        )

    def _at_frame_start(self) -> bool:
        return not self.left and self.hold is None and not self._part and not self._carry

    def _scan(self, base: int, count: int) -> int:
        """Note the frames of a chunk that passes; the offset of the first frame start, or NONE."""
        data = self.connection.relay.writer.data
        at = base
        end = base + count
        if self._part or not self._begun:
            first = NONE if self._part else 0
            at += self._head_complete(data, base, count)
            if self.opaque or self._part:
                return first
        else:
            first = NONE
        at += self.left
        if at >= end:
            self.left = at - end
            return first
        if first:
            first = at - base
        last = -1
        invalid = -1
        if self.direction == 1:
            while at + 8 <= end:
                (size,) = _SIZE(data, at)
                if size > MAX_FRAME:
                    invalid = at
                    break
                last = at
                at += size + 4
        else:
            watch = self.connection.relay.watch
            while at + 12 <= end:
                size, key = _SIZE_KEY(data, at)
                if size > MAX_FRAME:
                    invalid = at
                    break
                if key in watch:
                    self.connection.expect(data, at, end)
                last = at
                at += size + 4
        if last >= 0:
            (self.last_id,) = _CORRELATION(data, last + (4 if self.direction else 8))
        if invalid >= 0:
            self._not_frames(bytes(data[invalid : min(invalid + 8, end)]))
            return first
        if at < end:
            # the head of the last frame is not complete
            self.left = 0
            self._head_complete(data, at, end - at)
        else:
            self.left = at - end
        return first

    def _head_complete(self, data: memoryview, at: int, count: int) -> int:
        """Read on in a frame's head that is being forwarded: how many bytes of the chunk belong to heads.

        Afterwards `left` is what follows of the frame, or `_part` holds the incomplete head. Frames that are
        shorter than a head are passed over here as well.
        """
        used = 0
        head = self._part
        first_of_stream = not self._begun
        self._begun = True
        want = 4
        while used < count and len(head) < want:
            take = min(want - len(head), count - used)
            head += bytes(data[at + used : at + used + take])
            used += take
            if len(head) < 4:
                break
            (size,) = _SIZE(head)
            if size > MAX_FRAME or (first_of_stream and foreign_protocol(head)):
                self._part = b""
                self._not_frames(head)
                return used
            first_of_stream = False
            want = min(_HEAD[self.direction], size + 4)
            if len(head) == want:
                if self.direction:
                    if want == 8:
                        (self.last_id,) = _CORRELATION(head, 4)
                elif want == 12:
                    _, key, _, self.last_id = _REQUEST(head)
                    if key in self.connection.relay.watch:
                        with memoryview(head + bytes(data[at + used : at + min(count, used + 300)])) as start:
                            self.connection.expect(start, 0, len(start))
                self.left = size + 4 - want
                head = b""
                if self.left:
                    break
                want = 4
        self._part = head
        return used

    # -- the careful path ------------------------------------------------------------------------------------

    def _sift(self, chunk: bytes, now: int) -> None:
        """The chunk frame by frame: pass, hold, or wait for the head."""
        connection = self.connection
        data = self._carry + chunk if self._carry else chunk
        self._carry = b""
        at = start = 0
        end = len(data)
        first = NONE
        if self._part:
            at = self._head_complete(memoryview(data), 0, end)
            if self.opaque:
                self._pass(data, now, 0)
                connection.not_kafka(self, now)
                return
        while at < end:
            if self.hold is not None:
                taken = min(self.hold_left, end - at)
                self.hold += data[at : at + taken]
                self.hold_left -= taken
                at += taken
                start, first = at, NONE
                connection.relay.held += taken
                if not self.hold_left:
                    frame, self.hold = bytes(self.hold), None
                    connection.relay.held -= len(frame)
                    connection.held_frame(self, frame, now)
                    if not self.open:
                        return
                    if self.opaque:
                        self._pass(data[at:], now, 0)
                        return
                elif connection.relay.held > connection.relay.hold_limit:
                    connection.let_go(self)
                    self._let_go(now)
                continue
            if self.left:
                passed = min(self.left, end - at)
                self.left -= passed
                at += passed
                if not self.left and self.direction and connection.answer_is_next():
                    self._pass(data[start:at], now, first)
                    start, first = at, NONE
                    connection.deliver(now)
                continue
            available = end - at
            size = _SIZE(data, at)[0] if available >= 4 else 0
            if available >= 4 and (size > MAX_FRAME or (not self._begun and foreign_protocol(data[at : at + 4]))):
                self._pass(data[start:at], now, first)
                rest = data[at:]
                self._not_frames(rest[:8])
                self._pass(rest, now, 0)
                connection.not_kafka(self, now)
                return
            if available < 4 or available < min(_HEAD[self.direction], size + 4):
                break
            self._begun = True
            if first == NONE:
                first = at - start
            if connection.holds(self, data, at, size):
                if at > start:
                    self._pass(data[start:at], now, first)
                start, first = at, NONE
                self.hold, self.hold_left = bytearray(), size + 4
            else:
                self.left = size + 4
        if at > start:
            self._pass(data[start:at], now, first)
        self._carry = data[at:]

    def _pass(self, data: bytes, now: int, first: int) -> None:
        if data:
            self.connection.relay.writer.write(
                Kind.DATA, self.connection.number, self.direction, now, data, first, self.position
            )
            self.position += len(data)
            self.push(data)

    def at_boundary(self) -> bool:
        """Whether a whole frame can be put in here (what waits in `_carry` has not been sent)."""
        return not self.left and self.hold is None and not self._part and not self.opaque

    def emit(self, data: bytes, now: int) -> None:
        """Send whole frames on and publish them as bytes of the client leg."""
        self._pass(data, now, 0)

    def _let_go(self, now: int) -> None:
        """Give up holding the current frame: forward what is there and let the rest pass."""
        held, self.hold = self.hold, None
        if held is None:
            return
        self.connection.relay.held -= len(held)
        self.left, self.hold_left = self.hold_left, 0
        self._pass(bytes(held), now, 0)

    def spill(self, now: int) -> None:
        """Forward whatever is kept back, as it came."""
        self._let_go(now)
        carry, self._carry = self._carry, b""
        self._pass(carry, now, NONE)

    def _not_frames(self, head: bytes) -> None:
        self.opaque, self.foreign = True, head

    # -- the sink --------------------------------------------------------------------------------------------

    def push(self, data: bytes) -> None:
        """Send, or keep what the sink does not take."""
        if self.pending or self.done:
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

    def _ended(self, now: int) -> None:
        self.eof = True
        self.spill(now)
        if self.direction and self.open:
            self.connection.deliver_all(now)
        if not self.pending and self.open:
            self._pass_end()

    def _pass_end(self) -> None:
        """Pass the end of the stream on: FIN as FIN, the other direction stays open."""
        if self.done:
            return
        self.done = True
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.connection.lane_done()
