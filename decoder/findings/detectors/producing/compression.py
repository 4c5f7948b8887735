"""Compressed records in a form that not all clients can read."""

from __future__ import annotations

from typing import NamedTuple

from ....connection.exchange import Exchange
from ....records.codecs import little_endian_snappy
from ...engine.finding import Severity
from ...engine.formatting import times
from ...engine.traffic import ClientConnection, Traffic
from ...models.fetch import FETCH, FetchReader
from ...models.produce import PRODUCE, ProduceDetector

_MAGIC_AT, _ATTRIBUTES_AT, _HEADER = 16, 22, 61
_SNAPPY, _ZSTD, _CODECS = 2, 4, 7


class _Compressed(NamedTuple):
    """The first batch of a partition, if it is compressed. `begins`: its first compressed bytes."""

    topic: str
    partition: int
    codec: int
    begins: bytes


class UnusualCompression(ProduceDetector):
    id = "unusual-compression"
    severity = Severity.LOW
    title = "record batches are compressed in a form that strict clients cannot read (snappy header, unknown codec)"
    apis = frozenset({PRODUCE, FETCH})
    request_apis = frozenset({PRODUCE})
    usual_apis = frozenset({FETCH})

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._fetches = traffic.model(FetchReader)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        sent = self.produce.sent(exchange)
        for part in sent.parts if sent is not None else ():
            batch = part.batch
            if batch is not None and batch.codec >= _SNAPPY:
                begin = batch.start + _HEADER
                self._look(conn, exchange, _Compressed(part.topic, part.partition, batch.codec, batch.data[begin : begin + 16]))

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        fetched = self._fetches.fetched
        if fetched is None or fetched.exchange is not exchange:
            return
        for answer in fetched.answered:
            data = answer.records
            if data and len(data) > _HEADER and data[_MAGIC_AT] == 2 and (codec := data[_ATTRIBUTES_AT] & _CODECS) >= _SNAPPY:
                self._look(conn, exchange, _Compressed(*answer.place, codec, bytes(data[_HEADER : _HEADER + 16])))

    def _look(self, conn: ClientConnection, exchange: Exchange, first: _Compressed) -> None:
        if first.codec > _ZSTD:
            self._unknown(conn, exchange, first)
        elif first.codec == _SNAPPY and little_endian_snappy(first.begins):
            at = f"{first.topic}-{first.partition}"
            finding = self.report(
                ("snappy", exchange.api_key, conn.identity, first.topic),
                exchange,
                "The header that snappy-java puts before its blocks has two version numbers in big-endian order. A producer wrote them "
                "in little-endian order: Java and librdkafka read such batches, but clients that compare the whole header "
                "(kafka-python and others) take them for raw snappy and fail.",
                "upgrade the producer that wrote these batches, or let it use another compression.type (lz4, zstd). The records stay as "
                "they are until retention or compaction removes them",
                topic=first.topic,
                partition=first.partition,
                codec="snappy",
            )
            finding.seen = (
                f"{_who(conn, exchange)} snappy batches of {at} whose xerial header has its version numbers in little-endian order "
                f"({times(finding.count)})"
            )

    def _unknown(self, conn: ClientConnection, exchange: Exchange, first: _Compressed) -> None:
        finding = self.report(
            ("unknown", exchange.api_key, conn.identity, first.topic),
            exchange,
            "Kafka has codecs 0 (none) to 4 (zstd). No client can read other ones.",
            "find out what wrote the batch: a client with a wrong constant, or a proxy that changes the batch's attributes",
            severity=Severity.HIGH,
            topic=first.topic,
            partition=first.partition,
            codec=first.codec,
        )
        finding.seen = (
            f"{_who(conn, exchange)} batches of {first.topic}-{first.partition} with compression codec {first.codec}, which does not "
            f"exist ({times(finding.count)})"
        )


def _who(conn: ClientConnection, exchange: Exchange) -> str:
    return f"{conn.who} sends" if exchange.api_key == PRODUCE else f"{conn.where} sends {conn.who}"
