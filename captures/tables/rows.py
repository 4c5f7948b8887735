"""The rows of a table of a whole capture, one by one. Those of one file as Arrow batches: `segment_tables`.

Rows come segment by segment, within a segment in the order of the requests; those of `connections`, `versions`, `findings` and
`happenings` in the order that their descriptions give. At most one segment's row numbers and one exchange are held at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ...decoder import Exchange
from ...decoder.connection.api_versions import PeerInfo
from ...decoder.filter import Filter, compile
from ...decoder.present import RECORD_APIS
from ...decoder.values import SchemaSource
from ..reading.capture import Capture, Row
from ..reading.context import Broker, Context, Origin, contexts_of, merged, recording_of
from ..reading.events import EventReader
from ..reading.selection import IndexColumns, Selection
from .body_tables import (
    BATCHES,
    ERRORS,
    GROUP_APIS,
    GROUPS,
    RECORDS,
    THROTTLES,
    batch_rows,
    error_rows,
    group_rows,
    has_throttle_time,
    record_rows,
    throttle_rows,
)
from .columns import KEY, Column, Table, time_of
from .connections import CONNECTIONS, connection_rows
from .event_tables import FINDINGS, HAPPENINGS, event_rows, finding_rows
from .index_tables import BODIES, EXCHANGES, FRAMES, exchange_row, frame_rows
from .segments import SEGMENTS, exchange_counts, file_row
from .version_table import VERSIONS, VersionRows, learn_versions

TABLES = (
    EXCHANGES,
    FRAMES,
    ERRORS,
    BATCHES,
    RECORDS,
    GROUPS,
    THROTTLES,
    CONNECTIONS,
    VERSIONS,
    FINDINGS,
    SEGMENTS,
    HAPPENINGS,
)
OF_INDEX = {EXCHANGES.name, FRAMES.name}
_OF_BODIES: dict[str, Callable[[Exchange], Iterable[dict[str, Any]]]] = {
    ERRORS.name: error_rows,
    BATCHES.name: batch_rows,
    GROUPS.name: group_rows,
    THROTTLES.name: throttle_rows,
}
OF_BODIES = (*_OF_BODIES, RECORDS.name)
_OF_EXCHANGES = {*OF_INDEX, *OF_BODIES}
_FROM_EVENTS = {
    CONNECTIONS.name: connection_rows,
    FINDINGS.name: finding_rows,
}
EVERYTHING = compile("corr > 0 or corr <= 0")
"""The filter that is true of every exchange."""


def check_filter(table: str, wanted: Filter | str | None) -> None:
    """Raise ValueError for a filter on a table that takes none."""
    if wanted and table == HAPPENINGS.name:
        raise ValueError("the table happenings lists requests before their responses are known: it takes no filter")


class Options:
    """The options of a table: its columns, and payload only with `values`, read by `schemas` where one is known.
    Raises ValueError for a column of payload without `values`."""

    def __init__(
        self, table: Table, columns: Sequence[Column], values: bool = False, schemas: SchemaSource | None = None
    ) -> None:
        hidden = [column.name for column in columns if column.payload]
        if hidden and not values:
            raise ValueError(
                f"column {hidden[0]} contains contents of records, which are shown only when values are requested"
            )
        self.table, self.columns, self.values, self.schemas = table, columns, values, schemas
        self.names = frozenset(column.name for column in columns)
        self._decoded = bool(self.names & set(BODIES))

    def may_have(self, row: Row) -> bool:
        """Whether an exchange may have rows, by what the index knows."""
        name = self.table.name
        if name == ERRORS.name:
            return bool(row.error)
        if name == GROUPS.name:
            return row.api_key in GROUP_APIS
        if name == THROTTLES.name:
            return row.response_size is not None and has_throttle_time(row.api_key, row.api_version)
        return name in OF_INDEX or row.api in RECORD_APIS

    @property
    def decoded(self) -> bool:
        """Whether exchanges are read and decoded for it."""
        return self._decoded or self.table.name not in OF_INDEX

    def rows(self, row: Row, origin: Origin, number: int, read: Callable[[], Exchange]) -> Iterator[dict[str, Any]]:
        """The rows of one exchange. `number`: its place in the file's index; `read` reads it back."""
        found = self._rows(row, origin, number, read)
        return (each | {"time": time_of(each["time_ns"])} for each in found) if "time" in self.names else found

    def _rows(self, row: Row, origin: Origin, number: int, read: Callable[[], Exchange]) -> Iterator[dict[str, Any]]:
        broker = origin.context.broker(row.broker)
        if self.table.name == EXCHANGES.name:
            found = exchange_row(row, origin.capture_id, origin.segment, number, broker)
            if self._decoded:
                shown = read().to_dict(values=self.values, schemas=self.schemas)
                found |= {name: shown.get(name) for name in BODIES}
            yield found
            return
        if self.table.name == FRAMES.name:
            yield from frame_rows(row, origin.capture_id, origin.segment, number, broker)
            return
        exchange = read()
        key = dict(zip(_KEY, (origin.capture_id, origin.segment, number, *_of(row, broker)), strict=True))
        if self.table.name == RECORDS.name:
            inner: Iterable[dict[str, Any]] = record_rows(exchange, self.names, self.values, self.schemas)
        else:
            inner = _OF_BODIES[self.table.name](exchange)
        for each in inner:
            yield {**key, **each}


_KEY = [column.name for column in KEY if column.name != "time"]


def _of(row: Row, broker: Broker) -> tuple[Any, ...]:
    return (
        row.time_ns, row.connection, row.client, row.broker, broker.broker_id, broker.cluster_id, row.api, row.api_version,
        row.correlation_id, row.client_id,
    )  # fmt: skip


class Rows:
    """The rows of a table of a capture, as dicts that have at least the chosen columns.

    `wanted` selects exchanges; rows are those of them (see the tables for the ones that are not about one exchange).
    `done` and `total` are bytes, for showing how far it is. `notes` has what was left out. Raises ValueError for what
    cannot be asked of this table.
    """

    def __init__(self, capture: Capture, options: Options, wanted: Filter | None = None) -> None:
        check_filter(options.table.name, wanted)
        self.done = 0
        self.total = sum(segment.size for segment in capture.segments)
        self.notes: list[str] = []
        self._capture, self._options, self._wanted = capture, options, wanted
        self._contexts = contexts_of(capture)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._options.table.name == SEGMENTS.name:
            return self._of_files()
        if self._options.table.name == VERSIONS.name:
            return self._versions()
        return self._of_exchanges() if self._options.table.name in _OF_EXCHANGES else self._from_events()

    def _of_exchanges(self) -> Iterator[dict[str, Any]]:
        capture, options, contexts = self._capture, self._options, self._contexts
        selection = Selection(capture, self._wanted or EVERYTHING)
        selection.topics = next(iter(contexts.values())).topics
        rows = capture.rows()
        unread = 0
        for segment, file in enumerate(capture.segments):
            first, behind = capture.starts[segment : segment + 2]
            capture_id, name = file.own.recording if file.own else file.path.name, file.path.name.removesuffix(".part")
            origin = Origin(capture_id, name, contexts[recording_of(capture, segment)])
            before = self.done
            times = array("q", (t for (t,) in IndexColumns(file.index).tuples(("time_ns",), 0, behind - first)))
            # The sort is stable: equal times keep the order of the index.
            for number in sorted(selection.rows(start=first, stop=behind), key=lambda n: times[n - first]):
                row = rows[number]
                if not options.may_have(row):
                    continue
                self.done = before + int(file.size * (number - first) / max(behind - first, 1))
                try:
                    yield from options.rows(row, origin, number - first, partial(selection.exchange, number))
                except ValueError:  # the bytes do not match the index
                    unread += 1
            self.done = before + file.size
        if unread:
            self.notes.append(f"{unread} exchange{'s' * (unread != 1)} cannot be read back: the file is damaged, or has changed")

    def _of_files(self) -> Iterator[dict[str, Any]]:
        capture = self._capture
        selection = None if self._wanted is None else Selection(capture, self._wanted)
        for segment, file in enumerate(capture.segments):
            first, behind = capture.starts[segment : segment + 2]
            numbers = range(first, behind) if selection is None else sorted(selection.rows(start=first, stop=behind))
            if selection is not None and not numbers:
                continue
            capture_id, name = file.own.recording if file.own else file.path.name, file.path.name.removesuffix(".part")
            origin = Origin(capture_id, name, self._contexts[recording_of(capture, segment)])
            yield file_row(file, origin, exchange_counts(file, [number - first for number in numbers], 0))
            self.done += file.size

    def _versions(self) -> Iterator[dict[str, Any]]:
        capture = self._capture
        selection = Selection(capture, self._wanted or EVERYTHING)
        recordings = [recording_of(capture, segment) for segment in range(len(capture.segments))]
        peer_infos: dict[str, dict[int, PeerInfo]] = {name: {} for name in recordings}
        for segment, name in enumerate(recordings):
            learn_versions(capture, segment, peer_infos[name])
        found = VersionRows(self._origin())
        for segment, (file, name) in enumerate(zip(capture.segments, recordings, strict=True)):
            first, behind = capture.starts[segment : segment + 2]
            numbers = (number - first for number in selection.rows(start=first, stop=behind))
            found.count(file.index, numbers, peer_infos[name])
            self.done += file.size
        return found.rest()

    def _origin(self) -> Origin:
        recordings = {segment.own.recording if segment.own else None for segment in self._capture.segments}
        name = recordings.pop() if len(recordings) == 1 else None
        brokers: dict[str, Broker] = {}
        for context in self._contexts.values():
            brokers = merged(brokers, context.brokers)
        return Origin(name or self._capture.path.name, "", Context(brokers))

    def _from_events(self) -> Iterator[dict[str, Any]]:
        reader = EventReader(self._capture.path)
        yield from _rows_of(self._options.table, self._counted(reader), self._origin(), self._test())

    def _counted(self, reader: EventReader) -> Iterator[Any]:
        for part in (reader.read, reader.end):
            for event in part():
                self.done = reader.bytes_read
                yield event

    def _test(self) -> Callable[[Exchange], bool] | None:
        """The filter, with the end of the recording as the current time."""
        return None if self._wanted is None else Selection(self._capture, self._wanted).filter


def _rows_of(
    table: Table, events: Iterator[Any], origin: Origin, wanted: Callable[[Exchange], bool] | None
) -> Iterator[Any]:
    if table.name == HAPPENINGS.name:
        return event_rows(events, origin)
    return _FROM_EVENTS[table.name](events, origin, wanted)
