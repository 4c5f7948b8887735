"""What a refused batch itself shows of the reason (KIP-467 gives a message, but not all brokers do)."""

from __future__ import annotations

import re
from typing import NamedTuple

from ....connection.exchange import Exchange
from ....records import Batch, RecordsError
from ....schema.facts import error_code
from ...engine.formatting import duration, several
from ...models.produce import PartitionProduceData, ProduceRequest

_LOOKED_AT = 1000
"""Records of a batch, at most."""
_BYTES = 1 << 20
_ZSTD, _ZSTD_VERSION = 4, 7
_MS = 1_000_000
_DAY_MS = 86_400_000
_NEAR_MS = 366 * _DAY_MS
"""Timestamps in another unit are recognised when they are then within a year of the request."""
_UNITS = (("seconds", 1000.0), ("microseconds", 1e-3), ("nanoseconds", 1e-6))


_OF_TIMESTAMP = re.compile(r"(?i)timestamps?\b(?!\s*=)")
"""A message about timestamps, not one that prints a record with its own."""
_OF_VALIDATOR = re.compile(r"(?i)interceptor|validat|schema")
_SCHEMA_ID = 5
"""Bytes of Confluent's wire format before the value: 0, and the schema's id."""


class Shown(NamedTuple):
    """What the batch shows; `why` and `remedy` replace the general ones of the error unless they are empty."""

    seen: str
    why: str = ""
    remedy: str = ""


def shown(code: int, exchange: Exchange, sent: ProduceRequest, part: PartitionProduceData, text: str) -> Shown | None:
    """What the batch of a partition shows of the reason why it was refused; None if nothing. `text`: the broker's message."""
    if code == _ACKS:
        return _acks(sent.acks)
    batch = part.batch
    if batch is None:
        return None
    if code == _CODEC:
        return _codec(batch, exchange)
    if code == _REQUEST:
        return _request(batch, sent, part)
    if code == _FORMAT:
        return _format(batch)
    if code == _TIMESTAMP or (code == _RECORD and _OF_TIMESTAMP.search(text)):
        return _timestamps(batch, exchange, final=True)
    return _record(batch, exchange, text) if code == _RECORD else None


def _acks(acks: int) -> Shown:
    if acks in (-1, 0, 1):
        return Shown(
            f"the request has acks={acks}",
            "Kafka accepts 0, 1 and -1 (all). This broker refuses one of them: it is another product that supports fewer, or a proxy in front "
            "of it has rules of its own.",
            "set another acks in the producer (all is what most products demand), or look into the product's documentation",
        )
    return Shown(f"the request has acks={acks}")


def _codec(batch: Batch, exchange: Exchange) -> Shown:
    if batch.codec == _ZSTD and exchange.api_version < _ZSTD_VERSION:
        return Shown(
            f"the batch is compressed with zstd in Produce v{exchange.api_version}",
            f"zstd needs Produce v{_ZSTD_VERSION} (KIP-110, Kafka 2.1): the client must not use it in an older version.",
            "set compression.type=lz4, or upgrade the broker; report it to the developers of the client",
        )
    return Shown(
        f"the batch is compressed with {batch.codec_name}, which Produce v{exchange.api_version} allows",
        "Apache Kafka supports gzip, snappy, lz4 and (since 2.1) zstd. This broker does not support this codec: most likely it is another "
        "product (Azure Event Hubs accepts gzip only).",
        "set compression.type to one that the product supports (gzip, none)",
    )


def _request(batch: Batch, sent: ProduceRequest, part: PartitionProduceData) -> Shown | None:
    if part.size > batch.end:
        return Shown(
            f"the partition has more than one batch ({part.size} bytes, the first has {batch.end - batch.start})",
            "Since Produce v3, a request has exactly one batch for each partition.",
            "report it to the developers of the client",
        )
    if batch.transactional and not sent.transactional_id:
        return Shown(
            "the batch is part of a transaction, but the request has no transactional id",
            "Both must agree (KIP-98).",
            "report it to the developers of the client",
        )
    return None


def _format(batch: Batch) -> Shown | None:
    if batch.producer_id >= 0 or batch.transactional or not batch.codec:
        return None
    return Shown(
        f"the batch is of format 2, without a producer id, compressed with {batch.codec_name}",
        "Apache Kafka answers so only where a topic has an older message format and the batch needs format 2 (a producer id, a "
        f"transaction); this one does not. So the broker is most likely another product that does not accept {batch.codec_name}: Azure "
        "Event Hubs answers so to codecs other than gzip.",
        "switch compression off in the producer (compression.type=none; franz-go: ProducerBatchCompression(NoCompression())), or use a "
        "codec that the product supports; with Apache Kafka, raise the topic's message format or upgrade the brokers",
    )


def _timestamps(batch: Batch, exchange: Exchange, final: bool) -> Shown | None:
    """`final`: whether the error says that it is about timestamps, so that near ones matter, too."""
    now = (exchange.request_time_ns or 0) // _MS
    worst = max((batch.base_timestamp, batch.max_timestamp), key=lambda each: abs(each - now))
    distance = worst - now
    if worst == -1:
        return Shown("its records have no timestamp (-1)") if final else None
    for unit, factor in _UNITS:
        if abs(distance) > _NEAR_MS and abs(worst * factor - now) < _NEAR_MS:
            return Shown(
                f"the batch has timestamp {worst}: these are {unit}, not milliseconds",
                f"Kafka's timestamps are milliseconds since 1970. Read as such, this one is {_far(distance)} the request, beyond what the "
                "topic allows (message.timestamp.before.max.ms, message.timestamp.after.max.ms, KIP-937).",
                f"let the application give timestamps in milliseconds instead of {unit}",
            )
    if not final and abs(distance) < _DAY_MS:
        return None
    if abs(distance) < _DAY_MS // 24:
        return Shown(
            f"its timestamps are within {duration(abs(distance) * _MS)} of the request",
            "They are close to this capture's clock, so the broker's clock is wrong, or the topic allows very little "
            "(message.timestamp.before.max.ms, message.timestamp.after.max.ms, KIP-937).",
            "compare the broker's clock with this machine's; check the topic's two settings",
        )
    return Shown(f"the batch has timestamp {worst}, which is {_far(distance)} the request")


def _far(distance_ms: int) -> str:
    hours = abs(distance_ms) / (_DAY_MS / 24)
    amount = f"{hours:.1f} h" if hours < 48 else f"{hours / 24:,.0f} days"
    return f"{amount} {'after' if distance_ms > 0 else 'before'}"


def _record(batch: Batch, exchange: Exchange, text: str) -> Shown | None:
    if batch.producer_id >= 0 > batch.base_sequence:
        return Shown(
            f"the batch of producer id {batch.producer_id} has the sequence {batch.base_sequence}",
            "The sequences of an idempotent producer count from 0 for each partition, and begin at 0 again after 2147483647 (KIP-98). "
            + (
                "A large negative number is an overflow: the client library counted on instead."
                if batch.base_sequence < -1
                else "-1 is for batches without a producer id."
            ),
            "upgrade the client library, or report it to its developers; a restart of the producer begins at 0 again",
        )
    if batch.record_count != batch.last_offset_delta + 1:
        return Shown(
            f"its header says {several(batch.announced, 'record')}, but its last offset delta is {batch.last_offset_delta}",
            "In a batch that a producer sends, offsets count from 0 without a gap.",
            "report it to the developers of the client, or of what changes records on the way",
        )
    total = keyless = 0
    try:
        for record in batch.records(limit=_BYTES):
            total += 1
            keyless += record.key is None
            if total >= _LOOKED_AT:
                break
    except RecordsError as error:
        return Shown(
            f"its records cannot be decoded here either ({error})",
            "The batch is not what its header says.",
            "report it to the developers of the client, or of what changes records on the way",
        )
    if _OF_VALIDATOR.search(text):
        return _validated(batch)
    far = _timestamps(batch, exchange, final=False)
    if keyless and (not text or "key" in text.lower()):
        what = f"{keyless} of {several(total, 'record')} have no key" if total > 1 else "its record has no key"
        return Shown(
            f"{what}; {far.seen}" if far is not None else what,
            "A compacted topic (cleanup.policy=compact) takes no records without a key: that is the likeliest reason. The others are "
            "timestamps out of bounds, and offsets or counts that do not match; the latter are right here.",
            "give every record a key, or take compact out of the topic's cleanup.policy",
        )
    return far


def _validated(batch: Batch) -> Shown:
    """Records that something behind the broker's own checks refuses."""
    values = [record.value for record in batch.records(limit=_BYTES) if record.value is not None]
    ids = sorted({int.from_bytes(v[1:_SCHEMA_ID], "big") for v in values if v[:1] == b"\0" and len(v) >= _SCHEMA_ID})
    framed = f"its values begin with schema id {', '.join(map(str, ids[:3]))}" if ids else "its values do not begin with 0 and a schema id"
    return Shown(
        framed,
        "The records are whole: a validator of the broker or of a proxy refuses them. In Confluent Server that is confluent.value.schema.validation "
        "(or confluent.key.schema.validation) of the topic: each record must begin with the id of a schema that Schema Registry has for the topic "
        "under the broker's naming strategy.",
        "the broker's error message may name the validator; "
        + (
            "compare the ids with the subject of the topic in Schema Registry, and the subject name strategies of client and topic "
            "(confluent.value.subject.name.strategy); check that the brokers reach it (confluent.schema.registry.url)"
            if ids
            else "use a serializer that registers schemas (Avro, Protobuf, JSON Schema of Schema Registry), or turn the validation of the topic off"
        ),
    )


_ACKS, _CODEC, _REQUEST, _TIMESTAMP, _RECORD, _FORMAT = map(
    error_code,
    (
        "INVALID_REQUIRED_ACKS", "UNSUPPORTED_COMPRESSION_TYPE", "INVALID_REQUEST", "INVALID_TIMESTAMP", "INVALID_RECORD",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    ),
)  # fmt: skip
