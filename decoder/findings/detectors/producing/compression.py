"""Compressed records in a form that not all clients can read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....connection.exchange import Exchange, State
from ....records.codecs import little_endian_snappy
from ....schema.facts import api_key
from ...engine.finding import Severity
from ...engine.formatting import times, topic_name
from ...engine.layout import partition_places
from ...engine.traffic import ClientConnection
from ...models.produce import PRODUCE, ProduceDetector

FETCH = api_key("Fetch")
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

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key != PRODUCE:
            return
        sent = self.produce.sent(exchange)
        for part in sent.parts if sent is not None else ():
            batch = part.batch
            if batch is not None and batch.codec >= _SNAPPY:
                begin = batch.start + _HEADER
                self._look(conn, exchange, _Compressed(part.topic, part.partition, batch.codec, batch.data[begin : begin + 16]))

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == FETCH and exchange.state is State.PAIRED:
            for first in _fetched(exchange):
                self._look(conn, exchange, first)

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


def _fetched(exchange: Exchange) -> Iterator[_Compressed]:
    """The first batch of each partition that a Fetch response has, of those that are compressed with snappy or a later codec."""
    message = exchange.response_view
    if message is None:
        return
    places = partition_places(message.plan.root, "responses", "partitions")
    at, records_at = places.fields["partition_index"], places.fields["records"]
    for topic in message.values[places.topics] or ():
        for part in topic[places.partitions] or ():
            data = part[records_at]
            if data is None or len(data) <= _HEADER or data[_MAGIC_AT] != 2:
                continue
            codec = data[_ATTRIBUTES_AT] & _CODECS
            if codec >= _SNAPPY:
                yield _Compressed(topic_name(exchange, topic[places.name]), part[at], codec, bytes(data[_HEADER : _HEADER + 16]))
