"""The folder of tables that the pipeline writes, and in which plain readers find every row once.

    OUTPUT/TABLE/date=YYYY-MM-DD/CAPTURE-NUMBER.parquet      of a chunk: adjacent segments from this one on (`plan`)
    OUTPUT/TABLE/date=YYYY-MM-DD/CAPTURE.parquet             of a whole recording: `recordings`
    OUTPUT/TABLE/all.parquet                                 of everything: `context_tables`
    OUTPUT/.landed/                                          what files counted for the tables of their recordings

Parquet files (zstd) are named by what was read, so that reading it again replaces the same rows. A file is written under a hidden
name beside the tables and put in its place by one rename; the one of the table `segments` comes last: its rows mean that
all others of the chunk are there. So a reader never sees half a file or a row twice, whatever was killed, and the table `segments` is
the list of what is done. `date` is the day (UTC) on which the first exchange of the chunk, or of the recording, began.

In a store (`captures.reading.storage`) a file is written on this machine, and put in its place as a whole.

In the format `TableFormat.DELTA` a log of each table says which files are in it (`delta`); all else is the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from ....decoder import Topics
from ....errors import BarnabasError
from ...pcap.pcapng import NotACapture
from ...reading.capture import Capture
from ...reading.context import Broker, Context, contexts_of, merged, recording_of
from ...reading.storage import Listed, Place, list_files, open_filesystem, place
from ..bodies import shown_id
from ..columns import pyarrow, schema_of
from ..connections import CONNECTIONS
from ..event_tables import FINDINGS, HAPPENINGS
from ..rows import TABLES, Options
from ..segment_tables import SegmentTables
from ..segments import LAYOUT, SEGMENTS, Segment, fetch_local
from ..version_table import PARTIAL_VERSIONS, VERSIONS
from .check import FolderCheck, check
from .context_tables import ContextTables
from .delta import DeltaTables
from .fingerprints import Fingerprints
from .manifest import Done, Manifest, Written, date_of, is_one
from .parquet import HIDDEN, LANDED, LAYOUT_KEY, ParquetFile, put_bytes
from .plan import Chunk
from .recordings import PARTS, STATE, Made, Recording, RecordingTables, recordings_of

_EMPTY = "date=1970-01-01/nothing.parquet"
_DESCRIBED = {table.name: table for table in TABLES}
_NAMED = ("errors", "batches", "records")
"""Tables with topics."""
DEFAULT = tuple(name for name in _DESCRIBED if name not in ("records", "happenings"))
"""The tables that are made unless others are asked for."""
_OF_RECORDINGS = frozenset((CONNECTIONS.name, VERSIONS.name, FINDINGS.name, HAPPENINGS.name))
"""Tables whose rows come once the files of a recording are read."""
_ADDING = "adding"
"""In `LANDED`: tables to which files that were read before still have to be added."""


class FolderError(BarnabasError):
    """The folder cannot be used: one line for the user, with the remedy."""


class TableFormat(StrEnum):
    """How the files of a table are known."""

    PARQUET = "parquet"
    """They are those in its folder."""
    DELTA = "delta"
    """They are in its Delta log."""


def is_table(each: Listed) -> bool:
    """Whether a file below a table's folder is one of the pipeline's."""
    return is_one("/".join(str(each.path).rsplit("/", 2)[1:]))


class Folder:
    """The folder of tables `output`, with the tables `names` (`segments` is always one of them); if none are named, with those that it has,
    or `DEFAULT`. `table_format`: of a new one, or the one that it must have. Raises FolderError if it has another."""

    def __init__(self, output: str | Place, names: Iterable[str] = (), table_format: TableFormat | None = None) -> None:
        self.path = place(output)
        self.delta = self._delta(table_format)
        self._manifest = Manifest(self.path, self.delta)
        self.context = ContextTables(self.path)
        self.made = Made(self.path)
        self.fingerprints = Fingerprints(self.path)
        self.was_killed = False
        """Whether the run before this one did not end in order."""
        held = self.held()
        asked = {*(names or (held if SEGMENTS.name in held else DEFAULT)), SEGMENTS.name}
        unknown = asked - set(_DESCRIBED)
        if unknown:
            raise ValueError(f"there is no table {min(unknown)!r}; the tables are: {', '.join(_DESCRIBED)}")
        self.names = tuple(name for name in _DESCRIBED if name in asked)

    def _delta(self, table_format: TableFormat | None) -> DeltaTables | None:
        if not isinstance(self.path, Path):
            if table_format is TableFormat.DELTA:
                raise FolderError(f"{self.path} is in a store, but tables in the format delta need a folder: choose another --output")
            return None
        delta = DeltaTables(self.path)
        if delta.exists(SEGMENTS.name):
            there = TableFormat.DELTA
        else:
            there = TableFormat.PARQUET if (self.path / SEGMENTS.name / _EMPTY).exists() else table_format or TableFormat.PARQUET
        if table_format not in (None, there):
            raise FolderError(f"{self.path} contains tables in the format {there}: choose another --output, or --format {there}")
        return delta if there is TableFormat.DELTA else None

    # as a whole

    def prepare(self) -> None:
        """Make the folder with empty tables, and clear what a killed run left. Tables get the columns that an older version did not
        have. Raises FolderError when these do not go together, and OSError."""
        if isinstance(self.path, Path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (self.path / HIDDEN).exists():
            self.was_killed = True
            self._unhide()
            if self.delta is None:
                self._sweep()
            else:
                self._complete(self.delta)
        if isinstance(self.path, Path):
            (self.path / HIDDEN).mkdir(mode=0o700)
        else:
            (self.path / HIDDEN).write(b"a run is going on, or was killed\n")
        for name in self.names:
            if any(each.path.name.endswith(".parquet") for each in list_files(self.path / name, deep=False)):
                raise FolderError(
                    f"{self.path / name} contains other Parquet files, perhaps of an older version: choose another --output"
                )
        held = self.held()
        if not set(held) <= set(self.names) and self.done():
            raise FolderError(
                f"{self.path} also has the tables {', '.join(name for name in held if name not in self.names)}: give no --tables, "
                "or another --output"
            )
        adding = self.adding
        if adding:
            put_bytes(self.path, self.path / LANDED / _ADDING, " ".join(adding).encode())
        for name in sorted(self.names, key=lambda name: name == SEGMENTS.name):  # with it, all are there
            if name in held and self._check(name, LAYOUT):
                continue
            if self.delta is not None:
                (self.delta.add_columns if name in held else self.delta.create)(_DESCRIBED[name])
                continue
            writer = ParquetFile(self.path, _DESCRIBED[name], "nothing")
            writer.close()
            writer.put(self.path / name / _EMPTY)

    @property
    def adding(self) -> tuple[str, ...]:
        """The tables that are new in a folder that has others: all files have to be read again for them."""
        held, there = self.held(), self.path / LANDED / _ADDING
        begun = (there.read_bytes() if isinstance(there, Path) else there.read()).decode().split() if there.exists() else []
        return tuple(name for name in self.names if name in begun or (name not in held and SEGMENTS.name in held and self.done()))

    def finish(self) -> None:
        """A run has ended in order."""
        (self.path / LANDED / _ADDING).unlink(missing_ok=True)
        self._manifest.save()
        self.made.save()
        self._unhide()

    def _unhide(self) -> None:
        if isinstance(self.path, Path):
            shutil.rmtree(self.path / HIDDEN, ignore_errors=True)
        else:
            (self.path / HIDDEN).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """After a kill: remove the rows of files that are not on the list of what is done."""
        done = self.done()
        readable = [each for each in done.values() if not each.unreadable]
        days = {each.capture_id: each.date for each in sorted(readable, key=lambda each: each.date, reverse=True)}
        chunks = {each.chunk for each in done.values()}
        places = {f"date={each.date}/{name}" for key, each in done.items() for name in (key, each.chunk)}
        places |= {f"date={date}/{capture_id}" for capture_id, date in days.items()}
        for name in self.held():
            for path in self.paths(name):
                if f"{path.parent.name}/{path.stem}" not in places and not str(path).endswith(_EMPTY):
                    path.unlink(missing_ok=True)
                    self.made.read().pop(path.stem, None)
        for name in PARTS:
            for each in list_files(self.path / LANDED / name, deep=False):
                if each.path.stem not in chunks:
                    each.path.unlink(missing_ok=True)

    def _complete(self, delta: DeltaTables) -> None:
        """After a kill: what was written and is not in the logs."""
        delta.commit()
        if delta.exists(HAPPENINGS.name):  # they may have been lost behind the state of a recording's detectors
            shutil.rmtree(Path(str(self.path)) / LANDED / STATE, ignore_errors=True)

    def commit(self) -> None:
        """Show readers what `write` and `write_recording` have written until now, where they do not see it at once."""
        if self.delta is not None:
            self.delta.commit()

    def paths(self, name: str) -> list[Place]:
        """The Parquet files of a table."""
        if self.delta is not None:
            return [self.path / name / below for below, _, _ in self.delta.stamps(name)]
        return [each.path for each in list_files(self.path / name) if is_table(each)]

    def held(self) -> tuple[str, ...]:
        """The tables that are there."""
        if self.delta is not None:
            return tuple(filter(self.delta.exists, _DESCRIBED))
        return tuple(name for name in _DESCRIBED if (self.path / name / _EMPTY).exists())

    def check(self) -> None:
        """FolderError when this is no folder of tables, or when this version cannot read them. Tables of an older one may lack
        columns."""
        if not self.held():
            raise FolderError(
                f"{self.path}: it contains no tables; make them with: barnabas pipeline run CAPTURES -o {self.path}"
            )
        for name in self.held():
            self._check(name, oldest=1)

    def _check(self, name: str, oldest: int) -> bool:
        """Whether a table has all columns of this version. Raises FolderError if its columns do not mean what they do here, or
        have other types. `oldest`: the first layout that will do."""
        layout, found = self._schema(name) if self.delta is None else self.delta.schema(name)
        here = {column.name: column.type for column in schema_of(_DESCRIBED[name].chosen())}
        there = {column.name: column.type for column in found}
        known = layout.isdigit() and oldest <= int(layout) <= LAYOUT
        if not known or any(here[column] != there[column] for column in here.keys() & there.keys()):
            raise FolderError(
                f"{self.path / name} was written by another version of barnabas (layout {layout or '?'}, this one writes "
                f"{LAYOUT}): make the tables again in another --output"
            )
        return here.keys() <= there.keys()

    def _schema(self, name: str) -> tuple[str, Any]:
        from pyarrow import parquet

        store, path = open_filesystem(self.path / name / _EMPTY)
        found = parquet.read_schema(path, filesystem=store)
        return (found.metadata or {}).get(LAYOUT_KEY, b"").decode(), found

    def done(self) -> dict[str, Done]:
        """The files that were read, by `Segment.key`."""
        return self._manifest.read()

    def learn(self, written: Written) -> None:
        """Hear of what `write` returned, perhaps in another process."""
        self._manifest.learn(written)

    def remove(self, date: str, chunk: str, but: Collection[str] = ()) -> None:
        """Take a chunk's rows out of all tables `but` these; first out of the list of what is done."""
        names = [SEGMENTS.name, *(name for name in self.names if name != SEGMENTS.name), PARTIAL_VERSIONS.name]
        if self.delta is not None:
            if not but:
                self.delta.remove(chunk, chunk.rpartition("-")[0], self._chunk_tables())
            names = list(_PARTS)
        for name in names:
            if name not in but:
                self._place(name, date, chunk).unlink(missing_ok=True)

    def _chunk_tables(self) -> list[str]:
        """The tables whose rows come with those of `segments`."""
        return [name for name in self.names if name not in _OF_RECORDINGS]

    def verify(self) -> FolderCheck:
        """Compare the rows of the tables with what `segments` counts. Raises FolderError, OSError."""
        self.check()
        return check({name: self.paths(name) for name in self.held()})

    # one file

    def look(self, chunk: Chunk) -> None:
        """Read segments for what other files of their recording have to know. Raises OSError when it cannot be kept."""
        brokers: dict[str, Broker] = {}
        names: dict[bytes, str] = {}
        for segment in chunk.segments:
            with fetch_local(segment.path, segment.follows) as found:
                assert found is not None
                try:
                    with Capture(found[0]) as capture:
                        said = contexts_of(capture)[recording_of(capture, 0)]
                except (NotACapture, OSError):  # its row will say so
                    continue
            brokers = merged(brokers, said.brokers)
            names |= said.topics.names
        self.context.put(chunk.key, chunk.capture_id, Context(brokers, Topics(names)))

    def write(self, chunk: Chunk) -> Written:
        """Read a chunk and put its rows in their places. Raises OSError when the tables cannot be written, never for what is in
        a file."""
        context = self.context.context(chunk.capture_id)
        writers: dict[str, ParquetFile] = {}
        rows: list[dict[str, Any]] = []
        try:
            for segment in chunk.segments:
                with fetch_local(segment.path, segment.follows) as found:
                    assert found is not None
                    rows.append(self._read(segment, *found, context, chunk.key, writers))
            first = next((row["first_ns"] for row in rows if row["first_ns"] is not None), None)
            date = date_of(first, rows[0]["modified_ns"])
            last = writers[SEGMENTS.name] = ParquetFile(self.path, SEGMENTS, chunk.key)
            last.add(pyarrow().RecordBatch.from_pylist(rows, schema=last.schema))
            for writer in writers.values():
                writer.close()
            if self.delta is None:
                for place in chunk.before:
                    if place != (date, chunk.key):
                        self.remove(*place)
            landed = {name: writer for name, writer in writers.items() if self.delta is not None and name not in _PARTS}
            for name, writer in writers.items():
                if name not in landed:
                    writer.put(self._place(name, date, chunk.key))
            if chunk.before:
                self.remove(date, chunk.key, but=writers)
            if self.delta is not None:
                self.delta.land(chunk.key, chunk.capture_id, date, self._chunk_tables(), landed)
        finally:
            for writer in writers.values():
                writer.drop()
        return Written(date, chunk.key, rows)

    def _read(
        self,
        segment: Segment,
        path: Path,
        follows: Path | None,
        context: Context,
        chunk: str,
        writers: dict[str, ParquetFile],
    ) -> dict[str, Any]:
        """Hand the rows of a file to the writers; returns its row of `segments`."""
        unit = SegmentTables(path, self._of_file(), follows=follows, capture_id=segment.capture_id, context=context)
        row: dict[str, Any] = {}
        unnamed: set[str] = set()
        for name, batch in unit:
            if name == SEGMENTS.name:
                # As it was found: it may have grown meanwhile, and is then read again.
                (row,) = batch.to_pylist()
                # of a compressed capture the row counts what it unpacks to
                whole = row["good_bytes"] >= row["size_bytes"]
                row["good_bytes"] = segment.size if whole else min(row["good_bytes"], segment.size)
                row |= {
                    "capture_id": segment.capture_id, "sequence": segment.number, "size_bytes": segment.size,
                    "modified_ns": segment.modified_ns, "path": str(segment.path),
                }  # fmt: skip
                continue
            if name not in writers:
                writers[name] = ParquetFile(self.path, _PARTIAL.get(name) or _DESCRIBED[name], chunk)
            writers[name].add(batch)
            if name in _NAMED:
                unnamed |= unnamed_topics(batch)
        if segment.foreign:
            self.context.put(segment.key, segment.capture_id, unit.context)
        return row | {"unnamed": len(unnamed)}

    def _of_file(self) -> list[Options]:
        """The tables that are made of one file."""
        names = [name for name in self.names if name not in (VERSIONS.name, FINDINGS.name, HAPPENINGS.name)]
        chosen = [_DESCRIBED[name] for name in names] + [PARTIAL_VERSIONS] * (VERSIONS.name in self.names)
        return [Options(table, table.chosen()) for table in chosen]

    def _place(self, name: str, date: str, key: str) -> Place:
        part = _PARTS.get(name)
        if part is not None:
            return self.path / LANDED / part / f"{key}.parquet"
        return self.path / name / f"date={date}" / f"{key}.parquet"

    def unnamed(self, done: Done) -> set[str]:
        """The topic ids in a file's rows that had no name when it was read."""
        from pyarrow import parquet

        found: set[str] = set()
        for name in _NAMED if done.unnamed else ():
            if name not in self.names:
                continue
            if self.delta is None:
                places = [self._place(name, done.date, done.chunk)]
            else:
                places = list(self.delta.files_of(name, done.chunk))
            for each in places:
                store, path = open_filesystem(each)
                try:
                    rows = parquet.read_table(path, columns=["topic", "topic_id"], filters=[("capture_id", "=", done.capture_id)], filesystem=store)
                except FileNotFoundError:
                    continue
                found |= unnamed_topics(rows)
        return found

    def lacking(self, segments: Iterable[Segment], named: Collection[bytes]) -> set[str]:
        """Files that were read before their cluster was known, or one of the topic ids `named` had its name, by `Segment.key`."""
        done, known = self.done(), self.context.read()
        ids = {shown_id(topic_id) for topic_id in named}
        found: set[str] = set()
        for segment in segments:
            before = done.get(segment.key)
            if before is None or before.unreadable:
                continue
            unknown = ids and before.unnamed and ids & self.unnamed(before)
            if unknown or before.cluster_id != known.cluster_id(before.capture_id):
                found.add(segment.key)
        return found

    # recordings

    def recordings(self, segments: Mapping[str, Segment]) -> list[Recording]:
        """The recordings whose tables have to be made (again). `segments`: the files that are there, by their keys."""
        if not _OF_RECORDINGS.intersection(self.names):
            return []
        made = self.made.read()
        if _OF_RECORDINGS.intersection(self.adding):
            made = {capture_id: ["", day] for capture_id, (_, day) in made.items()}
        return recordings_of(self.done().values(), segments, made, self.context)

    def write_recording(self, recording: Recording) -> list[str]:
        """Make the tables of a recording; see `RecordingTables.write`."""
        return RecordingTables(self.path, self.names, self.delta).write(recording, anew=HAPPENINGS.name in self.adding)

    def forget_recordings(self) -> None:
        """Take away the tables of recordings all of whose files were removed."""
        known = {each.capture_id for each in self.done().values()}
        made = self.made.read()
        for capture_id in [each for each in made if each not in known]:
            RecordingTables(self.path, self.names, self.delta).forget(capture_id, made.pop(capture_id)[1])


_PARTS = {table.name: name for name, table in PARTS.items()}
"""What files count for the tables of their recordings: the folder in `LANDED`."""
_PARTIAL = {table.name: table for table in PARTS.values()}


def unnamed_topics(rows: Any) -> set[str]:
    """The topic ids in rows (an Arrow table or batch) that stand alone, in Kafka's base64 form."""
    from pyarrow import compute

    alone = compute.and_(compute.is_null(rows["topic"]), compute.is_valid(rows["topic_id"]))
    return set(compute.unique(rows["topic_id"].filter(alone)).to_pylist())
