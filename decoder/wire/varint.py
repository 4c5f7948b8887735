"""Unsigned varints, 7 bits per byte, lowest first: in Kafka's compact types and records, Snappy, Protobuf and Avro."""

from __future__ import annotations

Bytes = bytes | bytearray | memoryview


class VarintError(Exception):
    """The bytes are no varint. Raised and caught inside the decoder: its readers turn it into an error with a place."""


class VarintCut(VarintError):
    """The bytes end inside a varint."""


class VarintTooLong(VarintError):
    """A varint has more bytes than allowed."""


def read_uvarint(data: Bytes, position: int, end: int | None = None, most: int = 5) -> tuple[int, int]:
    """(value, position after it) of a varint of at most `most` bytes that ends by `end`, by default the end of `data`."""
    value = 0
    stop = len(data) if end is None else end
    for shift in range(0, 7 * most, 7):
        if position >= stop:
            raise VarintCut
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise VarintTooLong


def zigzag(value: int) -> int:
    """The signed number that an unsigned one stands for in zig-zag encoding."""
    return (value >> 1) ^ -(value & 1)


def write_uvarint(out: bytearray, value: int) -> None:
    """Append a value of 0 or more in as few bytes as possible."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
