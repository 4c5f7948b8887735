"""The names of many exchanges at once: the accelerator reads only the bytes that name something, and exchanges with the same bytes
have the same names, which are made once, by `names_of`.

Why there is a second way: `topic == orders` over a million exchanges (bench/filter/names.py) takes 1.2 s of CPU this way, and 54 s one
by one. tests/captures/reading/test_bulk_names.py holds both to the same names.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

from ...decoder import Exchange
from ...decoder.filter.names import UNKNOWN_ID, names_of, paths
from ...decoder.native.accelerator import description
from ...decoder.native.accelerator import native as decoder_native
from ...decoder.schema.plan import plan
from ..native.accelerator import native
from .bulk_frames import FrameReaders, PlacedFrames, Way
from .index import STATE_MASK, STATES, SURPLUS, UNDECODED, Index
from .names import NameTable, SegmentNames

_MOST_BYTES, _ENTRY = 16 << 20, 150
"""Bytes to know exchanges by, about, and of each what Python adds. Beyond, they are forgotten."""
_NOT_MADE = -1


class BulkNames:
    """Finds names for a table. What it has seen is known in all segments."""

    def __init__(self, table: NameTable) -> None:
        self._table = table
        self._readers = FrameReaders(_way)
        self._known: dict[bytes, int] = {}
        self._ids: list[int] = []
        self._bytes = 0

    def learn(self, names: SegmentNames, index: Index, numbers: Any, placed: PlacedFrames) -> None:
        """Remember the names of the exchanges `numbers` of a segment, whose frames are given. Those that stay unknown are left to
        `SegmentNames.learn`."""
        import numpy as np

        assert native is not None
        records = index.array()[numbers]
        found = self._readers.frames(records, placed, UNDECODED | SURPLUS)
        if self._bytes > _MOST_BYTES:
            self._known, self._ids, self._bytes = {}, [], 0
        before = len(self._known)
        owners = found.owners.astype(np.int32)
        which = np.frombuffer(native.names(placed.data, found.frames, owners, len(numbers), self._readers.ways, self._known), np.int32)
        self._ids += [_NOT_MADE] * (len(self._known) - before)
        self._bytes += sum(_ENTRY + len(each) for each in islice(reversed(self._known), len(self._known) - before))
        good = np.flatnonzero((which >= 0) & ~found.left & names.may_be_known(records["flags"]))
        different, first, place = np.unique(which[good], return_index=True, return_inverse=True)
        for number, at in zip(different.tolist(), good[first].tolist(), strict=True):
            if self._ids[number] == _NOT_MADE:
                self._ids[number] = self._table.id(names_of(_exchange(records[at], placed, at)))
        ids = np.array([self._ids[number] for number in different.tolist()], np.uint32)[place.reshape(-1)]
        known = ids != UNKNOWN_ID
        np.frombuffer(names.ids, np.uint32)[numbers[good[known]]] = ids[known]
        names.learned += int(known.sum())


def _exchange(record: Any, placed: PlacedFrames, at: int) -> Exchange:
    """As much of an exchange as decides its names."""
    request, response = (
        bytes(placed.data[start : start + int(record[size])]) if start >= 0 else None
        for start, size in ((placed.requests[at], "request_size"), (placed.responses[at], "response_size"))
    )
    state = STATES[int(record["flags"]) & STATE_MASK]
    return Exchange(
        api_key=int(record["api_key"]), api_version=int(record["api_version"]), request=request, response=response, state=state
    )


@cache
def _way(request: bool, api_key: int, api_version: int) -> Way | bool | None:
    """The reader of what names something in such messages; False: nothing does; None: it cannot be read in this way."""
    kind = "request" if request else "response"
    of = plan(kind, api_key, api_version)
    named = paths(of)
    if named is None or decoder_native is None:
        return None
    if not named:
        return False
    sinks = {path: number for number, path in enumerate(named)}
    return decoder_native.Reader(description(of.root, sinks), len(sinks)), request, of.header_version, api_key, api_version
