"""The live feed, for programs: iterate over what happens, and over what was missed.

    for event in subscribe(("127.0.0.1", 19095), token):        # `async for event in listen(...)`: the same
        match event:
            case Batch():  for record in event: print(record.api_key, event.client_id(record))
            case Totals(): ...                                   # once a second
            case Missed(): print(event.records, "not seen")      # exact

`FeedReader` reads the datagrams; it needs no socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncio_dgram

from ...events import Address, show
from .layout import Totals
from .reader import Batch, FeedError, FeedEvent, FeedReader, Joined, Missed, Waiting

RECEIVE_BYTES = 4 << 20
"""Asked of the kernel for what is not read yet; Linux gives at most `net.core.rmem_max`."""
BACKLOG_BYTES = 64 << 20
"""Most bytes of datagrams that wait for a slow `async for`; later ones are missed, and reported as such."""
SILENCE_SECONDS = 10.0
"""How long a first subscription waits for an answer."""


def _open(address: Address, receive_bytes: int) -> socket.socket:
    """A socket that receives from this feed only. FeedError for an impossible address."""
    try:
        family, _, _, _, where = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
        sock = socket.socket(family, socket.SOCK_DGRAM)
    except (OSError, UnicodeError, IndexError) as error:
        raise FeedError(f"{show(address)} cannot be reached: {error}") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.connect(where)
    except OSError as error:
        sock.close()
        raise FeedError(f"{show(address)} cannot be reached: {error.strerror or error}") from None
    return sock


def _check(reader: FeedReader, address: Address, started: float, now: float, patient: bool) -> None:
    if not patient and not reader.joined and now - started > SILENCE_SECONDS:
        raise FeedError(f"no live feed answers at {show(address)}: start the proxy with --feed {show(address)}")


def subscribe(
    address: Address,
    token: str,
    *,
    receive_bytes: int = RECEIVE_BYTES,
    patient: bool = False,
    reader: FeedReader | None = None,
) -> Iterator[FeedEvent]:
    """Subscribe and iterate forever; ends the subscription when the iterator is closed.

    FeedError when nobody answers for 10 s (`patient`: wait forever) or the token is refused. A feed that ends later is
    waited for. Datagrams that are not read in time stay in the kernel's buffer of `receive_bytes`; beyond that they are
    missed.
    """
    reader = FeedReader(token) if reader is None else reader
    with _open(address, receive_bytes) as sock:
        started = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                _check(reader, address, started, now, patient)
                if reader.due(now):
                    with contextlib.suppress(OSError):
                        sock.send(reader.hello(now))
                sock.settimeout(max(reader.until_due(now), 0.001))
                try:
                    data = sock.recv(65536)
                except TimeoutError:
                    continue
                except OSError:  # refused: no feed is there yet
                    time.sleep(min(reader.until_due(now), 0.2))
                    continue
                yield from reader.receive(data)
        finally:
            with contextlib.suppress(OSError):
                sock.settimeout(0)
                sock.send(reader.bye())


async def listen(
    address: Address,
    token: str,
    *,
    receive_bytes: int = RECEIVE_BYTES,
    backlog_bytes: int = BACKLOG_BYTES,
    patient: bool = False,
    reader: FeedReader | None = None,
) -> AsyncIterator[FeedEvent]:
    """`subscribe` for asyncio. While the event loop runs, datagrams are taken from the kernel and the subscription is
    renewed, also while the body of the `async for` waits for something else; at most `backlog_bytes` are kept, later
    ones are missed."""
    reader = FeedReader(token) if reader is None else reader
    stream: Any = await asyncio_dgram.from_socket(_open(address, receive_bytes))
    backlog = _Backlog(stream, backlog_bytes)
    tasks = [asyncio.create_task(backlog.receive()), asyncio.create_task(_renew(stream, reader))]
    started = time.monotonic()
    try:
        while True:
            now = time.monotonic()
            _check(reader, address, started, now, patient)
            data = await backlog.next(reader.until_due(now))
            if data is not None:
                for event in reader.receive(data):
                    yield event
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(OSError, asyncio_dgram.TransportClosed):
            await stream.send(reader.bye())
        stream.close()


async def _renew(stream: Any, reader: FeedReader) -> None:
    while True:
        now = time.monotonic()
        if reader.due(now):
            with contextlib.suppress(OSError):
                await stream.send(reader.hello(now))
        await asyncio.sleep(max(reader.until_due(now), 0.001))


class _Backlog:
    """A bounded queue: that of asyncio-dgram has no bound."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self._datagrams: deque[bytes] = deque()
        self._bytes = 0
        self._more = asyncio.Event()

    async def receive(self) -> None:
        while True:
            try:
                data, _ = await self._stream.recv()
            except OSError:
                continue
            except asyncio_dgram.TransportClosed:
                return
            if self._bytes + len(data) <= self._limit:
                self._datagrams.append(data)
                self._bytes += len(data)
                self._more.set()

    async def next(self, seconds: float) -> bytes | None:
        """The oldest datagram, None when none comes within `seconds`."""
        if not self._datagrams:
            self._more.clear()
            try:
                await asyncio.wait_for(self._more.wait(), max(seconds, 0.001))
            except TimeoutError:
                return None
        data = self._datagrams.popleft()
        self._bytes -= len(data)
        return data


__all__ = ["Batch", "FeedError", "FeedEvent", "FeedReader", "Joined", "Missed", "Totals", "Waiting", "listen", "subscribe"]
