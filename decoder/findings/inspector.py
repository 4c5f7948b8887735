"""All detectors together: told what happens, asked for findings at any time.

Detectors stand beside the traffic: one that raises loses the exchange that it was told of, and that is a finding too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..connection import ExchangeDone, Opaque, RequestSeen
from ..exchange import Exchange, State
from ..happening import Closed, Happening, Missing, Opened, Stray
from .catalogue import detectors
from .detector import Detector
from .finding import Finding, Severity
from .foreseen import Foreseen
from .routes import Routes
from .scene import Scene
from .wording import times

_EVERY = -2  # stands for all api keys in the tables


class Inspector:
    """Feed it happenings in order (or whole exchanges with `look`); `findings()` may be asked again and again.

    `only`: the ids of the detectors to run, all by default.
    """

    def __init__(self, only: Iterable[str] | None = None) -> None:
        wanted = None if only is None else set(only)
        self.scene = Scene()
        self._detectors = [kind(self.scene) for kind in detectors() if wanted is None or kind.id in wanted]
        self._faults: dict[str, Finding] = {}
        self._routes = Routes(self.scene)
        self._tables()

    def _tables(self) -> None:
        """Who wants to hear what, so that a happening costs only those that look at it."""
        self.scene.anew()
        self._on_request: dict[int, list[Detector]] = {_EVERY: []}
        self._on_done: dict[int, list[Detector]] = {_EVERY: []}
        keys = {key for d in self._detectors for key in d.apis or ()}
        for name, table in (("request", self._on_request), ("done", self._on_done)):
            hearing = self._hearing(name)
            for key in (_EVERY, *keys):
                table[key] = [d for d in hearing if d.apis is None or key in d.apis]
        self._on_opened, self._on_stray, self._on_closed = map(self._hearing, ("opened", "stray", "closed"))

    def _hearing(self, name: str) -> list[Detector]:
        return [d for d in self._detectors if d.hears(name)]

    def feed(self, happening: Happening) -> None:
        """Take one happening."""
        if isinstance(happening, RequestSeen):
            self.request(happening.exchange)
        elif isinstance(happening, ExchangeDone):
            self.done(happening.exchange)
        elif isinstance(happening, Opened):
            link = self.scene.opened(
                happening.connection, happening.client, happening.broker, happening.time_ns, happening.established
            )
            link.complete, link.tls = happening.complete, happening.tls
            self._tell(self._on_opened, lambda d: d.opened(link))
        elif isinstance(happening, Closed):
            ended = self.scene.links.get(happening.connection)
            if ended is not None:
                self.scene.closed(ended, happening.time_ns, happening.how, happening.by)
                by = happening.by
                self.scene.causes = ended.rules if not by else () if by in ("client", "broker") else (by,)
                self._tell(self._on_closed, lambda d: d.closed(ended))
                self.scene.causes = ()
        elif isinstance(happening, Stray):
            self.stray(happening.connection, happening.opaque)
        elif isinstance(happening, Missing):
            self.scene.at(happening.time_ns)
            torn = self.scene.links.get(happening.connection)
            if torn is not None:
                size = happening.size + happening.unread
                torn.lost += size
                torn.gone[happening.direction] += size
                torn.routes.clear()

    def request(self, exchange: Exchange) -> None:
        """A request is complete."""
        link = self.scene.request(exchange)
        self.scene.blame(link, exchange)
        following = None
        if exchange.plain and isinstance(exchange, Foreseen):
            following = self._routes.requests(link, exchange)
        for detector in self._hears(self._on_request, exchange) if following is None else following:
            try:
                detector.request(link, exchange)
            except Exception as error:  # see `_tell`
                self._fault(detector, error, exchange)

    def done(self, exchange: Exchange) -> None:
        """An exchange is done."""
        link = self.scene.done(exchange)
        self.scene.blame(link, exchange)
        following = None
        if exchange.plain and isinstance(exchange, Foreseen):
            following = self._routes.answers(link, exchange)
        for detector in self._hears(self._on_done, exchange) if following is None else following:
            try:
                detector.done(link, exchange)
            except Exception as error:  # see `_tell`
                self._fault(detector, error, exchange)
        if following is None and isinstance(exchange, Foreseen):
            self._routes.told(
                link, exchange, (self._hears(self._on_request, exchange), self._hears(self._on_done, exchange))
            )

    @staticmethod
    def _hears(table: dict[int, list[Detector]], exchange: Exchange) -> list[Detector]:
        return table.get(exchange.api_key) or table[_EVERY]

    def stray(self, connection: int, opaque: Opaque) -> None:
        """Bytes that are no requests or responses."""
        self.scene.at(opaque.time_ns)
        link = self.scene.links.get(connection)
        if link is not None:
            link.routes.clear()
            self._tell(self._on_stray, lambda d: d.stray(link, opaque))

    def look(self, exchange: Exchange) -> None:
        """A whole exchange at once, where requests and responses do not come one by one."""
        if exchange.request is not None:
            self.request(exchange)
        if exchange.state is not State.PENDING:
            self.done(exchange)

    def _tell(self, wanted: list[Detector], tell: Callable[[Detector], None]) -> None:
        for detector in wanted:
            try:
                tell(detector)
            except Exception as error:  # a fault of ours must not end the inspection
                self._fault(detector, error)

    def _fault(self, detector: Detector, error: Exception, exchange: Exchange | None = None) -> None:
        """A detector raised: it loses what it was told just now, and is told of what follows."""
        found = self._faults.get(detector.id)
        if found is None:
            found = self._faults[detector.id] = Finding(
                "detector-failed",
                Severity.MEDIUM,
                "",
                f"a fault of Barnabas, not of the traffic: {type(error).__name__}: {error}. What this detector looks for may "
                "be there unseen; all others were told.",
                "report it with the exchange that it failed on",
                0,
                about={"detector": detector.id},
            )
        found.count += 1
        found.link(exchange, self.scene.now_ns)
        found.seen = f"the detector {detector.id} failed {times(found.count)}"

    def findings(self) -> list[Finding]:
        """What was found so far, the worst first, and of the same severity the most frequent first."""
        found: list[Finding] = []
        for detector in self._detectors:
            try:
                detector.finish(self.scene.now_ns)
            except Exception as error:  # see `_tell`; findings may be asked for again and again, and this counts once
                if detector.id not in self._faults:
                    self._fault(detector, error)
            detector.beside(found)
            found += detector.findings()
        found.extend(self._faults.values())
        return sorted(found, key=lambda f: (-f.severity.rank, -f.count))


def inspect(exchanges: Iterable[Exchange]) -> list[Finding]:
    """The findings of exchanges; of a whole capture, rather feed its happenings: they tell of connections too."""
    inspector = Inspector()
    for exchange in exchanges:
        inspector.look(exchange)
    return inspector.findings()
