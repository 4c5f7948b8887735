"""Keyed permutations of number ranges, which give every short name another one of the same length, and no two the same.

A hash cut to 5 letters would sooner or later give two topics one name. So names are numbers of a range here, and the range is
permuted: by a shuffled table if it is small, else by a Feistel network whose results outside of the range are put through it
again. The permutation is a single cycle (a step of 1, seen through another permutation), so nothing maps to itself.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

_TABLE = 1024  # ranges up to here are shuffled as a whole
_ROUNDS = 8


class Permutation:
    """Permutations of ``range(size)`` under one key; `tweak` picks one of many."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._table = lru_cache(4096)(self._shuffled)

    def other(self, number: int, size: int, tweak: bytes) -> int:
        """Another number of the range, the same for the same number, never one that a second number gets. Only of a
        range of 1 nothing else can come."""
        return self._backward((self._forward(number, size, tweak) + 1) % size, size, tweak)

    def _shuffled(self, size: int, tweak: bytes) -> tuple[list[int], list[int]]:
        order = sorted(range(size), key=lambda i: hashlib.blake2b(b"%b %d" % (tweak, i), key=self._key).digest())
        back = [0] * size
        for place, number in enumerate(order):
            back[number] = place
        return order, back

    def _forward(self, number: int, size: int, tweak: bytes) -> int:
        if size <= _TABLE:
            return self._table(size, tweak)[0][number]
        while True:
            number = self._feistel(number, size, tweak, range(_ROUNDS))
            if number < size:
                return number

    def _backward(self, number: int, size: int, tweak: bytes) -> int:
        if size <= _TABLE:
            return self._table(size, tweak)[1][number]
        half = ((size - 1).bit_length() + 1) // 2
        while True:
            # The same network the other way round: halves exchanged, rounds from the last to the first.
            number = _exchanged(self._feistel(_exchanged(number, half), size, tweak, range(_ROUNDS - 1, -1, -1)), half)
            if number < size:
                return number

    def _feistel(self, number: int, size: int, tweak: bytes, rounds: range) -> int:
        half = ((size - 1).bit_length() + 1) // 2
        wide, mask = (half + 7) // 8, (1 << half) - 1
        left, right = number >> half, number & mask
        head = self._key + len(tweak).to_bytes(2, "big") + tweak + half.to_bytes(2, "big")
        for i in rounds:
            mixed = hashlib.shake_256(head + bytes((i,)) + right.to_bytes(wide, "big")).digest(wide)
            left, right = right, left ^ (int.from_bytes(mixed, "big") & mask)
        return left << half | right


def _exchanged(number: int, half: int) -> int:
    return (number & (1 << half) - 1) << half | number >> half
