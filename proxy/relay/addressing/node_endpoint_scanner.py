"""Node endpoints (KIP-951) at the end of bulk responses, found without holding the bulk.

Brokers name new leaders, with their addresses, behind everything else in Produce, Fetch, ShareFetch and
ShareAcknowledge responses. `ends_clean` is a quick check that a whole frame has none. `NodeEndpointScanner` follows the structure
of a frame that is passing, jumps over the records, and finds where the endpoints begin; only what comes from there on
is held back. Its size was promised to the client by then, so addresses cannot be exchanged any more: `neutralize_endpoints` makes
the client overlook them, and it asks Metadata instead, as clients did before KIP-951.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from functools import cache
from typing import TYPE_CHECKING, Any

from ....decoder.native.accelerator import description
from ....decoder.native.accelerator import native as decoder_native
from ....decoder.schema import facts
from ....decoder.schema.plan import SIZES, FieldPlan, StructPlan, plan
from ....decoder.wire.stream_walk import StreamWalk
from ...native.accelerator import native

ENDPOINTS = "node_endpoints"
_UNUSED_TAG = 0x7F
"""A tag that no message has. Readers pass over tags that they do not know."""
_UNUSED_NODE = 0x7FFFFF00
_PRODUCE = facts.api_key("Produce")
_FETCH = facts.api_key("Fetch")
_LEAST = 30
"""A smaller Fetch response has no room for an endpoint: header 5, throttle time 4, error 2, session 4, an empty list
1; then tags with one endpoint 4, its node id 4, a host of one letter 2, port 4, rack 1, tags 1."""
_SHORT_INT = struct.Struct(">HI").unpack_from
_ENDING = struct.Struct(">HHH").unpack_from
Need = Generator[int, bytes, None]
"""See `StreamWalk`."""


def ends_clean(api_key: int, data: Any, end: int, size: int) -> bool:
    """Whether the response of `size` bytes that ends at `end` surely has no node endpoints (KIP-951). False:
    unknown.

    The last endpoint ends with its port (4 bytes, of which the first two are 0 and the others are not both), its rack
    (one 0 for null, else a length and letters) and a 0 for its tags. A Produce response without endpoints ends with a
    0 for its last topic's tags, the throttle time and a 0 for the body's tags: with six zeros there is no port. A
    Fetch response without endpoints ends with records and three zeros; if the one in the middle were a rack, the port
    in front of it would begin with two zeros.
    """
    if api_key == _PRODUCE:
        if size < 6:
            return False
        one, two = _SHORT_INT(data, end - 6)
        return bool(one == 0 and two == 0)
    if api_key == _FETCH:
        if size < _LEAST:
            return True
        high, _, low = _ENDING(data, end - 6)
        return bool(high != 0 and low == 0)
    return False


class PlainNodeEndpointScanner:
    """One response that passes. `feed` it the frame's bytes, in order, from the first byte behind the size.

    The accelerator has the same (native/tail.c).
    """

    def __init__(self, api_key: int, api_version: int) -> None:
        root, self.tagged = _shape(api_key, api_version)
        self._walk = StreamWalk(_until_endpoints(root))

    @property
    def skipping(self) -> int:
        """How many of the next bytes need not be fed, but may be given to `skip`."""
        return self._walk.skipping

    def skip(self, count: int) -> None:
        """`count` bytes pass unseen, at most `skipping`."""
        self._walk.skip(count)

    def feed(self, data: bytes | memoryview) -> int:
        """The place in `data` where the endpoints begin (the tag section, where they are tagged), -1 if not yet.

        Nothing may be fed after that. Never raises: whatever the bytes are, it goes on to the end of the frame.
        """
        return self._walk.feed(data)


@cache
def _shape(api_key: int, api_version: int) -> tuple[StructPlan, bool]:
    """A response's plan, and whether its endpoints are tagged."""
    root = plan("response", api_key, api_version).root
    return root, any(f.name == ENDPOINTS and f.tag is not None for f in root.fields)


if TYPE_CHECKING or native is None or decoder_native is None:
    NodeEndpointScanner = PlainNodeEndpointScanner
else:

    @cache
    def _way(api_key: int, api_version: int) -> tuple[Any, int, bool]:
        root, tagged = _shape(api_key, api_version)
        names = [field.name for field in root.fields[: root.untagged]]
        return decoder_native.Reader(description(root)), len(names) if tagged else names.index(ENDPOINTS), tagged

    class NodeEndpointScanner(native.NodeEndpointScanner):
        """The same in C."""

        __slots__ = ()

        def __new__(cls, api_key: int, api_version: int) -> NodeEndpointScanner:
            return super().__new__(cls, *_way(api_key, api_version))


def _until_endpoints(root: StructPlan) -> Need:
    yield -4  # correlation id
    yield from _tags()
    for field in root.fields[: root.untagged]:
        if field.name == ENDPOINTS:
            return
        yield from _field(field)


def _uvarint() -> Generator[int, bytes, int]:
    value = shift = 0
    while True:
        (byte,) = yield 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift > 35:
            return value


@cache
def _fixed(struct: StructPlan) -> tuple[int, int]:
    """How many fields at a struct's beginning have a fixed size, and their bytes together."""
    count = size = 0
    for field in struct.fields[: struct.untagged]:
        if field.array or field.type not in SIZES:
            break
        count += 1
        size += SIZES[field.type]
    return count, size


def _field(field: FieldPlan) -> Need:
    if field.array:
        count = yield from _uvarint()
        if field.struct is None and field.type in SIZES:
            if count > 1:
                yield -(count - 1) * SIZES[field.type]
            return
        for _ in range(count - 1):
            yield from _value(field)
        return
    if field.struct is not None and field.nullable:
        (there,) = yield 1
        if there & 0x80:
            return
    yield from _value(field)


def _value(field: FieldPlan) -> Need:
    if field.struct is not None:
        yield from _struct(field.struct)
    elif field.type in SIZES:
        yield -SIZES[field.type]
    else:  # string, bytes, records
        size = yield from _uvarint()
        if size > 1:
            yield -(size - 1)


def _struct(struct: StructPlan) -> Need:
    count, size = _fixed(struct)
    if size:
        yield -size
    for field in struct.fields[count : struct.untagged]:
        yield from _field(field)
    yield from _tags()


def _tags() -> Need:
    count = yield from _uvarint()
    for _ in range(count):
        yield from _uvarint()
        length = yield from _uvarint()
        if length:
            yield -length


def neutralize_endpoints(rest: bytes, tagged: bool) -> bytes | None:
    """The end of a frame from the place that `NodeEndpointScanner.feed` gave, with endpoints that nobody can use; the same length.

    None when there are none. Raises ValueError when these bytes are not what they should be.
    """
    if tagged:
        return _other_tag(rest)
    return _nobody(rest)


def _other_tag(rest: bytes) -> bytes | None:
    count, at = _read_uvarint(rest, 0)
    if not count or rest[at] != 0:
        return None
    if count > 1:
        # Tags rise; behind an unused high one no other may follow.
        raise ValueError("other tags follow the node endpoints")
    return rest[:at] + bytes([_UNUSED_TAG]) + rest[at + 1 :]


def _nobody(rest: bytes) -> bytes | None:
    """ShareFetch has its endpoints in a plain array: each becomes a node that no partition names, without address."""
    count, at = _read_uvarint(rest, 0)
    if count <= 1:
        return None
    out = bytearray(rest)
    for number in range(count - 1):
        out[at : at + 4] = (_UNUSED_NODE + number).to_bytes(4, "big")
        size, start = _read_uvarint(rest, at + 4)
        end = start + size - 1
        if size < 1 or end + 4 > len(rest):
            raise ValueError("the node endpoints end too early")
        out[start:end] = b"-" * (end - start)
        out[end : end + 4] = bytes(4)
        size, at = _read_uvarint(rest, end + 4)
        at += max(size - 1, 0)
        tags, at = _read_uvarint(rest, at)
        for _ in range(tags):
            _, at = _read_uvarint(rest, at)
            size, at = _read_uvarint(rest, at)
            at += size
    return bytes(out)


def _read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift <= 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
    raise ValueError("an unterminated length")
