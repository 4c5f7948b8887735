"""From newer formats to message sets of magic 0 and 1, as a broker converts what an old consumer fetches.

Source: Kafka's RecordsUtil.downConvert and LazyDownConversionRecords (until 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator

from ....decoder.records import Batch, Message, Partial, Record, RecordsError, batches, encode_messages
from ....decoder.records.codecs import GZIP, QUICK, ZSTD
from .conversion import ConversionCounts, converted, records_of


def down(data: bytes, *, magic: int, first_offset: int | None = None, counts: ConversionCounts | None = None) -> bytes:
    """The records of a Fetch response (any magics, perhaps cut at the end) as a message set of `magic` 0 or 1.

    Offsets and times stay, gaps too; a compressed batch becomes a wrapper in the same codec, zstd becomes gzip, as these
    formats do not have it. Headers are lost. Control batches are left out; records of aborted transactions stay, since
    old consumers read uncommitted. Entries of `magic` or older stay byte for byte.

    `first_offset`: the offset that was asked for. Plain messages before it are left out (some consumers rely on it), a
    wrapper stays whole. `counts` is added to. Raises `ConversionError` for a damaged batch at the beginning; a later one
    ends the result, and is the first of the next fetch. The result may be empty: the consumer stays at its offset then.
    """
    out = bytearray()
    try:
        for entry in batches(data):
            if isinstance(entry, Partial):
                break
            if isinstance(entry, Batch) and entry.control:
                continue
            if entry.magic <= magic:
                out += data[entry.start : entry.end]
            else:
                out += _convert(entry, magic, first_offset, counts)
    except RecordsError as error:
        if not out:
            raise converted(error) from None
    return bytes(out)


def _convert(entry: Batch | Message, magic: int, first_offset: int | None, counts: ConversionCounts | None) -> bytes:
    """The message set of `magic` with the records of one batch, or of one message of magic 1."""
    codec = GZIP if entry.codec == ZSTD else entry.codec
    records = records_of(entry)
    if not entry.codec and first_offset is not None:
        records = (record for record in records if record.offset >= first_offset)
    if counts is not None:
        records = _counted(records, counts, timeless=magic == 0)
    log_append = entry.timestamp_type == "log_append"
    return encode_messages(
        records,
        magic=magic,
        codec=codec,
        log_append=log_append,
        timestamp=(entry.max_timestamp if isinstance(entry, Batch) else entry.timestamp) if log_append else None,
        level=QUICK.get(codec),
    )


def _counted(records: Iterator[Record], counts: ConversionCounts, *, timeless: bool) -> Iterator[Record]:
    for record in records:
        counts.headers_lost += len(record.headers)
        counts.times_lost += timeless
        yield record
