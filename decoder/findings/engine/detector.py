"""The interface of detectors: the events they get, and how they report findings.

A detector looks for one thing. It gets events in order and collapses what belongs together (the same client, the same
group ...) into one `Finding` with a count. `Traffic` and the models are updated first, so detectors ask them for what is
commonly known (versions offered, leaders, who the client is).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from functools import cache
from typing import ClassVar

from ...connection.connection import Opaque
from ...connection.exchange import Exchange
from .finding import Finding, Severity
from .traffic import ClientConnection, Traffic


class Wanted(Enum):
    """Which exchanges `Detector.done` gets. Most exchanges go well (`Exchange.went_well`) and resemble earlier ones, and most
    detectors look for failures: leaving out calls is what makes an inspection fast."""

    ALL = auto()
    NEW = auto()
    """What `FAILED` gets, and the first success of each API, version and client id on a connection. To see more of them, call
    `ClientConnection.forget_kinds` each time."""
    FAILED = auto()
    """Failures, the next success on the connection, and the APIs that a connection begins with (ApiVersions, SASL)."""


class Listener:
    """Gets events from an `Inspector`. Subclasses override the callbacks they need, and may set `apis` and `wanted`.

    `id`: its name. `apis`: the api keys whose exchanges `request` and `done` get; None for all (orphans and unknown APIs
    too). `request_apis`: if set, `request` gets only these of them. `wanted`: which of them `done` gets; if
    `usual_apis` is set, of other APIs only what `Wanted.FAILED` says. Times are nanoseconds since the epoch.
    """

    id: ClassVar[str]
    apis: ClassVar[frozenset[int] | None] = None
    request_apis: ClassVar[frozenset[int] | None] = None
    usual_apis: ClassVar[frozenset[int] | None] = None
    wanted: ClassVar[Wanted] = Wanted.ALL
    dispatches: ClassVar[Mapping[str, str]] = {}
    """By callback: the one that the class calls for it, with what a model makes of the event."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.setup()

    def setup(self) -> None:
        """Create the listener's own state; `traffic` is set."""

    @classmethod
    def concerns(cls, api_key: int, version: int) -> bool:
        """Whether `request` and `done` get exchanges of this version. Asked once per API of `apis` and version."""
        return True

    @classmethod
    def wanted_of(cls, api_key: int, version: int) -> Wanted:
        """`wanted`, where it depends on the version. Asked as `concerns` is."""
        return cls.wanted if cls.usual_apis is None or api_key in cls.usual_apis else Wanted.FAILED

    def opened(self, conn: ClientConnection) -> None:
        """A connection was opened, or failed to open (`conn.established`)."""

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        """A request is complete; its response has not arrived."""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        """An exchange has finished, with or without a response (`exchange.state`)."""

    def stray(self, conn: ClientConnection, opaque: Opaque) -> None:
        """Bytes that are not requests or responses: SASL tokens, TLS, other protocols."""

    def closed(self, conn: ClientConnection) -> None:
        """A connection ended (`conn.how`, `conn.by`)."""

    @classmethod
    @cache
    def handles(cls, name: str) -> bool:
        """Whether the callback `name`, or the one it dispatches to, is overridden, and so must be called."""
        names = {name, cls.dispatches.get(name, name)}
        kind = next((kind for kind in cls.__mro__ if names & vars(kind).keys()), Listener)
        return kind not in (Listener, Detector) and "dispatches" not in vars(kind)


class Model(Listener):
    """State that several detectors share: one of each kind (`Traffic.model`), called before the detectors."""


class Detector(Listener):
    """Looks for one thing. Subclasses set `id`, `severity`, `title` (one line: what it looks for; it stands for a docstring), and
    `why` and `remedy` where all of its findings have the same.

    `explains`: ids of detectors whose findings of the same client, connection or broker are only effects of what this one finds.
    Its finding then comes before theirs and is at least as severe (`engine/ranking.py`)."""

    severity: ClassVar[Severity]
    title: ClassVar[str]
    why: ClassVar[str] = ""
    remedy: ClassVar[str] = ""
    explains: ClassVar[tuple[str, ...]] = ()

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._found: dict[object, Finding] = {}
        self._for_now: dict[object, Finding] = {}
        """What `finish` found and may take back the next time."""

    def finish(self, now_ns: int) -> None:
        """Findings are about to be read, at this time of the traffic (not of a clock); may happen again later.

        For problems that grow by waiting: check what is still open.
        """

    def report(
        self,
        key: object,
        exchange: Exchange | None,
        why: str | None = None,
        remedy: str | None = None,
        /,
        *,
        severity: Severity | None = None,
        seen: str = "",
        time_ns: int | None = None,
        facts: Mapping[str, object] | None = None,
        **about: object,
    ) -> Finding:
        """Count one more of what `key` stands for; only the first one makes the finding from what is given here.

        The exchange, or `time_ns` where there is none, becomes evidence. `why`, `remedy`, `severity`: the detector's own unless given. `facts`:
        of client, broker and API for `Finding.about`; those of the exchange unless given, as long as its connection is open.
        The caller may change the finding later (`seen`, when a number in it grows; its severity; its texts).
        """
        found = self._found.get(key)
        if found is None:
            if facts is None:
                conn = self.traffic.connections.get(exchange.connection) if exchange is not None else None
                facts = conn.facts_of(exchange) if conn is not None else {}
            why, remedy = self.why if why is None else why, self.remedy if remedy is None else remedy
            found = self.finding(
                seen, why, remedy, severity, **about, **{k: v for k, v in facts.items() if k not in about}
            )
        return self.count(key, found, exchange, time_ns)

    def count(self, key: object, finding: Finding, exchange: Exchange | None, time_ns: int | None = None) -> Finding:
        """The finding of `key`, counted once more: `finding` itself if it is the first."""
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = finding
        else:
            found.count += 1
        found.add_evidence(exchange, time_ns, self.traffic.causes)
        return found

    def finding(self, seen: str, why: str, remedy: str, severity: Severity | None = None, /, **about: object) -> Finding:
        """A finding of this detector, not yet counted."""
        return Finding(self.id, severity or self.severity, seen, why, remedy, about=about, explains=self.explains)

    def after_others(self, found: list[Finding]) -> None:
        """Take the findings of the detectors before it in the catalogue, right before its own are read."""

    def findings(self) -> Iterable[Finding]:
        """All findings so far."""
        return [*self._found.values(), *self._for_now.values()]
