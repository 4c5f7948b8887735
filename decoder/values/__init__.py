"""Keys and values of records: what they are, and how to show them.

    view(record.value)                                  # null, empty, text, json, confluent..., hex
    files = SchemaFiles()
    files.add(read_schema("orders.avsc", data), topic="orders")
    view(record.value, registry=files, topic="orders")  # avro, decoded

Schemas come from a `SchemaSource`: files (`SchemaFiles`), a schema registry (`captures.reading.schema_registry`), or both
(`FirstOf`). Avro is read by fastavro and Protobuf by protobuf, which the extra ``barnabas[values]`` installs; without
a schema neither is needed. Bytes in, facts out: `view` raises nothing for whatever stands in a record.
"""

from __future__ import annotations

from .errors import MissingLibrary, SchemaError
from .schema import FirstOf, Schema, SchemaFiles, SchemaSource, Target, json_schema, read_schema
from .view import View, view
from .wire import Framed, unframe

__all__ = [
    "FirstOf", "Framed", "MissingLibrary", "Schema", "SchemaError", "SchemaFiles", "SchemaSource", "Target", "View",
    "json_schema", "read_schema", "unframe", "view",
]  # fmt: skip
