"""One direction of one connection: from a socket through the ring to the other socket.

`Lane.pump` is the hot path: receive into the ring, send the same memory on, note where frames begin, publish. It
looks at no more than sizes (and, in requests, at api keys that are watched). When a frame of this direction has to
be held, or the order of responses matters, the same bytes go through `sift` instead: frame by frame, still
forwarding everything that was not asked for before it is complete.

States a lane can be in: `open` (both sockets stand), `pending` (bytes the sink did not take: nothing is read until
it does), `eof` (source ended), `done` (end passed on), `opaque` (no Kafka: bytes only).
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from ..decoder.frame import MAX_FRAME as MAX_FRAME  # `limits` may lower it
from ..decoder.frame import Direction
from .editing import ADDRESS_APIS, ENDPOINT_LIMIT, HIGHEST_VERSION, KNOWN, PRODUCE, acks_end
from .ring import CAREFUL_CHUNK, CHUNK, NONE, Kind
from .sift import CORRELATION, REQUEST, SIZE, Sifting
from .switching import HEAD_KEPT
from .tail import Tail, ends_clean

if TYPE_CHECKING:
    from .connection import Connection

TURN = 4
"""Chunks one lane may move before the others get their turn."""
IN_FLIGHT_LIMIT = 8192
"""Most requests that are remembered without rules: some may never get a response."""
OWED_LIMIT = 1 << 20
"""Bytes of answers a client may leave unread before its next requests are not read."""

KEPT = 4096
"""A response of up to this size that has to be looked at is kept until it is there as a whole."""
PASS, GLANCE, SIFT = range(3)
"""The ways of a chunk; see `Lane._way`."""

_SIZE_ID = struct.Struct(">II").unpack_from
"""A frame's size and the four bytes behind it: a response's correlation id, or a request's key and version."""

_now = time.time_ns


class Lane(Sifting):
    """See the module. Everything here runs on the relay's one thread."""

    __slots__ = ()

    def __init__(self, connection: Connection, direction: Direction) -> None:
        self.connection = connection
        self.direction = int(direction)
        self.open = self.readable = self.hangup = False
        self.eof = self.done = self.opaque = False
        self.pending = bytearray()
        self.position = 0
        """Bytes of the client leg so far."""
        self.left = 0
        """Bytes of the current frame that are still to come (and simply pass)."""
        self.hold: bytearray | None = None
        self.hold_left = 0
        self.tail: Tail | None = None
        """Follows the current frame to its end, if that end may have to be changed."""
        self.last_id: int | None = None
        """Correlation id of the last frame seen (only the last one of a chunk is looked at)."""
        self.last_head = b""
        """The beginning of the last request that passed, where it may be asked for (`switching`)."""
        self.paused = False
        """A frame waits for a decision (`intercepts`): nothing behind it is read or sent."""
        self.foreign: bytes | None = None
        """The bytes that are no frame, until the connection has dealt with them."""
        self._begun = False
        self._part = b""  # start of a frame's head that has been forwarded already
        self._carry = b""  # start of a frame's head that waits for the decision whether to hold it

    # -- the hot path ----------------------------------------------------------------------------------------

    def pump(self) -> bool:
        """Move what can be moved. True: there is more, come back after the others."""
        if not self.open or self.pending or self.eof or self.paused:
            return False
        connection = self.connection
        relay = connection.relay
        writer = relay.writer
        receive = self.source.recv_into
        for _ in range(TURN):
            if not writer.has_room():
                relay.wait_for_room(self)
                return False
            way = self._way()
            want = CHUNK if way == PASS else CAREFUL_CHUNK if way == SIFT or relay.lossless else CHUNK
            if way == SIFT and self.left > CAREFUL_CHUNK:
                # Inside a large frame that passes there is nothing to look at; its last byte is for `sift` again.
                jump = self.left if self.tail is None else min(self.left, self.tail.skipping)
                if jump > CAREFUL_CHUNK:
                    way, want = PASS, min(CHUNK, jump - 1)
            if self.direction == 0:
                if connection.inline and connection.owes() > OWED_LIMIT:
                    return False
                if connection.draining:
                    if self._at_frame_start() or self.opaque:
                        return False
                    want = min(want, self.left or self.hold_left or 1)
            kept = len(self._carry) if way == GLANCE else 0
            offset, room = writer.space(min(want + kept, CHUNK))
            if kept:
                # What was kept back of a frame that is not complete yet comes in front of its rest.
                writer.data[offset : offset + kept] = self._carry
                room -= kept
            view = writer.data[offset + kept : offset + kept + room]
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
            if way == SIFT:
                self.sift(bytes(view[:count]), now)
                if not self.open or self.paused:
                    return False
            else:
                rest = b""
                keep = False
                first = NONE
                cut = count
                if way == GLANCE:
                    glance = self._glance if self.direction else self._glance_requests
                    count += kept
                    first, cut, keep = glance(offset, count)
                    if cut < count:
                        rest = bytes(writer.data[offset + cut : offset + count])
                    self._carry = rest if keep else b""
                sent = cut
                if cut:
                    whole = writer.data[offset : offset + cut]
                    try:
                        sent = self.sink.send(whole)
                    except BlockingIOError:
                        sent = 0
                    except OSError:
                        sent = -1
                    if 0 <= sent < cut:
                        # A copy: the ring comes round whether or not the sink reads.
                        self.pending += whole[sent:]
                    if way == PASS:
                        if self.tail is not None:
                            self.tail.skip(cut)  # a jump
                        first = 0 if self.opaque else self._scan(offset, cut)
                    writer.take(Kind.DATA, connection.number, self.direction, now, cut, first, self.position)
                    self.position += cut
                    if connection.blinded is not None:
                        connection.tell_blinded(now)
                    if self.foreign is not None:
                        connection.not_kafka(self, now)
                        if not self.open:
                            return False
                    if sent < 0:
                        connection.sink_failed(self)
                        return False
                if rest and not keep:
                    self.sift(rest, now)
                    if not self.open or self.paused:
                        return False
            if count - kept < room and not self.hangup:
                self.readable = False
                return False
            if self.pending:
                return False
        return True

    def _way(self) -> int:
        """How the next chunk goes: unseen, frame by frame at a glance, or through `sift`."""
        connection = self.connection
        if self.opaque:
            return PASS
        if self.direction:
            if self.hold is not None:
                return SIFT
            if not connection.in_flight and not self._carry and self.tail is None:
                return PASS
            return GLANCE if self._begun and not self._part and not connection.changes else SIFT
        if not connection.inline:
            # The first requests of a connection settle the versions of all others; see `editing.refuses`.
            return PASS if self._begun and self.hold is None and not self._carry else SIFT
        return GLANCE if self._begun and not self._part and self.hold is None else SIFT

    def _at_frame_start(self) -> bool:
        return not self.left and self.hold is None and not self._part and not self._carry

    def _glance(self, base: int, count: int) -> tuple[int, int, bool]:
        """Responses while some are awaited: (first frame start, how much of the chunk may pass as it is, whether
        to keep the rest until more of its frame is there; otherwise it is for `sift`)."""
        connection = self.connection
        in_flight = connection.in_flight
        watch = connection.relay.watch
        data = connection.relay.writer.data
        end = base + count
        at = base + self.left
        if self.tail is not None:
            place = self._follow(base, at, end)
            if place >= 0:
                return NONE, place - base, False
        if at >= end:
            self.left = at - end
            return NONE, count, False
        first = at - base
        last = -1
        keep = True
        while at + 8 <= end:
            size, correlation = _SIZE_ID(data, at)
            stop = at + size + 4
            if size > MAX_FRAME:
                keep = False
                break
            if in_flight:
                head = in_flight[0]
                if head.__class__ is int and head & 0xFFFFFFFF == correlation:
                    if head >> 32 in watch and (stop > end or not ends_clean(head >> 48, data, stop, size)):
                        keep = stop > end and size <= KEPT
                        if size <= ENDPOINT_LIMIT or head >> 48 in ADDRESS_APIS:
                            break
                        connection.follow(self)
                        place = self._follow(at + 4, stop, end)
                        if place >= 0:
                            return first, place - base, False
                    else:
                        in_flight.popleft()
                elif connection.awaits(correlation):
                    keep = False
                    break
            last = correlation
            at = stop
        if last >= 0:
            self.last_id = last
        self.left = max(at - end, 0)
        return (first if at > base + first else NONE), min(at, end) - base, keep

    def _follow(self, at: int, stop: int, end: int) -> int:
        """Follow the frame that ends at `stop` through what is here of it, from `at` to `end` at most.

        Its end is put right where it stands; the place of its beginning is given if the rest is not here yet, so
        that it has to be held (`sift` goes on with it), else -1.
        """
        tail = self.tail
        if tail is None:
            return -1
        data = self.connection.relay.writer.data
        place = tail.feed(data[at : min(stop, end)])
        if place >= 0 and stop > end:
            self.hold, self.hold_left, self.left = bytearray(), stop - at - place, 0
            return at + place
        if stop <= end:
            self.tail = None
            if place >= 0:
                data[at + place : stop] = self.connection.held_tail(bytes(data[at + place : stop]), tail)
        return -1

    def _glance_requests(self, base: int, count: int) -> tuple[int, int, bool]:
        """Requests where rules stand, remembered so that answers find their place; the result as of `_glance`."""
        connection = self.connection
        in_flight = connection.in_flight
        wanted = connection.relay.editor.requests
        data = connection.relay.writer.data
        end = base + count
        at = base + self.left
        if at >= end:
            self.left = at - end
            return NONE, count, False
        first = at - base
        keep = True
        while at + 12 <= end:
            size, key, version, correlation = REQUEST(data, at)
            if size > MAX_FRAME or size < 8 or key in wanted or key not in KNOWN or not 0 <= version <= HIGHEST_VERSION:
                keep = False
                break
            head = (key << 16 | version) << 32 | correlation
            if key != PRODUCE or (
                head >> 32 == connection.like_keyver
                and at + connection.like_end <= end
                and connection.like_bytes(data, at + 12)[0] == connection.like
            ):
                in_flight.append(head)
            else:
                place = acks_end(data, at, end)
                if place > min(end, at + size + 4):
                    keep = end - at < 600 and place > end
                    break
                if data[place - 2] or data[place - 1]:
                    connection.resembles(head >> 32, bytes(data[at + 12 : place]))
                    in_flight.append(head)
            self.last_id = correlation
            at += size + 4
        self.left = max(at - end, 0)
        return (first if at > base + first else NONE), min(at, end) - base, keep

    def _scan(self, base: int, count: int) -> int:
        """Note the frames of a chunk that passes; the offset of the first frame start, or NONE."""
        data = self.connection.relay.writer.data
        at = base
        end = base + count
        if self._part or not self._begun:
            first = NONE if self._part else 0
            at += self.head_complete(data, base, count)
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
                (size,) = SIZE(data, at)
                if size > MAX_FRAME:
                    invalid = at
                    break
                last = at
                at += size + 4
        else:
            connection = self.connection
            watch = connection.relay.watch
            in_flight = connection.in_flight
            while at + 12 <= end:
                size, keyver = _SIZE_ID(data, at)
                if size > MAX_FRAME:
                    invalid = at
                    break
                if keyver in watch:
                    if (
                        keyver == connection.like_keyver
                        and at + connection.like_end <= end
                        and connection.like_bytes(data, at + 12)[0] == connection.like
                        and len(in_flight) < IN_FLIGHT_LIMIT
                    ):
                        in_flight.append(keyver << 32 | CORRELATION(data, at + 8)[0])
                    elif not connection.expect(data, at, end):
                        break
                last = at
                at += size + 4
        if last >= 0:
            if self.direction:
                (self.last_id,) = CORRELATION(data, last + 4)
            else:
                (self.last_id,) = CORRELATION(data, last + 8)
                if self.connection.relay.switchable:
                    self.last_head = bytes(data[last : min(last + HEAD_KEPT, end)])
        if invalid >= 0:
            self.not_frames(bytes(data[invalid : min(invalid + 8, end)]))
            return first
        if at < end:
            # the head of the last frame is not complete
            self.left = 0
            self.head_complete(data, at, end - at)
        else:
            self.left = at - end
        return first
