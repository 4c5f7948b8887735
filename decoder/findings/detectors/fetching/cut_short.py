"""Responses that a client does not take: it ends the connection while one arrives, because of its size, or right after it."""

from __future__ import annotations

from typing import NamedTuple

from ....connection.connection import Opaque
from ....connection.exchange import Exchange, State
from ....records import Batch, Message, Partial, RecordsError, batches
from ....wire.frame import Direction
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, times
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.fetch import FetchDetector, FetchExchange, PartitionData
from ..network.first_bytes import announced


class ResponseCutShort(Detector):
    """A consumer that simply stops leaves a cut response behind, too: so it takes several, of connections that never got a response
    of that API."""

    id = "response-too-large"
    severity = Severity.HIGH
    title = "a client ends its connection inside a response again and again: the response is larger than it accepts"
    why = (
        "librdkafka compares the size that a response announces with receive.message.max.bytes (100000000 unless set), and disconnects "
        "at once if it is larger ('Invalid response size'); then it fetches the same data again. fetch.max.bytes is no exact limit: "
        "the broker sends a whole first batch, and the response has headers. Other clients limit responses in similar ways."
    )
    remedy = (
        "raise the client's limit for responses well above fetch.max.bytes (librdkafka: receive.message.max.bytes; fluent-bit: "
        "buffer_max_size), or lower fetch.max.bytes and max.partition.fetch.bytes (librdkafka: fetch.message.max.bytes); it is the "
        "client's configuration"
    )
    wanted = Wanted.FAILED

    SMALLEST = 64 << 10
    """Bytes: nobody limits responses further."""
    TIMES = 3

    def setup(self) -> None:
        self._waiting: BoundedDict[int, Exchange] = BoundedDict(1024)
        self._begun: BoundedDict[int, tuple[Exchange, int, int]] = BoundedDict(1024)
        """By connection that has just ended: the request, and the bytes of its response that were announced and came."""
        self._cut: BoundedDict[tuple[ClientIdentity, int], int] = BoundedDict(1024)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is State.NO_RESPONSE and conn.number not in self._waiting:
            self._waiting[conn.number] = exchange

    def stray(self, conn: ClientConnection, opaque: Opaque) -> None:
        if opaque.direction is not Direction.RESPONSE or "ended inside" not in opaque.reason or len(opaque.data) < 8:
            return
        exchange, size = self._waiting.get(conn.number), announced(opaque.data)
        if exchange is None or size < self.SMALLEST:
            return
        if exchange.correlation_id == int.from_bytes(opaque.data[4:8], "big", signed=True):
            self._begun[conn.number] = exchange, size, len(opaque.data) - 4

    def closed(self, conn: ClientConnection) -> None:
        self._waiting.pop(conn.number, None)
        begun = self._begun.pop(conn.number, None)
        if begun is None or conn.by != "client" or conn.lost:
            return
        exchange, size, came = begun
        if any(api == exchange.api_key for api, *_ in conn.seen_kinds):
            return
        after = (conn.closed_ns or 0) - (exchange.request_time_ns or 0)
        key = conn.identity, exchange.api_key
        self._cut[key] = self._cut.get(key, 0) + 1
        if self._cut[key] < self.TIMES or came * 2 > size:
            return
        found = self.report(key, exchange, time_ns=conn.closed_ns, facts=conn.facts_of(exchange), size=size)
        found.count = max(found.count, self._cut[key])
        found.about["size"] = max(size, found.about["size"])
        found.seen = (
            f"{conn.who} ends its connection to {conn.where} inside the response to {exchange.api} v{exchange.api_version}, which "
            f"announces {found.about['size']} bytes, after {came} of them and "
            f"{duration(after)} ({times(found.count)})"
        )


_FILLER = -1
"""The offset of the entry that fills up converted records (`LazyDownConversionRecordsSend.buildOverflowBatch`)."""


class _Taken(NamedTuple):
    """The first records of a connection: where they are from, what they are, and the requests that were sent by then."""

    time_ns: int
    requests: int
    topic: str
    partition: int
    offset: int
    version: int
    what: str
    filler: bool


class RecordsNotTaken(FetchDetector):
    """A tool that reads the same records each time it starts ends its connection like that, too."""

    id = "records-not-taken"
    severity = Severity.LOW
    title = "a consumer ends its connection on the records at an offset, and asks for the same on a new one, again and again"
    wanted = Wanted.NEW

    TIMES = 3
    AT_ONCE_NS = SECOND

    def setup(self) -> None:
        self._first: BoundedDict[int, _Taken] = BoundedDict(4096)
        self._ended: BoundedDict[tuple[ClientIdentity, str, str, int], int] = BoundedDict(4096)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        if fetched.error or not fetched.size or conn.number in self._first:
            return
        part = next(part for part in fetched.answered if part.size)
        topic, number = part.place
        place, version = fetched.offset(part.place), fetched.exchange.api_version
        self._first[conn.number] = _Taken(fetched.time_ns, conn.requests, topic, number, place, version, *_content(part))

    def closed(self, conn: ClientConnection) -> None:
        first = self._first.pop(conn.number, None)
        if first is None or conn.by != "client" or conn.lost or conn.requests != first.requests:
            return
        if (conn.closed_ns or 0) - first.time_ns > self.AT_ONCE_NS:
            return
        place, offset, filler = f"{first.topic}-{first.partition}", first.offset, first.filler
        key = conn.identity, conn.broker, place, offset
        count = self._ended[key] = self._ended.get(key, 0) + 1
        if count < self.TIMES:
            return
        converted = (
            f" Fetch v{first.version} asks for an old record format: Kafka 2.0 and newer converts the records and fills the rest of the "
            "response with an entry of offset -1 that is never complete (KIP-283). Clients that take it for a message fail ('CRC didn't match "
            "expected 0x0', sarama before 1.18)."
            if filler
            else ""
        )
        finding = self.report(
            key,
            None,
            "the client got these records without an error, and ended the connection at once."
            + (
                converted
                or " Likeliest first: it cannot read them (their format or codec, a header, its own limits), and its log says why; a tool or "
                "health check reads them, and starts again and again."
            ),
            "client: read its log; upgrade its library, which then uses a newer version of Fetch"
            + (" (sarama: set Config.Version to the broker's release)" if filler else " and knows more formats and codecs"),
            severity=Severity.MEDIUM if filler else None,
            time_ns=first.time_ns,
            facts=conn.facts | {"api": "Fetch", "api_version": first.version},
            topic=first.topic,
            partition=first.partition,
            offset=offset,
        )
        finding.count = max(finding.count, count)
        finding.seen = (
            f"{conn.who} asks {conn.where} for {place} from offset {offset} (Fetch v{first.version}), gets {first.what}, and ends the "
            f"connection ({times(finding.count)}, each time on a new one)"
        )


def _content(part: PartitionData) -> tuple[str, bool]:
    """What a partition's records are, and whether they end with the filler of converted records."""
    first, filler = "", False
    try:
        for entry in batches(part.records):
            if isinstance(entry, Partial):
                filler = entry.base_offset == _FILLER and bool(first)
            elif isinstance(entry, Batch | Message) and not first:
                first = f"records of format {entry.magic}" + (f", compressed with {entry.codec_name}" if entry.codec else "")
    except RecordsError as error:
        return f"records that cannot be read here either ({error})", False
    return (first or "less than one whole batch") + (" and a filler at their end" if filler else ""), filler
