"""The tables from message bodies: `errors`, `batches`, `records`, `groups` and `throttles`, exchange by exchange.

Each has a function that gives the rows of one exchange: the columns after those of `KEY`. These are the reference; for a sound
segment `bulk_batches` makes the rows of `batches` and `throttles` many exchanges at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from ...decoder import Direction, Exchange, Message, records
from ...decoder.codec.plan import plan
from ...decoder.codec.present import RECORD_APIS, Presenter
from ...decoder.errors import DecodeError
from ...decoder.schema import facts
from ...decoder.values import SchemaSource
from . import bodies
from .columns import KEY, Column, Table

ERRORS = Table(
    "errors",
    "error code that is not 0, anywhere in a response",
    (
        *KEY,
        Column("path", "string", "its place in the response, such as `topics[0].partitions[1].error_code`"),
        *bodies.TOPIC,
        Column("group_id", "string", "the group it concerns, also where only the request names it", null=True),
        Column("resource", "string", "a config's resource, a transactional id, a coordinator's key", null=True),
        Column("error_code", "int16", "Kafka's number"),
        Column("error", "string", "its name"),
        Column("error_message", "string", "the broker's message with it", null=True),
    ),
)
SIDE = Column("direction", "string", "`request` (produced) or `response` (fetched)")
BATCHES = Table(
    "batches",
    "record batch, or message of an old message set, in a request or response",
    (
        *KEY,
        SIDE,
        *bodies.TOPIC,
        Column("acks", "int16", "of a Produce request: 0, 1 or -1 (all)", null=True),
        Column("transactional_id", "string", "of a Produce request; a fetched batch has only the `producer_id`", null=True),
        Column("base_offset", "int64", "of the first record, as encoded", null=True),
        Column("last_offset", "int64", "of the last record", null=True),
        Column("high_watermark", "int64", "of the partition when it was fetched; as far as `last_offset` is below it, the consumer lags", null=True),
        Column("magic", "int16", "format: 0, 1 or 2", null=True),
        Column("codec", "string", "`none`, `gzip`, `snappy`, `lz4` or `zstd`", null=True),
        Column("record_count", "int32", "as in the batch; null for a compressed message set", null=True),
        Column("size_bytes", "int64", "of the whole batch, compressed as it is"),
        Column("timestamp_type", "string", "`create` or `log_append`", null=True),
        Column("base_timestamp_ms", "int64", "milliseconds since the epoch", null=True),
        Column("max_timestamp_ms", "int64", "milliseconds since the epoch", null=True),
        Column("producer_id", "int64", "-1 without idempotence", null=True),
        Column("producer_epoch", "int16", "", null=True),
        Column("base_sequence", "int32", "", null=True),
        Column("transactional", "bool", "", null=True),
        Column("control", "bool", "a transaction's marker", null=True),
        Column("aborted", "bool", "of an aborted transaction, which readers of committed records skip", null=True),
        Column("crc_ok", "bool", "the checksum matches the bytes", null=True),
        Column("problem", "string", "why it cannot be read, or that it is cut off", null=True),
    ),
)
RECORDS = Table(
    "records",
    "record that was produced or fetched; a record that was fetched twice appears twice",
    (
        *KEY,
        SIDE,
        *bodies.TOPIC,
        Column("offset", "int64", "as encoded: counted from 0 in a producer's batch"),
        Column("timestamp_ms", "int64", "milliseconds since the epoch; null in magic 0", null=True),
        Column("codec", "string", "`none`, `gzip`, `snappy`, `lz4` or `zstd`"),
        Column("control", "string", "the kind of a marker: `commit`, `abort`, `leader_change` ...", null=True),
        Column("aborted", "bool", "of an aborted transaction, as the response says: readers of committed records skip it"),
        Column("key_bytes", "int32", "size of the key; null without one", null=True),
        Column("value_bytes", "int32", "size of the value; null for a tombstone", null=True),
        Column("header_count", "int32", ""),
        Column("key", "json", "text, or decoded with a schema; `hex` for other bytes", True, True, True),
        Column("value", "json", "likewise", True, True, True),
        Column("headers", "json", "a list of `key` and `value`", True, True, True),
        Column("key_raw", "bytes", "the key's bytes", True, True, True),
        Column("value_raw", "bytes", "the value's bytes", True, True, True),
    ),
)
GROUPS = Table(
    "groups",
    "JoinGroup, SyncGroup and LeaveGroup, and ConsumerGroupHeartbeat that joins, leaves, fails or brings a new epoch",
    (
        *KEY,
        Column("group_id", "string", "the group"),
        Column("event", "string", "`join`, `sync`, `leave` or `heartbeat`"),
        Column("member_id", "string", "from the response, else from the request; null if in neither", null=True),
        Column("group_instance_id", "string", "of a static member", null=True),
        Column("generation", "int32", "the generation, or the member's epoch, in the response", null=True),
        Column("protocol", "string", "the assignor that was chosen", null=True),
        Column("members", "int32", "number of members, which the leader of a group gets when it joins", null=True),
        Column("latency_ns", "int64", "how long the response took; a join waits for the others", null=True),
        Column("error_code", "int16", "of the response as a whole"),
        Column("error", "string", "its name; null for 0", null=True),
    ),
)
THROTTLES = Table(
    "throttles",
    "response with a throttle time above 0",
    (
        *KEY,
        Column(
            "throttle_ms", "int32", "how long the client must wait, in milliseconds; brokers hold it back for the same time"
        ),
        Column("request_size", "int32", "value of the 4 size bytes; null without a request", null=True),
        Column("response_size", "int32", "value of the 4 size bytes"),
    ),
)
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
