"""Records areas as fields: batches, their headers, and the records inside, with keys and values hidden by default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...decoder import records
from ...decoder.records.batch import HEADER_SIZE
from ...decoder.values import SchemaSource, view
from ..times import moment
from .safe import visible

_MOST_RECORDS = 500
"""Records shown of one batch; a batch can hold a million."""
_MOST_TEXT = 400
_MOST_BYTES = 1 << 12
_MOST_OUTPUT = 64 << 20
"""Bytes that decompressing one batch for the screen may yield."""


class Schemas(NamedTuple):
    """Where the schemas of keys and values are (`decoder.values`), and of which topic the records are."""

    source: SchemaSource | None = None
    topic: str | None = None


NO_SCHEMAS = Schemas()


@dataclass(slots=True)
class RecordField:
    """One line below a records field; as `fields.Field`, with byte ranges counted from the area's first byte.

    ``hidden``: the bytes that hold keys and values.
    """

    depth: int
    name: str
    value: str = ""
    role: str = ""
    span: tuple[int, int] | None = None
    below: int = 0
    folded: bool = False
    hidden: tuple[int, int] | None = None


def content(data: bytes | None, values_shown: bool, schemas: Schemas = NO_SCHEMAS, is_key: bool = False) -> str:
    """Bytes as text: their number, or, when asked for, what they say, and what kind of bytes they are unless they are
    plain text (`decoder.values`)."""
    if data is None:
        return "null"
    if not values_shown:
        return f"<{len(data)} bytes>"
    if schemas.source is None:
        found = view(data[:_MOST_BYTES])
    else:  # a schema fits the whole or not at all
        found = view(data, registry=schemas.source, topic=schemas.topic, is_key=is_key)
    more = f" … <{len(data)} bytes>" if len(data) > _MOST_BYTES or len(found.text) > _MOST_TEXT else ""
    note = f", {visible(found.note[:_MOST_TEXT])}" if found.note and schemas.source is not None else ""
    text = found.text[:_MOST_TEXT]
    if found.kind == "empty":
        return '""'
    if found.kind == "text":
        return f'"{visible(text)}"{more}'
    schema = f", schema id {found.schema_id}" if found.schema_id is not None else ""
    shown = text if found.kind.endswith("json") or found.value is not None else f"0x{text}"
    return f"{visible(shown)}{more} ({found.kind}{schema}{note})"


def record_fields(data: bytes, values_shown: bool = False, schemas: Schemas = NO_SCHEMAS) -> list[RecordField]:
    """The lines for everything in a records area; damage is a line of its own, never an exception."""
    lines: list[RecordField] = []
    reached = 0
    try:
        for i, entry in enumerate(records.batches(data)):
            reached = entry.end
            first = len(lines)
            if isinstance(entry, records.Partial):
                missing = "" if entry.missing is None else f", {entry.missing} bytes are missing"
                text = f"cut by the broker at its byte limit{missing}: consumers fetch it again"
                lines.append(RecordField(0, f"partial {i}", text, "muted", (entry.start, entry.end)))
                lines[first].hidden = (entry.start, entry.end)
                continue
            if isinstance(entry, records.Batch):
                lines.append(_batch_line(i, entry))
                lines.extend(_batch_header(entry))
            else:
                lines.append(_message_line(i, entry))
            lines.extend(_records(entry, values_shown, schemas))
            lines[first].below = len(lines) - first - 1
    except records.RecordsError as fault:
        lines.append(RecordField(0, "(damaged)", visible(str(fault)), "undecoded", (reached, len(data))))
        lines[-1].hidden = (reached, len(data))
    return lines


def _batch_line(i: int, batch: records.Batch) -> RecordField:
    kind = [batch.codec_name if batch.codec else "uncompressed"]
    kind += ["transactional"] * batch.transactional + ["control"] * batch.control
    text = f"offsets {batch.base_offset}..{batch.last_offset}, {batch.record_count} records, {', '.join(kind)}"
    text = f"{text}, crc ok" if batch.crc_ok else f"! CRC BAD, {text}"
    role = "muted" if batch.crc_ok else "error"
    return RecordField(
        0, f"batch {i}", text, role, (batch.start, batch.end), hidden=(batch.start + HEADER_SIZE, batch.end)
    )


def _batch_header(batch: records.Batch) -> Iterator[RecordField]:
    flags = [batch.codec_name, f"{batch.timestamp_type} time"]
    flags += ["transactional"] * batch.transactional + ["control"] * batch.control
    if batch.crc_ok:
        crc = f"0x{batch.crc:08x} ok"
    else:
        crc = f"! 0x{batch.crc:08x} BAD, the bytes give 0x{batch.crc_computed:08x}"
    layout = (
        ("base_offset", 8, f"{batch.base_offset}"),
        ("batch_length", 4, f"{batch.batch_length}"),
        ("partition_leader_epoch", 4, f"{batch.partition_leader_epoch}"),
        ("magic", 1, f"{batch.magic}"),
        ("crc", 4, crc),
        ("attributes", 2, f"0x{batch.attributes & 0xFFFF:04x} ({', '.join(flags)})"),
        ("last_offset_delta", 4, f"{batch.last_offset_delta}"),
        ("base_timestamp", 8, _moment(batch.base_timestamp)),
        ("max_timestamp", 8, _moment(batch.max_timestamp)),
        ("producer_id", 8, f"{batch.producer_id}"),
        ("producer_epoch", 2, f"{batch.producer_epoch}"),
        ("base_sequence", 4, f"{batch.base_sequence}"),
        ("record_count", 4, f"{batch.record_count}"),
    )
    at = batch.start
    yield RecordField(1, "batch header", f"{HEADER_SIZE} bytes", "muted", (at, at + HEADER_SIZE), len(layout), True)
    for name, width, value in layout:
        role = "error" if name == "crc" and not batch.crc_ok else "number"
        yield RecordField(2, name, value, role, (at, at + width))
        at += width


def _message_line(i: int, message: records.Message) -> RecordField:
    codec = f", {message.codec_name}" if message.codec else ""
    crc = "crc ok" if message.crc_ok else f"! CRC BAD, the bytes give 0x{message.crc_computed:08x}"
    text = f"offset {message.offset}, magic {message.magic}{codec}, {crc}"
    # The header ends with the timestamp of magic 1; keys and values are behind it.
    start = message.start + (18 if message.magic == 0 else 26)
    role = "muted" if message.crc_ok else "error"
    return RecordField(0, f"message {i}", text, role, (message.start, message.end), hidden=(start, message.end))


def _records(entry: records.Batch | records.Message, values_shown: bool, schemas: Schemas) -> list[RecordField]:
    lines: list[RecordField] = []
    where = _uncompressed_spans(entry)
    try:
        for i, record in enumerate(entry.records(limit=_MOST_OUTPUT)):
            if i == _MOST_RECORDS:
                count = entry.record_count if isinstance(entry, records.Batch) else "the"
                lines.append(RecordField(1, "…", f"{_MOST_RECORDS} of {count} records shown", "muted"))
                break
            lines.extend(_record(record, values_shown, where[i] if i < len(where) else (entry.start, entry.end), schemas))
    except records.RecordsError as fault:
        lines.append(RecordField(1, "(damaged)", visible(str(fault)), "undecoded", (entry.start, entry.end)))
    return lines


def _uncompressed_spans(entry: records.Batch | records.Message) -> list[tuple[int, int]]:
    """Where each record lies; of compressed ones nothing better can be said than the whole batch."""
    if not isinstance(entry, records.Batch) or entry.codec or entry.record_count < 0:
        return []
    found: list[tuple[int, int]] = []
    count = min(entry.record_count, _MOST_RECORDS)
    try:
        found.extend(records.spans(entry.data, entry.start + HEADER_SIZE, entry.end, count))
    except records.RecordsError:
        pass  # the damaged record says so itself
    return found


def _record(record: records.Record, values_shown: bool, span: tuple[int, int], schemas: Schemas) -> list[RecordField]:
    key = content(record.key, values_shown, schemas, is_key=True)
    value = content(record.value, values_shown, schemas)
    brief = f"key {key[:40]}  value {value[:60]}"
    if record.control is not None:
        brief = f"{record.control.name} marker"
    line = RecordField(1, f"record {record.offset}", brief, "muted", span, folded=True)
    lines = [
        line,
        RecordField(2, "offset", f"{record.offset}", "number", span),
        RecordField(2, "timestamp", "none" if record.timestamp is None else _moment(record.timestamp), "number", span),
        RecordField(2, "key", key, "masked" if not values_shown else "string", span),
        RecordField(2, "value", value, "masked" if not values_shown else "string", span),
    ]
    if record.control is not None:
        epoch = record.control.coordinator_epoch
        text = record.control.name + ("" if epoch is None else f", coordinator epoch {epoch}")
        lines.append(RecordField(2, "control", text, "number", span))
    for name, header in record.headers:
        label = visible(name) if isinstance(name, str) else "0x" + name.hex()
        lines.append(RecordField(2, f'header "{label}"', content(header, values_shown), "masked", span))
    line.below = len(lines) - 1
    return lines


def _moment(ms: int) -> str:
    """A record's time: the number as it is on the wire, and as a date where it can be one."""
    if 0 < ms < 32_503_680_000_000:
        return f"{ms} ({moment(ms * 1_000_000, 3)})"
    return f"{ms}" + (" (none)" if ms == -1 else "")
