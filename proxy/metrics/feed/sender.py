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
from collections.abc import Callable, Iterable
from typing import Any

import asyncio_dgram

from ....captures.recording.index import RECORD, STRINGS_HEADER, IndexEncoder, Record
from ....decoder import Exchange
from . import layout
from .layout import HEADER, LEASE_SECONDS, DatagramKind, Header, SubscriptionRefusal, Totals

FLUSH_SECONDS = 0.05
"""A record waits at most so long for others to travel with."""
SUBSCRIBERS = 16
QUEUE = 512
"""Datagrams that may wait for the socket. On loopback none ever does."""
_ERRORS = 16

Peer = tuple[Any, ...]
"""A socket address."""


class _Part:
    """Records of exchanges and the strings that they name: the bytes behind a datagram's header."""

    def __init__(self) -> None:
        self._encoder = IndexEncoder()
        del self._encoder.entries[: STRINGS_HEADER.size]  # the file's header; entries alone are sent
        self._introduced: set[int] = set()

    @property
    def size(self) -> int:
        return len(self._encoder.records) + len(self._encoder.entries)

    @property
    def count(self) -> int:
        return len(self._encoder.records) // RECORD.size

    def last(self) -> Record:
        return Record._make(RECORD.unpack_from(self._encoder.records, len(self._encoder.records) - RECORD.size))

    def data(self) -> bytes:
        return bytes(self._encoder.records + self._encoder.entries)

    def add(self, exchange: Exchange, opened_ns: int, pending: bool, room: int) -> bool:
        """Add an exchange. False, and this part must be sent as it is, if there is no room for it beside the others."""
        encoder, records, entries = self._encoder, len(self._encoder.records), len(self._encoder.entries)
        if exchange.connection not in self._introduced:
            self._introduced.add(exchange.connection)
            encoder.connection(exchange.connection, opened_ns, exchange.client, exchange.broker)
        encoder.exchange(exchange, pending=pending)
        if self.size <= room or not records:
            return True
        del encoder.records[records:], encoder.entries[entries:]
        return False


class FeedSender:
    """Makes the datagrams; `outgoing` holds those to be sent, at most `QUEUE` (others are lost, and subscribers see the
    gap). Times are seconds of any clock that never goes back; `wall_ns` is nanoseconds since the epoch."""

    def __init__(
        self, token: str, epoch: int, *, datagram: int = layout.DATAGRAM, subscribers: int = SUBSCRIBERS
    ) -> None:
        self._token = token.encode()
        self._epoch = epoch
        self._room = min(datagram, layout.LARGEST) - HEADER.size
        self._limit = subscribers
        self._subscribers: dict[Peer, float] = {}  # until when
        self._sequence = 0
        self._position = 0
        self._parts = {DatagramKind.BATCH: _Part(), DatagramKind.WAITING: _Part()}
        self.flush_at: float | None = None
        """When what waits is to be sent; None when nothing does."""
        self.outgoing: deque[tuple[bytes, Peer]] = deque()
        self.unsent = 0
        """Records in datagrams that found no room in `outgoing`."""

    @property
    def subscribers(self) -> int:
        return len(self._subscribers)

    @property
    def position(self) -> int:
        """Records so far."""
        return self._position + self._parts[DatagramKind.BATCH].count

    # -- records ---------------------------------------------------------------------------------------------

    def add(self, exchange: Exchange, opened_ns: int, now: float, wall_ns: int) -> Record:
        """Take an exchange into the next batch. Returns its record."""
        record = self._put(DatagramKind.BATCH, exchange, opened_ns, wall_ns)
        part = self._parts[DatagramKind.BATCH]
        if part.size > self._room - RECORD.size:
            self.flush(wall_ns)
        elif self.flush_at is None and self._subscribers:
            self.flush_at = now + FLUSH_SECONDS
        return record

    def _put(self, kind: DatagramKind, exchange: Exchange, opened_ns: int, wall_ns: int) -> Record:
        pending = kind == DatagramKind.WAITING
        if not self._parts[kind].add(exchange, opened_ns, pending, self._room):
            self._send(kind, wall_ns)
            self._parts[kind].add(exchange, opened_ns, pending, self._room)
        return self._parts[kind].last()

    def due(self, now: float) -> bool:
        """Whether records have waited long enough."""
        return self.flush_at is not None and now >= self.flush_at

    def flush(self, wall_ns: int) -> None:
        """Send what waits."""
        self.flush_at = None
        self._send(DatagramKind.BATCH, wall_ns)

    def _send(self, kind: DatagramKind, wall_ns: int) -> None:
        part = self._parts[kind]
        if not part.count:
            return
        self._parts[kind] = _Part()
        sent = self._broadcast(kind, part.count, part.data(), wall_ns)
        if kind == DatagramKind.BATCH:
            self._position += part.count
            self.unsent += 0 if sent else part.count

    def totals(self, totals: Totals, now: float, wall_ns: int, waiting: Iterable[tuple[Exchange, int]] = ()) -> None:
        """Send totals after requests in flight (each with the time when its connection was opened), and end the subscriptions that
        were not renewed. Once a second, also when nothing happens."""
        self.flush(wall_ns)
        for exchange, opened_ns in waiting:
            self._put(DatagramKind.WAITING, exchange, opened_ns, wall_ns)
        self._send(DatagramKind.WAITING, wall_ns)
        self._subscribers = {peer: until for peer, until in self._subscribers.items() if until >= now}
        self._broadcast(DatagramKind.TOTALS, len(totals.rates), totals.pack(), wall_ns)

    def _broadcast(self, kind: DatagramKind, count: int, data: bytes, wall_ns: int) -> bool:
        datagram = self._header(kind, count, wall_ns).pack() + data
        self._sequence += 1
        room = len(self.outgoing) + len(self._subscribers) <= QUEUE
        if room:
            self.outgoing.extend((datagram, peer) for peer in self._subscribers)
        return room

    def _header(self, kind: DatagramKind, count: int, wall_ns: int) -> Header:
        return Header(kind, count, self._epoch, self._sequence, self._position, wall_ns)

    # -- subscribers -----------------------------------------------------------------------------------------

    def receive(self, data: bytes, peer: Peer, now: float, wall_ns: int) -> None:
        """Take a datagram. Without the right token it changes nothing, and the answer is no longer than the datagram:
        this cannot be used to flood a third party."""
        header = layout.parse(data)
        if header is None or header.kind not in (DatagramKind.HELLO, DatagramKind.BYE):
            return
        answer = self._header(DatagramKind.BATCH, 0, wall_ns)
        if not hmac.compare_digest(data[HEADER.size :], self._token):
            answer = Header(DatagramKind.REFUSED, SubscriptionRefusal.TOKEN, self._epoch)
        elif header.kind == DatagramKind.BYE:
            self._subscribers.pop(peer, None)
            return
        elif peer not in self._subscribers and len(self._subscribers) >= self._limit:
            answer = Header(DatagramKind.REFUSED, SubscriptionRefusal.FULL, self._epoch)
        else:
            if peer not in self._subscribers:
                self.flush(wall_ns)  # what was before is not for the new one
                answer = self._header(DatagramKind.BATCH, 0, wall_ns)
            self._subscribers[peer] = now + LEASE_SECONDS
        if len(self.outgoing) < QUEUE:
            self.outgoing.append((answer.pack(), peer))


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
