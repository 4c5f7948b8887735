"""Statistics of a capture from its index, counted in slices: by connection, by API, over time. Nothing is decoded."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from time import perf_counter
from typing import NamedTuple

from ....captures import Capture
from ....captures.recording.index import RECORD, STATE_MASK, STATES, Index
from ....decoder import State
from ..widgets.palette import Cell
from .rows import RowSlice

_PER_OCTAVE = 8
BUCKETS = 34 * _PER_OCTAVE
"""Latency buckets: eight per doubling, from a microsecond up."""
_MOST_BINS = 2048
_ORPHAN = STATES.index(State.ORPHAN)
ALL = -1000
"""The key of all APIs together."""


def bucket(ns: int) -> int:
    """The bucket of a latency."""
    n = ns >> 7  # about an eighth of a microsecond
    bits = n.bit_length()
    if bits <= 3:
        return 0
    return min(((bits - 4) << 3) | ((n >> (bits - 4)) & 7), BUCKETS - 1)


def bucket_ns(index: int) -> int:
    """Where a bucket begins, in nanoseconds."""
    return ((8 | (index & 7)) << (index >> 3)) << 7


EDGES = tuple(digit * 10**power for power in range(3, 12) for digit in (1, 2, 5))
"""Where the steps of a histogram for people begin: 1, 2 and 5 us, 10, 20 and 50 us, and so on to 500 s; in ns."""


class LatencyStep(NamedTuple):
    """How many exchanges have a latency from `start_ns` to just below `end_ns`."""

    start_ns: int
    end_ns: int
    exchanges: int


class LatencySteps:
    """Latencies of exchanges in the steps of `EDGES`. `counts`: by step, the first below `EDGES[0]`."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = array("Q", bytes(8 * (len(EDGES) + 1)))

    def add(self, ns: int) -> None:
        """Count one."""
        self.counts[bisect_right(EDGES, ns)] += 1

    def take(self, other: LatencySteps) -> None:
        """Add others."""
        for at, count in enumerate(other.counts):
            self.counts[at] += count

    def steps(self) -> list[LatencyStep]:
        """The steps from the fastest exchange to the slowest one."""
        used = [at for at, count in enumerate(self.counts) if count]
        if not used:
            return []
        edges = (0, *EDGES, 10 * EDGES[-3])
        return [LatencyStep(edges[at], edges[at + 1], self.counts[at]) for at in range(used[0], used[-1] + 1)]


class Histogram:
    """Latencies of exchanges in buckets, eight per doubling, and in the steps of `EDGES`."""

    __slots__ = ("_steps", "count", "counts", "highest")

    def __init__(self) -> None:
        self.counts = array("Q", bytes(8 * BUCKETS))
        self._steps = LatencySteps()
        self.count = self.highest = 0

    def add(self, ns: int) -> None:
        """Count one."""
        self.counts[bucket(ns)] += 1
        self._steps.add(ns)
        self.count += 1
        self.highest = max(self.highest, ns)

    def percentile(self, share: float) -> int | None:
        """The latency (ns) that `share` (0 to 1) of the exchanges do not exceed, None without any."""
        left = self.count * share
        for index, count in enumerate(self.counts):
            left -= count
            if count and left <= 0:
                return min(bucket_ns(index + 1), self.highest)
        return None

    def steps(self) -> list[LatencyStep]:
        """The steps from the fastest exchange to the slowest one."""
        return self._steps.steps()


class Bin:
    """Exchanges, errors and latencies of a period of time. Latencies are in coarse buckets, one per doubling."""

    __slots__ = ("count", "errors", "octaves")

    def __init__(self) -> None:
        self.count = self.errors = 0
        self.octaves = [0] * 36

    def percentile(self, share: float) -> int:
        """The latency in nanoseconds, to within a doubling; 0 without any."""
        left = sum(self.octaves) * share
        for index, count in enumerate(self.octaves):
            left -= count
            if count and left <= 0:
                return 1 << (index + 8)
        return 0

    def take(self, other: Bin) -> None:
        """Add another period."""
        self.count += other.count
        self.errors += other.errors
        self.octaves = [a + b for a, b in zip(self.octaves, other.octaves, strict=True)]


class Series:
    """Bins over time, of `step_ns` each, which is doubled when there are too many."""

    def __init__(self) -> None:
        self.step_ns = 50_000_000
        self.bins: dict[int, Bin] = {}

    def add(self, time_ns: int, latency_ns: int, error: bool) -> None:
        """Count an exchange; a latency of -1 is none."""
        at = time_ns // self.step_ns
        found = self.bins.get(at)
        if found is None:
            found = self.bins[at] = Bin()
            if len(self.bins) > _MOST_BINS:
                self._coarser()
        found.count += 1
        found.errors += error
        if latency_ns >= 0:
            found.octaves[min(max(latency_ns.bit_length() - 8, 0), 35)] += 1

    def _coarser(self) -> None:
        self.step_ns *= 2
        merged: dict[int, Bin] = {}
        for at, each in self.bins.items():
            merged.setdefault(at // 2, Bin()).take(each)
        self.bins = merged


class ConnectionCount:
    """Counts of one connection. Times in ns, sizes in bytes."""

    __slots__ = ("broker", "client", "client_id", "errors", "first_ns", "number", "received", "requests", "sent", "slowest_ns")

    def __init__(self, number: int, client: str, broker: str, time_ns: int) -> None:
        self.number, self.client, self.broker = number, client, broker
        self.client_id: str | None = None
        self.first_ns = time_ns
        self.requests = self.errors = self.sent = self.received = self.slowest_ns = 0


class ApiCount:
    """Counts of one API."""

    __slots__ = ("errors", "latencies", "requests", "series")

    def __init__(self) -> None:
        self.requests = self.errors = 0
        self.latencies = Histogram()
        self.series = Series()


class CaptureStatistics:
    """Counts the rows of a capture. `connections`: by recording and number; `apis`: by key, and `ALL`."""

    def __init__(self, capture: Capture):
        self.capture = capture
        self.done = 0
        self.connections: dict[tuple[int, int], ConnectionCount] = {}
        self.apis: dict[int, ApiCount] = {ALL: ApiCount()}
        self.first_ns = self.last_ns = 0
        self._recordings: dict[str, int] = {}

    @property
    def pending(self) -> int:
        """Rows that have not been counted yet."""
        return self.capture.done - self.done

    def progress_cells(self) -> list[Cell]:
        """The progress as a cell, while rows are left to be counted."""
        if not self.pending:
            return []
        return [(f" {100 * self.done // max(self.done + self.pending, 1)}%", "waiting")]

    def step(self, seconds: float) -> None:
        """Count for about so long."""
        until = perf_counter() + seconds
        while self.pending:
            segment, start, stop = RowSlice.at(self.capture, self.done)
            file = self.capture.segments[segment]
            recording = self._recordings.setdefault(
                file.own.recording if file.own else str(segment), len(self._recordings)
            )
            self._count(file.index, recording, start, stop)
            self.done += stop - start
            if perf_counter() >= until:
                return

    def _count(self, index: Index, recording: int, start: int, stop: int) -> None:
        connections, apis, everything = self.connections, self.apis, self.apis[ALL]
        for (time_ns, latency, _, response_at, sent, received, _, number, key, _, error, flags, client_id, _) in (
            RECORD.iter_unpack(index.records(start, stop))
        ):  # fmt: skip
            seen = connections.get((recording, number))
            if seen is None:
                ends = index.connections.get(number)
                seen = connections[recording, number] = ConnectionCount(
                    number, ends.client if ends else "", ends.broker if ends else "", time_ns
                )
            seen.requests += 1
            seen.sent += sent
            seen.received += received if response_at >= 0 else 0
            seen.first_ns = min(seen.first_ns, time_ns)
            seen.slowest_ns = max(seen.slowest_ns, latency)
            if client_id:
                seen.client_id = index.string(client_id)
            failed = error != 0
            seen.errors += failed
            if flags & STATE_MASK == _ORPHAN:
                continue
            self.first_ns = min(self.first_ns or time_ns, time_ns)
            self.last_ns = max(self.last_ns, time_ns)
            count = apis.get(key)
            if count is None:
                count = apis[key] = ApiCount()
            for each in (count, everything):
                each.requests += 1
                each.errors += failed
                if latency >= 0:
                    each.latencies.add(latency)
                each.series.add(time_ns, latency, failed)
