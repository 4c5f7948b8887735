"""The frames of many exchanges at once, for the accelerator: where they are in a capture's bytes, and who reads them.

Frames of several packets, with comments, or with wrong bytes are left to `CaptureFile.exchange`.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...decoder.errors import DecodeError
from ..native.accelerator import native
from .index import CARRIED, CHANGED, CUT, NOTED

_ODD = CARRIED | CHANGED | CUT | NOTED
_CHUNK = 8 << 20
"""Bytes of frames that are taken at once: the smallest batch has 61, so their rows are few as well."""
_FRAME = (("start", "i8"), ("size", "i4"), ("reader", "i4"))
NEEDLESS, UNREADABLE = -1, -2

Data = bytes | bytearray | mmap.mmap
Way = tuple[Any, bool, int, int, int]
"""How frames of one kind, API and version are read: the accelerator's reader, whether it is a request, header version, API key and
version."""


def chunks(numbers: Any, sizes: Any) -> Iterator[Any]:
    """The exchanges `numbers` in pieces, of `sizes` bytes each, of about `_CHUNK`."""
    import numpy as np

    piece = np.cumsum(sizes, dtype=np.int64) // _CHUNK
    yield from np.split(numbers, np.flatnonzero(np.diff(piece)) + 1)


class PlacedFrames(NamedTuple):
    """The frames of exchanges. `plain`: of which exchanges each frame is whole, without a comment, in `data`; `requests`, `responses`:
    where theirs begin, behind the 4 size bytes. -1: there is none."""

    data: Data
    plain: Any
    requests: Any
    responses: Any


def in_segment(data: Data, records: Any) -> PlacedFrames:
    """The frames of these index records of a segment, whose bytes are `data`. Plain are those of one packet whose checksums fit."""
    requests, fit = _in_packets(data, records["request_offset"], records["request_size"])
    responses, fit_too = _in_packets(data, records["response_offset"], records["response_size"])
    return PlacedFrames(data, (records["flags"] & _ODD == 0) & fit & fit_too, requests, responses)


def _in_packets(data: Data, offsets: Any, sizes: Any) -> tuple[Any, Any]:
    """Where frames begin (-1: there is none), and which are as the index says."""
    import numpy as np

    assert native is not None
    begins = np.frombuffer(native.frames(data, np.ascontiguousarray(offsets), np.ascontiguousarray(sizes)), np.int64)
    return begins, (offsets < 0) | (begins >= 0)


def gathered(records: Any, read: Callable[[int, int], bytes]) -> PlacedFrames:
    """The frames of these index records of a foreign capture. `read`: from a frame's place and size, its size bytes included, to its
    bytes, which may be fewer. Plain are whole ones."""
    import numpy as np

    data = bytearray()
    begins, fits = [], []
    offsets = np.stack([records["request_offset"], records["response_offset"]], 1)
    sizes = np.stack([records["request_size"], records["response_size"]], 1)
    for offset, size in zip(offsets.ravel().tolist(), sizes.ravel().tolist(), strict=True):
        frame = read(offset, size + 4) if offset >= 0 else b""
        begins.append(len(data) + 4 if offset >= 0 else -1)
        fits.append(offset < 0 or (len(frame) == size + 4 and frame[:4] == size.to_bytes(4, "big")))
        data += frame
    requests, responses = np.array(begins, np.int64).reshape(-1, 2).T
    return PlacedFrames(data, (records["flags"] & _ODD == 0) & np.array(fits, bool).reshape(-1, 2).all(1), requests, responses)


class ReadableFrames(NamedTuple):
    """Frames as the accelerator takes them, sorted by exchange, of each the request first. `owners`: by frame, the place of its
    exchange; `requests`: whether it is one; `left`: by exchange, whether it is left to the reference, with both its frames."""

    frames: Any
    owners: Any
    requests: Any
    left: Any


class FrameReaders:
    """Readers of frames, by kind, API and version. `way`: from whether it is a request, API key and version to how such frames are
    read; False: they need not be read; None: they cannot be."""

    def __init__(self, way: Callable[[bool, int, int], Way | bool | None]) -> None:
        self._way = way
        self._ways: list[Way] = []
        self._known: dict[tuple[bool, int, int], int] = {}

    @property
    def ways(self) -> tuple[Way, ...]:
        """The ways that `reader` of a frame counts."""
        return tuple(self._ways)

    def frames(self, records: Any, placed: PlacedFrames, flags: int) -> ReadableFrames:
        """The frames of these index records, without exchanges that have some of these flags."""
        import numpy as np

        left = ~placed.plain | (records["flags"] & flags != 0)
        sides = [
            (True, placed.requests, records["request_size"], self._readers(records, True)),
            (False, placed.responses, records["response_size"], self._readers(records, False)),
        ]
        for _, starts, _, readers in sides:
            left |= (starts >= 0) & (readers == UNREADABLE)
        frames, owners, requests = [], [], []
        for request, starts, sizes, readers in sides:
            of = np.flatnonzero(~left & (starts >= 0) & (readers >= 0))
            frame: Any = np.empty(len(of), np.dtype(list(_FRAME)))
            frame["start"], frame["size"], frame["reader"] = starts[of], sizes[of], readers[of]
            frames.append(frame)
            owners.append(of)
            requests.append(np.full(len(of), request))
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        return ReadableFrames(np.concatenate(frames)[order], owner[order], np.concatenate(requests)[order], left)

    def _readers(self, records: Any, request: bool) -> Any:
        """For each record the number of its way; `NEEDLESS`, `UNREADABLE`."""
        import numpy as np

        both = records["api_key"].astype(np.int64) << 16 | records["api_version"].astype(np.int64) & 0xFFFF
        different, which = np.unique(both, return_inverse=True)
        found = [self._reader(request, int(each) >> 16, int(each) & 0xFFFF) for each in different]
        return np.array(found, np.int32)[which.reshape(-1)]

    def _reader(self, request: bool, api_key: int, api_version: int) -> int:
        key = request, api_key, api_version
        if key not in self._known:
            try:
                way = self._way(request, api_key, api_version)
            except DecodeError:  # a version that is not known
                way = None
            if isinstance(way, tuple):
                self._ways.append(way)
            self._known[key] = UNREADABLE if way is None else len(self._ways) - 1 if isinstance(way, tuple) else NEEDLESS
        return self._known[key]
