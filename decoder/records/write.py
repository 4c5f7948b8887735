"""Writing record batches of magic 2, for replay, edits and tests: length and CRC right unless told not to."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from . import codecs
from .batch import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND,
    TRANSACTIONAL,
    Batch,
)
from .errors import RecordsError
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

    What is None is worked out: base offset and base timestamp from the first record (0 and -1 without any),
    the maximum and the last delta from all, count and CRC from what is written. A `delete_horizon` is the
    base timestamp. `level` is the codec's. Given values are written as they are, right or wrong, so that faults can be made.
    Raises `RecordsError` when a value does not fit its field or the codec does not exist.
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
    """`batch` with other records, the rest of its header kept; length, count, CRC and maxima are worked out.

    The last offset delta never shrinks, so a batch that lost records still covers its offsets (as compaction
    leaves it); with log-append time the maximum timestamp, which is the time of all, stays.
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
