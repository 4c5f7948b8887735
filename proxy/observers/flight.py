"""What in the traffic makes the flight recorder write: filters that are true, and findings.

`Tripwire` runs in the inspector process, which reads the ring at its own pace: nobody waits for it. It tells the first
reason at once, and about once a second how many more there were. What writes is in the observer (`recordings`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from ...decoder import Exchange, ExchangeDone
from ...decoder.connection.events import ConnectionEvent
from ...decoder.filter import Filter, compile
from ...decoder.findings import Finding, Severity
from ...decoder.schema import facts
from ..events import FlightWanted
from ..ring.clock import now_ns
from .news import News

_SEVERITIES = frozenset(str(severity) for severity in Severity)
_TEXT = 300
_LABEL = "match"


class Tripwire:
    """filters, findings: as of `FlightConfig`. `send` passes an event on and says whether that went."""

    def __init__(self, filters: Iterable[str], findings: Iterable[str], send: Callable[[FlightWanted], bool]) -> None:
        self._filters: list[tuple[str, Filter, frozenset[int] | None]] = []
        for text in filters:
            wanted = compile(text, now=time.time_ns)
            self._filters.append((text, wanted, wanted.apis()))
        given = set(findings)
        self._ids = given - _SEVERITIES
        ranks = [Severity(word).rank for word in given & _SEVERITIES]
        self._rank = min(ranks) if ranks else None
        self._send = send
        self._news = News(Severity.INFO)
        self._waiting: FlightWanted | None = None
        self._others = 0
        self._sent = float("-inf")
        self.faults = 0
        """Exchanges that a filter could not be asked about because of a fault of ours."""

    @property
    def inspects(self) -> bool:
        """Whether findings are needed."""
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
            except Exception:  # it stands beside the traffic; one exchange less is no reason to end
                self.faults += 1
                continue
            if matched:
                self._matched(text, exchange)

    def _matched(self, text: str, exchange: Exchange) -> None:
        if self._waiting is not None or time.monotonic() - self._sent < 1.0:
            self._others += 1  # which exchange it was matters for the first one only
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
        self._tell(FlightWanted("filter", f"{_shown(text)}: {what}", _LABEL, time_ns, about))

    def _tell(self, event: FlightWanted) -> None:
        """Send it; what cannot be sent now is tried again."""
        others, self._others = self._others, 0
        event = FlightWanted(event.kind, event.reason, event.label, event.time_ns, event.about, event.others + others)
        if self._send(event):
            self._sent = time.monotonic()
            self._waiting = None
        else:
            self._waiting = event

    def tick(self, findings: Callable[[], Iterable[Finding]]) -> None:
        """About once a second: what waits is sent, and findings are looked at."""
        if self._waiting is not None:
            self._tell(self._waiting)
        elif self._others:
            others, self._others = self._others, 0
            text = f"{others} more exchange{'' if others == 1 else 's'} that a filter was true of"
            self._tell(FlightWanted("filter", text, _LABEL, now_ns(), {}, others - 1))
        if not self.inspects or self._waiting is not None:
            return
        for finding, number, key in list(self._news.of(findings())):
            self._news.tell(key, finding, number)
            if finding.id in self._ids or (self._rank is not None and finding.severity.rank >= self._rank):
                self._tell(self._found(finding))

    @staticmethod
    def _found(finding: Finding) -> FlightWanted:
        about: dict[str, Any] = {"finding": finding.id, "severity": str(finding.severity), "count": finding.count}
        for name, value in finding.about.items():
            about.setdefault(name, value if isinstance(value, (int, float, bool, type(None))) else str(value)[:_TEXT])
        text = f"{finding.id} ({finding.severity}): {_shown(finding.seen)}"
        return FlightWanted("finding", text, finding.id, finding.last_ns or now_ns(), about)


def _shown(text: str) -> str:
    """In one line, without what a terminal would take for a command."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_TEXT])
