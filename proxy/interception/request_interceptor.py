"""Which frames of a connection are held, and what becomes of requests.

A held request is shown to plugins, intercepts and rules, and goes on, changed or not, or is answered here. Held responses are
in `responses`, what the client is given in `answering`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...decoder import Exchange, facts
from ...decoder.exchange import State
from ...decoder.hit_notes import EDITED_BY_HAND
from ...decoder.skeleton import Skeleton, fleshed
from ...decoder.strides import ANSWERED, SILENT, UNKNOWN, is_quiet, known_head
from ...plugins import fetch_sessions
from ...plugins.fate import Fate, damaged
from ...plugins.fetch_sessions import FETCH
from ..addressing.node_endpoint_scanner import Tail
from ..clock import now_ns
from ..events import Capped, Undecoded
from ..inflight import CORRELATION, REQUEST, InFlight, key_and_version
from ..negotiation import version_adapter
from ..plugged.own_request import OwnRequest
from ..sift import Sifting
from ..switching import HEAD_KEPT
from . import fault_executor
from .frame_editor import (
    ADDRESS_APIS,
    ADDRESS_REQUESTS,
    API_VERSIONS,
    ENDPOINT_APIS,
    ENDPOINT_LIMIT,
    HIGHEST_VERSION,
    KNOWN,
    Unreadable,
    framed,
    names_brokers,
    refusal,
    refuses,
)
from .request_frames import exchange_of, gets_response
from .response_interceptor import Responses, kept_exchange

if TYPE_CHECKING:
    from ...plugins.book import RuleBook

SEEN_THROUGH = 4096
"""Bytes of a frame that have to be missing, to be looked at before they are there."""

def _signed(correlation: int) -> int:
    return correlation - (1 << 32) if correlation >> 31 else correlation


class Holding(Responses):
    """What a connection does with frames that it holds. `Connection` adds its life."""

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
        if (self.relay.rewrites and refuses(key, version)) or version_adapter.wants(self.dialect, key, version):
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
            table = self.known_heads()
            known = known_head(table, data, at, len(data), size, key << 16 | version) if table else UNKNOWN
            if self.keeps(key) and at + size + 4 > len(data):
                known = UNKNOWN  # all of it is needed
            if known not in (ANSWERED, SILENT) and not self._of_no_concern(data, at, size):
                if self.unsure is None and self._rules_alone(key):
                    self._see_through(lane, "request", key, version, at + size + 4 - len(data))
                return True
        self.remember(data, at)
        return False

    def _of_no_concern(self, data: bytes, at: int, size: int) -> bool:
        """Whether a request that is wholly here is surely about no rule: it passes with its neighbours then."""
        end = at + size + 4
        key = REQUEST(data, at)[1]
        if end > len(data) or self.unsure is not None or not self._rules_alone(key):
            return False
        if key in self.relay.editor.keeping.free:
            return True
        if key == FETCH and self._whole_fetches() and fetch_sessions.begins(data, at) is not None:
            return False
        exchange = exchange_of(self, data[at:end], now_ns())
        if exchange.request_message is None or self.relay.editor.rules.concerns(exchange):
            return False
        if key == FETCH and self._whole_fetches() and not fetch_sessions.whole(exchange.request_message):
            return False
        self.heads.keep(exchange, self.relay.editor.rules)
        return True

    def _see_through(self, lane: Sifting, kind: str, key: int, version: int, missing: int) -> None:
        """A frame is held; perhaps no rule is about it, and that is seen before it is all there."""
        if kind == "request" and key == FETCH and self._whole_fetches():
            return  # it may have to be changed
        if missing > SEEN_THROUGH and fleshed(kind, key, version) and self.relay.editor.rules.skeletal(key):
            lane.skeleton = Skeleton(kind, key, version)

    def of_no_concern(self, lane: Sifting, skeleton: bytes, held: bytes, now: int) -> bool:
        """Whether no rule is about a frame of which this is the `decoder.skeleton`, so that it may pass. `held`: what is
        there of it."""
        rules = self.relay.editor.rules
        try:
            if lane.direction:
                return self._response_passes(rules, lane, skeleton, held, now)
            return self._request_passes(rules, skeleton, held, now)
        except Exception:
            return False  # whoever reads it when it is all there tells what is wrong with it

    def _request_passes(self, rules: RuleBook, skeleton: bytes, held: bytes, now: int) -> bool:
        size = int.from_bytes(held[:4], "big")
        if REQUEST(skeleton)[1] in self.relay.editor.keeping.free:
            self.remember(skeleton, 0, size)
            return True
        exchange = exchange_of(self, skeleton, now)
        exchange.marks["sizes"] = size, None
        if exchange.request_message is None or rules.concerns(exchange):
            return False
        self.heads.keep(exchange, rules)
        self.remember(skeleton, 0, size)
        return True

    def _response_passes(self, rules: RuleBook, lane: Sifting, skeleton: bytes, held: bytes, now: int) -> bool:
        kept = self.in_flight.kept()
        if kept is None:
            return False
        _, key, version, _ = REQUEST(kept[0])
        size = int.from_bytes(held[:4], "big")
        if not is_quiet(self.relay.editor.keeping.quiet, key << 16 | version, skeleton, now - kept[1], size):
            exchange = kept_exchange(self, kept, size)
            exchange.response, exchange.response_time_ns, exchange.state = skeleton[4:], now, State.PAIRED
            exchange.marks["sizes"] = kept[2], size
            if exchange.response_message is None or rules.concerns(exchange, late=True):
                return False
        tail: Tail | None = None
        if key << 16 | version in self.relay.watch:
            if key not in ENDPOINT_APIS:
                return False
            tail = Tail(key, version)
            if tail.feed(memoryview(held)[4:]) >= 0:
                return False
        self._followed = self.take()
        lane.tail = tail
        return True

    def _whole_fetches(self) -> bool:
        """Whether a rule or a plugin has to know all topics of a Fetch (see `plugins.fetch_sessions`)."""
        plugged = self.relay.plugged
        return self.relay.editor.rules.whole_fetches() or (plugged is not None and plugged.whole_fetches)

    def _known_without_session(self, frame: bytes) -> bytes | None:
        """A Fetch that begins a session as one without, if one that begins alike was seen to concern no rule. Clients whose
        sessions are not let begin try it with each of their requests."""
        table = self.known_heads()
        if not table or self.unsure is not None or not self._rules_alone(FETCH) or not self._whole_fetches():
            return None
        if self.keeps(FETCH) or FETCH in self.relay.editor.rules.late():
            return None  # more of it is wanted, for its response
        other = fetch_sessions.alone(frame)
        if other is None:
            return None
        number = int.from_bytes(frame[4:8], "big")
        return other if known_head(table, other, 0, len(other), len(other) - 4, number) == ANSWERED else None

    def _rules_alone(self, key: int) -> bool:
        """Whether only rules want to see the messages of an API."""
        editor = self.relay.editor
        return self.dialect is None and key not in editor.others and key != API_VERSIONS

    def _holds_response(self, data: bytes, at: int, size: int) -> bool:
        (correlation,) = CORRELATION(data, at + 4) if size >= 4 else (-1,)
        before, self.response.last_id = self.response.last_id, correlation
        entry = self.answered(correlation)
        if entry is None:
            return False
        if self.in_flight.kept() is not None:
            self._see_through(self.response, "response", *key_and_version(entry), at + size + 4 - len(data))
            return True
        if isinstance(entry, InFlight):
            if self.asking and isinstance(entry.plugged, OwnRequest):
                self.response.last_id = before  # the client has nothing to do with it
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

    def passing(self) -> Any:
        return super().passing() if self.dialect is None else version_adapter.passing(self, self.dialect)

    def keeps(self, key: int) -> bool:
        return self.dialect is None and super().keeps(key)

    def known_heads(self) -> bytes:
        """How requests begin that may pass although rules want to see their API, as `strides` takes it."""
        return self.heads.table if self.dialect is None else b""

    def let_go(self, lane: Sifting) -> None:
        """A frame is too large to be held."""
        entry = None
        if lane.direction and lane.tail is not None:
            entry = self._followed
        elif lane.direction and self.in_flight:
            entry = self.take()
        what = "response" if lane.direction else "request"
        key, version = key_and_version(entry) if entry is not None else (-1, -1)
        why = f"the {what} is larger than {self.relay.hold_limit} bytes"
        if not version_adapter.unfit(self, lane, entry, why):
            self.relay.emit(Undecoded(self.number, key, version, why))

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
        if self.relay.rewrites and refuses(key, version) and not version_adapter.settles_versions(self.dialect):
            # Its answer could not be read here, so nobody could tell what the client may use afterwards.
            entry.answer = refusal(_signed(correlation))
            self.note(correlation, f"ApiVersions v{version} is not known here: answered as a broker would", now)
            self.stand_in(entry, frame, now)
            self.relay.emit_once(Capped(API_VERSIONS, version, facts.api(API_VERSIONS).versions.high or 0))
            return
        plugged = self.relay.plugged
        if plugged is None or not plugged.hold_request(self, frame, now):
            self.past_plugins(frame, frame, now)

    def past_plugins(self, frame: bytes, original: bytes, now: int) -> None:
        """Plugins are done with a request."""
        if not self.relay.intercepts.hold_request(self, frame, now, original):
            self.judge(frame, original, now)

    def judge(self, frame: bytes, original: bytes, now: int) -> None:
        """What the rules say to a request, and the request on its way. `original`: as the client sent it."""
        _, key, version, _ = REQUEST(frame)
        editor = self.relay.editor
        fate: Fate | None = None
        exchange: Exchange | None = None
        answered = True
        if key == FETCH and (other := self._known_without_session(frame)) is not None:
            self._go(other, original, None, None, True, now)
            return
        if key in ADDRESS_REQUESTS and self.relay.rewrites:
            try:
                frame = editor.readdress_request(frame, self.local_host) or frame
            except Exception as error:  # fail open: it goes on as it came
                self.relay.emit(Undecoded(self.number, key, version, str(error) or type(error).__name__))
        try:
            whole = key == FETCH and self._whole_fetches()
            if (key not in editor.rules.interest() and not whole) or self.unsure is not None:
                answered = gets_response(frame)
            else:
                exchange = exchange_of(self, frame, now)
                self.about.learn(exchange)
                if whole and (asked := exchange.request_message) is not None:
                    other, ended = fetch_sessions.instead(asked, exchange.correlation_id)
                    if ended is not None:
                        self.answer(original, framed(ended), fetch_sessions.ENDED, now)
                        return
                    if other is not None:
                        frame = framed(other)
                        exchange = exchange_of(self, frame, now)
                fate, answered = editor.decide(exchange)
                alone = self._rules_alone(key) and key not in editor.keeping.free
                if fate is None and alone and not editor.rules.concerns(exchange):
                    self.heads.keep(exchange, editor.rules)
        except Exception as error:
            # Fail open: whatever a rule or the decoder does wrong, the request goes on as it came.
            if not isinstance(error, Unreadable) or key in editor.rules.interest():
                self.relay.emit(Undecoded(self.number, key, version, str(error) or type(error).__name__))
            fate, answered = None, gets_response(frame)
        if fate is None or exchange is None:
            self._go(frame, original, exchange, None, answered, now)
            return
        self.fired(fate, exchange, now)
        fault_executor.count_in(fate, now)

        def go(later: int) -> None:
            self._go(frame, original, exchange, fate, answered, later)

        def silent(later: int) -> None:
            fault_executor.silence(self, fate, go, len(frame))

        then = silent if fate.silence > 0 else go
        if fate.request_delay:
            fault_executor.wait(self.request, fate.request_delay, then, now, len(frame))
        else:
            then(now)

    def _go(
        self, frame: bytes, original: bytes, exchange: Exchange | None, fate: Fate | None, answered: bool, now: int
    ) -> None:
        """The request on its way to the broker, or where its fate sends it."""

        def again(later: int) -> None:
            self._go(frame, original, exchange, fate, answered, later)

        if version_adapter.learns(self, again, now):
            return
        _, key, version, correlation = REQUEST(frame)
        entry = InFlight(key, version, correlation)
        by, self.plugin_note = self.plugin_note, ""
        note = by or ("addresses" if key in ADDRESS_REQUESTS else EDITED_BY_HAND)
        if key == FETCH and self._whole_fetches():
            note = f"{by}; {fetch_sessions.NOTE}" if by else fetch_sessions.NOTE
        sent = frame
        if self.relay.plugged is not None:
            entry.plugged = self.relay.plugged.keep(self, original, now, answered)
        if fate is not None:
            note = f"{by}; {fate.note}" if by else fate.note
            entry.rule, entry.exchange = fate.rule, exchange
            entry.fate = fate if fate.late else None
            if fate.dialect is not None:
                version_adapter.speak(self, self.relay.spoken.with_profile(self, fate.dialect))
            if fault_executor.before_the_broker(self, fate, frame, original, now):
                return
            if fate.answer is not None:
                entry.answer = framed(fate.answer)
                self.stand_in(entry, original, now)
                return
            if fate.request is not None:
                sent = framed(fate.request)
            if fate.request_damage:
                sent = damaged(sent, fate.request_damage)
        elif exchange is not None and key in self.relay.editor.rules.late():
            entry.exchange = exchange
        if answered:
            entry.kept = self.relay.intercepts.keep(self, frame, now)
        if (fate is None or not fate.request_damage) and version_adapter.asked(self, entry, sent, original, answered, now):
            return
        if answered:
            if entry.fate is None and entry.kept is None and entry.exchange is None and entry.plugged is None:
                self.in_flight.append((key << 16 | version) << 32 | correlation)
            else:
                self.wait_for_response(entry, original if entry.kept or entry.plugged else b"", frame if entry.exchange else b"")
        if sent == original:
            self.request.emit(frame, now)
            return
        self.publish_request(original, now)
        self.broker_leg(0, sent, note, now)
        self.request.push(sent)
