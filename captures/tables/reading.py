"""From captures to the rows of a table: of a whole capture one by one, of one segment as Arrow batches.

Rows of a whole capture come segment by segment, in a segment in the order of the requests; those of `connections`,
`versions`, `findings` and `happenings` in the order that their descriptions say. At most one segment's row numbers and
one exchange are held at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...decoder import Exchange, Topics
from ...decoder.filter import Filter, compile
from ...decoder.present import RECORD_APIS
from ...decoder.values import SchemaSource
from ..capture import Capture, Row
from ..happenings import Happenings
from ..index import CONTINUED
from ..pcapng import NotACapture
from ..reader import CaptureFile
from ..selection import IndexColumns, Selection
from . import connections, error_codes, findings, headers, record_batches, records, story, versions
from .arrow import batches_of, numpy
from .columns import KEY, Column, Table
from .segments import successor

TABLES = (
    headers.TABLE,
    error_codes.TABLE,
    record_batches.TABLE,
    records.TABLE,
    connections.TABLE,
    versions.TABLE,
    findings.TABLE,
    story.TABLE,
)
_OF_EXCHANGES = {headers.TABLE.name, error_codes.TABLE.name, record_batches.TABLE.name, records.TABLE.name}
_TELLING = {
    connections.TABLE.name: connections.rows,
    versions.TABLE.name: versions.rows,
    findings.TABLE.name: findings.rows,
}
EVERYTHING = compile("corr > 0 or corr <= 0")
"""The filter that is true of every exchange."""


class Options:
    """What is shown of a table: the columns, and payload only with `values`, read by `schemas` where one is known.
    Raises ValueError for a column of payload without `values`."""

    def __init__(
        self, table: Table, columns: Sequence[Column], values: bool = False, schemas: SchemaSource | None = None
    ) -> None:
        hidden = [column.name for column in columns if column.payload]
        if hidden and not values:
            raise ValueError(
                f"column {hidden[0]} holds what records say, which is only shown when values are asked for"
            )
        self.table, self.columns, self.values, self.schemas = table, columns, values, schemas
        self.names = frozenset(column.name for column in columns)
        self._decoded = bool(self.names & set(headers.BODIES))

    def may_have(self, row: Row) -> bool:
        """Whether an exchange may have rows, by what the index knows."""
        name = self.table.name
        if name == error_codes.TABLE.name:
            return bool(row.error)
        return name == headers.TABLE.name or row.api in RECORD_APIS

    def rows(self, row: Row, place: tuple[str, str, int], read: Callable[[], Exchange]) -> Iterator[dict[str, Any]]:
        """The rows of one exchange. `place`: capture_id, segment and number; `read` reads it back."""
        if self.table.name == headers.TABLE.name:
            found = headers.row_of(row, *place)
            if self._decoded:
                shown = read().to_dict(values=self.values, schemas=self.schemas)
                found |= {name: shown.get(name) for name in headers.BODIES}
            yield found
            return
        exchange = read()
        key = dict(zip(_KEY, (*place, *_of(row)), strict=True))
        if self.table.name == error_codes.TABLE.name:
            inner: Iterable[dict[str, Any]] = error_codes.rows(exchange)
        elif self.table.name == record_batches.TABLE.name:
            inner = record_batches.rows(exchange)
        else:
            inner = records.rows(exchange, self.names, self.values, self.schemas)
        for each in inner:
            yield {**key, **each}


_KEY = [column.name for column in KEY]


def _of(row: Row) -> tuple[Any, ...]:
    return (
        row.time_ns, row.connection, row.client, row.broker, row.api, row.api_version, row.correlation_id, row.client_id
    )  # fmt: skip


class Rows:
    """The rows of a table of a capture, as dicts that have at least the chosen columns.

    `wanted` selects exchanges; rows are those of them (see the tables for the ones that are not about one exchange).
    `done` and `total` are bytes, for showing how far it is. `notes` has what was left out. Raises ValueError for what
    cannot be asked of this table.
    """

    def __init__(self, capture: Capture, options: Options, wanted: Filter | None = None) -> None:
        if wanted is not None and options.table.name == story.TABLE.name:
            raise ValueError(
                "the table happenings tells of requests before their answers are known: it takes no filter"
            )
        self.done = 0
        self.total = sum(segment.size for segment in capture.segments)
        self.notes: list[str] = []
        self._capture, self._options, self._wanted = capture, options, wanted

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._of_exchanges() if self._options.table.name in _OF_EXCHANGES else self._of_happenings()

    def _of_exchanges(self) -> Iterator[dict[str, Any]]:
        capture, options = self._capture, self._options
        selection = Selection(capture, self._wanted or EVERYTHING, topics=options.table.name != headers.TABLE.name)
        rows = capture.rows()
        unread = 0
        for segment, file in enumerate(capture.segments):
            first, behind = capture.starts[segment : segment + 2]
            names = (file.own.recording if file.own else file.path.name, file.path.name.removesuffix(".part"))
            before = self.done
            times = array("q", (t for (t,) in IndexColumns(file.index).tuples(("time_ns",), 0, behind - first)))
            # The sort is stable: equal times keep the order of the index.
            for number in sorted(selection.rows(start=first, stop=behind), key=lambda n: times[n - first]):
                row = rows[number]
                if not options.may_have(row):
                    continue
                self.done = before + int(file.size * (number - first) / max(behind - first, 1))
                try:
                    yield from options.rows(row, (*names, number - first), partial(selection.exchange, number))
                except ValueError:  # the bytes are not what the index says
                    unread += 1
            self.done = before + file.size
        if unread:
            self.notes.append(f"{unread} exchanges cannot be read back: the file is damaged, or has changed")

    def _of_happenings(self) -> Iterator[dict[str, Any]]:
        told = Happenings(self._capture.path)
        recordings = {segment.own.recording if segment.own else None for segment in self._capture.segments}
        name = recordings.pop() if len(recordings) == 1 else None
        yield from _told(self._options.table, self._counted(told), name or self._capture.path.name, self._test())

    def _counted(self, told: Happenings) -> Iterator[Any]:
        for part in (told.read, told.end):
            for happening in part():
                self.done = told.bytes_read
                yield happening

    def _test(self) -> Callable[[Exchange], bool] | None:
        """The filter, told what time it was when the recording ended."""
        return None if self._wanted is None else Selection(self._capture, self._wanted).filter


def _told(
    table: Table, happenings: Iterator[Any], name: str, wanted: Callable[[Exchange], bool] | None
) -> Iterator[Any]:
    if table.name == story.TABLE.name:
        return story.rows(happenings, name)
    return _TELLING[table.name](happenings, name, wanted)


def of_segment(options: Options, path: Path, batch_rows: int) -> Iterator[Any]:
    """The Arrow batches of one segment; what cannot be read of it is left out."""
    try:
        file = CaptureFile(path)
    except (NotACapture, OSError):
        return
    own, names = file.own, (file.own.recording if file.own else path.name, path.name.removesuffix(".part"))
    try:
        if options.table.name not in _OF_EXCHANGES:
            rows = _story_of(options.table, path, own.recording if own else path.name)
            yield from batches_of(rows, options.columns, batch_rows)
            return
        after = successor(path, own)
        if file.rebuilt and after is not None:
            file.hide(after)
        if options.table.name == headers.TABLE.name and not options.names & set(headers.BODIES):
            if file.index.count:
                np = numpy()
                flags = file.index.array()["flags"]
                numbers = np.arange(len(flags), dtype=np.int64)
                if after is not None:
                    numbers = numbers[flags & CONTINUED == 0]
                yield from headers.batches(file.index, names, numbers, options.columns, batch_rows)
            return
    finally:
        file.close()
    yield from batches_of(_one_segment(options, path, names, after), options.columns, batch_rows)


def _story_of(table: Table, path: Path, name: str) -> Iterator[dict[str, Any]]:
    try:
        told = Happenings(path)
    except (NotACapture, OSError):
        return
    yield from _told(table, (h for part in (told.read, told.end) for h in part()), name, None)


def _one_segment(
    options: Options, path: Path, names: tuple[str, str], after: set[tuple[int, int, int]] | None
) -> Iterator[dict[str, Any]]:
    with Capture(path) as capture:
        file = capture.segments[0]
        if file.rebuilt and after is not None:
            file.hide(after)
        topics = Topics()
        for row in capture.rows():
            if after is not None and file.index.record(row.number).flags & CONTINUED:
                continue

            def read(number: int = row.number) -> Exchange:
                exchange = capture.exchange(number)
                exchange.topics = topics
                return exchange

            try:
                if row.api == "Metadata":
                    topics.learn(capture.exchange(row))
                if options.may_have(row):
                    yield from options.rows(row, (*names, row.number), read)
            except ValueError:
                continue
