"""The careful path of a lane: bytes frame by frame, each passed, held, or followed to its end.

Still cut-through: what was not asked for goes on before its frame is complete. Which frames are held is the
connection's decision (`Connection.holds`), made from their first bytes.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from ..decoder.accelerator import native
from ..decoder.acks import ACKS_REACH, acks_end
from ..decoder.frame import MAX_FRAME as MAX_FRAME  # `limits` may lower it
from ..decoder.frame import foreign_protocol
from ..decoder.skeleton import Skeleton
from .addressing.node_endpoint_scanner import Tail
from .interception.frame_editor import PRODUCE
from .ring.ring import CHUNK, NONE, Kind

if TYPE_CHECKING:
    from .connection import Connection

SIZE = struct.Struct(">I").unpack_from
REQUEST = struct.Struct(">IhhI").unpack_from
CORRELATION = struct.Struct(">I").unpack_from
HEAD = (12, 8)
"""Bytes of a frame, size included, that tell what it is, by direction."""


class PlainState:
    """The attributes of a lane (see `lane`). The accelerator has a type for them, so that it can move bytes by itself."""

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
        "kept",
        "last_head",
        "last_id",
        "left",
        "opaque",
        "open",
        "paused",
        "pending",
        "pipe",
        "piped",
        "position",
        "readable",
        "sink",
        "skeleton",
        "source",
        "tail",
        "waits",
        "was_large",
    )


MOVES = native is not None and hasattr(native, "Mover")
"""Whether the accelerator can move bytes from socket to socket (native/lanes.c)."""
if TYPE_CHECKING or not MOVES:
    State = PlainState
else:
    State = native.LaneState


class Sifting(State):
    """What a lane knows of the frame it is in. `Lane` adds the hot path and the sockets."""

    __slots__ = ()

    connection: Connection
    direction: int
    source: socket.socket
    sink: socket.socket
    open: bool
    opaque: bool
    position: int
    left: int
    hold: list[bytes] | None
    """Pieces of a frame that is held: joining them once costs an eighth of letting one bytearray grow (4.2 to 0.5 ms a MiB)."""
    hold_left: int
    last_id: int | None
    last_head: bytes
    paused: bool
    waits: int
    foreign: bytes | None
    tail: Tail | None
    skeleton: Skeleton | None
    _begun: bool
    _part: bytes
    _carry: bytes
    kept: int
    was_large: bool
    pipe: tuple[int, int] | None
    piped: int
    pending: bytearray
    done: bool
    eof: bool

    def sift(self, chunk: bytes, now: int) -> None:
        """The chunk frame by frame: pass, hold, or wait for the head."""
        connection = self.connection
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
                if self.skeleton is not None and self._seen_through(part, now):
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
                    connection.let_go(self)
                    if not self.open:
                        return
                    self._let_go(now)
                continue
            if self.left:
                passed = min(self.left, end - at)
                if self.tail is not None:
                    place = self.tail.feed(data[at : at + passed])
                    if place >= 0:
                        at += place
                        self.left -= place
                        self._pass(data[start:at], now, first)
                        start, first = at, NONE
                        self._hold_tail()
                        continue
                self.left -= passed
                at += passed
                if not self.left:
                    self.tail = None
                    if self.direction and connection.answer_is_next():
                        self._pass(data[start:at], now, first)
                        start, first = at, NONE
                        connection.deliver(now)
                        if self.paused:
                            self._carry = data[at:]  # behind an answer that is delayed
                            return
                continue
            available = end - at
            size = SIZE(data, at)[0] if available >= 4 else 0
            if available >= 4 and (size > MAX_FRAME or (not self._begun and foreign_protocol(data[at : at + 4]))):
                self._pass(data[start:at], now, first)
                rest = data[at:]
                self.not_frames(rest[:8])
                self._pass(rest, now, 0)
                connection.not_kafka(self, now)
                return
            if available < 4 or available < self._head_size(data, at, end):
                break
            self._begun = True
            if at > start and self.direction and connection.overdue(data, at):
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
            elif self.tail is not None:
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
        skeleton = self.skeleton
        if skeleton is None or self.hold is None or not self.hold_left or skeleton.failed:
            self.skeleton = None
            return False
        if not skeleton.feed(part):
            return False
        self.skeleton = None
        held = b"".join(self.hold)
        self.hold = [held]
        if not self.connection.of_no_concern(self, skeleton.frame, held, now):
            return False
        self.take_held()
        self.left, self.hold_left = self.hold_left, 0
        self._pass(held, now, 0)
        return True

    def _hold_tail(self) -> None:
        """The end of a frame, whose beginning has passed, is held back."""
        if self.left:
            self.hold, self.hold_left, self.left = [], self.left, 0
        else:
            self.tail = None

    def _held(self, now: int) -> None:
        """What was held is complete."""
        self.skeleton = None
        frame = self.take_held()
        if self.tail is None:
            self.connection.held_frame(self, frame, now)
            return
        tail, self.tail = self.tail, None
        changed = self.connection.held_tail(frame, tail)
        self.connection.tell_blinded(now)
        self._pass(changed, now, NONE)
        if self.open and self.direction:
            self.connection.deliver(now)

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
                if size > MAX_FRAME or (not self._begun and foreign_protocol(head)):
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
                    self.connection.passed(self.last_id)
            elif size >= 8:
                _, key, version, self.last_id = REQUEST(head)
                self.last_head = head
                if (key << 16 | version) in self.connection.relay.watch or self.connection.inline:
                    self.connection.expect(head, 0, len(head))
            self.left = size + 4 - want
            head = b""
            if self.left:
                break
            want = 4
        self._part = head
        return used

    def _head_size(self, data: bytes | memoryview, at: int, end: int) -> int:
        """How many bytes of the frame at `at` tell what it is, as far as those up to `end` say: for a Produce, whether
        it gets a response has to be known, too."""
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
        self.skeleton = None
        if self.hold is None:
            return
        held = self.take_held()
        self.left, self.hold_left = self.hold_left, 0
        first = 0 if self.tail is None else NONE
        self.tail = None
        self._pass(held, now, first)

    def spill(self, now: int) -> None:
        """Forward whatever is kept back, as it came."""
        self._let_go(now)
        carry, self._carry = self._carry, b""
        self._pass(carry, now, NONE)

    def not_frames(self, head: bytes) -> None:
        """The stream holds no frames from here on."""
        self.opaque, self.foreign = True, head

    def drain_pipe(self) -> None:
        """See `splicing`."""

    def empty_pipe(self) -> None:
        """See `splicing`."""

    # -- the sink --------------------------------------------------------------------------------------------

    def push(self, data: bytes) -> None:
        """Send, or keep what the sink does not take."""
        if self.pending or self.done:
            if self.piped:
                self.empty_pipe()
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
        if self.piped:
            self.drain_pipe()
            if self.pending or not self.open:
                return
        if len(pending) == 0:
            self.pending = bytearray()  # give the memory back
        if self.eof:
            self._pass_end()

    def ended(self, now: int) -> None:
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
