"""The table `batches`: one row per record batch (magic 2) or message of a message set (magic 0, 1) that was on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...decoder import Exchange, facts, records
from ...decoder.present import RECORD_APIS
from . import bodies
from .columns import KEY, Column, Table

API_KEYS = frozenset(facts.api_key(name) for name in RECORD_APIS)
SIDE = Column("direction", "string", "`request` (produced) or `response` (fetched)")
TABLE = Table(
    "batches",
    "record batch, or message of an old message set, in a request or response",
    (
        *KEY,
        SIDE,
        *bodies.TOPIC,
        Column("acks", "int16", "of a Produce request: 0, 1 or -1 (all)", null=True),
        Column("base_offset", "int64", "of the first record, as the bytes say", null=True),
        Column("last_offset", "int64", "of the last record", null=True),
        Column("magic", "int16", "format: 0, 1 or 2", null=True),
        Column("codec", "string", "`none`, `gzip`, `snappy`, `lz4` or `zstd`", null=True),
        Column("record_count", "int32", "as the batch says; null for a compressed message set", null=True),
        Column("size_bytes", "int64", "of the whole batch, compressed as it is"),
        Column("timestamp_type", "string", "`create` or `log_append`", null=True),
        Column("base_timestamp_ms", "int64", "milliseconds since the epoch", null=True),
        Column("max_timestamp_ms", "int64", "milliseconds since the epoch", null=True),
        Column("producer_id", "int64", "-1 without idempotence", null=True),
        Column("producer_epoch", "int16", "", null=True),
        Column("base_sequence", "int32", "", null=True),
        Column("transactional", "bool", "", null=True),
        Column("control", "bool", "a transaction's marker", null=True),
        Column("crc_ok", "bool", "the sum fits the bytes", null=True),
        Column("problem", "string", "why it cannot be read, or that it is cut off", null=True),
    ),
)


class Area(NamedTuple):
    """Records in a body: of which side, and what they are about."""

    direction: str
    data: bytes
    about: dict[str, Any]


def areas(exchange: Exchange) -> Iterator[Area]:
    """The record areas of an exchange."""
    if exchange.api not in RECORD_APIS:
        return
    for kind in ("request", "response"):
        if not bodies.has_records(kind, exchange.api_key, exchange.api_version):
            continue  # and need not be decoded
        message = exchange.request_message if kind == "request" else exchange.response_message
        if message is None:
            continue
        for leaf in bodies.record_areas(message):
            yield Area(message.plan.kind, leaf.value, bodies.named(leaf.about, exchange))


def rows(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """The columns behind those of `KEY`."""
    empty = {column.name: None for column in TABLE.columns[len(KEY) :]}
    for area in areas(exchange):
        known = {**empty, "direction": area.direction, **area.about}
        end = 0
        if area.direction == "request" and exchange.request_message is not None:
            known["acks"] = exchange.request_message["acks"]
        try:
            for entry in records.batches(area.data):
                end = entry.end
                yield {**known, **_entry(entry)}
        except records.RecordsError as error:
            yield {**known, "size_bytes": len(area.data) - end, "problem": str(error)}


def _entry(entry: records.Batch | records.Message | records.Partial) -> dict[str, Any]:
    size = entry.end - entry.start
    if isinstance(entry, records.Partial):
        return {"base_offset": entry.base_offset, "magic": entry.magic, "size_bytes": size, "problem": "cut off"}
    if isinstance(entry, records.Message):
        return {
            "base_offset": entry.offset,
            "last_offset": entry.offset,
            "magic": entry.magic,
            "codec": entry.codec_name,
            "record_count": None if entry.codec else 1,
            "size_bytes": size,
            "timestamp_type": entry.timestamp_type,
            "base_timestamp_ms": entry.timestamp,
            "max_timestamp_ms": entry.timestamp,
            "crc_ok": entry.crc_ok,
        }
    last = entry.last_offset
    return {
        "base_offset": entry.base_offset,
        "last_offset": last if -(1 << 63) <= last < 1 << 63 else None,
        "magic": entry.magic,
        "codec": entry.codec_name,
        "record_count": entry.record_count,
        "size_bytes": size,
        "timestamp_type": entry.timestamp_type,
        "base_timestamp_ms": entry.base_timestamp,
        "max_timestamp_ms": entry.max_timestamp,
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "base_sequence": entry.base_sequence,
        "transactional": entry.transactional,
        "control": entry.control,
        "crc_ok": entry.crc_ok,
    }
