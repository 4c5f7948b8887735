"""The common part of both directions: reading records with the checks of a broker (every CRC, also inside wrappers),
errors, and counts of losses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from ....decoder.records import Batch, LimitExceeded, Message, Record, RecordsError, decompress
from ....decoder.records.codecs import DEFAULT_LIMIT
from ....decoder.records.message import plain_records


class ConversionError(RecordsError):
    """Records that cannot be converted. `offset`: the byte of the fault (see `RecordsError`); `error`: the name of
    Kafka's error for it."""

    def __init__(
        self, text: str, offset: int | None = None, *, decompressed: bool = False, error: str = "CORRUPT_MESSAGE"
    ) -> None:
        super().__init__(text, offset, decompressed=decompressed)
        self.error = error


def converted(error: RecordsError) -> ConversionError:
    """`error`, which reading or writing has raised, as a ConversionError."""
    if isinstance(error, ConversionError):
        return error
    name = "MESSAGE_TOO_LARGE" if isinstance(error, LimitExceeded) else "CORRUPT_MESSAGE"
    return ConversionError(error.text, error.offset, decompressed=error.decompressed, error=name)


@dataclass(slots=True)
class ConversionCounts:
    """What conversions have lost so far."""

    headers_lost: int = 0
    """Record headers: magic 0 and 1 have none."""
    times_lost: int = 0
    """Records whose time magic 0 cannot hold."""


def wrong_crc(where: str, offset: int, *, decompressed: bool = False) -> ConversionError:
    """The error for bytes whose checksum is not the one they carry."""
    return ConversionError(f"{where}: the CRC is wrong", offset, decompressed=decompressed)


def read_wrapper(message: Message, limit: int, number_from: int | None = None) -> tuple[list[Record], int]:
    """(records, bytes that came out) of a message that is compressed; offsets as the inner messages have them, or counted.

    With log-append time all have the wrapper's time. Raises `RecordsError`.
    """
    where = f"message at byte {message.start}"
    value = message.value
    if value is None:
        raise ConversionError(f"{where}: compressed, but its value is null", message.start)
    try:
        inner = decompress(message.codec, value, limit=limit, magic=message.magic)
    except RecordsError as error:
        raise error.inside(where, message.end - len(value)) from None
    records, pos = plain_records(inner, 0, len(inner), magic=message.magic, number_from=number_from)
    if pos != len(inner):
        explain(message, limit)
    if message.timestamp_type == "log_append":
        records = [record._replace(timestamp=message.timestamp) for record in records]
    return records, len(inner)


def explain(message: Message, limit: int) -> NoReturn:
    """Raise what is wrong with the inner messages of a wrapper, one of which `plain_records` has not taken."""
    where = f"message at byte {message.start}"
    for inner in message.messages(limit=limit):
        if inner.magic != message.magic:
            text = f"{where}: a message of magic {inner.magic} inside one of magic {message.magic}"
            raise ConversionError(text, inner.start + 16, decompressed=True, error="INVALID_RECORD")
        if not inner.crc_ok:
            raise wrong_crc(where, inner.start, decompressed=True)
        try:
            _ = inner.value
        except RecordsError as error:
            raise error.inside(where, 0, decompressed=True) from None
    raise ConversionError(f"{where}: the inner messages cannot be read", 0, decompressed=True)


def records_of(entry: Batch | Message) -> Iterator[Record]:
    """The records of a stored entry with their offsets, one by one: all at once, tiny records take many times the batch's
    bytes."""
    if not entry.crc_ok:
        raise wrong_crc(f"{'record batch' if isinstance(entry, Batch) else 'message'} at byte {entry.start}", entry.start)
    if isinstance(entry, Batch) or not entry.codec:
        yield from entry.records(limit=DEFAULT_LIMIT)
        return
    records, _ = read_wrapper(entry, DEFAULT_LIMIT)
    base = max(0, entry.offset - records[-1].offset) if records else 0
    for record in records:
        yield record._replace(offset=base + record.offset)
