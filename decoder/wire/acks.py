"""Read the acks of a Produce request from the first bytes of its frame: with acks=0 it gets no response.

The client id, the header's tags and the transactional id come before them.
"""

from __future__ import annotations

from .varint import Bytes, VarintError, read_uvarint

ACKS_REACH = 16 * 1024
"""The largest offset in a frame at which acks are looked for (after client id, tags and transactional id)."""


def produce_acks(data: Bytes, at: int, end: int) -> int | None:
    """The acks of a Produce request whose frame, with its size, starts at `at`; None if `end` comes before them."""
    place = acks_end(data, at, end)
    return int.from_bytes(data[place - 2 : place], "big", signed=True) if place <= end else None


def acks_end(data: Bytes, at: int, end: int) -> int:
    """Where the acks of a Produce request end; if that needs bytes after `end`, the position up to which they are needed.
    At least 12 bytes of the frame must be there."""
    version = int.from_bytes(data[at + 6 : at + 8], "big")
    place = at + 14
    if place > end:
        return place
    place += max(int.from_bytes(data[at + 12 : at + 14], "big", signed=True), 0)  # the client id
    if version >= 9:
        if place >= end:
            return place + 1
        if data[place]:
            place = _tags_end(data, place, end)
        else:
            place += 1
        if place + 1 > end:
            return place + 1
        length, place = _uvarint(data, place, end)  # the transactional id; 0: null
        place += max(length - 1, 0)
    elif version >= 3:
        if place + 2 > end:
            return place + 2
        place += 2 + max(int.from_bytes(data[place : place + 2], "big", signed=True), 0)
    return place + 2


def _tags_end(data: Bytes, place: int, end: int) -> int:
    """Where the tagged fields end; after `end` if they are not all there."""
    count, place = _uvarint(data, place, end)
    for _ in range(count):
        if place >= end:
            return end + 1
        _, place = _uvarint(data, place, end)
        size, place = _uvarint(data, place, end)
        place += size
    return place


def _uvarint(data: Bytes, place: int, end: int) -> tuple[int, int]:
    """A number and the position after it, which is after `end` if the number is not all there."""
    try:
        return read_uvarint(data, place, end)
    except VarintError:
        return 0, end + 1
