"""One client connection in the relay, from `accept` to the end of both directions.

It has two lanes (`lane`), a queue of requests in flight (`inflight`), and decides about the frames that are held
(`holding`). Here: how it begins and ends, and what is done when something is wrong with it.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import time
from typing import TYPE_CHECKING

from ..decoder.frame import MAX_FRAME, Direction, foreign_protocol
from .addressing.address_map import reason
from .addressing.down_brokers import refused
from .addressing.resolver import Answer as Resolved
from .addressing.resolver import SocketAddress
from .clock import now_ns
from .events import Address, ConnectionClosed, ConnectionOpened, NotKafka, UpstreamFailed
from .interception.request_interceptor import Holding
from .lane import Lane
from .negotiation import version_adapter
from .negotiation.tls import TlsSocket
from .ring.ring import NONE, Kind
from .sift import Sifting
from .unreached import LastWords

if TYPE_CHECKING:
    from .relay import Relay

_RESET = struct.pack("ii", 1, 0)


def _is_reset(sock: socket.socket) -> bool:
    """Whether the peer has reset a connection: the socket has no peer any more."""
    try:
        sock.getpeername()
    except OSError:
        return True
    return False


class Connection(Holding):
    """From `accept` to the end of both directions."""

    def __init__(self, relay: Relay, number: int, client: socket.socket, peer: Address, broker: Address) -> None:
        super().__init__(relay)
        self.number = number
        self.client = client
        self.peer = peer
        self.local_host: str = client.getsockname()[0].removeprefix("::ffff:")
        self.broker = broker
        self.real: Address = broker  # the broker's socket address
        self.own: Address = ("", 0)  # ours towards the broker
        self.upstream: socket.socket | None = None
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
        self.failed = ""  # how the broker was not reached: see `decoder.happening.IN_VAIN`
        self.tried: list[Address] | None = None
        """Of a connection to whichever bootstrap broker can be reached: those that cannot; None: it is for this broker alone."""
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
        if self.tried is not None:
            self.relay.bootstrap.worked(self.broker)
        self.relay.spoken.begin(self)
        self.request.source = self.response.sink = self.client
        self.request.sink = self.response.source = sock
        self.request.open = self.response.open = True
        self._announce(self.describe())
        self.relay.established(self)
        self.relay.emit(ConnectionOpened(self.number, self.peer, self.broker))
        if self.relay.plugged is not None:
            self.relay.plugged.opened(self)

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
        if self.closed or self.failed:
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
        self.relay.resolver.resolve(*other, self.resolved)

    def _other_broker(self) -> Address | None:
        """The bootstrap broker to try instead of the one that cannot be reached."""
        if self.tried is None or self.relay.draining:
            return None
        self.tried.append(self.broker)
        return self.relay.bootstrap.next(self.tried)

    def give_up(self, failed: str) -> None:
        """Nothing will flow: see `decoder.happening.IN_VAIN`."""
        if self.closed or self.failed:
            return
        # Observers hear of it as of a connection that the broker ended after the client's first words.
        self.failed = failed
        self._announce(json.dumps(json.loads(self.describe()) | {"failed": failed}).encode())
        if self.relay.draining:
            self.close("fin")
        else:
            LastWords(self)

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
        if self.relay.plugged is not None:
            self.relay.plugged.free(self)
        self.request.opaque = self.response.opaque = True
        other = self.request if lane.direction else self.response
        other.spill(now)
        other.foreign = None
        self.in_flight.clear()
        self.overtaken.clear()
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
            and not self.asking
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
        if self.relay.plugged is not None:
            self.relay.plugged.gone(self)
        if self.established:
            self.ended_by = self.ended_by or self._who_ended()
        for lane in (self.request, self.response):
            if self.established:
                lane.open = False
            lane.take_held()
            lane.pending = bytearray()
            lane.drop_pipe()
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
            if self.ended_by == "broker":
                version_adapter.ended(self)
            self._conclude(how, self.ended_by)
            streams = self.request.position, self.response.position
            self.relay.emit(ConnectionClosed(self.number, how, *streams, self.ended_by, len(self.in_flight)))
        elif self.failed:
            self._conclude("rst", "broker" if self.failed == "refused" else "")
        self.relay.gone(self)

    def _conclude(self, how: str, by: str) -> None:
        streams = [self.request.position, self.response.position]
        said = {"how": how, "by": by, "streams": streams}
        self.relay.writer.write(Kind.CLOSED, self.number, 0, now_ns(), json.dumps(said).encode(), NONE)

    def _who_ended(self) -> str:
        """Whose end came first, as far as the lanes and the sockets tell; "" when it is the proxy that ends it."""
        ends = ((self.request, self.client, "client"), (self.response, self.upstream, "broker"))
        finished = [side for lane, _, side in ends if lane.eof]
        if not finished:
            finished = [side for _, sock, side in ends if sock is not None and _is_reset(sock)]
        return finished[0] if len(finished) == 1 else ""
