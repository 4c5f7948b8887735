"""Consumers that do not move on: they get the same records again and again, or none although there are some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ....connection.exchange import Exchange
from ....records import Batch, Message, RecordsError, batches
from ...engine.counters import BoundedDict
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, several, times
from ...engine.traffic import ClientConnection
from ...models.fetch import FetchDetector, FetchExchange, PartitionData, Place

_PREFIX = 26
"""Bytes of an answer that are compared: a batch's header up to its CRC, or a message set's up to the first one's. Nothing shorter has records."""


class _Content(NamedTuple):
    """What an answer has for a consumer at an offset. `records`: with that offset or a later one, markers not counted;
    None if they cannot be read. `last`: the last offset of its batches. `markers`: whether it has control batches only.
    `codec`: "" for none."""

    records: int | None
    first: int
    last: int
    markers: bool
    codec: str = ""


@dataclass(slots=True)
class _Repeat:
    """The same answer for the same offset, again and again. `content`: what it has, once that is asked for."""

    offset: int
    prefix: bytes
    first_ns: int
    count: int = 1
    content: _Content | None = None


class SameRecordsAgain(FetchDetector):
    id = "same-records-again"
    severity = Severity.MEDIUM
    title = "a consumer fetches the same offset again and again, though it gets records each time"
    explains = ("consumer-lag-growing",)

    COUNT = 10
    """Answers in a row: nobody asks that often for what the client should step over."""
    READABLE = 20
    """The same for records that the client could read. An application may seek back a few times."""
    LASTING_NS = 10 * SECOND
    OFTEN_NS = 2 * SECOND
    """Readable records are asked for more often than this on average: tools show a topic's last record every few seconds."""
    INNER_BYTES = 4 << 20
    """At most, of one decompressed batch."""

    def setup(self) -> None:
        self._repeats: BoundedDict[int, BoundedDict[Place, _Repeat]] = BoundedDict(4096)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        repeats: BoundedDict[Place, _Repeat] | None = None
        for answer in fetched.answered:
            if answer.size < _PREFIX or answer.error:
                continue
            if repeats is None:
                repeats = self._repeats.of(conn.number, lambda: BoundedDict(1000))
            place, prefix = answer.place, bytes(answer.records[:_PREFIX])
            offset, repeat = fetched.offset(place), repeats.get(place)
            if repeat is None:
                repeats[place] = _Repeat(offset, prefix, fetched.time_ns)
                continue
            if repeat.offset != offset or repeat.prefix != prefix:
                repeat.offset, repeat.prefix, repeat.first_ns, repeat.count, repeat.content = offset, prefix, fetched.time_ns, 1, None
                continue
            repeat.count += 1
            if repeat.count >= self.COUNT and offset >= 0 and fetched.time_ns - repeat.first_ns >= self.LASTING_NS:
                self._repeated(conn, fetched, answer, repeat)

    def _repeated(self, conn: ClientConnection, fetched: FetchExchange, answer: PartitionData, repeat: _Repeat) -> None:
        if repeat.content is None:
            repeat.content = _content(answer.records, repeat.offset, self.INNER_BYTES)
        content, lasting = repeat.content, fetched.time_ns - repeat.first_ns
        if content.last < 0:
            return
        if content.records and (repeat.count < self.READABLE or lasting > self.OFTEN_NS * repeat.count):
            return
        aborted = bool(content.records) and _aborted(fetched.exchange, answer)
        why, remedy, severity = _ABORTED if aborted else _judged(content, repeat.offset)
        topic, partition = answer.place
        finding = self.report(
            (conn.identity, answer.place), fetched.exchange, why, remedy, severity=severity, topic=topic,
            partition=partition, offset=repeat.offset, records=content.records, next_offset=content.last + 1,
        )  # fmt: skip
        finding.count = max(finding.count, repeat.count)
        finding.first_ns = min(finding.first_ns or repeat.first_ns, repeat.first_ns)
        finding.seen = (
            f"{conn.who} asked {conn.where} {times(repeat.count)} in {duration(lasting)} for offset {repeat.offset} of "
            f"{topic}-{partition} and got the same bytes each time ({_shown(content, repeat.offset)}{', all aborted' if aborted else ''}): "
            "it does not move on"
        )

    def closed(self, conn: ClientConnection) -> None:
        self._repeats.pop(conn.number, None)


_ABORTED = (
    "all these records belong to aborted transactions, which a read_committed consumer leaves out: its application gets none, and moves on by "
    "itself only if it does not seek. This one goes back to the same offset each time, as applications do that keep their own position and "
    "seek to it when a poll returned nothing.",
    "let the application take its position from the consumer (position()) instead of the last record that it got, or not seek after an empty "
    "poll; to go on now, start it behind these records",
    Severity.HIGH,
)


def _aborted(exchange: Exchange, answer: PartitionData) -> bool:
    """Whether a read_committed consumer leaves out every batch of an answer."""
    message = exchange.response_view
    listed = {
        aborted["producer_id"]
        for topic in (message.to_dict()["responses"] if message is not None else ())
        for part in topic["partitions"] if part["partition_index"] == answer.place[1]
        for aborted in part.get("aborted_transactions") or ()
    }  # fmt: skip
    try:
        found = [entry for entry in batches(answer.records) if not (isinstance(entry, Batch) and entry.control)]
    except RecordsError:
        return False
    return bool(found) and all(isinstance(each, Batch) and each.transactional and each.producer_id in listed for each in found)


def _content(data: bytes, offset: int, limit: int) -> _Content:
    """`last` is -1 if not even one batch is whole: then the fetch limit cut it, which is another finding."""
    records: int | None = 0
    first = last = -1
    markers, codec = True, ""
    try:
        for entry in batches(data):
            if isinstance(entry, Batch | Message) and entry.codec:
                codec = codec or entry.codec_name
            if isinstance(entry, Batch):
                first, last = entry.base_offset if first < 0 else first, entry.last_offset
                if entry.control:
                    continue
                markers = False
                found: int | None
                try:
                    found = sum(1 for record in entry.records(limit=limit) if record.offset >= offset)
                except RecordsError:
                    found = None
                records = None if records is None or found is None else records + found
            elif isinstance(entry, Message):
                markers, first, last = False, entry.offset if first < 0 else first, entry.offset
                records = None if records is None else records + (entry.offset >= offset)
    except RecordsError:
        records = None
    return _Content(records, first, last, markers, codec)


def _shown(content: _Content, offset: int) -> str:
    if content.markers:
        return f"the marker of a transaction's end at {content.last}, no records"
    codec = f", compressed with {content.codec}" if content.codec else ""
    extent = f"offsets {content.first} to {content.last}{codec}"
    if content.records is None:
        return f"{extent}, which cannot be read"
    return f"{extent}, with {several(content.records, 'record') if content.records else 'no record'} from {offset} on"


def _judged(content: _Content, offset: int) -> tuple[str, str, Severity]:
    if content.records is None:
        return (
            "the records cannot be decoded here either: the client fails on them each time.",
            "look for the decoding error in the client's log; find out what wrote the batch (codec, format); to go on, move the group "
            f"to offset {content.last + 1} (kafka-consumer-groups.sh --reset-offsets)",
            Severity.HIGH,
        )
    if content.records:
        return (
            "the client gets records that it could read and asks for the same offset again: its application fails on a record and seeks "
            "back to it each time (a poison record; Spring Kafka's error handlers do so), or the client cannot decode "
            f"it{f': likeliest it has no codec for {content.codec} (kafkajs#254)' if content.codec else ''}.",
            f"install the {content.codec} codec in the client if it lacks it; " * bool(content.codec)
            + f"look at the record at offset {offset} and at the client's log; skip it, or send it to a dead letter "
            "topic after a few attempts",
            Severity.MEDIUM,
        )
    kind = (
        "the batch only marks the end of a transaction."
        if content.markers
        else f"the batch reaches to offset {content.last}, but compaction has removed its records from {offset} on."
    )
    return (
        f"{kind} A consumer must step over it and ask for offset {content.last + 1} next. This one continues behind the last record that it "
        "got instead, so it stands still while its lag grows.",
        "upgrade the client, or report it to its developers: after a batch, it must continue at base offset + last offset delta + 1. To go "
        f"on now, move the group to offset {content.last + 1} (kafka-consumer-groups.sh --reset-offsets)",
        Severity.HIGH,
    )


@dataclass(slots=True)
class _Empty:
    """Empty answers in a row for one offset, although the log goes on."""

    offset: int
    since_ns: int
    count: int = 0


class NothingThoughBehind(FetchDetector):
    id = "fetch-returns-nothing"
    severity = Severity.MEDIUM
    title = "a broker returns no records for an offset, though the high watermark is beyond it"
    why = (
        "a broker that has records from fetch_offset on returns at least one batch (KIP-74), unless a quota or max_bytes keeps it from that; "
        "neither is so here. So the consumer stands still while its lag grows. Either the broker cannot read this part of its log (in Apache "
        "Kafka, remote storage that does not answer in time, KIP-405, or a remote segment without this offset, "
        "KAFKA-15388), or a product "
        "reports a high watermark that it cannot serve."
    )
    remedy = (
        "look for read errors in the broker's log at that time (disk, remote storage: remote.fetch.max.wait.ms); report it to the vendor of a "
        "product other than Apache Kafka. To get on, move the group past the offset (kafka-consumer-groups.sh --reset-offsets)"
    )

    COUNT = 10
    LASTING_NS = 30 * SECOND
    """A single empty answer is a race; remote storage takes a second or two."""

    def setup(self) -> None:
        self._empty: BoundedDict[int, BoundedDict[Place, _Empty]] = BoundedDict(4096)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        known = self._empty.get(conn.number)
        if known is None and fetched.size:
            return
        for answer in fetched.answered:
            offset = fetched.offset(answer.place)
            if not self._behind(fetched, answer, offset):
                if known is not None:
                    known.pop(answer.place, None)
                continue
            if fetched.size or fetched.throttle_ms:
                continue  # other partitions or a quota left no room for this one
            if known is None:
                known = self._empty.of(conn.number, lambda: BoundedDict(1000))
            case = known.get(answer.place)
            if case is None or case.offset != offset:
                case = known[answer.place] = _Empty(offset, fetched.time_ns)
            case.count += 1
            if case.count >= self.COUNT and fetched.time_ns - case.since_ns >= self.LASTING_NS:
                self._stuck(conn, fetched, answer, case)

    @staticmethod
    def _behind(fetched: FetchExchange, answer: PartitionData, offset: int) -> bool:
        """Whether records were due. A leader may also send the consumer to another replica, or tell it that its log has diverged."""
        end = answer.last_stable if fetched.read_committed and answer.last_stable >= 0 else answer.high_watermark
        return not answer.error and not answer.size and 0 <= offset < end and answer.replica < 0 and answer.diverging is None

    def _stuck(self, conn: ClientConnection, fetched: FetchExchange, answer: PartitionData, case: _Empty) -> None:
        topic, partition = answer.place
        finding = self.report(
            (conn.identity, answer.place), fetched.exchange, topic=topic, partition=partition, offset=case.offset, high_watermark=0
        )
        finding.count = max(finding.count, case.count)
        finding.first_ns = min(finding.first_ns or case.since_ns, case.since_ns)
        finding.about["high_watermark"] = answer.high_watermark
        finding.seen = (
            f"{conn.where} returned no records to {conn.who} for offset {case.offset} of {topic}-{partition} {times(case.count)} in "
            f"{duration(fetched.time_ns - case.since_ns)}, though the high watermark is {answer.high_watermark}"
        )

    def closed(self, conn: ClientConnection) -> None:
        self._empty.pop(conn.number, None)
