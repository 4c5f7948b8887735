"""A bounded dict keeps its bound, however something is put in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from barnabas.decoder.findings.engine.counters import BoundedDict

WAYS: dict[str, Callable[[BoundedDict[int, list[int]], int], object]] = {
    "setitem": lambda kept, n: kept.__setitem__(n, [n]),
    "setdefault": lambda kept, n: kept.setdefault(n, [n]).append(n),
    "update": lambda kept, n: kept.update({n: [n]}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_bound_is_kept(way: str) -> None:
    kept: BoundedDict[int, list[int]] = BoundedDict(3)
    for number in range(100):
        WAYS[way](kept, number)
    assert list(kept) == [97, 98, 99]


def test_what_is_there_stays() -> None:
    kept: BoundedDict[int, list[int]] = BoundedDict(3)
    assert kept.setdefault(1, [1]) is kept.setdefault(1, [2]) and kept[1] == [1]
