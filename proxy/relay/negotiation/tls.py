"""A socket-like wrapper around a TLS connection, so that a half-connection need not know about TLS.

`TlsSocket` keeps what the relay's loop relies on:

- `recv_into` that returns fewer bytes than asked for means: the kernel has nothing more, and nothing decrypted is
  left in here either, so the next edge may be waited for. Where an end or an error is still to be reported, the reading
  half is marked (`hangup`), so that it does not trust a short read.
- `send` takes nothing that it could not hand to the kernel: bytes whose ciphertext waits in here are not reported
  as sent. They come again at the head of the next call, as with any short write.
- `shutdown` sends close_notify and FIN; reading goes on. close_notify and FIN of the peer are both the end of its
  stream. A reset stays a reset, and so does a record that cannot be read.

OpenSSL works on memory here: one call to the kernel moves many records, and a half-close cannot make OpenSSL read
when it should only write.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from .tls_faults import PLAIN_BROKER, PLAIN_CLIENT, why_broker, why_client

RECORDS = 64 * 1024
"""Bytes that are encrypted at one time: all of their ciphertext may have to be kept."""
_CIPHERTEXT = memoryview(bytearray(256 * 1024))  # one for all: it is empty again before anybody else runs
_UNSENT_LIMIT = 256 * 1024
_TLS_ALERT, _TLS_HANDSHAKE = 0x15, 0x16


class TlsFault(ConnectionError):
    """A handshake that failed, or a record that cannot be read; the text is for people."""


class Reader(Protocol):
    """The half that reads from this socket."""

    hangup: bool


class TlsSocket:
    """See the module. `broken` is called once with why the connection broke after the handshake, unless its end was sent before:
    Java's TLS 1.3 server often answers one that comes right behind the handshake with a record that nobody can read."""

    __slots__ = (
        "_ahead",
        "_clear",
        "_error",
        "_in",
        "_notified",
        "_out",
        "_over",
        "_reset",
        "_seen",
        "_server",
        "_shaken",
        "_sock",
        "_tls",
        "_undecrypted",
        "_unsent",
        "broken",
        "reader",
    )

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        reader: Reader,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        broken: Callable[[str], None] | None = None,
    ) -> None:
        self._sock = sock
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server_side, server_hostname=server_hostname)
        self._server = server_side
        self._unsent = b""
        self._ahead = 0  # bytes that were encrypted but not reported as sent
        self._undecrypted = False  # a record was read in part
        self._clear = b""  # decrypted ahead of time; see `_notify`
        self._over = False  # the peer's stream has ended
        self._error: OSError | None = None
        self._notified = self._reset = self._shaken = self._seen = False
        self.reader = reader
        self.broken = broken

    # -- the handshake ---------------------------------------------------------------------------------------

    def shake(self) -> bool:
        """Go on with the handshake: True when it is complete, False when the socket has to be waited for.

        Raises TlsFault; an alert for the peer has been sent by then.
        """
        try:
            while not self._shaken:
                try:
                    self._tls.do_handshake()
                    self._shaken = True
                except ssl.SSLWantReadError:
                    self._flush()
                    if not self._receive_hello():
                        return False
            self._flush()
        except ssl.SSLError as error:
            try:
                self._flush()
            except OSError:
                pass
            raise TlsFault(self._why(error)) from None
        except TlsFault:
            raise
        except OSError:
            raise TlsFault(f"{self._peer} reset the connection during the TLS handshake") from None
        return not self._unsent

    def _receive_hello(self) -> bool:
        try:
            count = self._sock.recv_into(_CIPHERTEXT)
        except BlockingIOError:
            return False
        if not count:
            hint = "" if self._server else ": is this its TLS listener?"
            raise TlsFault(f"{self._peer} closed the connection during the TLS handshake{hint}")
        if not self._seen:
            self._seen = True
            if _CIPHERTEXT[0] not in (_TLS_HANDSHAKE, _TLS_ALERT):
                raise TlsFault(PLAIN_CLIENT if self._server else PLAIN_BROKER)
        self._in.write(_CIPHERTEXT[:count])
        return True

    @property
    def _peer(self) -> str:
        return "the client" if self._server else "the broker"

    def _why(self, error: ssl.SSLError) -> str:
        return (why_client if self._server else why_broker)(error, self._expiry() if not self._server else "")

    def _expiry(self) -> str:
        """Until when the broker's certificate is valid, if OpenSSL lets it be seen after it was refused."""
        try:
            chain = self._tls._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
            return str(chain[0].get_info()["notAfter"])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, ssl.SSLError):
            return ""

    def describe(self) -> str:
        """Protocol and cipher, once the handshake is complete."""
        cipher = self._tls.cipher()
        return f"{self._tls.version()} {cipher[0] if cipher else ''}".strip()

    # -- receiving -------------------------------------------------------------------------------------------

    def recv_into(self, view: memoryview) -> int:
        """As of a socket: bytes read, 0 at the end, BlockingIOError, or another OSError."""
        if self._clear or self._over or self._error is not None:
            count = min(len(self._clear), len(view))
            view[:count], self._clear = self._clear[:count], self._clear[count:]
            return self._finish(count)
        size, filled, drained = len(view), 0, False
        read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]
        source = self._in
        while True:
            if self._undecrypted or source.pending:
                try:
                    count = read(size - filled, view[filled:] if filled else view)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    self._over = True  # close_notify, after ours
                    return self._finish(filled)
                except ssl.SSLError as error:
                    self._break(error)
                    return self._finish(filled)
                else:
                    if not count:
                        self._over = True  # close_notify
                        return self._finish(filled)
                    filled += count
                    self._undecrypted = filled == size
                    if self._undecrypted:
                        return filled
                    continue
                if self._out.pending:
                    self._answer()  # e.g. to a change of keys
            if drained and filled:
                return filled
            try:
                count = self._sock.recv_into(_CIPHERTEXT)
            except BlockingIOError:
                if filled:
                    return filled
                raise
            except OSError as error:
                self._error = error
                return self._finish(filled)
            if not count:
                self._over = True
                return self._finish(filled)
            drained = count < len(_CIPHERTEXT)
            source.write(_CIPHERTEXT[:count])

    def _finish(self, filled: int) -> int:
        """Hand out what is there; the end or the error comes with the next call, for which there may be no edge."""
        self.reader.hangup = True
        if not filled and self._error is not None:
            raise self._error
        return filled

    def _break(self, error: ssl.SSLError) -> None:
        text = self._why(error)
        self._error = TlsFault(text)
        try:
            self._answer()
        except OSError:
            pass
        if self.broken is not None and not self._notified:
            self.broken(text)
            self.broken = None

    def _answer(self) -> None:
        try:
            self._flush()
        except OSError:
            return  # the next send or receive will meet it
        if len(self._unsent) > _UNSENT_LIMIT:
            self._error = TlsFault(f"{self._peer} sends TLS requests but does not read the answers")

    # -- sending ---------------------------------------------------------------------------------------------

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """As of a socket: how much was taken, BlockingIOError, or another OSError."""
        self._flush()
        if self._unsent:
            raise BlockingIOError
        done, self._ahead = self._ahead, 0
        size = len(data)
        if size <= RECORDS and not done:
            self._encrypt(data)
            if not self._unsent:
                return size
            self._ahead = size
            raise BlockingIOError
        with memoryview(data) as view:
            while done < size:
                part = view[done : done + RECORDS]
                self._encrypt(part)
                if self._unsent:
                    self._ahead = len(part)
                    if not done:
                        raise BlockingIOError
                    return done
                done += len(part)
        return done

    def _encrypt(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._break(error)
            raise ConnectionAbortedError(str(error)) from None
        self._flush()

    def _flush(self) -> None:
        """Give the kernel what it takes of the ciphertext; the rest stays in `_unsent`."""
        if self._out.pending:
            self._unsent = self._unsent + self._out.read() if self._unsent else self._out.read()
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except BlockingIOError:
                return
            if sent == len(self._unsent):
                self._unsent = b""
                return
            self._unsent = self._unsent[sent:]

    @property
    def waits(self) -> bool:
        """Whether an end that was to be sent still waits for the kernel to take it; see `finish_sending`."""
        return self._notified and bool(self._unsent)

    def finish_sending(self) -> None:
        """Try again to send close_notify and FIN."""
        self._flush()
        if not self._unsent:
            self._sock.shutdown(socket.SHUT_WR)

    # -- the end ---------------------------------------------------------------------------------------------

    def shutdown(self, how: int) -> None:
        """Only SHUT_WR: close_notify, then FIN (once the kernel has taken it). Reading goes on."""
        self._notify()
        self.finish_sending()

    def _notify(self) -> None:
        """Put close_notify behind what was written. OpenSSL would read on meanwhile, and take data for a fault: so
        what it has begun to hand out is taken first, and what has not been decrypted is out of its sight."""
        if self._notified or not self._shaken:
            return
        self._notified = True
        kept = self._in.read()
        try:
            if self._tls.pending():
                self._clear += self._tls.read(self._tls.pending())
                self.reader.hangup = True
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # it wants to read the peer's: that is for `recv_into`
        finally:
            if kept:
                self._in.write(kept)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        if option == socket.SO_LINGER and level == socket.SOL_SOCKET:
            self._reset = True
        self._sock.setsockopt(level, option, value)

    def getsockopt(self, level: int, option: int) -> int:
        return self._sock.getsockopt(level, option)

    def getsockname(self) -> tuple[str, int]:
        name: tuple[str, int] = self._sock.getsockname()
        return name

    def getpeername(self) -> tuple[str, int]:
        name: tuple[str, int] = self._sock.getpeername()
        return name

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        """Close; without a reset the peer gets a close_notify first, as far as the kernel takes it at once."""
        if not self._reset and not self._notified and not self._unsent:
            try:
                self._notify()
                self._flush()
            except OSError:
                pass
        self._sock.close()
