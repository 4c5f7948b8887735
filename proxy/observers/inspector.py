"""The inspector process: reads the ring at its own pace and tells what is wrong in the traffic, as it happens.

    python -m barnabas.proxy.observers.inspector FD     FD: the supervisor's control socket; settings come as its first packet

A second reader beside the observer. What it cannot keep up with it misses, and says so; nobody waits for it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ... import decoder
from ...decoder import Direction, Exchange, Opaque, RequestSeen
from ...decoder.connection.connection import Event as Told
from ...decoder.connection.events import Closed, ConnectionEvent, Missing, NonKafkaData, Opened
from ...decoder.connection.exchange import BrokerLeg
from ...decoder.findings import Finding, Inspector, Severity
from ..events import Address, FindingSeen, NotInspected, show
from ..ring.clock import now_ns
from ..ring.ring import NONE
from ..supervisor.child import receive_settings
from .flight import Tripwire
from .news import News
from .observer_loop import ObserverLoop, SupervisorLink
from .ring_feed import RingFeed
from .watcher import Watcher

NICE = 15
"""Below the observer: where cores are scarce a recording is worth more."""
TOLD_IN_SECOND = 50
"""Most findings told in one second; the others wait for the next."""
MISSED_SECONDS = 10.0
"""How often it is told that bytes were missed."""
ASKED_SECONDS = 0.1
EARLY_NOTES = 256
"""Most requests of a connection that are noted before they come."""
_TEXT = 4000
_FACT = 500
"""Most characters of a text, and of what it is about: an event is one packet."""


class Inspection:
    """What the ring says becomes events, and those go to the detectors."""

    def __init__(self) -> None:
        self.inspector = Inspector()
        self.watcher: Watcher | None = None
        """Hears everything, too, where the control API may ask."""
        self.tripwire: Tripwire | None = None
        """Hears everything, too, where the flight recorder is to write by itself."""
        self.inspects = True
        """Whether anybody wants findings."""
        self.faults = 0
        """Events that could not be taken because of a fault of ours."""
        self._connections: dict[int, decoder.Connection] = {}
        self._failed: dict[int, str] = {}
        self._topics = decoder.Topics()
        self._early: dict[int, dict[int, list[str]]] = {}
        """By connection and correlation id: notes of requests that have not come yet."""

    def _feed(self, events: Iterable[ConnectionEvent]) -> None:
        for event in events:
            try:
                if self.inspects:
                    self.inspector.feed(event)
            except Exception:  # it stands beside the traffic; one event less is no reason to end
                self.faults += 1
            if self.tripwire is not None:
                self.tripwire.hear(event)
            if self.watcher is not None:
                self.watcher.hear(event)

    def opened(
        self,
        conn: int,
        time_ns: int,
        client: Address,
        broker: Address,
        upstream: Address | None = None,
        failed: str = "",
        tls: frozenset[str] = frozenset(),
    ) -> None:
        ends = show(client), show(broker)
        if failed:
            self._failed[conn] = failed
        else:
            self._connections[conn] = decoder.Connection(conn, *ends, topics=self._topics)
        self._feed([Opened(conn, *ends, time_ns, not failed, tls=tls)])

    def data(
        self, conn: int, direction: int, time_ns: int, data: bytes | memoryview, first_frame: int = NONE
    ) -> None:
        connection = self._connections.get(conn)
        if connection is None:
            return
        if self.watcher is not None:
            self.watcher.moved(conn, direction, time_ns, len(data))
        receive = connection.receive_from_broker if direction else connection.receive_from_client
        try:
            events = receive(data, time_ns)
        except Exception:  # the decoder's state is no longer to be trusted: this connection is not followed any more
            self.faults += 1
            del self._connections[conn]
            return
        if self._early.get(conn):
            self._attach(conn, events)
        self._feed(_told(conn, events))

    def skipped(self, conn: int, direction: int, time_ns: int, nbytes: int) -> None:
        connection = self._connections.get(conn)
        if connection is not None:
            if self.watcher is not None:
                self.watcher.moved(conn, direction, time_ns, nbytes)
            self._feed(_told(conn, connection.skip(Direction(direction), nbytes, time_ns)))

    def _attach(self, conn: int, events: Iterable[Told]) -> None:
        """Requests that were noted before they came: a rule speaks as soon as it has decided."""
        early = self._early[conn]
        for event in events:
            if isinstance(event, RequestSeen) and (texts := early.pop(event.exchange.correlation_id & 0xFFFFFFFF, None)):
                event.exchange.marks.notes.extend(texts)

    def broker_leg(self, conn: int, direction: int, time_ns: int, frame: bytes, note: str = "") -> None:
        at = 4 if direction else 8
        correlation_id = int.from_bytes(frame[at : at + 4], "big", signed=True)
        for exchange in self._pending(conn):
            if exchange.correlation_id == correlation_id:
                exchange.marks.changed = True
                exchange.marks.set_leg(direction, BrokerLeg(frame[4:], notes=[note] if note else []))
                return

    def note(self, conn: int, correlation_id: int, text: str) -> None:
        for exchange in self._pending(conn):
            if exchange.correlation_id == correlation_id:
                exchange.marks.notes.append(text)
                return
        early = self._early.setdefault(conn, {})
        early.setdefault(correlation_id & 0xFFFFFFFF, []).append(text)
        if len(early) > EARLY_NOTES:
            del early[next(iter(early))]

    def in_flight(self) -> list[Exchange]:
        """The requests that wait for their responses, on all connections."""
        return [exchange for connection in self._connections.values() for exchange in connection.pending()]

    def _pending(self, conn: int) -> list[Exchange]:
        connection = self._connections.get(conn)
        return connection.pending() if connection is not None else []

    def lost(self, conn: int, direction: int, nbytes: int) -> None:
        connection = self._connections.get(conn)
        if connection is not None:
            connection.lost(Direction(direction))
        self._feed([Missing(conn, Direction(direction), nbytes, self.inspector.traffic.now_ns)])

    def closed(self, conn: int, time_ns: int, how: str = "fin", by: str = "") -> None:
        connection = self._connections.pop(conn, None)
        self._early.pop(conn, None)
        if connection is not None:
            self._feed(_told(conn, connection.close(time_ns)))
        how = self._failed.pop(conn, how)
        self._feed([Closed(conn, time_ns, "" if how == "lost" else how, by)])


def _told(conn: int, events: Iterable[Told]) -> Iterator[ConnectionEvent]:
    for event in events:
        yield NonKafkaData(conn, event) if isinstance(event, Opaque) else event


class InspectingTask:
    """Tells what is found wrong, and answers for the control API what the inspector knows (`observer_loop.Task`)."""

    def __init__(self, link: SupervisorLink, settings: dict[str, Any]) -> None:
        self._link = link
        self.inspection = Inspection()
        self._news = News(Severity(settings["findings_from"]))
        self._missed = 0
        self._missed_at = 0.0
        self._tells = bool(settings.get("findings", True))
        self._watcher: Watcher | None = None
        if settings.get("watch") is not None:
            inspection = self.inspection
            self._watcher = inspection.watcher = Watcher(
                inspection.in_flight, lambda: list(inspection.inspector.findings()), **settings["watch"]
            )
        self.inspection.tripwire = self._tripwire = Tripwire.of(settings, link.emit, News)
        if self._tripwire is not None and not self._tells and self._watcher is None:
            self.inspection.inspects = self._tripwire.inspects

    def command(self, message: dict[str, Any], loop: ObserverLoop) -> dict[str, Any] | None:
        if self._watcher is None:
            return {"error": "invalid", "text": f"no such command: {message.get('do')!r}"}
        number = message.get("id")
        answer = self._watcher.command(message, lambda later: loop.answer(number, later))
        if answer is not None and message["do"] == "kept":
            answer |= {"lost_bytes": loop.reader.lost_bytes, "lost_chunks": loop.reader.lost_chunks}
        return answer

    def word(self, said: dict[str, Any], link: SupervisorLink, now: float) -> None:
        """To stop: the supervisor says nothing else here."""
        link.stop(now)

    def pause(self, loop: ObserverLoop) -> float | None:
        watcher = self._watcher
        if watcher is None or not watcher.asked:
            return None
        if not loop.controlled:
            watcher.forget()
            return None
        watcher.step()
        return 0.0 if watcher.busy else ASKED_SECONDS  # so that what waits is answered when its time is up

    def report(self, loop: ObserverLoop) -> None:
        inspector, finished = self.inspection.inspector, loop.feed.finished
        if loop.idle:
            # Only who has read everything may say that something has not come by now.
            inspector.traffic.at(now_ns())
        if self._tripwire is not None:
            self._tripwire.tick(inspector.findings)
        if not self._tells:
            return
        news = self._news.of(inspector.findings(), everything=finished)
        for finding, number, key in news if finished else islice(news, TOLD_IN_SECOND):
            if not self._send(finding, number):
                break
            self._news.tell(key, finding, number)
        missed, now = loop.reader.lost_bytes, time.monotonic()
        if missed > self._missed and (finished or now - self._missed_at > MISSED_SECONDS):
            self._missed, self._missed_at = missed, now
            self._link.emit(NotInspected(missed))

    def close(self) -> None: ...

    def _send(self, finding: Finding, number: int) -> bool:
        """Whether the supervisor's end took it."""
        return self._link.emit(
            FindingSeen(
                finding.id,
                str(finding.severity),
                finding.seen[:_TEXT],
                finding.why[:_TEXT],
                finding.remedy[:_TEXT],
                finding.count,
                {name: _short(value) for name, value in finding.about.items()},
                number,
            )
        )


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_FACT]
    return value if isinstance(value, (int, float, bool, type(None))) else str(value)[:_FACT]


def main() -> None:
    control, settings = receive_settings(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(NICE)
    link = SupervisorLink(control)
    task = InspectingTask(link, settings)
    ObserverLoop(link, settings, RingFeed(task.inspection), task).run()


if __name__ == "__main__":
    main()
