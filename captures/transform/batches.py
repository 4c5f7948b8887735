"""Keys, values and headers of records replaced by others of the same length, in batches of every magic and codec.

Everything else stays: offsets, times, sequence numbers, attributes, the way lengths are written. A compressed batch is
compressed again with its codec, so its size changes; a CRC that was right is made right again, a wrong one stays wrong. What
cannot be read (an unfinished last batch, damage) is blanked from there on.
"""

from __future__ import annotations

import struct
import zlib
from typing import Protocol

import crc32c

from ...decoder import records
from ...decoder.records import codecs
from ...decoder.records.batch import CRC_FROM, HEADER_SIZE
from ...decoder.records.errors import BadLength, RecordsError, Truncated
from ...decoder.records.varint import read_uvarint, read_varint

BLANK = b"*"
_LIMIT = 256 << 20  # bytes one batch may decompress to
_XERIAL = b"\x82SNAPPY\x00"
_KEYS_AT = {0: 18, 1: 26}  # where a message's key has its length


class Changer(Protocol):
    """Changes the parts of records, keeping their lengths. `blanked` is called with the number of bytes that could not be read."""

    def record(self, key: bytes | None, value: bytes | None, control: bool) -> tuple[bytes | None, bytes | None]: ...

    def header(self, key: bytes, value: bytes | None) -> tuple[bytes, bytes | None]: ...

    def blanked(self, size: int) -> None: ...


def rewritten(data: bytes, changer: Changer) -> bytes:
    """A records area with every record changed."""
    out = bytearray()
    done = 0
    try:
        for entry in records.batches(data):
            if isinstance(entry, records.Partial):
                out += _blanked(data, entry.start, entry.end, changer)
            elif isinstance(entry, records.Batch):
                out += _batch(entry, changer)
            else:
                out += _message(entry, changer)
            done = entry.end
    except RecordsError:
        pass  # the area cannot be read any further
    if done < len(data):
        out += _blanked(data, done, len(data), changer)
    return bytes(out)


def blank(data: bytes, changer: Changer) -> bytes:
    """Nothing but the length stays."""
    changer.blanked(len(data))
    return BLANK * len(data)


def _blanked(data: bytes, start: int, end: int, changer: Changer) -> bytes:
    """Bytes that cannot be followed, an unfinished last entry among them. What would be their length and magic stays,
    as it shows what is wrong; the rest may be anything, damaged as it is."""
    out = bytearray(min(HEADER_SIZE, end - start)) + BLANK * (end - start - HEADER_SIZE)
    for first, last in ((8, 12), (16, 17)):
        out[first:last] = data[min(start + first, end) : min(start + last, end)]
    changer.blanked(len(out))
    return bytes(out)


# --- magic 2 -----------------------------------------------------------------------------------------------------


def _batch(batch: records.Batch, changer: Changer) -> bytes:
    was_right = batch.crc_ok
    packed = batch.data[batch.start + HEADER_SIZE : batch.end]
    try:
        payload = bytearray(codecs.decompress(batch.codec, packed, limit=_LIMIT)) if batch.codec else bytearray(packed)
    except RecordsError:
        if not was_right:
            return _blanked(batch.data, batch.start, batch.end, changer)
        changer.blanked(len(packed))
        payload = bytearray(BLANK * len(packed))
    else:
        if not _patch(payload, batch.record_count, batch.control, changer) and not was_right:
            return _blanked(batch.data, batch.start, batch.end, changer)
        if batch.codec:
            payload = bytearray(_packed(batch.codec, bytes(payload), packed, 2))
    head = bytearray(batch.data[batch.start : batch.start + HEADER_SIZE])
    struct.pack_into(">i", head, 8, HEADER_SIZE - 12 + len(payload))
    if was_right:
        crc = crc32c.crc32c(bytes(payload), crc32c.crc32c(bytes(head[CRC_FROM:])))
        struct.pack_into(">I", head, CRC_FROM - 4, crc)
    return bytes(head + payload)


def _packed(codec: int, payload: bytes, before: bytes, magic: int) -> bytes:
    return codecs.compress(codec, payload, xerial=before.startswith(_XERIAL), magic=magic)


def _patch(data: bytearray, count: int, control: bool, changer: Changer) -> bool:
    """Change the records of a batch in place; from the first one that cannot be read on they are blanked, and the
    answer is False."""
    pos, end = 0, len(data)
    for _ in range(max(count, 0)):
        if pos >= end:
            break
        try:
            pos = _patch_record(data, pos, control, changer)
        except RecordsError:
            break
    if pos < end:
        changer.blanked(end - pos)
        data[pos:] = BLANK * (end - pos)
    return pos >= end


def _patch_record(data: bytearray, start: int, control: bool, changer: Changer) -> int:
    """Change one record; returns where it ends. RecordsError before anything is changed."""
    length, pos = _varint(data, start)
    stop = pos + length
    if length < 6 or stop > len(data):
        raise BadLength("a record of a wrong length", start)
    _, pos = read_uvarint(data, pos + 1, 64)  # type: ignore[arg-type]
    _, pos = read_uvarint(data, pos)  # type: ignore[arg-type]
    key_at, key_end, pos = _span(data, pos, stop)
    value_at, value_end, pos = _span(data, pos, stop)
    headers, pos = _varint(data, pos)
    if headers < 0 or headers * 2 > stop - pos:
        raise BadLength("a wrong number of headers", pos)
    spans = []
    for _ in range(headers):
        name_at, name_end, pos = _span(data, pos, stop)
        content_at, content_end, pos = _span(data, pos, stop)
        spans.append((name_at, name_end, content_at, content_end))
    if pos != stop:
        raise BadLength("a record whose fields do not add up to its length", start)
    key, value = changer.record(_of(data, key_at, key_end), _of(data, value_at, value_end), control)
    _put(data, key_at, key_end, key)
    _put(data, value_at, value_end, value)
    for name_at, name_end, content_at, content_end in spans:
        name, content = changer.header(bytes(data[name_at:name_end]), _of(data, content_at, content_end))
        _put(data, name_at, name_end, name)
        _put(data, content_at, content_end, content)
    return stop


def _varint(data: bytearray, pos: int) -> tuple[int, int]:
    if pos < len(data) and data[pos] < 0x80:
        byte = data[pos]
        return (byte >> 1) ^ -(byte & 1), pos + 1
    return read_varint(data, pos)  # type: ignore[arg-type]


def _span(data: bytearray, pos: int, stop: int) -> tuple[int, int, int]:
    """(start, end, position behind) of bytes with a length in front; -1, -1 for null."""
    length, pos = _varint(data, pos)
    if length == -1:
        return -1, -1, pos
    if length < 0 or pos + length > stop:
        raise BadLength("bytes of a wrong length", pos)
    return pos, pos + length, pos + length


def _of(data: bytearray, start: int, end: int) -> bytes | None:
    return None if start < 0 else bytes(data[start:end])


def _put(data: bytearray, start: int, end: int, new: bytes | None) -> None:
    if start >= 0 and new is not None:
        assert len(new) == end - start
        data[start:end] = new


# --- magic 0 and 1 -----------------------------------------------------------------------------------------------


def _message(message: records.Message, changer: Changer) -> bytes:
    """A message, or a wrapper and those inside of it."""
    was_right = message.crc_ok
    out = bytearray(message.data[message.start : message.end])
    try:
        key_at, key_end, pos = _long_span(out, _KEYS_AT[message.magic])
        value_at, value_end, pos = _long_span(out, pos)
    except RecordsError:
        return _blanked(message.data, message.start, message.end, changer)
    if pos < len(out):
        changer.blanked(len(out) - pos)
        out[pos:] = BLANK * (len(out) - pos)
    if not message.codec:
        key, value = changer.record(_of(out, key_at, key_end), _of(out, value_at, value_end), False)
        _put(out, key_at, key_end, key)
        _put(out, value_at, value_end, value)
    elif value_at >= 0:
        key, _ = changer.record(_of(out, key_at, key_end), None, False)
        _put(out, key_at, key_end, key)
        packed = bytes(out[value_at:value_end])
        try:
            inner = codecs.decompress(message.codec, packed, limit=_LIMIT, magic=message.magic)
        except RecordsError:
            new = blank(packed, changer)
        else:
            new = _packed(message.codec, _set(inner, changer), packed, message.magic)
        out[value_at:value_end] = new
        struct.pack_into(">i", out, value_at - 4, len(new))
        struct.pack_into(">i", out, 8, len(out) - 12)
    if was_right:
        struct.pack_into(">I", out, 12, zlib.crc32(out[16:]))
    return bytes(out)


def _set(inner: bytes, changer: Changer) -> bytes:
    """The messages of a wrapper. A wrapper in a wrapper, which no client reads, is blanked."""
    out = bytearray()
    done = 0
    try:
        for entry in records.batches(inner):
            if not isinstance(entry, records.Message) or entry.codec:
                break
            out += _message(entry, changer)
            done = entry.end
    except RecordsError:
        pass
    if done < len(inner):
        out += _blanked(inner, done, len(inner), changer)
    return bytes(out)


def _long_span(data: bytearray, pos: int) -> tuple[int, int, int]:
    """`_span` with a length of 4 bytes."""
    if pos + 4 > len(data):
        raise Truncated("no room for a length", pos)
    length = int.from_bytes(data[pos : pos + 4], "big", signed=True)
    pos += 4
    if length == -1:
        return -1, -1, pos
    if length < 0 or pos + length > len(data):
        raise BadLength("bytes of a wrong length", pos)
    return pos, pos + length, pos + length
