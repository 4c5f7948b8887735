"""One file of a capture in, Arrow batches of any of its tables out: what a task of the pipeline does, without Spark.

The file is opened once. Header tables are made by NumPy from its index; of the exchanges that body tables need, and only
of those, the frames are read, each once; connections and findings share one pass over the packets. Nothing that
a file can hold makes it raise: what cannot be read is left out, and the table `segments` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...decoder import facts
from ...decoder.about import About
from ...decoder.filter import Filter, Need
from ...decoder.findings import Inspector
from ..capture import Capture
from ..damage import Span
from ..foretelling import Foretelling
from ..happenings import Happenings
from ..index import CLOSED, CONTINUED, open_index
from ..outline import Outline, Unlike
from ..pcapng import NotACapture
from ..reader import CaptureFile
from ..selection import IndexColumns, Selection
from . import connections as connections_table
from . import files, findings, frames, headers, story, versions
from .arrow import BATCH_ROWS, Batches, numpy
from .connections import Connections
from .from_bodies import FromBodies
from .reading import EVERYTHING, OF_INDEX, Options
from .segments import carried, readable, successor
from .settling import Settling

_BY_STORY = ("connections", "findings", story.TABLE.name)
_API_VERSIONS = facts.api_key("ApiVersions")


class Unit:
    """The tables of one file: iterate over it for `(table, pyarrow.RecordBatch)`.

    `options`: which tables and columns, each table once. `wanted`: only what comes of exchanges that pass. `follows`: the
    next segment of the recording, where that is known; it is looked for beside the file otherwise. `capture_id`: another
    name for a foreign capture than that of its file. Raises MissingLibrary.
    """

    def __init__(
        self,
        path: Path,
        options: Sequence[Options],
        wanted: Filter | None = None,
        *,
        follows: Path | None = None,
        capture_id: str = "",
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        numpy()
        self._path, self._wanted, self._follows, self._batch_rows = path, wanted, follows, batch_rows
        self._capture_id = capture_id
        self._options = {each.table.name: each for each in options}
        self._gathered = {each.table.name: Batches(each.columns, batch_rows) for each in options}
        self._faults: list[str] = []
        self._spans: list[Span] | None = None

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        if self._wanted is not None and cannot_match(self._path, self._wanted):
            return
        try:
            capture = Capture(self._path)
        except (NotACapture, OSError) as error:
            why = str(error) if isinstance(error, NotACapture) or not error.strerror else error.strerror
            yield from self._rest([files.unread(self._path, self._names(None), why)])
            return
        with capture:
            yield from self._opened(capture)

    def _names(self, recording: str | None) -> tuple[str, str]:
        return recording or self._capture_id or self._path.name, self._path.name.removesuffix(".part")

    def _opened(self, capture: Capture) -> Iterator[tuple[str, Any]]:
        file = capture.segments[0]
        names = self._names(file.own.recording if file.own else None)
        fault = file.fault
        after = self._after(file)
        np = numpy()
        flags = file.index.array()["flags"] if file.index.count else np.empty(0, dtype=np.uint16)
        numbers = np.arange(len(flags), dtype=np.int64)
        goes_on = flags & CONTINUED != 0
        if after:
            numbers = numbers[~goes_on]
        selection = Selection(capture, self._wanted or EVERYTHING, topics=self._wanted is not None)
        if self._wanted is not None:
            passing = np.fromiter(selection.rows(), dtype=np.int64)
            numbers = np.intersect1d(numbers, passing)
        for name, table in self._options.items():
            if name in OF_INDEX and not table.decoded:
                make = headers.batches if name == headers.TABLE.name else frames.batches
                for batch in make(file.index, names, numbers, table.columns, self._batch_rows):
                    yield name, batch
        yield from self._bodies(capture, selection, names, numbers)
        yield from self._versions(capture, names[0], numbers)
        yield from self._story(capture, names[0])
        if files.TABLE.name not in self._options:  # to know it, all of the file has to be read
            yield from self._rest([])
            return
        counts = files.counted(file, numbers, 0 if after else int(goes_on.sum()))
        row = files.row_of(file, names, counts, self._spans)
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
        known = carried(follows)
        if known is not None:
            file.hide(known)
        return known is not None

    def _rest(self, file_rows: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
        """What is left in all tables, and the file's own row."""
        for row in file_rows:
            if files.TABLE.name in self._gathered:
                self._gathered[files.TABLE.name].add(row)
        for name, gathered in self._gathered.items():
            if gathered.count:
                yield name, gathered.take()

    def _bodies(
        self, capture: Capture, selection: Selection, names: tuple[str, str], numbers: Any
    ) -> Iterator[tuple[str, Any]]:
        without = (*_BY_STORY, files.TABLE.name, versions.TABLE.name)
        chosen = [table for name, table in self._options.items() if table.decoded and name not in without]
        sound = files.TABLE.name in self._options
        reading = FromBodies(self._path, capture, selection, names, chosen, self._gathered, sound)
        yield from reading.rows(numbers, self._wanted is None)
        self._spans = reading.spans
        if reading.unread:
            self._faults.append(f"{reading.unread} exchanges cannot be read back")

    # what happened

    def _versions(self, capture: Capture, name: str, numbers: Any) -> Iterator[tuple[str, Any]]:
        """Who speaks what: counted in the index; only the requests by which clients ask for versions are read."""
        if versions.TABLE.name not in self._options:
            return
        index = capture.segments[0].index
        abouts: dict[int, About] = {}
        asking = numpy().flatnonzero(index.array()["api_key"] == _API_VERSIONS) if index.count else ()
        for number in asking:
            try:
                exchange = capture.exchange(int(number))
                abouts.setdefault(exchange.connection, About()).learn(exchange)
            except Exception:  # damaged bytes, or a fault of the decoder: then less is known of its software
                continue
        gathered = self._gathered[versions.TABLE.name]
        for row in versions.of_index(index, numbers, abouts, name) if index.count else ():
            if gathered.add(row):
                yield versions.TABLE.name, gathered.take()

    def _story(self, capture: Capture, name: str) -> Iterator[tuple[str, Any]]:
        asked = [each for each in _BY_STORY if each in self._options]
        if "connections" in asked and self._wanted is None:
            rows = self._by_index(capture, name)
            if rows is not None:
                asked.remove("connections")
                for row in rows:
                    if self._gathered["connections"].add(row):
                        yield "connections", self._gathered["connections"].take()
        if "findings" in asked and (inspector := self._inspected(capture)) is not None:
            asked.remove("findings")
            wanted = None if self._wanted is None else Selection(capture, self._wanted).filter
            for row in findings.rows_of(inspector, name, wanted):
                if self._gathered["findings"].add(row):
                    yield "findings", self._gathered["findings"].take()
        if not asked:
            return
        try:
            for table, row in self._told(capture, name, asked):
                gathered = self._gathered[table]
                if gathered.add(row):
                    yield table, gathered.take()
        except Exception as error:  # a fault of the decoder must not end a run over thousands of files
            self._faults.append(f"not told to the end: {type(error).__name__}: {error}")

    def _by_index(self, capture: Capture, name: str) -> list[dict[str, Any]] | None:
        """The connections of a segment by its index; None where the packets have to be read."""
        try:
            return list(connections_table.of_outline(Outline(capture.segments[0]), capture, name))
        except Unlike:
            return None
        except Exception:  # the index is not what it should be: the packets are the truth
            return None

    def _inspected(self, capture: Capture) -> Inspector | None:
        """An inspector that was told a segment by its index; None where the packets have to be read."""
        inspector = Inspector()
        try:
            Foretelling(Outline(capture.segments[0])).tell(inspector)
        except Exception:  # the index is not what it should be: the packets are the truth
            return None
        return inspector

    def _told(self, capture: Capture, name: str, asked: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        wanted = None if self._wanted is None else Selection(capture, self._wanted).filter
        connections = Connections(name, wanted) if "connections" in asked else None
        inspector = Inspector() if "findings" in asked else None
        tells = story.TABLE.name in asked
        settling = Settling()

        def count(settled: Iterator[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
            for each in settled:
                if connections is not None:
                    yield from (("connections", row) for row in connections.feed(each))

        told = Happenings(self._path)
        for part in (told.read, told.end):
            for happening in part():
                if inspector is not None:
                    inspector.feed(happening)
                if tells:
                    yield from ((story.TABLE.name, row) for row in story.rows((happening,), name))
                if connections is not None:
                    yield from count(settling.feed(happening))
        yield from count(settling.rest())
        if connections is not None:
            yield from (("connections", row) for row in connections.rest())
        if inspector is not None:
            yield from (("findings", row) for row in findings.rows_of(inspector, name, wanted))


def cannot_match(path: Path, wanted: Filter) -> bool:
    """Whether the index beside a segment tells that no exchange of it passes, so that it need not be opened."""
    if wanted.index_part is None or Need.CONNECTION in wanted.needs or wanted.asks_time:
        return False
    index = open_index(path)
    if index is None:
        return False
    try:
        if not index.head.flags & CLOSED:
            return False
        test = wanted.columns(IndexColumns(index))
        return test is not None and not bool(test.mask(0, index.count).any())
    finally:
        index.close()
