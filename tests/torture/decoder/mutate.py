"""Damage: what a fuzzer does to well-formed bytes. Everything follows from the random generator that is given."""

from __future__ import annotations

import random
from collections.abc import Callable

HOSTILE = (
    b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x00\x00\x00\x00",
    b"\x00\x01\x00\x00", b"\x7f\xff", b"\x80\x00", b"\xff\xfe", b"\xff\xff", b"\x00\x00", b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff", b"\xff" * 10,
    b"\x80\x80\x00", b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80\x01", b"\xc0\x80", b"\xed\xa0\x80",
)  # fmt: skip
"""Counts, lengths and varints at and over their limits, and bytes that are no UTF-8."""

Damage = Callable[[random.Random, bytearray, tuple[int, ...], bytes], None]


def _place(chance: random.Random, data: bytearray, starts: tuple[int, ...]) -> int:
    if starts and chance.random() < 0.7:
        return min(starts[int(chance.random() * len(starts))], len(data))
    return int(chance.random() * (len(data) + 1))


def _flip(chance: random.Random, data: bytearray, starts: tuple[int, ...], other: bytes) -> None:
    if data:
        data[int(chance.random() * len(data))] ^= 1 << int(chance.random() * 8)


def _byte(chance: random.Random, data: bytearray, starts: tuple[int, ...], other: bytes) -> None:
    if data:
        data[int(chance.random() * len(data))] = int(chance.random() * 256)


def _overwrite(chance: random.Random, data: bytearray, starts: tuple[int, ...], other: bytes) -> None:
    at, what = _place(chance, data, starts), HOSTILE[int(chance.random() * len(HOSTILE))]
    data[at : at + len(what)] = what


def _insert(chance: random.Random, data: bytearray, starts: tuple[int, ...], other: bytes) -> None:
    at = _place(chance, data, starts)
    data[at:at] = HOSTILE[int(chance.random() * len(HOSTILE))]


def _nudge(chance: random.Random, data: bytearray, starts: tuple[int, ...], other: bytes) -> None:
    """A length one or two off: the bytes stay plausible, everything behind moves."""
    at = _place(chance, data, starts)
    if at < len(data):
        data[at] = (data[at] + int(chance.random() * 5) - 2) & 0xFF


def _cut(chance: random.Random, data: bytearray, starts: tuple[int, ...], other: bytes) -> None:
    del data[_place(chance, data, starts) :]


def _remove(chance: random.Random, data: bytearray, starts: tuple[int, ...], other: bytes) -> None:
    at = _place(chance, data, starts)
    del data[at : at + 1 + int(chance.random() * 8)]


def _repeat(chance: random.Random, data: bytearray, starts: tuple[int, ...], other: bytes) -> None:
    at = _place(chance, data, starts)
    data[at:at] = data[at : at + 1 + int(chance.random() * 40)] * (1 + int(chance.random() * 3))


def _graft(chance: random.Random, data: bytearray, starts: tuple[int, ...], other: bytes) -> None:
    at = _place(chance, data, starts)
    cut = int(chance.random() * (len(other) + 1))
    data[at:] = other[cut : cut + 2000]


def _append(chance: random.Random, data: bytearray, starts: tuple[int, ...], other: bytes) -> None:
    data += chance.randbytes(1 + int(chance.random() * 6))


_ALL: tuple[Damage, ...] = (
    _flip, _byte, _byte, _overwrite, _overwrite, _insert, _nudge, _nudge, _cut, _remove, _repeat, _graft, _append,
)  # fmt: skip


def mutated(chance: random.Random, data: bytes, starts: tuple[int, ...], other: bytes) -> bytes:
    """`data` with one to four damages (one time in 32: none); `other` are bytes that may be grafted on."""
    out = bytearray(data)
    if chance.random() < 1 / 32:
        return data
    for _ in range((1, 1, 1, 2, 2, 3, 4)[int(chance.random() * 7)]):
        _ALL[int(chance.random() * len(_ALL))](chance, out, starts, other)
    return bytes(out)
