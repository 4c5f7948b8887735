"""From byte streams to index records: frames are found and paired, but not kept or decoded.

`Skimmer` does for the index of foreign captures what `decoder.Connection` does elsewhere, and produces the same records
(tests/captures/foreign/test_scan.py compares them). A recorder does not fit here: it copies frames, while this keeps their places in
the file. It takes the bytes of each direction in order, cut anywhere, and adds to an `IndexEncoder`. Rare cases go through `Exchange` and its decoder. The accelerator shares the conversations: its
types replace the plain ones.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....decoder import Exchange, State
from ....decoder.codec.decode import FAULTS
from ....decoder.codec.project import Skim, first_code, skim
from ....decoder.codec.truncated_frame import first_error_in
from ....decoder.connection.connection import expects_no_response, plausible_request, read_header
from ....decoder.connection.correlation import MOST_WAITING, CorrelationQueue
from ....decoder.schema import facts
from ....decoder.wire.frame import HEAD, MAX_FRAME, foreign_protocol
from ...native.accelerator import native
from ...recording.index import CUT, MAX_STRING, RECORD, STATES, SURPLUS, UNDECODED, IndexEncoder, Record
from .frame_pieces import FramePieces

SASL_HANDSHAKE, API_VERSIONS = map(facts.api_key, ("SaslHandshake", "ApiVersions"))

_PAIRED, _NO_RESPONSE, _ORPHAN, _PENDING = (
    STATES.index(state) for state in (State.PAIRED, State.NO_RESPONSE, State.ORPHAN, State.PENDING)
)
_HEAD = struct.Struct(">hhih").unpack_from
_INT = struct.Struct(">i").unpack_from


class PlainRequest:
    """A request that waits for its response; None in place of one stands for a raw SASL token."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id", "flags", "place", "size", "time_ns")

    def __init__(
        self, time_ns: int, place: int, size: int, correlation_id: int, key: int, version: int, client_id: int, flags: int
    ) -> None:
        self.time_ns, self.place, self.size, self.correlation_id = time_ns, place, size, correlation_id
        self.api_key, self.api_version, self.client_id, self.flags = key, version, client_id, flags


class PlainConversation:
    """The fields of a `Conversation`. The accelerator has the same."""

    __slots__ = ("began", "halves", "ids", "number", "raw_sasl", "waiting")

    number: int
    waiting: deque[PlainRequest | None]
    ids: dict[int, tuple[int, PlainRequest]]
    """Both are of `Conversation.queue`: the accelerator changes `waiting` while `ids` is empty."""
    began: bool
    raw_sasl: bool
    halves: tuple[HalfConversation, HalfConversation]


class PlainHalf:
    """The fields of a `HalfConversation`. The accelerator has the same."""

    __slots__ = ("began", "conversation", "direction", "head", "holed", "missing", "opaque", "pieces", "size", "started_ns")

    conversation: Conversation
    direction: int
    began: bool
    opaque: bool
    head: bytes
    missing: int
    """bytes of the frame that are still to come; 0 also while its size is not known"""
    size: int
    started_ns: int
    holed: bool
    """not all of the frame's bytes are in the capture"""
    pieces: list[tuple[int, int]]


if TYPE_CHECKING or native is None:
    PendingRequest = PlainRequest
    _Conversation = PlainConversation
    _Half = PlainHalf
else:
    PendingRequest, _Conversation, _Half = native.PendingRequest, native.Conversation, native.HalfConversation


class Conversation(_Conversation):
    """A Kafka connection of a foreign capture."""

    __slots__ = ("queue",)

    def __init__(self, number: int) -> None:
        self.number = number
        self.queue = CorrelationQueue[PlainRequest]()
        self.waiting, self.ids = self.queue.waiting, self.queue.ids
        self.began = self.raw_sasl = False
        self.halves = (HalfConversation(self, 0), HalfConversation(self, 1))


class HalfConversation(_Half):
    """One direction of a conversation: the frame that is being read."""

    __slots__ = ()

    def __init__(self, conversation: Conversation, direction: int) -> None:
        self.conversation, self.direction = conversation, direction
        self.began = self.opaque = False
        self.reset()

    def reset(self) -> None:
        """The next byte starts a frame."""
        self.head = b""
        self.missing = self.size = self.started_ns = 0
        self.holed = False
        self.pieces = []


class Skimmer:
    """Feed it each direction's bytes (`data`) and losses (`gap`, `cut`). `read(pieces)` gives the bytes of a frame
    that came in several pieces."""

    def __init__(self, encoder: IndexEncoder, pieces: FramePieces, read: Callable[[list[tuple[int, int]]], bytes]) -> None:
        self.encoder, self.pieces, self._read = encoder, pieces, read
        self.stray = False
        """Whether there were bytes of connections that are in no frame, or not in the capture."""
        self.frames: Any = None
        self._count = 0
        self._conversations: dict[int, Conversation] = {}
        self._clients: dict[bytes, int] = {}
        self._asked: dict[int, Skim | None] = {}
        self._answered: dict[int, Skim | None] = {}
        if native is not None:
            # It takes ordinary frames by itself, and calls the methods here for all others.
            self.frames = native.Frames(self, encoder.records, MOST_WAITING)

    @property
    def rows(self) -> int:
        """How many records were made."""
        return self._count if self.frames is None else self._count + int(self.frames.rows)

    # connections

    def open(self, number: int) -> Conversation:
        """A connection begins."""
        conversation = self._conversations[number] = Conversation(number)
        return conversation

    def close(self, conversation: Conversation) -> None:
        """It ended: what waits gets no response."""
        self.stray |= any(half.pieces for half in conversation.halves)
        while conversation.queue:
            self._unanswered(conversation.queue.pop(), conversation)
        self._conversations.pop(conversation.number, None)

    def pending(self) -> list[Record]:
        """The records of the requests that wait, in the order of their times."""
        found = [
            _record(conversation, pending, _PENDING) for conversation in self._conversations.values() for pending in conversation.queue.requests()
        ]
        return sorted(found, key=lambda record: (record.time_ns, record.connection))

    def awaits(self, conversation: Conversation, correlation_id: int) -> bool:
        """Whether a request waits for that response."""
        return correlation_id in conversation.queue

    # bytes

    def data(self, half: HalfConversation, time_ns: int, data: bytes, offset: int) -> None:
        """The next bytes of a direction, and their file offset."""
        if half.opaque:
            return
        end = len(data)
        if end > 3 and half.began and not half.pieces and _INT(data)[0] == end - 4:  # one frame, as it mostly is
            if half.direction:
                self._response(half.conversation, time_ns, data, offset)
            else:
                self._request(half.conversation, time_ns, data, offset)
            return
        at = 0
        while at < end:
            if not half.missing:
                if not half.pieces:
                    half.started_ns = time_ns
                have = len(half.head)
                half.head += data[at : at + 4 - have]
                step = len(half.head) - have
                half.pieces.append((offset + at, step))
                at += step
                if len(half.head) < 4:
                    return
                (half.size,) = _INT(half.head)
                other = not half.began and foreign_protocol(half.head + data[at : at + 4])
                if other or not 0 <= half.size <= MAX_FRAME:
                    half.opaque = self.stray = True
                    half.reset()
                    return
                half.missing = half.size
                if at < end and half.size and half.pieces[-1][0] + half.pieces[-1][1] == offset + at:
                    step = min(half.missing, end - at)
                    half.pieces[-1] = half.pieces[-1][0], half.pieces[-1][1] + step
                    half.missing -= step
                    at += step
            else:
                step = min(half.missing, end - at)
                if not half.holed:
                    half.pieces.append((offset + at, step))
                half.missing -= step
                at += step
            if not half.missing:
                self._whole(half)

    def cut(self, half: HalfConversation, size: int) -> bool:
        """`size` bytes of a direction are known to be there, but not what they are. False: frames are lost, too."""
        self.stray = True
        if half.opaque:
            return True
        if size > half.missing or len(half.head) < 4 or sum(length for _, length in half.pieces) < HEAD:
            half.reset()
            return False
        half.holed = True
        half.missing -= size
        if not half.missing:
            self._whole(half)
        return True

    def gap(self, half: HalfConversation) -> None:
        """Bytes are missing; the next ones start a frame."""
        self.stray = True
        half.opaque = False
        half.reset()

    def _placed(self, pieces: list[tuple[int, int]]) -> int:
        return self.pieces.add(pieces)

    def _whole(self, half: HalfConversation) -> None:
        pieces, size, started_ns, holed = half.pieces, half.size, half.started_ns, half.holed
        half.reset()
        half.began = True
        data = self._read(pieces)
        place = self.pieces.add(pieces, not holed)
        if holed:
            odd = self._odd_response if half.direction else self._odd_request
            odd(half.conversation, started_ns, data, place, size)
        else:
            take = self._response if half.direction else self._request
            take(half.conversation, started_ns, data, place)

    # requests

    def _request(self, conversation: Conversation, time_ns: int, data: bytes, place: int) -> None:
        last = conversation.queue.last
        # A SaslHandshake v0 that waits: see `Connection`.
        waits = last is not None and last.api_key == SASL_HANDSHAKE and last.api_version == 0
        if conversation.raw_sasl or waits or not conversation.began:
            # Clients of 0.9 begin GSSAPI without a handshake: see `Connection`.
            if not conversation.began:
                conversation.began = True
                conversation.raw_sasl = data[4:5] == b"\x60"
            if (conversation.raw_sasl or waits) and not plausible_request(data[4:]):
                conversation.queue.append(None)
                self.stray = True
                return
            conversation.raw_sasl = False
        size = len(data) - 4
        if size >= 10:
            key, version, correlation_id, length = _HEAD(data, 4)
            how = self._asked.get(key << 16 | version & 0xFFFF)
            if how is None:
                how = self._known(self._asked, "request", key, version)
            if how is not None and how.header_version and -1 <= length <= MAX_STRING:
                body = 14 + length if length > 0 else 14
                flexible = how.header_version == 2
                if body + flexible <= len(data) and not (flexible and data[body]):
                    client_id = self._client(data[14:body]) if length >= 0 else 0
                    if client_id >= 0:
                        pending = PendingRequest(time_ns, place, size, correlation_id, key, version, client_id, 0)
                        try:
                            found, end = how.read(data, body + flexible)
                        except FAULTS:
                            pending.flags = UNDECODED
                        else:
                            if end != size + 4:
                                pending.flags = SURPLUS
                            if found and not found[0][0]:
                                self._alone(conversation, pending)  # acks=0
                                return
                        self._wait(conversation, pending)
                        return
        self._odd_request(conversation, time_ns, data, place, size)

    def _odd_request(self, conversation: Conversation, time_ns: int, data: bytes, place: int, size: int) -> None:
        """As `Connection` reads any request."""
        frame = data[4:]
        exchange = Exchange(request=frame, request_cut=size - len(frame))
        whole_header = read_header(exchange)
        message = exchange.request_message
        flags = UNDECODED if message is None else SURPLUS if message.trailing else 0
        if size > len(frame):
            flags = CUT
        client_id = self.encoder.string(exchange.client_id)
        key, version = exchange.api_key, exchange.api_version
        pending = PendingRequest(time_ns, place, size, exchange.correlation_id, key, version, client_id, flags)
        if whole_header and expects_no_response(exchange):
            self._alone(conversation, pending)
        else:
            self._wait(conversation, pending)

    def _wait(self, conversation: Conversation, pending: PlainRequest) -> None:
        conversation.queue.append(pending)
        if len(conversation.queue) > MOST_WAITING:
            self._give_up_first(conversation)

    def _give_up_first(self, conversation: Conversation) -> None:
        self._unanswered(conversation.queue.pop(), conversation)

    def _alone(self, conversation: Conversation, pending: PlainRequest) -> None:
        """A request that gets no response."""
        self._record(conversation, pending, _NO_RESPONSE)

    # responses

    def _response(self, conversation: Conversation, time_ns: int, data: bytes, place: int) -> None:
        if len(data) >= 9:
            first = conversation.queue.first
            if first is not None and first.correlation_id == _INT(data, 4)[0]:
                key = first.api_key
                how = self._answered.get(key << 16 | first.api_version & 0xFFFF)
                if how is None:
                    how = self._known(self._answered, "response", key, first.api_version)
                if how is not None and not (how.header_version and data[8]):
                    conversation.queue.pop()
                    try:
                        found = how.read(data, 8 + how.header_version)
                    except FAULTS:
                        self._record(conversation, first, _PAIRED, time_ns, place, len(data) - 4, 0, UNDECODED)
                        return
                    flags = SURPLUS if found[1] != len(data) else 0
                    self._record(conversation, first, _PAIRED, time_ns, place, len(data) - 4, first_code(found), flags)
                    return
        self._odd_response(conversation, time_ns, data, place, len(data) - 4)

    def _odd_response(self, conversation: Conversation, time_ns: int, data: bytes, place: int, size: int) -> None:
        """As `Connection` reads any response."""
        queue = conversation.queue
        if queue.token_is_next:
            queue.pop()
            return
        correlation_id = int.from_bytes(data[4:8], "big", signed=True)
        taken = queue.take(correlation_id) if size >= 4 else None
        cut = size - len(data) + 4
        if taken is None:
            orphan = PendingRequest(time_ns, -1, 0, correlation_id, -1, -1, 0, CUT if cut else 0)
            self._record(conversation, orphan, _ORPHAN, time_ns, place, size)
            return
        unanswered, first = taken
        for each in unanswered:
            self._unanswered(each, conversation)
        if cut:
            error = first_error_in(data[4:], first.api_key, first.api_version, cut)
            self._record(conversation, first, _PAIRED, time_ns, place, size, error, CUT)
            return
        exchange = Exchange(
            api_key=first.api_key, api_version=first.api_version, response=data[4:], state=State.PAIRED
        )
        message = exchange.response_message
        flags = UNDECODED if message is None else SURPLUS if message.trailing else 0
        error = exchange.error
        if first.api_key == SASL_HANDSHAKE and first.api_version == 0 and error == 0:
            conversation.raw_sasl = True
        self._record(conversation, first, _PAIRED, time_ns, place, size, error, flags)

    def _unanswered(self, pending: PlainRequest | None, conversation: Conversation) -> None:
        if pending is not None:
            self._record(conversation, pending, _NO_RESPONSE)

    # records

    def skimmed(self, direction: int, key: int, version: int) -> Skim | None:
        """How messages are skimmed; None for those that need more than that."""
        return self._known(self._answered, "response", key, version) if direction else self._known(self._asked, "request", key, version)

    def _known(self, cache: dict[int, Skim | None], kind: str, key: int, version: int) -> Skim | None:
        """How messages are skimmed; None for those that need more than that."""
        place = key << 16 | version & 0xFFFF
        if place not in cache:
            odd = kind == "response" and key in (API_VERSIONS, SASL_HANDSHAKE)
            cache[place] = None if odd else skim(kind, key, version)
        return cache[place]

    def _client(self, name: bytes) -> int:
        """The string id of a client id; -1 when it is no text."""
        number = self._clients.get(name)
        if number is None:
            try:
                number = self.encoder.string(name.decode())
            except UnicodeDecodeError:
                return -1
            self._clients[name] = number
        return number

    def _record(
        self, conversation: Conversation, pending: PlainRequest, state: int, time_ns: int = -1, place: int = -1, size: int = 0, error: int = 0,
        flags: int = 0,
    ) -> None:  # fmt: skip
        """Add the record of an exchange; `place` and `size` are the response's."""
        self.encoder.records += RECORD.pack(*_record(conversation, pending, state, time_ns, place, size, error, flags))
        self._count += 1


def _record(
    conversation: Conversation, pending: PlainRequest, state: int, time_ns: int = -1, place: int = -1, size: int = 0, error: int = 0, flags: int = 0
) -> Record:
    flags |= pending.flags
    if flags & UNDECODED:
        flags &= ~SURPLUS
    latency_ns = max(time_ns - pending.time_ns, 0) if place >= 0 and pending.place >= 0 else -1
    return Record(
        pending.time_ns, latency_ns, pending.place, place, pending.size, size, pending.correlation_id, conversation.number, pending.api_key,
        pending.api_version, error, flags | state, pending.client_id, 0,
    )  # fmt: skip
