"""Decode and encode the definitions that belong to no API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ..errors import Truncated, UnknownApi
from ..schema import facts
from ..schema.notation import Definition
from ..schema.plan import Fields, Plan, Value, extra_plan
from .codec import read_values
from .encode import encode_struct, values_from
from .message import Message

HIDDEN = "********"
"""Replaces a secret of any length."""


class Payload(NamedTuple):
    """A decoded payload: its place, its kind and its fields.

    ``path``: a `Message` path to the bytes, and for nested payloads the path inside them. ``fields`` have the types of
    `Message.to_dict`; ``{"unreadable": text}`` if the bytes do not match the kind.
    """

    path: str
    kind: str
    fields: Fields


@cache
def _files() -> dict[str, str]:
    return {name: file for file in facts.extra_files() for name in facts.extra(file)}


def names() -> list[str]:
    """The names of all definitions that `decode` and `encode` accept: headers, data, keys and values of internal topics."""
    return sorted(_files())


def _plan(name: str, version: int) -> Plan:
    return extra_plan(_files().get(definition(name).name, ""), name, version)


def definition(name: str) -> Definition:
    """The definition of that name. Raises `UnknownApi` if there is none."""
    if name not in _files():
        raise UnknownApi(f"there is no definition {name!r}")
    return facts.extra(_files()[name])[name]


def decode(name: str, version: int, data: bytes, start: int = 0) -> Message:
    """Decode a payload by the name of its definition, ``decode("OffsetCommitValue", 3, data)``, from byte `start` on.

    Bytes after the end are in ``trailing`` and are not an error: a newer writer may have added fields.
    Raises `UnknownApi`, `UnknownVersion`, or another `DecodeError` with the field that does not match.
    """
    of, data = _plan(name, version), bytes(data)
    values, end = read_values(of, data, start)
    return Message(of, values, data, start, None, data[end:])


def encode(name: str, version: int, fields: Mapping[str, Value]) -> bytes:
    """Encode a payload from nested dicts. Omitted fields get their defaults.

    Raises `EncodeError` with the path of a field whose value is not valid, `UnknownApi` and `UnknownVersion`.
    """
    of, out = _plan(name, version), bytearray()
    encode_struct(of.root, values_from(of.root, fields), out)
    return bytes(out)


def leading_int16(data: bytes, what: str) -> int:
    """The signed 16-bit number that payload `what` starts with. Raises `Truncated`."""
    if len(data) < 2:
        raise Truncated(f"{len(data)} bytes are too short for its leading int16", api=what)
    return int.from_bytes(data[:2], "big", signed=True)


def newest(name: str, version: int) -> int:
    """`version`, or the newest known version if that is older: new fields come at the end."""
    return min(version, definition(name).versions.every()[-1])


def fields_of(message: Message) -> Fields:
    """`Message.to_dict`, with ``surplus_bytes``, the number of bytes after the end, if there are any."""
    fields = message.to_dict()
    if message.trailing:
        fields["surplus_bytes"] = len(message.trailing)
    return fields
