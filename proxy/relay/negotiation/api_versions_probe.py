"""Asking a broker what it offers (ApiVersions) before a client's first request goes on, while the clients that need it wait.

It is asked on a connection of the proxy's own where that is possible (`ApiVersionsProbe`), so that a broker without ApiVersions
spoils no client's; where a connection needs TLS or a login, or the kernel brings clients here, on the client's, behind its login
(`VersionsPending`), and answers the client's own ApiVersions, too. If the broker does not answer there, or closes, the client loses
its connection; it comes again, and by then it is known.

A broker that has no ApiVersions shows that: 0.8 closes the connection (that is believed the second time: brokers close
connections for other reasons, too), 0.9 never answers. One that has answered ApiVersions before may just be stopping.
So it is asked a third time, behind a request that releases before 4.0 answer: only 0.8 answers that and then closes.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....decoder import encode_request
from ....decoder.connection import api_versions
from ....decoder.reference import releases
from ....decoder.schema import facts
from ....plugins.versions.adapter import AdaptedRequest, Step, VersionAdapter
from ...ring.clock import now_ns
from ..addressing.resolver import SocketAddress
from ..interception.frame_editor import API_VERSIONS, framed
from ..interception.rules import fault_executor

if TYPE_CHECKING:
    from ...events import Address
    from ..interfaces import ConnectionInterface, RelayInterface, VersionNegotiationInterface

ANSWERED_WITHIN = 3_000_000_000
"""Nanoseconds for a broker to answer ApiVersions."""
AGAIN_AFTER = 300_000_000
"""Nanoseconds before a broker that has closed the connection is asked again."""
CLOSES, IS_SILENT = "0.8.2", "0.9.0"
"""Which brokers close the connection at an ApiVersions request, and which do not answer it."""
ASKING = api_versions.request(correlation_id=0, client_id="barnabas")
LIST_OFFSETS = facts.api_key("ListOffsets")
CONTROL = encode_request(LIST_OFFSETS, 0, {"replica_id": -1, "topics": []}, correlation_id=1, client_id="barnabas")
"""What a running broker of 0.8 to 3.9 answers. It names no topic, so it costs nothing and creates none."""
QUESTIONS: Sequence[Sequence[bytes]] = ((ASKING,), (ASKING,), (CONTROL, ASKING))
"""What a broker is asked at its first connection, and after it has closed one and two. Kafka 4 closes at the control,
so that comes last."""
_LARGEST = 1 << 20


def possible(relay: RelayInterface) -> bool:
    """Whether connections of the proxy's own need nothing that only a client's has."""
    return relay.security is None and relay.interception is None


class ApiVersionsProbe:
    """One probe. `relay.version_negotiation` gets the response; everyone in `waiting` is called when it is over, answered or not."""

    def __init__(self, relay: RelayInterface, broker: Address, at: SocketAddress) -> None:
        self._relay = relay
        self._broker = broker
        self._at = at
        self._sock: socket.socket | None = None
        self._received = bytearray()
        self._control: bool | None = None
        self.waiting: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Connect and ask. Whatever comes of it comes later, with a turn of the loop."""
        family, address = self._at
        self._received.clear()
        try:
            if self._relay.refusal(self._broker, address[0], address[1]):
                raise OSError
            sock = self._sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            refused = sock.connect_ex(address) not in (0, errno.EINPROGRESS)
        except OSError:
            refused = True
        if refused:
            self._relay.timers.after(0, self._over)
            return
        self._relay.attend(sock.fileno(), self._connected)
        self._relay.timers.after(ANSWERED_WITHIN, lambda: self._silent(sock))

    def _connected(self) -> None:
        sock = self._sock
        if sock is None:
            return
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._over()
            return
        asked = self._relay.version_negotiation.questions(self._broker)
        try:
            sock.send(b"".join(map(framed, asked)))
        except BlockingIOError:
            return  # it does not stand yet
        except OSError:
            self._closed()
            return
        self._control = False if CONTROL in asked else None
        self._relay.attend(sock.fileno(), self._readable)

    def _readable(self) -> None:
        sock, received = self._sock, self._received
        if sock is None:
            return
        ended = False
        try:
            while len(received) < _LARGEST and (more := sock.recv(1 << 16)):
                received.extend(more)
            ended = True
        except BlockingIOError:
            pass
        except OSError:
            ended = True
        while len(received) > 8 and len(received) >= (end := 4 + int.from_bytes(received[:4], "big")):
            if received[4:8] != CONTROL[4:8]:
                self._relay.version_negotiation.on_response(self._broker, bytes(received[4:end]), 0)
                self._over()
                return
            self._control = True
            del received[:end]
        if ended:
            self._closed()

    def _closed(self) -> None:
        if self._relay.version_negotiation.closed_connection(self._broker, self._control):
            self._over()
        else:
            self._end()
            self._relay.timers.after(AGAIN_AFTER, self.begin)

    def _silent(self, sock: socket.socket) -> None:
        if self._sock is sock:
            self._relay.version_negotiation.assume(self._broker, IS_SILENT, bool(self._control))
            self._over()

    def _end(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._relay.forget(sock)
            sock.close()

    def _over(self) -> None:
        self._end()
        waiting, self.waiting = self.waiting, []
        self._relay.version_negotiation.answered(self._broker)
        for each in waiting:
            each()


class VersionsPending:
    """Stands in for the adapter of a connection until it is known what its broker offers."""

    def __init__(self, negotiation: VersionNegotiationInterface, connection: ConnectionInterface) -> None:
        self._negotiation = negotiation
        self._connection = connection
        self._then: Callable[[int], None] | None = None
        self._control: bool | None = None
        self._aside = self._asks = False

    def wants(self, api_key: int, api_version: int) -> bool:
        return True

    def request(self, frame: bytes) -> Step:
        raise AssertionError("the first request waits")

    def response(self, asked: AdaptedRequest, frame: bytes) -> bytes:
        raise AssertionError("no request has gone on")

    def begin(self, then: Callable[[int], None], api_key: int) -> Sequence[bytes]:
        """Let the client's requests wait until the broker has answered; `then` goes on with the first, which is of that API.
        What the broker is to be asked on this connection."""
        self._then = then
        self._asks = api_key == API_VERSIONS
        connection = self._connection
        half = connection.request
        half.paused = True
        half.waits += 1
        if possible(connection.relay):
            self._aside = True
            self._negotiation.probe(connection, self._go_on)
            return ()
        connection.relay.timers.after(ANSWERED_WITHIN, self._overdue)
        asked = self._negotiation.questions(connection.broker)
        self._control = False if CONTROL in asked else None
        return asked

    def response_before(self, asked: AdaptedRequest, place: int, frame: bytes) -> None:
        if asked.api_key == LIST_OFFSETS:
            self._control = True
            return
        self._negotiation.on_response(self._connection.broker, frame, 0)
        self._go_on()

    def _go_on(self) -> None:
        """It is known, or cannot be known."""
        connection = self._connection
        then, self._then = self._then, None
        if then is None or connection.closed:
            return
        if not self._negotiation.knows(connection.broker):
            connection.close("fin")
            return
        self._negotiation.renew(connection, asked=self._asks and not self._aside)
        half, now = connection.request, now_ns()
        half.waits -= 1
        then(now)
        fault_executor.go_on(half, now)

    def _overdue(self) -> None:
        if self._then is None or self._connection.closed:
            return
        self._then = None
        self._negotiation.assume(self._connection.broker, IS_SILENT, bool(self._control))
        self._connection.close("fin")

    def ended(self) -> None:
        """The broker has closed the connection."""
        if self._then is None or self._aside:
            return
        self._then = None
        self._negotiation.closed_connection(self._connection.broker, self._control)
        self._connection.close("fin")


def offers_of(release: str) -> dict[int, tuple[int, int]]:
    """What brokers of a release offer, or read, if they have no ApiVersions."""
    return dict(releases.release(release).offered)


def pending(adapter: VersionAdapter | None) -> VersionsPending | None:
    """The adapter, if it still waits for the broker's offers."""
    return adapter if isinstance(adapter, VersionsPending) else None
