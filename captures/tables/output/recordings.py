"""The tables of a whole recording: `connections`, `versions`, `findings` and `happenings`, made once its files have been read.

A connection lasts over many segments, and what was wrong with it shows only in all of them. So a task reads one recording:

    connections, versions      what each file counted for itself (OUTPUT/.landed) -> one row per connection, and per client
    findings, happenings       packets of the files that are new, in order, with the state that the earlier ones left (`inspection`)

and writes each table as one file, OUTPUT/TABLE/date=DAY/CAPTURE.parquet, by the day of the recording's first exchange.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from ....diagnostics import contained
from ...pcap.pcapng import NotACapture
from ...reading.context import Origin
from ...reading.storage import Place, Remote, open_filesystem, place, text
from ..columns import Batches, Table
from ..connections import CONNECTIONS, connections_of_parts
from ..event_tables import FINDINGS, HAPPENINGS, EventRows, findings_of
from ..segments import Segment, fetch_local
from ..version_table import PARTIAL_VERSIONS, VERSIONS, versions_of_parts
from .context_tables import ContextTables
from .delta import DeltaTables
from .inspection import Inspection, StateError
from .manifest import Done
from .parquet import LANDED, ParquetFile, put_bytes

TABLES = (CONNECTIONS, VERSIONS, FINDINGS)
"""The tables with one file per recording."""
PARTS = {CONNECTIONS.name: CONNECTIONS, VERSIONS.name: PARTIAL_VERSIONS}
"""Tables, and what each file of a capture counts for them."""
STATE = "state"
_MADE = ".recordings"


class RecordingFile(NamedTuple):
    """A file of a recording: as it is in the manifest, and where it can be read (a path or URI); "" where it is gone."""

    key: str
    where: str
    like: str
    date: str
    chunk: str

    @classmethod
    def of(cls, done: Done, segment: Segment | None) -> RecordingFile:
        where = "" if segment is None else text(segment.path)
        return cls(done.key, where, f"{done.size} {done.modified_ns}", done.date, done.chunk)


class Recording(NamedTuple):
    """A recording or foreign capture whose tables are to be made: its files in order, and what they are made of, as a digest."""

    capture_id: str
    files: tuple[RecordingFile, ...]
    digest: str
    foreign: bool = False
    before: str = ""
    """The day under which its tables are; "" if there are none."""

    @property
    def date(self) -> str:
        return min(file.date for file in self.files)


class Made:
    """Which recordings' tables are made, of what, and under which day they are."""

    def __init__(self, folder: Place) -> None:
        self._there = folder / _MADE
        self._made: dict[str, list[str]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Made, (self._there.parent,)  # a task needs none of it

    def read(self) -> dict[str, list[str]]:
        """Digest and day by capture id. A file that is not there or damaged only means that tables are made again."""
        if self._made is None:
            try:
                data = self._there.read_bytes() if isinstance(self._there, Path) else self._there.read()
                self._made = dict(json.loads(data))
            except (OSError, ValueError):
                self._made = {}
        return self._made

    def add(self, recording: Recording) -> None:
        self.read()[recording.capture_id] = [recording.digest, recording.date]

    def save(self) -> None:
        """Write it. Raises OSError."""
        put_bytes(self._there.parent, self._there, json.dumps(self.read()).encode())


def recordings_of(
    done: Iterable[Done], segments: Mapping[str, Segment], made: Mapping[str, Sequence[str]], context: ContextTables
) -> list[Recording]:
    """The recordings of which files are new or have changed, or of whose brokers more is known now. `segments`: the files that are
    there, by `Segment.key`."""
    by_capture: dict[str, list[Done]] = {}
    for each in done:
        if not each.unreadable:
            by_capture.setdefault(each.capture_id, []).append(each)
    brokers = context.read().brokers
    found = []
    for capture_id, files in sorted(by_capture.items()):
        files.sort(key=lambda each: each.sequence)
        inside = tuple(RecordingFile.of(each, segments.get(each.key)) for each in files)
        foreign = any(each.key in segments and segments[each.key].foreign for each in files)
        digest = blake2b(digest_size=16)
        digest.update(repr([(file.key, file.like, file.date, file.chunk, each.continues) for file, each in zip(inside, files, strict=True)]).encode())
        digest.update(repr(sorted(brokers.get(capture_id, {}).items())).encode())
        before = made.get(capture_id, ("", ""))
        if digest.hexdigest() != before[0]:
            found.append(Recording(capture_id, inside, digest.hexdigest(), foreign, before[1]))
    return found


class RecordingTables:
    """Makes the tables `names` of recordings in the folder `output`."""

    def __init__(self, output: Place, names: Iterable[str], delta: DeltaTables | None = None) -> None:
        self._output, self._names, self._delta = output, set(names), delta
        self._context = ContextTables(output)

    def write(self, recording: Recording, anew: bool = False) -> list[str]:
        """Make the tables of a recording and put them in their places. `anew`: detectors begin with the first file. Returns a line per file that could not be read for
        `findings`. Raises OSError when the tables cannot be written, never for what is in a file."""
        origin = Origin(recording.capture_id, "", self._context.context(recording.capture_id))
        notes: list[str] = []
        made: dict[Table, Iterable[Mapping[str, Any]]] = {}
        if CONNECTIONS.name in self._names:
            made[CONNECTIONS] = connections_of_parts(self._parts(recording, CONNECTIONS), origin)
        if VERSIONS.name in self._names:
            made[VERSIONS] = versions_of_parts(partial(self._parts, recording, VERSIONS), origin)
        state = None
        if {FINDINGS.name, HAPPENINGS.name} & self._names:
            inspection = self._inspected(recording, origin, notes, anew)
            state = None if recording.foreign else inspection.dump()
            if FINDINGS.name in self._names:
                made[FINDINGS] = findings_of(inspection.inspector, origin)
        files = {table: self._parquet(table, recording.capture_id, rows) for table, rows in made.items()}
        try:
            if self._delta is not None:
                landed = {table.name: file for table, file in files.items()}
                self._delta.land(recording.capture_id, recording.capture_id, recording.date, landed, landed)
                files = {}
            elif recording.before and recording.before != recording.date:
                self.remove(recording.capture_id, recording.before)
            for table, file in files.items():
                file.put(self._output / table.name / f"date={recording.date}" / f"{recording.capture_id}.parquet")
        finally:
            for file in files.values():
                file.drop()
        if state is not None:  # behind what was made of it: a run that is killed in between makes the same again
            put_bytes(self._output, self._output / LANDED / STATE / recording.capture_id, state)
        return notes

    def remove(self, capture_id: str, date: str) -> None:
        """Take the tables of a recording away."""
        if self._delta is not None:
            self._delta.remove(capture_id, capture_id, [table.name for table in TABLES if table.name in self._names])
            return
        for table in TABLES:
            (self._output / table.name / f"date={date}" / f"{capture_id}.parquet").unlink(missing_ok=True)

    def forget(self, capture_id: str, date: str) -> None:
        """Take away all that is there of a recording whose files are gone."""
        self.remove(capture_id, date)
        (self._output / LANDED / STATE / capture_id).unlink(missing_ok=True)

    def _parts(self, recording: Recording, table: Table) -> Iterator[dict[str, Any]]:
        """What the files counted, in their order. A chunk without connections has none; an older version may have counted less."""
        from pyarrow import parquet

        absent = dict.fromkeys(column.name for column in PARTS[table.name].columns)
        for chunk in dict.fromkeys(file.chunk for file in recording.files):
            store, path = open_filesystem(self._output / LANDED / table.name / f"{chunk}.parquet")
            try:
                opened = store.open_input_file(path)
            except FileNotFoundError:
                continue
            with opened:
                for row in parquet.ParquetFile(opened).read().to_pylist():
                    yield absent | row

    def _parquet(self, table: Table, key: str, rows: Iterable[Mapping[str, Any]]) -> ParquetFile:
        file = ParquetFile(self._output, table, key)
        gathered = Batches(table.chosen())
        for row in rows:
            if gathered.add(row):
                file.add(gathered.take())
        file.add(gathered.take())
        file.close()
        return file

    # findings and happenings

    def _inspected(self, recording: Recording, origin: Origin, notes: list[str], anew: bool) -> Inspection:
        """The detectors after all files; the happenings of files that they had not seen are written on the way."""
        inspection = Inspection() if anew else self._state(recording)
        happenings = EventRows(origin) if HAPPENINGS.name in self._names else None
        for file in recording.files[len(inspection.seen) :]:
            inspection.seen[file.key] = file.like
            if not file.where:
                notes.append(f"{file.key}: it was removed before its findings were looked for")
                continue
            where = place(file.where)
            try:
                with fetch_local(where, None) as found:
                    assert found is not None
                    events = inspection.read(found[0])
                    if happenings is None:
                        for _ in events:
                            pass
                    else:
                        self._happenings(file, map(happenings.row, events))
            except (NotACapture, OSError) as error:
                if isinstance(where, Remote) and isinstance(error, OSError):
                    raise  # the store's fault, not the file's
                notes.append(f"{file.where}: {error}")
            except Exception as error:  # a fault of the decoder must not end a run over thousands of recordings
                contained("looking for findings in a recording", error, reported=True)
                notes.append(f"{file.where}: findings are not complete: {type(error).__name__}: {error}")
        return inspection

    def _state(self, recording: Recording) -> Inspection:
        """The detectors as they were left, if the files that they saw are still the first ones of the recording."""
        there = self._output / LANDED / STATE / recording.capture_id
        try:
            inspection = Inspection.load(there.read_bytes() if isinstance(there, Path) else there.read())
        except (OSError, StateError):
            return Inspection()
        first = {file.key: file.like for file in recording.files[: len(inspection.seen)]}
        return inspection if inspection.seen == first else Inspection()

    def _happenings(self, file: RecordingFile, rows: Iterable[Mapping[str, Any]]) -> None:
        made = self._parquet(HAPPENINGS, file.key, rows)
        try:
            if self._delta is None:
                made.put(self._output / HAPPENINGS.name / f"date={file.date}" / f"{file.key}.parquet")
                return
            name, capture_id = HAPPENINGS.name, file.key.rpartition("-")[0]
            self._delta.land(file.key, capture_id, file.date, [name], {name: made})
        finally:
            made.drop()
