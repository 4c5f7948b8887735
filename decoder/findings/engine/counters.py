"""Counting in bounded memory: events per second, a histogram of durations. For bounded dicts see `bounded`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from ....bounded import BoundedDict as BoundedDict
from ....bounded import LruDict as LruDict
from .formatting import SECOND


@dataclass(slots=True)
class Tally:
    """How often something happened since when, and bytes. Times are nanoseconds since the epoch, 0 before the first."""

    count: int = 0
    size: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def add(self, time_ns: int, size: int = 0) -> None:
        """One more event."""
        self.count += 1
        self.size += size
        self.first_ns = self.first_ns or time_ns
        self.last_ns = max(self.last_ns, time_ns)

    @property
    def span_ns(self) -> int:
        """From the first event to the last."""
        return self.last_ns - self.first_ns


class RateCounter:
    """Events in each of the last `seconds` seconds. Times are nearly in order."""

    __slots__ = ("_bins",)

    def __init__(self, seconds: int = 10) -> None:
        self._bins: deque[list[int]] = deque(maxlen=seconds)  # [second, count]

    def add(self, time_ns: int) -> None:
        """One more event."""
        second = time_ns // SECOND
        bins = self._bins
        if bins and second <= bins[-1][0]:
            bins[-1][1] += 1
            return
        bins.append([second, 1])
        while bins[0][0] <= second - (bins.maxlen or 0):
            bins.popleft()

    def busy(self, at_least: int) -> int:
        """How many of these seconds had `at_least` events or more."""
        return sum(count >= at_least for _, count in self._bins)

    @property
    def total(self) -> int:
        """All events of these seconds."""
        return sum(count for _, count in self._bins)

    @property
    def rate(self) -> float:
        """Events per second, over the seconds from the first event kept to the last."""
        return self.total / (self._bins[-1][0] - self._bins[0][0] + 1) if self._bins else 0.0


_STEPS = 4  # per doubling: quantiles are accurate to a fifth


class DurationHistogram:
    """A histogram of durations in logarithmic steps (19 % wide): a few hundred counts at most."""

    __slots__ = ("_counts", "count")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0

    def add(self, ns: int) -> None:
        """One more duration."""
        step = int(math.log2(ns if ns > 1000 else 1000) * _STEPS)
        self._counts[step] = self._counts.get(step, 0) + 1
        self.count += 1

    def take(self, other: DurationHistogram) -> None:
        """Add the durations of another one."""
        for step, count in other._counts.items():
            self._counts[step] = self._counts.get(step, 0) + count
        self.count += other.count

    def quantile(self, part: float) -> float:
        """The duration in ns that `part` (0 to 1) of all do not exceed; 0 without any."""
        left = part * self.count
        for step in sorted(self._counts):
            left -= self._counts[step]
            if left <= 0:
                return float(2 ** ((step + 0.5) / _STEPS))
        return 0.0
