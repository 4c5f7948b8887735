"""A message as JSON can hold it and as a person may see it: names kept, secrets masked, record areas opened.

Keys and values of records are payload: they are described by their size unless `values` asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from . import embedded, records
from .message import Message, jsonable
from .plan import StructPlan
from .secrets import shown

Json = Any


TopicName = Callable[[bytes], str | None]


def present(message: Message, values: bool = False, topic_name: TopicName | None = None) -> dict[str, Json]:
    """The body as nested dicts of JSON's types. `values`: show keys, values and headers of records too.

    `topic_name`: from a topic id's 16 bytes to its name; what it knows stands as ``_topic_name`` beside the id.
    """
    out: dict[str, Json] = _struct(message.plan.root, shown(message), values, topic_name)
    return out


def _struct(plan: StructPlan, fields: dict[str, Any], values: bool, topic_name: TopicName | None) -> dict[str, Json]:
    out: dict[str, Json] = dict(jsonable({k: v for k, v in fields.items() if k not in {f.name for f in plan.fields}}))
    for field in plan.fields:
        value = fields[field.name]
        if value is None:
            out[field.name] = None
        elif field.type == "records":
            out[field.name] = record_area(value, values)
        elif field.struct:
            struct = field.struct
            out[field.name] = (
                [_struct(struct, item, values, topic_name) for item in value]
                if field.array
                else _struct(struct, value, values, topic_name)
            )
        else:
            out[field.name] = jsonable(value)
            if field.name == "topic_id" and topic_name and not field.array and not fields.get("name"):
                name = topic_name(value.bytes)
                if name is not None:
                    out["_topic_name"] = name
    return out


RECORD_APIS = frozenset({"Produce", "Fetch", "FetchSnapshot", "ShareFetch"})
"""APIs whose embedded payloads are records, and with that shown only when values are."""
MOST_PAYLOADS = 1000


def payloads(message: Message, request: Message | None = None, values: bool = False) -> list[dict[str, Json]]:
    """What is inside of a message's byte fields (see `embedded`): path, kind, fields; secrets masked."""
    if message.api in RECORD_APIS and not values:
        return []
    found = islice(embedded.of(message, request), MOST_PAYLOADS)
    return [{"path": p.path, "kind": p.kind, "fields": jsonable(p.fields)} for p in found]


def record_area(data: bytes, values: bool = False) -> list[dict[str, Json]]:
    """Every batch (magic 2) or message (magic 0, 1) of a record area, its records within; what cannot be read says why."""
    found: list[dict[str, Json]] = []
    try:
        for entry in records.batches(data):
            found.append(_entry(entry, values))
    except records.RecordsError as error:
        found.append({"unreadable": str(error)})
    return found


def _entry(entry: records.Batch | records.Message | records.Partial, values: bool) -> dict[str, Json]:
    out: dict[str, Json]
    if isinstance(entry, records.Partial):
        return {"partial": True, "size": entry.end - entry.start}
    if isinstance(entry, records.Batch):
        out = {
            "base_offset": entry.base_offset,
            "size": entry.end - entry.start,
            "magic": entry.magic,
            "crc_ok": entry.crc_ok,
            "codec": entry.codec_name,
            "timestamp_type": entry.timestamp_type,
            "transactional": entry.transactional,
            "control": entry.control,
            "partition_leader_epoch": entry.partition_leader_epoch,
            "last_offset_delta": entry.last_offset_delta,
            "base_timestamp": entry.base_timestamp,
            "max_timestamp": entry.max_timestamp,
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "base_sequence": entry.base_sequence,
            "record_count": entry.record_count,
        }
    else:
        out = {
            "offset": entry.offset,
            "size": entry.end - entry.start,
            "magic": entry.magic,
            "crc_ok": entry.crc_ok,
            "codec": entry.codec_name,
        }
    try:
        out["records"] = [_record(r, values) for r in entry.records()]
    except records.RecordsError as error:
        out["unreadable"] = str(error)
    return out


def _record(record: records.Record, values: bool) -> dict[str, Json]:
    out: dict[str, Json] = {"offset": record.offset, "timestamp": record.timestamp}
    if record.control is not None:
        return {**out, "control": record.control.name}
    if values:
        out["key"], out["value"] = payload(record.key), payload(record.value)
        out["headers"] = [{"key": payload(key), "value": payload(value)} for key, value in record.headers]
    else:
        out["key_size"] = None if record.key is None else len(record.key)
        out["value_size"] = None if record.value is None else len(record.value)
        out["headers"] = len(record.headers)
    return out


def payload(data: bytes | str | None) -> Json:
    """Text where the bytes are UTF-8, else ``{"hex": ...}``."""
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}
