"""Record batches that are damaged: the broker says so, or their CRC does not fit their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..exchange import Exchange, State
from ..facts import api_key, error_code
from ..records import Batch, RecordsError, batches
from .detector import Detector
from .finding import Finding, Severity
from .produced import PRODUCE, Bounded, ProduceDetector, at, topic_name
from .scene import Link, Scene
from .wording import times

FETCH = api_key("Fetch")
FORMAT_2 = 3
"""The first version of Produce with record batches."""


class CorruptBatches(ProduceDetector):
    """A batch whose CRC does not fit its bytes, or that a broker finds damaged."""

    id = "corrupt-batch"
    severity = Severity.HIGH
    title = "a record batch is damaged (CORRUPT_MESSAGE, CRC-32C)"
    apis = frozenset({PRODUCE, FETCH})

    EVERY = 16
    """Of the Fetch responses of a connection one in so many is checked, the first one always."""
    CHECKED_BYTES = 256 << 10
    """At most, of one Fetch response."""
    SMALLEST = 120
    """Bytes of a Fetch response; smaller ones hold no batch (61 bytes of header and a record)."""
    CONNECTIONS = 10_000
    _CORRUPT = error_code("CORRUPT_MESSAGE")

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._fetches: Bounded[int, int] = Bounded(self.CONNECTIONS)

    def closed(self, link: Link) -> None:
        if link.number in self._fetches:
            del self._fetches[link.number]

    def done(self, link: Link, exchange: Exchange) -> None:
        if exchange.api_key == PRODUCE:
            self._produced(link, exchange)
        elif exchange.state is State.PAIRED and (exchange.response_size or 0) > self.SMALLEST:
            count = self._fetches.of(link.number, int)
            self._fetches[link.number] = count + 1
            if count % self.EVERY == 0:
                self._fetched(link, exchange)

    def _produced(self, link: Link, exchange: Exchange) -> None:
        for result in self.reading.results(exchange):
            if result.error != self._CORRUPT:
                continue
            sent = self.reading.sent(exchange)
            found = (
                [p for p in sent.parts if (p.topic, p.partition) == (result.topic, result.partition)] if sent else []
            )
            batch = found[0].batch if found else None
            too_new = batch is not None and exchange.api_version < FORMAT_2
            if too_new:
                verdict = (
                    f"it is of message format 2, and Produce v{exchange.api_version} carries only formats 0 and 1: whoever "
                    "reads it as these finds a wrong CRC"
                )
            elif batch is None:
                verdict = "its CRC was not checked here (an old message format)"
            elif batch.crc_ok:
                verdict = "its CRC is right here: the bytes change behind this point, or the broker finds another fault"
            else:
                verdict = f"its CRC is {batch.crc:#010x} and that of its bytes {batch.crc_computed:#010x}: sent damaged"
            finding = self.report(
                ("produce", link.identity),
                exchange,
                partial(self._make, link, exchange, result.topic, result.partition, batch is None or batch.crc_ok, too_new),
            )
            finding.seen = (
                f"{link.where} answers a batch of {link.who} for {result.topic}-{result.partition} with CORRUPT_MESSAGE "
                f"({times(finding.count)}); {verdict}" + (f" ({result.text})" if result.text else "")
            )

    def _fetched(self, link: Link, exchange: Exchange) -> None:
        for topic, partition, batch in _fetched_batches(exchange, self.CHECKED_BYTES):
            if batch.crc_ok:
                continue
            finding = self.report(
                ("fetch", link.broker, topic, partition),
                exchange,
                partial(self._make, link, exchange, topic, partition, False),
            )
            finding.seen = (
                f"{link.where} sends {link.who} a damaged batch of {topic}-{partition} at offset {batch.base_offset}: its "
                f"CRC is {batch.crc:#010x} and that of its bytes {batch.crc_computed:#010x}"
            )

    def _make(
        self, link: Link, exchange: Exchange, topic: str, partition: int, crc_ok: bool, too_new: bool = False
    ) -> Finding:
        return self.finding(
            "",
            "Record batches came with Produce v3 and Kafka 0.11 (KIP-98). In an older request the broker reads message "
            "sets, whose CRC-32 stands elsewhere; sending it again does not help."
            if too_new
            else "The CRC-32C covers everything behind it. Brokers refuse a batch that does not fit and clients send it "
            "again or give up; consumers stop at it (CorruptRecordException) as long as check.crcs is on.",
            "report it to the makers of the client: it chooses the version by what the broker serves, but not the format "
            "of its records. Until then use an older release of it, or a broker from 0.11 on"
            if too_new
            else "look for what changes bytes on the way or in memory: a proxy or interceptor that edits records, a fault of "
            "the client library or its accelerated CRC, memory or disk of the broker. Of a damaged log, delete the "
            "replica's segment and let it be copied again",
            api=exchange.api,
            api_version=exchange.api_version,
            topic=topic,
            partition=partition,
            crc_ok=crc_ok,
            error="CORRUPT_MESSAGE" if exchange.api_key == PRODUCE else None,
            **link.facts,
        )


def _fetched_batches(exchange: Exchange, most: int) -> Iterator[tuple[str, int, Batch]]:
    """The whole batches of a Fetch response, as far as `most` bytes go."""
    message = exchange.response_view
    if message is None:
        return
    root = at(message.plan.root)
    topic_struct = message.plan.root.fields[root["responses"]].struct
    assert topic_struct is not None
    topic = at(topic_struct)
    part_struct = topic_struct.fields[topic["partitions"]].struct
    assert part_struct is not None
    part = at(part_struct)
    name_at = topic.get("topic", topic.get("topic_id", 0))
    for each in message.values[root["responses"]] or ():
        for one in each[topic["partitions"]] or ():
            try:
                for entry in batches(one[part["records"]] or b""):
                    if isinstance(entry, Batch):
                        most -= entry.end - entry.start
                        if most < 0:
                            return
                        yield topic_name(exchange, each[name_at]), one[part["partition_index"]], entry
            except RecordsError:
                continue


DETECTORS: tuple[type[Detector], ...] = (CorruptBatches,)
