"""Plain messages of magic 0 and 1, many at a time: what is whole, right and not compressed is read at once.

Strategy: this only *notices* that a message is something else or damaged, and stops in front of it; `message.py` reads
that one and says what it is.
"""

from __future__ import annotations

import struct
import zlib

from .message import CODEC_MASK, SMALLEST
from .record import Record

_KEY_AT = {0: 22, 1: 30}  # behind the length of the key
_HEADS = {0: struct.Struct(">qiIbbi").unpack_from, 1: struct.Struct(">qiIbbqi").unpack_from}
_INT32 = struct.Struct(">i").unpack_from


def plain_records(
    data: bytes, pos: int, end: int, *, magic: int, number_from: int | None = None
) -> tuple[list[Record], int]:
    """(records, position behind the last one): the plain messages of one magic (0 or 1) that data[pos:end] begins with.

    Times are as the messages have them; offsets, too, or they count from `number_from`. Ends in front of the first message that is compressed, of another
    magic, cut off, damaged, or has a wrong CRC.
    """
    found: list[Record] = []
    add, new = found.append, tuple.__new__
    head, key_at, smallest = _HEADS[magic], _KEY_AT[magic], 12 + SMALLEST[magic]
    view = memoryview(data)
    timestamp = None
    while end - pos >= smallest:
        if magic:
            offset, size, crc, is_magic, attributes, timestamp, key_size = head(data, pos)
        else:
            offset, size, crc, is_magic, attributes, key_size = head(data, pos)
        stop = pos + 12 + size
        if is_magic != magic or attributes & CODEC_MASK or stop > end or size < SMALLEST[magic] or key_size < -1:
            break
        at = pos + key_at
        key = None
        if key_size >= 0:
            key = data[at : at + key_size]
            at += key_size
        if at + 4 > stop:
            break
        (value_size,) = _INT32(data, at)
        at += 4
        if value_size == -1:
            value = None
        elif value_size == stop - at:
            value = data[at:stop]
            at = stop
        else:
            break
        if at != stop or zlib.crc32(view[pos + 16 : stop]) != crc:
            break
        if number_from is not None:
            offset = number_from
            number_from += 1
        add(new(Record, (offset, timestamp, key, value, (), None, None)))
        pos = stop
    return found, pos
