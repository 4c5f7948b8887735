"""Counts over time for charts, from the index: latencies in buckets of 1, 2, 5, 10 ..., exchanges, errors and bytes by API."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from time import perf_counter

from ...captures import Capture
from ...captures.recording.index import RECORD, STATE_MASK, STATES
from ...decoder import State

EDGES = [step * 10**power for power in range(4, 11) for step in (1, 2, 5)]
"""Where buckets begin, in nanoseconds: 10 us, 20 us, 50 us ... 50 s. Bucket 0 is below the first."""
MOST_BINS = 240
_CHUNK = 1024
_ORPHAN = STATES.index(State.ORPHAN)


class ApiTraffic:
    """One API in a period. `latencies`: by bucket; `sent`, `received`: bytes of requests and responses."""

    __slots__ = ("count", "errors", "latencies", "received", "sent")

    def __init__(self) -> None:
        self.count = self.errors = self.sent = self.received = 0
        self.latencies = array("Q", bytes(8 * (len(EDGES) + 1)))

    def take(self, other: ApiTraffic) -> None:
        """Add another period."""
        self.count += other.count
        self.errors += other.errors
        self.sent += other.sent
        self.received += other.received
        for at, count in enumerate(other.latencies):
            self.latencies[at] += count


Bin = dict[int, ApiTraffic]
"""A period of time, by API key."""


class TrafficOverTime:
    """Counts the rows of a capture in bins of `step_ns`, which is doubled when there are more than `MOST_BINS`."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.done = 0
        self.step_ns = 10_000_000
        self.bins: dict[int, Bin] = {}

    @property
    def pending(self) -> int:
        """Rows that have not been counted yet."""
        return len(self._capture.rows()) - self.done

    def step(self, seconds: float) -> None:
        """Count for about so long."""
        until = perf_counter() + seconds
        while self.pending:
            segment, within = self._capture.locate(self.done)
            starts = self._capture.starts
            stop = min(starts[segment + 1] - starts[segment], within + _CHUNK)
            self._count(self._capture.segments[segment].index.records(within, stop))
            self.done += stop - within
            if perf_counter() >= until:
                return

    def _count(self, records: bytes) -> None:
        for time_ns, latency, _, response_at, sent, received, _, _, key, _, error, flags, _, _ in RECORD.iter_unpack(records):
            if flags & STATE_MASK == _ORPHAN:
                continue
            found = self.bins.get(time_ns // self.step_ns)
            if found is None:
                found = self.bins[time_ns // self.step_ns] = {}
                if len(self.bins) > MOST_BINS or self._span() > MOST_BINS:
                    self._coarser()
                    found = self.bins[time_ns // self.step_ns]
            each = found.get(key)
            if each is None:
                each = found[key] = ApiTraffic()
            each.count += 1
            each.errors += error != 0
            each.sent += sent
            if response_at >= 0:
                each.received += received
            if latency >= 0:
                each.latencies[bisect_right(EDGES, latency)] += 1

    def _span(self) -> int:
        return max(self.bins) - min(self.bins) + 1

    def _coarser(self) -> None:
        while len(self.bins) > MOST_BINS or self._span() > MOST_BINS:
            self.step_ns *= 2
            merged: dict[int, Bin] = {}
            for at, found in self.bins.items():
                into = merged.setdefault(at // 2, {})
                for key, each in found.items():
                    into.setdefault(key, ApiTraffic()).take(each)
            self.bins = merged

    def periods(self) -> list[int]:
        """The numbers of all bins from the first to the last."""
        return list(range(min(self.bins), max(self.bins) + 1)) if self.bins else []
