"""Messages of magic 0 and 1, alone or as the wrapper of a compressed set.

The value of a compressed message is a message set. Its inner offsets are absolute in magic 0; in magic 1 they are relative,
and the wrapper has the offset of the last one (KIP-31). Source: Kafka's LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import codecs
from .errors import BadLength, CodecError, RecordsError, Truncated, UnknownMagic
from .record import Record

LOG_OVERHEAD = 12  # offset and size
SMALLEST = {0: 14, 1: 22}  # of what `message_size` counts, per magic
CODEC_MASK = 0x07
LOG_APPEND = 0x08

_HEADERS = {0: struct.Struct(">qiIbb"), 1: struct.Struct(">qiIbbq")}


@dataclass(slots=True)
class Message:
    """One entry of a message set, data[start:end]. Key and value are read on demand.

    `timestamp` is milliseconds since the epoch, None in magic 0.
    """

    offset: int
    message_size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int | None
    data: bytes = field(repr=False, compare=False)
    start: int
    end: int

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4; anything but 0 makes this a wrapper."""
        return self.attributes & CODEC_MASK

    @property
    def codec_name(self) -> str:
        """`none`, `gzip`, `snappy`, `lz4`, or `unknown(6)`."""
        return codecs.name(self.codec)

    @property
    def timestamp_type(self) -> str | None:
        """`create` or `log_append`; None in magic 0, which has no timestamps."""
        if self.magic == 0:
            return None
        return "log_append" if self.attributes & LOG_APPEND else "create"

    @property
    def crc_computed(self) -> int:
        """CRC-32 (zlib's) of the bytes from the magic on."""
        return zlib.crc32(memoryview(self.data)[self.start + 16 : self.end])

    @property
    def crc_ok(self) -> bool:
        """Whether the CRC in the message is right."""
        return self.crc == self.crc_computed

    @property
    def key(self) -> bytes | None:
        """Its key, or None. Raises `RecordsError` if it does not fit."""
        return self._field(self._fields()[0])

    @property
    def value(self) -> bytes | None:
        """Its value, or None; of a wrapper, the compressed set. Raises `RecordsError` if it does not fit."""
        return self._field(self._fields()[1])

    def messages(self, *, limit: int = codecs.DEFAULT_LIMIT, wrappers: bool = False) -> Iterator[Message]:
        """The messages in a wrapper, with offsets and times as in the inner bytes; none for a plain message.

        Positions of the inner messages count in their own, decompressed `data`. Raises `RecordsError`, also for a wrapper
        within a wrapper, which Kafka refuses, unless `wrappers` is set. `limit`: of decompressed bytes.
        """
        if not self.codec:
            return
        value = self.value
        if value is None:
            raise BadLength(f"{self._where()}: compressed, but its value is null", self._fields()[1][0])
        try:
            inner = codecs.decompress(self.codec, value, limit=limit, magic=self.magic)
        except RecordsError as error:
            raise error.inside(self._where(), self._fields()[1][0]) from None
        pos = 0
        while pos < len(inner):
            end = _inner_end(inner, pos, self._where())
            message = read_message(inner, pos, end)
            if message.codec and not wrappers:
                raise CodecError(f"{self._where()}: compressed twice", pos, decompressed=True)
            yield message
            pos = end

    def records(self, *, limit: int = codecs.DEFAULT_LIMIT) -> Iterator[Record]:
        """The record of a plain message, or those of a wrapper, with absolute offsets. Raises `RecordsError`."""
        if not self.codec:
            yield Record(self.offset, self.timestamp, self.key, self.value)
            return
        inner = list(self.messages(limit=limit))
        base = 0
        # Some producers leave the wrapper's offset at 0; then inner offsets count from 0.
        if inner and self.magic == 1 and self.offset >= inner[-1].offset:
            base = self.offset - inner[-1].offset
        appended = self.magic == 1 and self.attributes & LOG_APPEND
        for message in inner:
            timestamp = self.timestamp if appended else message.timestamp
            try:
                yield Record(base + message.offset, timestamp, message.key, message.value)
            except RecordsError as error:
                raise error.inside(self._where(), 0, decompressed=True) from None

    def _fields(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(start, length) of key and of value; length -1 is null."""
        pos = self.start + _HEADERS[self.magic].size
        key = self._length(pos, "key")
        pos += 4 + max(0, key[1])
        value = self._length(pos, "value")
        left = self.end - pos - 4 - max(0, value[1])
        if left:
            raise BadLength(f"{self._where()}: {left} byte{'s' * (left != 1)} left over after the value", self.end - left)
        return key, value

    def _length(self, pos: int, what: str) -> tuple[int, int]:
        if pos + 4 > self.end:
            raise Truncated(f"{self._where()}: no room for the length of the {what}", pos)
        length = int.from_bytes(self.data[pos : pos + 4], "big", signed=True)
        if length < -1 or pos + 4 + length > self.end:
            left = self.end - pos - 4
            raise BadLength(f"{self._where()}: a {what} of {length} bytes, only {left} left", pos)
        return pos + 4, length

    def _field(self, span: tuple[int, int]) -> bytes | None:
        start, length = span
        return None if length < 0 else self.data[start : start + length]

    def _where(self) -> str:
        return f"message at byte {self.start}"


def read_message(data: bytes, start: int, end: int) -> Message:
    """The message in data[start:end], whose size and magic the caller has checked."""
    offset, size, crc, magic, attributes, *times = _HEADERS[data[start + 16]].unpack_from(data, start)
    return Message(offset, size, crc, magic, attributes, times[0] if times else None, data, start, end)


def _inner_end(data: bytes, pos: int, where: str) -> int:
    """End of the inner message at `pos`. Unlike in an area, a cut message is an error here."""
    if len(data) - pos < LOG_OVERHEAD + 5:
        raise Truncated(f"{where}: the last inner message is cut off", pos, decompressed=True)
    size = int.from_bytes(data[pos + 8 : pos + 12], "big", signed=True)
    magic = data[pos + 16]
    if magic not in SMALLEST:
        raise UnknownMagic(f"{where}: an inner message has magic {magic}", pos + 16, decompressed=True)
    if size < SMALLEST[magic]:
        raise BadLength(f"{where}: an inner message declares {size} bytes", pos + 8, decompressed=True)
    end = pos + LOG_OVERHEAD + size
    if end > len(data):
        raise Truncated(f"{where}: the last inner message is cut off", pos, decompressed=True)
    return end


# --- many at a time ---------------------------------------------------------------------------------------------

_KEY_AT = {0: 22, 1: 30}  # after the length of the key
_HEADS = {0: struct.Struct(">qiIbbi").unpack_from, 1: struct.Struct(">qiIbbqi").unpack_from}
_INT32 = struct.Struct(">i").unpack_from


def plain_records(
    data: bytes, pos: int, end: int, *, magic: int, number_from: int | None = None
) -> tuple[list[Record], int]:
    """(records, position after the last one) of the plain messages of one magic, 0 or 1, that data[pos:end] begins with.

    Stops before the first message that is compressed, of another magic, cut off, damaged, or has a wrong CRC: `Message` reads
    that one. `number_from`: offsets count from it, instead of being the messages' own.
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
