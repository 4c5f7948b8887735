"""The header prefix of a message that is still coming: everything but its record batches, as soon as the last of these begins.

Large messages are large for their records. Everything else (topics, partitions, error codes) comes before each
batch, and counts state how many follow. So a walk over the bytes as they arrive knows topics and partitions long before the end:
those of a Produce with one partition after its first hundred bytes. The result is a whole, small frame of the same API and version, with
null for records, and without what may follow them: tags, and fields that hold no error code. The accelerator has the same (`native.header_prefix`).

Why this exists: confluent-kafka under a rule about an error that does not come (real broker, medians of 7 interleaved rounds
against no rule): produces at 0.99 and consumes at 0.93 of the speed with it, at 0.69 and 0.63 without.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from typing import Any

from .....decoder.errors import DecodeError
from .....decoder.schema.meaning import Meaning
from .....decoder.schema.plan import SIZES, FieldPlan, Plan, StructPlan, plan
from .....decoder.wire.stream_walk import StreamWalk

MOST = 1 << 20
"""Bytes of a prefix; a message that has more is not followed."""
PrefixReaders = tuple[tuple[tuple[Callable[[bytes, int], Any], int] | None, ...] | None, ...]
"""By api key and version: (reader of `asked_paths`, header version), where a prefix does for the message."""
Steps = Generator[int, bytes, bool]
"""See `StreamWalk`. True: nothing that is asked for follows."""


@cache
def may_have_records(kind: str, api_key: int, api_version: int) -> bool:
    """Whether messages of this kind, API and version may have record batches."""
    try:
        return _has_records(plan(kind, api_key, api_version).root)
    except DecodeError:
        return False


def _has_records(struct: StructPlan) -> bool:
    return any(f.type == "records" or (f.struct is not None and _has_records(f.struct)) for f in struct.fields)


@cache
def asked_paths(of: Plan) -> tuple[str, ...]:
    """What a prefix has wherever it stands (without items, ``"topics.error_code"``): error codes and the throttle time."""
    return tuple(_asked(of.root, ""))


def _asked(struct: StructPlan, prefix: str) -> Generator[str, None, None]:
    for field in struct.fields:
        if field.struct is not None:
            yield from _asked(field.struct, f"{prefix}{field.name}.")
        elif field.meaning in (Meaning.ERROR, Meaning.THROTTLE):
            yield prefix + field.name


@cache
def _last_asked(struct: StructPlan) -> int:
    """The place of the last field, of those that are not tagged, in which anything is asked for; 0 if there is none."""
    whole = StructPlan(struct.name, False, struct.fields[: struct.untagged], struct.untagged)
    names = {path.split(".")[0] for path in _asked(whole, "")}
    return max((place for place, field in enumerate(whole.fields) if field.name in names), default=0)


def _empty(field: FieldPlan) -> bytes:
    """A field with as little in it as there can be."""
    if field.array or field.type in ("string", "bytes", "records"):
        return b"\1" if field.compact else bytes(4 if field.array or field.type != "string" else 2)
    if field.struct is None:
        return bytes(SIZES[field.type])
    if field.nullable:
        return b"\xff"
    return b"".join(map(_empty, field.struct.fields[: field.struct.untagged])) + bytes(field.struct.flexible)


class HeaderPrefix:
    """One message. `feed` it the frame's bytes in order, its size first. `frame`: the prefix, with its own size, when `feed`
    has returned True. `failed`: it is no such message, or has no end to be seen from here."""

    def __init__(self, kind: str, api_key: int, api_version: int) -> None:
        self.frame = b""
        self.failed = False
        self._out = bytearray()
        self._end = bytearray()
        self._request = kind == "request"
        self._walk = StreamWalk(self._message(plan(kind, api_key, api_version)))

    def feed(self, data: bytes | bytearray | memoryview) -> bool:
        """Whether the prefix is there. Nothing may be fed after that, or once it has `failed`."""
        try:
            ended = self._walk.feed(data) >= 0
            self.failed = (ended and not self._walk.result) or len(self._out) + self._walk.wanted > MOST
        except (ValueError, IndexError):
            self.failed = True
        if self.failed or not ended:
            return False
        body = bytes(self._out[4:] + self._end)
        self.frame = len(body).to_bytes(4, "big") + body
        return True

    def _message(self, of: Plan) -> Steps:
        yield from self._take(4)
        yield from self._take(4 if of.kind == "response" else 8)
        if of.kind == "request" and of.header_version:
            length = int.from_bytes((yield from self._take(2)), "big", signed=True)
            yield from self._take(max(length, 0))
        if of.header_version == (1 if of.kind == "response" else 2):
            yield from self._tags()
        return (yield from self._struct(of.root, True))

    def _take(self, count: int) -> Generator[int, bytes, bytes]:
        if not count:
            return b""
        if len(self._out) + count > MOST:
            raise ValueError("too large")
        data = yield count
        self._out += data
        return data

    def _uvarint(self) -> Generator[int, bytes, int]:
        value = shift = 0
        while True:
            byte = (yield from self._take(1))[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 28:
                raise ValueError("an unterminated length")

    def _length(self, field: FieldPlan, wide: bool) -> Generator[int, bytes, int]:
        """The items of an array, or the bytes of a text; -1 for null."""
        if field.compact:
            return (yield from self._uvarint()) - 1
        return int.from_bytes((yield from self._take(4 if wide else 2)), "big", signed=True)

    def _struct(self, struct: StructPlan, last: bool) -> Steps:
        """`last`: nothing that is asked for follows behind it."""
        asked = struct.untagged - 1 if self._request else _last_asked(struct)
        for place, field in enumerate(struct.fields[: struct.untagged]):
            if (yield from self._field(field, last and place >= asked)):
                self._end += b"".join(map(_empty, struct.fields[place + 1 : struct.untagged])) + bytes(struct.flexible)
                return True
        if struct.flexible:
            yield from self._tags()
        return False

    def _field(self, field: FieldPlan, last: bool) -> Steps:
        if not field.array:
            if field.struct is not None and field.nullable and (yield from self._take(1))[0] & 0x80:
                return False
            return (yield from self._value(field, last))
        count = yield from self._length(field, True)
        if field.struct is None and field.type in SIZES:
            yield from self._take(max(count, 0) * SIZES[field.type])
            return False
        for number in range(count):
            if (yield from self._value(field, last and number == count - 1)):
                return True
        return False

    def _value(self, field: FieldPlan, last: bool) -> Steps:
        if field.struct is not None:
            return (yield from self._struct(field.struct, last))
        if field.type in SIZES:
            yield from self._take(SIZES[field.type])
            return False
        before = len(self._out)
        length = yield from self._length(field, field.type != "string")
        if field.type != "records":
            yield from self._take(max(length, 0))
            return False
        self._out[before:] = b"\0" if field.compact else b"\xff\xff\xff\xff"
        if last:
            return True
        if length > 0:
            yield -length
        return False

    def _tags(self) -> Generator[int, bytes, None]:
        count = yield from self._uvarint()
        for _ in range(count):
            yield from self._uvarint()
            yield from self._take((yield from self._uvarint()))
