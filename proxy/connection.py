"""One client connection in the relay: its two lanes, what is in flight, and answers in their place.

`in_flight` is a queue of requests in the order they were sent. Without rules only requests whose response may have
to be held are in it (`expect`); with rules (`inline`) every request that gets a response is, and an answer made here
stands in the queue like a response to come: it is delivered when everything before it has been. A request of which
nothing else is to be remembered is a number: api key (16 bits), version (16), correlation id (32).
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
from ..decoder.frame import MAX_FRAME, Direction, foreign_protocol
from ..plugins.rules import Answer
from .addresses import reason
from .editing import (
    ACKS_REACH,
    ADDRESS_APIS,
    API_VERSIONS,
    ENDPOINT_LIMIT,
    HIGHEST_VERSION,
    KNOWN,
    PRODUCE,
    Unreadable,
    acks_end,
    framed,
    names_brokers,
    produce_acks,
    refusal,
    refuses,
)
from .events import (
    Address,
    Capped,
    ConnectionClosed,
    ConnectionOpened,
    NotKafka,
    RuleHit,
    Undecoded,
    UpstreamFailed,
)
from .intercepts import Kept, gets_response
from .lane import IN_FLIGHT_LIMIT, Lane
from .resolver import Answer as Resolved
from .resolver import SocketAddress
from .ring import NONE, Kind
from .sift import Sifting
from .switching import ANY_API, HEAD_KEPT
from .tail import Tail, blind
from .unreached import LastWords

if TYPE_CHECKING:
    from .relay import Relay

_REQUEST = struct.Struct(">IhhI").unpack_from
_HEAD = struct.Struct(">IQ").unpack_from
_CORRELATION = struct.Struct(">I").unpack_from
_NO_BYTES = struct.Struct("0s").unpack_from
_RESET = struct.pack("ii", 1, 0)


def _is_reset(sock: socket.socket) -> bool:
    """Whether the peer has reset a connection: the socket has no peer any more."""
    try:
        sock.getpeername()
    except OSError:
        return True
    return False


def _signed(correlation: int) -> int:
    return correlation - (1 << 32) if correlation >> 31 else correlation


def _id(entry: int | InFlight) -> int:
    return entry & 0xFFFFFFFF if isinstance(entry, int) else entry.correlation


def _key_and_version(entry: int | InFlight) -> tuple[int, int]:
    return (entry >> 48, entry >> 32 & 0xFFFF) if isinstance(entry, int) else (entry.api_key, entry.api_version)


class InFlight:
    """A request with a response of its own. `answer`: the response made here; `change`: to do to the broker's;
    `kept`: the request, if its response may be held for a decision."""

    __slots__ = ("answer", "api_key", "api_version", "change", "correlation", "kept", "rule")

    def __init__(self, api_key: int, api_version: int, correlation: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation = correlation
        self.answer: bytes | None = None
        self.change: Answer | None = None
        self.kept: Kept | None = None
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
        self.in_flight: deque[int | InFlight] = deque()
        self.changes = 0
        """How many of them are more than a number."""
        self.inline = bool(relay.editor.requests)
        self.answer_bytes = 0
        self.like_keyver, self.like, self.like_end, self.like_bytes = -1, b"", 12, _NO_BYTES
        """Key and version of the last Produce that gets a response, and its bytes from the client id to the acks:
        a request that begins like it gets one, too, which is quicker to see than to read."""
        self.blinded: int | None = None
        """Correlation id of a response that was changed at its end and still has to be noted."""
        self.doubtful = -1
        """Correlation id of the last remembered request of which it is not known whether it gets a response."""
        self.unsure: InFlight | None = None
        """Stands in the queue as long as the order of responses is not known; see `switching`."""
        self._followed: int | InFlight = 0  # the request of the response that `response.tail` follows
        self.request = Lane(self, Direction.REQUEST)
        self.response = Lane(self, Direction.RESPONSE)
        self.established = False
        self.draining = False
        """Whether the client's next request is left unread: the proxy stops, or `negotiation` logs in again."""
        self.stage = ""
        """What `negotiation` waits for, in words for when it does not come."""
        self.renew_at = 0.0
        """When to log in again (monotonic seconds; 0: never)."""
        self.closed = False
        self.ended_by = ""  # "client" or "broker": whose end was the first
        self.started = time.monotonic()
        self.failed = ""  # how the broker was not reached: "refused" or "unreached"
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
                sock = socket.socket(family, socket.SOCK_STREAM)
                sock.setblocking(False)
            except OSError as error:
                self._failure = error
                break
            interception = self.relay.interception
            if interception is not None:
                try:
                    interception.prepare(sock, self.peer)
                except OSError as error:
                    self._failure = error
                    sock.close()
                    continue
            code = sock.connect_ex(address)
            if code in (0, errno.EINPROGRESS):
                self.upstream = sock
                if interception is not None:
                    interception.connecting(sock, address)
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
            for end in (self.client, sock):
                # Brokers and clients look after their own leg; without this nobody would find out that a host is gone.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            self.unreachable(error)
            return
        if self.relay.security is None or not self.relay.security.connected(self):
            self.stand()

    def stand(self) -> None:
        """All is said that has to be said before the client's bytes flow."""
        sock = self.upstream
        if sock is None or self.closed:
            return
        self.established = True
        self.stage = ""
        self.request.source = self.response.sink = self.client
        self.request.sink = self.response.source = sock
        self.request.open = self.response.open = True
        self._announce(self.describe())
        self.relay.established(self)
        self.relay.emit(ConnectionOpened(self.number, self.peer, self.broker))

    def describe(self) -> bytes:
        """The connection's addresses and how far its streams are (for readers that lost chunks), as JSON."""
        streams = [self.request.position, self.response.position]
        return json.dumps(
            {"client": self.peer, "broker": self.real, "upstream": self.own, "streams": streams}
        ).encode()

    def _announce(self, description: bytes) -> None:
        self.relay.writer.write(Kind.OPENED, self.number, 0, time.time_ns(), description)

    def unreachable(self, error: OSError) -> None:
        self.relay.emit(UpstreamFailed(self.number, self.broker, reason(error)))
        self.give_up("refused" if error.errno == errno.ECONNREFUSED else "unreached")

    def give_up(self, failed: str) -> None:
        """Nothing will flow: "refused" by the broker, or it was "unreached"."""
        if self.closed or self.failed:
            return
        # Observers hear of it as of a connection that the broker ended after the client's first words.
        self.failed = failed
        self._announce(json.dumps(json.loads(self.describe()) | {"failed": failed}).encode())
        if self.relay.draining:
            self.close("fin")
        else:
            LastWords(self)

    # -- requests in flight ----------------------------------------------------------------------------------

    def expect(self, data: bytes | memoryview, at: int, end: int) -> bool:
        """A request passes whose response may have to be held (connections without rules). At least 12 bytes of its
        frame stand at `at`. False: more of it is needed to tell whether it gets a response."""
        size, head = _HEAD(data, at)
        if size < 8:
            return True
        doubtful = False
        if head >> 48 == PRODUCE:
            place = acks_end(data, at, end)
            if place > end and end < at + size + 4 and place - at <= ACKS_REACH:
                return False
            if place <= min(end, at + size + 4):
                if data[place - 2] == 0 == data[place - 1]:
                    return True  # acks=0 gets no response
                self.resembles(head >> 32, bytes(data[at + 12 : place]))
            else:
                doubtful = True
                self.doubtful = head & 0xFFFFFFFF
        if len(self.in_flight) >= IN_FLIGHT_LIMIT and not self.changes:
            self.in_flight.popleft()
        self.in_flight.append(head)
        if doubtful and self.inline:
            self.mark_unsure()
        return True

    def resembles(self, keyver: int, like: bytes) -> None:
        """Remember a Produce that gets a response; see `like`."""
        self.like_keyver, self.like, self.like_end = keyver, like, 12 + len(like)
        self.like_bytes = struct.Struct(f"{len(like)}s").unpack_from

    def mark_unsure(self) -> None:
        """What is in flight is not known exactly: answer nothing before that is over."""
        self.unsure = InFlight(-1, -1, -1)
        self.in_flight.append(self.unsure)
        self.changes += 1

    def passed(self, correlation: int) -> None:
        """The head of a response has passed in pieces."""
        head = self.in_flight[0] if self.in_flight else None
        if isinstance(head, int) and head >> 48 == ANY_API and head & 0xFFFFFFFF == correlation:
            self.in_flight.popleft()

    def overdue(self, data: bytes, at: int) -> bool:
        """Whether the response whose head stands at `at` is not the one that is next, so that answers may be due."""
        if not self.changes or len(data) - at < 8:
            return False
        (correlation,) = _CORRELATION(data, at + 4)
        return bool(self.in_flight) and _id(self.in_flight[0]) != correlation and self.awaits(correlation)

    def awaits(self, correlation: int) -> bool:
        """Whether a response with this id is looked for."""
        return any(_id(entry) == correlation for entry in self.in_flight)

    def holds(self, lane: Sifting, data: bytes, at: int, size: int) -> bool:
        """Whether the frame whose head stands at `at` is held."""
        wanted = self._holds_response(data, at, size) if lane.direction else self._holds_request(lane, data, at, size)
        if wanted and size + 4 > self.relay.hold_limit:
            self.let_go(lane)
            if not lane.direction:
                self._remember(data, at)
            return False
        return wanted

    def _remember(self, data: bytes | memoryview, at: int) -> None:
        """Where rules stand, a request goes on: its response is awaited, unless it is a Produce that gets none."""
        _, key, version, correlation = _REQUEST(data, at)
        if key == PRODUCE and produce_acks(data, at, len(data)) == 0:
            return
        self.in_flight.append((key << 16 | version) << 32 | correlation)

    def _holds_request(self, lane: Sifting, data: bytes, at: int, size: int) -> bool:
        if size < 8:
            return False
        _, key, version, correlation = _REQUEST(data, at)
        lane.last_id = correlation
        lane.last_head = data[at : at + HEAD_KEPT]
        if self.relay.rewrites and refuses(key, version):
            return True
        if not self.inline:
            if key << 16 | version & 0xFFFF in self.relay.watch:
                self.expect(data, at, len(data))
            return False
        if not 0 <= version <= HIGHEST_VERSION or key not in KNOWN:
            return False  # not a request's head: a raw SASL token, or an API newer than this table
        if key in self.relay.editor.requests:
            return True
        self._remember(data, at)
        return False

    def _holds_response(self, data: bytes, at: int, size: int) -> bool:
        (correlation,) = _CORRELATION(data, at + 4) if size >= 4 else (-1,)
        self.response.last_id = correlation
        entry = self._answered(correlation)
        if entry is None:
            return False
        if isinstance(entry, InFlight):
            return True  # stays at the head until the frame is complete
        key, version = entry >> 48, entry >> 32 & 0xFFFF
        if key in ADDRESS_APIS and names_brokers(key, version):
            return True
        if entry >> 32 in self.relay.watch:
            if size <= ENDPOINT_LIMIT:
                return True
            self.follow(self.response)
            return False
        self.in_flight.popleft()
        return False

    def follow(self, lane: Sifting) -> None:
        """The response to the request at the head passes, and is followed to where its node endpoints are."""
        self._followed = self._take()
        lane.tail = Tail(*_key_and_version(self._followed))

    def _answered(self, correlation: int) -> int | InFlight | None:
        """The request that a response belongs to, at the head of the queue now; None if it was not remembered."""
        for index, entry in enumerate(self.in_flight):
            if _id(entry) != correlation or (isinstance(entry, InFlight) and entry.answer is not None):
                continue
            for _ in range(index):  # these get no response any more; answers among them are due now
                passed = self.in_flight.popleft()
                if isinstance(passed, InFlight):
                    if passed.answer is not None:
                        self.in_flight.appendleft(passed)
                        self.deliver(time.time_ns())
                    else:
                        self.changes -= 1
                        if passed is self.unsure:
                            self.unsure = None
            return entry
        return None

    def let_go(self, lane: Sifting) -> None:
        """A frame is too large to be held."""
        entry = None
        if lane.direction and lane.tail is not None:
            entry = self._followed
        elif lane.direction and self.in_flight:
            entry = self._take()
        what = "response" if lane.direction else "request"
        key, version = _key_and_version(entry) if entry is not None else (-1, -1)
        self.relay.emit(
            Undecoded(self.number, key, version, f"the {what} is larger than {self.relay.hold_limit} bytes")
        )

    def held_frame(self, lane: Sifting, frame: bytes, now: int) -> None:
        """A held frame is complete."""
        if lane.direction:
            self._held_response(frame, now)
            self.deliver(now)
        else:
            self._held_request(frame, now)

    def _held_request(self, frame: bytes, now: int) -> None:
        _, key, version, correlation = _REQUEST(frame)
        entry = InFlight(key, version, correlation)
        if self.relay.rewrites and refuses(key, version):
            # Its answer could not be read here, so nobody could tell what the client may use afterwards.
            entry.answer = refusal(_signed(correlation))
            self._note(correlation, f"ApiVersions v{version} is not known here: answered as a broker would", now)
            self._stand_in(entry, frame, now)
            self.relay.emit_once(Capped(API_VERSIONS, version, facts.api(API_VERSIONS).versions.high or 0))
            return
        if not self.relay.intercepts.hold_request(self, frame, now):
            self.judge(frame, frame, now)

    def judge(self, frame: bytes, original: bytes, now: int) -> None:
        """What the rules say to a request, and the request on its way. `original`: as the client sent it."""
        _, key, version, correlation = _REQUEST(frame)
        editor = self.relay.editor
        entry = InFlight(key, version, correlation)
        answer: Answer | None = None
        answered = True
        try:
            if key not in editor.rules.interest() or self.unsure is not None:
                answered = gets_response(frame)
            else:
                answer, answered = editor.decide(frame)
            if answer is not None and not answer.forward:
                entry.answer = framed(answer.encode(_signed(correlation)))
        except Exception as error:
            # Fail open: whatever a rule or the decoder does wrong, the request goes on as it came.
            if not isinstance(error, Unreadable) or key in editor.rules.interest():
                self.relay.emit(Undecoded(self.number, key, version, str(error) or type(error).__name__))
            answer, answered = None, gets_response(frame)
        if answer is not None:
            entry.rule = answer.rule
            self.relay.rules.fired(answer.rule, answer.hits)
            self.relay.emit(RuleHit(answer.rule, self.number, key, version, _signed(correlation), answer.hits))
            self._note(correlation, answer.note, now)
            if entry.answer is not None:
                self._stand_in(entry, original, now)
                return
        if answered:
            entry.change, entry.kept = answer, self.relay.intercepts.keep(self, frame, now)
            if entry.change is None and entry.kept is None:
                self.in_flight.append((key << 16 | version) << 32 | correlation)
            else:
                self.in_flight.append(entry)
                self.changes += 1
        if frame == original:
            self.request.emit(frame, now)
            return
        self._publish_request(original, now)
        self._broker_leg(0, frame, "edited by hand", now)
        self.request.push(frame)

    def answer(self, original: bytes, answer: bytes, note: str, now: int) -> None:
        """A request that is not forwarded, with its response."""
        _, key, version, correlation = _REQUEST(original)
        entry = InFlight(key, version, correlation)
        entry.answer = answer
        self._note(correlation, note, now)
        self._stand_in(entry, original, now)

    def _broker_leg(self, direction: int, frame: bytes, note: str, now: int) -> None:
        """Publish what went over the broker's leg, where it is not what the client has."""
        text = note.encode()
        self.relay.writer.write(
            Kind.BROKER_LEG, self.number, direction, now, len(text).to_bytes(2, "big") + text + frame
        )

    def _publish_request(self, frame: bytes, now: int) -> None:
        """Not forwarded: an observer sees the request on the client leg, and so does the count of the stream."""
        self.relay.writer.write(Kind.DATA, self.number, 0, now, frame, 0, self.request.position)
        self.request.position += len(frame)

    def _stand_in(self, entry: InFlight, frame: bytes, now: int) -> None:
        """Answer in the broker's place, when the answer's turn has come."""
        self.in_flight.append(entry)
        self.changes += 1
        self._publish_request(frame, now)
        self.answer_bytes += len(entry.answer or b"")
        self.deliver(now)

    def _held_response(self, frame: bytes, now: int) -> None:
        entry = self._take()
        key, version = _key_and_version(entry)
        change = entry.change if isinstance(entry, InFlight) else None
        changed: bytes | None = None
        note = "addresses"
        try:
            if names_brokers(key, version):
                changed = self.relay.editor.readdress(frame, key, version, self.local_host)
            elif key == API_VERSIONS and self.relay.rewrites:
                note = "versions"
                changed, capped = self.relay.editor.cap(frame, version)
                for api_key, offered, now_offered in capped:
                    self.relay.emit_once(Capped(api_key, offered, now_offered))
            if change is not None:
                note = change.note
                changed = framed(change.apply((changed or frame)[4:]))
        except Exception as error:
            self.relay.emit(Undecoded(self.number, key, version, str(error) or type(error).__name__))
            changed = None
            if not self.inline:
                # Perhaps not the response that was meant (a client may reuse an id): the next match is tried, too.
                self.in_flight.appendleft(entry)
                self.response.emit(frame, now)
                return
        if changed is None or changed == frame:
            changed, note = frame, ""
        if not isinstance(entry, InFlight) or not self.relay.intercepts.hold_response(
            self, entry, frame, changed, note, now
        ):
            self.respond(frame, changed, note, now)

    def respond(self, original: bytes, frame: bytes, note: str, now: int) -> None:
        """Deliver a response. `original`: as the broker sent it."""
        if frame != original:
            self._broker_leg(1, original, note, now)
        self.response.emit(frame, now)

    def held_tail(self, rest: bytes, tail: Tail) -> bytes:
        """The end of a response that was too large to be held: any node endpoints in it become unusable."""
        key, version = _key_and_version(self._followed)
        try:
            changed = blind(rest, tail.tagged)
        except ValueError as error:
            self.relay.emit(Undecoded(self.number, key, version, f"its end cannot be read: {error}"))
            return rest
        if changed is None:
            return rest
        self.blinded = _id(self._followed)
        return changed

    def tell_blinded(self, now: int) -> None:
        """Note that a response's endpoints were made unusable. Not before its bytes are taken into the ring."""
        correlation, self.blinded = self.blinded, None
        if correlation is not None:
            self._note(correlation, "node endpoints made unusable: the response is too large to be held", now)

    def _take(self) -> int | InFlight:
        """Take the head of the queue."""
        entry = self.in_flight.popleft()
        if isinstance(entry, InFlight):
            self.changes -= 1
        return entry

    def _note(self, correlation: int, text: str, now: int) -> None:
        self.relay.writer.write(Kind.NOTE, self.number, 0, now, text.encode(), correlation)

    # -- answers ---------------------------------------------------------------------------------------------

    def answer_is_next(self) -> bool:
        return self.changes > 0 and self._next_answer() is not None

    def _next_answer(self) -> bytes | None:
        head = self.in_flight[0] if self.in_flight else None
        return head.answer if isinstance(head, InFlight) else None

    def owes(self) -> int:
        """Bytes that the client has not taken yet."""
        return self.answer_bytes + len(self.response.pending)

    def deliver(self, now: int) -> None:
        """Send the answers that are next, unless a response is just passing."""
        while self.answer_is_next() and self.response.at_boundary():
            answer = self._next_answer() or b""
            self._take()
            self.answer_bytes -= len(answer)
            self.response.last_id = int.from_bytes(answer[4:8], "big")
            self.response.emit(answer, now)
            self.relay.wake(self.request)

    def deliver_all(self, now: int) -> None:
        """No response will come any more: all answers that are left, in order."""
        while self.in_flight and self.response.at_boundary():
            if self._next_answer() is None:
                self._take()
            self.deliver(now)

    # -- trouble ---------------------------------------------------------------------------------------------

    def not_kafka(self, lane: Sifting, now: int) -> None:
        """Give up on frames in both directions; bytes go on as they come."""
        head, lane.foreign = lane.foreign or b"", None
        known = foreign_protocol(head)
        close = False
        if lane.direction == 0 and known == "a TLS hello":
            why = (
                "TLS hello on the plain listener; its bytes go on to the broker unread: "
                "start the proxy with --tls-ca DIR (it makes certificates there) or --tls-cert and --tls-key to read them, "
                "or set security.protocol=PLAINTEXT in the client"
            )
        elif known:
            why = f"not Kafka but {known}; passed on unread"
        else:
            size = int.from_bytes(head[:4], "big", signed=True)
            side = "the broker" if lane.direction else "the client"
            close = self.relay.guard.limits.oversize == "close"
            then = "the connection is reset" if close else "passed on unread from here"
            if self.relay.guard.limits.max_frame < size <= MAX_FRAME:
                why = f"{side} sent a frame of {size} bytes, more than --max-frame allows; {then}"
            else:
                why = f"{side} sent an impossible frame size ({size}); {then}"
        self.relay.intercepts.free(self)
        self.request.opaque = self.response.opaque = True
        other = self.request if lane.direction else self.response
        other.spill(now)
        other.foreign = None
        self.in_flight.clear()
        self.changes = 0
        self.answer_bytes = 0
        self.relay.emit(NotKafka(self.number, self.peer, why))
        if close:
            self.abort()

    def sink_failed(self, lane: Sifting) -> None:
        """A socket takes no more bytes because its peer is gone. What the peer sent before still counts."""
        if self._breaking or self.closed:
            return
        self._breaking = True
        self.ended_by = self.ended_by or self._who_ended()
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
        self.ended_by = self.ended_by or self._who_ended()
        if self.request.done and self.response.done:
            self.close("fin")

    def close(self, how: str) -> None:
        """Close both sockets: with "rst" so that the peers see a reset."""
        if self.closed:
            return
        self.closed = True
        self.relay.intercepts.gone(self)
        if self.established:
            self.ended_by = self.ended_by or self._who_ended()
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
            self._conclude(how, self.ended_by)
            streams = self.request.position, self.response.position
            self.relay.emit(ConnectionClosed(self.number, how, *streams, self.ended_by, len(self.in_flight)))
        elif self.failed:
            self._conclude("rst", "broker" if self.failed == "refused" else "")
        self.relay.gone(self)

    def _conclude(self, how: str, by: str) -> None:
        streams = [self.request.position, self.response.position]
        said = {"how": how, "by": by, "streams": streams}
        self.relay.writer.write(Kind.CLOSED, self.number, 0, time.time_ns(), json.dumps(said).encode(), NONE)

    def _who_ended(self) -> str:
        """Whose end came first, as far as the lanes and the sockets tell; "" when it is the proxy that ends it."""
        ends = ((self.request, self.client, "client"), (self.response, self.upstream, "broker"))
        finished = [side for lane, _, side in ends if lane.eof]
        if not finished:
            finished = [side for _, sock, side in ends if sock is not None and _is_reset(sock)]
        return finished[0] if len(finished) == 1 else ""
