"""Variable-length integers of record batches (Kafka's ByteUtils): 7 bits a byte, lowest first, zig-zag."""

from __future__ import annotations

from .errors import BadLength, Truncated


def read_uvarint(data: bytes, pos: int, width: int = 32) -> tuple[int, int]:
    """(unsigned value, position after it); `width` 32 allows 5 bytes, 64 allows 10.

    Bits beyond the width are dropped, as Kafka does. Raises `Truncated` or `BadLength`.
    """
    value = 0
    start = pos
    for shift in range(0, 35 if width == 32 else 70, 7):
        if pos >= len(data):
            raise Truncated("a varint is cut off", start)
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << width) - 1), pos
    raise BadLength(f"a varint is longer than {5 if width == 32 else 10} bytes", start)


def read_varint(data: bytes, pos: int, width: int = 32) -> tuple[int, int]:
    """(signed value, position after it): `read_uvarint` with zig-zag undone."""
    if pos < len(data) and (byte := data[pos]) < 0x80:  # most are of one byte
        return (byte >> 1) ^ -(byte & 1), pos + 1
    value, pos = read_uvarint(data, pos, width)
    return (value >> 1) ^ -(value & 1), pos


def write_uvarint(out: bytearray, value: int) -> None:
    """Append a value of 0 or more in as few bytes as it needs."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed value (int32 or int64) in zig-zag form."""
    write_uvarint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def int64(value: int) -> int:
    """Wrap to a signed 64-bit integer, as Kafka's own arithmetic does on overflow."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
