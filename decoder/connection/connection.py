"""One client connection, sans-IO: bytes of both directions in, events out.

Brokers answer the requests of a connection in order, so requests wait in a queue and a response belongs to the
first one with its correlation id; those in front of it got none (acks=0, or their response is missing).

Events:
  RequestSeen(exchange)    a request frame is complete
  ExchangeDone(exchange)   its response is complete, or none will come; orphans too
  Opaque(...)              bytes that are no request or response: SASL tokens (masked), other protocols
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from ..codec.codec import decode_request_header, is_request, is_response
from ..codec.secrets import mask_token
from ..errors import DecodeError
from ..schema import facts
from ..wire.acks import produce_acks
from ..wire.frame import MAX_FRAME, Direction, Framer, FramingError
from ..wire.resync import FrameChecker, FrameSearch
from .exchange import Exchange, State
from .peers import PeerInfo
from .topics import Topics

PRODUCE = facts.api_key("Produce")
SASL_HANDSHAKE = facts.api_key("SaslHandshake")


@dataclass(frozen=True, slots=True)
class RequestSeen:
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class ExchangeDone:
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Opaque:
    """Bytes without meaning here. ``framed``: they are a frame's content (the 4 size bytes are left out)."""

    direction: Direction
    data: bytes
    time_ns: int
    reason: str
    framed: bool = False


Event = RequestSeen | ExchangeDone | Opaque

_TOKEN = object()
_SEARCH_KEPT = 1 << 16
"""Bytes kept back while no frame was found: a frame of this size in front of the next one is still recognised."""


class Connection:
    """The protocol state of one connection. Feed it whatever arrives, cut anywhere."""

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
        """`mid_stream`: the bytes may begin inside of a frame; the next one is searched for. `topics`: what is
        known of topic ids, shared by the connections to a cluster. `keep`: no more than so many bytes of a frame are
        kept; the exchange of a longer one has its beginning, and says what is missing (`Exchange.cut`)."""
        self.number, self.client, self.broker = number, client, broker
        self.topics = Topics() if topics is None else topics
        self.about = PeerInfo()
        self._limit = limit
        # The search for the start of a frame, by direction; None where frames are known.
        self._searched: list[FrameSearch | None] = [FrameSearch(d, limit) if mid_stream else None for d in Direction]
        self._judges: tuple[FrameChecker, FrameChecker] = (_Requests(), _Answers(self))
        self._framers = (Framer(limit, keep), Framer(limit, keep))
        self._opaque: list[str | None] = [None, None]
        # Requests that wait for a response; _TOKEN stands for a raw SASL token, which is answered by another.
        self._waiting: deque[object] = deque()
        self._ids: Counter[int] = Counter()  # of the requests that wait, so that an orphan is told at once
        self._asked: dict[int, Exchange] | None = None  # by id, from `waiting_for` on until the next response
        self._raw_sasl = False
        self._first_request = not mid_stream

    @property
    def in_flight(self) -> int:
        """How many requests wait for a response."""
        return len(self._waiting)

    def pending(self) -> list[Exchange]:
        """The exchanges that wait for a response, oldest first."""
        return [e for e in self._waiting if isinstance(e, Exchange)]

    def hand_over(self) -> tuple[tuple[bytes, int], tuple[bytes, int]] | None:
        """Let somebody go on in its place, who has taken what is `pending`: by direction, the bytes that are no whole
        frame yet and the time of the first one. Nothing waits then. None, and nothing is changed, unless there was a
        request and the next bytes are frames for certain; of an answer that is the first one, nothing may have come yet.
        What is fed afterwards is taken up again."""
        odd = self._raw_sasl or self._first_request or any(self._opaque) or any(self._searched)
        asking, answering = self._framers
        if odd or not asking.begun or not (answering.begun or answering.empty) or asking.cutting or answering.cutting:
            return None
        self._waiting.clear()
        self._ids.clear()
        self._asked = None
        asked, answered = ((framer.rest(), framer.time_ns) for framer in self._framers)
        return asked, answered

    def receive_from_client(self, data: bytes | bytearray | memoryview, time_ns: int = 0) -> list[Event]:
        """Bytes from the client, arrived at `time_ns`."""
        return list(self._receive(Direction.REQUEST, data, time_ns))

    def receive_from_broker(self, data: bytes | bytearray | memoryview, time_ns: int = 0) -> list[Event]:
        """Bytes from the broker, arrived at `time_ns`."""
        return list(self._receive(Direction.RESPONSE, data, time_ns))

    def skip(self, direction: Direction, count: int, time_ns: int = 0) -> list[Event]:
        """The next `count` bytes of `direction` are not there; they belong to the frame that is being read. Where they
        do not, it is as if they were lost."""
        if self._opaque[direction] is not None:
            return []
        if self._searched[direction] is None:
            framer = self._framers[direction]
            take = self._request if direction is Direction.REQUEST else self._response
            try:
                return [event for frame, started in framer.skip(count, time_ns) for event in take(frame, started)]
            except FramingError:
                pass
        return self.lost(direction, at_frame=False)

    def lost(self, direction: Direction, at_frame: bool = True) -> list[Event]:
        """Bytes of `direction` are missing here. What comes next starts at a frame, or else one is searched for."""
        rest = self._framers[direction].rest()
        searched = self._searched[direction]
        self._opaque[direction] = None
        self._searched[direction] = None if at_frame else FrameSearch(direction, self._limit)
        given_up = (bytes(searched.data) if searched else b"") + rest
        return [Opaque(direction, given_up, 0, "cut off by missing bytes")] if given_up else []

    def close(self, time_ns: int = 0) -> list[Event]:
        """The connection ended: everything still waiting gets no response."""
        events: list[Event] = []
        while self._waiting:
            events.extend(self._unanswered(self._next()))
        for direction in Direction:
            searched = self._searched[direction]
            rest = (bytes(searched.data) if searched else b"") + self._framers[direction].rest()
            self._searched[direction] = None
            if rest:
                events.append(Opaque(direction, rest, time_ns, "the connection ended inside a frame"))
        return events

    def _receive(self, direction: Direction, data: bytes | bytearray | memoryview, time_ns: int) -> Iterator[Event]:
        if not len(data):
            return
        reason = self._opaque[direction]
        if reason is not None:
            yield Opaque(direction, bytes(data), time_ns, reason)
            return
        searched = self._searched[direction]
        if searched is not None:
            at = searched.feed(data, self._judges[direction])
            if at is None:
                # A frame may have begun in what came last: that much is kept.
                done = max(0, len(searched.data) - _SEARCH_KEPT)
                if done:
                    yield Opaque(direction, searched.drop(done), time_ns, "no frame found yet")
                return
            if at:
                yield Opaque(direction, searched.drop(at), time_ns, "in front of the first frame")
            data, self._searched[direction] = searched.data, None
        framer = self._framers[direction]
        take = self._request if direction is Direction.REQUEST else self._response
        try:
            for frame, started in framer.feed(data, time_ns):
                yield from take(frame, started)
        except FramingError as fault:
            self._opaque[direction] = str(fault)
            yield Opaque(direction, framer.rest(), time_ns, str(fault))

    def awaits(self, correlation_id: int) -> bool:
        """Whether a request waits for a response with that id."""
        return correlation_id in self._ids

    def waiting_for(self, correlation_id: int) -> Exchange | None:
        """The request that waits for that response, the last one of several."""
        if self._asked is None:
            self._asked = {exchange.correlation_id: exchange for exchange in self.pending()}
        return self._asked.get(correlation_id)

    # --- client to broker ----------------------------------------------------------------------------------

    def _request(self, frame: bytes, time_ns: int) -> Iterator[Event]:
        if self._first_request:
            # Clients of 0.9 begin GSSAPI without a handshake: a token (ASN.1 application tag) comes first.
            self._first_request = False
            self._raw_sasl = frame[:1] == b"\x60"
        if (self._raw_sasl or self._handshake_waits()) and not plausible_request(frame):
            self._waiting.append(_TOKEN)
            yield Opaque(Direction.REQUEST, mask_token(frame), time_ns, "SASL token", framed=True)
            return
        self._raw_sasl = False
        exchange = Exchange(
            connection=self.number,
            client=self.client,
            broker=self.broker,
            request=frame,
            request_cut=self._framers[0].missing,
            request_time_ns=time_ns,
            topics=self.topics,
            about=self.about,
        )
        try:
            header, body = decode_request_header(frame)
            exchange.api_key = header["request_api_key"]
            exchange.api_version = header["request_api_version"]
            exchange.correlation_id = header["correlation_id"]
            exchange.client_id = header.get("client_id")
        except DecodeError:
            # Too short or damaged; the frame is kept and says so when it is decoded.
            body = 0
            if len(frame) >= 8:
                exchange.api_key = int.from_bytes(frame[:2], "big", signed=True)
                exchange.api_version = int.from_bytes(frame[2:4], "big", signed=True)
                exchange.correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        yield RequestSeen(exchange)
        if exchange.api_key == PRODUCE and body and expects_no_response(exchange):
            exchange.state = State.NO_RESPONSE
            yield ExchangeDone(exchange)
        else:
            self._waiting.append(exchange)
            self._ids[exchange.correlation_id] += 1
            if self._asked is not None:
                self._asked[exchange.correlation_id] = exchange

    def _handshake_waits(self) -> bool:
        """Whether the last request is a SaslHandshake v0 that waits for its answer: a client need not wait for it before it
        sends the first token."""
        last = self._waiting[-1] if self._waiting else None
        return isinstance(last, Exchange) and last.api_key == SASL_HANDSHAKE and last.api_version == 0

    # --- broker to client ----------------------------------------------------------------------------------

    def _response(self, frame: bytes, time_ns: int) -> Iterator[Event]:
        if self._waiting and self._waiting[0] is _TOKEN:
            self._waiting.popleft()
            yield Opaque(Direction.RESPONSE, mask_token(frame), time_ns, "SASL token", framed=True)
            return
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if len(frame) < 4 or correlation_id not in self._ids:
            orphan = Exchange(
                connection=self.number,
                client=self.client,
                broker=self.broker,
                correlation_id=correlation_id,
                response=frame,
                response_cut=self._framers[1].missing,
                response_time_ns=time_ns,
                state=State.ORPHAN,
                about=self.about,
            )
            yield ExchangeDone(orphan)
            return
        while True:
            first = self._next()
            if isinstance(first, Exchange) and first.correlation_id == correlation_id:
                break
            yield from self._unanswered(first)
        first.response, first.response_time_ns, first.state = frame, time_ns, State.PAIRED
        first.response_cut = self._framers[1].missing
        if first.api_key == SASL_HANDSHAKE and first.api_version == 0 and first.error == 0:
            # After a version 0 handshake the tokens travel without headers (KIP-43); version 1 wraps them (KIP-152).
            self._raw_sasl = True
        self.topics.learn(first)
        self.about.learn(first)
        yield ExchangeDone(first)

    def _next(self) -> object:
        """Take the first that waits."""
        first = self._waiting.popleft()
        self._asked = None
        if isinstance(first, Exchange):
            self._ids[first.correlation_id] -= 1
            if not self._ids[first.correlation_id]:
                del self._ids[first.correlation_id]
        return first

    @staticmethod
    def _unanswered(waiting: object) -> Iterator[Event]:
        if isinstance(waiting, Exchange):
            waiting.state = State.NO_RESPONSE
            yield ExchangeDone(waiting)


class _Requests:
    """A frame can stand among requests if it decodes. It is a `resync.FrameChecker`."""

    def may_begin(self, head: bytes) -> bool:
        return True

    def fits(self, frame: bytes) -> bool:
        return is_request(frame)


class _Answers:
    """A frame can stand among responses if it is awaited and decodes. It is a `resync.FrameChecker`."""

    def __init__(self, connection: Connection):
        self._connection = connection

    def may_begin(self, head: bytes) -> bool:
        return self._connection.awaits(int.from_bytes(head, "big", signed=True))

    def fits(self, frame: bytes) -> bool:
        asked = self._connection.waiting_for(int.from_bytes(frame[:4], "big", signed=True))
        return asked is not None and is_response(frame, asked.api_key, asked.api_version)


def expects_no_response(exchange: Exchange) -> bool:
    """Whether this is a Produce with acks=0, which brokers do not answer."""
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
