"""Runs all detectors over events; findings can be read at any time.

A detector that raises loses only the event it was handling, and that is reported as a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from ...diagnostics import contained
from ..connection.connection import ExchangeDone, Opaque, RequestSeen
from ..connection.events import Closed, ConnectionEvent, Missing, NonKafkaData, Opened
from ..connection.exchange import Exchange, State
from ..schema import facts
from .detectors.catalogue import detectors
from .engine.broker_messages import quoting
from .engine.detector import Detector, Listener, Wanted
from .engine.finding import Finding, Severity
from .engine.formatting import SECOND, times
from .engine.grouping import grouped
from .engine.ranking import ranked
from .engine.traffic import ClientConnection, Traffic
from .known_bugs import name_known_bugs

_BEGINNINGS = facts.api_key_set("ApiVersions", "SaslHandshake", "SaslAuthenticate")
"""What connections begin with: every detector of the API gets these."""
_IDLE_NS = 5 * SECOND
_MOST_KINDS = 256
"""Most kinds of exchanges remembered per connection; a client may make up client ids."""
_LARGE = 1 << 18
"""Bytes of an exchange whose decoded messages, 20 times as large, are not kept for as long as detectors keep the exchange."""
_MOST_ROUTES = 1024
"""Most pairs of API and version; a client may make up 2^32."""


Callback = Callable[[ClientConnection, Exchange], None]
"""`request` or `done` of a listener."""


class _Route(NamedTuple):
    """The callbacks of listeners for one API and version: for requests, for finished exchanges that failed, for the
    first success of its kind on a connection, and for those that follow."""

    requests: tuple[Callback, ...]
    failed: tuple[Callback, ...]
    new: tuple[Callback, ...]
    usual: tuple[Callback, ...]


_Kinds = tuple[type[Listener], ...]
_CALLBACKS = "opened", "stray", "closed", "finish"
_Choice = Callable[[list[Any]], tuple[Any, ...]]
"""Takes what belongs to some listeners from a list that has it for all."""


def _choice(*places: int) -> _Choice:
    return itemgetter(*places) if len(places) > 1 else lambda listed: tuple([listed[at] for at in places])


@lru_cache(_MOST_ROUTES)
def _routed(kinds: _Kinds, key: int, version: int) -> tuple[_Choice, _Choice, _Choice, _Choice]:
    """The listeners for one API and version, as in `_Route`. Classes decide, so that each inspector of a process need
    not ask all listeners again: recordings are often short."""
    concerned = [
        (at, kind)
        for at, kind in enumerate(kinds)
        if (kind.apis is None or key in kind.apis) and kind.concerns(key, version)
    ]
    done = [(at, kind.wanted_of(key, version)) for at, kind in concerned if kind.handles("done")]
    asked = [(at, kind) for at, kind in concerned if kind.handles("request")]
    return (
        _choice(*(at for at, kind in asked if kind.request_apis is None or key in kind.request_apis)),
        _choice(*(at for at, _ in done)),
        _choice(*(at for at, wanted in done if wanted is not Wanted.FAILED)),
        _choice(*(at for at, wanted in done if wanted is Wanted.ALL)),
    )


@lru_cache(64)
def _handling(kinds: _Kinds) -> tuple[_Choice, ...]:
    """The listeners that have each of the `_CALLBACKS`."""
    return tuple(_choice(*(at for at, kind in enumerate(kinds) if kind.handles(name))) for name in _CALLBACKS)


class Inspector:
    """Feed it events in order (or whole exchanges with `look`); `findings()` may be called again and again.

    `only`: the ids of the detectors to run, all by default.
    """

    def __init__(self, only: Iterable[str] | None = None) -> None:
        wanted = None if only is None else set(only)
        self.traffic = Traffic()
        self._detectors = [kind(self.traffic) for kind in detectors() if wanted is None or kind.id in wanted]
        self._listeners: list[Listener] = [*self.traffic.models.values(), *self._detectors]
        self._faults: dict[str, Finding] = {}
        self._routes: dict[tuple[int, int], _Route] = {}
        self._kinds = tuple(type(each) for each in self._listeners)
        self._requests = [each.request for each in self._listeners]
        self._done = [each.done for each in self._listeners]
        opened, stray, closed, finishing = [choose(self._listeners) for choose in _handling(self._kinds)]
        self._on_opened = [each.opened for each in opened]
        self._on_stray = [each.stray for each in stray]
        self._on_closed = [each.closed for each in closed]
        self._finishing = [each for each in finishing if isinstance(each, Detector)]

    def _route(self, exchange: Exchange) -> _Route:
        key, version = exchange.api_key, exchange.api_version
        route = self._routes.get((key, version))
        if route is None:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            requests, *done = _routed(self._kinds, key, version)
            route = _Route(requests(self._requests), *(choose(self._done) for choose in done))
            self._routes[key, version] = route
        return route

    def feed(self, event: ConnectionEvent) -> None:
        """Take one event."""
        if isinstance(event, RequestSeen):
            self.request(event.exchange)
        elif isinstance(event, ExchangeDone):
            self.done(event.exchange)
        elif isinstance(event, Opened):
            opened = self.traffic.opened(
                event.connection, event.client, event.broker, event.time_ns, event.established
            )
            opened.complete, opened.tls = event.complete, event.tls
            self._notify(self._on_opened, opened)
        elif isinstance(event, Closed):
            ended = self.traffic.connections.get(event.connection)
            if ended is not None and not (event.half and _idle(ended, event.time_ns)):
                self.traffic.closed(ended, event.time_ns, event.how, event.by)
                by = event.by
                self.traffic.causes = ended.rules if not by else () if by in ("client", "broker") else (by,)
                self._notify(self._on_closed, ended)
                self.traffic.causes = ()
        elif isinstance(event, NonKafkaData):
            self.stray(event.connection, event.opaque)
        elif isinstance(event, Missing):
            self.traffic.at(event.time_ns)
            conn = self.traffic.connections.get(event.connection)
            if conn is not None:
                size = event.size + event.unread
                conn.lost += size
                conn.gone[event.direction] += size
                conn.failing = True

    def request(self, exchange: Exchange) -> None:
        """A request is complete."""
        conn = self.traffic.request(exchange)
        self.traffic.mark_injected(conn, exchange)
        for request in self._route(exchange).requests:
            try:
                request(conn, exchange)
            except Exception as error:  # see `_notify`
                self._fault(request.__self__, error, exchange)  # type: ignore[attr-defined]

    def done(self, exchange: Exchange) -> None:
        """An exchange has finished."""
        try:
            flawed = exchange.distrust()
        except Exception as error:  # a fault of the decoder, as in `_concerned`
            contained("whether a message is plausible", error, reported=True)
            flawed = True
        conn = self.traffic.done(exchange)
        conn.failing = conn.failing or flawed
        self.traffic.mark_injected(conn, exchange)
        for done in self._concerned(conn, exchange):
            try:
                done(conn, exchange)
            except Exception as error:  # see `_notify`
                self._fault(done.__self__, error, exchange)  # type: ignore[attr-defined]
        if (exchange.response_size or 0) + (exchange.request_size or 0) > _LARGE:
            exchange.forget_decoded()  # detectors and findings keep exchanges

    def _concerned(self, conn: ClientConnection, exchange: Exchange) -> tuple[Callback, ...]:
        """The `done` of the listeners that get a finished exchange."""
        route = self._route(exchange)
        try:
            failing = exchange.api_key in _BEGINNINGS or not exchange.succeeded
        except Exception as error:  # a fault of the decoder: each detector that meets it reports it
            contained("whether an exchange succeeded", error, reported=True)
            failing = True
        if failing:
            conn.failing = True
            return route.failed
        if conn.failing:
            conn.failing = False
            conn.forget_kinds()
            return route.failed
        kind = exchange.api_key, exchange.api_version, exchange.client_id
        if kind in conn.seen_kinds:
            return route.usual
        if len(conn.seen_kinds) < _MOST_KINDS:
            conn.seen_kinds.add(kind)
        return route.new

    def stray(self, connection: int, opaque: Opaque) -> None:
        """Bytes that are not requests or responses."""
        self.traffic.at(opaque.time_ns)
        conn = self.traffic.connections.get(connection)
        if conn is not None:
            conn.failing = True
            self._notify(self._on_stray, conn, opaque)

    def look(self, exchange: Exchange) -> None:
        """A whole exchange at once, where requests and responses do not arrive one by one."""
        if exchange.request is not None:
            self.request(exchange)
        if exchange.state is not State.PENDING:
            self.done(exchange)

    def _notify(self, callbacks: Sequence[Callable[..., None]], *event: object) -> None:
        for callback in callbacks:
            try:
                callback(*event)
            except Exception as error:  # a fault of a detector must not end the inspection
                self._fault(callback.__self__, error)  # type: ignore[attr-defined]

    def _fault(self, detector: Listener, error: Exception, exchange: Exchange | None = None) -> None:
        """A listener raised: it loses this event and gets the following ones."""
        contained("a detector of findings", error, reported=True)
        found = self._faults.get(detector.id)
        if found is None:
            found = self._faults[detector.id] = Finding(
                "detector-failed",
                Severity.MEDIUM,
                "",
                f"this is a bug in Barnabas, not a problem in the traffic: {type(error).__name__}: {error}. Problems "
                "that this detector looks for may have been missed; all other detectors ran.",
                "report it with the exchange on which it failed",
                0,
                about={"detector": detector.id},
            )
        found.count += 1
        found.add_evidence(exchange, self.traffic.now_ns)
        found.seen = f"the detector {detector.id} failed {times(found.count)}"

    def findings(self) -> list[Finding]:
        """All findings so far, alike ones of several clients as one: the worst first, causes before their effects, and then those that
        explain most failures."""
        found: list[Finding] = []
        for detector in self._finishing:
            try:
                detector.finish(self.traffic.now_ns)
            except Exception as error:  # see `_notify`; findings may be asked for again and again, and this counts once
                if detector.id not in self._faults:
                    self._fault(detector, error)
        for detector in self._detectors:
            detector.after_others(found)
            found += detector.findings()
        found.extend(self._faults.values())
        return ranked(name_known_bugs(grouped(map(quoting, found))))


def _idle(conn: ClientConnection, ended_ns: int) -> bool:
    """Whether a connection worked and was not in use when one side ended it. Nothing has failed, until its client does not notice, and
    sends a request."""
    return conn.answers > 0 and not conn.failing and not conn.waiting and ended_ns - conn.last_ns >= _IDLE_NS


def inspect(exchanges: Iterable[Exchange]) -> list[Finding]:
    """The findings of exchanges. For a whole capture, feed its events instead: they include connections."""
    inspector = Inspector()
    for exchange in exchanges:
        inspector.look(exchange)
    return inspector.findings()
