"""From message sets of magic 0 and 1 to batches of magic 2: as a broker converts what a producer sends (`up`), and as its
log would hold them after an upgrade of its format, for consumers that know no older one (`stored`).

Source: Kafka's LogValidator (until 3.9), which gives offsets anew, keeps the producer's times and writes one batch.
"""

from __future__ import annotations

from typing import NoReturn

from ....decoder.records import Batch, Message, Partial, Record, RecordsError, batches, encode_batch
from ....decoder.records.codecs import DEFAULT_LIMIT, NONE, QUICK
from ....decoder.records.message import plain_records
from .conversion import ConversionError, converted, read_wrapper, records_of, wrong_crc


def up(data: bytes, *, limit: int = DEFAULT_LIMIT) -> bytes:
    """The message set of a Produce request (plain messages, wrappers, or both) as one batch of magic 2.

    Produce v3 and later take one batch only; its offsets count from 0, its codec is that of the last wrapper, and it has
    neither producer id nor sequence. Times stay; messages of magic 0 have none and get -1. An unfinished message at the
    end is dropped, as brokers do, and a set without a whole message gives nothing. A set that begins with a batch comes
    back unchanged.

    `limit`: most bytes that all wrappers together may decompress to. Raises `ConversionError`.
    """
    try:
        first = next(batches(data), None)
        if first is None or isinstance(first, Partial):
            return b""
        if isinstance(first, Batch):
            return data
        records, codec = _read(data, limit)
        return _batch(records, False, codec)
    except RecordsError as error:
        raise converted(error) from None


def stored(data: bytes) -> bytes:
    """The message set of a Fetch response (perhaps cut at its end) as batches of magic 2.

    Offsets and times stay, gaps too; a wrapper becomes a batch in its codec, plain messages that follow each other become
    one. What cannot be read stays as it is, with all that follows: its reader reports what is wrong.
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
                plain += records_of(entry)
            else:
                out += _batch(list(records_of(entry)), entry.timestamp_type == "log_append", entry.codec)
            done = entry.end
    except RecordsError:
        return bytes(out) + _batch(plain, appended) + data[done:]
    return bytes(out) + _batch(plain, appended)


def _batch(records: list[Record], log_append: bool, codec: int = NONE) -> bytes:
    return encode_batch(records, codec=codec, level=QUICK.get(codec), log_append=log_append) if records else b""


def _read(data: bytes, limit: int) -> tuple[list[Record], int]:
    """(records with offsets from 0, codec) of a message set."""
    records: list[Record] = []
    codec = NONE
    pos, end = 0, len(data)
    while pos < end:
        entry = next(batches(data, pos, end))
        if isinstance(entry, Partial):
            break
        if isinstance(entry, Batch):
            text = f"an entry of magic {entry.magic} at byte {entry.start}, after older ones"
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
