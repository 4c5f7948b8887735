"""Responses that are held: the proxy's own addresses, versions that are offered, what rules and version adapters make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....decoder import Exchange
from ....decoder.connection.exchange import State
from ....decoder.filter.language.patterns import PatternTimeout
from ....plugins.actions.fault_plan import FaultPlan
from ....plugins.rules.rule_engine import RuleEngine
from ...events import Capped, Undecoded
from ..addressing.node_endpoint_scanner import NodeEndpointScanner, neutralize_endpoints
from ..connections.correlation import CORRELATION, REQUEST, InFlight, entry_id, key_and_version
from ..interfaces import HookedRequest, PluginRequest
from ..negotiation import version_adaptation
from .frame_editor import ADDRESS_APIS, API_VERSIONS, ENDPOINT_APIS, ENDPOINT_LIMIT, framed, names_brokers
from .interest.header_prefix import HeaderPrefix, may_have_records
from .interest.response_interest import is_quiet
from .request_frames import exchange_of, report_unread
from .rules import fault_executor

if TYPE_CHECKING:
    from ..interfaces import ConnectionInterface, HalfConnectionInterface

PREFIX_WORTHWHILE = 4096
"""Bytes of a frame that have to be missing, to be looked at before they are there."""


def kept_exchange(connection: ConnectionInterface, kept: tuple[bytes, int, int], answer: int) -> Exchange:
    """The exchange that a request has begun which was kept (`correlation.PlainQueue.kept`). `answer`: its response's size."""
    frame, came, size = kept
    exchange = exchange_of(connection, frame, came)
    if size + 4 != len(frame):  # its prefix
        exchange.marks.sizes = size, answer
    return exchange


def start_header_prefix(half: HalfConnectionInterface, kind: str, api_key: int, api_version: int, missing: int) -> None:
    """A frame is held; perhaps no rule is about it, and that is seen before it is all there. `missing`: bytes of it."""
    rules = half.connection.relay.editor.rules
    if missing > PREFIX_WORTHWHILE and may_have_records(kind, api_key, api_version) and rules.by_header_prefix(api_key):
        half.header_prefix = HeaderPrefix(kind, api_key, api_version)


class ResponseInterceptor:
    """What a connection does with responses that are held, or followed to their end."""

    def __init__(self, connection: ConnectionInterface) -> None:
        self._connection = connection
        self.followed: int | InFlight = 0
        """The request of the response that passes and is followed to its end (`HalfConnection.endpoint_scanner`)."""

    def held(self, frame: bytes, now: int) -> None:
        """A held response is complete."""
        connection = self._connection
        if not connection.in_flight or entry_id(connection.in_flight[0]) != CORRELATION(frame, 4)[0]:
            connection.response_orderer.give(None, frame, "", now)  # so many requests came meanwhile that its own was forgotten
            return
        kept = connection.in_flight.kept()
        entry = connection.correlation.take()
        key, version = key_and_version(entry)
        hooked = entry.hooked if isinstance(entry, InFlight) else None
        if isinstance(hooked, PluginRequest):
            if connection.relay.plugins is not None:
                connection.relay.plugins.answered(hooked, frame, now)
            return
        original = frame
        if isinstance(entry, InFlight) and entry.adaptation is not None:
            adapted = version_adaptation.adapt_response(connection, entry, frame, now)
            if adapted is None:
                return
            frame = adapted
        faults = entry.faults if isinstance(entry, InFlight) else None
        exchange = entry.exchange if isinstance(entry, InFlight) else None
        if kept is not None:
            exchange = kept_exchange(connection, kept, len(frame) - 4)
        unknown = connection.relay.editor.unknown_names(frame, key, version) if names_brokers(key, version) else ()

        def go_on(later: int) -> None:
            connection.response_orderer.hooked = hooked if isinstance(hooked, HookedRequest) else None
            self._known(entry, original, frame, faults, exchange, later)

        if unknown:
            connection.relay.prober.look_up(unknown, fault_executor.pause(connection.response, go_on, len(frame)))
        else:
            go_on(now)

    def _known(
        self, entry: int | InFlight, original: bytes, frame: bytes, faults: FaultPlan | None, exchange: Exchange | None, now: int
    ) -> None:
        """A response whose names of brokers are known, or took too long. `original`: as the broker sent it."""
        connection = self._connection
        key, version = key_and_version(entry)
        changed: bytes | None = None
        unread = False
        note = "addresses"
        try:
            if names_brokers(key, version):
                named = len(connection.relay.editor.rules.cluster_view.topics)
                changed = connection.relay.editor.readdress(frame, key, version, connection.local_host)
                if len(connection.relay.editor.rules.cluster_view.topics) > named:
                    connection.relay.topics_named()
            elif key == API_VERSIONS and connection.relay.rewrites:
                note = "versions"
                changed, capped = connection.relay.editor.cap(frame, version)
                for each in capped:
                    connection.relay.emit_once(Capped(*each))
            if exchange is not None:
                exchange.response, exchange.response_time_ns = (changed or frame)[4:], now
                exchange.state = State.PAIRED
                connection.about.learn(exchange)
                judged = False
                try:
                    if faults is None and (faults := connection.relay.editor.judge(exchange)) is not None:
                        judged = True
                        fault_executor.pace(connection, faults.rates)
                except PatternTimeout as error:  # as if no rule had matched: the addresses are changed all the same
                    report_unread(connection, key, version, error)
                if faults is not None:
                    changed = self._as_wanted(faults, exchange)
                    note = faults.note
                    if judged:
                        connection.rule_fired(faults, exchange, now)
                    elif faults.corrected:
                        connection.relay.rules.corrected(faults)
                        connection.note(exchange.correlation_id & 0xFFFFFFFF, note, now)
        except Exception as error:  # fail open: it goes on as it came
            report_unread(connection, key, version, error)
            changed, unread, faults = None, True, None
        if changed is None or changed == frame:
            changed = frame
            note = version_adaptation.note(entry) if isinstance(entry, InFlight) and frame != original else ""
        if connection.relay.plugins is not None:
            connection.relay.plugins.learn(connection, key, version, changed)
        if faults is not None and exchange is not None and faults.late:
            fault_executor.respond(connection, faults, exchange, original, changed, note or faults.note, now)
        elif not isinstance(entry, InFlight) or not connection.relay.intercepts.hold_response(
            connection, entry, original, changed, note, now
        ):
            connection.response_orderer.respond(original, changed, note, now)
        if unread:
            connection.correlation.leave_unanswered(entry)  # perhaps not the response that was meant: the next with its id is tried, too

    def _as_wanted(self, faults: FaultPlan, exchange: Exchange) -> bytes:
        """The response as the fault plan wants it; as it is (with the proxy's addresses) if that fails."""
        connection = self._connection
        frame = exchange.response or b""
        try:
            return framed(faults.respond(exchange, frame))
        except Exception as error:  # fail open: a rule may ask for what this response cannot have
            faults.notes.append(f"not changed: {str(error) or type(error).__name__}")
            faults.corrected = True
            report_unread(connection, exchange.api_key, exchange.api_version, error, f"{faults.rule!r} cannot change it: ")
            return framed(frame)

    def held_end(self, rest: bytes, endpoint_scanner: NodeEndpointScanner) -> bytes:
        """The end of a response that was too large to be held: any node endpoints in it become unusable."""
        connection = self._connection
        key, version = key_and_version(self.followed)
        try:
            changed = neutralize_endpoints(rest, endpoint_scanner.tagged)
        except ValueError as error:
            connection.relay.emit(Undecoded(connection.number, key, version, f"its end cannot be read: {error}"))
            return rest
        if changed is None:
            return rest
        connection.neutralized = entry_id(self.followed)
        return changed

    def note_neutralized(self, now: int) -> None:
        """Note that a response's endpoints were made unusable. Not before its bytes are taken into the ring."""
        connection = self._connection
        correlation, connection.neutralized = connection.neutralized, None
        if correlation is not None:
            connection.note(correlation, "node endpoints made unusable: the response is too large to be held", now)

    def follow(self, half: HalfConnectionInterface) -> None:
        """The response to the request at the head passes, and is followed to where its node endpoints are, if it can have any."""
        connection = self._connection
        self.followed = connection.correlation.take()
        key, version = key_and_version(self.followed)
        half.endpoint_scanner = NodeEndpointScanner(key, version) if key in ENDPOINT_APIS else None

    def holds(self, data: bytes, at: int, size: int) -> bool:
        """Whether the response whose head stands at `at` is held."""
        connection = self._connection
        (correlation,) = CORRELATION(data, at + 4) if size >= 4 else (-1,)
        before, connection.response.last_id = connection.response.last_id, correlation
        entry = connection.correlation.find(correlation)
        if entry is None:
            return False
        if connection.in_flight.kept() is not None:
            start_header_prefix(connection.response, "response", *key_and_version(entry), at + size + 4 - len(data))
            return True
        if isinstance(entry, InFlight):
            if connection.asking and isinstance(entry.hooked, PluginRequest):
                connection.response.last_id = before  # the client has nothing to do with it
            return True  # stays at the head until the frame is complete
        key, version = entry >> 48, entry >> 32 & 0xFFFF
        if key in ADDRESS_APIS and names_brokers(key, version):
            return True
        if entry >> 32 in connection.relay.watch:
            if size <= ENDPOINT_LIMIT:
                return True
            self.follow(connection.response)
            return False
        connection.in_flight.popleft()
        return False

    def passes(self, rules: RuleEngine, half: HalfConnectionInterface, prefix: bytes, held: bytes, now: int) -> bool:
        """Whether no rule is about a response of which this is the prefix, so that it may pass. `held`: what is there of it."""
        connection = self._connection
        kept = connection.in_flight.kept()
        if kept is None:
            return False
        _, key, version, _ = REQUEST(kept[0])
        size = int.from_bytes(held[:4], "big")
        if not is_quiet(connection.relay.editor.response_interest.quiet, key << 16 | version, prefix, now - kept[1], size):
            exchange = kept_exchange(connection, kept, size)
            exchange.response, exchange.response_time_ns, exchange.state = prefix[4:], now, State.PAIRED
            exchange.marks.sizes = kept[2], size
            if exchange.response_message is None or rules.concerns(exchange, late=True):
                return False
        endpoint_scanner: NodeEndpointScanner | None = None
        if key << 16 | version in connection.relay.watch:
            if key not in ENDPOINT_APIS:
                return False
            endpoint_scanner = NodeEndpointScanner(key, version)
            if endpoint_scanner.feed(memoryview(held)[4:]) >= 0:
                return False
        self.followed = connection.correlation.take()
        half.endpoint_scanner = endpoint_scanner
        return True
