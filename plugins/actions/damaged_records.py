"""Record batches and messages with one kind of damage each (KIP-32, KIP-98; DefaultRecordBatch).

Each function takes the bytes of a record area, a random generator, whether CRCs are to match the damaged bytes, and how
many bits to flip; an area with nothing to damage is returned unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from ...decoder import records
from ...decoder.records import Batch, Message, RecordsError
from ...decoder.records.batch import HEADER_SIZE

Entry = Batch | Message
CRC_AT = {0: 12, 1: 12, 2: 17}
MAGIC_AT = 16
ATTRIBUTES_AT = {0: 17, 1: 17, 2: 22}
"""By magic, in an entry; the byte that holds the codec."""
LENGTH_AT = 8
PAYLOAD_AT = {0: 18, 1: 26, 2: HEADER_SIZE}
NO_CODEC = 7
"""A codec that does not exist."""
NO_MAGIC = 9

Damage = Callable[[bytearray, Entry, random.Random, int], None]
"""Damages one entry, whose bytes these are."""


def _entries(area: bytes) -> list[Entry]:
    found: list[Entry] = []
    try:
        for entry in records.batches(area):
            if not isinstance(entry, records.Partial):
                found.append(entry)
    except RecordsError:
        pass  # the entries before the fault can still be damaged
    return found


def _each(damage: Damage, area: bytes, chance: random.Random, fixed: bool, count: int) -> bytes:
    """Every entry damaged."""
    data = bytearray(area)
    for entry in _entries(area):
        own = data[entry.start : entry.end]
        damage(own, entry, chance, count)
        if own == data[entry.start : entry.end]:
            continue  # nothing was damaged: a CRC that was wrong before stays wrong
        if fixed:
            _with_crc(own)
        data[entry.start : entry.end] = own
    return bytes(data)


def _with_crc(own: bytearray) -> None:
    """Set the CRC of the damaged bytes, if they are still an entry."""
    try:
        (entry,) = records.batches(bytes(own))
    except (RecordsError, ValueError):
        return
    if not isinstance(entry, records.Partial):
        place = CRC_AT[entry.magic]
        own[place : place + 4] = entry.crc_computed.to_bytes(4, "big")


def _crc(own: bytearray, entry: Entry, chance: random.Random, count: int) -> None:
    wrong = entry.crc_computed ^ 1 << chance.randrange(8)
    own[CRC_AT[entry.magic] : CRC_AT[entry.magic] + 4] = wrong.to_bytes(4, "big")


def _magic(own: bytearray, entry: Entry, chance: random.Random, count: int) -> None:
    own[MAGIC_AT] = NO_MAGIC


def _codec(own: bytearray, entry: Entry, chance: random.Random, count: int) -> None:
    own[ATTRIBUTES_AT[entry.magic]] = own[ATTRIBUTES_AT[entry.magic]] & ~7 | NO_CODEC


def _varint(own: bytearray, entry: Entry, chance: random.Random, count: int) -> None:
    """The first record's length becomes an endless varint (magic 2, not compressed); in older messages the key's length."""
    place = PAYLOAD_AT[entry.magic]
    for at in range(place, min(place + 6, len(own))):
        own[at] = 0xFF


def _payload(own: bytearray, entry: Entry, chance: random.Random, count: int) -> None:
    first = PAYLOAD_AT[entry.magic]
    for _ in range(count if len(own) > first else 0):
        own[chance.randrange(first, len(own))] ^= 1 << chance.randrange(8)


def _count(own: bytearray, entry: Entry, chance: random.Random, count: int) -> None:
    """The record count becomes one too high (magic 2)."""
    if entry.magic == 2:
        own[57:61] = (int.from_bytes(own[57:61], "big") + 1).to_bytes(4, "big")


def _torn(area: bytes, chance: random.Random, fixed: bool, count: int) -> bytes:
    """The last entry is cut in half."""
    found = _entries(area)
    if not found:
        return area
    last = found[-1]
    return area[: last.start + max((last.end - last.start) // 2, 12)]


def _duplicate(area: bytes, chance: random.Random, fixed: bool, count: int) -> bytes:
    """The last entry is repeated."""
    found = _entries(area)
    return area if not found else area[: found[-1].end] + area[found[-1].start :]


def _length(area: bytes, chance: random.Random, fixed: bool, count: int) -> bytes:
    """The length of the last entry becomes one too low."""
    found = _entries(area)
    if not found:
        return area
    place = found[-1].start + LENGTH_AT
    size = int.from_bytes(area[place : place + 4], "big")
    return area[:place] + max(size - 1, 0).to_bytes(4, "big") + area[place + 4 :]


NEEDS = {"record-count": "only batches of format 2 have a record count"}
"""What a kind needs, for the note where it is missing."""

KINDS: dict[str, Callable[[bytes, random.Random, bool, int], bytes]] = {
    "crc": lambda area, chance, fixed, count: _each(_crc, area, chance, False, count),
    "magic": partial(_each, _magic),
    "codec": partial(_each, _codec),
    "varint": partial(_each, _varint),
    "payload": partial(_each, _payload),
    "record-count": partial(_each, _count),
    "batch-length": _length,
    "torn": _torn,
    "duplicate": _duplicate,
}
"""By name: what is wrong afterwards."""
