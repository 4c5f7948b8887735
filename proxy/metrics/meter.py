"""The meter process: reads the ring at its own pace, and counts for the live feed and Prometheus.

    python -m barnabas.proxy.metrics.meter FD     FD: the supervisor's control socket; settings come as its first packet

A reader beside the observer. It misses what it cannot keep up with, and reports how much; nobody waits for it. Settings
are `settings.MeterSettings`; its sockets are already bound. Further packets of the control socket: events of other
processes, which are counted, and `processes.messages.Stop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import sys
import time

from ...captures.recording.index import STATE_MASK, STATES, UNDECODED
from ...decoder import Exchange, ExchangeDone, State
from ...decoder.connection.events import Closed, ConnectionEvent, Opened
from .. import events
from ..observers.observer_loop import SupervisorLink
from ..observers.ring_feed import RingFeed
from ..observers.traffic_decoder import TrafficDecoder
from ..processes.child import receive_settings
from ..processes.messages import Stop
from ..ring.clock import now_ns
from .feed import layout as feed_layout
from .feed.sender import FeedSender, FeedServer
from .registry import Metrics
from .scrape import Scrape
from .settings import MeterSettings

NICE = 15
"""As the inspector: where cores are scarce a recording is worth more."""
_BITE_SECONDS = 0.005
"""How long the ring is read before those who ask for metrics or the feed are served."""
_NAP_SECONDS = 0.004
MOST_WAITING = 500
"""Requests in flight that subscribers of the feed get every second."""
_WAITS_NS = 1_000_000_000
_ORPHAN = STATES.index(State.ORPHAN)
_CLOSED_HOW = frozenset({"fin", "rst", "lost"})


class TrafficMeter:
    """Counts connections, bytes and exchanges, and summarises each exchange; a listener of `TrafficDecoder`."""

    def __init__(self, metrics: Metrics, sender: FeedSender) -> None:
        self.metrics, self.sender = metrics, sender
        self.now = time.monotonic()
        self.exchanges = self.errors = self.undecoded = 0
        self._rates: dict[int, list[int]] = {}
        self._opened_ns: dict[int, int] = {}
        """When each open connection began."""

    def moved(self, conn: int, direction: int, time_ns: int, nbytes: int) -> None:
        """Bytes have passed."""
        self.metrics.stream_bytes[direction] += nbytes

    def on_event(self, event: ConnectionEvent) -> None:
        """Count what happened."""
        if type(event) is ExchangeDone:
            self._done(event.exchange)
        elif isinstance(event, Opened):
            self._opened(event)
        elif isinstance(event, Closed):
            self._closed(event)

    def _opened(self, opened: Opened) -> None:
        if not opened.established:
            self.metrics.failed += 1
            return
        self.metrics.opened += 1
        self._opened_ns[opened.connection] = opened.time_ns
        self.metrics.connections = len(self._opened_ns)

    def _closed(self, closed: Closed) -> None:
        if self._opened_ns.pop(closed.connection, None) is None:
            return
        self.metrics.connections = len(self._opened_ns)
        how = closed.how or "lost"
        self.metrics.closed[how if how in _CLOSED_HOW else "other"] += 1

    def _done(self, exchange: Exchange) -> None:
        record = self.sender.add(exchange, self._opened_ns[exchange.connection], self.now, time.time_ns())
        self.exchanges += 1
        self.errors += record.error != 0
        self.undecoded += record.flags & UNDECODED != 0
        if record.flags & STATE_MASK != _ORPHAN:
            rate = self._rates.get(record.api_key)
            if rate is None:
                rate = self._rates[record.api_key] = [0, 0, 0]
            rate[0] += 1
            rate[1] += record.error != 0
            rate[2] += max(record.latency_ns, 0)
        self.metrics.exchange(record, exchange)

    def waiting(self, in_flight: list[Exchange], now: int) -> list[tuple[Exchange, int]]:
        """Requests that have waited for a second, the oldest `MOST_WAITING` of them, and when their connections were opened."""
        if not self.sender.subscribers:
            return []
        hanging = [each for each in in_flight if (each.request_time_ns or now) <= now - _WAITS_NS and each.connection in self._opened_ns]
        hanging.sort(key=lambda each: each.request_time_ns or 0)
        return [(each, self._opened_ns[each.connection]) for each in hanging[:MOST_WAITING]]

    def totals(self) -> feed_layout.Totals:
        """The totals so far, with the rates since the last call."""
        rates, self._rates = self._rates, {}
        metrics = self.metrics
        return feed_layout.Totals(
            exchanges=self.exchanges,
            errors=self.errors,
            undecoded=self.undecoded,
            orphans=metrics.orphans,
            unanswered=sum(api.unanswered for api in metrics.apis.values()),
            request_bytes=metrics.stream_bytes[0],
            response_bytes=metrics.stream_bytes[1],
            connections=metrics.connections,
            opened=metrics.opened,
            failed=metrics.failed,
            lost_bytes=metrics.lost_bytes,
            lost_chunks=metrics.lost_chunks,
            unsent=self.sender.unsent,
            rates=feed_layout.limit_rates([feed_layout.Rate(key, *rate) for key, rate in rates.items()]),
        )


class Meter:
    """The meter's loop, in asyncio: reads the ring, and serves the metrics."""

    def __init__(self, link: SupervisorLink, settings: MeterSettings) -> None:
        self._link = link
        self._settings = settings
        self._reader = settings.access.open()
        self.metrics = Metrics(settings.metrics_by)
        self.sender = FeedSender(settings.feed_token, now_ns(), datagram=settings.datagram)
        self._traffic = TrafficMeter(self.metrics, self.sender)
        self._decoder = TrafficDecoder(self._traffic.on_event, moved=self._traffic.moved, over=self._over)
        self._feed = RingFeed(self._decoder)
        self._server: FeedServer | None = None
        self._scrape: Scrape | None = None
        self._gone = False

    def run(self) -> None:
        """Until the relay says that nothing follows, or the supervisor is gone."""
        asyncio.run(self._run())
        gc.freeze()  # as in `ObserverLoop.run`

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        await self._start()
        self._link.control.setblocking(False)
        loop.add_reader(self._link.control.fileno(), self._attend_supervisor)
        rang = asyncio.Event()
        loop.add_reader(self._settings.access.bell, rang.set)
        gc.collect()
        gc.freeze()
        next_second = time.monotonic() + 1.0
        while not self._feed.finished and not self._gone:
            worked = self._read()
            now = self._traffic.now = time.monotonic()
            if self.sender.due(now):
                self.sender.flush(now_ns())
            if now >= next_second:
                next_second = max(next_second + 1.0, now + 0.5)
                self._second(now)
            if self._server is not None:
                self._server.kick()
            if worked:
                await asyncio.sleep(0)
            else:
                await self._rest(min(next_second, self.sender.flush_at or next_second), rang)
        self._second(time.monotonic())
        await self._stop()

    def _read(self) -> bool:
        """Read for a short while. False if there was nothing."""
        worked = False
        until = time.monotonic() + _BITE_SECONDS
        while True:
            count = 0
            for record in self._reader.read(8):
                self._feed.take(record)
                count += 1
                if self._over():
                    self._gone = True
                    return True
            worked = worked or count > 0
            if not count or time.monotonic() > until:
                return worked

    def _over(self) -> bool:
        """Whether the time to stop is up."""
        return self._link.over(time.monotonic())

    async def _rest(self, until: float, rang: asyncio.Event) -> None:
        """Nothing is to be read: sleep a moment, then until the bell rings, or `until`."""
        await asyncio.sleep(_NAP_SECONDS)
        rang.clear()
        if self._reader.arm():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(rang.wait(), max(until - time.monotonic(), 0.0))
        self._reader.disarm()

    def _second(self, now: float) -> None:
        metrics, sender = self.metrics, self.sender
        metrics.lost_bytes = self._reader.lost_bytes + self._decoder.unseen_bytes
        metrics.lost_chunks = self._reader.lost_chunks
        metrics.faults = self._decoder.faults
        waiting = self._traffic.waiting(self._decoder.in_flight(), now_ns())
        sender.totals(self._traffic.totals(), now, now_ns(), waiting)
        metrics.subscribers, metrics.feed_records, metrics.feed_unsent = sender.subscribers, sender.position, sender.unsent
        self._gone = self._gone or self._link.gone(now)

    async def _start(self) -> None:
        settings = self._settings
        if settings.feed is not None:
            self._server = FeedServer(self.sender, time.monotonic, time.time_ns)
            await self._server.start(socket.socket(fileno=settings.feed))
        if settings.metrics is not None:
            self._scrape = Scrape(self.metrics.render)
            await self._scrape.start(socket.socket(fileno=settings.metrics))

    async def _stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
        if self._scrape is not None:
            self._scrape.stop()

    def _attend_supervisor(self) -> None:
        received, now = self._link.receive(), time.monotonic()
        if self._link.gone(now):
            self._gone = True
            asyncio.get_running_loop().remove_reader(self._link.control.fileno())
        elif isinstance(received, events.Event):
            self.metrics.process_events.take(received)
        elif isinstance(received, Stop):
            self._link.stop_at = received.until


def main() -> None:
    control, settings = receive_settings(int(sys.argv[1]), MeterSettings)
    os.nice(NICE)
    Meter(SupervisorLink(control), settings).run()


if __name__ == "__main__":
    main()
