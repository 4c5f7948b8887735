"""Responses that are held: the proxy's own addresses, versions that are offered, what rules and dialects make of them."""

from __future__ import annotations

from ...decoder import Exchange
from ...decoder.exchange import State
from ...decoder.filter.patterns import PatternTimeout
from ...plugins.fate import Fate
from ..addressing.node_endpoint_scanner import Tail, blind
from ..events import Capped, RuleHit, Undecoded
from ..inflight import CORRELATION, InFlight, entry_id, key_and_version
from ..negotiation import version_adapter
from ..plugged.own_request import OwnRequest
from ..sift import Sifting
from . import fault_executor
from .frame_editor import API_VERSIONS, ENDPOINT_APIS, framed, names_brokers
from .request_frames import exchange_of
from .response_orderer import Answering


def kept_exchange(connection: Responses, kept: tuple[bytes, int, int], answer: int) -> Exchange:
    """The exchange that a request has begun which was kept (`strides.PythonQueue.kept`). `answer`: its response's size."""
    frame, came, size = kept
    exchange = exchange_of(connection, frame, came)
    if size + 4 != len(frame):  # its skeleton
        exchange.marks["sizes"] = size, answer
    return exchange


class Responses(Answering):
    """What a connection does with responses. `Holding` adds requests."""

    def _held_response(self, frame: bytes, now: int) -> None:
        if not self.in_flight or entry_id(self.in_flight[0]) != CORRELATION(frame, 4)[0]:
            self.give(None, frame, "", now)  # so many requests came meanwhile that its own was forgotten
            return
        kept = self.in_flight.kept()
        entry = self.take()
        key, version = key_and_version(entry)
        plugged = entry.plugged if isinstance(entry, InFlight) else None
        if isinstance(plugged, OwnRequest):
            if self.relay.plugged is not None:
                self.relay.plugged.answered(plugged, frame, now)
            return
        heard = frame
        if isinstance(entry, InFlight) and entry.asked is not None:
            spoken = version_adapter.responded(self, entry, frame, now)
            if spoken is None:
                return
            frame = spoken
        fate = entry.fate if isinstance(entry, InFlight) else None
        exchange = entry.exchange if isinstance(entry, InFlight) else None
        if kept is not None:
            exchange = kept_exchange(self, kept, len(frame) - 4)
        unknown = self.relay.editor.unknown_names(frame, key, version) if names_brokers(key, version) else ()

        def go_on(later: int) -> None:
            self._seen = plugged
            self._known_response(entry, heard, frame, fate, exchange, later)

        if unknown:
            self.relay.prober.look_up(unknown, fault_executor.pause(self.response, go_on, len(frame)))
        else:
            go_on(now)

    def _known_response(
        self, entry: int | InFlight, heard: bytes, frame: bytes, fate: Fate | None, exchange: Exchange | None, now: int
    ) -> None:
        """A response whose names of brokers are known, or took too long. `heard`: as the broker sent it."""
        key, version = key_and_version(entry)
        changed: bytes | None = None
        unread = False
        note = "addresses"
        try:
            if names_brokers(key, version):
                named = len(self.relay.editor.rules.seen.topics)
                changed = self.relay.editor.readdress(frame, key, version, self.local_host)
                if len(self.relay.editor.rules.seen.topics) > named:
                    self.relay.topics_named()
            elif key == API_VERSIONS and self.relay.rewrites:
                note = "versions"
                changed, capped = self.relay.editor.cap(frame, version)
                for api_key, offered, now_offered in capped:
                    self.relay.emit_once(Capped(api_key, offered, now_offered))
            if exchange is not None:
                exchange.response, exchange.response_time_ns = (changed or frame)[4:], now
                exchange.state = State.PAIRED
                self.about.learn(exchange)
                judged = False
                try:
                    if fate is None and (fate := self.relay.editor.judge(exchange)) is not None:
                        judged = True
                        fault_executor.pace(self, fate.rates)
                except PatternTimeout as error:  # as if no rule had matched: the addresses are changed all the same
                    self.relay.emit(Undecoded(self.number, key, version, str(error)))
                if fate is not None:
                    changed = self._as_wanted(fate, exchange)
                    note = fate.note
                    if judged:
                        self.fired(fate, exchange, now)
                    elif fate.corrected:
                        self.relay.rules.corrected(fate)
                        self.note(exchange.correlation_id & 0xFFFFFFFF, note, now)
        except Exception as error:
            self.relay.emit(Undecoded(self.number, key, version, str(error) or type(error).__name__))
            changed, unread, fate = None, True, None
        if changed is None or changed == frame:
            changed, note = frame, "" if frame == heard else version_adapter.NOTE
        if self.relay.plugged is not None:
            self.relay.plugged.learn(self, key, version, changed)
        if fate is not None and exchange is not None and fate.late:
            fault_executor.respond(self, fate, exchange, heard, changed, note or fate.note, now)
        elif not isinstance(entry, InFlight) or not self.relay.intercepts.hold_response(
            self, entry, heard, changed, note, now
        ):
            self.respond(heard, changed, note, now)
        if unread:
            self.overtake(entry)  # perhaps not the response that was meant: the next with its id is tried, too

    def _as_wanted(self, fate: Fate, exchange: Exchange) -> bytes:
        """The response as a fate wants it; as it is if that cannot be: with the proxy's addresses, in any case."""
        frame = exchange.response or b""
        try:
            return framed(fate.respond(exchange, frame))
        except Exception as error:
            why = f"{fate.rule!r} cannot change it: {str(error) or type(error).__name__}"
            fate.notes.append(f"not changed: {str(error) or type(error).__name__}")
            fate.corrected = True
            self.relay.emit(Undecoded(self.number, exchange.api_key, exchange.api_version, why))
            return framed(frame)

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
            self.note(correlation, "node endpoints made unusable: the response is too large to be held", now)

    def follow(self, lane: Sifting) -> None:
        """The response to the request at the head passes, and is followed to where its node endpoints are, if it can have any."""
        self._followed = self.take()
        key, version = key_and_version(self._followed)
        lane.tail = Tail(key, version) if key in ENDPOINT_APIS else None

    def fired(self, fate: Fate, exchange: Exchange, now: int) -> None:
        """Tell that a rule has fired."""
        correlation = exchange.correlation_id
        self.relay.rules.fired(fate, exchange, now)
        self.relay.emit(RuleHit(fate.rule, self.number, exchange.api_key, exchange.api_version, correlation, fate.hits))
        self.note(correlation & 0xFFFFFFFF, fate.note, now)
