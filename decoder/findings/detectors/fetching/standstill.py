"""Consumers that get records and do not move on."""

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

_PREFIX = 61
"""Bytes of an answer that are compared: a batch's header with its CRC, or the beginning of a message set with the first one's."""


class _Content(NamedTuple):
    """What an answer has for a consumer at an offset. `records`: with that offset or a later one, markers not counted; None if they cannot
    be read. `last`: the last offset of its batches. `markers`: whether it has control batches only."""

    records: int | None
    first: int
    last: int
    markers: bool


@dataclass(slots=True)
class _Repeat:
    """The same answer for the same offset, again and again. `content`: what it has, once that is asked for."""

    offset: int
    prefix: bytes
    first: Exchange
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
            offset, prefix = fetched.offset(answer.place), bytes(answer.records[:_PREFIX])
            repeat = repeats.get(answer.place)
            if repeat is None or repeat.offset != offset or repeat.prefix != prefix:
                repeats[answer.place] = _Repeat(offset, prefix, fetched.exchange, fetched.time_ns)
                continue
            repeat.count += 1
            if repeat.count >= self.COUNT and fetched.time_ns - repeat.first_ns >= self.LASTING_NS and offset >= 0:
                self._repeated(conn, fetched, answer, repeat)

    def _repeated(self, conn: ClientConnection, fetched: FetchExchange, answer: PartitionData, repeat: _Repeat) -> None:
        if repeat.content is None:
            repeat.content = _content(answer.records, repeat.offset, self.INNER_BYTES)
        content, lasting = repeat.content, fetched.time_ns - repeat.first_ns
        if content.last < 0:
            return
        if content.records and (repeat.count < self.READABLE or lasting > self.OFTEN_NS * repeat.count):
            return
        why, remedy, severity = _judged(content, repeat.offset)
        (topic, partition), new = answer.place, (conn.identity, answer.place) not in self._found
        finding = self.report(
            (conn.identity, answer.place), repeat.first if new else fetched.exchange, why, remedy, severity=severity, topic=topic,
            partition=partition, offset=repeat.offset, records=content.records, next_offset=content.last + 1,
        )  # fmt: skip
        finding.count = max(finding.count, repeat.count)
        finding.seen = (
            f"{conn.who} asked {conn.where} {times(repeat.count)} in {duration(lasting)} for offset {repeat.offset} of "
            f"{topic}-{partition} and got the same bytes each time ({_shown(content, repeat.offset)}): it does not move on"
        )

    def closed(self, conn: ClientConnection) -> None:
        self._repeats.pop(conn.number, None)


def _content(data: bytes, offset: int, limit: int) -> _Content:
    """`last` is -1 if not even one batch is whole: then the fetch limit cut it, which is another finding."""
    records: int | None = 0
    first = last = -1
    markers = True
    try:
        for entry in batches(data):
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
    return _Content(records, first, last, markers)


def _shown(content: _Content, offset: int) -> str:
    if content.markers:
        return f"the marker of a transaction's end at {content.last}, no records"
    extent = f"offsets {content.first} to {content.last}"
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
            "back to it each time (a poison record; Spring Kafka's error handlers do so), or the client cannot decode it.",
            f"look at the record at offset {offset} and at the client's log; skip it, or send it to a dead letter topic after a few "
            "attempts",
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
