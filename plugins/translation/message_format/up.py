"""From message sets of magic 0 and 1 to newer formats, as a broker converts what a producer sends.

And as a broker's log would hold them after an upgrade of its format, for consumers that know no older one.

Source: Kafka's LogValidator (until 3.9), which gives offsets anew, keeps the producer's times and writes one batch.
"""

from __future__ import annotations

from typing import Literal, NoReturn

from ....decoder.records import Batch, Message, Partial, Record, RecordsError, batches, encode_batch, encode_messages
from ....decoder.records.codecs import DEFAULT_LIMIT, NONE, QUICK
from ....decoder.records.message import plain_records
from .conversion import ConversionCounts, ConversionError, converted, read_wrapper, records_of, wrong_crc


def up(
    data: bytes,
    *,
    magic: int = 2,
    now_ms: int,
    topic_timestamps: Literal["create", "log_append"] = "create",
    limit: int = DEFAULT_LIMIT,
    counts: ConversionCounts | None = None,
) -> bytes:
    """The message set of a Produce request (plain messages, wrappers, or both) as one batch of magic 2.

    It is one batch, since Produce v3 and later take no more; its offsets count from 0, its codec is that of the last
    wrapper, and it has neither producer id nor sequence. An unfinished message at the end is dropped, as brokers do.
    Times stay; messages of magic 0 have none and get -1. With `topic_timestamps="log_append"` all get `now_ms`
    (milliseconds since the epoch), as a topic with message.timestamp.type=LogAppendTime gives them. A set that
    begins with `magic` comes back as it is (whoever reads it says what is wrong with it); `magic` 1 makes a message set.

    Nothing comes of a set without a whole message; a broker refuses a Produce v3 that has nothing for a partition.
    `limit` is the most bytes that all wrappers together may decompress to. Raises `ConversionError`.
    """
    if magic not in (0, 1, 2):
        raise ValueError(f"magic {magic} is unknown; Kafka has 0, 1 and 2")
    try:
        first = next(batches(data), None)
        if first is None or isinstance(first, Partial):
            return b""
        if first.magic == magic:
            return data
        records, codec = _read(data, magic, limit)
        if not records:
            return b""
        if topic_timestamps == "log_append":
            records = [record._replace(timestamp=now_ms) for record in records]
        if magic == 2:
            written = encode_batch(records, codec=codec, level=QUICK.get(codec))
        else:
            written = encode_messages(records, magic=magic, codec=codec, level=QUICK.get(codec))
    except RecordsError as error:
        raise converted(error) from None
    if counts is not None:
        counts.records += len(records)
    return written


def stored(data: bytes, *, limit: int = DEFAULT_LIMIT) -> bytes:
    """The message set of a Fetch response (perhaps cut at its end) as batches of magic 2.

    Offsets and times stay, gaps too; a wrapper becomes a batch in its codec, plain messages that follow each other become one.
    What cannot be read comes as it is, with all that follows: its reader says what is wrong. `limit` is the most bytes that one
    wrapper may decompress to.
    """
    out = bytearray()
    plain: list[Record] = []
    appended = False
    done = 0
    try:
        for entry in batches(data):
            if isinstance(entry, Partial):
                return bytes(out) + _batch(plain, appended)
            single = not isinstance(entry, Batch) and not entry.codec
            if plain and (not single or appended != (entry.timestamp_type == "log_append")):
                out += _batch(plain, appended)
                plain = []
            if isinstance(entry, Batch):
                out += data[entry.start : entry.end]
            elif single:
                appended = entry.timestamp_type == "log_append"
                plain += records_of(entry, limit)
            else:
                out += _batch(list(records_of(entry, limit)), entry.timestamp_type == "log_append", entry.codec)
            done = entry.end
    except RecordsError:
        return bytes(out) + _batch(plain, appended) + data[done:]
    return bytes(out) + _batch(plain, appended)


def _batch(records: list[Record], log_append: bool, codec: int = NONE) -> bytes:
    return encode_batch(records, codec=codec, level=QUICK.get(codec), log_append=log_append) if records else b""


def _read(data: bytes, magic: int, limit: int) -> tuple[list[Record], int]:
    """(records with offsets from 0, codec) of a message set whose messages are older than `magic`."""
    records: list[Record] = []
    codec = NONE
    pos, end = 0, len(data)
    while pos < end:
        entry = next(batches(data, pos, end))
        if isinstance(entry, Partial):
            break
        if isinstance(entry, Batch) or entry.magic > magic:
            text = f"an entry of magic {entry.magic} at byte {entry.start}, behind older ones"
            raise ConversionError(text, entry.start + 16, error="INVALID_RECORD")
        if not entry.codec:
            found, pos = plain_records(data, pos, end, magic=entry.magic, number_from=len(records))
            if not found:
                _explain(entry)
        else:
            if not entry.crc_ok:
                raise wrong_crc(f"message at byte {entry.start}", entry.start)
            found, size = read_wrapper(entry, limit, len(records))
            limit -= size
            codec = entry.codec
            pos = entry.end
        records += found
    return records, codec


def _explain(entry: Message) -> NoReturn:
    """Raise what is wrong with a plain message."""
    if not entry.crc_ok:
        raise wrong_crc(f"message at byte {entry.start}", entry.start)
    _ = entry.value
    raise ConversionError(f"message at byte {entry.start}: it cannot be read", entry.start)
