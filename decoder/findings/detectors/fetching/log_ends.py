"""ListOffsets responses that put the end of a log below what Fetch responses have shown."""

from __future__ import annotations

from typing import NamedTuple

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Severity
from ...engine.formatting import times
from ...engine.traffic import ClientConnection
from ...models.fetch import Bounds, LogBounds, Place, from_follower

_LATEST = -1


class _Below(NamedTuple):
    """An answer below the high watermark `known` that `broker` had shown, which a later Fetch may refute."""

    conn: ClientConnection
    exchange: Exchange
    offset: int
    known: int
    broker: str


class LogEndBack(Detector):
    id = "log-end-back"
    severity = Severity.MEDIUM
    title = "ListOffsets puts the end of a log below the high watermark that Fetch shows before and after"
    apis = facts.api_key_set("ListOffsets")

    def setup(self) -> None:
        self._bounds = self.traffic.model(LogBounds).known
        self._below: BoundedDict[tuple[str, Place], _Below] = BoundedDict(1000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        asked, answered = exchange.request_view, exchange.response_view
        if not self._bounds or exchange.state is not State.PAIRED or asked is None or answered is None:
            return
        fields = asked.to_dict()
        if exchange.api_version < 1 or fields.get("isolation_level", 0) or from_follower(asked):
            return
        asked_for = ((t["name"], p) for t in fields["topics"] for p in t["partitions"])
        times_asked = {(name, p["partition_index"]): p["timestamp"] for name, p in asked_for}
        for topic in answered.to_dict()["topics"]:
            for part in topic["partitions"]:
                place = topic["name"], part["partition_index"]
                if times_asked.get(place) == _LATEST and not part["error_code"]:
                    self._listed(conn, exchange, place, part["offset"])

    def _listed(self, conn: ClientConnection, exchange: Exchange, place: Place, offset: int) -> None:
        self._refuted((conn.broker, place))
        bounds = self._of(conn, place)
        if bounds is not None and offset < bounds.end and bounds.time_ns < (exchange.request_time_ns or 0):
            self._below[conn.broker, place] = _Below(conn, exchange, offset, bounds.end, bounds.broker)

    def _of(self, conn: ClientConnection, place: Place) -> Bounds | None:
        """What Fetch shows of a log, unless another cluster has a topic of this name."""
        bounds = self._bounds.get(place)
        return bounds if bounds is not None and self.traffic.clusters.of(bounds.broker) is conn.cluster else None

    def _refuted(self, key: tuple[str, Place]) -> None:
        """A later Fetch shows at least the old end: the log was neither truncated nor made anew."""
        below = self._below.get(key)
        if below is None or (bounds := self._of(below.conn, key[1])) is None:
            return
        if bounds.time_ns > (below.exchange.response_time_ns or 0) and bounds.end >= below.known:
            del self._below[key]
            self._report(below, key[1])

    def finish(self, now_ns: int) -> None:
        for key in list(self._below):
            self._refuted(key)

    def _report(self, below: _Below, place: Place) -> None:
        conn, moved, name = below.conn, below.broker != below.conn.broker, f"{place[0]}-{place[1]}"
        one_short = below.known - below.offset == 1
        short = "answers the offset of the last record instead" if one_short else "contradicts itself"
        finding = self.report(
            (conn.broker, place), below.exchange,
            "the high watermark of a new leader lags until its followers have fetched from it. Brokers before Kafka "
            "2.2 answer "
            "ListOffsets with it nevertheless (newer ones refuse with OFFSET_NOT_AVAILABLE, KIP-207): a consumer that "
            "begins at "
            "the end reads records again, and lag is reported too low." if moved else
            "the latest offset is that of the next record, the high watermark, which never falls while a broker leads "
            "the "
            f"partition. This broker {short}: consumers that begin at the end read records again, and lag is wrong.",
            "upgrade the brokers to 2.2 or newer, and the clients, so that they send ListOffsets v5 or "
            "newer" if moved else
            "report it to the developers of the broker, or of the product that answers in its place",
            facts=conn.facts_of(below.exchange), topic=place[0], partition=place[1], offset=below.offset,
        )  # fmt: skip
        finding.severity = Severity.MEDIUM if moved or finding.count > 1 else Severity.LOW
        finding.seen = (
            f"{conn.where} answered ListOffsets of {conn.who} with {below.offset} as the end of {name}, though "
            f"{below.broker if moved else 'it'} had shown a high watermark of {below.known} before, and a Fetch "
            f"showed that "
            f"again afterwards ({times(finding.count)})"
        )
