"""The inspector process: reads the ring at its own pace and tells what is wrong in the traffic, as it happens.

    python -m barnabas.proxy.observers.inspector FD     FD: the supervisor's control socket; settings come as its first packet

A second reader beside the observer. What it cannot keep up with it misses, and says so; nobody waits for it.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import islice
from typing import Any

from ...decoder import Exchange
from ...decoder.findings import Finding, Inspector, Severity
from ..events import FindingSeen, NotInspected
from ..ring.clock import now_ns
from ..supervisor.child import receive_settings
from .flight import Tripwire
from .news import News
from .observer_loop import ObserverLoop, SupervisorLink
from .ring_feed import RingFeed
from .settings import InspectorSettings
from .traffic_decoder import Hear, TrafficDecoder
from .watcher import Watcher

NICE = 15
"""Below the observer: where cores are scarce a recording is worth more."""
TOLD_IN_SECOND = 50
"""Most findings told in one second; the others wait for the next."""
MISSED_SECONDS = 10.0
"""How often it is told that bytes were missed."""
ASKED_SECONDS = 0.1
_TEXT = 4000
_FACT = 500
"""Most characters of a text, and of what it is about: an event is one packet."""


class InspectingTask:
    """Reports findings, and answers the control API about the newest exchanges (`observer_loop.Task`)."""

    def __init__(self, link: SupervisorLink, settings: InspectorSettings) -> None:
        self._link = link
        self.inspector = Inspector()
        self._news = News(Severity(settings.findings_from)) if settings.findings_from else None
        """None where nobody wants findings reported."""
        self._missed = 0
        self._missed_at = 0.0
        flight, live = settings.flight, settings.live
        self._tripwire = Tripwire(flight.filters, flight.findings, link.emit) if flight is not None and flight.wakes else None
        self._watcher = Watcher(self._in_flight, self._found, live) if live is not None else None
        listeners: list[Hear] = []
        if self._news is not None or self._watcher is not None or self._tripwire is None or self._tripwire.inspects:
            listeners.append(self.inspector.feed)
        listeners += [each.hear for each in (self._tripwire, self._watcher) if each is not None]
        self.decoder = TrafficDecoder(*listeners, moved=self._watcher.moved if self._watcher else None)

    def _in_flight(self) -> list[Exchange]:
        return self.decoder.in_flight()

    def _found(self) -> list[Finding]:
        return list(self.inspector.findings())

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
        inspector, finished = self.inspector, loop.feed.finished
        if loop.idle:
            # Only who has read everything may say that something has not come by now.
            inspector.traffic.at(now_ns())
        if self._tripwire is not None:
            self._tripwire.tick(inspector.findings)
        if self._news is None:
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
    control, said = receive_settings(int(sys.argv[1]))
    settings = InspectorSettings.of(said)
    os.nice(NICE)
    link = SupervisorLink(control)
    task = InspectingTask(link, settings)
    ObserverLoop(link, settings.access, settings.commands, RingFeed(task.decoder), task).run()


if __name__ == "__main__":
    main()
