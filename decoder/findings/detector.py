"""The base of all detectors: what they are told, and how they say what they found.

A detector looks for one thing. It is told what happens in order, one call each, and collapses what belongs
together (the same client, the same group ...) into one `Finding` with a count. The `Scene` has seen everything
before the detector is told, so what is commonly known (versions offered, leaders, who the client is) is asked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from ..connection import Opaque
from ..exchange import Exchange
from .finding import Finding, Severity
from .scene import Link, Scene


class Detector:
    """Subclasses set `id`, `severity`, `title`, perhaps `apis`, and override the calls they need.

    `title`: one line, what it looks for. `apis`: the api keys whose exchanges it wants to see in `request` and
    `done`; None for all (orphans and unknown APIs too). Times are nanoseconds since the epoch.
    """

    id: ClassVar[str]
    severity: ClassVar[Severity]
    title: ClassVar[str]
    apis: ClassVar[frozenset[int] | None] = None

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._found: dict[object, Finding] = {}

    # what happens

    def opened(self, link: Link) -> None:
        """A connection began (`link.established`: or was tried in vain)."""

    def request(self, link: Link, exchange: Exchange) -> None:
        """A request is complete; its response is not there yet."""

    def done(self, link: Link, exchange: Exchange) -> None:
        """An exchange is complete, or will never be (`exchange.state`)."""

    def stray(self, link: Link, opaque: Opaque) -> None:
        """Bytes that are no requests or responses: SASL tokens, TLS, other protocols."""

    def closed(self, link: Link) -> None:
        """A connection ended; `link.how` and `link.by` say how."""

    def hears(self, name: str) -> bool:
        """Whether it has to be told what the method `name` is for: those that it overrides."""
        return getattr(type(self), name) is not getattr(Detector, name)

    def follows(self, link: Link, exchange: Exchange, same: bool) -> bool:
        """Asked when an exchange of a recording is done that was answered well (`foreseen.Foreseen.plain`): whether this
        detector has to be told of the next such ones of its API, version and client id on this connection. `same`: of those that
        say just the same again. `Scene.anew` has all be asked again; so has a request that is not answered.
        """
        return True

    def finish(self, now_ns: int) -> None:
        """Asked for findings at this time (of the traffic, not of any clock); may be asked again later.

        For what becomes wrong by waiting: look at what is still open.
        """

    # what was found

    def report(
        self,
        key: object,
        exchange: Exchange | None,
        make: Callable[[], Finding],
        time_ns: int | None = None,
    ) -> Finding:
        """Count one more of what `key` stands for; `make` writes the finding the first time.

        The finding may be changed later (its `seen`, when a number in it grows; its severity).
        """
        finding = self._found.get(key)
        if finding is None:
            finding = self._found[key] = make()
        else:
            finding.count += 1
        finding.link(exchange, time_ns, self.scene.causes)
        return finding

    def finding(self, seen: str, why: str, remedy: str, severity: Severity | None = None, **about: Any) -> Finding:
        """A finding of this detector's id and (unless told) severity."""
        return Finding(self.id, severity or self.severity, seen, why, remedy, about=about)

    def beside(self, found: list[Finding]) -> None:
        """Told what the detectors before it in the catalogue have found, right before it is asked for its own findings."""

    def findings(self) -> Iterable[Finding]:
        """Everything found so far."""
        return list(self._found.values())
