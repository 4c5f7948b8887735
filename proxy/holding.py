"""Which frames of a connection are held, and what becomes of them: rules, addresses, and answers in their place.

A held request is judged by the rules and goes on, changed or not, or is answered here. A held response is given the
proxy's own addresses, or is changed as a rule says. What was made here instead of a broker's response is delivered
when everything before it has been (`inflight`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..decoder import Exchange, facts
from ..decoder.about import About
from ..decoder.exchange import State
from ..plugins.fate import Fate
from . import carrying
from .editing import (
    ADDRESS_APIS,
    ADDRESS_REQUESTS,
    API_VERSIONS,
    ENDPOINT_LIMIT,
    HIGHEST_VERSION,
    KNOWN,
    Unreadable,
    framed,
    names_brokers,
    refusal,
    refuses,
)
from .events import Address, Capped, RuleHit, Undecoded
from .inflight import CORRELATION, REQUEST, Flights, InFlight, entry_id, key_and_version
from .intercepts import exchange_of, gets_response
from .ring import Kind
from .sift import Sifting
from .switching import HEAD_KEPT
from .tail import Tail, blind

if TYPE_CHECKING:
    from .relay import Relay


def _signed(correlation: int) -> int:
    return correlation - (1 << 32) if correlation >> 31 else correlation


class Holding(Flights):
    """What a connection does with frames that it holds. `Connection` adds its life."""

    number: int
    peer: Address
    broker: Address
    local_host: str

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay)
        self.relay = relay
        self.inline = bool(relay.editor.requests)
        self.between_brokers = False
        """Whether a controller tells a broker here where the others are: every request is followed then."""
        self.about = About()
        """What both ends have said of themselves, where rules ask for it."""
        self.answer_bytes = 0
        self.blinded: int | None = None
        """Correlation id of a response that was changed at its end and still has to be noted."""
        self._followed: int | InFlight = 0  # the request of the response that `response.tail` follows

    def holds(self, lane: Sifting, data: bytes, at: int, size: int) -> bool:
        """Whether the frame whose head stands at `at` is held."""
        wanted = self._holds_response(data, at, size) if lane.direction else self._holds_request(lane, data, at, size)
        if wanted and size + 4 > self.relay.hold_limit:
            self.let_go(lane)
            if not lane.direction:
                self.remember(data, at)
            return False
        return wanted

    def _holds_request(self, lane: Sifting, data: bytes, at: int, size: int) -> bool:
        if size < 8:
            return False
        _, key, version, correlation = REQUEST(data, at)
        lane.last_id = correlation
        lane.last_head = data[at : at + HEAD_KEPT]
        if self.relay.rewrites and refuses(key, version):
            return True
        if key in ADDRESS_REQUESTS and 0 <= version <= HIGHEST_VERSION and self.relay.rewrites:
            self.inline = self.between_brokers = True
            return True
        if not self.inline:
            if key << 16 | version & 0xFFFF in self.relay.watch:
                self.expect(data, at, len(data))
            return False
        if not 0 <= version <= HIGHEST_VERSION or key not in KNOWN:
            return False  # not a request's head: a raw SASL token, or an API newer than this table
        if key in self.relay.editor.requests:
            return True
        self.remember(data, at)
        return False

    def _holds_response(self, data: bytes, at: int, size: int) -> bool:
        (correlation,) = CORRELATION(data, at + 4) if size >= 4 else (-1,)
        self.response.last_id = correlation
        entry = self.answered(correlation)
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
        self._followed = self.take()
        lane.tail = Tail(*key_and_version(self._followed))

    def let_go(self, lane: Sifting) -> None:
        """A frame is too large to be held."""
        entry = None
        if lane.direction and lane.tail is not None:
            entry = self._followed
        elif lane.direction and self.in_flight:
            entry = self.take()
        what = "response" if lane.direction else "request"
        key, version = key_and_version(entry) if entry is not None else (-1, -1)
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
        _, key, version, correlation = REQUEST(frame)
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
        _, key, version, _ = REQUEST(frame)
        editor = self.relay.editor
        fate: Fate | None = None
        exchange: Exchange | None = None
        answered = True
        if key in ADDRESS_REQUESTS and self.relay.rewrites:
            try:
                frame = editor.readdress_request(frame, self.local_host) or frame
            except Exception as error:  # fail open: it goes on as it came
                self.relay.emit(Undecoded(self.number, key, version, str(error) or type(error).__name__))
        try:
            if key not in editor.rules.interest() or self.unsure is not None:
                answered = gets_response(frame)
            else:
                exchange = exchange_of(self, frame, now)
                self.about.learn(exchange)
                fate, answered = editor.decide(exchange)
        except Exception as error:
            # Fail open: whatever a rule or the decoder does wrong, the request goes on as it came.
            if not isinstance(error, Unreadable) or key in editor.rules.interest():
                self.relay.emit(Undecoded(self.number, key, version, str(error) or type(error).__name__))
            fate, answered = None, gets_response(frame)
        if fate is None or exchange is None:
            self._go(frame, original, exchange, None, answered, now)
            return
        self.fired(fate, exchange, now)

        def go(later: int) -> None:
            self._go(frame, original, exchange, fate, answered, later)

        if fate.request_delay:
            carrying.wait(self.request, fate.request_delay, go)
        elif fate.silence > 0:
            carrying.silence(self, fate, go)
        else:
            go(now)

    def fired(self, fate: Fate, exchange: Exchange, now: int) -> None:
        """Tell that a rule has fired."""
        correlation = exchange.correlation_id
        self.relay.rules.fired(fate.rule, fate.hits)
        self.relay.emit(
            RuleHit(fate.rule, self.number, exchange.api_key, exchange.api_version, correlation, fate.hits)
        )
        self._note(correlation & 0xFFFFFFFF, fate.note, now)

    def _go(
        self, frame: bytes, original: bytes, exchange: Exchange | None, fate: Fate | None, answered: bool, now: int
    ) -> None:
        """The request on its way to the broker, or where its fate sends it."""
        _, key, version, correlation = REQUEST(frame)
        entry = InFlight(key, version, correlation)
        note = "addresses" if key in ADDRESS_REQUESTS else "edited by hand"
        sent = frame
        if fate is not None:
            note = fate.note
            entry.rule, entry.exchange = fate.rule, exchange
            entry.fate = fate if fate.late else None
            if carrying.before_the_broker(self, fate, frame, original, now):
                return
            if fate.answer is not None:
                entry.answer = framed(fate.answer)
                self._stand_in(entry, original, now)
                return
            if fate.request is not None:
                sent = framed(fate.request)
            if fate.request_damage is not None:
                sent = bytes(fate.request_damage)
        elif exchange is not None and key in self.relay.editor.rules.late():
            entry.exchange = exchange
        if answered:
            entry.kept = self.relay.intercepts.keep(self, frame, now)
            if entry.fate is None and entry.kept is None and entry.exchange is None:
                self.in_flight.append((key << 16 | version) << 32 | correlation)
            else:
                self.in_flight.append(entry)
                self.changes += 1
        if sent == original:
            self.request.emit(frame, now)
            return
        self.publish_request(original, now)
        self.broker_leg(0, sent, note, now)
        self.request.push(sent)

    def answer(self, original: bytes, answer: bytes, note: str, now: int) -> None:
        """A request that is not forwarded, with its response."""
        _, key, version, correlation = REQUEST(original)
        entry = InFlight(key, version, correlation)
        entry.answer = answer
        self._note(correlation, note, now)
        self._stand_in(entry, original, now)

    def broker_leg(self, direction: int, frame: bytes, note: str, now: int) -> None:
        """Publish what went over the broker's leg, where it is not what the client has."""
        text = note.encode()
        self.relay.writer.write(
            Kind.BROKER_LEG, self.number, direction, now, len(text).to_bytes(2, "big") + text + frame
        )

    def publish_request(self, frame: bytes, now: int) -> None:
        """Not forwarded: an observer sees the request on the client leg, and so does the count of the stream."""
        self.relay.writer.write(Kind.DATA, self.number, 0, now, frame, 0, self.request.position)
        self.request.position += len(frame)

    def _stand_in(self, entry: InFlight, frame: bytes, now: int) -> None:
        """Answer in the broker's place, when the answer's turn has come."""
        self.in_flight.append(entry)
        self.changes += 1
        self.publish_request(frame, now)
        self.answer_bytes += len(entry.answer or b"")
        self.deliver(now)

    def _held_response(self, frame: bytes, now: int) -> None:
        entry = self.take()
        key, version = key_and_version(entry)
        fate = entry.fate if isinstance(entry, InFlight) else None
        exchange = entry.exchange if isinstance(entry, InFlight) else None
        changed: bytes | None = None
        unread = False
        note = "addresses"
        try:
            if names_brokers(key, version):
                changed = self.relay.editor.readdress(frame, key, version, self.local_host)
            elif key == API_VERSIONS and self.relay.rewrites:
                note = "versions"
                changed, capped = self.relay.editor.cap(frame, version)
                for api_key, offered, now_offered in capped:
                    self.relay.emit_once(Capped(api_key, offered, now_offered))
            if exchange is not None:
                exchange.response, exchange.response_time_ns = (changed or frame)[4:], now
                exchange.state = State.PAIRED
                self.about.learn(exchange)
                if fate is None and (fate := self.relay.editor.judge(exchange)) is not None:
                    self.fired(fate, exchange, now)
                if fate is not None:
                    note = fate.note
                    changed = framed(fate.respond(exchange, exchange.response))
        except Exception as error:
            self.relay.emit(Undecoded(self.number, key, version, str(error) or type(error).__name__))
            changed, unread, fate = None, True, None
        if changed is None or changed == frame:
            changed, note = frame, ""
        if fate is not None and exchange is not None and fate.late:
            carrying.respond(self, fate, exchange, frame, changed, note or fate.note, now)
        elif not isinstance(entry, InFlight) or not self.relay.intercepts.hold_response(
            self, entry, frame, changed, note, now
        ):
            self.respond(frame, changed, note, now)
        if unread:
            self.overtake(entry)  # perhaps not the response that was meant: the next with its id is tried, too

    def respond(self, original: bytes, frame: bytes, note: str, now: int) -> None:
        """Deliver a response. `original`: as the broker sent it."""
        if frame != original:
            self.broker_leg(1, original, note, now)
        self.response.emit(frame, now)

    def held_tail(self, rest: bytes, tail: Tail) -> bytes:
        """The end of a response that was too large to be held: any node endpoints in it become unusable."""
        key, version = key_and_version(self._followed)
        try:
            changed = blind(rest, tail.tagged)
        except ValueError as error:
            self.relay.emit(Undecoded(self.number, key, version, f"its end cannot be read: {error}"))
            return rest
        if changed is None:
            return rest
        self.blinded = entry_id(self._followed)
        return changed

    def tell_blinded(self, now: int) -> None:
        """Note that a response's endpoints were made unusable. Not before its bytes are taken into the ring."""
        correlation, self.blinded = self.blinded, None
        if correlation is not None:
            self._note(correlation, "node endpoints made unusable: the response is too large to be held", now)

    def _note(self, correlation: int, text: str, now: int) -> None:
        self.relay.writer.write(Kind.NOTE, self.number, 0, now, text.encode(), correlation)

    closed: bool

    def close(self, how: str) -> None:
        """Close both sockets: with "rst" so that the peers see a reset."""
        raise NotImplementedError

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
            entry = self.take()
            self.answer_bytes -= len(answer)
            if isinstance(entry, InFlight) and entry.fate is not None and entry.exchange is not None:
                carrying.respond(self, entry.fate, entry.exchange, None, answer, "", now)
                self.relay.wake(self.request)
                continue
            self.response.last_id = int.from_bytes(answer[4:8], "big")
            self.response.emit(answer, now)
            self.relay.wake(self.request)

    def deliver_all(self, now: int) -> None:
        """No response will come any more: all answers that are left, in order."""
        while self.in_flight and self.response.at_boundary():
            if self._next_answer() is None:
                self.take()
            self.deliver(now)
