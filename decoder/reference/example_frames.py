"""Example frames: one for each message of the protocol, with all its fields, and which field each of its bytes belongs to.

Values are plausible for the field's name. Nullable and tagged fields are filled in, too, so that an example shows every field.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from ..codec.codec import decode_request, decode_response, encode_request, encode_response, read_values
from ..codec.message import Message, is_error_code
from ..codec.walk import FieldSpan
from ..records.record import Record
from ..records.write import encode_batch, encode_messages
from ..schema import facts
from ..schema.plan import SIZES, FieldPlan, Fields, Plan, StructPlan, Value, extra_plan, field_paths, plan
from .fields import HEADER

CORRELATION_ID, CLIENT_ID = 7, "shop"
TAGGED_FIELDS = "_tagged_fields"
_TIME_MS = 1_700_000_000_000
_BYTES = bytes.fromhex("01020304")
_UUID = uuid.UUID("6f1d0b0e-52c3-4d55-9b6a-1f6a3c2e8d41")
_INDEX = re.compile(r"\[\d+\]")
_MAGICS = {facts.api_key("Produce"): (2, 3), facts.api_key("Fetch"): (2, 4)}
"""By API: the versions that brought messages of magic 1 and batches of magic 2."""

_NUMBERS = {
    "throttle_time_ms": 0, "port": 9092, "partition": 3, "partition_index": 3, "index": 3, "partition_id": 3, "partitions": 3,
    "correlation_id": CORRELATION_ID, "acks": -1, "producer_id": 4000, "producer_epoch": 0, "session_id": 0, "generation_id": 12,
    "member_epoch": 12, "api_key": 18, "min_version": 0, "max_version": 4, "num_partitions": 6, "replication_factor": 3,
    "max_bytes": 52_428_800, "partition_max_bytes": 1_048_576, "min_bytes": 1, "max_wait_ms": 500, "timestamp": _TIME_MS,
}  # fmt: skip
"""By field name. Names of arrays stand for their items."""
_NUMBERS_BY_END = (
    ("timestamp_ms", _TIME_MS), ("timestamp", _TIME_MS), ("_ms", 30_000), ("epoch", 5), ("offset", 1042), ("_bytes", 4096),
    ("port", 9092),
)  # fmt: skip
_WORDS = {
    "client_id": CLIENT_ID, "client_host": "/10.0.0.7", "client_software_name": "apache-kafka-java", "client_software_version": "4.3.1",
    "cluster_id": "nBk4o2ZGTh6Uo0bGsbY1Aw", "member_id": "shop-1", "group_instance_id": "shop-a", "instance_id": "shop-a",
    "rack": "zone-a", "rack_id": "zone-a", "protocol_type": "consumer", "protocol_name": "range", "protocols": "range",
    "mechanism": "SCRAM-SHA-256", "mechanisms": "SCRAM-SHA-256", "group_state": "Stable", "states_filter": "Stable",
    "transaction_state": "Ongoing", "principal": "User:alice", "principal_name": "alice", "principal_type": "User", "user": "alice",
    "server_assignor": "uniform", "assignor_name": "uniform", "resource_name": "orders", "config_name": "retention.ms",
    "configuration_keys": "retention.ms", "feature": "metadata.version", "subscribed_topic_regex": "orders-.*", "reason": "",
    "error_message": "", "group": "billing", "groups": "billing", "topic": "orders", "topics": "orders", "listener": "PLAINTEXT",
}  # fmt: skip
_WORDS_BY_END = (
    ("host", "kafka-1.example"), ("group_id", "billing"), ("group_ids", "billing"), ("groups_names", "billing"),
    ("transactional_id", "payments"), ("transactional_ids", "payments"), ("topic_name", "orders"), ("topic_names", "orders"),
    ("topic", "orders"), ("topics", "orders"), ("message", ""),
)  # fmt: skip
_WORDS_BY_ENTITY = {"topicName": "orders", "groupId": "billing", "transactionalId": "payments"}
_NAMES_BY_API = {"AlterConfigs": "retention.ms", "IncrementalAlterConfigs": "retention.ms", "DescribeConfigs": "retention.ms"}
"""What a field `name` holds, where that is no topic."""


# --- which field a byte belongs to ---------------------------------------------------------------------------


class PartRole(StrEnum):
    """What of a field bytes are."""

    VALUE = "value"
    """The value, with its length; an array of numbers or strings as a whole."""
    COUNT = "number of items"
    MARK = "mark: null or not"
    """Of a nullable struct; all of it if it is null."""
    TAGS = "tagged fields: how many, tag and size"


class FramePart(NamedTuple):
    """A run of bytes: ``frame[start:end]`` belongs to the field at `path`. Paths of header fields begin with `HEADER`."""

    path: str
    role: PartRole
    start: int
    end: int


def frame_parts(message: Message) -> list[FramePart]:
    """All bytes of a frame, in order and each once, header included."""
    name = "RequestHeader" if message.plan.kind == "request" else "ResponseHeader"
    of = extra_plan("headers", name, message.plan.header_version)
    values, end = read_values(of, message.frame, 0)
    head = Message(of, values, message.frame[:end])
    return [*_parts(head, 0, end, HEADER), *_parts(message, end, len(message.frame), "")]


def _parts(message: Message, position: int, end: int, prefix: str) -> Iterator[FramePart]:
    """The bytes of each field that are in no field inside it."""
    fields = {each.path: each.field for each in field_paths(message.plan.root)}
    around = [FieldSpan("", position, end)]
    # A field inside another one comes after it, also where it is all of it.
    spans = sorted((s for s in message.map() if s.start < s.end), key=lambda s: (s.start, -s.end, len(s.path)))
    for span in [*spans, FieldSpan("", end, end)]:
        while len(around) > 1 and span.start >= around[-1].end:
            inner = around.pop()
            if position < inner.end:
                yield _part(inner, fields, position, inner.end, prefix)
                position = inner.end
        if position < span.start:
            yield _part(around[-1], fields, position, span.start, prefix)
            position = span.start
        around.append(span)


def _part(inside: FieldSpan, fields: dict[str, FieldPlan], start: int, end: int, prefix: str) -> FramePart:
    """Bytes of `inside` that are in no field inside it."""
    path, field = inside.path, fields.get(_INDEX.sub("", inside.path))
    if field is not None and field.struct is None:
        return FramePart(prefix + path, PartRole.VALUE, start, end)
    if field is not None and field.array and not path.endswith("]"):
        return FramePart(prefix + path, PartRole.COUNT, start, end)
    if field is not None and field.nullable and not field.array and start == inside.start:
        return FramePart(prefix + path, PartRole.MARK, start, end)
    return FramePart(f"{prefix}{path}{'.' if path else ''}{TAGGED_FIELDS}", PartRole.TAGS, start, end)


# --- values --------------------------------------------------------------------------------------------------


def example(kind: str, api_key: int, version: int) -> Message:
    """The example of a ``"request"`` or ``"response"``. Raises `UnknownApi` or `UnknownVersion`."""
    of = plan(kind, api_key, version)
    fields = _struct(of, of.root)
    if kind == "request":
        return decode_request(
            encode_request(api_key, version, fields, correlation_id=CORRELATION_ID, client_id=CLIENT_ID)
        )
    frame = encode_response(api_key, version, fields, correlation_id=CORRELATION_ID)
    return decode_response(frame, api_key=api_key, api_version=version)


def _struct(of: Plan, struct: StructPlan) -> Fields:
    return {field.name: _value(of, field) for field in struct.fields}


def _value(of: Plan, field: FieldPlan) -> Value:
    value = _struct(of, field.struct) if field.struct is not None else _primitive(of, field)
    return [value] if field.array else value


def _primitive(of: Plan, field: FieldPlan) -> Value:
    if field.type == "bool":
        return True
    if field.type == "uuid":
        return _UUID
    if field.type == "bytes":
        return _BYTES
    if field.type == "records":
        return _records(of)
    if field.type == "float64":
        return 1024.0
    return _word(of, field) if field.type == "string" else _number(field)


def _word(of: Plan, field: FieldPlan) -> str:
    if field.entity in _WORDS_BY_ENTITY:
        return _WORDS_BY_ENTITY[field.entity]
    if field.name == "name":
        return _NAMES_BY_API.get(of.api, "orders")
    if field.name in _WORDS:
        return _WORDS[field.name]
    return next((word for end, word in _WORDS_BY_END if field.name.endswith(end)), "example")


def _number(field: FieldPlan) -> int:
    if is_error_code(field):
        return 0
    number = _NUMBERS.get(field.name)
    if number is None:
        number = next((each for end, each in _NUMBERS_BY_END if field.name.endswith(end)), 1)
    return number if -1 <= number < 1 << (8 * SIZES[field.type] - 1) else 1


def _records(of: Plan) -> bytes:
    record = Record(0, _TIME_MS, b"key", b"value")
    first, batches = _MAGICS.get(of.api_key, (0, 0))
    if of.version < batches:
        return encode_messages([record], magic=int(of.version >= first))
    return encode_batch([record], producer_id=-1)
