"""The base of all detectors: what they are told, and how they say what they found.

A detector looks for one thing. It is told what happens in order, one call each, and collapses what belongs
together (the same client, the same group ...) into one `Finding` with a count. The `Traffic` has seen everything
before the detector is told, so what is commonly known (versions offered, leaders, who the client is) is asked there.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, ClassVar

from ...connection.connection import Opaque
from ...connection.exchange import Exchange
from .finding import Finding, Severity
from .traffic import ClientConnection, Traffic


class Wanted(Enum):
    """Which exchanges `Detector.done` gets. Most go well (`Exchange.went_well`) and are like many before them, and most
    detectors look for what goes wrong: a call that is not made is what makes an inspection quick."""

    ALL = auto()
    NEW = auto()
    """What `FAILED` gets, and the first that goes well of each API, version and client id on a connection. Who wants to see
    more of them for a while says so each time: `ClientConnection.forget_kinds`."""
    FAILED = auto()
    """Those that did not go well, the next one on the connection that does, and what a connection begins with (ApiVersions,
    SASL)."""


class Listener:
    """What an `Inspector` tells what happens: subclasses override the calls they need, and perhaps set `apis` and `wanted`.

    `id`: its name. `apis`: the api keys whose exchanges it wants to see in `request` and `done`; None for all (orphans and
    unknown APIs too). `wanted`: which of these in `done`. Times are nanoseconds since the epoch.
    """

    id: ClassVar[str]
    apis: ClassVar[frozenset[int] | None] = None
    wanted: ClassVar[Wanted] = Wanted.ALL

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic

    @classmethod
    def concerns(cls, api_key: int, version: int) -> bool:
        """Whether it wants exchanges of this version in `request` and `done`. Asked once per API of `apis` and version."""
        return True

    def opened(self, conn: ClientConnection) -> None:
        """A connection began (`conn.established`: or was tried in vain)."""

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        """A request is complete; its response is not there yet."""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        """An exchange is complete, or will never be (`exchange.state`)."""

    def stray(self, conn: ClientConnection, opaque: Opaque) -> None:
        """Bytes that are no requests or responses: SASL tokens, TLS, other protocols."""

    def closed(self, conn: ClientConnection) -> None:
        """A connection ended; `conn.how` and `conn.by` say how."""

    def hears(self, name: str) -> bool:
        """Whether the method `name` has to be called: those that it overrides."""
        return overrides(self, Listener, name)


def overrides(listener: Listener, base: type[Listener], *names: str) -> bool:
    """Whether a listener has another one of these methods than its base class `base`."""
    return any(getattr(type(listener), name) is not getattr(base, name) for name in names)


class Model(Listener):
    """What several detectors ask. A traffic has one of each kind (`Traffic.model`), which is told everything before the detectors
    are."""


class Detector(Listener):
    """Looks for one thing. Subclasses set `id`, `severity` and `title` (one line, what it looks for)."""

    severity: ClassVar[Severity]
    title: ClassVar[str]

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._found: dict[object, Finding] = {}

    def finish(self, now_ns: int) -> None:
        """Asked for findings at this time (of the traffic, not of any clock); may be asked again later.

        For what becomes wrong by waiting: look at what is still open.
        """

    def report(
        self,
        key: object,
        exchange: Exchange | None,
        why: str,
        remedy: str,
        severity: Severity | None = None,
        /,
        *,
        seen: str = "",
        time_ns: int | None = None,
        **about: Any,
    ) -> Finding:
        """Count one more of what `key` stands for; only the first one makes the finding from what is given here.

        The exchange, or `time_ns` where there is none, becomes evidence. `severity`: the detector's own unless given. The
        caller may change the finding later (`seen`, when a number in it grows; its severity; its texts).
        """
        return self.count(key, self.finding(seen, why, remedy, severity, **about), exchange, time_ns)

    def count(self, key: object, finding: Finding, exchange: Exchange | None, time_ns: int | None = None) -> Finding:
        """The finding of `key`, counted once more: `finding` itself if it is the first."""
        found = self._found.setdefault(key, finding)
        if found is not finding:
            found.count += 1
        found.add_evidence(exchange, time_ns, self.traffic.causes)
        return found

    def finding(self, seen: str, why: str, remedy: str, severity: Severity | None = None, **about: Any) -> Finding:
        """A finding of this detector, not yet counted."""
        return Finding(self.id, severity or self.severity, seen, why, remedy, about=about)

    def beside(self, found: list[Finding]) -> None:
        """Told what the detectors before it in the catalogue have found, right before it is asked for its own findings."""

    def findings(self) -> Iterable[Finding]:
        """Everything found so far."""
        return list(self._found.values())
