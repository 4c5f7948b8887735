"""Which requests of a connection are held, and what becomes of them.

A held request is shown to plugins, intercepts and rules, and goes on, changed or not, or is answered here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....decoder import Exchange
from ....decoder.connection.hit_notes import EDITED_BY_HAND
from ....decoder.schema import facts
from ....plugins.actions.fault_plan import FaultPlan, damaged
from ....plugins.answers import fetch_sessions
from ....plugins.answers.fetch_sessions import FETCH
from ...events import Capped
from ...ring.clock import now_ns
from ..connections.correlation import REQUEST, InFlight
from ..connections.tracking_mode import HEAD_KEPT
from ..negotiation import version_adaptation
from .frame_editor import (
    ADDRESS_REQUESTS,
    API_VERSIONS,
    HIGHEST_VERSION,
    KNOWN,
    PRODUCE,
    Unreadable,
    framed,
    produce_acks,
    refusal,
    refuses,
)
from .interest.pass_cache import ANSWERED, SILENT, UNKNOWN, known_head
from .request_frames import exchange_of, gets_response, report_unread
from .response_interceptor import start_header_prefix
from .rules import fault_executor

if TYPE_CHECKING:
    from ....plugins.rules.rule_engine import RuleEngine
    from ..interfaces import ConnectionInterface, HalfConnectionInterface


def _signed(correlation: int) -> int:
    return correlation - (1 << 32) if correlation >> 31 else correlation


class RequestInterceptor:
    """What a connection does with its requests: which of them are held, and what becomes of those."""

    def __init__(self, connection: ConnectionInterface) -> None:
        self._connection = connection
        self.plugin_note = ""
        """What plugins did to the request that is on its way just now."""

    def holds(self, half: HalfConnectionInterface, data: bytes, at: int, size: int) -> bool:
        """Whether the request whose head stands at `at` is held."""
        connection = self._connection
        if size < 8:
            return False
        _, key, version, correlation = REQUEST(data, at)
        half.last_id = correlation
        half.last_head = data[at : at + HEAD_KEPT]
        if (connection.relay.rewrites and refuses(key, version)) or version_adaptation.wants(connection.adapter, key, version):
            return True
        if key in ADDRESS_REQUESTS and 0 <= version <= HIGHEST_VERSION and connection.relay.rewrites:
            connection.inline = connection.between_brokers = True
            return True
        if not connection.inline:
            if key << 16 | version & 0xFFFF in connection.relay.watch:
                connection.correlation.expect(data, at, len(data), connection.inline)
            return False
        if not 0 <= version <= HIGHEST_VERSION or key not in KNOWN:
            return False  # not a request's head: a raw SASL token, or an API newer than this table
        if key in connection.relay.editor.requests:
            table = self.known_heads()
            known = known_head(table, data, at, len(data), size, key << 16 | version) if table else UNKNOWN
            if self.keeps(key) and at + size + 4 > len(data):
                known = UNKNOWN  # all of it is needed
            if known not in (ANSWERED, SILENT) and not self._of_no_concern(data, at, size):
                if not connection.correlation.unsure and self._rules_alone(key) and not (key == FETCH and self._whole_fetches()):
                    start_header_prefix(half, "request", key, version, at + size + 4 - len(data))
                return True
        self.remember(data, at)
        return False

    def _of_no_concern(self, data: bytes, at: int, size: int) -> bool:
        """Whether a request that is wholly here is surely about no rule: it passes with its neighbours then."""
        connection = self._connection
        end = at + size + 4
        key = REQUEST(data, at)[1]
        if end > len(data) or connection.correlation.unsure or not self._rules_alone(key):
            return False
        if key in connection.relay.editor.response_interest.free:
            return True
        if key == FETCH and self._whole_fetches() and fetch_sessions.epoch_offset(data, at) is not None:
            return False
        exchange = exchange_of(connection, data[at:end], now_ns())
        if exchange.request_message is None or connection.relay.editor.rules.concerns(exchange):
            return False
        if key == FETCH and self._whole_fetches() and not fetch_sessions.whole(exchange.request_message):
            return False
        connection.pass_cache.keep(exchange, connection.relay.editor.rules)
        return True

    def passes(self, rules: RuleEngine, prefix: bytes, held: bytes, now: int) -> bool:
        """Whether no rule is about a request of which this is the prefix, so that it may pass. `held`: what is there of it."""
        connection = self._connection
        size = int.from_bytes(held[:4], "big")
        if REQUEST(prefix)[1] in connection.relay.editor.response_interest.free:
            self.remember(prefix, 0, size)
            return True
        exchange = exchange_of(connection, prefix, now)
        exchange.marks.sizes = size, None
        if exchange.request_message is None or rules.concerns(exchange):
            return False
        connection.pass_cache.keep(exchange, rules)
        self.remember(prefix, 0, size)
        return True

    def _whole_fetches(self) -> bool:
        """Whether a rule or a plugin has to know all topics of a Fetch (see `plugins.answers.fetch_sessions`)."""
        connection = self._connection
        plugins = connection.relay.plugins
        return connection.relay.editor.rules.whole_fetches() or (plugins is not None and plugins.whole_fetches)

    def _known_without_session(self, frame: bytes) -> bytes | None:
        """A Fetch that begins a session as one without, if one that begins alike was seen to concern no rule. Clients whose
        sessions are not let begin try it with each of their requests."""
        connection = self._connection
        table = self.known_heads()
        if not table or connection.correlation.unsure or not self._rules_alone(FETCH) or not self._whole_fetches():
            return None
        if self.keeps(FETCH) or FETCH in connection.relay.editor.rules.late():
            return None  # more of it is wanted, for its response
        other = fetch_sessions.without_session(frame)
        if other is None:
            return None
        number = int.from_bytes(frame[4:8], "big")
        return other if known_head(table, other, 0, len(other), len(other) - 4, number) == ANSWERED else None

    def _rules_alone(self, key: int) -> bool:
        """Whether only rules want to see the messages of an API."""
        connection = self._connection
        editor = connection.relay.editor
        return connection.adapter is None and key not in editor.others and key != API_VERSIONS

    def passing(self) -> bytes:
        """The requests that pass without being held, as an `api_version_bitmap`."""
        connection = self._connection
        if connection.adapter is not None:
            return version_adaptation.passing_requests(connection, connection.adapter)
        return connection.relay.editor.scan_rules.passing

    def keeps(self, key: int) -> bool:
        """Whether a request of this API passes with its bytes kept for when its response is there."""
        connection = self._connection
        return connection.adapter is None and key in connection.relay.editor.response_interest.apis and not connection.correlation.unsure

    def remember(self, data: bytes | memoryview, at: int, whole: int = 0) -> None:
        """Where rules stand, a request goes on: its response is awaited, unless it is a Produce that gets none. `whole`: the
        request's size, if this is its prefix."""
        connection = self._connection
        size, key, version, correlation = REQUEST(data, at)
        if key == PRODUCE and produce_acks(data, at, len(data)) == 0:
            return
        number = (key << 16 | version) << 32 | correlation
        if self.keeps(key) and at + size + 4 <= len(data):
            connection.in_flight.append_kept(number, bytes(data[at : at + size + 4]), now_ns(), whole or size)
        else:
            connection.in_flight.append(number)

    def known_heads(self) -> bytes:
        """How requests begin that may pass although rules want to see their API, as `pass_cache.known_head` takes it."""
        connection = self._connection
        return connection.pass_cache.table if connection.adapter is None else b""

    def held(self, frame: bytes, now: int) -> None:
        """A held request is complete."""
        connection = self._connection
        _, key, version, correlation = REQUEST(frame)
        entry = InFlight(key, version, correlation)
        if connection.relay.rewrites and refuses(key, version) and not version_adaptation.refuses_unknown_versions(connection.adapter):
            # Its response could not be read here, so the versions that the client uses afterwards would be unknown.
            entry.answer = refusal(_signed(correlation))
            connection.note(correlation, f"ApiVersions v{version} is unknown: answered as a broker would", now)
            connection.response_orderer.stand_in(entry, frame, now)
            connection.relay.emit_once(Capped(API_VERSIONS, version, facts.api(API_VERSIONS).versions.high or 0))
            return
        plugins = connection.relay.plugins
        if plugins is None or not plugins.hold_request(connection, frame, now):
            self.past_plugins(frame, frame, now)

    def past_plugins(self, frame: bytes, original: bytes, now: int) -> None:
        """Plugins are done with a request."""
        connection = self._connection
        if not connection.relay.intercepts.hold_request(connection, frame, now, original):
            self.judge(frame, original, now)

    def judge(self, frame: bytes, original: bytes, now: int) -> None:
        """Let the rules decide about a request, and send it on. `original`: as the client sent it."""
        connection = self._connection
        _, key, version, _ = REQUEST(frame)
        editor = connection.relay.editor
        faults: FaultPlan | None = None
        exchange: Exchange | None = None
        answered = True
        if key == FETCH and (other := self._known_without_session(frame)) is not None:
            self._go(other, original, None, None, True, now)
            return
        if key in ADDRESS_REQUESTS and connection.relay.rewrites:
            try:
                frame = editor.readdress_request(frame, connection.local_host) or frame
            except Exception as error:  # fail open: it goes on as it came
                report_unread(connection, key, version, error)
        try:
            whole = key == FETCH and self._whole_fetches()
            if (key not in editor.rules.interest() and not whole) or connection.correlation.unsure:
                answered = gets_response(frame)
            else:
                exchange = exchange_of(connection, frame, now)
                connection.about.learn(exchange)
                if whole and (asked := exchange.request_message) is not None:
                    other, ended = fetch_sessions.replacement(asked, exchange.correlation_id)
                    if ended is not None:
                        connection.response_orderer.answer(original, framed(ended), fetch_sessions.ENDED, now)
                        return
                    if other is not None:
                        frame = framed(other)
                        exchange = exchange_of(connection, frame, now)
                faults, answered = editor.decide(exchange)
                alone = self._rules_alone(key) and key not in editor.response_interest.free
                if faults is None and alone and not editor.rules.concerns(exchange):
                    connection.pass_cache.keep(exchange, editor.rules)
        except Exception as error:
            # Fail open: whatever a rule or the decoder does wrong, the request goes on as it came.
            if not isinstance(error, Unreadable) or key in editor.rules.interest():
                report_unread(connection, key, version, error)
            faults, answered = None, gets_response(frame)
        if faults is None or exchange is None:
            self._go(frame, original, exchange, None, answered, now)
            return
        connection.rule_fired(faults, exchange, now)
        fault_executor.subtract_elapsed(faults, now)

        def go(later: int) -> None:
            self._go(frame, original, exchange, faults, answered, later)

        def silent(later: int) -> None:
            fault_executor.silence(connection, faults, go, len(frame))

        then = silent if faults.silence > 0 else go
        if faults.request_delay:
            fault_executor.wait(connection.request, faults.request_delay, then, now, len(frame))
        else:
            then(now)

    def _go(
        self, frame: bytes, original: bytes, exchange: Exchange | None, faults: FaultPlan | None, answered: bool, now: int
    ) -> None:
        """The request goes to the broker, or wherever its fault plan sends it."""
        connection = self._connection

        def again(later: int) -> None:
            self._go(frame, original, exchange, faults, answered, later)

        _, key, version, correlation = REQUEST(frame)
        if version_adaptation.await_offers(connection, key, again, now):
            return
        entry = InFlight(key, version, correlation)
        by, self.plugin_note = self.plugin_note, ""
        note = by or ("addresses" if key in ADDRESS_REQUESTS else EDITED_BY_HAND)
        if key == FETCH and self._whole_fetches():
            note = f"{by}; {fetch_sessions.NOTE}" if by else fetch_sessions.NOTE
        sent = frame
        if connection.relay.plugins is not None:
            entry.hooked = connection.relay.plugins.keep(connection, original, now, answered)
        if faults is not None:
            note = f"{by}; {faults.note}" if by else faults.note
            entry.exchange = exchange
            entry.faults = faults if faults.late else None
            if faults.adapter is not None:
                version_adaptation.use_adapter(connection, connection.relay.version_negotiation.with_profile(connection, faults.adapter))
            if fault_executor.apply_to_request(connection, faults, frame, original, now):
                return
            if faults.answer is not None:
                entry.answer = framed(faults.answer)
                connection.response_orderer.stand_in(entry, original, now)
                return
            if faults.request is not None:
                sent = framed(faults.request)
            if faults.request_damage:
                sent = damaged(sent, faults.request_damage)
        elif exchange is not None and key in connection.relay.editor.rules.late():
            entry.exchange = exchange
        if answered:
            entry.kept = connection.relay.intercepts.keep(connection, frame, now)
        if (faults is None or not faults.request_damage) and version_adaptation.adapt_request(connection, entry, sent, original, answered, now):
            return
        if answered:
            if entry.faults is None and entry.kept is None and entry.exchange is None and entry.hooked is None:
                connection.correlation.add(key, version, correlation)
            else:
                connection.correlation.wait_for(entry, original if entry.kept or entry.hooked else b"", frame if entry.exchange else b"")
        if sent == original:
            connection.request.emit(frame, now)
            return
        connection.publish_request(original, now)
        connection.broker_leg(0, sent, note, now)
        connection.request.push(sent)
