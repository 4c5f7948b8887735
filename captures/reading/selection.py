"""The exchanges of a capture that a filter selects: the index decides what it can, only the rest is read and decoded."""

from __future__ import annotations

import importlib.util
import struct
import time
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING

from ...decoder import Exchange, Topics
from ...decoder.connection.api_versions import PeerInfo
from ...decoder.connection.topics import NAMING_APIS
from ...decoder.filter import ColumnTest, Filter, Layout, Need
from ...decoder.filter.names import NONE_ID, UNKNOWN_ID
from ...decoder.filter.names import apis as naming_apis
from ...decoder.schema import facts
from ..native.accelerator import native
from ..recording.index import (
    CARRIED,
    CHANGED,
    CUT,
    NOTED,
    RECORD,
    STATE_MASK,
    STATES,
    SURPLUS,
    UNDECODED,
    Index,
    Record,
)
from ..recording.names import NameTable, SegmentNames
from .capture import Capture, Row

if TYPE_CHECKING:
    from ..recording.bulk_names import BulkNames

LAYOUT = Layout(
    Record._fields,
    STATE_MASK,
    STATES,
    {"undecoded": UNDECODED, "cut": CUT, "changed": CHANGED, "noted": NOTED, "carried": CARRIED, "surplus": SURPLUS},
)
_FIRST_BLOCK, _BLOCK = 1 << 12, 1 << 18
_FEW = 16
"""Exchanges whose names are learned one by one."""
_API_VERSIONS = facts.api_key("ApiVersions")


@cache
def has_numpy() -> bool:
    """Whether numpy is installed; without it names are read exchange by exchange, and rows are sorted one by one."""
    return importlib.util.find_spec("numpy") is not None


@cache
def _padded(names: tuple[str, ...]) -> struct.Struct:
    """The layout of a record with only these columns, in its order; the others are passed over."""
    codes = RECORD.format[1:]
    parts = (
        code if name in names else f"{struct.calcsize('<' + code)}x"
        for name, code in zip(Record._fields, codes, strict=True)
    )
    return struct.Struct("<" + "".join(parts))


class IndexColumns:
    """The index of one segment as the filters' `Columns`."""

    layout = LAYOUT

    def __init__(
        self,
        index: Index,
        peer_infos: Mapping[int, PeerInfo] | None = None,
        names: SegmentNames | None = None,
        topics: Topics | None = None,
    ) -> None:
        """`peer_infos`: what is known of both ends of the index's connections. `names`: of all its exchanges."""
        self._index = index
        self.peer_infos: Mapping[int, PeerInfo] = peer_infos or {}
        self.names, self.topics = names, topics

    @property
    def strings(self) -> Sequence[str | None]:
        return self._index.strings

    @property
    def ends(self) -> Mapping[int, tuple[str, str]]:
        return {number: (entry.client, entry.broker) for number, entry in self._index.connections.items()}

    def __len__(self) -> int:
        return self._index.count

    def tuples(self, names: Sequence[str], start: int, stop: int) -> Iterable[tuple[int, ...]]:
        return _padded(tuple(names)).iter_unpack(self._index.records(start, stop))


class Selection:
    """A filter over a capture. Knows the whole capture's topic ids and clients' software, where the filter asks for
    them; what a live recording adds is known after `Capture.refresh`.

    `decoded` counts the exchanges that had to be read, if only for the names that decide.
    """

    def __init__(self, capture: Capture, wanted: Filter, in_bulk: bool | None = None, *, topics: bool = False) -> None:
        """`in_bulk`: read many names at once, with numpy and the accelerator; None: if they are there. `topics`: exchanges get their
        topics' names in any case."""
        self.capture = capture
        self.filter = wanted if wanted.now is not None else wanted.at(self._now)
        self._topics = topics or wanted.names_topics
        self._table = capture.name_table if capture.has_frames else NameTable()
        self.topics = self._table.topics if self._topics else Topics()
        self.decoded = 0
        self._in_bulk = native is not None and (has_numpy() if in_bulk is None else in_bulk)
        self._abouts: dict[str, dict[int, PeerInfo]] = {}
        self._learned = 0
        self._tests: dict[int, tuple[tuple[object, ...], ColumnTest | None]] = {}
        self._last: tuple[int, int] = (-1, 0)

    def _now(self) -> int:
        """The time it is: now while the recording runs, and when it ended afterwards."""
        if self.capture.live:
            return time.time_ns()
        count = len(self.capture.rows())
        if self._last[0] != count:
            self._last = count, max((self._end(i) for i in range(len(self.capture.segments))), default=0)
        return self._last[1]

    def _end(self, segment: int) -> int:
        """The last moment that an index knows of."""
        index = self.capture.segments[segment].index
        times = IndexColumns(index).tuples(("time_ns", "latency_ns"), 0, index.count)
        return max((start + max(latency, 0) for start, latency in times), default=0)

    def rows(self, newest_first: bool = False, start: int = 0, stop: int | None = None) -> Iterator[int]:
        """The numbers of the rows that the filter selects, among rows `start` to `stop`; the first ones come at once."""
        count = self.capture.starts[-1]
        stop = count if stop is None else min(stop, count)
        self._learn()
        starts = self.capture.starts
        segments = range(len(self.capture.segments))
        for segment in reversed(segments) if newest_first else segments:
            first, behind = max(start, starts[segment]), min(stop, starts[segment + 1])
            if first >= behind:
                continue
            base = starts[segment]
            test, names = self._test(segment), self._names(segment)
            for low, high in _blocks(first - base, behind - base, newest_first):
                if names is not None and test is not None:
                    learned = self._learn_names(segment, names, self._undecided(test, names, low, high))
                    self.decoded += learned if self.filter.names_decide else 0
                numbers, unread = self._candidates(test, names, low, high, base)
                if newest_first:
                    numbers = reversed(numbers if isinstance(numbers, Sequence) else list(numbers))
                if not unread:
                    yield from numbers
                    continue
                for number in numbers:
                    if number not in unread or self._decide(number, names, test):
                        yield number

    def _candidates(
        self, test: ColumnTest | None, names: SegmentNames | None, low: int, high: int, base: int
    ) -> tuple[Iterable[int], Collection[int]]:
        """The rows that the index lets through, and those among them (and others) that it does not decide."""
        rows = range(base + low, base + high)
        # Before the test, as others may learn meanwhile.
        ids = None if names is None or not self.filter.names_decide else names.ids[low:high]
        if test is None:
            return rows, rows
        numbers = test.rows(low, high, base)
        unread = None if ids is None else frozenset(n for n, known in zip(rows, ids, strict=True) if known == UNKNOWN_ID)
        return numbers, () if self.filter.columns_only else rows if unread is None else unread

    def _undecided(self, test: ColumnTest, names: SegmentNames, low: int, high: int) -> Sequence[int]:
        """The records that the index lets through and whose names are not known; none where it is done record by record."""
        if not self._in_bulk or UNKNOWN_ID not in names.ids[low:high]:
            return ()
        unknown = [number for number, known in enumerate(names.ids[low:high], low) if known == UNKNOWN_ID]
        if len(unknown) < _FEW:
            return ()
        passing = frozenset(test.rows(low, high, low))
        return [number for number in unknown if number in passing]

    def _learn_names(self, segment: int, names: SegmentNames, found: Sequence[int]) -> int:
        """Remember the names of these records, as far as the accelerator finds them; of how many."""
        if len(found) < _FEW:
            return 0
        import numpy

        from ..recording.bulk_frames import chunks

        numbers = numpy.array(found, "i8")
        file = self.capture.segments[segment]
        records = file.index.array()[numbers]
        sizes = records["request_size"].astype("i8") + records["response_size"]
        learned = names.learned
        for some in chunks(numbers, sizes):
            placed = file.frames(file.index.array()[some])
            if placed is not None:
                self._bulk_names.learn(names, file.index, some, placed)
        return names.learned - learned

    def knows_names(self) -> bool:
        """Whether all names that the filter asks for are known, of exchanges where they may be: then it decides at once."""
        keys = self.filter.apis()
        wanted = naming_apis() if keys is None else naming_apis() & keys
        for segment, file in enumerate(self.capture.segments):
            names, stop = self._names(segment), self.capture.starts[segment + 1] - self.capture.starts[segment]
            if names is None:
                return False
            ids = names.ids[:stop]
            if UNKNOWN_ID not in ids:
                continue
            each = zip(ids, IndexColumns(file.index).tuples(("api_key", "flags"), 0, stop), strict=True)
            if any(known == UNKNOWN_ID and names.may_be_known(flags) and key in wanted for known, (key, flags) in each):
                return False
        return True

    @cached_property
    def _bulk_names(self) -> BulkNames:
        from ..recording.bulk_names import BulkNames

        return BulkNames(self._table)

    def count(self, start: int = 0, stop: int | None = None) -> int:
        """The number of rows that the filter selects."""
        return sum(1 for _ in self.rows(start=start, stop=stop))

    def exchange(self, row: Row | int) -> Exchange:
        """The exchange of a row as filters want it: with topics, and what is known of its connection."""
        number = row if isinstance(row, int) else row.number
        return self.complete(self.capture.exchange(number), number)

    def complete(self, exchange: Exchange, number: int) -> Exchange:
        """Give an exchange, read in another way, what `exchange` gives."""
        self._learn()
        exchange.topics = self.topics
        segment, within = self.capture.locate(number)
        exchange.about = self._abouts.get(self._recording(segment), {}).get(exchange.connection)
        flags = self.capture.segments[segment].index.record(within).flags
        # Frames have more comments than the index counts as notes, and none on what was carried over.
        exchange.marks.noted, exchange.marks.carried = bool(flags & NOTED), bool(flags & CARRIED)
        return exchange

    def _decide(self, number: int, names: SegmentNames | None, test: ColumnTest | None) -> bool:
        self.decoded += 1
        exchange = self.exchange(number)
        if names is None:
            return self.filter(exchange)
        segment, within = self.capture.locate(number)
        known = names.learn(within, exchange, self.capture.segments[segment].index.record(within))
        if test is None or known == UNKNOWN_ID or not self.filter.names_decide:
            return self.filter(exchange)
        return any(True for _ in test.rows(within, within + 1))

    def _names(self, segment: int) -> SegmentNames | None:
        """The names of a segment's exchanges, if the filter asks for names."""
        if not (self.filter.has_names and self.capture.has_frames):
            return None
        names = self.capture.segments[segment].names(self._table)
        index = self.capture.segments[segment].index
        if names.shown != index.shown:  # other requests in flight
            names.ids, names.shown = names.ids[: names.done], index.shown
        start, stop = len(names.ids), index.count
        if start < stop:
            keys = IndexColumns(index).tuples(("api_key",), start, stop)
            named = naming_apis()
            names.grow(array("I", (UNKNOWN_ID if key in named else NONE_ID for (key,) in keys)).tobytes())
        names.done = index.done
        return names

    def _test(self, segment: int) -> ColumnTest | None:
        """The test of a segment's records; made anew when the index knows more than before."""
        index = self.capture.segments[segment].index
        now = self.filter.now() if self.filter.needs_now and self.filter.now is not None else 0
        names = self._names(segment)
        known = (len(index.strings), len(index.connections), index.shown, self._table.learned, self._learned, now, names)
        made = self._tests.get(segment)
        if made is None or made[0] != known:
            columns = IndexColumns(index, self._abouts.get(self._recording(segment)), names, self.topics)
            made = self._tests[segment] = known, self.filter.columns(columns)
        return made[1]

    def _recording(self, segment: int) -> str:
        """The scope of connection numbers: a recording, or a foreign file."""
        own = self.capture.segments[segment].own
        return own.recording if own is not None else str(segment)

    def _learn(self) -> None:
        """Read the few exchanges that name topic ids, clients and brokers."""
        stop = self.capture.done
        if self._topics and self._table.learned < stop:
            for segment, found in self._of_apis(NAMING_APIS, self._table.learned):
                self._learn_topics(segment, found)
            self._table.learned = stop
        if Need.CONNECTION in self.filter.needs and self._learned < stop:
            for segment, found in self._of_apis({_API_VERSIONS}, self._learned):
                peer_infos = self._abouts.setdefault(self._recording(segment), {})
                for within in found:
                    exchange = self.capture.exchange(self.capture.starts[segment] + within)
                    peer_infos.setdefault(exchange.connection, PeerInfo()).learn(exchange)
            self._learned = stop

    def _learn_topics(self, segment: int, found: list[int]) -> None:
        """Take the names of topic ids from these records."""
        names, file = self._names(segment), self.capture.segments[segment]
        if names is not None and self._in_bulk:
            self._learn_names(segment, names, [each for each in found if names.ids[each] == UNKNOWN_ID])
        for within in found:
            if names is not None and names.ids[within] != UNKNOWN_ID:
                self.topics.add(names.sets[names.ids[within]].taught)
                continue
            record = file.index.record(within)
            exchange = file.exchange(record)
            self.topics.learn(exchange)
            if names is not None:
                names.learn(within, exchange, record)

    def _of_apis(self, keys: Collection[int], start: int) -> Iterator[tuple[int, list[int]]]:
        """The records of these APIs, from row `start` on, by segment."""
        for segment, file in enumerate(self.capture.segments):
            base, behind = self.capture.starts[segment : segment + 2]
            first, end = max(start - base, 0), min(behind, self.capture.done) - base
            if first >= end:
                continue
            each = IndexColumns(file.index).tuples(("api_key",), first, end)
            yield segment, [number for number, (key,) in enumerate(each, first) if key in keys]


def _blocks(start: int, stop: int, newest_first: bool) -> Iterator[tuple[int, int]]:
    """Stretches of records, a small one first so that something is found at once."""
    size = _FIRST_BLOCK
    while start < stop:
        if newest_first:
            low = max(start, stop - size)
            yield low, stop
            stop = low
        else:
            high = min(stop, start + size)
            yield start, high
            start = high
        size = min(size * 8, _BLOCK)


def select(capture: Capture, wanted: Filter, newest_first: bool = False) -> Iterator[int]:
    """The numbers of a capture's rows that a filter selects, lazily, in the order of the rows or the newest first."""
    return Selection(capture, wanted).rows(newest_first)


def count(capture: Capture, wanted: Filter) -> int:
    """The number of a capture's rows that a filter selects."""
    return Selection(capture, wanted).count()
