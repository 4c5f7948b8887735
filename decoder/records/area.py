"""The records area of a Produce request or Fetch response: one batch or message after another.

All magics share the first 17 bytes (offset, length, 4 bytes, magic). A broker cuts a Fetch response at its byte limit,
so an unfinished last entry is no error. Source: Kafka's ByteBufferLogInputStream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .batch import HEADER_SIZE, Batch, read_batch
from .codecs import DEFAULT_LIMIT
from .errors import BadLength, UnknownMagic
from .message import LOG_OVERHEAD, SMALLEST, Message, read_message
from .record import Record

_MAGIC_AT = 16
_LENGTH = struct.Struct(">i").unpack_from
_SMALLEST = {**SMALLEST, 2: HEADER_SIZE - LOG_OVERHEAD}


@dataclass(slots=True)
class Partial:
    """An unfinished last entry: data[start:end]. Header fields that are cut off are None."""

    start: int
    end: int
    base_offset: int | None
    length: int | None
    magic: int | None

    @property
    def missing(self) -> int | None:
        """How many bytes are missing; None if the length is missing too."""
        return None if self.length is None else self.start + LOG_OVERHEAD + self.length - self.end

    def records(self, *, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
        """No records: consumers drop an unfinished entry and fetch it again."""
        return iter(())


def batches(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Batch | Message | Partial]:
    """The entries of the records area data[start:end], by default all of `data`.

    Yields a `Batch` for each batch of magic 2, a `Message` for each message of magic 0 or 1, and a `Partial` for an
    unfinished last entry. Nothing is decompressed or checked yet; a wrong CRC shows as `crc_ok` False. Raises `BadLength`
    or `UnknownMagic` at an entry after which reading cannot continue. Positions are offsets in `data`.
    """
    stop = len(data) if end is None else min(end, len(data))
    pos = start
    while pos < stop:
        there = stop - pos
        if there > _MAGIC_AT and data[pos + _MAGIC_AT] == 2:
            # The usual case, a whole batch of magic 2; anything odd about it is looked at below.
            after = pos + LOG_OVERHEAD + _LENGTH(data, pos + 8)[0]
            if pos + HEADER_SIZE <= after <= stop:
                yield read_batch(data, pos, after)
                pos = after
                continue
        offset = int.from_bytes(data[pos : pos + 8], "big", signed=True) if there >= 8 else None
        if there < LOG_OVERHEAD:
            yield Partial(pos, stop, offset, None, None)
            return
        length = int.from_bytes(data[pos + 8 : pos + 12], "big", signed=True)
        magic = data[pos + _MAGIC_AT] if there > _MAGIC_AT else None
        if magic is not None and magic not in _SMALLEST:
            raise UnknownMagic(f"magic {magic} is unknown; Kafka has 0, 1 and 2", pos + _MAGIC_AT)
        smallest = _SMALLEST[magic or 0]
        if length < smallest:
            kind = "an entry" if magic is None else f"an entry of magic {magic}"
            raise BadLength(f"{kind} declares {length} bytes; at least {smallest} are needed", pos + 8)
        after = pos + LOG_OVERHEAD + length
        if after > stop:
            yield Partial(pos, stop, offset, length, magic)
            return
        if magic == 2:
            yield read_batch(data, pos, after)
        else:
            yield read_message(data, pos, after)
        pos = after
