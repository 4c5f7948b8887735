"""A bounded dict keeps its bound, however something is put in."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from barnabas.decoder.findings.engine.counters import BoundedDict
from barnabas.decoder.findings.models.groups import Groups
from traffic.recordings import inspected

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


def test_it_travels_between_processes() -> None:
    kept: BoundedDict[int, list[int]] = BoundedDict(3)
    for number in range(5):
        kept[number] = [number]
    copy = pickle.loads(pickle.dumps(kept))
    assert copy == kept
    copy[5] = [5]
    assert list(copy) == [3, 4, 5]


def test_the_state_of_the_traffic_travels_between_processes() -> None:
    traffic = inspected("groups-storm").traffic
    copy = pickle.loads(pickle.dumps(traffic))
    assert copy.now_ns == traffic.now_ns > 0
    assert [g.id for g in Groups.of(copy).all()] == [g.id for g in Groups.of(traffic).all()] != []
