"""One client connection in the relay, from `accept` to the end of both directions.

It has two halves (`half`), a queue of requests in flight (`correlation`), interceptors for the frames that are held
(`interception`) and an orderer for what the client gets (`response_orderer`). Here: how it begins and ends, what is
done when something is wrong with it, and what is published for the recording.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import time
from typing import TYPE_CHECKING

from ....decoder.connection.api_versions import PeerInfo
from ....decoder.filter.language.patterns import PatternTimeout
from ....decoder.wire.frame import MAX_FRAME, Direction, foreign_protocol
from ....diagnostics import contained
from ...events import Address, ConnectionClosed, ConnectionOpened, NotKafka, RuleHit, Undecoded, UpstreamFailed
from ...native.accelerator import native
from ...ring.clock import now_ns
from ...ring.ring import NONE, Kind
from .. import interfaces
from ..addressing.address_map import reason
from ..addressing.down_brokers import refused
from ..addressing.resolver import Answer as Resolved
from ..addressing.resolver import SocketAddress
from ..interception.interest.pass_cache import PassCache
from ..interception.request_interceptor import RequestInterceptor
from ..interception.response_interceptor import ResponseInterceptor
from ..interception.response_orderer import ResponseOrderer
from ..io.acceptor import is_reset
from ..negotiation import version_adaptation
from ..negotiation.tls import TlsSocket
from .correlation import CorrelationQueue, key_and_version
from .half_connection import MOVES, HalfConnection
from .states import FLOWING, ConnectionState, HalfConnectionState, follow
from .unreachable_broker import UnreachableBroker

if TYPE_CHECKING:
    from ....decoder import Exchange
    from ....plugins.actions.fault_plan import FaultPlan
    from ....plugins.versions.adapter import VersionAdapter
    from ..addressing.node_endpoint_scanner import NodeEndpointScanner
    from ..interfaces import RelayInterface

if TYPE_CHECKING or not MOVES:
    Link = object
else:
    Link = native.ConnectionFields  # what the accelerator has to know of a connection

_RESET = struct.pack("ii", 1, 0)
_DECIDED = frozenset({ConnectionState.OPEN, ConnectionState.BREAKING, ConnectionState.UNREACHED, ConnectionState.CLOSED})
"""It is no longer open whether the broker can be reached."""


class Connection(Link):
    """From `accept` to the end of both directions."""

    def __init__(self, relay: RelayInterface, number: int, client: socket.socket, peer: Address, broker: Address) -> None:
        self.relay = relay
        self.number = number
        self.client = client
        self.peer = peer
        self.local_host: str = client.getsockname()[0].removeprefix("::ffff:")
        self.broker = broker
        self.real: Address = broker  # the broker's socket address
        self.own: Address = ("", 0)  # ours towards the broker
        self.upstream: socket.socket | None = None
        self.request = HalfConnection(self, Direction.REQUEST)
        self.response = HalfConnection(self, Direction.RESPONSE)
        self.response_orderer = ResponseOrderer(self)
        self.correlation = CorrelationQueue(relay.watch, self.response_orderer.deliver)
        self.in_flight = self.correlation.entries
        self.request_interceptor = RequestInterceptor(self)
        self.response_interceptor = ResponseInterceptor(self)
        self.inline = bool(relay.editor.requests)
        """Whether every request is followed."""
        self.between_brokers = False
        """Whether a controller sends a broker addresses of others here: every request is followed then."""
        self.adapter: VersionAdapter | None = None
        """If the client and the broker use different versions; see `version_adaptation`."""
        self.free: tuple[frozenset[int], bytes] | None = None
        """With an adapter: the api keys that are held, and the bitmap of requests that pass by their head."""
        self.own_requests = 0
        """How many requests the proxy has sent here itself."""
        self.asking = 0
        """Requests of plugins' own that wait for their responses here."""
        self.about = PeerInfo()
        """Software and versions of both ends, where rules ask for them."""
        self.pass_cache = PassCache()
        self.answer_bytes = 0
        """Of answers that wait in the queue."""
        self.neutralized: int | None = None
        """Correlation id of a response that was changed at its end and still has to be noted."""
        self.state = ConnectionState.ACCEPTED
        self.draining = False
        """Whether the client's next request is left unread: the proxy stops, or `negotiation` logs in again."""
        self.stage = ""
        """What `negotiation` waits for, in words for when it does not come."""
        self.renew_at = 0.0
        """When to log in again (monotonic seconds; 0: never)."""
        self.ended_by = ""  # "client" or "broker": whose end was the first; or who else asked for it
        self.started = time.monotonic()
        self.failed = ""  # how the broker was not reached: see `decoder.connection.events.NEVER_ESTABLISHED`
        self.tried: list[Address] | None = None
        """Of a connection to whichever bootstrap broker can be reached: those that cannot; None: it is for this broker alone."""
        self._addresses: list[SocketAddress] = []
        self._failure: OSError | None = None

    @property
    def established(self) -> bool:
        """Whether bytes flow in both directions."""
        return self.state in FLOWING

    @property
    def closed(self) -> bool:
        return self.state is ConnectionState.CLOSED

    def _enter(self, state: ConnectionState) -> None:
        self.state = follow(self.state, state)

    # -- beginning -------------------------------------------------------------------------------------------

    def look_up(self) -> None:
        """Ask for the addresses of the broker."""
        broker = self.broker

        def answered(answer: Resolved) -> None:
            if self.broker == broker:  # not of one that took too long, in whose place another is tried
                self.resolved(answer)

        self.relay.resolver.resolve(*broker, answered)

    def resolved(self, answer: Resolved) -> None:
        """The broker's name has been looked up: connect."""
        if self.state is not ConnectionState.ACCEPTED:
            return
        if isinstance(answer, OSError):
            self.unreachable(answer)
        else:
            self._addresses = list(answer)
            self._enter(ConnectionState.CONNECTING)
            self.connect_next()

    def connect_next(self) -> None:
        """Try the next of the broker's addresses. Early data of the client waits in the kernel meanwhile."""
        while self._addresses:
            family, address = self._addresses.pop(0)
            if self.relay.down.has(self.broker, address[:2]):
                self._failure = refused()
                continue
            why = self.relay.refusal(self.broker, address[0], address[1])
            if why:
                self._failure = OSError(why)
                continue
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
        if sock is None or self.state is not ConnectionState.CONNECTING:
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
        self._enter(ConnectionState.SECURING)
        if self.relay.security is None or not self.relay.security.connected(self):
            self.stand()

    def stand(self) -> None:
        """TLS and logins are done: the client's bytes may flow."""
        sock = self.upstream
        if sock is None or self.state is not ConnectionState.SECURING:
            return
        self._enter(ConnectionState.OPEN)
        self.stage = ""
        if self.tried is not None:
            self.relay.bootstrap.worked(self.broker)
        self.relay.version_negotiation.begin(self)
        self.request.source = self.response.sink = self.client
        self.request.sink = self.response.source = sock
        for half in (self.request, self.response):
            half.enter(HalfConnectionState.FLOWING)
        self._announce(self.describe())
        self.relay.established(self)
        self.relay.emit(ConnectionOpened(self.number, self.peer, self.broker))
        if self.relay.plugins is not None:
            self.relay.plugins.opened(self)

    def describe(self) -> bytes:
        """The connection's addresses, how far its streams are (for readers that lost chunks) and which legs are TLS, as JSON."""
        streams = [self.request.position, self.response.position]
        tls = [leg for leg, end in (("client", self.client), ("broker", self.upstream)) if isinstance(end, TlsSocket)]
        return json.dumps(
            {"client": self.peer, "broker": self.real, "upstream": self.own, "streams": streams, "tls": tls}
        ).encode()

    def _announce(self, description: bytes) -> None:
        self.relay.writer.write(Kind.OPENED, self.number, 0, now_ns(), description)

    def unreachable(self, error: OSError) -> None:
        """The broker does not answer, or not in time: another one is tried, if it is for whichever can be reached."""
        if self.state in _DECIDED:
            return
        other = self._other_broker()
        self.relay.emit(UpstreamFailed(self.number, self.broker, reason(error), other))
        if other is None:
            self.give_up("refused" if error.errno == errno.ECONNREFUSED else "unreached")
            return
        sock, self.upstream = self.upstream, None
        if sock is not None:  # it has not answered in time
            self.relay.forget(sock)
            sock.close()
        self.broker, self.started, self._failure = other, time.monotonic(), None
        self._enter(ConnectionState.ACCEPTED)
        self.look_up()

    def _other_broker(self) -> Address | None:
        """The bootstrap broker to try instead of the one that cannot be reached."""
        if self.tried is None or self.relay.draining:
            return None
        self.tried.append(self.broker)
        return self.relay.bootstrap.next(self.tried)

    def give_up(self, failed: str) -> None:
        """Nothing will flow: see `decoder.connection.events.NEVER_ESTABLISHED`."""
        if self.state in _DECIDED:
            return
        # Observers see it as a connection that the broker ended after the client's first requests.
        self._enter(ConnectionState.UNREACHED)
        self.failed = failed
        self._announce(json.dumps(json.loads(self.describe()) | {"failed": failed}).encode())
        if self.relay.draining:
            self.close("fin")
        else:
            UnreachableBroker(self)

    # -- frames ----------------------------------------------------------------------------------------------

    def holds(self, half: interfaces.HalfConnectionInterface, data: bytes, at: int, size: int) -> bool:
        """Whether the frame whose head stands at `at` is held."""
        wanted = self.response_interceptor.holds(data, at, size) if half.direction else self.request_interceptor.holds(half, data, at, size)
        if wanted and size + 4 > self.relay.hold_limit:
            self.too_large_to_hold(half)
            if not half.direction:
                self.request_interceptor.remember(data, at)
            return False
        return wanted

    def held_frame(self, half: interfaces.HalfConnectionInterface, frame: bytes, now: int) -> None:
        """A held frame is complete."""
        if half.direction:
            self.response_interceptor.held(frame, now)
            self.response_orderer.deliver(now)
        else:
            self.request_interceptor.held(frame, now)

    def passes_by_prefix(self, half: interfaces.HalfConnectionInterface, prefix: bytes, held: bytes, now: int) -> bool:
        """Whether no rule is about a frame of which this is the header prefix, so that it may pass. `held`: what is
        there of it."""
        rules = self.relay.editor.rules
        try:
            if half.direction:
                return self.response_interceptor.passes(rules, half, prefix, held, now)
            return self.request_interceptor.passes(rules, prefix, held, now)
        except PatternTimeout:
            return False  # reported when the whole frame is read
        except Exception as error:  # fail open: the whole frame decides
            contained("the header prefix of a frame", error)
            return False

    def too_large_to_hold(self, half: interfaces.HalfConnectionInterface) -> None:
        """A frame is too large to be held."""
        entry = None
        if half.direction and half.endpoint_scanner is not None:
            entry = self.response_interceptor.followed
        elif half.direction and self.in_flight:
            entry = self.correlation.take()
        what = "response" if half.direction else "request"
        key, version = key_and_version(entry) if entry is not None else (-1, -1)
        why = f"the {what} is larger than {self.relay.hold_limit} bytes"
        if not version_adaptation.must_end(self, half, entry, why):
            self.relay.emit(Undecoded(self.number, key, version, why))

    # The accelerator asks a connection for these four.

    def passing(self) -> bytes:
        """See `RequestInterceptor`."""
        return self.request_interceptor.passing()

    def follow(self, half: interfaces.HalfConnectionInterface) -> None:
        """See `ResponseInterceptor`."""
        self.response_interceptor.follow(half)

    def held_end(self, rest: bytes, endpoint_scanner: NodeEndpointScanner) -> bytes:
        """See `ResponseInterceptor`."""
        return self.response_interceptor.held_end(rest, endpoint_scanner)

    def note_neutralized(self, now: int) -> None:
        """See `ResponseInterceptor`."""
        self.response_interceptor.note_neutralized(now)

    # -- the recording ---------------------------------------------------------------------------------------

    def note(self, correlation: int, text: str, now: int) -> None:
        """A comment on an exchange."""
        self.relay.writer.write(Kind.NOTE, self.number, 0, now, text.encode(), correlation)

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

    def rule_fired(self, faults: FaultPlan, exchange: Exchange, now: int) -> None:
        """A rule has fired."""
        correlation = exchange.correlation_id
        self.relay.rules.fired(faults, exchange, now)
        self.relay.emit(RuleHit(faults.rule, self.number, exchange.api_key, exchange.api_version, correlation, faults.hits))
        self.note(correlation & 0xFFFFFFFF, faults.note, now)

    # -- trouble ---------------------------------------------------------------------------------------------

    def not_kafka(self, half: interfaces.HalfConnectionInterface, now: int) -> None:
        """Give up on frames in both directions; bytes go on as they come."""
        head, half.foreign = half.foreign or b"", None
        known = foreign_protocol(head)
        close = False
        if half.direction == 0 and known == "a TLS hello":
            why = (
                "TLS hello on the plain listener; its bytes are passed to the broker unread: "
                "start the proxy with --tls-ca DIR (it creates certificates there) or --tls-cert and --tls-key to read them, "
                "or set security.protocol=PLAINTEXT in the client"
            )
        elif known:
            why = f"not Kafka but {known}; passed on unread"
        else:
            size = int.from_bytes(head[:4], "big", signed=True)
            side = "the broker" if half.direction else "the client"
            close = self.relay.guard.limits.oversize == "close"
            then = "the connection is reset" if close else "passed on unread from here"
            if self.relay.guard.limits.max_frame < size <= MAX_FRAME:
                why = f"{side} sent a frame of {size} bytes, more than --max-frame allows; {then}"
            else:
                why = f"{side} sent an impossible frame size ({size}); {then}"
        self.relay.intercepts.free(self)
        if self.relay.plugins is not None:
            self.relay.plugins.free(self)
        self.request.opaque = self.response.opaque = True
        other = self.request if half.direction else self.response
        other.spill(now)
        other.foreign = None
        self.correlation.clear()
        self.answer_bytes = 0
        self.relay.emit(NotKafka(self.number, self.peer, why))
        if close:
            self.abort()

    def sink_failed(self, half: interfaces.HalfConnectionInterface) -> None:
        """A socket takes no more bytes because its peer is gone. What the peer sent before still counts."""
        if self.state is not ConnectionState.OPEN:
            return
        self._enter(ConnectionState.BREAKING)
        self.ended_by = self.ended_by or self._who_ended()
        back = self.request if half.direction else self.response
        while not back.eof and not self.closed and back.pump():
            pass
        self.abort()

    def abort(self) -> None:
        """RST for RST: both ends are reset."""
        self.close("rst")

    def idle(self) -> bool:
        """Nothing is in flight, by the heads of the last frames."""
        return (
            self.request.last_id == self.response.last_id
            and not self.asking
            and not self.request.pending
            and not self.response.pending
            and self.request.at_boundary()
            and self.response.at_boundary()
        )

    def half_ended(self, half: interfaces.HalfConnectionInterface, now: int) -> None:
        """One side has ended. The other may leave its end open for minutes, so observers learn of it now."""
        other = self.request if half.direction else self.response
        if other.eof:
            return
        if self.state is ConnectionState.OPEN:
            self.ended_by = self.ended_by or self._who_ended()
            self.relay.writer.write(Kind.ENDED, self.number, half.direction, now, b"", NONE, half.position)
        if half.direction:
            version_adaptation.ended(self)

    def half_done(self) -> None:
        """The end of one side was passed on."""
        if self.request.done and self.response.done:
            self.close("fin")

    def close(self, how: str, by: str = "") -> None:
        """Close both sockets: with "rst" so that the peers see a reset. `by`: who asked for it, if not a peer (`Closed`)."""
        if self.closed:
            return
        self.ended_by = by or self.ended_by
        flowed, was_reset = self.established, not self.response.eof
        self._enter(ConnectionState.CLOSED)
        self.relay.intercepts.gone(self)
        if self.relay.plugins is not None:
            self.relay.plugins.gone(self)
        if flowed:
            self.ended_by = self.ended_by or self._who_ended()
        for half in (self.request, self.response):
            half.enter(HalfConnectionState.CLOSED)
            half.take_held()
            half.pending = bytearray()
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
        if flowed:
            if self.ended_by == "broker" and was_reset:
                version_adaptation.ended(self)
            self.relay.version_negotiation.left(self.broker)
            self._conclude(how, self.ended_by)
            streams = self.request.position, self.response.position
            self.relay.emit(ConnectionClosed(self.number, how, *streams, self.ended_by, len(self.in_flight)))
        elif self.failed:
            self._conclude("rst", "broker" if self.failed == "refused" else "")
        self.relay.gone(self)

    def _conclude(self, how: str, by: str) -> None:
        streams = [self.request.position, self.response.position]
        fields = {"how": how, "by": by, "streams": streams}
        self.relay.writer.write(Kind.CLOSED, self.number, 0, now_ns(), json.dumps(fields).encode(), NONE)

    def _who_ended(self) -> str:
        """Whose end came first, as far as the halves and the sockets show; "" when it is the proxy that ends it."""
        ends = ((self.request, self.client, "client"), (self.response, self.upstream, "broker"))
        finished = [side for half, _, side in ends if half.eof]
        if not finished:
            finished = [side for _, sock, side in ends if sock is not None and is_reset(sock)]
        return finished[0] if len(finished) == 1 else ""
