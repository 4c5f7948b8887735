"""Avro values through fastavro, whose reader trusts its input: so every value is walked with bounds first.

The walk follows the schema through the bytes and refuses what would hurt: lengths beyond the data, blocks of items
that take no bytes, recursion without end, more values than a person could look at. Only what passes, to the last
byte, is given to fastavro. Source: the Avro specification, binary encoding.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

from .errors import MissingLibrary, SchemaError, SchemaMismatch
from .plain import plain, too_deep
from .walk_avro import Walk, walk_of, walk_through


class AvroSchema:
    """An Avro schema, ready to read values. `schema` stands for itself: every named type is defined within."""

    kind = "avro"

    def __init__(self, schema: Any, name: str):
        import fastavro

        self.name = name
        self._schema = fastavro.parse_schema(schema, {})
        self._without_logical = fastavro.parse_schema(_without_logical(schema), {})
        self._walk: Walk = walk_of(schema)

    def decode(self, data: bytes, *, framed: bool = False) -> tuple[Any, str]:
        """See `Schema`."""
        import fastavro

        walk_through(self._walk, data)
        try:
            return plain(fastavro.schemaless_reader(io.BytesIO(data), self._schema, None)), ""
        except Exception:  # the library's own: dates out of range, UUIDs that are none, strings that are not UTF-8
            pass
        try:
            value = fastavro.schemaless_reader(io.BytesIO(data), self._without_logical, None)
            return plain(value), "a logical type does not fit its value; the plain types are shown"
        except Exception as error:
            raise SchemaMismatch(str(error) or type(error).__name__) from None


def avro_schema(text: str, name: str = "the Avro schema", references: Iterable[str] = ()) -> AvroSchema:
    """The schema in Avro's JSON; `references` are schemas whose types it names, each after those it needs itself.

    SchemaError when it is none, MissingLibrary without fastavro.
    """
    try:
        import fastavro
    except ImportError:
        raise MissingLibrary("an Avro schema", "fastavro") from None
    try:
        named: dict[str, Any] = {}
        parsed: Any = None
        for each in (*references, text):
            raw = json.loads(each)
            if too_deep(raw):
                raise SchemaError(f"{name}: the schema is nested too deep")
            parsed = fastavro.parse_schema(raw, named)
        own = parsed.get("name") if isinstance(parsed, dict) else None
        return AvroSchema(_whole(parsed, named, set()), own or name)
    except SchemaError:
        raise
    except Exception as error:  # fastavro raises several kinds, and some are KeyErrors
        raise SchemaError(f"{name}: not an Avro schema ({type(error).__name__}: {error})") from None


def _whole(schema: Any, named: dict[str, Any], defined: set[str]) -> Any:
    """`schema` with every name's definition where it is first used, as Avro wants it, and without fastavro's marks."""
    if isinstance(schema, str):
        return _whole(named[schema], named, defined) if schema in named and schema not in defined else schema
    if isinstance(schema, list):
        return [_whole(each, named, defined) for each in schema]
    if "name" in schema:
        if schema["name"] in defined:
            return schema["name"]
        defined.add(schema["name"])
    out = {key: value for key, value in schema.items() if not key.startswith("__")}
    if "fields" in out:
        out["fields"] = [{"name": f["name"], "type": _whole(f["type"], named, defined)} for f in out["fields"]]
    for key in ("items", "values"):
        if key in out:
            out[key] = _whole(out[key], named, defined)
    return out


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: value for key, value in schema.items() if key != "logicalType"}
    if "fields" in out:
        out["fields"] = [{**field, "type": _without_logical(field["type"])} for field in out["fields"]]
    for key in ("items", "values"):
        if key in out:
            out[key] = _without_logical(out[key])
    return out
