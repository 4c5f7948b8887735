"""Confluent's wire format: a zero byte, the schema's id, and for Protobuf the indexes of the message in the schema.

Source: the schema registry's documentation of its serializers. Ids count from 1, so that five zero bytes are something else,
such as a small int64.
"""

from __future__ import annotations

from typing import NamedTuple

from ..records import RecordsError
from ..records.varint import read_varint
from .errors import SchemaMismatch

HEAD = 5
_MOST_INDEXES = 64  # levels of nested messages; nobody has more


class Framed(NamedTuple):
    """A value in the wire format: the schema's id, and the bytes after it."""

    schema_id: int
    payload: bytes


def unframe(data: bytes) -> Framed | None:
    """The parts of a value that looks like the wire format, otherwise None."""
    if len(data) < HEAD or data[0]:
        return None
    schema_id = int.from_bytes(data[1:HEAD], "big", signed=True)
    return Framed(schema_id, data[HEAD:]) if schema_id > 0 else None


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """(path of indexes to a Protobuf message in its file, position after it); one zero byte means the first message."""
    try:
        count, at = read_varint(payload, 0)
        if count == 0:
            return (0,), at
        if not 0 < count <= _MOST_INDEXES:
            raise SchemaMismatch(f"an invalid number of message indexes: {count}")
        indexes = []
        for _ in range(count):
            index, at = read_varint(payload, at)
            indexes.append(index)
    except RecordsError as error:
        raise SchemaMismatch(f"the message indexes cannot be read: {error}") from None
    return tuple(indexes), at
