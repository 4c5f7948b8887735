"""Batches larger than a consumer's fetch limit (KIP-74)."""

from __future__ import annotations

from ...engine.counters import BoundedDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import size, times
from ...engine.traffic import ClientConnection, ClientIdentity, Traffic
from ...models.fetch import FetchDetector, FetchExchange, PartitionData, Place


class BatchOverFetchLimit(FetchDetector):
    id = "batch-over-fetch-limit"
    severity = Severity.LOW
    title = "batches that are bigger than the fetch limit: one per round trip, or none at all (before KIP-74)"

    COUNT = 5
    """Batches over the limit of the same client and topic. One alone may be an outlier among records."""
    STUCK = 3
    """Times that the same offset returned the same truncated batch."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._counts: BoundedDict[tuple[ClientIdentity, str], int] = BoundedDict(5000)
        self._cut: BoundedDict[tuple[int, Place], tuple[int, int]] = BoundedDict(5000)  # offset, times

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        for answer in fetched.answered:
            if answer.size < 12:
                continue
            # Batches and message sets both begin with offset (8 bytes) and size (4) of the first.
            whole = 12 + int.from_bytes(answer.records[8:12], "big", signed=True)
            at = fetched.positions.get(answer.place)
            limit = at.max_bytes if at is not None else 0
            if whole > answer.size:
                self._stuck(conn, fetched, answer, whole, limit)
            elif limit and whole > limit:
                self._over(conn, fetched, answer, whole, limit)

    def _over(
        self, conn: ClientConnection, fetched: FetchExchange, answer: PartitionData, whole: int, limit: int
    ) -> None:
        key = conn.identity, answer.place[0]
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count < self.COUNT:
            return
        finding = self._report(key, conn, fetched, answer.place, limit)
        finding.count = count
        biggest = finding.about["batch_bytes"] = max(whole, finding.about.get("batch_bytes", 0))
        finding.seen = (
            f"{conn.who} asks for at most {size(limit)} per partition of {answer.place[0]}, and {times(count)} the first "
            f"batch alone is bigger (up to {size(biggest)}): each round trip brings one batch"
        )

    def _stuck(
        self, conn: ClientConnection, fetched: FetchExchange, answer: PartitionData, whole: int, limit: int
    ) -> None:
        offset, key = fetched.offset(answer.place), (conn.number, answer.place)
        before, count = self._cut.get(key, (offset, 0))
        count = count + 1 if before == offset else 1
        self._cut[key] = offset, count
        if count < self.STUCK:
            return
        name = f"{answer.place[0]}-{answer.place[1]}"
        finding = self._report((conn.identity, answer.place), conn, fetched, answer.place, limit)
        finding.severity = Severity.HIGH
        finding.count = max(finding.count, count)
        finding.about["batch_bytes"] = whole
        finding.seen = (
            f"{conn.who} is stuck at offset {offset} of {name}: the record there takes {size(whole)}, and Fetch "
            f"v{fetched.exchange.api_version} brings only the first {size(answer.size)} of it, {times(count)}"
        )

    def _report(self, key: object, conn: ClientConnection, fetched: FetchExchange, place: Place, limit: int) -> Finding:
        return self.report(
            key,
            fetched.exchange,
            "since KIP-74 (Fetch v3) a broker sends the first batch whole even if it is over the limit, so that consumers "
            "move on, one batch per request; before, it sent what fits and the consumer could not go on.",
            "raise the limit over the biggest batch: max.partition.fetch.bytes (Java, kafka-python: "
            "max_partition_fetch_bytes; librdkafka: fetch.message.max.bytes), and with it fetch.max.bytes; or lower "
            "batch.size and max.request.size of the producers; clients that speak Fetch v2 or less: upgrade",
            **conn.facts_of(fetched.exchange),
            topic=place[0],
            partition=place[1],
            limit_bytes=limit,
        )
