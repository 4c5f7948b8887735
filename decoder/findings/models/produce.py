"""Produce exchanges, each read once for all detectors.

Headers only: records are not decompressed, and of a partition's bytes only the first batch is read (from v3 on there is
just one; before, the others are alike).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from ...connection.exchange import Exchange, State
from ...records import Batch, RecordsError, batches
from ...schema import facts
from ...schema.plan import Plan
from ..engine.detector import Detector, Model
from ..engine.formatting import topic_name
from ..engine.layout import layout, partition_places
from ..engine.traffic import Traffic

PRODUCE = facts.api_key("Produce")
METADATA = facts.api_key("Metadata")


class PartitionProduceData(NamedTuple):
    """A partition of a Produce request. `size`: bytes of records. `batch`: the first batch, None if it is of magic 0 or 1,
    or cannot be read."""

    topic: str
    partition: int
    size: int
    batch: Batch | None

    @property
    def at(self) -> str:
        """``orders-3``, as Kafka's logs write it."""
        return f"{self.topic}-{self.partition}"


class PartitionProduceResponse(NamedTuple):
    """A partition of a Produce response. `text`: the error message, "" before v8 or without one. `leader`: the node that the
    broker names as the leader (KIP-951), -1 for none. `base_offset` and `log_start` are -1 where they are missing."""

    topic: str
    partition: int
    error: int
    text: str
    leader: int
    base_offset: int = -1
    log_start: int = -1


class ProduceRequest(NamedTuple):
    """A Produce request. `idempotent`: those of `parts` whose batch has a producer id, with that batch."""

    acks: int
    transactional_id: str | None
    timeout_ms: int
    parts: list[PartitionProduceData]
    idempotent: list[tuple[PartitionProduceData, Batch]]


class ProduceReader(Model):
    """Reads Produce exchanges. Keeps the last request and response read: detectors ask one after the other."""

    id = "produced"

    def setup(self) -> None:
        self._sent: tuple[Exchange | None, ProduceRequest | None] = (None, None)
        self._results: tuple[Exchange | None, list[PartitionProduceResponse]] = (None, [])

    def sent(self, exchange: Exchange) -> ProduceRequest | None:
        """The request, None if it is missing or cannot be read."""
        if self._sent[0] is not exchange:
            self._sent = exchange, _produced(exchange)
        return self._sent[1]

    def results(self, exchange: Exchange) -> list[PartitionProduceResponse]:
        """The response; empty where there is none."""
        if self._results[0] is not exchange:
            self._results = exchange, _results(exchange) if exchange.state is State.PAIRED else []
        return self._results[1]


class ProduceDetector(Detector):
    """A detector of Produce exchanges; all share one reader, `produce`."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.produce = traffic.model(ProduceReader)

    def error_of(self, exchange: Exchange, codes: Container[int]) -> int:
        """The error of a response: of a Produce the first of `codes` that a partition has, 0 for none."""
        if exchange.api_key != PRODUCE:
            return exchange.error
        return next((r.error for r in self.produce.results(exchange) if r.error in codes), 0)


    def text_of(self, exchange: Exchange, code: int) -> str:
        """The broker's message about an error of a Produce response, "" without one."""
        if exchange.api_key != PRODUCE:
            return ""
        return next((r.text for r in self.produce.results(exchange) if r.error == code and r.text), "")


def unanswered(exchange: Exchange) -> bool:
    """Whether a response was due and none came: whether the records were written is unknown."""
    return exchange.state is State.NO_RESPONSE


def said(text: str) -> str:
    """The broker's own error message as the end of what was seen; "" without one."""
    return f": {text!r}" if text else ""


def _produced(exchange: Exchange) -> ProduceRequest | None:
    message = exchange.request_view
    if message is None:
        return None
    root, values = layout(message.plan.root), message.values
    places = partition_places(message.plan.root, "topic_data", "partition_data")
    index_at, records_at = places.fields["index"], places.fields["records"]
    found = []
    for topic in values[places.topics] or ():
        name = topic_name(exchange, topic[places.name])
        for part in topic[places.partitions] or ():
            records = part[records_at]
            found.append(PartitionProduceData(name, part[index_at], len(records or b""), _first(records) if records else None))
    transactional = values[root["transactional_id"]] if "transactional_id" in root else None
    idempotent = [(part, part.batch) for part in found if part.batch is not None and part.batch.producer_id >= 0]
    return ProduceRequest(values[root["acks"]], transactional, values[root["timeout_ms"]], found, idempotent)


def _first(records: bytes) -> Batch | None:
    try:
        entry = next(batches(records), None)
    except RecordsError:
        return None
    return entry if isinstance(entry, Batch) else None


def _results(exchange: Exchange) -> list[PartitionProduceResponse]:
    message = exchange.response_view
    if message is None:
        return []
    places = partition_places(message.plan.root, "responses", "partition_responses")
    index_at, error_at, offset_at = (places.fields[name] for name in ("index", "error_code", "base_offset"))
    start_at = places.fields.get("log_start_offset")
    found = []
    for topic in message.values[places.topics] or ():
        name = topic_name(exchange, topic[places.name])
        for part in topic[places.partitions] or ():
            error = part[error_at]
            text, leader = _error_details(message.plan, places.fields, part) if error else ("", -1)
            start = part[start_at] if start_at is not None else -1
            found.append(PartitionProduceResponse(name, part[index_at], error, text, leader, part[offset_at], start))
    return found


def _error_details(plan: Plan, part: Mapping[str, int], values: tuple[Any, ...]) -> tuple[str, int]:
    """The error message, and the leader that the broker names."""
    text, leader = "", -1
    if "error_message" in part:
        inner = layout(plan.root, "responses", "partition_responses", "record_errors")
        texts = [values[part["error_message"]]]
        texts += [e[inner["batch_index_error_message"]] for e in values[part["record_errors"]] or ()]
        text = next((t for t in texts if t), "")
    if "current_leader" in part and values[part["current_leader"]] is not None:
        inner = layout(plan.root, "responses", "partition_responses", "current_leader")
        leader = values[part["current_leader"]][inner["leader_id"]]
    return text[:200], leader
