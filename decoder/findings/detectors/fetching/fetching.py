"""Fetches that return empty at once, are out of range, keep failing, or get batches over their limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from ....connection.exchange import Exchange, State
from ....reference import explain
from ....schema import facts
from ...engine.counters import BoundedDict, RateCounter
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, number, several, size, some, times
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.fetch import FETCH, Bounds, FetchDetector, FetchExchange, LogBounds, PartitionData, Place
from ...models.group_calls import offsets_answered
from ...models.leaders import Named, named_leader
from ..security.authorization import DENIED

OUT_OF_RANGE = facts.error_code("OFFSET_OUT_OF_RANGE")
_FENCED = facts.error_code("FENCED_LEADER_EPOCH")
LIST_OFFSETS = facts.api_key("ListOffsets")
OFFSET_FETCH = facts.api_key("OffsetFetch")


class EmptyFetchLoop(FetchDetector):
    id = "empty-fetch-loop"
    severity = Severity.LOW
    title = "a consumer fetches in a busy loop: the broker may not wait, so it returns empty answers at once"
    why = (
        "a broker holds a Fetch until min_bytes are available or max_wait_ms is over. If it may not wait, an idle "
        "consumer asks again at once: both sides waste CPU and network, and request quotas are used up."
    )
    remedy = (
        "set fetch.min.bytes=1 (or more) and fetch.max.wait.ms=500 (Java and Python: fetch_max_wait_ms; librdkafka: "
        "fetch.wait.max.ms=500, fetch.min.bytes=1); poll with a timeout instead of lowering the broker's wait"
    )

    AT_ONCE_NS = SECOND // 20
    """50 ms: clients wait 500 ms by default; who sets less than this gets 20 and more empty answers a second."""
    EACH_SECOND = 20
    SECONDS = 3
    """Seconds with that many empty responses: start-ups and rebalances cause a few, not sixty."""
    WORSE_EACH_SECOND = 200
    """From here on one idle consumer costs noticeable time of a broker's threads."""

    def setup(self) -> None:
        self._paces: BoundedDict[int, RateCounter] = BoundedDict(4096)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        latency = fetched.exchange.latency_ns or 0
        if latency > self.AT_ONCE_NS or fetched.error or not self._may_not_wait(fetched):
            return
        if any(a.error or a.size for a in fetched.answered):
            return
        pace = self._paces.of(conn.number, RateCounter)
        pace.add(fetched.time_ns)
        if pace.busy(self.EACH_SECOND) < self.SECONDS:
            return
        places = fetched.positions
        finding = self.report(
            conn.identity,
            fetched.exchange,
            topic=next(iter(places))[0] if places else None,
            max_wait_ms=fetched.max_wait_ms,
            min_bytes=fetched.min_bytes,
            per_second=0.0,
        )
        if finding.count == 1:
            finding.count = pace.total
        finding.about["per_second"] = rate = round(max(pace.rate, finding.about["per_second"]), 1)
        finding.severity = Severity.MEDIUM if rate >= self.WORSE_EACH_SECOND else Severity.LOW
        finding.seen = (
            f"{conn.who} fetches from {conn.where} {number(rate)} times a second and gets nothing: its requests have "
            f"max_wait_ms={fetched.max_wait_ms}, min_bytes={fetched.min_bytes}"
        )

    def _may_not_wait(self, fetched: FetchExchange) -> bool:
        return fetched.max_wait_ms * 1_000_000 <= self.AT_ONCE_NS or fetched.min_bytes <= 0

    def closed(self, conn: ClientConnection) -> None:
        self._paces.pop(conn.number, None)


@dataclass(slots=True)
class _OutOfRange:
    """One partition that a client requested out of range."""

    conn: ClientConnection
    asked: int
    first_ns: int
    last_ns: int = 0
    start: int = -1
    end: int = -1
    went_on: int = -1
    refused: int = 0
    failed: int = 0  # since the last success
    asked_known: bool = True  # False in a session that began before the capture
    end_before: int = -1  # the log's end before the first refusal
    start_after: int = -1  # its start after that
    committed: int = -1  # that OffsetFetch answered to the client
    elsewhere: bool = False  # whether the log before was another broker's
    listed: int = -1  # what ListOffsets last told the client since the first refusal

    @property
    def where(self) -> _Outside:
        """Where the offset lies, compared with the log."""
        if self.asked < 0:
            return _Outside.NO_OFFSET if self.asked_known else _Outside.UNKNOWN
        if self.asked < self.start:
            return _Outside.BEFORE
        if 0 <= self.end < self.asked and self.asked == self.committed:
            return _Outside.COMMITTED
        if self.asked == self.committed + 1 > 0 and (self.end < 0 or self.end == self.committed):
            return _Outside.ONE_BEYOND
        if 0 <= self.end < self.asked:
            return _Outside.BEHIND
        # A log grows at its end and shrinks at its start: only both times together show that it had the offset in between.
        inside = _Outside.INSIDE_ELSEWHERE if self.elsewhere else _Outside.INSIDE
        return inside if 0 <= self.start_after <= self.asked <= self.end_before else _Outside.UNKNOWN


class _Outside(Enum):
    """Where an offset that is out of range lies: what that means, and what to do. `Finding.about` has the value's first part."""

    BEFORE = (
        "before-the-log",
        "retention (retention.ms, retention.bytes) or DeleteRecords removed the records at the consumer's position before it read them. "
        "auto.offset.reset decides what a consumer does then: earliest goes on at the log's start, latest skips the existing records, none "
        "raises an error.",
        "keep records longer than the slowest consumer needs (retention.ms, retention.bytes) and watch its lag; set auto.offset.reset "
        "deliberately",
    )
    BEHIND = (
        "behind-the-log",
        "the position is beyond the log's end, so it belongs to another log: the topic was deleted and created again, or the log was "
        "truncated (unclean leader election). auto.offset.reset decides what a consumer does then: earliest reads everything again, latest "
        "waits for new records, none raises an error.",
        "after a topic was recreated, reset the groups that read it (kafka-consumer-groups.sh --reset-offsets); otherwise look for an unclean "
        "election in the brokers' logs (unclean.leader.election.enable=false prevents them)",
    )
    COMMITTED = (
        "committed-behind-the-log",
        "the group's committed offset is beyond the log's end, so it was committed for another log: an earlier topic of this name, or the topic "
        "of another cluster whose offsets were copied (MirrorMaker 2 with sync.group.offsets.enabled before Kafka 3.3, KAFKA-12635; a "
        "migration). Less likely, the log was truncated (unclean leader election). auto.offset.reset decides what a consumer does then: earliest "
        "reads everything again, latest waits for new records, none raises an error.",
        "reset the group to offsets of this log (kafka-consumer-groups.sh --reset-offsets), and correct what copies the offsets",
    )
    ONE_BEYOND = (
        "one-beyond-the-committed-offset",
        "the committed offset is that of the next record to read, and this client begins one beyond it. So it skips a record at each start, and "
        "is refused where the committed offset is the end of the log.",
        "it is the client library's fault, or that of an application which commits the offset of the last record that it read and adds 1 when it "
        "starts: upgrade or correct it, and do not mix such clients with others in one group",
    )
    INSIDE_ELSEWHERE = (
        "inside-the-log-of-another-broker",
        "another broker, the leader before or a replica, has shown a log that contains this offset, so the one that refuses it lacks these "
        "records or does not know where its log begins: an unclean election, a replica that lags behind (with client.rack, KIP-392), or tiered "
        "storage whose state is wrong after the leader moved. The records are there, and a consumer that resets its position skips or repeats some.",
        "look at the log of the broker that refuses at that time; compare both brokers' offsets of the partition (kafka-get-offsets.sh); with tiered "
        "storage, upgrade the brokers; set auto.offset.reset=none where skipping is worse than stopping",
    )
    INSIDE = (
        "inside-the-log",
        "the same broker's answers show a log that contains this offset, so the refusal contradicts them: a replica that lags behind (with "
        "client.rack, KIP-392), or a fault of the broker.",
        "look at the broker's log at that time; if the consumer reads from a follower, check whether that one is in sync",
    )
    NO_OFFSET = (
        "no-offset",
        "logs begin at 0 or later, so a negative offset is refused every time: the client took a missing value (-1 in ListOffsets, OffsetFetch "
        "or log_start_offset) for a position.",
        "upgrade the client, or report it to its developers: without a committed offset it must ask ListOffsets for the earliest or latest "
        "one",
    )
    UNKNOWN = (
        "unknown",
        "retention (retention.ms, retention.bytes), DeleteRecords, a recreated topic, or an unclean leader election removed the consumer's "
        "position from the log. auto.offset.reset decides what a consumer does then: earliest reads (again) from the log's start, latest "
        "skips the existing records, none raises an error.",
        "keep records longer than the slowest consumer needs (retention.ms, retention.bytes) and watch its lag; after a topic was recreated, "
        "reset the group (kafka-consumer-groups.sh --reset-offsets); set auto.offset.reset deliberately",
    )

    @property
    def why(self) -> str:
        return self.value[1]

    @property
    def remedy(self) -> str:
        return self.value[2]


class OffsetOutOfRange(FetchDetector):
    id = "offset-out-of-range"
    severity = Severity.MEDIUM
    title = "a consumer asks for an offset that the log does not contain, or no longer contains"
    apis = frozenset({FETCH, LIST_OFFSETS, OFFSET_FETCH})

    LOOP = 5
    """Refusals without a success between them; clients that reset their position are refused once."""
    LOOP_NS = SECOND
    EARLIEST, LATEST = -2, -1

    def setup(self) -> None:
        self._bounds = self.traffic.model(LogBounds).known
        self._committed: BoundedDict[tuple[ClientIdentity, Place], int] = BoundedDict(20_000)
        """Offsets that OffsetFetch answered, until the client fetched from the partition."""
        self._open: BoundedDict[tuple[ClientIdentity, Place], _OutOfRange] = BoundedDict(2000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == LIST_OFFSETS:
            if self._open:
                self._listed(conn, exchange)
        elif exchange.api_key == OFFSET_FETCH:
            for _, topic, partition, offset in offsets_answered(exchange):
                if offset >= 0:
                    self._committed[conn.identity, (topic, partition)] = offset
        else:
            super().done(conn, exchange)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        if not (self._open or self._committed or fetched.exchange.error):
            return
        for answer in fetched.answered:
            key = conn.identity, answer.place
            if answer.error == OUT_OF_RANGE:
                self._refused(conn, fetched, answer)
                continue
            if answer.error:
                continue
            if self._committed:
                self._committed.pop(key, None)
            if self._open and key in self._open:
                case = self._open[key]
                case.start, case.end = answer.log_start, answer.high_watermark
                if case.start_after < 0:
                    case.start_after = answer.log_start
                if case.failed:
                    case.failed, case.went_on = 0, fetched.offset(answer.place)

    def _refused(self, conn: ClientConnection, fetched: FetchExchange, answer: PartitionData) -> None:
        key = conn.identity, answer.place
        case, known = self._open.get(key), self._bounds.get(answer.place) or Bounds()
        if case is None:
            case = self._open[key] = _OutOfRange(conn, fetched.offset(answer.place), fetched.time_ns)
            case.start, case.end = known.start, known.end
        if not case.failed:
            case.first_ns, case.asked, case.went_on = fetched.time_ns, fetched.offset(answer.place), -1
            case.asked_known, case.start_after = answer.place in fetched.positions, -1
            case.end_before, case.elsewhere = known.end, known.broker not in ("", conn.broker)
            case.committed = self._committed.get(key, -1)
        case.failed += 1
        case.refused += 1
        case.last_ns = fetched.time_ns
        finding = self.report(
            (conn.identity, answer.place[0]),
            fetched.exchange,
            topic=answer.place[0],
            partition=answer.place[1],
            error="OFFSET_OUT_OF_RANGE",
        )
        if case.failed >= self.LOOP and case.last_ns - case.first_ns >= self.LOOP_NS:
            finding.severity = Severity.HIGH

    def _listed(self, conn: ClientConnection, exchange: Exchange) -> None:
        """ListOffsets returns where the log begins and ends."""
        asked, answered = exchange.request_view, exchange.response_view
        if exchange.state is not State.PAIRED or asked is None or answered is None:
            return
        times_asked = {
            (topic["name"], p["partition_index"]): p["timestamp"]
            for topic in asked.to_dict()["topics"]
            for p in topic["partitions"]
        }
        for topic in answered.to_dict()["topics"]:
            for p in topic["partitions"]:
                place = topic["name"], p["partition_index"]
                offset = p["offset"] if "offset" in p else max(p.get("old_style_offsets") or (-1,))
                if p["error_code"] or offset < 0:
                    continue
                for (who, at), case in self._open.items():
                    if who == conn.identity and at == place:
                        case.listed = offset
                    if at == place and times_asked.get(place) == self.EARLIEST:
                        case.start = offset
                        if case.start_after < 0:
                            case.start_after = offset
                    elif at == place and times_asked.get(place) == self.LATEST:
                        case.end = offset

    def finish(self, now_ns: int) -> None:
        topics: dict[object, list[tuple[Place, _OutOfRange]]] = {}
        for (who, place), case in self._open.items():
            topics.setdefault((who, place[0]), []).append((place, case))
        for key, cases in topics.items():
            place, case = max(cases, key=lambda item: (item[1].refused, -item[0][1]))
            finding = self._found[key]
            others = len(cases) - 1
            rest = (
                f"; so were {others} other partitions of the topic"
                if others > 1
                else "; so was one other partition"
                if others
                else ""
            )
            finding.seen = self._seen(case.conn, case, place) + rest
            finding.why, finding.remedy = case.where.why, case.where.remedy
            if case.failed >= self.LOOP and 0 <= case.listed != case.asked:
                finding.why = (
                    f"ListOffsets has told the client to go on at {case.listed}, and it asks for {case.asked} again, "
                    "such as its committed offset: it does not use what it was told, so it never goes on. "
                    f"{finding.why}"
                )
                finding.remedy = (
                    "it is the client library's or application's fault: upgrade it; to go on now, move the group to "
                    f"offset {case.listed} (kafka-consumer-groups.sh --reset-offsets); {finding.remedy}"
                )
            elif case.failed >= self.LOOP and case.listed < 0 and case.where is _Outside.UNKNOWN:
                finding.why = (
                    "the client asks for the same offset again each time, and never for a valid one (ListOffsets): it does not reset its position, so "
                    "it never goes on. Why the offset is out of range, its answers do not show: " + finding.why
                )
                finding.remedy = f"it is the client library's or application's fault: upgrade it, or handle OFFSET_OUT_OF_RANGE; {finding.remedy}"
            elif case.failed > 1:
                finding.why += " A consumer that does not reset its position asks forever."
                finding.remedy += "; a client that loops must reset its position with ListOffsets"
            finding.about |= {
                "cause": case.where.value[0],
                "partition": place[1],
                "partitions": sorted(p[1] for p, _ in cases),
                "offset": case.asked,
                "log_start": case.start,
                "high_watermark": case.end,
            }

    @staticmethod
    def _seen(conn: ClientConnection, case: _OutOfRange, place: Place) -> str:
        text = (
            f"{conn.who} asked {conn.where} for offset {case.asked} of {place[0]}-{place[1]} and was refused "
            f"{times(case.refused)} with OFFSET_OUT_OF_RANGE"
        )
        match case.where:
            case _Outside.BEFORE:
                lost = several(case.start - case.asked, "record")
                text += f"; the log begins at {case.start}: {lost} deleted before being read"
            case _Outside.BEHIND:
                text += f"; the log ends at {case.end}: the topic was recreated, or its log was truncated"
            case _Outside.COMMITTED:
                text += f"; its committed offset is {case.committed}, and the log ends at {case.end}"
            case _Outside.ONE_BEYOND:
                text += f"; OffsetFetch had answered {case.committed} as the committed offset"
            case _Outside.INSIDE_ELSEWHERE:
                text += f"; another broker showed offsets {max(case.start, 0)} to {case.end_before} within the log, this one among them"
            case _Outside.INSIDE:
                text += f"; the log has offsets {max(case.start, 0)} to {case.end}, so it contains this one"
            case _Outside.NO_OFFSET:
                text += "; no log has a negative offset"
        if case.failed:
            text += f"; it kept asking for {duration(case.last_ns - case.first_ns)}" if case.failed > 1 else ""
            text += "" if case.listed >= 0 or case.failed < OffsetOutOfRange.LOOP else ", without ListOffsets"
        elif case.went_on >= 0:
            text += f"; it continued at offset {case.went_on}"
            if 0 <= case.start < case.end <= case.went_on and case.asked < case.start:
                text += f", the log's end: it skipped {several(case.end - case.start, 'record')} more"
        return text


@dataclass(slots=True)
class _Streak:
    error: int
    first_ns: int
    count: int = 0
    last_ns: int = 0


@dataclass(slots=True)
class _Failing:
    """All partitions of a topic that fail a client with one error."""

    conn: ClientConnection
    partitions: set[int] = field(default_factory=set)
    longest_ns: int = 0
    leader: str = ""  # that Metadata names


_CUT_OFF: Place = ("", -1)
"""The place of a first error whose topic and partition were cut off."""


class FetchErrorLoop(FetchDetector):
    id = "fetch-error-loop"
    severity = Severity.HIGH
    title = "fetches of a partition keep failing with the same error"

    COUNT = 5
    LASTING_NS = 5 * SECOND
    """A leader election or a new topic causes a few retries, 100 ms apart, and takes less."""

    LED = frozenset({"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"})
    BY_LEADER: ClassVar[dict[tuple[str, Named], str]] = {
        ("NOT_LEADER_OR_FOLLOWER", Named.ITSELF):
            "the broker contradicts its cluster's Metadata, so refreshing does not help the client: look at the broker's log and at its "
            "connection to the controller; a proxy or a product that answers Metadata by itself must name the real leader",
        ("NOT_LEADER_OR_FOLLOWER", Named.ANOTHER):
            "the client does not switch to the leader that Metadata names: upgrade it; check whether it sends Metadata after the error, and "
            "whether each broker's address leads to that broker",
        ("UNKNOWN_TOPIC_OR_PARTITION", Named.ITSELF):
            "the broker does not have a partition that Metadata says it leads: if the topic was just deleted or created, this passes; if not, "
            "look at the broker's log (a failed log directory, a lost connection to the controller)",
        ("UNKNOWN_TOPIC_OR_PARTITION", Named.ANOTHER):
            "the client asks a broker that has no replica: its Metadata is stale, or the address leads to the wrong broker",
    }  # fmt: skip

    NEWER = (
        "it is not the client's fault, which has asked Metadata since and gets the old epoch: the leader has been "
        "given a newer epoch that the brokers do not show. Elect the partition's leader anew or restart its broker, "
        "look at the controller's log, and upgrade the brokers (Kafka before 2.4: KAFKA-9212, in a reassignment)"
    )
    """For FENCED_LEADER_EPOCH of an epoch that Metadata still shows."""

    def setup(self) -> None:
        self._streaks: BoundedDict[tuple[ClientIdentity, Place], _Streak] = BoundedDict(5000)
        self._failing: dict[object, _Failing] = {}

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        super().done(conn, exchange)
        if exchange.response_cut and exchange.state is State.PAIRED:
            if exchange.error not in (0, OUT_OF_RANGE, *DENIED):
                self._failed(conn, exchange, _CUT_OFF, exchange.error)
            elif not exchange.error:
                self._streaks.pop((conn.identity, _CUT_OFF), None)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        for answer in fetched.answered:
            if answer.error in DENIED:
                continue  # reported by another detector
            if answer.error and answer.error != OUT_OF_RANGE:
                at = fetched.positions.get(answer.place)
                self._failed(conn, fetched.exchange, answer.place, answer.error, at.epoch if at is not None else -1)
            elif not answer.error and self._streaks:
                self._streaks.pop((conn.identity, answer.place), None)

    def _failed(
        self, conn: ClientConnection, exchange: Exchange, place: Place, error_code: int, epoch: int = -1
    ) -> None:
        key, at_ns = (conn.identity, place), exchange.response_time_ns or 0
        streak = self._streaks.get(key)
        if streak is None or streak.error != error_code:
            streak = self._streaks[key] = _Streak(error_code, at_ns)
        if error_code == _FENCED:
            conn.cluster.told_ns.setdefault(place[0], 0)
        streak.count += 1
        streak.last_ns = at_ns
        lasting = streak.last_ns - streak.first_ns
        if streak.count < self.COUNT or lasting < self.LASTING_NS:
            return
        topic, partition = place
        case_key = conn.identity, topic, error_code
        if case_key not in self._failing:
            self._failing[case_key] = _Failing(conn)
        case = self._failing[case_key]
        new = partition not in case.partitions
        error = facts.error_name(error_code)
        leader = named_leader(conn, topic, partition)
        known = conn.cluster.leaders.get(place)
        finding = self.report(
            case_key,
            exchange,
            "meanwhile, these partitions are not read. Clients treat most of these errors as temporary and retry "
            "without informing the application (retry.backoff.ms), so only the lag shows it.",
            self.BY_LEADER.get((error, leader.named)) or explain.error_meaning("Fetch", error_code)[1],
            topic=topic,
            error=error,
        )
        case.leader = leader.text if leader.named is not Named.NOBODY and error in self.LED else ""
        if error_code == _FENCED:
            asked_since = conn.cluster.told_ns.get(topic, 0) > streak.first_ns
            shown = known is not None and known.epoch == epoch >= 0 and asked_since
            case.leader = f"Metadata, asked since, still has the epoch of these requests ({epoch})" if shown else ""
            finding.remedy = self.NEWER if shown else explain.error_meaning("Fetch", error_code)[1]
        if new:
            finding.count += streak.count - 1
            case.partitions.add(partition)
        case.longest_ns = max(case.longest_ns, lasting)

    def finish(self, now_ns: int) -> None:
        for key, case in self._failing.items():
            finding = self._found[key]
            finding.about["partition"] = min(case.partitions)
            topic = finding.about["topic"]
            where = some((f"{topic}-{p}" for p in case.partitions), 4) if topic else "partitions that the capture cuts off"
            finding.seen = (
                f"{case.conn.where} refuses fetches of {where} by {case.conn.who} with {finding.about['error']}, "
                f"{times(finding.count)} and for {duration(case.longest_ns)} without a success"
                + (f"; {case.leader}" if case.leader else "")
            )


class BatchOverFetchLimit(FetchDetector):
    id = "batch-over-fetch-limit"
    severity = Severity.LOW
    title = "batches are larger than the fetch limit: a consumer gets one per round trip, or none at all (before KIP-74)"
    why = (
        "since KIP-74 (Fetch v3), a broker sends the whole first batch even if it is over the limit, so consumers "
        "advance one batch per request; before that, it sent only the part that fits, and the consumer could not "
        "advance."
    )
    remedy = (
        "raise the limit above the size of the largest batch: max.partition.fetch.bytes (Java, kafka-python: "
        "max_partition_fetch_bytes; librdkafka: fetch.message.max.bytes), and fetch.max.bytes with it; or lower the "
        "producers' batch.size and max.request.size; upgrade clients that use Fetch v2 or lower"
    )

    COUNT = 5
    """Batches over the limit of the same client and topic. One alone may be an outlier among records."""
    STUCK = 3
    """Times that the same offset returned the same truncated batch."""

    def setup(self) -> None:
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
        finding = self.report(key, fetched.exchange, topic=key[1], partition=answer.place[1], limit_bytes=limit)
        finding.count = count
        biggest = finding.about["batch_bytes"] = max(whole, finding.about.get("batch_bytes", 0))
        finding.seen = (
            f"{conn.who} asks for at most {size(limit)} per partition of {answer.place[0]}, and {times(count)} the "
            f"first batch alone was larger (up to {size(biggest)}): each round trip returns one batch"
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
        topic, partition = answer.place
        finding = self.report((conn.identity, answer.place), fetched.exchange, topic=topic, partition=partition, limit_bytes=limit)
        finding.severity = Severity.HIGH
        finding.count = max(finding.count, count)
        finding.about["batch_bytes"] = whole
        finding.seen = (
            f"{conn.who} is stuck at offset {offset} of {name}: the record there takes {size(whole)}, and Fetch "
            f"v{fetched.exchange.api_version} returns only the first {size(answer.size)} of it, {times(count)}"
        )
