"""What the inspector keeps for the control API: open connections and the newest exchanges, and its answers about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...decoder import Exchange, ExchangeDone
from ...decoder.connection.events import Closed, ConnectionEvent, Opened
from ...decoder.filter import FilterError
from ...decoder.findings import Finding
from ..ring.clock import now_ns
from .exchange_store import ExchangeStore, Filters, Question
from .finding_reports import about_as_json
from .settings import LiveSettings

QUESTIONS = 64
"""Most questions that are answered at the same time."""


class LiveConnection:
    """One open connection."""

    __slots__ = ("about", "broker", "bytes", "client", "client_id", "exchanges", "last_ns", "opened_ns")

    def __init__(self, client: str, broker: str, opened_ns: int) -> None:
        self.client, self.broker, self.opened_ns = client, broker, opened_ns
        self.bytes = [0, 0]
        self.exchanges = 0
        self.last_ns = opened_ns
        self.client_id: str | None = None
        self.about: Any = None

    def to_dict(self, number: int) -> dict[str, Any]:
        about = self.about
        software = f"{about.software_name} {about.software_version}".strip() if about is not None else ""
        return {
            "connection": number,
            "client": self.client,
            "broker": self.broker,
            "opened_ns": self.opened_ns,
            "last_ns": self.last_ns,
            "request_bytes": self.bytes[0],
            "response_bytes": self.bytes[1],
            "exchanges": self.exchanges,
            "client_id": self.client_id,
            "software": software or None,
        }


class LiveExchanges:
    """A listener of `TrafficDecoder`. `pending` returns the requests in flight; `findings` returns the findings so far."""

    def __init__(
        self,
        pending: Callable[[], list[Exchange]],
        findings: Callable[[], list[Finding]],
        settings: LiveSettings,
    ) -> None:
        self.store = ExchangeStore(settings.count)
        self._pending, self._findings, self._values = pending, findings, settings.values
        self._connections: dict[int, LiveConnection] = {}
        self._filters = Filters()
        self._questions: list[Question] = []

    # -- the traffic -----------------------------------------------------------------------------------------

    def hear(self, event: ConnectionEvent) -> None:
        """Take what happened. Never raises."""
        if isinstance(event, ExchangeDone):
            exchange = event.exchange
            self.store.add(exchange)
            connection = self._connections.get(exchange.connection)
            if connection is not None:
                connection.exchanges += 1
                connection.client_id = exchange.client_id or connection.client_id
                connection.about = exchange.about or connection.about
        elif isinstance(event, Opened):
            if event.established:
                self._connections[event.connection] = LiveConnection(
                    event.client, event.broker, event.time_ns
                )
        elif isinstance(event, Closed):
            self._connections.pop(event.connection, None)

    def moved(self, conn: int, direction: int, time_ns: int, size: int) -> None:
        """Bytes have passed."""
        connection = self._connections.get(conn)
        if connection is not None:
            connection.bytes[direction] += size
            connection.last_ns = time_ns

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a question can be worked on."""
        return any(not question.waiting for question in self._questions)

    @property
    def asked(self) -> bool:
        """Whether there are questions without an answer."""
        return bool(self._questions)

    def step(self) -> None:
        """Work on the questions for a moment each."""
        self._questions = [question for question in self._questions if not question.step()]

    def forget(self) -> None:
        """Drop all questions: the one who asked is gone."""
        self._questions.clear()

    def command(self, message: dict[str, Any], reply: Callable[[dict[str, Any]], Any]) -> dict[str, Any] | None:
        """Answer a command of the control server; None if `reply` is called with the answer later."""
        match message["do"]:
            case "exchanges":
                return self._ask(message, reply)
            case "exchange":
                stored = self.store.get(int(message["number"]))
                if stored is None:
                    return {"error": "missing", "text": f"exchange {message['number']} is not here (any more)"}
                return {"exchange": self.store.described(stored, True, self._values)}
            case "noted":
                return {"numbers": self.store.noted((int(conn), str(note), int(when)) for conn, note, when in message["wanted"])}
            case "pending":
                now = now_ns()
                return {"exchanges": [self._waiting(exchange, now) for exchange in self._pending()]}
            case "connections":
                return {"connections": [c.to_dict(number) for number, c in sorted(self._connections.items())]}
            case "findings":
                return {"findings": [_finding(each) for each in self._findings()]}
            case "kept":
                store = self.store
                return {"kept": len(store), "bytes": store.bytes, "oldest": store.oldest, "newest": store.newest}
        return {"error": "invalid", "text": f"no such command: {message['do']!r}"}

    def _ask(self, message: dict[str, Any], reply: Callable[[dict[str, Any]], Any]) -> dict[str, Any] | None:
        if len(self._questions) >= QUESTIONS:
            return {"error": "busy", "text": f"{QUESTIONS} questions are being answered already"}
        try:
            wanted = self._filters.of(message.get("filter"), message.get("zone", "UTC"))
        except FilterError as error:
            return {"error": "invalid", "text": error.message, "start": error.start, "end": error.end}
        question = Question(
            self.store,
            wanted,
            since=message.get("since"),
            limit=int(message.get("limit", 100)),
            wait=float(message.get("wait", 0.0)),
            bodies=bool(message.get("bodies")),
            values=self._values,
            reply=reply,
        )
        if not question.step():
            self._questions.append(question)
        return None

    def _waiting(self, exchange: Exchange, now: int) -> dict[str, Any]:
        found = exchange.to_dict(bodies=False)
        found["pending_ns"] = now - (exchange.request_time_ns or now)
        return found


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": str(finding.severity),
        "seen": finding.seen,
        "why": finding.why,
        "remedy": finding.remedy,
        "injected": finding.injected,
        "rules": list(finding.rules),
        "count": finding.count,
        "about": about_as_json(finding),
    }
