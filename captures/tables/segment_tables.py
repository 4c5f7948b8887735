"""One file of a capture in, Arrow batches of any of its tables out: what a task of the pipeline does, without Spark.

The file is opened once. From there every table has one way to its rows, and a faster one where the file allows it:

    exchanges, frames           index -> columns by NumPy (`index_tables`)
    batches, throttles          frames of a sound, closed segment, or of a foreign capture -> rows by C (`bulk_batches`), else
                                exchange by exchange
    errors, groups, records     exchange by exchange, only those that may have rows (`body_tables`)
    connections                 index of a closed segment (`captures.reading.segment_map`), or of a foreign capture without
                                missing or stray bytes, else every packet
    versions                    index, and the requests by which clients ask for versions
    segments                    index and sync blocks (`segments`)
    findings, happenings        every packet (`reading.events`)

What the faster ways save of the default tables of a recording of 195 MB (40,000 exchanges), in CPU: batches and throttles 7 of
12 s; connections by the index 5.7 of 10.8 s (alone 0.1 s instead of 4.5). Of the same traffic as a pcap both save 3.7 of 4.5 s.

Connections, findings and happenings that need the packets share one pass. Nothing that a file can hold makes it raise: what
cannot be read is left out, and reported in the table `segments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ...decoder import Exchange
from ...decoder.connection.api_versions import PeerInfo
from ...decoder.filter import Filter
from ...decoder.findings import Inspector
from ...diagnostics import contained
from ..native.accelerator import native
from ..pcap.pcapng import NotACapture
from ..reading.capture import Capture
from ..reading.context import Context, Origin, contexts_of, recording_of
from ..reading.events import EventReader
from ..reading.indexing.damage import CheckedSpan, spans
from ..reading.reader import CaptureFile, RequestKey
from ..reading.segment_map import IndexMismatch
from ..reading.selection import Selection
from ..recording.bulk_frames import PlacedFrames, chunks, in_segment
from ..recording.index import CLOSED, CONTINUED
from . import bulk_batches
from .body_tables import BATCHES, ERRORS, GROUP_APIS, GROUPS, RECORD_API_KEYS, RECORDS, THROTTLES
from .columns import BATCH_ROWS, Batches, numpy, pyarrow
from .connections import CONNECTIONS, ConnectionRows, connections_of_index
from .event_tables import FINDINGS, HAPPENINGS, EventRows, findings_of
from .index_tables import EXCHANGES, exchange_batches, frame_batches
from .rows import EVERYTHING, OF_INDEX, Options
from .segments import (
    SEGMENTS,
    bytes_of,
    cannot_match,
    carried_requests,
    exchange_counts,
    file_row,
    readable,
    successor,
    unreadable_row,
)
from .version_table import PARTIAL_VERSIONS, VERSIONS, VersionRows, learn_versions, partial_versions

_FROM_EVENTS = (CONNECTIONS.name, FINDINGS.name, HAPPENINGS.name)
_MANY = 500
"""From so many exchanges on, checking the whole segment for damage pays off."""
_OF_CONTEXT = {"cluster_id", "broker_id", "topic"}
"""Columns that need what other exchanges say."""


class SegmentTables:
    """The tables of one file: iterate over it for `(table, pyarrow.RecordBatch)`.

    `options`: which tables and columns, each table once; for the pipeline also the partial ones. `wanted`: only what comes of
    exchanges that pass; `part`: only of those with these numbers in the index. `follows`: the next segment of the recording, where that is known; it is looked for beside the file
    otherwise. `capture_id`: another name for a foreign capture than that of its file. `context`: what is known about the
    recording; else what this file says. Raises MissingLibrary.
    """

    def __init__(
        self,
        path: Path,
        options: Sequence[Options],
        wanted: Filter | None = None,
        *,
        part: slice = slice(None),
        follows: Path | None = None,
        capture_id: str = "",
        context: Context | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        numpy()
        self._path, self._wanted, self._follows, self._batch_rows = path, wanted, follows, batch_rows
        self._capture_id, self._part = capture_id, part
        self._given = context
        self.context = Context() if context is None else context
        """What is known about the recording, once rows are read."""
        self._options = {each.table.name: each for each in options}
        self._gathered = {each.table.name: Batches(each.columns, batch_rows) for each in options}
        self._faults: list[str] = []
        self._spans: list[CheckedSpan] | None = None

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        if self._wanted is not None and cannot_match(self._path, self._wanted):
            return
        try:
            capture = Capture(self._path)
        except (NotACapture, OSError) as error:
            why = str(error) if isinstance(error, NotACapture) or not error.strerror else error.strerror
            yield from self._rest([unreadable_row(self._path, self._origin(None), why)])
            return
        with capture:
            yield from self._opened(capture)

    def _origin(self, recording: str | None) -> Origin:
        return Origin(recording or self._capture_id or self._path.name, self._path.name.removesuffix(".part"), self.context)

    def _learn(self, capture: Capture) -> None:
        """Learn what this file says, unless that is known, or no column needs it."""
        known = self._given is not None and capture.segments[0].own is not None
        if not known and any(table.names & _OF_CONTEXT for table in self._options.values()):
            self.context = contexts_of(capture, self._given)[recording_of(capture, 0)]

    def _opened(self, capture: Capture) -> Iterator[tuple[str, Any]]:
        file = capture.segments[0]
        self._path = file.path
        self._learn(capture)
        origin = self._origin(file.own.recording if file.own else None)
        fault = file.fault
        after = self._after(file)
        np = numpy()
        flags = file.index.array()["flags"] if file.index.count else np.empty(0, dtype=np.uint16)
        numbers = np.arange(len(flags), dtype=np.int64)[self._part]
        goes_on = flags & CONTINUED != 0
        if after:
            numbers = numbers[~goes_on[self._part]]
        selection = Selection(capture, self._wanted or EVERYTHING)
        selection.topics = origin.context.topics
        if self._wanted is not None:
            passing = np.fromiter(selection.rows(), dtype=np.int64)
            numbers = np.intersect1d(numbers, passing)
        for name, table in self._options.items():
            if name in OF_INDEX and not table.decoded:
                make = exchange_batches if name == EXCHANGES.name else frame_batches
                for batch in make(file.index, origin, numbers, table.columns, self._batch_rows):
                    yield name, batch
        yield from self._bodies(capture, selection, origin, numbers)
        yield from self._versions(capture, origin, numbers)
        yield from self._from_events(capture, origin, numbers, goes_on if after else None)
        if SEGMENTS.name not in self._options:  # to know it, all of the file has to be read
            yield from self._rest([])
            return
        counts = exchange_counts(file, numbers, 0 if after else int(goes_on.sum()))
        row = file_row(file, origin, counts, self._spans)
        if fault and not row["detail"]:
            row["detail"] = fault
        row["detail"] = "; ".join(part for part in (row["detail"], *self._faults) if part) or None
        yield from self._rest([row])

    def _after(self, file: CaptureFile) -> bool:
        """Whether exchanges that go on in the next segment count there, because it is there; then they are hidden here."""
        if file.own is None:
            return False
        follows = self._follows if self._follows is not None else successor(self._path, file.own)
        if follows is None:
            return False
        if not file.rebuilt:  # the recorder has marked them
            return readable(follows)
        known = carried_requests(follows)
        if known is not None:
            file.hide(known)
        return known is not None

    def _rest(self, file_rows: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The last batches of all tables, and the file's own row."""
        for row in file_rows:
            if SEGMENTS.name in self._gathered:
                self._gathered[SEGMENTS.name].add(row)
        for name, gathered in self._gathered.items():
            if gathered.count:
                yield name, gathered.take()

    def _bodies(
        self, capture: Capture, selection: Selection, origin: Origin, numbers: Any
    ) -> Iterator[tuple[str, Any]]:
        without = (*_FROM_EVENTS, SEGMENTS.name, VERSIONS.name, PARTIAL_VERSIONS.name)
        chosen = [table for name, table in self._options.items() if table.decoded and name not in without]
        sound = SEGMENTS.name in self._options
        reading = _BodyTables(self._path, capture, selection, origin, chosen, self._gathered, sound)
        yield from reading.rows(numbers)
        self._spans = reading.spans
        if reading.unread:
            self._faults.append(f"{reading.unread} exchange{'s' * (reading.unread != 1)} cannot be read back")

    # what happened

    def _versions(self, capture: Capture, origin: Origin, numbers: Any) -> Iterator[tuple[str, Any]]:
        """The rows of `versions`, counted in the index; only the requests by which clients ask for versions are read."""
        asked = [each for each in (VERSIONS.name, PARTIAL_VERSIONS.name) if each in self._options]
        if not asked:
            return
        index = capture.segments[0].index
        peer_infos: dict[int, PeerInfo] = {}
        learn_versions(capture, 0, peer_infos)
        for name in asked:
            if name == VERSIONS.name:
                found = VersionRows(origin)
                found.count(index, numbers.tolist(), peer_infos)
                rows = found.rest()
            else:
                rows = partial_versions(index, numbers.tolist(), peer_infos, origin)
            yield from self._gather((name, row) for row in rows)

    def _from_events(self, capture: Capture, origin: Origin, numbers: Any, goes_on: Any) -> Iterator[tuple[str, Any]]:
        """Connections, findings and happenings; connections by the index where it is like the file."""
        asked = [each for each in _FROM_EVENTS if each in self._options]
        wanted = None if self._wanted is None else Selection(capture, self._wanted).filter
        if CONNECTIONS.name in asked and wanted is None:
            rows = _connections_of_index(capture, origin, numbers)
            if rows is not None:
                asked.remove(CONNECTIONS.name)
                yield from self._gather((CONNECTIONS.name, row) for row in rows)
        if not asked:
            return
        try:
            elsewhere = set() if goes_on is None else _keys(capture.segments[0].index.array()[goes_on])
            yield from self._gather(self._of_packets(origin, asked, wanted, elsewhere))
        except Exception as error:  # a fault of the decoder must not end a run over thousands of files
            contained("reading the events of a segment", error, reported=True)
            self._faults.append(f"not complete: {type(error).__name__}: {error}")

    def _gather(self, rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, Any]]:
        """Gather rows of some tables into batches."""
        for table, row in rows:
            if self._gathered[table].add(row):
                yield table, self._gathered[table].take()

    def _of_packets(
        self, origin: Origin, asked: list[str], wanted: Callable[[Exchange], bool] | None, elsewhere: set[RequestKey]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """The rows of these tables in one pass over the packets."""
        connections = ConnectionRows(origin, wanted, elsewhere) if CONNECTIONS.name in asked else None
        happenings = EventRows(origin) if HAPPENINGS.name in asked else None
        inspector = Inspector() if FINDINGS.name in asked else None
        reader = EventReader(self._path)
        for event in chain(reader.read(), reader.end()):
            if inspector is not None:
                inspector.feed(event)
            if happenings is not None:
                yield HAPPENINGS.name, happenings.row(event)
            if connections is not None:
                yield from ((CONNECTIONS.name, row) for row in connections.feed(event))
        if connections is not None:
            yield from ((CONNECTIONS.name, row) for row in connections.rest())
        if inspector is not None:
            yield from ((FINDINGS.name, row) for row in findings_of(inspector, origin, wanted))


def _keys(records: Any) -> set[RequestKey]:
    columns = (records[name].tolist() for name in RequestKey._fields)
    return {RequestKey(*each) for each in zip(*columns, strict=True)}


def _connections_of_index(capture: Capture, origin: Origin, numbers: Any) -> list[dict[str, Any]] | None:
    """The connections of a file by its index; None where the packets have to be read."""
    try:
        return list(connections_of_index(capture, origin, numbers))
    except IndexMismatch:
        return None
    except Exception as error:  # a damaged index may raise anything: the packets are read instead
        contained("reading connections from an index", error)
        return None


def _frames_of(file: CaptureFile, records: Any) -> PlacedFrames:
    found = file.frames(records)
    assert found is not None  # a foreign capture stays open
    return found


class _BodyTables:
    """Makes the rows of tables that need bodies. Rows that are no batch yet are left in `gathered`, by table.

    `sound`: whether it is asked for anyway which spans of the file are what was recorded;
    `spans` has them afterwards, where they were looked at, and `unread` how many exchanges cannot be read back.
    """

    def __init__(
        self,
        path: Path,
        capture: Capture,
        selection: Selection,
        origin: Origin,
        tables: Sequence[Options],
        gathered: Mapping[str, Batches],
        sound: bool,
    ) -> None:
        self._path, self._capture, self._selection, self._origin = path, capture, selection, origin
        self._tables, self._gathered, self._sound = tables, gathered, sound
        self._file = capture.segments[0]
        self.spans: list[CheckedSpan] | None = None
        self.unread = 0

    def rows(self, numbers: Any) -> Iterator[tuple[str, Any]]:
        """The tables of the exchanges `numbers`."""
        singly = list(self._tables)
        bulk = [table for table in self._tables if table.table.name in bulk_batches.TABLES]
        needed = self._needed(bulk, numbers)
        find_frames = self._frames(len(needed))
        if find_frames is not None:
            yield from self._bulk(bulk, needed, find_frames)
            singly = [table for table in self._tables if table not in bulk]
        for number in self._needed(singly, numbers):
            yield from self._of(int(number), singly, self._gathered)

    def _bulk(self, tables: Sequence[Options], needed: Any, find_frames: bulk_batches.FindFrames) -> Iterator[tuple[str, Any]]:
        """These tables many exchanges at a time; those that are left over, in between."""
        np, pa, index = numpy(), pyarrow(), self._file.index
        reader = bulk_batches.BulkReader(find_frames, index, self._origin, tables, self._selection.topics)
        records = index.array()[needed]
        for some in chunks(needed, records["request_size"].astype(np.int64) + records["response_size"]):
            made, left = reader.read(some)
            parts = {name: ([batch], [owners]) for name, (batch, owners) in made.items()}
            own = {table.table.name: Batches(table.columns) for table in tables}
            rows_of: dict[str, list[int]] = {name: [] for name in own}
            full = dict.fromkeys(own, 0)
            for number in left:
                for name, batch in self._of(int(number), tables, own):
                    parts[name][0].append(batch)
                    full[name] += batch.num_rows
                for name, each in own.items():
                    rows_of[name] += [number] * (full[name] + each.count - len(rows_of[name]))
            for name, each in own.items():
                if rows_of[name]:
                    parts[name][0].append(each.take())
                    parts[name][1].append(np.array(rows_of[name]))
            for name, (batches, owners) in parts.items():
                whole = batches[0]
                if len(batches) > 1:
                    order = np.argsort(np.concatenate(owners), kind="stable")
                    whole = pa.Table.from_batches(batches).combine_chunks().take(order).to_batches()[0]
                for start in range(0, whole.num_rows, BATCH_ROWS):
                    yield name, whole.slice(start, BATCH_ROWS)

    def _of(self, number: int, tables: Sequence[Options], gathered: Mapping[str, Batches]) -> Iterator[tuple[str, Any]]:
        """The rows of one exchange."""
        row = self._capture.rows()[number]
        read: list[Exchange] = []

        def once() -> Exchange:
            if not read:
                read.append(self._selection.exchange(number))
            return read[0]

        for table in tables:
            if not table.may_have(row):
                continue
            into = gathered[table.table.name]
            try:
                for each in table.rows(row, self._origin, number, once):
                    if into.add(each):
                        yield table.table.name, into.take()
            except Exception as error:  # the bytes do not match the index, or a fault of the decoder
                contained("reading an exchange back for a table", error, reported=True)
                self.unread += 1

    def _frames(self, count: int) -> bulk_batches.FindFrames | None:
        """How to find the frames of a capture of another tool, or of a closed segment of a recording all of which is sound; None for other
        files, without the accelerator, and where `count` exchanges are too few to look."""
        file = self._file
        if native is None or not count:
            return None
        if file.own is None:
            return partial(_frames_of, file)
        if file.rebuilt or not file.index.head.flags & CLOSED:
            return None
        if not self._sound and count < _MANY:
            return None
        try:
            data = bytes_of(self._path)
            self.spans = spans(data)
        except (OSError, ValueError):
            return None
        return partial(in_segment, data) if all(span.sound for span in self.spans) else None

    def _needed(self, tables: Sequence[Options], numbers: Any) -> Any:
        """The exchanges that some of these tables may have rows of."""
        np = numpy()
        if not len(numbers) or not tables:
            return ()
        records = self._file.index.array()[numbers]
        mask = np.zeros(len(numbers), dtype=bool)
        for table in tables:
            name = table.table.name
            if name == ERRORS.name:
                mask |= records["error"] != 0
            elif name == GROUPS.name:
                mask |= np.isin(records["api_key"], list(GROUP_APIS))
            elif name in (BATCHES.name, RECORDS.name):
                mask |= np.isin(records["api_key"], list(RECORD_API_KEYS))
            elif name == THROTTLES.name:
                mask |= records["response_offset"] >= 0
            else:
                mask[:] = True
        return numbers[mask]
