"""Work counted in steps: how much a call does, whatever the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(call: Callable[[], object]) -> int:
    """The lines of Python that a call runs. What C code does in one of them, such as sorting a list, counts as one."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def assert_linear(work: Callable[[int], Callable[[], object]], size: int) -> None:
    """What ``work(size)`` gives takes at most a little more than twice as many steps for twice the size."""
    one, two = steps(work(size)), steps(work(2 * size))
    assert two <= 2.2 * one + 100, f"{one} steps for {size}, {two} for {2 * size}"
