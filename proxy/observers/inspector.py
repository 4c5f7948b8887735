"""The inspector process: reads the ring at its own pace and reports findings while the traffic runs.

    python -m barnabas.proxy.observers.inspector FD     FD: the supervisor's control socket; settings come as its first packet

A second reader beside the observer. It misses what it cannot keep up with, and reports how much; nobody waits for it.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from datetime import UTC
from itertools import islice

from ...decoder import Exchange
from ...decoder.findings import Finding, Inspector, Severity
from ..events import FindingSeen, NotInspected
from ..processes.child import receive_settings
from ..processes.control_messages import Answers, Commands, ExchangesKept, Failure, Refused
from ..processes.messages import Message
from ..ring.clock import now_ns
from .finding_reports import Due, FindingReports, about_as_json
from .flight_trigger import FlightTrigger
from .live_exchanges import LiveExchanges
from .observer_loop import ObserverLoop, SupervisorLink
from .ring_feed import RingFeed
from .settings import InspectorSettings
from .traffic_decoder import Hear, TrafficDecoder

NICE = 15
"""Below the observer: where cores are scarce a recording is worth more."""
REPORTS_IN_SECOND = 50
"""Most findings reported in one second; the others wait for the next."""
MISSED_SECONDS = 10.0
"""How often missed bytes are reported."""
QUESTION_SECONDS = 0.1
"""How often questions that wait for exchanges are looked at."""
_TEXT = 4000
_FACT = 500
"""Most characters of a text, and of what it is about: an event is one packet."""


class InspectingTask:
    """Reports findings, and answers the control API about the newest exchanges (`observer_loop.Task`)."""

    def __init__(self, link: SupervisorLink, settings: InspectorSettings) -> None:
        self._link = link
        self.inspector = Inspector()
        self._reports = FindingReports(Severity(settings.findings_from)) if settings.findings_from else None
        """None where findings are not to be reported."""
        self._missed = 0
        self._missed_at = 0.0
        flight, live = settings.flight, settings.live
        self._trigger = None
        if flight is not None and flight.wakes:
            self._trigger = FlightTrigger(flight.filters, flight.findings, link.emit, None if flight.local else UTC)
        self._live = LiveExchanges(self._in_flight, self._findings, live) if live is not None else None
        listeners: list[Hear] = []
        if self._reports is not None or self._live is not None or (self._trigger is not None and self._trigger.inspects):
            listeners.append(self.inspector.feed)
        listeners += [each.hear for each in (self._trigger, self._live) if each is not None]
        self.decoder = TrafficDecoder(
            *listeners, moved=self._live.moved if self._live is not None else None, over=lambda: link.over(time.monotonic())
        )

    def _in_flight(self) -> list[Exchange]:
        return self.decoder.in_flight()

    def _findings(self) -> list[Finding]:
        return list(self.inspector.findings())

    def command(self, number: int, command: Commands, loop: ObserverLoop) -> Answers | None:
        if self._live is None:
            return Refused(Failure.INVALID, f"no such command: {type(command).__name__}")
        answer = self._live.command(command, lambda later: loop.answer(number, later))
        if isinstance(answer, ExchangesKept):
            return replace(answer, lost_bytes=loop.reader.lost_bytes, lost_chunks=loop.reader.lost_chunks)
        return answer

    def supervisor_sent(self, message: Message) -> None: ...

    def pause(self, loop: ObserverLoop) -> float | None:
        live = self._live
        if live is None or not live.asked:
            return None
        if not loop.controlled:
            live.forget()
            return None
        live.step()
        return 0.0 if live.busy else QUESTION_SECONDS  # so that what waits is answered when its time is up

    def report(self, loop: ObserverLoop) -> None:
        inspector, finished = self.inspector, loop.ending
        if loop.idle:
            # Only a reader that has read everything knows that something has not come by now.
            inspector.traffic.at(now_ns())
        for closed in self.decoder.half_closed(now_ns() if loop.idle else self.decoder.now_ns):
            inspector.feed(closed)
        if self._trigger is not None:
            self._trigger.tick(inspector.findings)
        if self._reports is None:
            return
        due = self._reports.due(inspector.findings(), everything=finished)
        for each in due if finished else islice(due, REPORTS_IN_SECOND):
            if not self._send(each):
                break
            self._reports.reported(each)
        missed, now = loop.lost_bytes + self.decoder.unseen_bytes, time.monotonic()
        if missed > self._missed and (finished or now - self._missed_at > MISSED_SECONDS):
            self._missed, self._missed_at = missed, now
            self._link.emit(NotInspected(missed))

    def close(self) -> None: ...

    def _send(self, due: Due) -> bool:
        """Whether the supervisor's end took it."""
        finding = due.finding
        seen, why, remedy = (text[:_TEXT] for text in (finding.seen, finding.why, finding.remedy))
        about = about_as_json(finding, _FACT)
        return self._link.emit(FindingSeen(finding.id, str(finding.severity), seen, why, remedy, finding.count, about, due.number))


def main() -> None:
    control, settings = receive_settings(int(sys.argv[1]), InspectorSettings)
    os.nice(NICE)
    link = SupervisorLink(control)
    task = InspectingTask(link, settings)
    ObserverLoop(link, settings.access, settings.commands, RingFeed(task.decoder), task).run()


if __name__ == "__main__":
    main()
