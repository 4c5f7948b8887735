"""Avro values. fastavro decodes them; its reader trusts its input, so every value is walked with bounds first.

The walk refuses lengths beyond the data, blocks of items without bytes, endless recursion, and more values than anybody could
look at. Only bytes that pass to the last one are given to fastavro. Source: the Avro specification, binary encoding.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

from .errors import MissingLibrary, SchemaError, SchemaMismatch
from .plain import DecodedValue, Json, plain, too_deep
from .walk_avro import Walk, walk_of, walk_through


class AvroSchema:
    """An Avro schema. Every type that `schema` names is defined in it."""

    kind = "avro"

    def __init__(self, schema: Json, name: str):
        import fastavro

        self.name = name
        self._schema = fastavro.parse_schema(schema, {})
        self._without_logical = fastavro.parse_schema(_without_logical(schema), {})
        self._walk: Walk = walk_of(schema)

    def decode(self, data: bytes, *, framed: bool = False) -> DecodedValue:
        """See `Schema`."""
        import fastavro

        walk_through(self._walk, data)
        try:
            return DecodedValue(plain(fastavro.schemaless_reader(io.BytesIO(data), self._schema, None)))
        except Exception:  # the library's, for dates out of range, bad UUIDs, strings that are not UTF-8; read again below
            pass
        try:
            value = fastavro.schemaless_reader(io.BytesIO(data), self._without_logical, None)
            return DecodedValue(plain(value), "a logical type does not match its value; the plain types are shown")
        except Exception as error:  # fastavro documents no class for values that do not fit
            raise SchemaMismatch(str(error) or type(error).__name__) from None


def avro_schema(text: str, name: str = "the Avro schema", references: Iterable[str] = ()) -> AvroSchema:
    """The schema in Avro's JSON. `references`: schemas whose types it names, each after those that it needs itself.

    Raises `SchemaError` for a bad schema, `MissingLibrary` without fastavro.
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
    except Exception as error:  # fastavro raises many classes, KeyError among them
        raise SchemaError(f"{name}: not an Avro schema ({type(error).__name__}: {error})") from None


def _whole(schema: Json, named: dict[str, Json], defined: set[str]) -> Json:
    """`schema` with each named type defined where it is first used, as Avro wants it, and without fastavro's own keys."""
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


def _without_logical(schema: Json) -> Json:
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
