"""Records of Kafka's own topics: keys and values of coordinators, metadata records, control records.

Coordinators write a key that starts with its type and a value that starts with its version, both int16 (until Kafka 3.9 the
type was called the key's version). Metadata records have no key; their value is a frame: uvarint 1, uvarint type, uvarint
version, body. Credentials in them are masked.
Sources: Kafka's CoordinatorRecordSerde, AbstractApiMessageSerde, ControlRecordType, ControlRecordUtils.
"""

from __future__ import annotations

from functools import cache

from ..codec.metadata_log import TOPIC_ID, hide_fields, record_head, types
from ..codec.payload import decode, fields_of, leading_int16, newest
from ..errors import DecodeError, UnknownApi, UnknownVersion
from ..records.record import CONTROL_TYPES
from ..schema import facts
from ..schema.notation import Definition
from ..schema.plan import Fields

COORDINATORS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
METADATA = frozenset({"__cluster_metadata", "__remote_log_metadata"})
INTERNAL = COORDINATORS | METADATA

CLUSTER_METADATA_ID = TOPIC_ID
"""The topic id of ``__cluster_metadata`` in every cluster."""


@cache
def _types(topic: str, suffix: str) -> dict[int, Definition]:
    found = facts.extra(f"embedded/{topic.strip('_')}").values()
    return {d.key: d for d in found if d.key is not None and d.name.endswith(suffix)}


def of_record(topic: str, key: bytes | None, value: bytes | None) -> Fields | None:
    """Decode a record of an internal topic. None for other topics, and for records without a key (coordinators) or value.

    Coordinators: ``{"type": "OffsetCommit", "key": {...}, "value_version": 4, "value": {...}}``; the value of a tombstone is
    None. Metadata: ``{"type": "TopicRecord", "version": 0, "value": {...}}``. Raises `DecodeError`, whose ``partial`` has
    what was read.
    """
    if topic in COORDINATORS:
        return None if key is None else _coordinator_record(topic, key, value)
    if topic in METADATA:
        return None if value is None else _metadata_record(topic, value)
    return None


def _coordinator_record(topic: str, key: bytes, value: bytes | None) -> Fields:
    number = leading_int16(key, f"a key of {topic}")
    known = _types(topic, "Key")
    if number not in known:
        raise UnknownApi(f"record type {number} is not known in {topic}")
    name = known[number].name.removesuffix("Key")
    out: Fields = {"type": name, "key": fields_of(decode(known[number].name, 0, key, 2))}
    if value is None:
        return {**out, "value_version": None, "value": None}
    # Key types 0 and 1 (0.8.2 and newer) share the value and its versions.
    value_name = "OffsetCommitValue" if name == "LegacyOffsetCommit" else f"{name}Value"
    try:
        version = out["value_version"] = leading_int16(value, value_name)
        out["value"] = fields_of(decode(value_name, version, value, 2))
    except DecodeError as fault:
        fault.partial = {**out, "value": fault.partial}
        raise
    return out


def _metadata_record(topic: str, value: bytes) -> Fields:
    name, version, body = record_head(value, types(f"embedded/{topic.strip('_')}"), topic)
    return {"type": name, "version": version, "value": hide_fields(name, fields_of(decode(name, version, value, body)))}


def of_control(key: bytes | None, value: bytes | None) -> Fields | None:
    """Decode a control record of any topic: ``{"type": "commit", "key_version": 0, "value": {...}}``.

    ``value`` is None if there is none or the type is unknown (``type`` is then ``unknown(n)``). Returns None for a key that is
    too short. Raises `DecodeError` for a damaged value.
    """
    if key is None or len(key) < 4:
        return None
    number = int.from_bytes(key[2:4], "big", signed=True)
    out = {"type": f"unknown({number})", "key_version": leading_int16(key, "a control record"), "value": None}
    if not 0 <= number < len(CONTROL_TYPES):
        return out
    out["type"], name = CONTROL_TYPES[number]
    if value is not None:
        # All values start with their version; those of transaction markers have it before the definition's fields.
        version = leading_int16(value, name)
        if version < 0:
            raise UnknownVersion(f"version {version} is not valid", api=name)
        fields = fields_of(decode(name, newest(name, version), value, 2 if name == "EndTxnMarker" else 0))
        out["value"] = {"version": version, **fields}
    return out
