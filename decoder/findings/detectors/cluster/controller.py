"""Clusters whose Metadata names no controller, seen from a client that waits for one."""

from __future__ import annotations

from dataclasses import dataclass

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, several, times
from ...engine.layout import layout
from ...engine.traffic import ClientConnection, ClientIdentity

_METADATA = facts.api_key("Metadata")


@dataclass(slots=True)
class _Spell:
    """Metadata responses of a client without a controller, one after the other."""

    first_ns: int
    count: int = 0


class NoController(Detector):
    id = "no-controller"
    severity = Severity.MEDIUM
    title = "a client asks for Metadata again and again, which names no controller, and does nothing else"
    why = (
        "admin clients send CreateTopics and the like to the controller; without one they ask for Metadata until they time out ('Timed out "
        "waiting for controller'), and send nothing. Between two controllers that takes a second or two; if it lasts, the cluster has "
        "none: too few controllers are alive, or ZooKeeper cannot be reached; or another product leaves the field empty."
    )
    remedy = (
        "check the brokers, not the client: kafka-metadata-quorum.sh describe --status (KRaft), or /controller in ZooKeeper; if it is another "
        "product, report it to its developers"
    )
    apis = frozenset({_METADATA})

    TIMES = 4
    OTHERS = 6
    """Requests besides Metadata on a connection that has done nothing else: ApiVersions, and those of a login."""
    LASTING_NS = 5 * SECOND

    def setup(self) -> None:
        self._asked: BoundedDict[int, int] = BoundedDict(4096)
        """Metadata requests by connection."""
        self._spells: BoundedDict[tuple[ClientIdentity, str], _Spell] = BoundedDict(1024)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        answer = exchange.response_view
        if exchange.state is not State.PAIRED or answer is None:
            return
        count = self._asked[conn.number] = self._asked.get(conn.number, 0) + 1
        places = layout(answer.plan.root)
        at, brokers = places.get("controller_id"), answer.values[places["brokers"]]
        if at is None or not brokers:
            return
        key = conn.identity, conn.broker
        if answer.values[at] >= 0 or conn.requests - count > self.OTHERS:
            self._spells.pop(key, None)
            self._found.pop(key, None)
            return
        now = exchange.response_time_ns or self.traffic.now_ns
        spell = self._spells.of(key, lambda: _Spell(now))
        spell.count += 1
        if spell.count < self.TIMES or now - spell.first_ns < self.LASTING_NS:
            return
        finding = self.report(key, exchange)
        finding.count = max(finding.count, spell.count)
        finding.seen = (
            f"{conn.where} answers Metadata of {conn.who} with controller_id -1 ({times(spell.count)} in "
            f"{duration(now - spell.first_ns)}), though with {several(len(brokers), 'broker')}; the client asks for nothing else"
        )
