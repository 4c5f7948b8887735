"""The names of a capture's exchanges (topics, groups, transactional ids), remembered as filters decode them.

A filter on `topic` must decode both messages of an exchange, but only once: `SegmentNames` remembers what was found, as one number
per exchange. `barnabas index --names` saves it beside closed segments, as `NAME.names` (docs/formats.md), for later commands.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from pathlib import Path
from typing import Any

from ...decoder import Exchange, State, Topics
from ...decoder.filter.names import NONE, NONE_ID, UNKNOWN_ID, Names, names_of
from ..pcap.atomic_file import replacing
from ..pcap.regular_files import open_file
from .index import HEADER, STATE_MASK, STATES, UNDECODED, Index, Record, names_path

_HEADER = struct.Struct("<8sII64s")  # magic, version, CRC-32 of what follows it, header of the index
_MAGIC, _VERSION = b"BRNBNAM1", 1
_CHECKED = 16
# Not imported by name, as in `tables.output.inspection`.
_RELEASE = getattr(sys.modules[__name__.split(".")[0]], "__version__", "")
MOST_BYTES = 32 << 20
"""Of names to remember, about. Beyond it, exchanges with other names are decoded each time."""
_SET_BYTES, _NAME_BYTES = 64, 32


class NameTable:
    """The different `Names` of a capture. `sets`: by id. `topics`: names of topic ids, from its first `learned` rows."""

    def __init__(self, room: int = MOST_BYTES) -> None:
        self.sets: list[Names] = [NONE, NONE]
        self._ids: dict[Names, int] = {NONE: NONE_ID}
        self._room = room
        self.topics, self.learned = Topics(), 0

    def id(self, names: Names) -> int:
        """The id of a set; `UNKNOWN_ID` if there is no room for another one."""
        known = self._ids.get(names)
        if known is not None:
            return known
        parts = (*names.topics, *names.taught, (*names.groups, *names.transactional_ids))
        size = _SET_BYTES + sum(_NAME_BYTES + len(each or ()) for part in parts for each in part)
        if size > self._room:
            return UNKNOWN_ID
        self._room -= size
        self.sets.append(names)
        self._ids[names] = len(self.sets) - 1
        return len(self.sets) - 1


class SegmentNames:
    """The names of a segment's exchanges. `ids`: of each, its names in `sets`, or `UNKNOWN_ID`. Ids that are known never change."""

    def __init__(self, table: NameTable, grows: bool = False) -> None:
        """`grows`: requests in flight get their responses, as in another tool's capture or a segment that is being written."""
        self._table = table
        self._grows = grows
        self.ids = array("I")
        self.learned = 0
        self.shown = self.done = 0
        """`Index.shown` and `Index.done` when `ids` was made."""

    @property
    def sets(self) -> list[Names]:
        return self._table.sets

    def may_be_known(self, flags: Any) -> Any:
        """Whether the names of exchanges with these flags (of a `Record`, or an array) can be remembered: both messages can be decoded, and no
        response is to come, which may name more."""
        decoded = flags & UNDECODED == 0
        return decoded & (flags & STATE_MASK != STATES.index(State.PENDING)) if self._grows else decoded

    def grow(self, ids: bytes) -> None:
        """Append ids of exchanges, 4 bytes each."""
        # A new array: numpy may hold the old one.
        self.ids = self.ids + array("I", ids)

    def learn(self, number: int, exchange: Exchange, record: Record) -> int:
        """Remember the names of an exchange, if they `may_be_known` and it could be read whole; return their id."""
        read = exchange.request is not None, exchange.response is not None
        if not self.may_be_known(record.flags) or read != (record.request_offset >= 0, record.response_offset >= 0):
            return UNKNOWN_ID
        found = self.ids[number] = self._table.id(names_of(exchange))
        self.learned += found != UNKNOWN_ID
        return found

    def load(self, segment: Path, index: Index) -> None:
        """Read what is known of a closed segment; nothing if its file is missing, damaged, or another release's."""
        try:
            with open_file(names_path(segment)) as file:
                data = file.read(_HEADER.size + 4 * index.count + 2 * MOST_BYTES)
            magic, version, checksum, head = _HEADER.unpack_from(data)
            if (magic, version, head) != (_MAGIC, _VERSION, index.head.pack()) or zlib.crc32(data[_CHECKED:]) != checksum:
                return
            behind = _HEADER.size + 4 * index.count
            stored = json.loads(data[behind:])
            if stored["release"] != _RELEASE:
                return
            known = [UNKNOWN_ID, NONE_ID, *(self._table.id(_unpacked(each)) for each in stored["sets"])]
            self.ids = array("I", [known[local] for local in _little(array("I", data[_HEADER.size : behind]))])
        except (OSError, struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return

    def save(self, segment: Path, index: Index) -> None:
        """Write what is known beside a closed segment. OSError if that is impossible; then nothing is left behind."""
        used = sorted(set(self.ids) - {UNKNOWN_ID, NONE_ID})
        local = {UNKNOWN_ID: UNKNOWN_ID, NONE_ID: NONE_ID} | {number: at for at, number in enumerate(used, NONE_ID + 1)}
        stored = {"release": _RELEASE, "sets": [_packed(self.sets[number]) for number in used]}
        ids = _little(array("I", [local[number] for number in self.ids])).tobytes()
        data = index.head.pack() + ids + json.dumps(stored, separators=(",", ":")).encode()
        with replacing(names_path(segment)) as file:
            file.write(_HEADER.pack(_MAGIC, _VERSION, zlib.crc32(data), data[: HEADER.size]) + data[HEADER.size :])
        self.learned = 0


def _little(numbers: array[int]) -> array[int]:
    """Little-endian numbers of the machine's own, or the reverse."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _packed(names: Names) -> list[Any]:
    topics = [[name, identity and identity.hex()] for name, identity in names.topics]
    return [topics, names.groups, names.transactional_ids, [[identity.hex(), name] for identity, name in names.taught]]


def _unpacked(stored: list[Any]) -> Names:
    """Raises ValueError, TypeError or AttributeError for what `_packed` did not make."""
    topics, groups, transactional_ids, taught = stored
    for text in (*groups, *transactional_ids, *(name for _, name in taught), *(name for name, _ in topics if name is not None)):
        if not isinstance(text, str):
            raise TypeError(text)
    return Names(
        tuple((name, None if identity is None else bytes.fromhex(identity)) for name, identity in topics),
        tuple(groups), tuple(transactional_ids),
        tuple((bytes.fromhex(identity), name) for identity, name in taught),
    )  # fmt: skip
