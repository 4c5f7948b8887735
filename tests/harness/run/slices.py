"""Which cases of a table run every day: a thin slice; `make everything` and `make torture` run all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thin(cases: Iterable[Any], every_day: int) -> list[Any]:
    """The cases of ``pytest.mark.parametrize``, all marked slow but ``every_day`` of them, evenly spread from the first
    on."""
    found = list(cases)
    kept = {number * len(found) // every_day for number in range(every_day)}
    return [case if number in kept else slow(case) for number, case in enumerate(found)]


def only(cases: Iterable[Any], *every_day: Any) -> list[Any]:
    """The same with those cases for every day that are named."""
    found = list(cases)
    assert all(case in found for case in every_day)
    return [case if case in every_day else slow(case) for case in found]


def slow(case: Any) -> Any:
    """A case that is not for every day: a value, a tuple of values, or a ``pytest.param``."""
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
