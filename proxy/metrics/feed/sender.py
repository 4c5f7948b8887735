"""The live feed's sender: summaries of exchanges, as they happen, to subscribers over UDP.

A subscriber that is slow or gone costs nothing: nobody waits for it, its datagrams are lost in the kernel, and the
positions in the headers show it exactly how many records it missed. `FeedSender` is sans-IO (datagrams in, datagrams
out); `FeedServer` moves them with asyncio-dgram.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import asyncio_dgram

from ....captures.recording.index import RECORD, STRINGS_HEADER, IndexEncoder
from ....decoder import Exchange
from . import layout
from .layout import HEADER, LEASE_SECONDS, DatagramKind, Header, SubscriptionRefusal, Totals

FLUSH_SECONDS = 0.05
"""A record waits at most so long for others to travel with."""
SUBSCRIBERS = 16
DICTIONARY = 256 * 1024
"""Bytes of a dictionary after which the next one is begun, so that clients that come and go do not fill it."""
QUEUE = 512
"""Datagrams that may wait for the socket. On loopback none ever does."""
_STRINGS_AT_ONCE = 64 * 1024
_AGAIN_SECONDS = 0.5
_ERRORS = 16

Peer = tuple[Any, ...]
"""A socket address."""


class _Subscriber:
    __slots__ = ("peer", "sent", "sent_at", "until")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.until = 0.0
        self.sent = 0  # bytes of the dictionary
        self.sent_at = 0.0


class FeedSender:
    """Makes the datagrams; `outgoing` holds those to be sent, at most `QUEUE` (others are lost, and subscribers see the
    gap). Times are seconds of any clock that never goes back; `wall_ns` gives nanoseconds since the epoch."""

    def __init__(
        self, token: str, epoch: int, *, datagram: int = layout.DATAGRAM, subscribers: int = SUBSCRIBERS
    ) -> None:
        self._token = token.encode()
        self._epoch = epoch
        self._room = min(datagram, layout.LARGEST) - HEADER.size
        self._records_at_once = self._room // RECORD.size
        self._limit = subscribers
        self._subscribers: dict[Peer, _Subscriber] = {}
        self._sequence = 0
        self._position = 0
        self._pending = bytearray()
        self.flush_at: float | None = None
        """When what waits is to be sent; None when nothing does."""
        self._generation = 1
        self._stream = bytearray()
        self._encoder = IndexEncoder()
        self._introduced: set[int] = set()
        self.outgoing: deque[tuple[bytes, Peer]] = deque()
        self.unsent = 0
        """Records in datagrams that found no room in `outgoing`."""
        self._begin_dictionary()

    @property
    def subscribers(self) -> int:
        return len(self._subscribers)

    @property
    def position(self) -> int:
        """Records so far."""
        return self._position + len(self._pending) // RECORD.size

    # -- records ---------------------------------------------------------------------------------------------

    def encode(self, exchange: Exchange, opened_ns: int = 0, pending: bool = False) -> bytes:
        """The 64 bytes of an exchange; the strings they name are added to the dictionary. `pending`: of a request in flight."""
        encoder = self._encoder
        if len(self._stream) > DICTIONARY:
            self._next_dictionary()
            encoder = self._encoder
        if exchange.connection not in self._introduced:
            self._introduced.add(exchange.connection)
            encoder.connection(exchange.connection, opened_ns, exchange.client, exchange.broker)
        encoder.exchange(exchange, pending=pending)
        record = bytes(encoder.records)
        encoder.records.clear()
        if encoder.entries:
            self._stream += encoder.entries
            encoder.entries.clear()
        return record

    def add(self, record: bytes, now: float, wall_ns: Callable[[], int]) -> None:
        """Take a record into the next batch."""
        if not self._subscribers:
            self._position += 1
            return
        self._pending += record
        if len(self._pending) >= self._records_at_once * RECORD.size:
            self.flush(now, wall_ns())
        elif self.flush_at is None:
            self.flush_at = now + FLUSH_SECONDS

    def due(self, now: float) -> bool:
        """Whether records have waited long enough."""
        return self.flush_at is not None and now >= self.flush_at

    def flush(self, now: float, wall_ns: int) -> None:
        """Send what waits."""
        self.flush_at = None
        self._send_strings(now, wall_ns)
        pending, self._pending = self._pending, bytearray()
        step = self._records_at_once * RECORD.size
        for start in range(0, len(pending), step):
            part = bytes(pending[start : start + step])
            count = len(part) // RECORD.size
            if not self._broadcast(DatagramKind.BATCH, count, part, wall_ns):
                self.unsent += count
            self._position += count

    def totals(self, totals: Totals, now: float, wall_ns: int, waiting: Sequence[bytes] = ()) -> None:
        """Send totals after records of requests in flight, and end the subscriptions that were not renewed. Once a second, also when
        nothing happens."""
        self.flush(now, wall_ns)
        for start in range(0, len(waiting), self._records_at_once):
            part = waiting[start : start + self._records_at_once]
            self._broadcast(DatagramKind.WAITING, len(part), b"".join(part), wall_ns)
        for subscriber in [s for s in self._subscribers.values() if s.until < now]:
            del self._subscribers[subscriber.peer]
        if self._subscribers:
            self._broadcast(DatagramKind.TOTALS, len(totals.rates), totals.pack(), wall_ns)

    def _broadcast(self, kind: DatagramKind, count: int, data: bytes, wall_ns: int) -> bool:
        datagram = self._header(kind, count, wall_ns).pack() + data
        self._sequence += kind != DatagramKind.WAITING
        room = len(self.outgoing) + len(self._subscribers) <= QUEUE
        if room:
            self.outgoing.extend((datagram, peer) for peer in self._subscribers)
        return room

    def _header(self, kind: DatagramKind, count: int, wall_ns: int, position: int | None = None) -> Header:
        position = self._position if position is None else position
        strings = len(self._stream)
        return Header(kind, count, self._generation, strings, self._epoch, self._sequence, position, wall_ns)

    # -- the dictionary --------------------------------------------------------------------------------------

    def _begin_dictionary(self) -> None:
        self._encoder = IndexEncoder()
        del self._encoder.entries[: STRINGS_HEADER.size]  # the file's header; entries alone are sent
        self._stream = bytearray()
        self._introduced = set()

    def _next_dictionary(self) -> None:
        """Begin the next dictionary, after the waiting records, which name strings of the old one."""
        self.flush(0.0, self._epoch if not self._pending else _time_of(self._pending))
        self._begin_dictionary()
        self._generation = self._generation % 0xFFFFFFFF + 1
        for subscriber in self._subscribers.values():
            subscriber.sent, subscriber.sent_at = 0, 0.0

    def forget(self, connection: int) -> None:
        """Forget a connection that has ended."""
        self._introduced.discard(connection)

    def _send_strings(self, now: float, wall_ns: int) -> None:
        for subscriber in self._subscribers.values():
            end = min(len(self._stream), subscriber.sent + _STRINGS_AT_ONCE)
            while subscriber.sent < end and len(self.outgoing) < QUEUE:
                part = bytes(self._stream[subscriber.sent : min(end, subscriber.sent + self._room)])
                header = self._header(DatagramKind.STRINGS, 0, wall_ns, subscriber.sent)
                self.outgoing.append((header.pack() + part, subscriber.peer))
                subscriber.sent += len(part)
                subscriber.sent_at = now

    # -- subscribers -----------------------------------------------------------------------------------------

    def receive(self, data: bytes, peer: Peer, now: float, wall_ns: int) -> None:
        """Take a datagram. Without the right token it changes nothing, and the answer is no longer than the datagram:
        this cannot be used to flood a third party."""
        hello = layout.parse_hello(data)
        if hello is None:
            return
        if not hmac.compare_digest(hello.token, self._token):
            self._refuse(SubscriptionRefusal.TOKEN, peer, wall_ns)
            return
        if hello.kind == DatagramKind.BYE:
            self._subscribers.pop(peer, None)
            return
        subscriber = self._subscribers.get(peer)
        if subscriber is None:
            if len(self._subscribers) >= self._limit:
                self._refuse(SubscriptionRefusal.FULL, peer, wall_ns)
                return
            self.flush(now, wall_ns)  # what was before is not for the new one
            subscriber = self._subscribers[peer] = _Subscriber(peer)
        subscriber.until = now + LEASE_SECONDS
        has = hello.strings if hello.generation == self._generation else 0
        if has < subscriber.sent and now - subscriber.sent_at > _AGAIN_SECONDS:
            subscriber.sent = has  # some were lost on the way
        self._answer(self._header(DatagramKind.WELCOME, 0, wall_ns), peer)
        self._send_strings(now, wall_ns)

    def _refuse(self, reason: SubscriptionRefusal, peer: Peer, wall_ns: int) -> None:
        self._answer(Header(DatagramKind.REFUSED, reason, 0, 0, self._epoch, 0, 0, wall_ns), peer)

    def _answer(self, header: Header, peer: Peer) -> None:
        if len(self.outgoing) < QUEUE:
            self.outgoing.append((header.pack(), peer))


def _time_of(records: bytearray) -> int:
    last: int = RECORD.unpack_from(records, len(records) - RECORD.size)[0]
    return last


class FeedServer:
    """Moves a sender's datagrams over a bound socket. Errors of the socket are only counted: they are of subscribers that
    are gone."""

    def __init__(self, sender: FeedSender, clock: Callable[[], float], wall_ns: Callable[[], int]) -> None:
        self.sender = sender
        self.errors = 0
        self._clock, self._wall_ns = clock, wall_ns
        self._stream: Any = None
        self._sends: asyncio.Event = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, sock: socket.socket) -> None:
        """Serve on a bound UDP socket."""
        sock.setblocking(False)
        self._stream = await asyncio_dgram.from_socket(sock)
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._send())]

    def kick(self) -> None:
        """There may be something to send."""
        if self.sender.outgoing:
            self._sends.set()

    async def _receive(self) -> None:
        while True:
            try:
                data, peer = await self._stream.recv()
            except OSError:
                self.errors += 1
                continue
            except asyncio_dgram.TransportClosed:
                return
            self.sender.receive(data, peer, self._clock(), self._wall_ns())
            self.kick()

    async def _send(self) -> None:
        """Send from a task of its own, so that only this one waits for the socket."""
        outgoing = self.sender.outgoing
        while True:
            await self._sends.wait()
            self._sends.clear()
            while outgoing:
                datagram, peer = outgoing.popleft()
                for _ in range(_ERRORS):
                    try:
                        await self._stream.send(datagram, peer)
                    except OSError:
                        self.errors += 1  # of an earlier datagram; this one was not tried yet
                    except asyncio_dgram.TransportClosed:
                        return
                    else:
                        break

    async def stop(self) -> None:
        """Send what is left, and close."""
        self.kick()
        for _ in range(50):
            if not self.sender.outgoing:
                break
            await asyncio.sleep(0.01)
        for task in self._tasks:
            task.cancel()
        if self._stream is not None:
            self._stream.close()
