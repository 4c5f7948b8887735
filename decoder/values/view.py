"""One key or value: what kind of bytes it is, and how to show it.

Tried in this order: absent or empty; a schema id at the beginning; a schema for the topic; JSON; UTF-8; hexadecimal.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple

from ...diagnostics import contained
from .errors import SchemaError, SchemaMismatch
from .plain import DecodedValue, Json, read_json
from .schema import Schema, SchemaSource
from .wire import Framed, unframe

LIMIT = 1 << 20
"""Bytes of a key or value that are read by default (Kafka's default for a whole batch)."""


class ViewKind(StrEnum):
    """What the bytes of a key or value are."""

    NULL = "null"
    EMPTY = "empty"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    CONFLUENT = "confluent"
    """a schema id in front, its schema unknown"""
    CONFLUENT_JSON = "confluent-json"
    CONFLUENT_AVRO = "confluent-avro"
    CONFLUENT_PROTOBUF = "confluent-protobuf"
    HEX = "hex"


class View(NamedTuple):
    """How to show a key or value.

    ``text``: for people; control characters are kept, so a screen must make them safe. ``value``: the decoded value in
    JSON's types, or None. ``schema_id``: the id at the beginning, or None. ``note``: a remark for people, or ``""``.
    """

    kind: ViewKind
    text: str
    value: Json = None
    schema_id: int | None = None
    note: str = ""


def view(
    data: bytes | None,
    *,
    registry: SchemaSource | None = None,
    topic: str | None = None,
    is_key: bool = False,
    limit: int = LIMIT,
) -> View:
    """What the bytes of a key or value are, and how to show them. `registry` finds schemas for `topic`, `is_key` and schema ids.

    If there are more than `limit` bytes, only the beginning is shown, as text or hexadecimal. Never raises: errors in
    schemas and values become the note.
    """
    if data is None:
        return View(ViewKind.NULL, "")
    if not data:
        return View(ViewKind.EMPTY, "")
    framed = unframe(data)
    if len(data) > limit:
        return _truncated(data, limit, framed)
    if framed is not None and (found := _framed(data, framed, registry)) is not None:
        return found
    try:
        schema = None if registry is None else registry.for_topic(topic, is_key)
    except SchemaError as error:
        return _by_content(data)._replace(schema_id=framed.schema_id if framed else None, note=str(error))
    if schema is not None:
        return _by_schema(data, framed, schema)
    if framed is not None:
        return _without_schema(data, framed, registry)
    return _by_content(data)


def _framed(data: bytes, framed: Framed, registry: SchemaSource | None) -> View | None:
    """A value decoded by the schema with its id; None if no source knows the id."""
    try:
        schema = None if registry is None else registry.schema(framed.schema_id)
    except SchemaError as error:
        return View(ViewKind.CONFLUENT, data.hex(), None, framed.schema_id, str(error))
    if schema is None:
        return None
    try:
        value, note = _decode(schema, framed.payload, True)
    except SchemaMismatch as error:
        note = f"does not match schema {framed.schema_id} ({schema.name}): {error}"
        return View(ViewKind.HEX, data.hex(), None, framed.schema_id, note)
    return View(ViewKind(f"confluent-{schema.kind}"), _json(value), value, framed.schema_id, note)


def _decode(schema: Schema, data: bytes, framed: bool) -> DecodedValue:
    try:
        return schema.decode(data, framed=framed)
    except SchemaMismatch:
        raise
    except Exception as error:  # a schema's own code, which may be another program's: it must not end a listing
        contained("decoding a value by its schema", error, reported=True)
        raise SchemaMismatch(f"{type(error).__name__}: {error}") from None


def _by_schema(data: bytes, framed: Framed | None, schema: Schema) -> View:
    """A value decoded by the schema for its topic, with or without a schema id at the beginning."""
    fault = ""
    if framed is not None:
        try:
            value, note = _decode(schema, framed.payload, True)
            return View(ViewKind(f"confluent-{schema.kind}"), _json(value), value, framed.schema_id, note)
        except SchemaMismatch as error:
            fault = str(error)
    try:
        value, note = _decode(schema, data, False)
        return View(ViewKind(schema.kind), _json(value), value, None, note)
    except SchemaMismatch as error:
        note = f"does not match {schema.name}: {fault or error}"
        return View(ViewKind.HEX, data.hex(), None, framed.schema_id if framed else None, note)


def _without_schema(data: bytes, framed: Framed, registry: SchemaSource | None) -> View:
    """Bytes that begin like the wire format. JSON can be recognised; Avro and Protobuf cannot."""
    schema_id = framed.schema_id
    if framed.payload[:1] in (b"{", b"["):
        try:
            value = read_json(framed.payload)
            return View(ViewKind.CONFLUENT_JSON, framed.payload.decode(), value, schema_id)
        except SchemaMismatch:
            pass
    missing = "no schema was given" if registry is None else "which is not known"
    return View(ViewKind.CONFLUENT, data.hex(), None, schema_id, f"schema {schema_id}, {missing}")


def _by_content(data: bytes) -> View:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return View(ViewKind.HEX, data.hex())
    if "\0" in text:
        return View(ViewKind.HEX, data.hex())  # text has no zero bytes: a number or struct whose bytes happen to be UTF-8
    if text.lstrip()[:1] in ("{", "["):
        try:
            return View(ViewKind.JSON, text, read_json(data))
        except SchemaMismatch as error:
            return View(ViewKind.TEXT, text, None, None, str(error) if "nested" in str(error) else "")
    return View(ViewKind.TEXT, text)


def _truncated(data: bytes, limit: int, framed: Framed | None) -> View:
    note = f"only the first {limit} of {len(data)} bytes are shown"
    head = data[:limit]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        cut = error.reason == "unexpected end of data"  # the limit may split a character
        text = head[: error.start].decode() if cut else "\0"
    schema_id = framed.schema_id if framed else None
    if "\0" in text:
        return View(ViewKind.HEX if framed is None else ViewKind.CONFLUENT, head.hex(), None, schema_id, note)
    return View(ViewKind.TEXT, text, None, None, note)


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
