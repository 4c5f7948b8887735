"""Searching for many byte strings at once."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

_HEAD = 4
_BITS = 20
_MIX = 2654435761
_WITHOUT = 1_000  # strings that are looked for one by one where numpy is not installed


@cache
def _numpy() -> Any:
    if importlib.util.find_spec("numpy") is None:
        return None
    import numpy

    return numpy


class NeedleSearch:
    """Looks for `needles`, each of 4 bytes or more. `skipped`: how many are not looked for (without numpy there is a
    limit)."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._by_head: dict[bytes, list[bytes]] = {}
        all_needles = [needle for needle in dict.fromkeys(needles) if len(needle) >= _HEAD]
        numpy = _numpy()
        self.skipped = 0
        if numpy is None:
            self.skipped = max(len(all_needles) - _WITHOUT, 0)
            del all_needles[_WITHOUT:]
        for needle in all_needles:
            self._by_head.setdefault(needle[:_HEAD], []).append(needle)
        self.longest = max(map(len, all_needles), default=0)
        if numpy is not None:
            heads = numpy.array([int.from_bytes(h, "little") for h in self._by_head] or [0], dtype=numpy.uint32)
            self._table = numpy.zeros(1 << _BITS, dtype=bool)
            self._table[self._slots(heads)] = bool(self._by_head)

    @staticmethod
    def _slots(heads: Any) -> Any:
        numpy = _numpy()
        return (heads * numpy.uint32(_MIX)) >> numpy.uint32(32 - _BITS)

    def found(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """Every (needle, position)."""
        for at in self._candidates(data):
            for needle in self._by_head.get(data[at : at + _HEAD], ()):
                if data.startswith(needle, at):
                    yield needle, at

    def _candidates(self, data: bytes) -> Iterable[int]:
        if len(data) < _HEAD or not self._by_head:
            return ()
        numpy = _numpy()
        if numpy is None:
            return sorted(self._one_by_one(data))
        array = numpy.frombuffer(data, dtype=numpy.uint8).astype(numpy.uint32)
        heads = array[:-3] | array[1:-2] << 8 | array[2:-1] << 16 | array[3:] << 24
        places: list[int] = self._table[self._slots(heads)].nonzero()[0].tolist()
        return places

    def _one_by_one(self, data: bytes) -> Iterator[int]:
        for head in self._by_head:
            at = data.find(head)
            while at >= 0:
                yield at
                at = data.find(head, at + 1)
