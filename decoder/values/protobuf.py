"""Protobuf values. The protobuf library decodes them by descriptors, the compiled form of .proto files.

Descriptors come as a set (``protoc --descriptor_set_out``), or file by file from a registry. Each schema has its own pool, so
that two schemas may define the same names. The library's parser is bounded: it stops at 100 levels, and its output is
proportional to its input.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from .errors import MissingLibrary, SchemaError, SchemaMismatch
from .plain import DecodedValue, plain
from .wire import message_indexes

# Files that the library brings along: schemas may import them. A fixed list, as a schema must not choose what is imported.
_BUNDLED = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
        "wrappers",
    )
}  # fmt: skip
_MOST_FILES = 1000


class ProtobufSchema:
    """The messages of one .proto file. `message`: the full name of the one for values without a schema id."""

    kind = "protobuf"

    def __init__(self, pool: Any, file: Any, message: str | None):
        self._pool, self._file = pool, file
        self._message = self._by_name(message) if message else None
        self.name: str = message or file.name

    def _by_name(self, message: str) -> Any:
        try:
            return self._pool.FindMessageTypeByName(message)
        except KeyError:
            known = ", ".join(m.full_name for m in self._file.message_types_by_name.values())
            raise SchemaError(f"there is no message {message}; {self._file.name} has {known or 'none'}") from None

    def _of(self, indexes: tuple[int, ...]) -> Any:
        """The message at a list of indexes: the n-th of the file, its n-th nested one, and so on."""
        nested = list(self._file.message_types_by_name.values())
        message = None
        for index in indexes:
            if not 0 <= index < len(nested):
                raise SchemaMismatch(f"{self._file.name} has no message at {'.'.join(map(str, indexes))}")
            message = nested[index]
            nested = list(message.nested_types)
        return message

    def decode(self, data: bytes, *, framed: bool = False) -> DecodedValue:
        """See `Schema`. After a schema id, the indexes of the message come first and decide which one it is."""
        from google.protobuf import json_format, message_factory, unknown_fields

        if framed:
            indexes, at = message_indexes(data)
            of, data = self._of(indexes), data[at:]
        else:
            of = self._message or self._of((0,))
        try:
            message = message_factory.GetMessageClass(of)()
            message.ParseFromString(data)
            unknown = len(unknown_fields.UnknownFieldSet(message))
            value = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)
        except Exception as error:  # DecodeError, and whatever json_format raises for a bad Any or Timestamp
            raise SchemaMismatch(f"{of.full_name}: {error}") from None
        fields = f"{unknown} field{'s' * (unknown != 1)}"
        note = f"{of.full_name}" + (f", which does not know {fields} of this value" if unknown else "")
        return DecodedValue(plain(value), note)


def descriptor_set(data: bytes, message: str | None = None, name: str = "the descriptor set") -> ProtobufSchema:
    """The schema in a compiled FileDescriptorSet. `message`: by default the first of its last file.

    Raises `SchemaError` if it is none or incomplete, `MissingLibrary` without protobuf.
    """
    descriptor_pb2 = _descriptors()
    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(data).file)
    except _decode_error() as error:
        raise SchemaError(f"{name}: not a descriptor set ({error})") from None
    return _schema(files, message, name)


def file_descriptors(files: Iterable[bytes], name: str = "the Protobuf schema") -> ProtobufSchema:
    """The schema in compiled FileDescriptorProtos, after those that it imports.

    Raises `SchemaError` if they are none or incomplete, `MissingLibrary` without protobuf.
    """
    descriptor_pb2 = _descriptors()
    try:
        parsed = [descriptor_pb2.FileDescriptorProto.FromString(file) for file in files]
    except _decode_error() as error:
        raise SchemaError(f"{name}: not a compiled .proto ({error})") from None
    return _schema(parsed, None, name)


def _descriptors() -> Any:
    try:
        return import_module("google.protobuf.descriptor_pb2")
    except ImportError:
        raise MissingLibrary("a Protobuf schema", "protobuf") from None


def _decode_error() -> type[Exception]:
    error: type[Exception] = import_module("google.protobuf.message").DecodeError
    return error


def _schema(files: list[Any], message: str | None, name: str) -> ProtobufSchema:
    if not any(file.message_type for file in files):
        raise SchemaError(f"{name}: it does not define any messages")
    if len(files) > _MOST_FILES:
        raise SchemaError(f"{name}: {len(files)} files; at most {_MOST_FILES} are read")
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    there = {file.name: file for file in files}
    done: set[str] = set()
    try:
        for file in files:
            _add(pool, file.name, there, done)
        return ProtobufSchema(pool, pool.FindFileByName(files[-1].name), message)
    except SchemaError as error:
        raise SchemaError(f"{name}: {error}") from None
    except Exception as error:  # whatever the pool raises for descriptors that do not fit together
        raise SchemaError(f"{name}: {error or type(error).__name__}") from None


def _add(pool: Any, file_name: str, there: dict[str, Any], done: set[str]) -> None:
    """Add a file after those that it imports: a pool takes them in this order only."""
    if file_name in done:
        return
    done.add(file_name)
    file = there.get(file_name)
    if file is None:
        if file_name not in _BUNDLED:
            raise SchemaError(f"{file_name} is imported but missing; create the set with protoc --include_imports")
        module = import_module(_BUNDLED[file_name])
        file = _descriptors().FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    for imported in file.dependency:
        _add(pool, imported, there, done)
    pool.AddSerializedFile(file.SerializeToString())
