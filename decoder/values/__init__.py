"""Keys and values of records: what they are, and how to show them.

    view(record.value)                                  # null, empty, text, json, confluent..., hex
    files = SchemaFiles()
    files.add(read_schema("orders.avsc", data), topic="orders")
    view(record.value, registry=files, topic="orders")  # avro, decoded

Schemas come from a `SchemaSource`: files (`SchemaFiles`), a schema registry (`captures.reading.schema_registry`), or both
(`FirstOf`). fastavro reads Avro and protobuf reads Protobuf; the extra ``values`` installs them, and without a schema
neither is needed. `view` never raises, whatever the bytes are.
"""

from __future__ import annotations

from .errors import MissingLibrary, SchemaError
from .plain import DecodedValue
from .schema import FirstOf, Schema, SchemaFiles, SchemaSource, Target, json_schema, read_schema
from .view import View, ViewKind, view
from .wire import Framed, unframe

__all__ = [
    "DecodedValue", "FirstOf", "Framed", "MissingLibrary", "Schema", "SchemaError", "SchemaFiles", "SchemaSource", "Target",
    "View", "ViewKind", "json_schema", "read_schema", "unframe", "view",
]  # fmt: skip
