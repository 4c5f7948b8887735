"""Makes the flight recorder write when a filter matches an exchange, or when a finding is reported.

`FlightTrigger` runs in the inspector process, which reads the ring at its own pace: nobody waits for it. It sends the first reason at
once and reports, about once a second, how many more there were. The observer process writes (`recordings`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, tzinfo

from ...decoder import Exchange, ExchangeDone
from ...decoder.connection.events import ConnectionEvent
from ...decoder.filter import Filter, compile
from ...decoder.findings import Finding, Severity
from ...decoder.schema import facts
from ...diagnostics import contained
from ..events import FlightWanted
from ..ring.clock import now_ns
from .finding_reports import Fact, FindingReports, about_as_json

_SEVERITIES = frozenset(str(severity) for severity in Severity)
_TEXT = 300
"""Most characters of a text in an event."""
_LABEL = "match"


class FlightTrigger:
    """filters, findings: as in `FlightConfig`. send: sends an event, and returns False when it has to be tried again."""

    def __init__(
        self,
        filters: Iterable[str],
        findings: Iterable[str],
        send: Callable[[FlightWanted], bool],
        zone: tzinfo | None = UTC,
    ) -> None:
        self._filters: list[tuple[str, Filter, frozenset[int] | None]] = []
        for text in filters:
            wanted = compile(text, now=time.time_ns, zone=zone)
            self._filters.append((text, wanted, wanted.apis()))
        given = set(findings)
        self._ids = given - _SEVERITIES
        ranks = [Severity(word).rank for word in given & _SEVERITIES]
        self._rank = min(ranks) if ranks else None
        self._send = send
        self._reports = FindingReports(Severity.INFO)
        self._waiting: FlightWanted | None = None
        self._others = 0
        self._sent = float("-inf")

    @property
    def inspects(self) -> bool:
        """Whether it needs findings."""
        return self._rank is not None or bool(self._ids)

    def hear(self, event: ConnectionEvent) -> None:
        """Take what happened. Never raises."""
        if type(event) is not ExchangeDone or not self._filters:
            return
        exchange = event.exchange
        for text, wanted, apis in self._filters:
            if apis is not None and exchange.api_key not in apis:
                continue
            try:
                matched = wanted(exchange)
            except Exception as error:  # a bug here costs one exchange, not the process
                contained("a filter of the flight recorder", error)
                continue
            if matched:
                self._matched(text, exchange)

    def _matched(self, text: str, exchange: Exchange) -> None:
        if self._waiting is not None or time.monotonic() - self._sent < 1.0:
            self._others += 1  # only the first exchange is described
            return
        time_ns = exchange.response_time_ns or exchange.request_time_ns or now_ns()
        about = {
            "filter": text,
            "connection": exchange.connection,
            "client": exchange.client,
            "broker": exchange.broker,
            "api": facts.api_name(exchange.api_key),
            "api_version": exchange.api_version,
            "correlation_id": exchange.correlation_id,
            "client_id": None if exchange.client_id is None else exchange.client_id[:_TEXT],
        }
        what = f"{about['api']} v{exchange.api_version} on connection {exchange.connection}"
        self._emit(FlightWanted("filter", f"{_printable(text)}: {what}", _LABEL, time_ns, about))

    def _emit(self, event: FlightWanted) -> None:
        """Send an event, or keep it to try again."""
        others, self._others = self._others, 0
        event = FlightWanted(event.kind, event.reason, event.label, event.time_ns, event.about, event.others + others)
        if self._send(event):
            self._sent = time.monotonic()
            self._waiting = None
        else:
            self._waiting = event

    def tick(self, findings: Callable[[], Iterable[Finding]]) -> None:
        """Call this about once a second: sends what waits, and checks the findings."""
        if self._waiting is not None:
            self._emit(self._waiting)
        elif self._others:
            others, self._others = self._others, 0
            text = f"{others} more exchange{'' if others == 1 else 's'} that matched a filter"
            self._emit(FlightWanted("filter", text, _LABEL, now_ns(), {}, others - 1))
        if not self.inspects or self._waiting is not None:
            return
        for due in self._reports.due(findings()):
            self._reports.reported(due)
            finding = due.finding
            if finding.id in self._ids or (self._rank is not None and finding.severity.rank >= self._rank):
                self._emit(self._found(finding))

    @staticmethod
    def _found(finding: Finding) -> FlightWanted:
        about: dict[str, Fact] = {"finding": finding.id, "severity": str(finding.severity), "count": finding.count}
        text = f"{finding.id} ({finding.severity}): {_printable(finding.seen)}"
        about = {**about, **about_as_json(finding, _TEXT), **about}
        return FlightWanted("finding", text, finding.id, finding.last_ns or now_ns(), about)


def _printable(text: str) -> str:
    """In one line, without control sequences for terminals."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_TEXT])
