"""ListOffsets responses that put the end of a log below what Fetch responses have shown."""

from __future__ import annotations

from dataclasses import dataclass

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Severity
from ...engine.formatting import times
from ...engine.traffic import ClientConnection
from ...models.fetch import LogBounds, Place, from_follower

_LATEST = -1


@dataclass(slots=True)
class _Below:
    """Answers below the high watermark `known` that `broker` had shown: the last one, and how many a later Fetch
    refuted."""

    conn: ClientConnection
    exchange: Exchange
    offset: int
    known: int
    broker: str
    count: int = 0


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
        if exchange.state is not State.PAIRED or exchange.api_version < 1 or asked is None or answered is None:
            return
        if not self._bounds or from_follower(asked):
            return
        fields = asked.to_dict()
        if fields.get("isolation_level", 0):
            return
        ends = {
            (topic["name"], part["partition_index"])
            for topic in fields["topics"]
            for part in topic["partitions"]
            if part["timestamp"] == _LATEST
        }
        for topic in answered.to_dict()["topics"]:
            for part in topic["partitions"]:
                place = topic["name"], part["partition_index"]
                if place in ends and not part["error_code"]:
                    self._listed(conn, exchange, place, part["offset"])

    def _listed(self, conn: ClientConnection, exchange: Exchange, place: Place, offset: int) -> None:
        bounds = self._bounds.get(place)
        key = conn.broker, place
        if (below := self._below.get(key)) is not None:
            self._refuted(below, place)
        if bounds is None or offset >= bounds.end or bounds.time_ns >= (exchange.request_time_ns or 0):
            return
        if self.traffic.clusters.of(bounds.broker) is not conn.cluster:
            return  # another cluster has a topic of this name
        if below is None:
            self._below[key] = _Below(conn, exchange, offset, bounds.end, bounds.broker)
        else:
            below.conn, below.exchange, below.offset, below.known = conn, exchange, offset, bounds.end

    def _refuted(self, below: _Below, place: Place) -> None:
        """A later Fetch shows at least the old end: the log was neither truncated nor made anew."""
        bounds = self._bounds.get(place)
        answered_ns = below.exchange.response_time_ns or 0
        if bounds is None or self.traffic.clusters.of(bounds.broker) is not below.conn.cluster:
            return
        if below.known >= 0 and bounds.time_ns > answered_ns and bounds.end >= below.known:
            below.count += 1
            self._report(below, place)
            below.known = -1

    def finish(self, now_ns: int) -> None:
        for (_, place), below in self._below.items():
            self._refuted(below, place)

    def _report(self, below: _Below, place: Place) -> None:
        conn, known = below.conn, below.known
        moved = below.broker != conn.broker
        short = below.known - below.offset
        if moved:
            why = (
                "the high watermark of a new leader lags until its followers have fetched from it. Brokers before "
                "Kafka 2.2 answer "
                "ListOffsets with it nevertheless (newer ones refuse with OFFSET_NOT_AVAILABLE, KIP-207): a consumer "
                "that begins at the "
                "end reads records again, and lag is reported too low."
            )
            remedy = "upgrade the brokers to 2.2 or newer, and the clients, so that they send ListOffsets v5 or newer"
        else:
            why = (
                "the latest offset is that of the next record, the high watermark, which never falls while a broker "
                "leads the partition. "
                + ("This broker answers the offset of the last record instead: " if short == 1 else "This broker "
                 "contradicts itself: ")
                + "consumers that begin at the end read records again, and lag is wrong."
            )
            remedy = "report it to the developers of the broker, or of the product that answers in its place"
        finding = self.report(
            (conn.broker, place), below.exchange, why, remedy, facts=conn.facts_of(below.exchange), topic=place[0],
            partition=place[1], offset=below.offset, high_watermark=known,
        )  # fmt: skip
        before = f"{below.broker} had shown" if moved else "it had shown"
        finding.severity = Severity.MEDIUM if moved or finding.count > 1 else Severity.LOW
        finding.seen = (
            f"{conn.where} answered ListOffsets of {conn.who} with {below.offset} as the end of "
            f"{place[0]}-{place[1]}, though {before} a high "
            f"watermark of {known} before, and a Fetch showed that again afterwards ({times(finding.count)})"
        )
