"""One client connection, sans-IO: bytes of both directions in, events out.

Events:
  RequestSeen(exchange)    a request frame is complete
  ExchangeDone(exchange)   its response is complete, or none will come; orphans too
  Opaque(...)              bytes that are no request or response: SASL tokens (masked), other protocols
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from ..codec.codec import decode_request_header, is_request, is_response
from ..codec.secrets import mask_token
from ..errors import DecodeError
from ..schema import facts
from ..wire.acks import produce_acks
from ..wire.frame import MAX_FRAME, Direction, Framer, FramingError
from ..wire.resync import FrameChecker, FrameSearch
from .api_versions import PeerInfo
from .correlation import MOST_WAITING, CorrelationQueue
from .exchange import Exchange, State
from .topics import Topics

PRODUCE = facts.api_key("Produce")
SASL_HANDSHAKE = facts.api_key("SaslHandshake")
_HEAD = struct.Struct(">hhi").unpack_from


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """A request is complete."""

    exchange: Exchange


@dataclass(frozen=True, slots=True)
class ExchangeDone:
    """A response is complete, none will come (acks=0), or the connection has ended: see `Exchange.state`."""

    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Opaque:
    """Bytes that are not decoded here. ``framed``: they are a frame's content (without the 4 size bytes)."""

    direction: Direction
    data: bytes
    time_ns: int
    reason: str
    framed: bool = False


Event = RequestSeen | ExchangeDone | Opaque
Bytes = bytes | bytearray | memoryview

_SEARCH_KEPT = 1 << 16
"""Bytes kept back while no frame was found: a frame of this size in front of the next one is still recognised."""


class _Requests(Enum):
    """What the client sends."""

    NONE_YET = auto()
    FRAMES = auto()
    """Kafka requests"""
    TOKENS = auto()
    """SASL tokens without headers: after a SaslHandshake v0 (KIP-43), or from the start (GSSAPI of 0.9 clients)"""


class Connection:
    """The protocol state of one connection. Feed it the bytes as they arrive, in pieces of any size."""

    def __init__(
        self,
        number: int = 0,
        client: str = "",
        broker: str = "",
        limit: int = MAX_FRAME,
        *,
        mid_stream: bool = False,
        topics: Topics | None = None,
        keep: int | None = None,
    ):
        """`mid_stream`: the bytes may begin inside of a frame; the next one is searched for. `topics`: the topic ids
        that are known, shared by the connections to a cluster. `keep`: at most so many bytes of a frame are kept; the
        exchange of a longer one has its beginning, and says what is missing (`Exchange.cut`)."""
        self.number, self.client, self.broker = number, client, broker
        self.topics = Topics() if topics is None else topics
        self.about = PeerInfo()
        self._queue = CorrelationQueue[Exchange]()
        self._streams = (
            _Stream(Direction.REQUEST, limit, keep, mid_stream, _RequestChecker()),
            _Stream(Direction.RESPONSE, limit, keep, mid_stream, _ResponseChecker(self._queue)),
        )
        self._requests = _Requests.FRAMES if mid_stream else _Requests.NONE_YET

    @property
    def in_flight(self) -> int:
        """How many requests wait for a response."""
        return len(self._queue)

    def pending(self) -> list[Exchange]:
        """The exchanges that wait for a response, oldest first."""
        return list(self._queue.requests())

    def oldest(self, wanted: Callable[[Exchange], bool]) -> Exchange | None:
        """The first of `pending` that is wanted."""
        return next(filter(wanted, self._queue.requests()), None)

    def waiting_for(self, correlation_id: int) -> Exchange | None:
        """The exchange that waits for a response with that id; None if none does. Its cost does not depend on how many wait."""
        first = self._queue.first
        return first if first is not None and first.correlation_id == correlation_id else self._queue.find(correlation_id)

    def awaits(self, correlation_id: int) -> bool:
        """Whether a request waits for a response with that id."""
        return correlation_id in self._queue

    def hand_over(self) -> tuple[tuple[bytes, int], tuple[bytes, int]] | None:
        """Hand over to a caller that has taken `pending`: for each direction, the bytes of an incomplete frame and the time
        of the first byte. Nothing is pending afterwards. Returns None and changes nothing unless there was a request, the
        next bytes are certainly frames, and no response has begun if there was none before. Data fed later is accepted as
        before."""
        request, response = self._streams
        if (
            self._requests is not _Requests.FRAMES
            or not (request.in_frames and request.framer.begun and not request.framer.cutting)
            or not (response.in_frames and (response.framer.begun or response.framer.empty) and not response.framer.cutting)
        ):
            return None
        self._queue.clear()
        return (request.framer.rest(), request.framer.time_ns), (response.framer.rest(), response.framer.time_ns)

    def receive_from_client(self, data: Bytes, time_ns: int = 0) -> list[Event]:
        """Bytes from the client, arrived at `time_ns`."""
        return list(self._receive(Direction.REQUEST, data, time_ns))

    def receive_from_broker(self, data: Bytes, time_ns: int = 0) -> list[Event]:
        """Bytes from the broker, arrived at `time_ns`."""
        return list(self._receive(Direction.RESPONSE, data, time_ns))

    def receive_frame(self, direction: Direction, frame: bytes, time_ns: int = 0, cut: int = 0) -> list[Event] | None:
        """A frame without its size bytes, and without its last `cut` bytes: what its bytes, and then `skip`, would give. None,
        and nothing is done, unless a frame of this direction was complete and the next one has not begun."""
        stream = self._streams[direction]
        if not (stream.in_frames and stream.framer.pass_whole(len(frame) + cut, time_ns, cut)):
            return None
        return list(self._response(frame, time_ns) if direction else self._request(frame, time_ns))

    def skip(self, direction: Direction, count: int, time_ns: int = 0) -> list[Event]:
        """The next `count` bytes of `direction` are missing; they belong to the frame that is being read. If they do not,
        they are treated as lost."""
        frames = self._streams[direction].skip(count, time_ns)
        if frames is None:
            return self.lost(direction, at_frame=False)
        take = self._response if direction else self._request
        return [event for frame, started in frames for event in take(frame, started)]

    def can_skip(self, direction: Direction, count: int) -> bool:
        """Whether that many bytes may be missing here: they belong to a frame of which enough arrived to identify it."""
        return self._streams[direction].can_skip(count)

    def lost(self, direction: Direction, at_frame: bool = True) -> list[Event]:
        """Bytes of `direction` are missing here. The next bytes start at a frame (`at_frame`); otherwise the start of a
        frame is searched for."""
        given_up = self._streams[direction].restart(at_frame)
        return [Opaque(direction, given_up, 0, "cut off by missing bytes")] if given_up else []

    def broker_ended(self, time_ns: int = 0) -> list[Event]:
        """The broker has ended its side: requests that still wait get no response. The client may still send some."""
        events: list[Event] = []
        while self._queue:
            events.extend(_unanswered(self._queue.pop()))
        return [*events, *self._cut_off(Direction.RESPONSE, time_ns)]

    def close(self, time_ns: int = 0) -> list[Event]:
        """The connection ended: requests that still wait get no response."""
        return [*self.broker_ended(time_ns), *self._cut_off(Direction.REQUEST, time_ns)]

    def _cut_off(self, direction: Direction, time_ns: int) -> list[Event]:
        rest = self._streams[direction].give_up()
        return [Opaque(direction, rest, time_ns, "the connection ended inside a frame")] if rest else []

    def _receive(self, direction: Direction, data: Bytes, time_ns: int) -> Iterator[Event]:
        take = self._response if direction else self._request
        for each in self._streams[direction].feed(data, time_ns) if len(data) else ():
            if isinstance(each, Opaque):
                yield each
            else:
                yield from take(*each)

    # --- client to broker ----------------------------------------------------------------------------------

    def _request(self, frame: bytes, time_ns: int) -> Iterator[Event]:
        if self._requests is _Requests.NONE_YET:
            # Clients of 0.9 begin GSSAPI without a handshake: a token (ASN.1 application tag) comes first.
            self._requests = _Requests.TOKENS if frame[:1] == b"\x60" else _Requests.FRAMES
        if (self._requests is _Requests.TOKENS or self._handshake_waits()) and not plausible_request(frame):
            self._queue.append(None)
            yield Opaque(Direction.REQUEST, mask_token(frame), time_ns, "SASL token", framed=True)
            return
        self._requests = _Requests.FRAMES
        exchange = Exchange(
            connection=self.number,
            client=self.client,
            broker=self.broker,
            request=frame,
            request_cut=self._streams[Direction.REQUEST].framer.missing,
            request_time_ns=time_ns,
            topics=self.topics,
            about=self.about,
        )
        whole_header = read_header(exchange)
        yield RequestSeen(exchange)
        if whole_header and expects_no_response(exchange):
            yield from _unanswered(exchange)
            return
        self._queue.append(exchange)
        if len(self._queue) > MOST_WAITING:
            yield from _unanswered(self._queue.pop())

    def _handshake_waits(self) -> bool:
        """Whether the last request is a SaslHandshake v0 that waits for its answer: a client need not wait for it before it
        sends the first token."""
        last = self._queue.last
        return last is not None and last.api_key == SASL_HANDSHAKE and last.api_version == 0

    # --- broker to client ----------------------------------------------------------------------------------

    def _response(self, frame: bytes, time_ns: int) -> Iterator[Event]:
        if self._queue.token_is_next:
            self._queue.pop()
            yield Opaque(Direction.RESPONSE, mask_token(frame), time_ns, "SASL token", framed=True)
            return
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        cut = self._streams[Direction.RESPONSE].framer.missing
        taken = self._queue.take(correlation_id) if len(frame) >= 4 else None
        if taken is None:
            orphan = Exchange(
                connection=self.number,
                client=self.client,
                broker=self.broker,
                correlation_id=correlation_id,
                response=frame,
                response_cut=cut,
                response_time_ns=time_ns,
                state=State.ORPHAN,
                about=self.about,
            )
            yield ExchangeDone(orphan)
            return
        unanswered, first = taken
        for each in unanswered:
            yield from _unanswered(each)
        first.response, first.response_time_ns, first.state = frame, time_ns, State.PAIRED
        first.response_cut = cut
        if first.api_key == SASL_HANDSHAKE and first.api_version == 0 and first.error == 0:
            self._requests = _Requests.TOKENS  # version 1 wraps the tokens (KIP-152)
        self.topics.learn(first)
        self.about.learn(first)
        yield ExchangeDone(first)


def _unanswered(exchange: Exchange | None) -> Iterator[Event]:
    if exchange is not None:
        exchange.state = State.NO_RESPONSE
        yield ExchangeDone(exchange)


class _Stream:
    """One direction of a connection. Its bytes are frames, or the next frame is searched for, or they are another protocol."""

    __slots__ = ("_checker", "_limit", "_not_kafka", "_search", "direction", "framer")

    def __init__(self, direction: Direction, limit: int, keep: int | None, mid_stream: bool, checker: FrameChecker):
        self.direction, self._limit, self._checker = direction, limit, checker
        self.framer = Framer(limit, keep)
        self._search = FrameSearch(direction, limit) if mid_stream else None
        self._not_kafka = ""  # why its bytes are no frames

    @property
    def in_frames(self) -> bool:
        """Whether the next bytes are frames for certain."""
        return self._search is None and not self._not_kafka

    def feed(self, data: Bytes, time_ns: int) -> Iterator[tuple[bytes, int] | Opaque]:
        """The frames that `data` completes, each with the time of its first byte, and bytes that are none."""
        if self._not_kafka:
            yield Opaque(self.direction, bytes(data), time_ns, self._not_kafka)
            return
        if (search := self._search) is not None:
            at = search.feed(data, self._checker)
            if at is None:
                # A frame may have begun in what came last: that much is kept.
                done = max(0, len(search.data) - _SEARCH_KEPT)
                if done:
                    yield Opaque(self.direction, search.drop(done), time_ns, "no frame found yet")
                return
            if at:
                yield Opaque(self.direction, search.drop(at), time_ns, "in front of the first frame")
            data, self._search = search.data, None
        try:
            yield from self.framer.feed(data, time_ns)
        except FramingError as fault:
            self._not_kafka = str(fault)
            yield Opaque(self.direction, self.framer.rest(), time_ns, self._not_kafka)

    def skip(self, count: int, time_ns: int) -> Iterator[tuple[bytes, int]] | None:
        """The frame that `count` missing bytes complete, if any; None where they belong to no frame that is being read."""
        if self._not_kafka:
            return iter(())
        try:
            return self.framer.skip(count, time_ns) if self._search is None else None
        except FramingError:
            return None

    def can_skip(self, count: int) -> bool:
        """Whether that many bytes may belong to the frame that is being read, or to no frame at all."""
        return bool(self._not_kafka) or (self._search is None and self.framer.can_skip(count))

    def restart(self, at_frame: bool) -> bytes:
        """Go on at a frame, or with a search for one; returns the bytes that are given up."""
        given_up = self.give_up()
        self._not_kafka = ""
        if not at_frame:
            self._search = FrameSearch(self.direction, self._limit)
        return given_up

    def give_up(self) -> bytes:
        """The bytes held that are no whole frame."""
        searched, self._search = self._search, None
        return (bytes(searched.data) if searched else b"") + self.framer.rest()


class _RequestChecker:
    """A frame can stand among requests if it decodes. It is a `resync.FrameChecker`."""

    def may_begin(self, head: bytes) -> bool:
        return True

    def fits(self, frame: bytes) -> bool:
        return is_request(frame)


class _ResponseChecker:
    """A frame can stand among responses if it is awaited and decodes. It is a `resync.FrameChecker`."""

    def __init__(self, queue: CorrelationQueue[Exchange]):
        self._queue = queue

    def may_begin(self, head: bytes) -> bool:
        return int.from_bytes(head, "big", signed=True) in self._queue

    def fits(self, frame: bytes) -> bool:
        asked = self._queue.find(int.from_bytes(frame[:4], "big", signed=True))
        return asked is not None and is_response(frame, asked.api_key, asked.api_version)


def read_header(exchange: Exchange) -> bool:
    """Take what a request's header says. False: it is too short or damaged; then the frame says so when it is decoded."""
    frame = exchange.request or b""
    try:
        header, _ = decode_request_header(frame)
    except DecodeError:
        if len(frame) >= 8:
            exchange.api_key, exchange.api_version, exchange.correlation_id = _HEAD(frame)
        return False
    exchange.api_key, exchange.api_version = header["request_api_key"], header["request_api_version"]
    exchange.correlation_id, exchange.client_id = header["correlation_id"], header.get("client_id")
    return True


def expects_no_response(exchange: Exchange) -> bool:
    """Whether this is a Produce with acks=0, which brokers do not answer."""
    if exchange.api_key != PRODUCE:
        return False
    message = exchange.request_message
    if exchange.request_cut:
        head = bytes(4) + (exchange.request or b"")
        return produce_acks(head, 0, len(head)) == 0
    return message is not None and message["acks"] == 0


def plausible_request(frame: bytes) -> bool:
    """Whether a frame's content starts like a request of a known API, version and client id."""
    if len(frame) < 8:
        return False
    try:
        header, _ = decode_request_header(frame)
        known = facts.api(header["request_api_key"])
    except (DecodeError, KeyError):
        return False
    return header["request_api_version"] in known.versions
