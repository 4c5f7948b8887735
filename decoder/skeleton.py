"""The skeleton of a message that is still coming: everything but its record batches, as soon as the last of these begins.

Large messages are large for their records. All else that they say (topics, partitions, error codes) stands in front of each
batch, and counts say how many come. So a walk over the bytes as they arrive knows what a message is about long before its end:
of a Produce of one partition after its first hundred bytes. The result is a whole, small frame of the same API and version, with
null for records, and without what may follow them (tags).
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache

from .errors import DecodeError
from .plan import FieldPlan, Plan, StructPlan, plan

SIZES = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16}
"""Bytes of the types that have always as many."""
MOST = 1 << 20
"""Bytes of a skeleton; a message that has more is not followed."""
Steps = Generator[int, bytes, bool]
"""Asks for bytes: positive, so many of them; negative, so many are passed over. True: nothing but tags follows."""


@cache
def fleshed(kind: str, api_key: int, api_version: int) -> bool:
    """Whether messages of this kind, API and version may have record batches."""
    try:
        return _has_records(plan(kind, api_key, api_version).root)
    except DecodeError:
        return False


def _has_records(struct: StructPlan) -> bool:
    return any(f.type == "records" or (f.struct is not None and _has_records(f.struct)) for f in struct.fields)


class Skeleton:
    """One message. `feed` it the frame's bytes in order, its size first. `frame`: the skeleton, with its own size, when `feed`
    has said that it is there."""

    def __init__(self, kind: str, api_key: int, api_version: int) -> None:
        self.frame = b""
        self._out = bytearray()
        self._open = 0
        self._walk = self._message(plan(kind, api_key, api_version))
        self._wanted = next(self._walk)
        self._got = b""
        self.failed = False
        """It is no such message, or has no end to be seen from here."""

    def feed(self, data: bytes | bytearray | memoryview) -> bool:
        """Whether the skeleton is there. Nothing may be fed after that, or once it has `failed`."""
        at = 0
        try:
            while at < len(data):
                if self._wanted < 0:
                    passed = min(-self._wanted, len(data) - at)
                    at += passed
                    self._wanted += passed
                    if not self._wanted:
                        self._wanted = self._walk.send(b"")
                    continue
                part = bytes(data[at : at + self._wanted - len(self._got)])
                at += len(part)
                self._got += part
                if len(self._got) == self._wanted:
                    got, self._got = self._got, b""
                    self._wanted = self._walk.send(got)
                    if len(self._out) + self._wanted > MOST:
                        raise ValueError("too large")
        except StopIteration as end:
            if end.value:
                body = bytes(self._out[4:]) + bytes(self._open)  # no tags in the structs that are open
                self.frame = len(body).to_bytes(4, "big") + body
                return True
            self.failed = True
        except (ValueError, IndexError):
            self.failed = True
        return False

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
                raise ValueError("a length that does not end")

    def _length(self, field: FieldPlan, wide: bool) -> Generator[int, bytes, int]:
        """The items of an array, or the bytes of a text; -1 for null."""
        if field.compact:
            return (yield from self._uvarint()) - 1
        return int.from_bytes((yield from self._take(4 if wide else 2)), "big", signed=True)

    def _struct(self, struct: StructPlan, last: bool) -> Steps:
        """`last`: nothing but tags follows behind it."""
        self._open += struct.flexible
        for number, field in enumerate(struct.fields[: struct.untagged], 1):
            if (yield from self._field(field, last and number == struct.untagged)):
                return True
        if struct.flexible:
            yield from self._tags()
        self._open -= struct.flexible
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
