"""Metrics that clients push (KIP-714): OpenTelemetry's MetricsData in Protobuf, which may be compressed.

A reader of Protobuf's wire format and a table of messages. Fields keep OTLP's names; attributes become plain dicts, and a
metric has its ``data`` under the name of its kind (``gauge``, ``sum``, ``histogram`` ...).
Sources: opentelemetry/proto/metrics/v1, common/v1 and resource/v1; the protobuf encoding guide.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .. import records
from ..errors import BadLength, BadUtf8, DecodeError, Truncated
from ..schema.plan import Fields, Value
from ..wire.varint import VarintCut, VarintTooLong, read_uvarint, zigzag

LIMIT = 8 << 20
"""Bytes that a push may decompress to; brokers refuse more than 1 MiB by default."""

MAX_FIELDS = 40_000
"""Protobuf fields of one push: each becomes an object many times its size on the wire."""

MAX_DEPTH = 16
"""Levels of lists and maps in attribute values."""

_API = "MetricsData"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _U64, _I64 = struct.Struct("<d"), struct.Struct("<Q"), struct.Struct("<q")


class _Field(NamedTuple):
    name: str
    type: str  # a scalar of _SCALARS, or the name of a message
    repeated: bool = False


_ATTRIBUTES = _Field("attributes", "KeyValue", True)
_TIMES = {2: _Field("start_time_unix_nano", "fixed64"), 3: _Field("time_unix_nano", "fixed64")}

_MESSAGES: dict[str, dict[int, _Field]] = {
    "MetricsData": {1: _Field("resource_metrics", "ResourceMetrics", True)},
    "ResourceMetrics": {
        1: _Field("resource", "Resource"),
        2: _Field("scope_metrics", "ScopeMetrics", True),
        3: _Field("schema_url", "string"),
    },
    "Resource": {1: _ATTRIBUTES, 2: _Field("dropped_attributes_count", "uint")},
    "ScopeMetrics": {
        1: _Field("scope", "Scope"),
        2: _Field("metrics", "Metric", True),
        3: _Field("schema_url", "string"),
    },
    "Scope": {
        1: _Field("name", "string"),
        2: _Field("version", "string"),
        3: _ATTRIBUTES,
        4: _Field("dropped_attributes_count", "uint"),
    },
    "Metric": {
        1: _Field("name", "string"),
        2: _Field("description", "string"),
        3: _Field("unit", "string"),
        5: _Field("gauge", "Numbers"),
        7: _Field("sum", "Numbers"),
        9: _Field("histogram", "Histogram"),
        10: _Field("exponential_histogram", "ExponentialHistogram"),
        11: _Field("summary", "Summary"),
        12: _Field("metadata", "KeyValue", True),
    },
    "Numbers": {
        1: _Field("data_points", "NumberPoint", True),
        2: _Field("aggregation_temporality", "uint"),
        3: _Field("is_monotonic", "bool"),
    },
    "Histogram": {1: _Field("data_points", "HistogramPoint", True), 2: _Field("aggregation_temporality", "uint")},
    "ExponentialHistogram": {
        1: _Field("data_points", "ExponentialPoint", True),
        2: _Field("aggregation_temporality", "uint"),
    },
    "Summary": {1: _Field("data_points", "SummaryPoint", True)},
    "NumberPoint": {
        **_TIMES,
        4: _Field("as_double", "double"),
        5: _Field("exemplars", "Exemplar", True),
        6: _Field("as_int", "sfixed64"),
        7: _ATTRIBUTES,
        8: _Field("flags", "uint"),
    },
    "HistogramPoint": {
        **_TIMES,
        4: _Field("count", "fixed64"),
        5: _Field("sum", "double"),
        6: _Field("bucket_counts", "fixed64", True),
        7: _Field("explicit_bounds", "double", True),
        8: _Field("exemplars", "Exemplar", True),
        9: _ATTRIBUTES,
        10: _Field("flags", "uint"),
        11: _Field("min", "double"),
        12: _Field("max", "double"),
    },
    "ExponentialPoint": {
        1: _ATTRIBUTES,
        **_TIMES,
        4: _Field("count", "fixed64"),
        5: _Field("sum", "double"),
        6: _Field("scale", "sint"),
        7: _Field("zero_count", "fixed64"),
        8: _Field("positive", "Buckets"),
        9: _Field("negative", "Buckets"),
        10: _Field("flags", "uint"),
        11: _Field("exemplars", "Exemplar", True),
        12: _Field("min", "double"),
        13: _Field("max", "double"),
        14: _Field("zero_threshold", "double"),
    },
    "Buckets": {1: _Field("offset", "sint"), 2: _Field("bucket_counts", "uint", True)},
    "SummaryPoint": {
        **_TIMES,
        4: _Field("count", "fixed64"),
        5: _Field("sum", "double"),
        6: _Field("quantile_values", "Quantile", True),
        7: _ATTRIBUTES,
        8: _Field("flags", "uint"),
    },
    "Quantile": {1: _Field("quantile", "double"), 2: _Field("value", "double")},
    "Exemplar": {
        2: _Field("time_unix_nano", "fixed64"),
        3: _Field("as_double", "double"),
        4: _Field("span_id", "bytes"),
        5: _Field("trace_id", "bytes"),
        6: _Field("as_int", "sfixed64"),
        7: _Field("filtered_attributes", "KeyValue", True),
    },
    "KeyValue": {1: _Field("key", "string"), 2: _Field("value", "AnyValue")},
    "AnyValue": {
        1: _Field("string_value", "string"),
        2: _Field("bool_value", "bool"),
        3: _Field("int_value", "int"),
        4: _Field("double_value", "double"),
        5: _Field("array_value", "Values"),
        6: _Field("kvlist_value", "KeyValues"),
        7: _Field("bytes_value", "bytes"),
    },
    "Values": {1: _Field("values", "AnyValue", True)},
    "KeyValues": {1: _Field("values", "KeyValue", True)},
}

_WIRE = {
    "uint": _VARINT, "int": _VARINT, "sint": _VARINT, "bool": _VARINT,
    "double": _FIXED64, "fixed64": _FIXED64, "sfixed64": _FIXED64,
}  # fmt: skip
_FIXED = {"double": _DOUBLE, "fixed64": _U64, "sfixed64": _I64}


def metrics(data: bytes, compression: int = 0) -> Fields:
    """The metrics of a PushTelemetry. `compression`: its ``compression_type`` (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd).

    Unknown fields are ignored. Raises `DecodeError` for anything else; offsets count in the decompressed bytes.
    """
    try:
        data = records.decompress(compression, data, limit=LIMIT)
    except records.RecordsError as fault:
        raise BadLength(f"cannot be decompressed: {fault}", api=_API, path="metrics") from None
    if len(data) > LIMIT:
        raise BadLength(f"{len(data)} bytes of metrics; at most {LIMIT} are read", api=_API, path="metrics")
    read: Fields = _Reader(data).message("MetricsData", 0, len(data), "", 0)
    return read


def _fault(kind: type[DecodeError], text: str, path: str, offset: int) -> DecodeError:
    return kind(text, api=_API, path=path, offset=offset)


class _Reader:
    def __init__(self, data: bytes):
        self.data = data
        self.left = MAX_FIELDS

    def message(self, name: str, at: int, end: int, path: str, depth: int) -> Value:
        if depth > MAX_DEPTH * 2:
            raise _fault(BadLength, f"values are nested more than {MAX_DEPTH} deep", path, at)
        fields = _MESSAGES[name]
        out: Fields = {}
        while at < end:
            start = at
            tag, at = self.varint(at, end, path)
            field, wire = fields.get(tag >> 3), tag & 7
            self.count(1, path, start)
            if not tag >> 3:
                raise _fault(BadLength, "a protobuf field with number 0", path, start)
            value_end = self.skip(wire, at, end, path)
            if wire == _BYTES:
                _, at = self.varint(at, end, path)
            if field is not None:
                where = f"{path}.{field.name}" if path else field.name
                self.put(out, field, wire, at, value_end, where, depth)
            at = value_end
        return _plain(name, out)

    def put(self, out: Fields, field: _Field, wire: int, at: int, end: int, path: str, depth: int) -> None:
        if field.type in _WIRE:
            if wire == _BYTES and field.repeated:
                out.setdefault(field.name, []).extend(self.packed(field.type, at, end, path))
                return
            if wire != _WIRE[field.type]:
                raise _fault(BadLength, f"wire type {wire} for a {field.type}", path, at)
            value: Value = self.scalar(field.type, at, end, path)[0]
        elif wire != _BYTES:
            raise _fault(BadLength, f"wire type {wire} for a {field.type}", path, at)
        elif field.type == "bytes":
            value = self.data[at:end]
        elif field.type == "string":
            try:
                value = self.data[at:end].decode()
            except UnicodeDecodeError as error:
                raise _fault(BadUtf8, "not UTF-8", path, at + error.start) from None
        else:
            if field.repeated:
                path = f"{path}[{len(out.get(field.name, ()))}]"
            value = self.message(field.type, at, end, path, depth + 1)
        if field.repeated:
            out.setdefault(field.name, []).append(value)
        else:
            out[field.name] = value

    def count(self, fields: int, path: str, at: int) -> None:
        self.left -= fields
        if self.left < 0:
            raise _fault(BadLength, f"more than {MAX_FIELDS} fields", path, at)

    def packed(self, kind: str, at: int, end: int, path: str) -> list[Value]:
        values = []
        while at < end:
            self.count(1, path, at)
            value, at = self.scalar(kind, at, end, path)
            values.append(value)
        return values

    def scalar(self, kind: str, at: int, end: int, path: str) -> tuple[Value, int]:
        if layout := _FIXED.get(kind):
            if at + 8 > end:
                raise _fault(Truncated, f"expected 8 bytes, only {end - at} left", path, at)
            return layout.unpack_from(self.data, at)[0], at + 8
        value, at = self.varint(at, end, path)
        if kind == "bool":
            return bool(value), at
        if kind == "sint":
            return zigzag(value), at
        return value - (1 << 64) if kind == "int" and value >> 63 else value, at

    def skip(self, wire: int, at: int, end: int, path: str) -> int:
        """The end of a value."""
        start = at
        if wire == _VARINT:
            _, at = self.varint(at, end, path)
        elif wire == _BYTES:
            size, at = self.varint(at, end, path)
            at += size
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise _fault(BadLength, f"wire type {wire} is not in use", path, start)
        if at > end:
            raise _fault(Truncated, f"a value of {at - start} bytes, only {end - start} left", path, start)
        return at

    def varint(self, at: int, end: int, path: str) -> tuple[int, int]:
        try:
            value, after = read_uvarint(self.data, at, end, 10)
        except VarintTooLong:
            raise _fault(BadLength, "a varint of more than 10 bytes", path, at) from None
        except VarintCut:
            raise _fault(Truncated, "the data ends inside a varint", path, at) from None
        return value & 0xFFFFFFFFFFFFFFFF, after


def _plain(name: str, fields: Fields) -> Value:
    """Values without the messages that wrap them."""
    if name == "AnyValue":
        return next(reversed(fields.values()), None)
    if name == "Values":
        return fields.get("values", [])
    if name == "KeyValue":
        return fields.get("key", ""), fields.get("value")
    if name == "KeyValues":
        return dict(fields.get("values", []))
    for attributes in ("attributes", "metadata", "filtered_attributes"):
        if attributes in fields:
            fields[attributes] = dict(fields[attributes])
    return fields
