"""Counts over time for charts: latencies, exchanges, errors and bytes by API, from the index; records by partition, from messages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from ...captures import Capture
from ...captures.reading.selection import IndexColumns
from ...captures.recording.index import RECORD, STATE_MASK, STATES
from ...captures.tables.body_tables import RECORD_API_KEYS, Area, areas
from ...decoder import State, Topics
from ...decoder.connection.topics import NAMING_APIS
from ...decoder.records import Batch, Partial, RecordsError, batches
from ...errors import BarnabasError
from ..tui.model.rows import RowSlice
from ..tui.model.statistics import LatencySteps

MOST_BINS = 240
MOST_PARTITIONS = 5_000
"""Partitions that are counted apart; the others are one, `OTHERS`."""
_ORPHAN = STATES.index(State.ORPHAN)
_UNREADABLE = OSError, ValueError, BarnabasError


class Counts(Protocol):
    """What is counted in a period."""

    def take(self, other: Self) -> None:
        """Add another period."""


K = TypeVar("K")
C = TypeVar("C", bound=Counts)


class TimeBins(Generic[K, C]):
    """Counts by key in bins of `step_ns`, which is doubled when there are more than `MOST_BINS`. `bins`: by number."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self.step_ns = 10_000_000
        self.bins: dict[int, dict[K, C]] = {}

    def at(self, time_ns: int, key: K) -> C:
        """The counts of a key at a time."""
        found = self.bins.get(time_ns // self.step_ns)
        if found is None:
            self.bins[time_ns // self.step_ns] = {}
            while len(self.bins) > MOST_BINS or max(self.bins) - min(self.bins) >= MOST_BINS:
                self._coarser()
            found = self.bins[time_ns // self.step_ns]
        each = found.get(key)
        if each is None:
            each = found[key] = self._make()
        return each

    def total(self) -> dict[K, C]:
        """The counts of all bins."""
        found: dict[K, C] = {}
        for each in self.bins.values():
            self._add(found, each)
        return found

    def periods(self) -> list[int]:
        """The numbers of all bins from the first to the last."""
        return list(range(min(self.bins), max(self.bins) + 1)) if self.bins else []

    def _coarser(self) -> None:
        self.step_ns *= 2
        merged: dict[int, dict[K, C]] = {}
        for at, found in self.bins.items():
            self._add(merged.setdefault(at // 2, {}), found)
        self.bins = merged

    def _add(self, into: dict[K, C], found: dict[K, C]) -> None:
        for key, each in found.items():
            if key not in into:
                into[key] = self._make()
            into[key].take(each)


class ApiTraffic:
    """One API in a period. `sent`, `received`: bytes of requests and responses."""

    __slots__ = ("count", "errors", "latencies", "received", "sent")

    def __init__(self) -> None:
        self.count = self.errors = self.sent = self.received = 0
        self.latencies = LatencySteps()

    def take(self, other: ApiTraffic) -> None:
        """Add another period."""
        self.count += other.count
        self.errors += other.errors
        self.sent += other.sent
        self.received += other.received
        self.latencies.take(other.latencies)


class Partition(NamedTuple):
    """A partition. `topic`: the id, if no response has named it."""

    topic: str
    number: int


OTHERS = Partition("", -1)


@dataclass(slots=True)
class PartitionTraffic:
    """Records of one partition in a period, and their bytes as they are sent, compressed ones too."""

    produced: int = 0
    fetched: int = 0
    produced_bytes: int = 0
    fetched_bytes: int = 0

    def take(self, other: PartitionTraffic) -> None:
        """Add another period."""
        self.produced += other.produced
        self.fetched += other.fetched
        self.produced_bytes += other.produced_bytes
        self.fetched_bytes += other.fetched_bytes


class TrafficOverTime:
    """Counts the rows of a capture by API key. Nothing is decoded."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.done = 0
        self.over_time: TimeBins[int, ApiTraffic] = TimeBins(ApiTraffic)

    @property
    def pending(self) -> int:
        """Rows that have not been counted yet."""
        return self._capture.done - self.done

    def step(self, seconds: float) -> None:
        """Count for about so long."""
        until = perf_counter() + seconds
        while self.pending:
            segment, start, stop = RowSlice.at(self._capture, self.done)
            self._count(self._capture.segments[segment].index.records(start, stop))
            self.done += stop - start
            if perf_counter() >= until:
                return

    def _count(self, records: bytes) -> None:
        for time_ns, latency, _, response_at, sent, received, _, _, key, _, error, flags, _, _ in RECORD.iter_unpack(records):
            if flags & STATE_MASK == _ORPHAN:
                continue
            each = self.over_time.at(time_ns, key)
            each.count += 1
            each.errors += error != 0
            each.sent += sent
            if response_at >= 0:
                each.received += received
            if latency >= 0:
                each.latencies.add(latency)


class RecordsOverTime:
    """Counts records by partition: of Produce requests and Fetch responses, which are decoded, so it takes longer."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.done = 0
        self.over_time: TimeBins[Partition, PartitionTraffic] = TimeBins(PartitionTraffic)
        self._topics = Topics()
        self._known: set[Partition] = set()

    @property
    def pending(self) -> int:
        """Rows that have not been looked at yet."""
        return self._capture.done - self.done if self._capture.has_frames else 0

    def step(self, seconds: float) -> None:
        """Count for about so long."""
        until = perf_counter() + seconds
        while self.pending:
            segment, start, stop = RowSlice.at(self._capture, self.done)
            for time_ns, key in IndexColumns(self._capture.segments[segment].index).tuples(("time_ns", "api_key"), start, stop):
                if key in RECORD_API_KEYS or key in NAMING_APIS:
                    with suppress(*_UNREADABLE):
                        self._count(self.done, time_ns)
                    if perf_counter() >= until:
                        self.done += 1
                        return
                self.done += 1

    def _count(self, row: int, time_ns: int) -> None:
        exchange = self._capture.exchange(row)
        self._topics.learn(exchange)
        exchange.topics = self._topics
        for area in areas(exchange):
            if area.about["partition"] is not None:
                named = self._named(area.about["topic"] or area.about["topic_id"] or "", area.about["partition"])
                with suppress(RecordsError):
                    self._add(self.over_time.at(time_ns, named), area)

    def _named(self, topic: str, number: int) -> Partition:
        named = Partition(topic, number)
        if named not in self._known:
            if len(self._known) >= MOST_PARTITIONS:
                return OTHERS
            self._known.add(named)
        return named

    def _add(self, each: PartitionTraffic, area: Area) -> None:
        for entry in batches(area.data):
            if isinstance(entry, Partial):
                continue
            count = max(entry.record_count, 0) if isinstance(entry, Batch) else 1
            size = entry.end - entry.start
            if area.direction == "request":
                each.produced += count
                each.produced_bytes += size
            else:
                each.fetched += count
                each.fetched_bytes += size
