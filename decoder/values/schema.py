"""Schemas and their sources. Files are given as bytes, which the caller has read.

A `Schema` is Avro, Protobuf or JSON. A `SchemaSource` finds one by its id in a registry, or by its topic.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .errors import SchemaError, SchemaMismatch
from .plain import DecodedValue, read_json

_DESCRIPTORS = (".desc", ".pb", ".protoset", ".fds", ".binpb")


class Schema(Protocol):
    """The layout of a value's bytes."""

    @property
    def kind(self) -> str:
        """``"avro"``, ``"protobuf"`` or ``"json"``."""

    @property
    def name(self) -> str:
        """The full name of the record or message, or the name of the file."""

    def decode(self, data: bytes, *, framed: bool = False) -> DecodedValue:
        """Decode a value. `framed`: `data` follows a schema id. Raises `SchemaMismatch` if the bytes do not fit."""


class SchemaSource(Protocol):
    """Finds schemas. Both methods may raise `SchemaError`."""

    def schema(self, schema_id: int) -> Schema | None:
        """The schema with this id in a registry; None if this source has none."""

    def for_topic(self, topic: str | None, is_key: bool) -> Schema | None:
        """The schema of a topic's keys or values that have no schema id; None if this source has none."""


class JsonSchema:
    """JSON. A JSON schema itself is not applied."""

    kind = "json"

    def __init__(self, name: str = "JSON schema"):
        self.name = name

    def decode(self, data: bytes, *, framed: bool = False) -> DecodedValue:
        """See `Schema`."""
        return DecodedValue(read_json(data))


def json_schema(name: str = "JSON schema") -> Schema:
    """The schema of values that are JSON."""
    return JsonSchema(name)


class Target(NamedTuple):
    """The purpose of a schema file: a topic's values or keys, and for Protobuf the full name of the message."""

    topic: str | None = None
    is_key: bool = False
    message: str | None = None

    @classmethod
    def parse(cls, argument: str) -> tuple[str, Target]:
        """``"orders.avsc=orders:key"`` -> (file, target), with ``#package.Message`` at the end for Protobuf. Without a topic
        the file is for the values of every topic. Raises `SchemaError`."""
        file, _, rest = argument.rpartition("=") if "=" in argument else (argument, "", "")
        if not rest and "#" in file:
            file, _, message = file.rpartition("#")
            rest = f"#{message}"
        rest, _, message = rest.partition("#")
        topic, _, side = rest.partition(":")
        if not file or side not in ("", "key", "value"):
            raise SchemaError(f"{argument!r} is not FILE[=TOPIC[:key]][#MESSAGE], e.g. orders.avsc=orders")
        return file, cls(topic or None, side == "key", message or None)


def read_schema(name: str, data: bytes, message: str | None = None) -> Schema:
    """The schema in the bytes of the file `name`: Avro in JSON, or a Protobuf descriptor set. `message`: the full name of the
    Protobuf message, by default the first of the last file.

    Raises `SchemaError` with the cause, or with instructions to make a descriptor set from a .proto, and `MissingLibrary`.
    """
    if name.endswith(".proto"):
        made = name[: -len(".proto")] + ".desc"
        raise SchemaError(
            f"{name} is source text; make a descriptor set with protoc and give that: protoc --include_imports "
            f"--descriptor_set_out={made} {name}"
        )
    if name.endswith(_DESCRIPTORS) or not (name.endswith(".avsc") or _is_json(data)):
        from .protobuf import descriptor_set

        return descriptor_set(data, message, name)
    if message is not None:
        raise SchemaError(f"{name} is an Avro schema; only Protobuf schemas have messages to choose from")
    from .avro import avro_schema

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SchemaError(f"{name}: not UTF-8, so not an Avro schema") from None
    return avro_schema(text, name)


def _is_json(data: bytes) -> bool:
    try:
        read_json(data)
    except SchemaMismatch:
        return False
    return True


class SchemaFiles:
    """Schemas from files, by topic."""

    def __init__(self) -> None:
        self._schemas: dict[tuple[str | None, bool], Schema] = {}

    def add(self, schema: Schema, topic: str | None = None, is_key: bool = False) -> None:
        """Use `schema` for a topic's values or keys; without a topic, for those that have no other."""
        self._schemas[topic, is_key] = schema

    def schema(self, schema_id: int) -> Schema | None:
        """None: files have no ids."""
        return None

    def for_topic(self, topic: str | None, is_key: bool) -> Schema | None:
        """The topic's own schema, or the one for every topic."""
        return self._schemas.get((topic, is_key)) or self._schemas.get((None, is_key))


class FirstOf:
    """Several sources; the first one that has a schema is used. Errors count only if none has it."""

    def __init__(self, *sources: SchemaSource):
        self.sources = sources

    def schema(self, schema_id: int) -> Schema | None:
        """The schema of the first source that has it. Raises the first `SchemaError` if none has."""
        fault: SchemaError | None = None
        for source in self.sources:
            try:
                found = source.schema(schema_id)
            except SchemaError as error:
                fault = fault or error
                continue
            if found is not None:
                return found
        if fault is not None:
            raise fault
        return None

    def for_topic(self, topic: str | None, is_key: bool) -> Schema | None:
        """The schema of the first source that has one."""
        return next((s for source in self.sources if (s := source.for_topic(topic, is_key)) is not None), None)
