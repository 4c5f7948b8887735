"""Reading and writing of the definitions that belong to no API: one payload, one version, one plan."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from ..codec.codec import read_values
from ..codec.encode import encode_struct, values_from
from ..codec.message import Message
from ..codec.plan import Fields, extra_plan
from ..errors import Truncated, UnknownApi
from ..schema import facts
from ..schema.notation import Definition

HIDDEN = "********"
"""Stands for a secret of any length."""


class Payload(NamedTuple):
    """An opened payload: where its bytes stand, what it is, and what it says.

    ``path`` is a `Message` path down to the bytes, and from there on the path inside of what they hold.
    ``fields`` has `Message.to_dict`'s types; ``{"unreadable": text}`` where the bytes do not fit the kind.
    """

    path: str
    kind: str
    fields: Fields


@cache
def _files() -> dict[str, str]:
    return {name: file for file in facts.extra_files() for name in facts.extra(file)}


def names() -> list[str]:
    """Every definition that `decode` and `encode` take: headers, data, keys and values of internal topics."""
    return sorted(_files())


def definition(name: str) -> Definition:
    """The definition of that name; UnknownApi if there is none."""
    if name not in _files():
        raise UnknownApi(f"no definition is called {name!r}")
    return facts.extra(_files()[name])[name]


def decode(name: str, version: int, data: bytes, start: int = 0) -> Message:
    """A payload by its definition's name, e.g. ``decode("OffsetCommitValue", 3, data)``, from byte `start` on.

    Bytes after the end are kept in ``trailing`` and are no error: a newer writer may have added fields.
    Raises UnknownApi, UnknownVersion, or the DecodeError that says which field does not fit.
    """
    of = extra_plan(_files().get(definition(name).name, ""), name, version)
    data = bytes(data)
    values, end = read_values(of, data, start)
    return Message(of, values, data, start, None, data[end:])


def encode(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """The bytes of a payload; what is left out takes its default. EncodeError names the path."""
    of = extra_plan(_files().get(definition(name).name, ""), name, version)
    out = bytearray()
    encode_struct(of.root, values_from(of.root, fields), out)
    return bytes(out)


def leading_int16(data: bytes, what: str) -> int:
    """The signed 16-bit number that payload `what` starts with."""
    if len(data) < 2:
        raise Truncated(f"{len(data)} bytes are too few for its leading int16", api=what)
    return int.from_bytes(data[:2], "big", signed=True)


def newest(name: str, version: int) -> int:
    """`version`, or the newest known one where `version` is newer: fields are only ever added at the end."""
    return min(version, definition(name).versions.every()[-1])


def fields_of(message: Message) -> Fields:
    """`Message.to_dict`, with a count of the bytes after the end if there are any."""
    fields = message.to_dict()
    if message.trailing:
        fields["surplus_bytes"] = len(message.trailing)
    return fields
