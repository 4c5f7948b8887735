"""One record, and the scan that finds the records of a magic 2 batch in its decompressed bytes.

The accelerator stops at a damaged record; `python_scan`, the reference, then raises what is wrong and where. Counts and lengths
are checked against the bytes that are left before memory is allocated for them.
Source: Kafka's DefaultRecord, ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..native.accelerator import native
from .errors import BadLength, LimitExceeded, RecordsError, Truncated
from .varint import int64, read_uvarint, read_varint

_FREE_HEADERS = 1 << 16
"""Headers that any record may have, plus one per 8 bytes: an empty one has 2 bytes on the wire and takes 64 in memory."""
_INT62 = 1 << 62

Headers = tuple[tuple[str | bytes, bytes | None], ...]

CONTROL_TYPES = (
    ("abort", "EndTxnMarker"),
    ("commit", "EndTxnMarker"),
    ("leader_change", "LeaderChangeMessage"),
    ("snapshot_header", "SnapshotHeaderRecord"),
    ("snapshot_footer", "SnapshotFooterRecord"),
    ("kraft_version", "KRaftVersionRecord"),
    ("kraft_voters", "VotersRecord"),
)
"""By type of a control record: its name, and the definition of its value."""


class Control(NamedTuple):
    """The meaning of a control record. Only abort and commit markers have a `coordinator_epoch`."""

    version: int
    type: int
    coordinator_epoch: int | None = None

    @property
    def name(self) -> str:
        """`abort`, `commit`, `leader_change` ...; `unknown(9)` for a type that Kafka does not have."""
        return CONTROL_TYPES[self.type][0] if 0 <= self.type < len(CONTROL_TYPES) else f"unknown({self.type})"


class Record(NamedTuple):
    """One record of any magic.

    `timestamp`: milliseconds since the epoch, create or log-append time according to the batch; None in magic 0. `headers`:
    (key, value) pairs; a key is bytes only if it is not UTF-8. `sequence`: the producer's sequence number or None.
    `control`: set in control batches.
    """

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    sequence: int | None = None
    control: Control | None = None

    @property
    def tombstone(self) -> bool:
        """Whether it has a key and no value: compaction then removes the key."""
        return self.key is not None and self.value is None and self.control is None


class BatchBase(NamedTuple):
    """What the deltas in records count from. `append_timestamp`: the time of all records, if the batch has log-append time."""

    offset: int
    timestamp: int
    append_timestamp: int | None = None
    sequence: int = -1


def python_scan(data: bytes, pos: int, end: int, count: int, base: BatchBase, done: int = 0) -> Iterator[Record]:
    """`scan` in pure Python, the reference; `done` of the records have been read, the next one is at `pos`."""
    index = done
    while index < count and pos < end:
        index += 1
        later, number, key, value, headers, pos = _read_record(data, pos, end)
        timestamp = base.append_timestamp
        if timestamp is None:
            timestamp = base.timestamp + later
            if not _INT62 > later >= -_INT62:  # only such a delta can push the sum out of int64
                timestamp = int64(timestamp)
        sequence = None if base.sequence < 0 else base.sequence + number & 0x7FFFFFFF
        yield Record(base.offset + number, timestamp, key, value, headers, sequence)
    if index < count:
        raise Truncated(f"{count} record{'s' * (count != 1)} declared, {index} found", end)
    if pos != end:
        raise BadLength(f"{end - pos} byte{'s' * (end - pos != 1)} left over after record {count}, the last one", pos)


def _read_record(data: bytes, pos: int, end: int) -> tuple[int, int, bytes | None, bytes | None, Headers, int]:
    """Of the record at `pos`: timestamp delta, offset delta, key, value, headers, and the position after it."""
    start = pos
    length, pos = read_varint(data, pos)
    if length < 0:
        raise BadLength(f"a record of {length} bytes", start)
    stop = pos + length
    if stop > end:
        raise Truncated(f"a record of {length} bytes, only {max(0, end - pos)} left", start)
    if length < 6:
        raise BadLength(f"a record of {length} bytes is too short", start)
    timestamp_delta, pos = read_varint(data, pos + 1, 64)  # after the attributes, of which no bit is in use
    offset_delta, pos = read_varint(data, pos)
    key, pos = _read_bytes(data, pos, stop, "key")
    value, pos = _read_bytes(data, pos, stop, "value")
    headers, pos = read_headers(data, pos, stop) if data[pos : pos + 1] != b"\0" else ((), pos + 1)
    if pos != stop:
        raise BadLength(f"a record of {length} bytes, but its fields take {length + pos - stop}", start)
    return timestamp_delta, offset_delta, key, value, headers, pos


_NATIVE_STEP = 512
"""Records that the accelerator makes at a time: enough to be fast, few enough for a reader that stops early."""


def scan(data: bytes, pos: int, end: int, count: int, base: BatchBase) -> Iterator[Record]:
    """The `count` records that data[pos:end] consists of.

    Raises `Truncated` or `BadLength` at a damaged record. Offsets of errors are positions in `data`.
    """
    done = 0
    if native is not None and isinstance(data, bytes):
        while done < count:
            step = min(count - done, _NATIVE_STEP)
            found, pos = native.scan(data, pos, end, step, *base, Record, _native_headers)
            yield from found
            done += len(found)
            if len(found) < step:
                break
    # The rest: nothing after the accelerator, or the damaged record, for its error.
    yield from python_scan(data, pos, end, count, base, done)


def _native_headers(data: bytes, pos: int, stop: int) -> tuple[Headers, int]:
    try:
        return read_headers(data, pos, stop)
    except RecordsError:
        return (), -1  # the record does not fit; the Python scan raises why


def spans(data: bytes, pos: int, end: int, count: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each of the `count` records in data[pos:end], length field included. Reads nothing else, and is several
    times as fast as reading the records. Raises `RecordsError` if they do not fill data[pos:end] exactly."""
    start = pos
    index = 0
    try:
        while index < count and pos < end:
            index += 1
            start = pos
            n = data[pos]
            pos += 1
            if n > 0x7F:
                byte = data[pos]
                if byte > 0x7F:
                    n, pos = read_uvarint(data, pos - 1)
                else:
                    pos += 1
                    n = n & 0x7F | byte << 7
            pos += n >> 1
            if n & 1 or pos > end:
                _read_record(data, start, end)
            yield start, pos
    except IndexError:
        _read_record(data, start, end)
    if index < count:
        raise Truncated(f"{count} record{'s' * (count != 1)} declared, {index} found", end)
    if pos != end:
        raise BadLength(f"{end - pos} byte{'s' * (end - pos != 1)} left over after record {count}, the last one", pos)


def read_headers(data: bytes, pos: int, stop: int) -> tuple[Headers, int]:
    """(headers, position after them) of a record that ends at `stop`. Raises `RecordsError`."""
    start = pos
    count, pos = read_varint(data, pos)
    if count < 0:
        raise BadLength(f"{count} record headers", start)
    if count * 2 > max(0, stop - pos):
        raise BadLength(f"{count} record headers in {max(0, stop - pos)} bytes", start)
    if count > _FREE_HEADERS + (stop - pos) // 8:
        raise LimitExceeded(f"limit: {count} headers declared in {stop - pos} bytes", start)
    headers: list[tuple[str | bytes, bytes | None]] = []
    for _ in range(count):
        raw, pos = _read_bytes(data, pos, stop, "header key")
        if raw is None:
            raise BadLength("a header key is null", pos - 1)
        value, pos = _read_bytes(data, pos, stop, "header value")
        try:
            headers.append((raw.decode(), value))
        except UnicodeDecodeError:
            headers.append((raw, value))
    return tuple(headers), pos


def read_control(key: bytes | None, value: bytes | None) -> Control:
    """The meaning of a control record. Raises `BadLength` for a key shorter than its two int16."""
    if key is None or len(key) < 4:
        raise BadLength(f"the key of a control record has {len(key or b'')} bytes, but needs 4")
    version = int.from_bytes(key[:2], "big", signed=True)
    kind = int.from_bytes(key[2:4], "big", signed=True)
    epoch = None
    if kind in (0, 1) and value is not None and len(value) == 6:
        epoch = int.from_bytes(value[2:6], "big", signed=True)
    return Control(version, kind, epoch)


def with_control(records: Iterator[Record]) -> Iterator[Record]:
    """The records of a control batch, with `control` set."""
    for record in records:
        yield record._replace(control=read_control(record.key, record.value))


def wrapped(records: Iterator[Record]) -> Iterator[Record]:
    """Records with offsets and timestamps that wrap around at 64 bits, as in Kafka."""
    for record in records:
        timestamp = None if record.timestamp is None else int64(record.timestamp)
        yield record._replace(offset=int64(record.offset), timestamp=timestamp)


def _read_bytes(data: bytes, pos: int, stop: int, what: str) -> tuple[bytes | None, int]:
    start = pos
    length, pos = read_varint(data, pos)
    if length == -1:
        return None, pos
    if length < 0:
        raise BadLength(f"a {what} of {length} bytes", start)
    if length > stop - pos:
        raise BadLength(f"a {what} of {length} bytes, only {max(0, stop - pos)} left in its record", start)
    return data[pos : pos + length], pos + length
