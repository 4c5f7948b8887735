"""A set of APIs and versions as the accelerator's frame scanner reads it."""

from __future__ import annotations

from collections.abc import Iterable

VERSIONS = 64
"""Versions that the set has room for, per API key; higher ones are left out."""


def api_version_bitmap(numbers: Iterable[int]) -> bytes:
    """A bit for each number (API key << 16 | version) of the set: eight bytes per API key."""
    chosen = {number for number in numbers if number & 0xFFFF < VERSIONS}
    table = bytearray(8 * ((max(chosen, default=0) >> 16) + 1))
    for number in chosen:
        key, version = number >> 16, number & 0xFFFF
        table[key * 8 + (version >> 3)] |= 1 << (version & 7)
    return bytes(table)
