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
from typing import TYPE_CHECKING

from ..decoder.frame import MAX_FRAME as MAX_FRAME  # `limits` may lower it
from ..decoder.frame import Direction
from ..decoder.skeleton import Skeleton
from ..decoder.strides import (
    FOLLOWED,
    KEPT_LARGEST,
    PASSED,
    WATCHED,
    stride,
    stride_requests,
    stride_responses,
    stride_watched,
)
from .addressing.node_endpoint_scanner import Tail
from .clock import now_ns
from .inflight import IN_FLIGHT_LIMIT, key_and_version
from .interception.frame_editor import ADDRESS_APIS, ENDPOINT_LIMIT
from .ring.ring import CAREFUL_CHUNK, CHUNK, NONE, Kind
from .sift import SIZE
from .splicing import BEGINNING, LEAST, Splicing
from .switching import HEAD_KEPT

if TYPE_CHECKING:
    from .connection import Connection

TURN = 4
"""Chunks one lane may move before the others get their turn."""
OWED_LIMIT = 1 << 20
"""Bytes of answers a client may leave unread before its next requests are not read."""

KEPT = 4096
"""A response of up to this size that has to be looked at is kept until it is there as a whole."""
PASS, GLANCE, SIFT = range(3)
"""The ways of a chunk; see `Lane._way`."""

_SIZE_ID = struct.Struct(">II").unpack_from
"""A frame's size and the four bytes behind it: a response's correlation id, or a request's key and version."""

_now = now_ns
_DATA = int(Kind.DATA)


class Lane(Splicing):
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
        self.hold: list[bytes] | None = None
        self.hold_left = 0
        self.tail: Tail | None = None
        """Follows the current frame to its end, if that end may have to be changed."""
        self.skeleton: Skeleton | None = None
        """Of the frame that is held, if it may turn out in the middle of it that it need not be."""
        self.kept = 0
        """At least so many bytes of the current frame have gone through the ring (looked at with a snap length only)."""
        self.was_large = False
        """The last frame that was large was spliced, and nothing but large ones has come since."""
        self.pipe: tuple[int, int] | None = None
        self.piped = 0
        """Bytes in the pipe; some of those in front of them are in `pending` then."""
        self.last_id: int | None = None
        """Correlation id of the last frame seen (only the last one of a chunk is looked at)."""
        self.last_head = b""
        """The beginning of the last request that passed, where it may be asked for (`switching`)."""
        self.paused = False
        """A frame waits, for a decision (`intercepts`) or as a rule wants it (`carrying`): nothing behind it is read or sent."""
        self.waits = 0
        """How many rules let it wait."""
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
        if relay.mover is not None and (moved := relay.mover.pump(self)) is not None:
            return bool(moved)
        writer = relay.writer
        data = writer.data
        direction = self.direction
        receive = self.source.recv_into
        snaplen = relay.pipes.wanted
        for _ in range(TURN):
            if not writer.has_room():
                relay.wait_for_room(self)
                return False
            way = self._way()
            want = CHUNK
            kept = 0
            sifting = way == SIFT
            if sifting:
                want = CHUNK if self.hold_left > CHUNK else CAREFUL_CHUNK
                if self.left > CAREFUL_CHUNK:
                    # Inside a large frame that passes there is nothing to look at; its last byte is for `sift` again.
                    jump = self.left if self.tail is None else min(self.left, self.tail.skipping)
                    if jump > CAREFUL_CHUNK:
                        way, want = PASS, min(CHUNK, jump - 1)
            elif way == GLANCE:
                kept = len(self._carry)
                if relay.lossless:
                    want = CAREFUL_CHUNK + kept
            if not direction:
                if connection.inline and (connection.owes() > OWED_LIMIT or relay.crowded(connection)):
                    return False
                if connection.draining:
                    if self._at_frame_start() or self.opaque:
                        return False
                    want = min(want, (self.left or self.hold_left or 1) + kept)
            if snaplen and self.left > LEAST and (unseen := self.unseen(sifting)) >= LEAST:
                moved = self.splice(unseen, _now())
                if moved == 0 or self.pending or not self.open:
                    return False
                if moved is not None:
                    if connection.blinded is not None:
                        connection.tell_blinded(_now())
                    continue
            if self.was_large and not self.left:
                want = min(want, max(BEGINNING, snaplen) + kept)
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
            if way == SIFT:
                self.kept, self.was_large = 0, False
                self.sift(bytes(view[:count]), now)
                if not self.open or self.paused:
                    return False
            else:
                rest = b""
                cut = count
                if way == GLANCE:
                    glance = self._glance if direction else self._glance_requests
                    count += kept
                    first, cut, keep = glance(offset, count)
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
                    if way == PASS:
                        if self.tail is not None:
                            self.tail.skip(cut)  # a jump
                        first = 0 if self.opaque else self._scan(data, offset, cut)
                    writer.take(_DATA, connection.number, direction, now, cut, first, self.position)
                    self.position += cut
                    if snaplen:
                        self.note_kept(data, offset, cut, first if first != NONE else -1)
                    if connection.blinded is not None:
                        connection.tell_blinded(now)
                    if self.foreign is not None:
                        connection.not_kafka(self, now)
                        if not self.open:
                            return False
                    if sent < 0:
                        connection.sink_failed(self)
                        return False
                if rest:
                    self.kept, self.was_large = 0, False
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
            if connection.overtaken:
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
        begin = at
        keep = False
        asked = connection.relay.editor.asked if connection.inline else None
        quiet, bones = (asked[2], asked[4]) if asked is not None else ((), ())
        now = _now() if quiet else 0
        while at < end:
            at, last, why = stride_responses(
                data, at, end, MAX_FRAME, connection.in_flight, connection.watch, quiet, now, bones
            )
            if last >= 0:
                self.last_id = last
            if why not in (WATCHED, FOLLOWED):
                keep = why == PASSED
                break
            size, correlation = _SIZE_ID(data, at)
            stop = at + size + 4
            kept = why == WATCHED and connection.in_flight.kept() is not None
            if why == FOLLOWED and size <= ENDPOINT_LIMIT:
                keep = True
                break
            keep = stop > end and size <= (KEPT_LARGEST if kept else KEPT)
            if kept or size <= ENDPOINT_LIMIT or key_and_version(connection.in_flight[0])[0] in ADDRESS_APIS:
                break
            self.last_id = correlation
            connection.follow(self)
            place = self._follow(at + 4, stop, end)
            if place >= 0:
                return begin - base, place - base, False
            at = stop
        self.left = max(at - end, 0)
        return (begin - base if at > begin else NONE), min(at, end) - base, keep

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
            self.hold, self.hold_left, self.left = [], stop - at - place, 0
            return at + place
        if stop <= end:
            self.tail = None
            if place >= 0:
                data[at + place : stop] = self.connection.held_tail(bytes(data[at + place : stop]), tail)
        return -1

    def _glance_requests(self, base: int, count: int) -> tuple[int, int, bool]:
        """Requests where rules stand, remembered so that answers find their place; the result as of `_glance`."""
        connection = self.connection
        end = base + count
        at = begin = base + self.left
        if at >= end:
            self.left = at - end
            return NONE, count, False
        data = connection.relay.writer.data
        queue, passing, heads = connection.in_flight, connection.passing(), connection.known_heads()
        keeping = connection.relay.editor.keeping
        if keeping.apis and connection.unsure is None and connection.dialect is None:
            own = keeping.selection, _now(), keeping.bones[0]
            at, last, keep = stride_requests(data, at, end, MAX_FRAME, queue, passing, heads, *own)
        else:
            at, last, keep = stride_requests(data, at, end, MAX_FRAME, queue, passing, heads)
        if last >= 0:
            self.last_id = last
        self.left = max(at - end, 0)
        return (begin - base if at > begin else NONE), min(at, end) - base, keep

    def _scan(self, data: memoryview, base: int, count: int) -> int:
        """Note the frames of a chunk that passes; the offset of the first frame start, or NONE."""
        at = base
        end = base + count
        first = NONE
        if self._part or not self._begun:
            if not self._part:
                first = 0
            at += self.head_complete(data, base, count)
            if self.opaque or self._part:
                return first
        at += self.left
        if at >= end:
            self.left = at - end
            return first
        if first:
            first = at - base
        if self.direction:
            needed = 8
            at, last = stride(data, at, end, MAX_FRAME)
            if last >= 0:
                self.last_id = last
        else:
            needed = 12
            connection = self.connection
            at, place, last, doubtful = stride_watched(
                data,
                at,
                end,
                MAX_FRAME,
                connection.in_flight,
                connection.watch,
                0 if connection.changes else IN_FLIGHT_LIMIT,
            )
            if place >= 0:
                self.last_id = last
                if connection.relay.switchable:
                    self.last_head = bytes(data[place : min(place + HEAD_KEPT, end)])
                if doubtful >= 0:
                    connection.doubtful = doubtful
        if at >= end:
            self.left = at - end
            return first
        self.left = 0
        if at + needed <= end and SIZE(data, at)[0] > MAX_FRAME:
            self.not_frames(bytes(data[at : at + 8]))
        else:
            # the head of the last frame is not complete
            self.head_complete(data, at, end - at)
        return first
