"""Connections to the target: TCP, optional TLS, and the login. Blocking; the player dials in threads."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ...bounded import BoundedDict
from ...diagnostics import contained
from ...errors import BarnabasError
from ..relay.negotiation.sasl import MOST_SALTED, LoginRefused, SaslConfig, Work, conversation
from ..relay.negotiation.security import TlsConfig, client_context

Address = tuple[str, int]
CONNECT_SECONDS = 10.0
_MOST = 512 * 1024 * 1024


class TargetFailed(BarnabasError):
    """The target cannot be used; the text says why and what to do."""


class DialFailed(TargetFailed):
    """No connection could be made; the text says to where, why, and what to do."""


class Dialer:
    """Makes connections to the target's brokers. Raises SecurityError for certificates that cannot be used."""

    def __init__(self, tls: TlsConfig | None = None, sasl: SaslConfig | None = None) -> None:
        self._tls, self._sasl = tls, sasl
        self._salted: dict[tuple[str, bytes, int], bytes] = BoundedDict(MOST_SALTED)
        self._context: ssl.SSLContext | None = None
        if tls is not None and tls.brokers:
            self._context = client_context(tls)

    def dial(self, address: Address) -> socket.socket:
        """A blocking connection with a timeout, after the login. Raises DialFailed."""
        host, port = address
        try:
            sock = socket.create_connection(address, CONNECT_SECONDS)
        except OSError as error:
            raise DialFailed(
                f"no connection to {host}:{port}: {error.strerror or error}; is a broker there, and reachable from here?"
            ) from None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                name = (self._tls.broker_name if self._tls else "") or host
                sock = self._context.wrap_socket(sock, server_hostname=name)
            if self._sasl is not None:
                self._log_in(sock)
        except ssl.SSLError as error:
            sock.close()
            raise DialFailed(
                f"no TLS with {host}:{port}: {(error.reason or str(error)).replace('_', ' ').lower()}; "
                "see --broker-ca, --broker-name and --broker-insecure"
            ) from None
        except LoginRefused as error:
            sock.close()
            raise DialFailed(f"{host}:{port} refuses the login: {error}") from None
        except OSError as error:
            sock.close()
            raise DialFailed(
                f"{host}:{port} closed the connection before the first request ({error.strerror or error}); "
                "does its listener require TLS (--broker-tls) or a login (--sasl-mechanism)?"
            ) from None
        return sock

    def _log_in(self, sock: socket.socket) -> None:
        assert self._sasl is not None
        login = conversation(self._sasl, self._salted)
        step: Any = next(login)
        try:
            while True:
                if isinstance(step, Work):
                    step = login.send(step.run())
                    continue
                sock.sendall(step)
                step = login.send(receive_frame(sock))
        except StopIteration:
            return


def receive_frame(sock: socket.socket) -> bytes:
    """One frame from a blocking socket, without its size; ConnectionError when the peer ends."""
    size = int.from_bytes(_exactly(sock, 4), "big", signed=True)
    if not 0 <= size <= _MOST:
        raise ConnectionError(f"the answer is not a Kafka frame (size {size}); does the listener use TLS?")
    return _exactly(sock, size)


def _exactly(sock: socket.socket, count: int) -> bytes:
    out = bytearray()
    while len(out) < count:
        data = sock.recv(count - len(out))
        if not data:
            raise ConnectionError("the peer closed the connection")
        out += data
    return bytes(out)


class DialThreads:
    """Dials in threads. Results are put into `done`, and `fd` becomes readable."""

    def __init__(self, dialer: Dialer, threads: int = 4) -> None:
        self.done: deque[tuple[Any, socket.socket | DialFailed]] = deque()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asked: SimpleQueue[tuple[Any, Address] | None] = SimpleQueue()
        self._dialer = dialer
        self._threads = [threading.Thread(target=self._work, daemon=True, name=f"dial-{i}") for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def ask(self, token: Any, address: Address) -> None:
        """Dial; `token` is returned with the result."""
        self._asked.put((token, address))

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            token, address = asked
            result: socket.socket | DialFailed
            try:
                result = self._dialer.dial(address)
            except DialFailed as error:
                result = error
            except Exception as error:  # a thread that ends would leave connections without an answer
                contained("a connection to the target", error, reported=True)
                result = DialFailed(f"no connection to {address[0]}:{address[1]}: {error}")
            self.done.append((token, result))
            os.eventfd_write(self.fd, 1)

    def deliver_done(self, take: Callable[[Any, socket.socket | DialFailed], None]) -> None:
        """Pass the results to `take`."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass
        while self.done:
            take(*self.done.popleft())

    def close(self) -> None:
        """End the threads, and close connections that were not delivered."""
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads:
            thread.join(CONNECT_SECONDS)
        for _, result in self.done:
            if isinstance(result, socket.socket):
                result.close()
        os.close(self.fd)
