"""What stands between `accept` and the first byte that flows: TLS with the client, TLS and a login with the broker.

    accept ─► client's TLS hello (it may choose the broker) ─► connect ─► broker's TLS ─► login ─► bytes flow

Each step is driven by events of the one socket it waits for; nothing here blocks, and SCRAM's key is computed
beside the loop. Connections that need none of it never come here.

Logging in again (KIP-368): before the session ends, the connection is paused at a frame boundary; when all responses
have come, the login is repeated on the same connection, and the pause ends. A client that is never answered
(acks=0 alone) shows no such moment: its connection is closed in order, and it connects again.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from ....bounded import BoundedDict
from ....decoder.codec import secrets
from ....decoder.schema import facts
from ....decoder.wire.frame import Direction
from ....diagnostics import contained
from ...events import BrokerNameUnknown, LoggedIn, LoginFailed, NotVerified, RelayFault, TlsFailed, UpstreamFailed
from ...ring.clock import now_ns
from ...ring.ring import Kind
from ..addressing.sni_address_map import NamedBrokers
from .sasl import MOST_SALTED, Conversation, LoginRefused, Work, conversation
from .security import SecurityConfig, ServerContexts, client_context
from .tls import TlsFault, TlsSocket

if TYPE_CHECKING:
    from ..interfaces import ConnectionInterface, RelayInterface

RENEW_AT = (0.80, 0.90)
"""The part of a session after which to log in again: some jitter, as Kafka's own clients have it."""
TICK_SECONDS = 1.0
PAUSE_SECONDS = 10.0
"""How long to wait for a moment without requests in flight before a connection is closed instead."""
LARGEST_ANSWER = 1 << 20
REMIND_SECONDS = 30.0
_BUFFER = memoryview(bytearray(64 * 1024))
_HANDSHAKE = facts.api_key("SaslHandshake")


class Security:
    """What the connections of a relay share."""

    def __init__(self, relay: RelayInterface, config: SecurityConfig) -> None:
        self.relay = relay
        tls = self.tls = config.tls
        self.sasl = config.sasl
        self._server = ServerContexts(tls) if tls is not None and tls.clients else None
        self._client = client_context(tls) if tls is not None and tls.brokers else None
        self._salted: dict[tuple[str, bytes, int], bytes] = BoundedDict(MOST_SALTED)
        self._reported: set[tuple[str, int]] = set()
        self._reminded = 0.0
        self.paused: set[ConnectionInterface] = set()
        """Connections that wait for a moment to log in again."""

    # -- from accept to the first byte -----------------------------------------------------------------------

    def accepted(self, connection: ConnectionInterface) -> None:
        """A client has connected."""
        if self.relay.interception is not None:
            connection.local_host = connection.broker[0]  # where the client meant to connect to
        try:
            if self._server is None:
                self._connect(connection)
            else:
                self._accept(connection, self._server)
        except Exception as error:  # the listener goes on accepting
            contained("a client that was accepted", error, reported=True)
            self.relay.emit(RelayFault(connection.number, f"{type(error).__name__}: {error}"))
            connection.close("fin")

    def _accept(self, connection: ConnectionInterface, server: ServerContexts) -> None:
        connection.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = TlsSocket(
            connection.client,
            server.at(connection.local_host),
            connection.request,
            server_side=True,
            broken=lambda why: self._report_tls(connection, "client", why),
        )
        connection.client = tls  # type: ignore[assignment]
        connection.stage = "the client has not finished the TLS handshake"
        self.relay.attend(tls.fileno(), partial(self._greet, connection, tls, server))
        self._greet(connection, tls, server)

    def _greet(self, connection: ConnectionInterface, tls: TlsSocket, server: ServerContexts) -> None:
        server.name = ""
        try:
            done = tls.shake()
        except TlsFault as fault:
            self._report_tls(connection, "client", str(fault))
            connection.close("fin")
            return
        finally:
            if server.name:
                # The name by which the client came, and that is in the certificate.
                connection.local_host = server.name
        if done:
            self.relay.forget(connection.client)  # what comes waits in the kernel
            if isinstance(self.relay.addresses, NamedBrokers):
                wanted = self.relay.addresses.broker_for(connection.local_host, connection.peer[0])
                if why := self.relay.addresses.why_not(connection.local_host):
                    self.relay.emit(BrokerNameUnknown(connection.number, connection.peer, why))
                    connection.close("fin")
                    return
                if self.relay.addresses.is_named(connection.local_host):  # else any of the bootstrap brokers
                    connection.broker, connection.tried = wanted, None
            self._connect(connection)

    def _connect(self, connection: ConnectionInterface) -> None:
        connection.stage = ""
        connection.started = time.monotonic()
        connection.look_up()

    def connected(self, connection: ConnectionInterface) -> bool:
        """The connection to the broker stands. True: `Connection.stand` is called when the rest is done."""
        sock = connection.upstream
        if sock is None or (self._client is None and self.sasl is None):
            return False
        connection.started = time.monotonic()
        if self._client is None or self.tls is None:
            self._begin_login(connection)
            return True
        tls = TlsSocket(
            sock,
            self._client,
            connection.response,
            server_side=False,
            server_hostname=self.tls.broker_name or self._host_of(connection),
            broken=lambda why: self._report_tls(connection, "broker", why),
        )
        connection.upstream = tls  # type: ignore[assignment]
        connection.stage = "the broker does not finish the TLS handshake: is this its TLS listener?"
        self.relay.attend(tls.fileno(), partial(self._secure, connection, tls))
        self._secure(connection, tls)
        return True

    def _host_of(self, connection: ConnectionInterface) -> str:
        """What the broker's certificate has to be for. In transparent mode, where only the broker's address is known,
        it is the name that the client asked for, if it asked for one."""
        return connection.broker[0] if self.relay.interception is None else connection.local_host

    def _secure(self, connection: ConnectionInterface, tls: TlsSocket) -> None:
        if connection.failed or connection.closed:
            return  # an edge of the broker's socket, which stays until the client's first words were read
        try:
            done = tls.shake()
        except TlsFault as fault:
            self._report_tls(connection, "broker", str(fault))
            connection.give_up("tls")
            return
        if done and self.sasl is None:
            connection.stand()
        elif done:
            self._begin_login(connection)

    def _report_tls(self, connection: ConnectionInterface, side: str, why: str) -> None:
        peer = connection.peer if side == "client" else connection.broker
        self.relay.emit(TlsFailed(connection.number, side, peer, why))

    # -- the login -------------------------------------------------------------------------------------------

    def _begin_login(self, connection: ConnectionInterface) -> None:
        if connection.upstream is None or self.sasl is None:
            return
        connection.stage = "the broker does not answer the login: is this its SASL listener?"
        login = Login(self, connection, connection.upstream, conversation(self.sasl, self._salted))
        self.relay.attend(connection.upstream.fileno(), login.go_on)
        login.begin()

    def logged_in(self, connection: ConnectionInterface, lifetime_ms: int, steps: list[tuple[int, bytes]]) -> None:
        """The broker has accepted the login: let bytes flow."""
        assert self.sasl is not None
        if lifetime_ms:
            connection.renew_at = time.monotonic() + lifetime_ms / 1000 * random.uniform(*RENEW_AT)
        if connection.broker not in self._reported:
            self._reported.add(connection.broker)
            self.relay.emit(LoggedIn(connection.broker, self.sasl.mechanism, self.sasl.username, lifetime_ms))
        if connection.established:
            self._record(connection, steps)
            self._resume(connection)
        else:
            connection.stand()
            self._record(connection, steps)

    def login_failed(self, connection: ConnectionInterface, why: str) -> None:
        assert self.sasl is not None
        if connection.closed:
            return
        if len(self.sasl.secret) >= secrets.LEAST_QUOTED:  # brokers may quote it
            why = why.replace(self.sasl.secret, "***")
        self.relay.emit(LoginFailed(connection.number, connection.broker, self.sasl.mechanism, why))
        if connection.established:
            self.paused.discard(connection)
            connection.close("fin")
        else:
            connection.give_up("login")

    def _record(self, connection: ConnectionInterface, steps: list[tuple[int, bytes]]) -> None:
        """The login goes into the recording as frames of the broker leg, without its secrets."""
        text = b"the proxy logs in"
        for direction, frame in steps:
            self.relay.writer.write(
                Kind.BROKER_LEG, connection.number, direction, now_ns(), len(text).to_bytes(2, "big") + text + frame
            )

    # -- later -----------------------------------------------------------------------------------------------

    def overdue(self, connection: ConnectionInterface) -> None:
        """A connection was not established in time."""
        if not connection.stage:
            connection.unreachable(TimeoutError("timed out"))
        elif connection.upstream is None:
            self._report_tls(connection, "client", connection.stage)
            connection.close("fin")
        else:
            self.relay.emit(UpstreamFailed(connection.number, connection.broker, connection.stage))
            connection.give_up("login" if "login" in connection.stage else "tls")

    def tick(self, now: float, connections: Collection[ConnectionInterface]) -> None:
        """About once a second."""
        if self.tls is not None and self.tls.brokers and self.tls.broker_insecure and now - self._reminded > REMIND_SECONDS:
            self._reminded = now
            self.relay.emit(NotVerified())
        for connection in connections:
            if connection.established and connection.renew_at and now + TICK_SECONDS >= connection.renew_at:
                connection.renew_at = 0.0
                if not connection.request.opaque:
                    connection.draining = True
                    connection.started = now
                    self.paused.add(connection)
            for sock in (connection.client, connection.upstream):
                if isinstance(sock, TlsSocket) and sock.waits:
                    try:
                        sock.finish_sending()
                    except OSError:
                        pass

    def renew(self, now: float) -> None:
        """Log in again where nothing is in flight just now."""
        for connection in list(self.paused):
            if connection.closed:
                self.paused.discard(connection)
            elif connection.stage:
                if now - connection.started > PAUSE_SECONDS:
                    self.login_failed(connection, connection.stage)
            elif connection.idle() and connection.upstream is not None:
                connection.started = now
                self.relay.suspend(connection)
                self._begin_login(connection)
            elif now - connection.started > PAUSE_SECONDS and _between_frames(connection):
                self.paused.discard(connection)
                connection.close("fin")

    def _resume(self, connection: ConnectionInterface) -> None:
        connection.stage = ""
        self.paused.discard(connection)
        connection.draining = self.relay.draining
        self.relay.established(connection)


def _between_frames(connection: ConnectionInterface) -> bool:
    """Whether closing now cuts no frame in two."""
    halves = connection.request, connection.response
    return all(half.at_boundary() and not half.pending for half in halves)


class Login:
    """One login on one connection to a broker."""

    def __init__(self, security: Security, connection: ConnectionInterface, sock: socket.socket, dialogue: Conversation) -> None:
        self._security = security
        self._connection = connection
        self._sock = sock
        self._conversation = dialogue
        self._unsent = b""
        self._received = bytearray()
        self._working = False
        self._token = False
        """Whether the frames are raw tokens by now."""
        self._steps: list[tuple[int, bytes]] = []
        self._last_request: tuple[int, int] = (-1, -1)
        self._asked = b""
        self._over = False

    def begin(self) -> None:
        self._next(None)
        self.go_on()

    def go_on(self) -> None:
        """The socket is ready for something."""
        try:
            while not self._over and not self._working and self._sent() and self._frame():
                pass
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(str(error) if isinstance(error, TlsFault) else "the broker reset the connection during the login")

    def _sent(self) -> bool:
        while self._unsent:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        return True

    def _frame(self) -> bool:
        """Receive until a frame is there, and hand it to the conversation."""
        data = self._received
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            if len(data) >= 4 and int.from_bytes(data[:4], "big") > LARGEST_ANSWER:
                self._fail("the broker's answer to the login is not a Kafka frame: is this its SASL listener?")
                return False
            count = self._sock.recv_into(_BUFFER)
            if not count:
                self._fail("the broker closed the connection during the login: wrong user or password, or no SASL listener?")
                return False
            data += _BUFFER[:count]
        size = int.from_bytes(data[:4], "big")
        frame = bytes(data[4 : 4 + size])
        del data[: 4 + size]
        self._note(Direction.RESPONSE, frame)
        self._next(frame)
        return True

    def _next(self, answer: bytes | None) -> None:
        try:
            step = next(self._conversation) if answer is None else self._conversation.send(answer)
        except StopIteration as done:
            self._over = True
            self._security.logged_in(self._connection, done.value, self._steps)
            return
        except LoginRefused as refused:
            self._fail(str(refused))
            return
        if isinstance(step, Work):
            self._working = True
            self._security.relay.resolver.aside(step.run, self._worked)
            return
        self._unsent = step
        self._note(Direction.REQUEST, step[4:])

    def _worked(self, result: bytes) -> None:
        self._working = False
        if not self._connection.closed:
            self._next(result)
            self.go_on()

    def _fail(self, why: str) -> None:
        self._over = True
        self._security.login_failed(self._connection, why)

    def _note(self, direction: Direction, frame: bytes) -> None:
        """Keep a step for the recording, masked. A raw token has no header and is left out."""
        if direction is Direction.REQUEST:
            self._token = self._token or self._last_request == (_HANDSHAKE, 0)
            key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
            self._last_request, self._asked = (key, version), frame
        if not self._token:
            masked = secrets.mask(direction, *self._last_request, frame, self._asked if direction else b"")
            self._steps.append((int(direction), len(masked).to_bytes(4, "big") + masked))
