"""Record batches of magic 2: the 61-byte header, and the records on demand. Source: Kafka's DefaultRecordBatch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import codecs
from .errors import BadLength, RecordsError
from .record import BatchBase, Record, scan, with_control, wrapped

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61
CRC_FROM = 21  # the CRC covers attributes and everything after them

CODEC_MASK = 0x07
LOG_APPEND = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_FAR = 1 << 62  # beyond this, base + delta could leave the int64 range


@dataclass(slots=True)
class Batch:
    """One batch of magic 2, data[start:end]: its header, field by field as on the wire. `records` reads the records.

    Timestamps are milliseconds since the epoch.
    """

    data: bytes = field(repr=False, compare=False)
    start: int
    end: int
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are not in use."""
        return self.attributes & CODEC_MASK

    @property
    def codec_name(self) -> str:
        """`none`, `gzip`, `snappy`, `lz4`, `zstd`, or `unknown(6)`."""
        return codecs.name(self.codec)

    @property
    def timestamp_type(self) -> str:
        """`create`, or `log_append`: then `max_timestamp` is the time of all records."""
        return "log_append" if self.attributes & LOG_APPEND else "create"

    @property
    def transactional(self) -> bool:
        """Whether it is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether its records are control records, such as transaction markers."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon(self) -> int | None:
        """When tombstones and markers may be removed (KIP-534), in ms; None if it is not set. It replaces the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_offset(self) -> int:
        """The offset of its last record, even if compaction has removed that one."""
        return self.base_offset + self.last_offset_delta

    @property
    def crc_computed(self) -> int:
        """CRC-32C of the bytes from the attributes on."""
        import crc32c  # not earlier: its import reads the metadata of installed packages

        return int(crc32c.crc32c(memoryview(self.data)[self.start + CRC_FROM : self.end]))

    @property
    def crc_ok(self) -> bool:
        """Whether the CRC in the header is right."""
        return self.crc == self.crc_computed

    def payload(self, *, limit: int = codecs.DEFAULT_LIMIT) -> bytes:
        """The bytes of the records, decompressed to at most `limit` bytes. Raises the errors of `decompress`."""
        data = self.data[self.start + HEADER_SIZE : self.end]
        try:
            return codecs.decompress(self.codec, data, limit=limit)
        except RecordsError as error:
            raise error.inside(self._where(), self.start + HEADER_SIZE) from None

    def records(self, *, limit: int = codecs.DEFAULT_LIMIT) -> Iterator[Record]:
        """The records one by one. Raises `RecordsError` at the first damaged one. `limit`: of decompressed bytes."""
        self.check_count()
        if self.codec:
            data = self.payload(limit=limit)
            pos, end = 0, len(data)
        else:
            data, pos, end = self.data, self.start + HEADER_SIZE, self.end
        try:
            yield from self.scan(data, pos, end, self.record_count)
        except RecordsError as error:
            raise error.inside(self._where(), 0, decompressed=bool(self.codec)) from None

    @property
    def announced(self) -> int:
        """How many records the header announces; 0 for a negative number."""
        return max(self.record_count, 0)

    def check_count(self) -> None:
        """Raise `BadLength` for a negative count."""
        if self.record_count < 0:
            raise BadLength(f"{self._where()}: {self.record_count} records", self.start + HEADER_SIZE - 4)

    def scan(self, data: bytes, pos: int, end: int, count: int) -> Iterator[Record]:
        """The `count` records in data[pos:end], which are all or some of this batch's decompressed bytes."""
        appended = self.max_timestamp if self.attributes & LOG_APPEND else None
        base = BatchBase(self.base_offset, self.base_timestamp, appended, self.base_sequence)
        records = scan(data, pos, end, count, base)
        if not -_FAR < self.base_offset < _FAR or not -_FAR < self.base_timestamp < _FAR:
            records = wrapped(records)
        return with_control(records) if self.control else records

    def _where(self) -> str:
        return f"record batch at byte {self.start}"


def read_batch(data: bytes, start: int, end: int) -> Batch:
    """The batch in data[start:end], whose length and magic the caller has checked."""
    header: tuple[int, ...] = HEADER.unpack_from(data, start)
    return Batch(data, start, end, *header)
