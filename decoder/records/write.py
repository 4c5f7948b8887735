"""Write record batches (magic 2) and messages (magic 0 and 1), alone or as the wrapper of a compressed set.

What the older magics lack (headers, sequence numbers, in magic 0 also times) is left out, as in Kafka's down-conversion.
Source: Kafka's DefaultRecordBatch, LegacyRecord, and KIP-31 and KIP-32 for magic 1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from . import codecs
from .batch import CODEC_MASK, CONTROL, CRC_FROM, DELETE_HORIZON, HEADER, HEADER_SIZE, LOG_APPEND, TRANSACTIONAL, Batch
from .errors import RecordsError, UnknownMagic
from .message import Message
from .record import Headers, Record
from .varint import int64, write_varint

NO_TIMESTAMP = -1


def encode_batch(
    records: Iterable[Record],
    *,
    codec: int = codecs.NONE,
    base_offset: int | None = None,
    partition_leader_epoch: int = -1,
    log_append: bool = False,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    last_offset_delta: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    record_count: int | None = None,
    crc: int | None = None,
    level: int | None = None,
) -> bytes:
    """One batch of magic 2 with these records, whose offsets are absolute and times in ms (None becomes -1).

    Header fields that are None are computed: base offset and base timestamp from the first record (0 and -1 without any),
    maximum timestamp and last offset delta from all, count and CRC from what is written. Given values are written as they
    are, right or wrong. A `delete_horizon` replaces the base timestamp. `level`: the compression level, None for Kafka's
    default. Raises `RecordsError` if a value is out of range for its field or the codec does not exist.
    """
    all_records = list(records)
    first = all_records[0] if all_records else None
    if base_offset is None:
        base_offset = first.offset if first else 0
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    elif base_timestamp is None:
        base_timestamp = _timestamp(first) if first else NO_TIMESTAMP
    if max_timestamp is None:
        max_timestamp = max(map(_timestamp, all_records), default=NO_TIMESTAMP)
    if last_offset_delta is None:
        last_offset_delta = max((record.offset - base_offset for record in all_records), default=0)
    attributes = (
        codec
        | LOG_APPEND * log_append
        | TRANSACTIONAL * transactional
        | CONTROL * control
        | DELETE_HORIZON * (delete_horizon is not None)
    )
    payload = codecs.compress(codec, _write_records(all_records, base_offset, base_timestamp), level=level)
    try:
        batch = bytearray(
            HEADER.pack(
                base_offset,
                HEADER_SIZE - 12 + len(payload),
                partition_leader_epoch,
                2,
                0,
                attributes,
                last_offset_delta,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                len(all_records) if record_count is None else record_count,
            )
        )
        batch += payload
        if crc is None:
            import crc32c

            crc = crc32c.crc32c(memoryview(batch)[CRC_FROM:])
        struct.pack_into(">I", batch, CRC_FROM - 4, crc)
    except struct.error as error:
        raise RecordsError(f"the batch cannot be written: {error}") from None
    return bytes(batch)


def encode_like(batch: Batch, records: Iterable[Record], *, codec: int | None = None) -> bytes:
    """`batch` with other records. Length, count, CRC and maxima are computed; the rest of the header is kept.

    The last offset delta never shrinks, so that a batch that lost records still covers its offsets, as after compaction.
    With log-append time, the maximum timestamp, which is the time of all records, stays. `codec`: a different codec. Raises
    the errors of `encode_batch`.
    """
    kept = list(records)
    deltas = (record.offset - batch.base_offset for record in kept)
    log_append = batch.timestamp_type == "log_append"
    return encode_batch(
        kept,
        codec=batch.codec if codec is None else codec & CODEC_MASK,
        base_offset=batch.base_offset,
        partition_leader_epoch=batch.partition_leader_epoch,
        log_append=log_append,
        transactional=batch.transactional,
        control=batch.control,
        delete_horizon=batch.delete_horizon,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp if log_append else None,
        last_offset_delta=max([batch.last_offset_delta, *deltas]),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def _timestamp(record: Record) -> int:
    return NO_TIMESTAMP if record.timestamp is None else record.timestamp


def _write_records(records: list[Record], base_offset: int, base_timestamp: int) -> bytes:
    steps = range(0, len(records), _STEP)
    return b"".join([_write_some(records[at : at + _STEP], base_offset, base_timestamp) for at in steps])


def _write_some(records: list[Record], base_offset: int, base_timestamp: int) -> bytes:
    parts: list[bytes] = []
    for offset, timestamp, key, value, headers, _, _ in records:
        delta = (NO_TIMESTAMP if timestamp is None else timestamp) - base_timestamp
        at = offset - base_offset
        times = _SHORT[delta] if 0 <= delta < _TABLE else _varint(int64(delta))
        offsets = _SHORT[at] if 0 <= at < _TABLE else _varint(at)
        if key is None:
            key, key_size = b"", _NULL
        else:
            key_size = _SHORT[len(key)] if len(key) < _TABLE else _varint(len(key))
        if value is None:
            value, value_size = b"", _NULL
        else:
            value_size = _SHORT[len(value)] if len(value) < _TABLE else _varint(len(value))
        tail = _headers(headers) if headers else _NO_HEADERS
        size = 1 + len(times) + len(offsets) + len(key_size) + len(key) + len(value_size) + len(value) + len(tail)
        parts += (
            _SHORT[size] if size < _TABLE else _varint(size), _ATTRIBUTES, times, offsets, key_size, key, value_size, value, tail
        )  # fmt: skip
    return b"".join(parts)


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_STEP = 1024
"""Records at a time: the parts of one take several times its bytes."""
_TABLE = 2048
_SHORT = [_varint(value) for value in range(_TABLE)]  # most lengths and deltas
_ATTRIBUTES = b"\0"  # no bit is in use
_NO_HEADERS = _varint(0)
_NULL = _varint(-1)


def _headers(headers: Headers) -> bytes:
    out = bytearray()
    write_varint(out, len(headers))
    for key, value in headers:
        _write_bytes(out, key.encode() if isinstance(key, str) else key)
        _write_bytes(out, value)
    return bytes(out)


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += _NULL
    else:
        write_varint(out, len(value))
        out += value


# --- messages of magic 0 and 1 ---------------------------------------------------------------------------------

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

    With a `codec`, the messages are the value of one wrapper, which has the last record's offset, or `wrapper_offset`, and the
    latest time. Inner offsets are `relative` by default in magic 1 and absolute in magic 0. `log_append` marks the times as
    the broker's: `timestamp`, or each message's own; in a wrapper, only the wrapper's time then counts. `crc` is written to
    all messages outside a wrapper, right or wrong. `level`: the compression level. Without records, the set is empty.
    Raises `RecordsError` if a value is out of range for its field or the codec does not exist in this magic.
    """
    if magic not in _HEADS:
        raise UnknownMagic(f"messages have magic 0 or 1, not {magic}; for batches of magic 2 use encode_batch")
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
    """A message set with these records and the magic and codec of `message`, and its time if that is log-append time.
    `codec`: a different codec. Raises the errors of `encode_messages`.
    """
    log_append = message.timestamp_type == "log_append"
    return encode_messages(
        records,
        magic=message.magic,
        codec=message.codec if codec is None else codec,
        log_append=log_append,
        timestamp=message.timestamp if log_append else None,
    )


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
