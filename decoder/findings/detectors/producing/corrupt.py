"""Damaged record batches: the broker reports them, or their CRC does not match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ....codec.message_view import MessageView
from ....connection.exchange import Exchange, State
from ....records import Batch, Message, Partial, RecordsError, batches
from ....schema.facts import api_key, error_code
from ...engine.counters import BoundedDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import times, topic_name
from ...engine.layout import partition_places
from ...engine.traffic import ClientConnection
from ...models.produce import PRODUCE, ProduceDetector
from .refused_batches import shown

FETCH = api_key("Fetch")
FORMAT_2 = 3
"""The first version of Produce with record batches."""


@dataclass(slots=True)
class _Fetches:
    """The Fetch responses with records of a connection: how many, the size of the last one, and how many of that size came in a row."""

    count: int = 0
    size: int = 0
    row: int = 0


class CorruptBatches(ProduceDetector):
    id = "corrupt-batch"
    severity = Severity.HIGH
    title = "a record batch or message is damaged (CORRUPT_MESSAGE, a wrong CRC)"
    apis = frozenset({PRODUCE, FETCH})
    usual_apis = frozenset({FETCH})

    EVERY = 16
    """Of a connection's Fetch responses with records, one in this many is checked, the first one always."""
    SAME_SIZE = 3
    """So many with the size of the one before are checked as well: a consumer that stops at a damaged batch gets it again."""
    CHECKED_BYTES = 256 << 10
    """At most, of one Fetch response."""
    SMALLEST = 59
    """Bytes of a Fetch response with records: version 0, one topic of one letter, a message of format 0 without key and value."""
    INNER_BYTES = 4 << 20
    """At most, of one decompressed message set."""
    CONNECTIONS = 10_000
    _CORRUPT, _RECORD = error_code("CORRUPT_MESSAGE"), error_code("INVALID_RECORD")

    def setup(self) -> None:
        self._seen: BoundedDict[int, _Fetches] = BoundedDict(self.CONNECTIONS)

    def closed(self, conn: ClientConnection) -> None:
        self._seen.pop(conn.number, None)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == PRODUCE:
            if exchange.error:
                self._produced(conn, exchange)
        elif exchange.state is State.PAIRED and (size := exchange.response_size or 0) >= self.SMALLEST:
            seen = self._seen.of(conn.number, _Fetches)
            seen.row = seen.row + 1 if seen.size == size else 0
            seen.size = size
            if (seen.count % self.EVERY and not 0 < seen.row <= self.SAME_SIZE) or self._fetched(conn, exchange):
                seen.count += 1

    def _produced(self, conn: ClientConnection, exchange: Exchange) -> None:
        for result in self.produce.results(exchange):
            if result.error != self._CORRUPT:
                continue
            areas = _areas(exchange, exchange.request_view, "topic_data", "partition_data", "index")
            sent = next((data for *place, data in areas if tuple(place) == (result.topic, result.partition)), b"")
            checked = list(_checked(sent, self.CHECKED_BYTES))
            wrong = next((each for each in checked if not each.entry.crc_ok), None)
            too_new = any(isinstance(each.entry, Batch) for each in checked[:1]) and exchange.api_version < FORMAT_2
            if too_new:
                verdict = (
                    f"it has message format 2, but Produce v{exchange.api_version} carries only formats 0 and 1: read "
                    "in one of these, its CRC is wrong"
                )
            elif not checked:
                verdict = "its CRC cannot be checked here: the records cannot be read"
            elif wrong is None:
                verdict = "its CRC is right here: the bytes change after this point, or the broker objects to something else"
            else:
                verdict = f"{wrong.what}: it was sent damaged"
            reason = None
            if checked and wrong is None and not too_new:
                request = self.produce.sent(exchange)
                place = result.topic, result.partition
                parts = request.parts if request is not None else ()
                part = next((each for each in parts if (each.topic, each.partition) == place), None)
                if request is not None and part is not None:
                    reason = shown(self._RECORD, exchange, request, part, result.text)
            key = "produce", conn.identity
            finding = self._report(key, conn, exchange, result.topic, result.partition, wrong is None, too_new)
            if reason is not None and reason.why:
                verdict = f"its CRC is right here, and {reason.seen}"
                finding.why = f"Brokers before 2.4 answer CORRUPT_MESSAGE to records that they do not accept for other reasons, too. {reason.why}"
                finding.remedy = reason.remedy
            finding.seen = (
                f"{conn.where} answers a batch of {conn.who} for {result.topic}-{result.partition} with CORRUPT_MESSAGE "
                f"({times(finding.count)}); {verdict}" + (f" ({result.text})" if result.text else "")
            )

    def _fetched(self, conn: ClientConnection, exchange: Exchange) -> bool:
        """Check a Fetch response; False if it has no records."""
        most, any_records = self.CHECKED_BYTES, False
        for topic, partition, data in _areas(
            exchange, exchange.response_view, "responses", "partitions", "partition_index"
        ):
            any_records = any_records or bool(data)
            for each in _checked(data, most):
                if each.entry.crc_ok:
                    continue
                key = "fetch", conn.broker, topic, partition
                finding = self._report(key, conn, exchange, topic, partition, False)
                what = "batch" if isinstance(each.entry, Batch) else "message"
                finding.seen = f"{conn.where} sends {conn.who} a damaged {what} of {topic}-{partition} at offset {each.offset}: {each.what}"
            most -= len(data)
            if most <= 0:
                break
        return any_records

    def _report(
        self,
        key: object,
        conn: ClientConnection,
        exchange: Exchange,
        topic: str,
        partition: int,
        crc_ok: bool,
        too_new: bool = False,
    ) -> Finding:
        return self.report(
            key,
            exchange,
            "Record batches were introduced with Produce v3 and Kafka 0.11 (KIP-98). In an older request the broker reads "
            "message sets, whose CRC-32 is in another place; retrying does not help."
            if too_new
            else "The CRC covers everything after it (CRC-32C in batches, CRC-32 in messages of the old formats). If "
                 "it does not match, brokers refuse the records, and clients retry or give up; consumers stop there "
                 "(CorruptRecordException) if check.crcs is on.",
            "report it to the developers of the client: it adapts the version to the broker, but not the format of "
            "its records. Until it is fixed, use an older release of the client, or a broker from 0.11 on"
            if too_new
            else "look for what changes bytes on the way or in memory: a proxy or interceptor that edits records, a "
                 "bug in the client library or its accelerated CRC, or a fault in the broker's memory or disk. If a "
                 "log is damaged, delete the replica's segment and let it be copied again",
            topic=topic,
            partition=partition,
            crc_ok=crc_ok,
            error="CORRUPT_MESSAGE" if exchange.api_key == PRODUCE else None,
        )


class _Checked(NamedTuple):
    """A batch or message of an area. `inside`: the wrapper that a compressed message stands in, None for most."""

    entry: Batch | Message
    inside: Message | None

    @property
    def offset(self) -> int:
        """Of the batch or message, as it stands in the log; of an inner one that of its wrapper."""
        if isinstance(self.entry, Batch):
            return self.entry.base_offset
        return self.entry.offset if self.inside is None else self.inside.offset

    @property
    def what(self) -> str:
        """Both CRCs as text."""
        crc = f"CRC is {self.entry.crc:#010x}, but that of its bytes is {self.entry.crc_computed:#010x}"
        return f"its {crc}" if self.inside is None else f"inside a compressed message, a message's {crc}"


def _checked(data: bytes, most: int) -> Iterator[_Checked]:
    """The complete batches and messages of a record area, up to `most` bytes, and the messages inside compressed ones."""
    try:
        for entry in batches(data):
            if isinstance(entry, Partial):
                return
            most -= entry.end - entry.start
            if most < 0:
                return
            yield _Checked(entry, None)
            if isinstance(entry, Message) and entry.codec and entry.crc_ok:
                yield from (_Checked(inner, entry) for inner in entry.messages(limit=CorruptBatches.INNER_BYTES))
    except RecordsError:
        return


def _areas(
    exchange: Exchange, message: MessageView | None, topics: str, partitions: str, number: str
) -> Iterator[tuple[str, int, bytes]]:
    """Topic, partition and records of each partition that a message has records of; fields by their names."""
    if message is None:
        return
    places = partition_places(message.plan.root, topics, partitions)
    for topic in message.values[places.topics] or ():
        for part in topic[places.partitions] or ():
            data = part[places.fields["records"]]
            if data:
                yield topic_name(exchange, topic[places.name]), part[places.fields[number]], data
