"""Encode: values in plan order to bytes, and nested dicts to values."""

from __future__ import annotations

import base64
import difflib
import struct as _struct
import uuid
from collections.abc import Callable, Mapping

from ..errors import EncodeError
from ..schema.plan import FieldPlan, PlanValue, StructPlan, Value, Values
from ..wire.varint import write_uvarint
from .decode import FIXED, LENGTH_FORMAT

_PACK = {name: _struct.Struct(">" + code).pack for name, code in FIXED.items()}
_COUNT = _struct.Struct(">i").pack


def encode_struct(plan: StructPlan, values: Values, out: bytearray, path: str = "") -> None:
    """Append a struct's bytes. Tagged fields that hold their default are left out, as Kafka does."""
    if len(values) != len(plan.fields) + plan.flexible:
        raise EncodeError(f"expected {len(plan.fields)} values, got {len(values)}", path or plan.name)
    for field, value in zip(plan.fields[: plan.untagged], values, strict=False):
        encode_field(field, value, out, f"{path}.{field.name}" if path else field.name)
    if not plan.flexible:
        return
    tagged: list[tuple[int, bytes]] = list(values[-1])
    for tag, position in plan.tags.items():
        field = plan.fields[position]
        if values[position] != field.default:
            body = bytearray()
            encode_field(field, values[position], body, f"{path}.{field.name}" if path else field.name)
            tagged.append((tag, bytes(body)))
    write_uvarint(out, len(tagged))
    for tag, data in sorted(tagged):
        write_uvarint(out, tag)
        write_uvarint(out, len(data))
        out += data


def encode_field(field: FieldPlan, value: PlanValue, out: bytearray, path: str = "") -> None:
    """Append one field's bytes, length and null mark included."""
    if field.array:
        _length(field, None if value is None else len(value), _COUNT, out)
        for i, item in enumerate(value or ()):
            _item(field, item, out, f"{path}[{i}]")
    elif field.type == "struct" and field.nullable:
        out.append(1 if value is not None else 0xFF if field.tag is None else 0)
        if value is not None:
            _item(field, value, out, path)
    else:
        _item(field, value, out, path)


def _item(field: FieldPlan, value: PlanValue, out: bytearray, path: str) -> None:
    if field.struct:
        encode_struct(field.struct, value, out, path)
    elif pack := _PACK.get(field.type):
        try:
            out += pack(value)
        except _struct.error as error:
            raise EncodeError(f"{value!r} is not a valid {field.type} ({error})", path) from None
    else:
        data = value.encode() if isinstance(value, str) else value
        pack_length = _struct.Struct(">" + LENGTH_FORMAT[field.type][0]).pack
        try:
            _length(field, None if data is None else len(data), pack_length, out)
        except _struct.error:
            raise EncodeError(f"{len(data)} bytes are too long for a {field.type}", path) from None
        if data:
            out += data


def _length(field: FieldPlan, length: int | None, pack: Callable[[int], bytes], out: bytearray) -> None:
    # A null that was read is written back even if it is not allowed; `value_from` refuses new ones.
    if field.compact:
        write_uvarint(out, 0 if length is None else length + 1)
    else:
        out += pack(-1 if length is None else length)


# --- dicts to values ---------------------------------------------------------------------------------------


def values_from(plan: StructPlan, given: Mapping[str, Value], path: str = "") -> Values:
    """Values from nested dicts with snake_case names. Missing fields take their defaults. Raises `EncodeError` for unknown names."""
    names = [f.name for f in plan.fields]
    for name in given:
        if name not in names and name not in (UNKNOWN_TAGS, TOPIC_NAME) and name.removeprefix(MEANING) not in names:
            near = difflib.get_close_matches(name, names, 1, 0.5)
            raise EncodeError(
                f"{plan.name} has no field {name!r} at this version" + (f", did you mean {near[0]!r}?" if near else ""),
                path,
            )
    values = [
        value_from(f, given[f.name], f"{path}.{f.name}" if path else f.name) if f.name in given else f.default
        for f in plan.fields
    ]
    if plan.flexible:
        unknown = given.get(UNKNOWN_TAGS, {})
        values.append(tuple((int(tag), _bytes(data, path)) for tag, data in dict(unknown).items()))
    made: Values = plan.named._make(values)
    return made


UNKNOWN_TAGS = "_unknown_tagged_fields"
TOPIC_NAME, MEANING = "_topic_name", "_"
"""The key of a topic's name that `present` adds beside a topic id; and how the key of what a null or empty field means
begins, before the field's name. They are no fields."""


def value_from(field: FieldPlan, value: Value, path: str) -> PlanValue:
    """One field's value in plan form. Raises `EncodeError` with `path` for a value that does not fit."""
    if value is None:
        if field.nullable or field.type == "records":
            return None
        raise EncodeError("must not be null", path)
    if field.array:
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
            raise EncodeError(f"expected a list, got {type(value).__name__}", path)
        return tuple(_one(field, item, f"{path}[{i}]") for i, item in enumerate(value))
    return _one(field, value, path)


def _one(field: FieldPlan, value: Value, path: str) -> PlanValue:
    if field.struct:
        if not isinstance(value, Mapping):
            raise EncodeError(f"expected an object with fields, got {type(value).__name__}", path)
        return values_from(field.struct, value, path)
    if field.type == "string":
        if not isinstance(value, str):
            raise EncodeError(f"expected a string, got {type(value).__name__}", path)
        return value
    if field.type == "records" and isinstance(value, (list, tuple)):
        return b"".join(_shown_entry(entry, f"{path}[{i}]") for i, entry in enumerate(value))
    if field.type in ("bytes", "records"):
        return _bytes(value, path)
    if field.type == "uuid":
        return _uuid(value, path)
    if field.type == "bool":
        if not isinstance(value, (bool, int)):
            raise EncodeError(f"expected true or false, got {value!r}", path)
        return bool(value)
    if field.type == "float64":
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise EncodeError(f"expected a whole number, got {value!r}", path)
    return value


def _shown_entry(entry: Value, path: str) -> bytes:
    """The bytes of a batch or message as `present` shows it."""
    if not isinstance(entry, Mapping) or "bytes" not in entry:
        raise EncodeError("expected bytes, or batches with their bytes, as `decode --json --show-values` shows them", path)
    return _bytes(entry["bytes"], f"{path}.bytes")


def _bytes(value: Value, path: str) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError:
            raise EncodeError("expected bytes, or text in hexadecimal", path) from None
    raise EncodeError(f"expected bytes, got {type(value).__name__}", path)


def _uuid(value: Value, path: str) -> bytes:
    """From `uuid.UUID`, 16 bytes, 36 characters, or Kafka's own 22 characters of base64url."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bytes) and len(value) == 16:
        return value
    if isinstance(value, str):
        try:
            if len(value) == 22:
                return base64.urlsafe_b64decode(value + "==")
            return uuid.UUID(value).bytes
        except ValueError:
            pass
    raise EncodeError(f"expected a UUID, got {value!r}", path)
