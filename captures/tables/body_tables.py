"""The tables from message bodies: `errors`, `batches`, `records`, `groups` and `throttles`, exchange by exchange.

Each has a function that gives the rows of one exchange: the columns after those of `KEY`. These are the reference; for a sound
segment `bulk_batches` makes the rows of `batches` and `throttles` many exchanges at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from ...decoder import Direction, Exchange, Message, records
from ...decoder.errors import DecodeError
from ...decoder.present import RECORD_APIS, Presenter
from ...decoder.schema import facts
from ...decoder.schema.plan import plan
from ...decoder.values import SchemaSource
from . import bodies
from .columns import KEY, TABLES

ERRORS = TABLES["errors"]
BATCHES = TABLES["batches"]
RECORDS = TABLES["records"]
GROUPS = TABLES["groups"]
THROTTLES = TABLES["throttles"]
RECORD_API_KEYS = facts.api_key_set(*RECORD_APIS)
_EVENTS = {"JoinGroup": "join", "SyncGroup": "sync", "LeaveGroup": "leave", "ConsumerGroupHeartbeat": "heartbeat"}
GROUP_APIS = facts.api_key_set(*_EVENTS)
_JOINS_OR_LEAVES = (0, -1, -2)  # the member epochs of KIP-848 that are no epochs
THROTTLE_TIME = "throttle_time_ms"
SHOWN = ("key", "value", "headers")
"""The columns that showing values adds."""


def error_rows(exchange: Exchange) -> Iterator[dict[str, Any]]:
    answered = exchange.masked_message(Direction.RESPONSE)
    if answered is None:
        return
    asked = None
    for leaf in bodies.errors(answered):
        if asked is None:
            asked = _group_of_request(exchange)
        about = {**asked, **leaf.about}
        yield {
            "path": leaf.path,
            **bodies.topic_columns(about, exchange),
            "group_id": about.get("group_id"),
            "resource": about.get("resource"),
            "error_code": leaf.value,
            "error": facts.error_name(leaf.value),
            "error_message": leaf.message,
        }


def _group_of_request(exchange: Exchange) -> dict[str, Any]:
    """The group that the request names as a whole: the response may not repeat it."""
    group = _value(exchange.request_message, "group_id")
    return {"group_id": group} if isinstance(group, str) else {}


class Area(NamedTuple):
    """Records in a body: of which side, and what they are about."""

    direction: str
    data: bytes
    about: dict[str, Any]
    high_watermark: int | None
    message: Message
    path: str

    @property
    def aborted(self) -> frozenset[int]:
        """Where the batches of aborted transactions start."""
        parent, dot, _ = self.path.rpartition(".")
        try:
            found = self.message[f"{parent}{dot}aborted_transactions"]
        except KeyError:  # not in this version
            return frozenset()
        return records.aborted_batches(self.data, records.aborted_in({"aborted_transactions": found}))


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
            mark = leaf.about.get(bodies.HIGH_WATERMARK, -1)
            about = bodies.topic_columns(leaf.about, exchange)
            yield Area(message.plan.kind, leaf.value, about, mark if mark >= 0 else None, message, leaf.path)


def batch_rows(exchange: Exchange) -> Iterator[dict[str, Any]]:
    empty = {column.name: None for column in BATCHES.columns[len(KEY) :]}
    for area in areas(exchange):
        known = {**empty, "direction": area.direction, **area.about, "high_watermark": area.high_watermark}
        end, aborted = 0, area.aborted
        if area.direction == "request" and exchange.request_message is not None:
            known |= {name: _value(exchange.request_message, name) for name in ("acks", "transactional_id")}
        try:
            for entry in records.batches(area.data):
                end = entry.end
                if not isinstance(entry, records.Partial):
                    known["aborted"] = entry.start in aborted
                yield {**known, **_batch_or_message(entry)}
                known["aborted"] = None
        except records.RecordsError as error:
            yield {**known, "size_bytes": len(area.data) - end, "problem": str(error)}


def _batch_or_message(entry: records.Batch | records.Message | records.Partial) -> dict[str, Any]:
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


def record_rows(
    exchange: Exchange, columns: frozenset[str], values: bool = False, schemas: SchemaSource | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of `records`; of the payload only `columns`, and null unless `values` are asked for.

    What cannot be read of an area is left out: the table `batches` has the reason.
    """
    presenter = Presenter(values, None, schemas)
    raw, payload = columns & {"key_raw", "value_raw"}, columns & set(SHOWN)
    for area in areas(exchange):
        aborted = area.aborted
        try:
            for entry in records.batches(area.data):
                if isinstance(entry, records.Partial):
                    continue
                codec = entry.codec_name
                for record in entry.records():
                    row = {
                        "direction": area.direction,
                        **area.about,
                        "offset": record.offset,
                        "timestamp_ms": record.timestamp,
                        "codec": codec,
                        "control": record.control.name if record.control is not None else None,
                        "aborted": entry.start in aborted,
                        "key_bytes": None if record.key is None else len(record.key),
                        "value_bytes": None if record.value is None else len(record.value),
                        "header_count": len(record.headers),
                    }
                    if payload and values:
                        shown = presenter.record(record, area.about["topic"])
                        row |= {name: shown.get(name) for name in SHOWN}
                    elif payload:
                        row |= dict.fromkeys(SHOWN)
                    if raw:
                        row["key_raw"] = record.key if values else None
                        row["value_raw"] = record.value if values else None
                    yield row
        except records.RecordsError:
            continue


def group_rows(exchange: Exchange) -> Iterator[dict[str, Any]]:
    asked, response = exchange.request_message, exchange.response_message
    if asked is None:
        return
    event, generation, members = _EVENTS[exchange.api], None, None
    leaving: Sequence[Any] = (_value(asked, "members") or ()) if event == "leave" else ()
    left = leaving[0] if len(leaving) == 1 else None  # a tool may remove several
    error = _value(response, "error_code") or 0
    if event == "join":
        generation, members = _value(response, "generation_id"), len(_value(response, "members") or ()) or None
    elif event == "sync":
        generation = _value(asked, "generation_id")
    elif event == "heartbeat":
        generation = _value(response, "member_epoch")
        before = asked["member_epoch"]
        if not error and before not in _JOINS_OR_LEAVES and generation in (None, before):
            return
        event = "leave" if before < 0 else "join" if before == 0 else event
    yield {
        "group_id": asked["group_id"],
        "event": event,
        "member_id": _value(response, "member_id") or _value(asked, "member_id") or (left and left.member_id) or None,
        "group_instance_id": _value(asked, "group_instance_id") or _value(asked, "instance_id") or (left and left.group_instance_id),
        "generation": generation,
        "protocol": _value(response, "protocol_name") or None,
        "members": members,
        "latency_ns": exchange.latency_ns,
        "error_code": error,
        "error": facts.error_name(error) if error else None,
    }


def _value(message: Message | None, name: str) -> Any:
    """A field at the top of a message; None where this version does not have it."""
    if message is None:
        return None
    for field, value in zip(message.plan.root.fields, message.values, strict=False):
        if field.name == name:
            return value
    return None


def throttle_rows(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """The throttle time of a sound response: what a malformed one has in its place is none."""
    message = exchange.response_message
    if message is None or message.trailing or exchange.undecoded is not None:
        return
    if has_throttle_time(exchange.api_key, exchange.api_version) and message[THROTTLE_TIME] > 0:
        sizes = {"request_size": exchange.request_size, "response_size": exchange.response_size}
        yield {"throttle_ms": message[THROTTLE_TIME], **sizes}


@cache
def has_throttle_time(api_key: int, api_version: int) -> bool:
    """Whether the response of this version has a throttle time."""
    try:
        return any(field.name == THROTTLE_TIME for field in plan("response", api_key, api_version).root.fields)
    except DecodeError:  # a version that is not known
        return False
