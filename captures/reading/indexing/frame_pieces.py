"""The places of a foreign capture's frames: a frame may be scattered over packets."""

from __future__ import annotations

import os
from array import array
from typing import BinaryIO

SCATTERED = 1 << 62
"""From here on, a place is no file offset but the number of a list of pieces."""


class FramePieces:
    """Places of frames: the file offset of its first byte for a frame in one piece, else the number of its list of
    (file offset, length). With `keep` off nothing is kept; the places are the same.
    """

    def __init__(self, keep: bool = True) -> None:
        self._numbers = array("q")
        self._keep = keep
        self._count = 0

    def add(self, pieces: list[tuple[int, int]], whole: bool = True) -> int:
        """Keep one frame's pieces; returns the frame's place. `whole`: they are all of the frame."""
        if len(pieces) == 1 and whole:
            return pieces[0][0]
        number = self._count
        self._count += 1 + 2 * len(pieces)
        if self._keep:
            self._numbers.append(len(pieces))
            for piece in pieces:
                self._numbers.extend(piece)
        return SCATTERED + number

    def read(self, file: BinaryIO, place: int, size: int) -> bytes:
        """The frame's bytes, its 4 size bytes included: `size`, or less where the packets of the capture were cut."""
        if place < SCATTERED:
            return os.pread(file.fileno(), size, place)
        number = place - SCATTERED
        out = []
        for at in range(number + 1, number + 1 + 2 * self._numbers[number], 2):
            out.append(os.pread(file.fileno(), self._numbers[at + 1], self._numbers[at]))
        return b"".join(out)
