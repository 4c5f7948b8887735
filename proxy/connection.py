"""One client connection in the relay: its two lanes, what is in flight, and answers in their place.

`in_flight` is a queue of requests in the order they were sent. Without rules only requests whose response has to
be held are in it (`expect`); with rules (`inline`) every request that gets a response is, and an answer made here
stands in the queue like a response to come: it is delivered when everything before it has been.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING

from ..decoder import facts
from ..decoder.frame import Direction, foreign_protocol
from ..plugins.rules import Answer
from .addresses import reason
from .editing import (
    ADDRESS_APIS,
    ENDPOINT_LIMIT,
    PRODUCE,
    Unreadable,
    framed,
    names_brokers,
    produce_acks,
)
from .events import Address, ConnectionClosed, ConnectionOpened, NotKafka, RuleHit, Undecoded, UpstreamFailed
from .lane import Lane
from .resolver import Answer as Resolved
from .resolver import SocketAddress
from .ring import NONE, Kind

if TYPE_CHECKING:
    from .relay import Relay

_REQUEST = struct.Struct(">IhhI").unpack_from
_CORRELATION = struct.Struct(">I").unpack_from
_RESET = struct.pack("ii", 1, 0)
KNOWN = frozenset(facts.api_keys())
HIGHEST_VERSION = 40
"""No API has versions beyond this; larger numbers are not a request's (raw SASL tokens have no header)."""
IN_FLIGHT_LIMIT = 8192
"""Most requests that are remembered without rules: some may never get a response."""


def _signed(correlation: int) -> int:
    return correlation - (1 << 32) if correlation >> 31 else correlation


class InFlight:
    """A request whose response is awaited. `answer`: the response made here; `change`: to do to the broker's."""

    __slots__ = ("answer", "api_key", "api_version", "change", "correlation", "rule")

    def __init__(self, api_key: int, api_version: int, correlation: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation = correlation
        self.answer: bytes | None = None
        self.change: Answer | None = None
        self.rule = ""


class Connection:
    """From `accept` to the end of both directions."""

    def __init__(self, relay: Relay, number: int, client: socket.socket, peer: Address, broker: Address) -> None:
        self.relay = relay
        self.number = number
        self.client = client
        self.peer = peer
        self.local_host: str = client.getsockname()[0].removeprefix("::ffff:")
        self.broker = broker
        self.real: Address = broker  # the broker's socket address
        self.own: Address = ("", 0)  # ours towards the broker
        self.upstream: socket.socket | None = None
        self.in_flight: deque[InFlight] = deque()
        self.inline = bool(relay.editor.requests)
        self.answer_bytes = 0
        self.request = Lane(self, Direction.REQUEST)
        self.response = Lane(self, Direction.RESPONSE)
        self.established = False
        self.closed = False
        self.started = time.monotonic()
        self._addresses: list[SocketAddress] = []
        self._failure: OSError | None = None
        self._breaking = False

    # -- beginning -------------------------------------------------------------------------------------------

    def resolved(self, answer: Resolved) -> None:
        """The broker's name has been looked up: connect."""
        if self.closed:
            return
        if isinstance(answer, OSError):
            self.unreachable(answer)
        else:
            self._addresses = list(answer)
            self.connect_next()

    def connect_next(self) -> None:
        """Try the next of the broker's addresses. Early data of the client waits in the kernel meanwhile."""
        while self._addresses:
            family, address = self._addresses.pop(0)
            try:
                sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            except OSError as error:
                self._failure = error
                break
            code = sock.connect_ex(address)
            if code in (0, errno.EINPROGRESS):
                self.upstream = sock
                self.relay.await_connect(self, sock)
                return
            self._failure = OSError(code, os.strerror(code))
            sock.close()
        self.unreachable(self._failure or OSError("no address"))

    def connected(self) -> None:
        """The kernel has an answer to the connect."""
        sock = self.upstream
        if sock is None or self.closed:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._failure = OSError(code, os.strerror(code))
            self.relay.forget(sock)
            sock.close()
            self.upstream = None
            self.connect_next()
            return
        try:
            self.real, self.own = sock.getpeername()[:2], sock.getsockname()[:2]
            self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            self.unreachable(error)
            return
        self.established = True
        self.request.source = self.response.sink = self.client
        self.request.sink = self.response.source = sock
        self.request.open = self.response.open = True
        self.relay.writer.write(Kind.OPENED, self.number, 0, time.time_ns(), self.describe())
        self.relay.established(self)
        self.relay.emit(ConnectionOpened(self.number, self.peer, self.broker))

    def describe(self) -> bytes:
        """The connection's addresses and how far its streams are (for readers that lost chunks), as JSON."""
        streams = [self.request.position, self.response.position]
        return json.dumps(
            {"client": self.peer, "broker": self.real, "upstream": self.own, "streams": streams}
        ).encode()

    def unreachable(self, error: OSError) -> None:
        self.relay.emit(UpstreamFailed(self.number, self.broker, reason(error)))
        self.close("fin")

    # -- requests in flight ----------------------------------------------------------------------------------

    def expect(self, data: bytes | memoryview, at: int, end: int) -> None:
        """A request passes whose response may have to be held (connections without rules). At least 12 bytes of its
        frame stand at `at`."""
        size, key, version, correlation = _REQUEST(data, at)
        if size < 8 or not 0 <= version <= HIGHEST_VERSION or not names_brokers(key, version):
            return
        if key == PRODUCE and produce_acks(data, at, end) == 0:
            return  # gets no response
        if len(self.in_flight) >= IN_FLIGHT_LIMIT:
            self.in_flight.popleft()
        self.in_flight.append(InFlight(key, version, correlation))

    def holds(self, lane: Lane, data: bytes, at: int, size: int) -> bool:
        """Whether the frame whose head stands at `at` is held."""
        wanted = self._holds_response(data, at, size) if lane.direction else self._holds_request(lane, data, at, size)
        if wanted and size + 4 > self.relay.hold_limit:
            self.let_go(lane)
            return False
        return wanted

    def _holds_request(self, lane: Lane, data: bytes, at: int, size: int) -> bool:
        if size < 8:
            return False
        _, key, version, correlation = _REQUEST(data, at)
        lane.last_id = correlation
        if not 0 <= version <= HIGHEST_VERSION or key not in KNOWN:
            return False  # not a request's head: a raw SASL token, or an API newer than this table
        if key in self.relay.editor.requests:
            return True
        self.in_flight.append(InFlight(key, version, correlation))
        return False

    def _holds_response(self, data: bytes, at: int, size: int) -> bool:
        (correlation,) = _CORRELATION(data, at + 4) if size >= 4 else (-1,)
        self.response.last_id = correlation
        for index, entry in enumerate(self.in_flight):
            if entry.correlation == correlation and entry.answer is None:
                for _ in range(index):  # these get no response any more; answers among them are due now
                    passed = self.in_flight.popleft()
                    if passed.answer is not None:
                        self.in_flight.appendleft(passed)
                        self.deliver(time.time_ns())
                if (
                    entry.change is not None
                    or entry.api_key in ADDRESS_APIS
                    or (size <= ENDPOINT_LIMIT and names_brokers(entry.api_key, entry.api_version))
                ):
                    return True  # stays at the head until the frame is complete
                self.in_flight.popleft()
                return False
        return False

    def let_go(self, lane: Lane) -> None:
        """A frame is too large to be held."""
        entry = self.in_flight.popleft() if lane.direction and self.in_flight else None
        what = "response" if lane.direction else "request"
        key, version = (entry.api_key, entry.api_version) if entry else (-1, -1)
        self.relay.emit(
            Undecoded(self.number, key, version, f"the {what} is larger than {self.relay.hold_limit} bytes")
        )

    def held_frame(self, lane: Lane, frame: bytes, now: int) -> None:
        """A held frame is complete."""
        if lane.direction:
            self._held_response(frame, now)
            self.deliver(now)
        else:
            self._held_request(frame, now)

    def _held_request(self, frame: bytes, now: int) -> None:
        _, key, version, correlation = _REQUEST(frame)
        entry = InFlight(key, version, correlation)
        answer: Answer | None = None
        answered = True
        try:
            answer, answered = self.relay.editor.decide(frame)
            if answer is not None and not answer.forward:
                entry.answer = framed(answer.encode(_signed(correlation)))
        except Exception as error:
            # Fail open: whatever a rule or the decoder does wrong, the request goes on as it came.
            if not isinstance(error, Unreadable) or key in self.relay.editor.rules.interest():
                self.relay.emit(Undecoded(self.number, key, version, str(error) or type(error).__name__))
            answer = None
        if answer is None:
            if answered:
                self.in_flight.append(entry)
            self.request.emit(frame, now)
            return
        entry.rule = answer.rule
        self.relay.emit(RuleHit(answer.rule, self.number, key, version, _signed(correlation), answer.hits))
        self._note(correlation, answer.note, now)
        self.in_flight.append(entry)
        if entry.answer is None:
            entry.change = answer
            self.request.emit(frame, now)
            return
        # Not forwarded: an observer sees the request on the client leg, and so does the count of the stream.
        self.relay.writer.write(Kind.DATA, self.number, 0, now, frame, 0, self.request.position)
        self.request.position += len(frame)
        self.answer_bytes += len(entry.answer)
        self.deliver(now)

    def _held_response(self, frame: bytes, now: int) -> None:
        entry = self.in_flight.popleft()
        changed: bytes | None = None
        note = "addresses"
        try:
            if names_brokers(entry.api_key, entry.api_version):
                changed = self.relay.editor.readdress(frame, entry.api_key, entry.api_version, self.local_host)
            if entry.change is not None:
                note = entry.change.note
                changed = framed(entry.change.apply((changed or frame)[4:]))
        except Exception as error:
            self.relay.emit(
                Undecoded(self.number, entry.api_key, entry.api_version, str(error) or type(error).__name__)
            )
            changed = None
            if not self.inline:
                # Perhaps not the response that was meant (a client may reuse an id): the next match is tried, too.
                self.in_flight.appendleft(entry)
                self.response.emit(frame, now)
                return
        if changed is None or changed == frame:
            self.response.emit(frame, now)
            return
        text = note.encode()
        self.relay.writer.write(
            Kind.BROKER_LEG, self.number, 1, now, len(text).to_bytes(2, "big") + text + frame
        )
        self.response.emit(changed, now)

    def _note(self, correlation: int, text: str, now: int) -> None:
        self.relay.writer.write(Kind.NOTE, self.number, 0, now, text.encode(), correlation)

    # -- answers ---------------------------------------------------------------------------------------------

    def answer_is_next(self) -> bool:
        return bool(self.in_flight) and self.in_flight[0].answer is not None

    def owes(self) -> int:
        """Bytes that the client has not taken yet."""
        return self.answer_bytes + len(self.response.pending)

    def deliver(self, now: int) -> None:
        """Send the answers that are next, unless a response is just passing."""
        while self.answer_is_next() and self.response.at_boundary():
            answer = self.in_flight.popleft().answer or b""
            self.answer_bytes -= len(answer)
            self.response.last_id = int.from_bytes(answer[4:8], "big")
            self.response.emit(answer, now)
            self.relay.wake(self.request)

    def deliver_all(self, now: int) -> None:
        """No response will come any more: all answers that are left, in order."""
        while self.in_flight and self.response.at_boundary():
            if self.in_flight[0].answer is None:
                self.in_flight.popleft()
            self.deliver(now)

    # -- trouble ---------------------------------------------------------------------------------------------

    def not_kafka(self, lane: Lane, now: int) -> None:
        """Give up on frames in both directions; bytes go on as they come."""
        head, lane.foreign = lane.foreign or b"", None
        known = foreign_protocol(head)
        if lane.direction == 0 and known == "a TLS hello":
            why = (
                "TLS hello on the plain listener; its bytes go on to the broker unread: "
                "set security.protocol=PLAINTEXT in the client (this proxy does not terminate TLS)"
            )
        elif known:
            why = f"not Kafka but {known}; passed on unread"
        else:
            size = int.from_bytes(head[:4], "big", signed=True)
            side = "the broker" if lane.direction else "the client"
            why = f"{side} sent an impossible frame size ({size}); passed on unread from here"
        self.request.opaque = self.response.opaque = True
        other = self.request if lane.direction else self.response
        other.spill(now)
        other.foreign = None
        self.in_flight.clear()
        self.answer_bytes = 0
        self.relay.emit(NotKafka(self.number, self.peer, why))

    def sink_failed(self, lane: Lane) -> None:
        """A socket takes no more bytes because its peer is gone. What the peer sent before still counts."""
        if self._breaking or self.closed:
            return
        self._breaking = True
        back = self.request if lane.direction else self.response
        while not back.eof and not self.closed and back.pump():
            pass
        self.abort()

    def abort(self) -> None:
        """RST for RST: both ends are reset."""
        self.close("rst")

    def idle(self) -> bool:
        """Nothing is in flight as far as the heads of the last frames tell."""
        return (
            self.request.last_id == self.response.last_id
            and not self.request.pending
            and not self.response.pending
            and self.request.at_boundary()
            and self.response.at_boundary()
        )

    def lane_done(self) -> None:
        if self.request.done and self.response.done:
            self.close("fin")

    def close(self, how: str) -> None:
        """Close both sockets: with "rst" so that the peers see a reset."""
        if self.closed:
            return
        self.closed = True
        for lane in (self.request, self.response):
            if self.established:
                lane.open = False
            if lane.hold is not None:
                self.relay.held -= len(lane.hold)
                lane.hold = None
            lane.pending = bytearray()
        for sock in (self.client, self.upstream):
            if sock is None:
                continue
            self.relay.forget(sock)
            if how == "rst":
                try:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                except OSError:
                    pass
            sock.close()
        if self.established:
            streams = [self.request.position, self.response.position]
            self.relay.writer.write(
                Kind.CLOSED, self.number, 0, time.time_ns(), json.dumps({"how": how, "streams": streams}).encode(), NONE
            )
            self.relay.emit(ConnectionClosed(self.number, how, *streams))
        self.relay.gone(self)
