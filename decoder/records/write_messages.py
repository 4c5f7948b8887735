"""Writing messages of magic 0 and 1, alone or as the wrapper of a compressed set: sizes and CRCs right unless told not to.

What these magics do not have (headers, sequence numbers, in magic 0 also times) is left out, as Kafka's own
down-conversion does. Source: Kafka's LegacyRecord, and KIP-31 and KIP-32 for magic 1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from . import codecs
from .errors import RecordsError, UnknownMagic
from .message import LOG_APPEND, Message
from .record import Record
from .write import NO_TIMESTAMP

_HEADS = {0: struct.Struct(">Bb"), 1: struct.Struct(">Bbq")}
_LENGTH = struct.Struct(">i")


def encode_messages(
    records: Iterable[Record],
    *,
    magic: int = 1,
    codec: int = codecs.NONE,
    relative: bool | None = None,
    log_append: bool = False,
    timestamp: int | None = None,
    wrapper_offset: int | None = None,
    crc: int | None = None,
    level: int | None = None,
) -> bytes:
    """A message set of magic 0 or 1 with these records, whose offsets are absolute and times in ms (None becomes -1).

    With a `codec` the messages are the value of one wrapper, which has the last record's offset and the latest time.
    Its inner offsets are `relative` in magic 1 and absolute in magic 0, unless told otherwise; `wrapper_offset` sets
    another one (producers may leave it 0). `log_append` marks the times as the broker's: `timestamp`, or for each
    message its own; in a wrapper only the wrapper's time counts then, and the inner ones keep theirs. `crc` is written
    as it is, to all messages that are not within a wrapper. `level` is the codec's. Nothing comes of no records.
    Raises `RecordsError` when a value does not fit its field or the codec does not exist in this magic.
    """
    if magic not in _HEADS:
        raise UnknownMagic(f"messages have magic 0 or 1, not {magic}; batches of magic 2 are made by encode_batch")
    bits = LOG_APPEND * (log_append and magic == 1)
    made = bytearray()  # grows message by message: the records need not all be there at once
    if not codec:
        for record in records:
            own = _timestamp(record) if timestamp is None or not bits else timestamp
            made += _message(record.offset, magic, bits, own, record.key, record.value, crc)
        return bytes(made)
    first, last, latest = None, 0, NO_TIMESTAMP
    base = 0
    for record in records:
        own = _timestamp(record)
        if first is None:
            first, latest = record.offset, own
            base = first if (magic == 1 if relative is None else relative) else 0
        made += _message(record.offset - base, magic, 0, own, record.key, record.value, None)
        last, latest = record.offset, max(latest, own)
    if first is None:
        return b""
    return _message(
        last if wrapper_offset is None else wrapper_offset,
        magic,
        bits | codec,
        latest if timestamp is None else timestamp,
        None,
        codecs.compress(codec, bytes(made), magic=magic, level=level),
        crc,
    )


def encode_messages_like(message: Message, records: Iterable[Record], *, codec: int | None = None) -> bytes:
    """Other records in the manner of `message`: its magic and codec, and with log-append time its time."""
    log_append = message.timestamp_type == "log_append"
    return encode_messages(
        records,
        magic=message.magic,
        codec=message.codec if codec is None else codec,
        log_append=log_append,
        timestamp=message.timestamp if log_append else None,
    )


def _timestamp(record: Record) -> int:
    return NO_TIMESTAMP if record.timestamp is None else record.timestamp


def _message(
    offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None, crc: int | None
) -> bytes:
    try:
        head = _HEADS[magic].pack(magic, attributes, *((timestamp,) if magic else ()))
        body = head + _field(key) + _field(value)
        return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body) if crc is None else crc) + body
    except struct.error as error:
        raise RecordsError(f"the message cannot be written: {error}") from None


def _field(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data
