"""Credentials in KRaft's metadata log (``__cluster_metadata``), which Fetch and FetchSnapshot carry between controllers and
brokers: keys of SCRAM users, and settings. They are masked in place, and the CRC of their batch is computed again, so that
everything else reads as before.

Sources: Kafka's UserScramCredentialRecord.json, ConfigRecord.json, AbstractApiMessageSerde.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from functools import cache

from ..errors import BadLength, DecodeError, Truncated, UnknownApi, UnknownVersion
from ..records import Batch, Partial, RecordsError, batches
from ..records.batch import CRC_FROM, HEADER_SIZE
from ..schema import facts
from ..schema.notation import Definition
from ..schema.plan import Fields, extra_plan
from ..schema.settings import holds_credentials, holds_no_credentials
from ..wire.varint import VarintCut, VarintTooLong, read_uvarint
from .payload import HIDDEN
from .walk import Walker

TOPIC = "__cluster_metadata"
TOPIC_ID = uuid.UUID(int=1)
"""The metadata log's topic id in every cluster."""
_FILE = f"embedded/{TOPIC.strip('_')}"
_FRAME_VERSION = 1
_CRC_AT = 17

SECRET_FIELDS = {
    "UserScramCredentialRecord": ("salt", "stored_key", "server_key"),
    "ConfigRecord": ("value",),
}
"""Fields that are credentials or, of settings, may be."""

_MASK = b"*"


def secret_setting(name: object, value: object) -> bool:
    """Whether a setting in a ConfigRecord may be a credential."""
    return not holds_no_credentials(str(name)) or holds_credentials(str(value))


def hide_fields(record: str, fields: Fields) -> Fields:
    """The fields of a metadata record with its credentials replaced."""
    hidden = SECRET_FIELDS.get(record, ())
    if record == "ConfigRecord" and not secret_setting(fields.get("name"), fields.get("value")):
        hidden = ()
    return {name: HIDDEN if name in hidden and value else value for name, value in fields.items()}


@cache
def types(file: str = _FILE) -> dict[int, Definition]:
    """The definitions of metadata records, by record type."""
    return {d.key: d for d in facts.extra(file).values() if d.key is not None and d.name.endswith("Record")}


def record_head(value: bytes, of: dict[int, Definition], topic: str = TOPIC) -> tuple[str, int, int]:
    """Name, version and start of the body of a metadata record's value. Raises `DecodeError`."""
    position = 0
    numbers = []
    for what in ("frame version", "record type", "record version"):
        try:
            number, position = read_uvarint(value, position)
        except VarintTooLong:
            raise BadLength(f"the {what} is a varint of more than 5 bytes", api=topic, offset=position) from None
        except VarintCut:
            raise Truncated(f"the data ends inside the {what}", api=topic, offset=position) from None
        numbers.append(number)
        if numbers[0] != _FRAME_VERSION:
            raise UnknownVersion(f"metadata frame version {numbers[0]} is not known; known version: {_FRAME_VERSION}", api=topic)
    _, number, version = numbers
    if number not in of:
        raise UnknownApi(f"record type {number} is not known in {topic}")
    return of[number].name, version, position


def may_be_in(frame: bytes, by_id: bool) -> bool:
    """Whether the response of a fetch may have the metadata log: its topic id or name occurs in the bytes."""
    return (TOPIC_ID.bytes if by_id else TOPIC.encode()) in frame


def masked(area: bytes) -> bytes:
    """A record area of the metadata log with credentials masked. What cannot be read is masked too."""
    out = bytearray(area)
    at = 0
    try:
        for entry in batches(area):
            at = entry.end
            if isinstance(entry, Batch):
                _mask_batch(entry, out)
            else:  # KRaft has no other magic, and an unfinished batch is not read
                start = entry.start + (HEADER_SIZE if isinstance(entry, Partial) else CRC_FROM)
                out[start : entry.end] = _MASK * max(entry.end - start, 0)
    except RecordsError:
        out[at:] = _MASK * (len(out) - at)
    return bytes(out)


def _mask_batch(batch: Batch, out: bytearray) -> None:
    hidden = list(_secrets(batch))
    for start, end in hidden:
        out[start:end] = _MASK * (end - start)
    if hidden:
        import crc32c

        crc = crc32c.crc32c(bytes(out[batch.start + CRC_FROM : batch.end]))
        struct.pack_into(">I", out, batch.start + _CRC_AT, crc)


def _secrets(batch: Batch) -> Iterator[tuple[int, int]]:
    """(start, end) of the secrets in a batch's data."""
    body = batch.start + HEADER_SIZE
    if batch.codec:  # KRaft does not compress
        yield body, batch.end
        return
    at = body
    try:
        for record in batch.records():
            if not record.value:
                continue
            # Records follow one another: the next occurrence of these bytes is theirs or before it.
            start = batch.data.index(record.value, at, batch.end)
            at = start + len(record.value)
            if not batch.control:
                for first, end in secret_spans(record.value):
                    yield start + first, start + end
    except RecordsError:
        yield at, batch.end


def secret_spans(value: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of the credentials in the value of a metadata record; all of it if it cannot be read."""
    try:
        name, version, body = record_head(value, types())
        fields = SECRET_FIELDS.get(name)
        if fields is None:
            return
        walker = Walker(extra_plan(_FILE, name, version), value, body)
        walker.run()
    except DecodeError:
        yield 0, len(value)
        return
    tree = walker.tree
    if name == "ConfigRecord" and not secret_setting(tree.get("name"), tree.get("value")):
        return
    for span in walker.spans:
        if span.path in fields and (content := tree[span.path]):
            size = len(content if isinstance(content, bytes) else content.encode())
            yield span.end - size, span.end
