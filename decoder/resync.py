"""Finding the next frame in the middle of a stream: where a capture begins late, or bytes went missing.

A position is taken for a frame's start when what stands there reads like the head of a frame and the whole frame can
be decoded. A frame that is not complete yet counts only if its head says enough: a known API and version and a client
id of plain characters. Runs of zeros, which look like a Produce of version 0, do not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from . import facts
from .frame import MAX_FRAME, Direction

_REQUEST = struct.Struct(">ihhih").unpack_from
_SIZE = struct.Struct(">i").unpack_from
HEAD = {Direction.REQUEST: 14, Direction.RESPONSE: 8}
"""Bytes needed to judge a head, size included."""
_LARGEST_CLIENT_ID = 1024
_CLEAR_CLIENT_ID = 3  # characters


def client_id_of_head(data: bytes | bytearray, at: int, limit: int = MAX_FRAME) -> bytes | None:
    """The client id (as far as it is there) of a plausible size and request header at `at`, else None."""
    size, key, version, _, length = _REQUEST(data, at)
    if not 8 <= size <= limit or length > min(size - 10, _LARGEST_CLIENT_ID) or length < -1:
        return None
    try:
        if version not in facts.api(key).versions:
            return None
    except KeyError:
        return None
    text = bytes(data[at + 14 : at + 14 + max(length, 0)])
    return text if all(32 <= byte < 127 for byte in text) else None


def find_frame(
    direction: Direction, data: bytes | bytearray, confirm: Callable[[bytes], bool], limit: int = MAX_FRAME
) -> int | None:
    """The first position at which a frame starts, or None if the bytes at hand do not tell.

    `confirm` says whether a whole frame (without its size) is one that can stand in this stream.
    """
    head = HEAD[direction]
    for at in range(len(data) - head + 1):
        if data[at] > 0x1F:  # no size under the limit starts with more; most positions end here
            continue
        client_id: bytes | None = b""
        if direction is Direction.REQUEST:
            client_id = client_id_of_head(data, at, limit)
            if client_id is None:
                continue
        size = _SIZE(data, at)[0]
        if not 4 <= size <= limit:
            continue
        if at + 4 + size <= len(data):
            if confirm(bytes(data[at + 4 : at + 4 + size])):
                return at
        elif len(client_id or b"") >= _CLEAR_CLIENT_ID:
            return at
    return None
