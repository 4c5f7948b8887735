"""When a recorded connection ends, the target's ends too: at once, or when the answers that the recorded client had are there."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ...captures.replay.report import Report
from ...captures.replay.script import Step
from .connections import Connections, RecordedConnection
from .settings import SECOND, Settings


class Closing:
    """`lines` are the player's, by the recorded connection's number."""

    def __init__(self, lines: Mapping[int, RecordedConnection], net: Connections, report: Report, settings: Settings) -> None:
        self._lines, self._net, self._report = lines, net, report
        self._settings = settings
        self._patience_ns = int(settings.patience * SECOND)

    @property
    def busy(self) -> bool:
        """Whether a connection waits for its end."""
        return any(line.closes_by for line in self._lines.values())

    def close(self, line: RecordedConnection, step: Step) -> None:
        """The recorded connection ended here. With shared connections nothing ends."""
        if self._settings.connections:
            return
        # What the recorded client left unanswered is left so again; a broker that hangs up is waited for.
        waits = [link for link in line.links.values() if link.pending and not link.ended]
        if step.by == "broker" and waits:
            line.closes_by = time.monotonic_ns() + 2 * SECOND
            return
        if any(call.exchange.response is not None for link in waits for _, call, _ in link.pending):
            line.closes_by = time.monotonic_ns() + self._patience_ns  # answers that the recorded client had
            return
        self._hang_up(line)

    def overdue(self, now: int) -> None:
        """End what has its answers, or has waited for them long enough."""
        for line in self._lines.values() if self.busy else ():
            if not line.closes_by:
                continue
            if not any(link.pending for link in line.links.values() if not link.ended):
                self._hang_up(line)
            elif now > line.closes_by:
                if any(call.exchange.response is None for link in line.links.values() for _, call, _ in link.pending):
                    self._report.note("the recorded broker closed a connection, and the target did not")
                self._hang_up(line)

    def _hang_up(self, line: RecordedConnection) -> None:
        line.closes_by = 0
        for link in line.links.values():
            if link.ended:
                continue
            for _, call, _ in link.pending:
                self._report.unanswered += 1
                call.done = True
            link.ending = True
            if link.sock is None:
                continue
            self._net.dirty.add(link)
