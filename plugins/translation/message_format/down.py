"""From newer formats to message sets of magic 0 and 1, as a broker converts what an old consumer fetches.

Source: Kafka's RecordsUtil.downConvert and LazyDownConversionRecords (until 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator

from ....decoder.records import Batch, Message, Partial, Record, RecordsError, batches, encode_messages
from ....decoder.records.codecs import DEFAULT_LIMIT, GZIP, QUICK, ZSTD
from .conversion import ConversionCounts, converted, records_of


def down(
    data: bytes,
    *,
    magic: int,
    first_offset: int | None = None,
    max_bytes: int | None = None,
    limit: int = DEFAULT_LIMIT,
    instead_of_zstd: int = GZIP,
    counts: ConversionCounts | None = None,
) -> bytes:
    """The records of a Fetch response (any magics, perhaps cut at the end) as a message set of `magic` 0 or 1.

    Offsets and times stay, gaps too; a compressed batch becomes a wrapper in the same codec, except for zstd, which
    these formats do not have. Headers are lost. Control batches are left out; records of aborted transactions stay,
    since old consumers read uncommitted. What is of `magic` or older stays byte for byte.

    `first_offset` is the offset that was asked for: plain messages before it are left out (some consumers rely on it),
    a wrapper comes whole. Not more than `max_bytes` come, but always one message or wrapper, so that a consumer gets
    on; what is left out is fetched next. `limit` is the most bytes that one batch may decompress to.
    Raises `ConversionError` for a damaged batch at the beginning; a later one ends what is given, and is the first of
    the next fetch. Nothing comes where there is nothing to give: then the consumer stays at its offset until there is.
    """
    if magic not in (0, 1, 2):
        raise ValueError(f"magic {magic} is unknown; Kafka has 0, 1 and 2")
    out = bytearray()
    try:
        for entry in batches(data):
            if isinstance(entry, Partial):
                break
            if isinstance(entry, Batch) and magic < 2 and entry.control:
                if counts is not None:
                    counts.control_dropped += max(0, entry.record_count)
                continue
            if entry.magic <= magic:
                piece = data[entry.start : entry.end]
            else:
                piece = _convert(entry, magic, first_offset, limit, instead_of_zstd, counts)
            if max_bytes is not None and len(out) + len(piece) > max_bytes:
                out += _that_fits(piece, max_bytes - len(out), at_least_one=not out)
                break
            out += piece
    except RecordsError as error:
        if not out:
            raise converted(error) from None
    return bytes(out)


def _convert(
    entry: Batch | Message, magic: int, first_offset: int | None, limit: int, instead_of_zstd: int, counts: ConversionCounts | None
) -> bytes:
    """The message set of `magic` with the records of one batch, or of one message of magic 1."""
    codec = instead_of_zstd if entry.codec == ZSTD else entry.codec
    records = records_of(entry, limit)
    if not entry.codec and first_offset is not None:
        records = (record for record in records if record.offset >= first_offset)
    if counts is not None:
        records = _counted(records, counts, timeless=magic == 0)
    log_append = entry.timestamp_type == "log_append"
    made = encode_messages(
        records,
        magic=magic,
        codec=codec,
        log_append=log_append,
        timestamp=(entry.max_timestamp if isinstance(entry, Batch) else entry.timestamp) if log_append else None,
        level=QUICK.get(codec),
    )
    if counts is not None and made:
        counts.zstd_replaced += entry.codec == ZSTD
    return made


def _counted(records: Iterator[Record], counts: ConversionCounts, *, timeless: bool) -> Iterator[Record]:
    for record in records:
        counts.records += 1
        counts.headers_lost += len(record.headers)
        counts.times_lost += timeless
        yield record


def _that_fits(messages: bytes, room: int, *, at_least_one: bool) -> bytes:
    """The whole entries of `messages` that fit into `room` bytes; with `at_least_one` the first in any case."""
    pos = 0
    while pos < len(messages):
        after = pos + 12 + int.from_bytes(messages[pos + 8 : pos + 12], "big")
        if after > room and not (at_least_one and not pos):
            break
        pos = after
    return messages[:pos]
