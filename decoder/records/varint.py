"""Variable-length integers of record batches (Kafka's ByteUtils): varints of 32 or 64 bits, signed ones in zig-zag form."""

from __future__ import annotations

from ..wire import varint
from ..wire.varint import write_uvarint, zigzag
from .errors import BadLength, Truncated


def read_uvarint(data: bytes, pos: int, width: int = 32) -> tuple[int, int]:
    """(unsigned value, position after it); `width` 32 allows 5 bytes, 64 allows 10.

    Bits beyond the width are dropped, as Kafka does. Raises `Truncated` or `BadLength`.
    """
    most = 5 if width == 32 else 10
    try:
        value, end = varint.read_uvarint(data, pos, None, most)
    except varint.VarintCut:
        raise Truncated("a varint is cut off", pos) from None
    except varint.VarintTooLong:
        raise BadLength(f"a varint is longer than {most} bytes", pos) from None
    return value & ((1 << width) - 1), end


def read_varint(data: bytes, pos: int, width: int = 32) -> tuple[int, int]:
    """(signed value, position after it): `read_uvarint` with zig-zag undone."""
    if pos < len(data) and (byte := data[pos]) < 0x80:  # most are of one byte
        return (byte >> 1) ^ -(byte & 1), pos + 1
    value, pos = read_uvarint(data, pos, width)
    return zigzag(value), pos


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed value (int32 or int64) in zig-zag form."""
    write_uvarint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def int64(value: int) -> int:
    """Wrap to a signed 64-bit integer, as Kafka's arithmetic does on overflow."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
