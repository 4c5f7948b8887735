"""The folder of tables that the pipeline writes, and in which plain readers find every file's rows once.

    OUTPUT/TABLE/date=YYYY-MM-DD/CAPTURE-NUMBER.parquet

One Parquet file (zstd) per table and file of a capture, named by what was read, so that reading it again replaces the same
rows. A file is written under a hidden name beside the tables and put in its place by one rename; the one of the table
`segments` comes last: its row means that all others are there. So a reader never sees half a file or a row twice, whatever was killed,
and the table `segments` is the list of what is done. `date` is the day (UTC) on which the file's first exchange began.

In a store (`captures.reading.storage`) a file is written on this machine, and put in its place as a whole.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...errors import BarnabasError
from ..reading.storage import Listed, Place, Remote, list_files, open_filesystem, place, stamp, stamps
from .columns import pyarrow, schema_of
from .rows import TABLES, Options
from .segment_tables import SegmentTables
from .segments import LAYOUT, SEGMENTS, Segment, fetch_local

HIDDEN = ".unfinished"
_EMPTY = "date=1970-01-01/nothing.parquet"
_LAYOUT, _NAME = b"barnabas.layout", b"barnabas.table"
_DESCRIBED = {table.name: table for table in TABLES}
DEFAULT = tuple(name for name in _DESCRIBED if name not in ("records", "happenings"))
"""The tables that are made unless others are asked for."""
MANIFEST = ".manifest"
_COLUMNS = ("capture_id", "sequence", "path", "size_bytes", "modified_ns", "continues", "first_ns", "status")
_Stamp = tuple[str, int, int]


class FolderError(BarnabasError):
    """The folder cannot be used: one line for the user, with the remedy."""


class Done(NamedTuple):
    """A file that was read: as it was then, and where its rows are."""

    key: str
    path: str
    size: int
    modified_ns: int
    continues: int
    date: str
    unreadable: bool


def date_of(first_ns: int | None, modified_ns: int) -> str:
    """The day, in UTC, of the first exchange; without one, of the file."""
    return datetime.fromtimestamp((modified_ns if first_ns is None else first_ns) // 10**9, UTC).strftime("%Y-%m-%d")


def is_table(each: Listed) -> bool:
    """Whether a file below a table's folder is one of the pipeline's."""
    return is_one("/".join(str(each.path).rsplit("/", 2)[1:]))


def is_one(below: str) -> bool:
    """Whether a path below the table's folder is one of the pipeline's."""
    return below.startswith("date=") and below.endswith(".parquet") and below.count("/") == 1


class FolderCheck(NamedTuple):
    """What a check of all tables found: files of captures, those of them that are damaged, exchanges and frames as the table
    `segments` counts them, and what does not agree, a line each."""

    files: int
    damaged: int
    exchanges: int
    frames: int
    problems: list[str]


class Manifest:
    """The list of files already read into a folder of tables. Once read, only new entries are opened.

    The table `segments` is authoritative; `.manifest` beside it only spares the next run opening a Parquet file per file of a
    capture. An entry counts while the Parquet file it was made of has the same size and time.
    """

    def __init__(self, folder: Place) -> None:
        self._folder = folder
        self._held: dict[_Stamp, Done] | None = None
        self._saved = True
        self._announced: dict[str, Done] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Manifest, (self._folder,)  # a task needs none of it

    def learn(self, row: dict[str, Any]) -> None:
        """A row of `segments` that was written just now, so that it need not be read."""
        done = _done(row)
        self._announced[f"date={done.date}/{done.key}.parquet"] = done

    def read(self) -> dict[str, Done]:
        """The files that were read, by `Segment.key`."""
        if self._held is None:
            self._held = self._kept()
        there = {each for each in stamps(self._folder / SEGMENTS.name, (".parquet",)) if is_one(each[0])}
        new = there.difference(self._held)
        self._saved = self._saved and not new and len(there) == len(self._held)
        held = {each: done for each, done in self._held.items() if each in there}
        held |= {each: self._announced[each[0]] for each in new if each[0] in self._announced}
        unread = [each for each in new if each not in held]
        with ThreadPoolExecutor(8) as pool:  # a store answers slowly
            held |= zip(unread, pool.map(self._read, unread), strict=True)
        self._held = held
        return {done.key: done for done in held.values() if done.key}

    def save(self) -> None:
        """Write it, unless the file has it already. Raises OSError."""
        if self._held is None:
            self.read()
        assert self._held is not None
        held = {each: done for each, done in self._held.items() if each[0] not in self._announced}
        for name, done in self._announced.items():  # these alone are looked at, and not all that are there
            try:
                held[name, *stamp(self._folder / SEGMENTS.name / name)] = done
            except FileNotFoundError:
                continue
        if self._saved and held == self._held:
            return
        self._held = held
        pa = pyarrow()
        from pyarrow import parquet

        columns = {f"stamp_{n}": [stamp[n] for stamp in self._held] for n in range(3)}
        columns |= {name: [done[n] for done in self._held.values()] for n, name in enumerate(Done._fields)}
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.table(columns), sink, compression="zstd")
        there = self._folder / MANIFEST
        if isinstance(there, Path):
            beside = there.with_name(f"{MANIFEST}.{os.getpid()}")
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(sink.getvalue())
            os.replace(beside, there)
        else:
            there.write(sink.getvalue())
        self._saved = True

    def _read(self, each: _Stamp) -> Done:
        """The row of a Parquet file of the table `segments`; an empty one has no key."""
        from pyarrow import parquet

        store, path = open_filesystem(self._folder / SEGMENTS.name / each[0])
        with store.open_input_file(path) as file:
            rows = parquet.ParquetFile(file).read(list(_COLUMNS)).to_pylist()
        return _done(rows[0]) if rows else Done("", "", 0, 0, 0, "", False)

    def _kept(self) -> dict[_Stamp, Done]:
        from pyarrow import parquet

        try:
            there = self._folder / MANIFEST
            if not there.exists():  # asked first: pyarrow ends the process where Azure lets nobody read
                return {}
            data = there.read_bytes() if isinstance(there, Path) else there.read()
            table = parquet.read_table(pyarrow().BufferReader(data))
            lists = [_list(table[name]) for name in (*(f"stamp_{n}" for n in range(3)), *Done._fields)]
        except (OSError, KeyError, ValueError):  # none, or another version's: the table has it all
            return {}
        return dict(zip(zip(*lists[:3], strict=True), map(Done._make, zip(*lists[3:], strict=True)), strict=True))


def _list(column: Any) -> list[Any]:
    text = pyarrow().types.is_string(column.type) or pyarrow().types.is_boolean(column.type)
    return list(column.to_pylist() if text else column.to_numpy().tolist())


def _done(row: dict[str, Any]) -> Done:
    return Done(
        f"{row['capture_id']}-{row['sequence']:06d}", row["path"], row["size_bytes"], row["modified_ns"], row["continues"],
        date_of(row["first_ns"], row["modified_ns"]), row["status"] == "unreadable",
    )  # fmt: skip


class Folder:
    """The folder of tables `output`, with the tables `names` (`segments` is always one of them)."""

    def __init__(self, output: str | Place, names: Iterable[str] = DEFAULT) -> None:
        self.path = place(output)
        self._manifest = Manifest(self.path)
        asked = set(names) | {SEGMENTS.name}
        unknown = asked - set(_DESCRIBED)
        if unknown:
            raise ValueError(f"there is no table {min(unknown)!r}; the tables are: {', '.join(_DESCRIBED)}")
        self.names = tuple(name for name in _DESCRIBED if name in asked)

    # as a whole

    def prepare(self) -> None:
        """Make the folder with empty tables, and clear what a killed run left. Raises FolderError when its tables have
        other columns, and OSError."""
        if isinstance(self.path, Path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (self.path / HIDDEN).exists():
            self._sweep()
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
        if held and set(held) != set(self.names) and self.done():
            raise FolderError(
                f"{self.path} has the tables {', '.join(held)}, but others were requested: give --tables "
                f"{','.join(held)}, or another --output"
            )
        for name in self.names:
            empty = self.path / name / _EMPTY
            if name in held:
                self._check(name, empty)
                continue
            writer = _Writer(self.path, name, "nothing")
            writer.close()
            writer.put(empty)

    def finish(self) -> None:
        """A run has ended in order."""
        self._manifest.save()
        self._unhide()

    def _unhide(self) -> None:
        if isinstance(self.path, Path):
            shutil.rmtree(self.path / HIDDEN, ignore_errors=True)
        else:
            (self.path / HIDDEN).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """After a kill: remove hidden files, and the rows of files that are not on the list of what is done."""
        self._unhide()
        known = {*self.done(), Path(_EMPTY).stem}
        for name in self.held():
            for path in self.paths(name):
                if path.stem not in known:
                    path.unlink(missing_ok=True)

    def paths(self, name: str) -> list[Place]:
        """The Parquet files of a table."""
        return [each.path for each in list_files(self.path / name) if is_table(each)]

    def held(self) -> tuple[str, ...]:
        """The tables that are there."""
        return tuple(name for name in _DESCRIBED if (self.path / name / _EMPTY).exists())

    def check(self) -> None:
        """FolderError when this is no folder of tables, or when they are of another version."""
        if not self.held():
            raise FolderError(
                f"{self.path}: it contains no tables; make them with: barnabas pipeline run CAPTURES -o {self.path}"
            )
        for name in self.held():
            self._check(name, self.path / name / _EMPTY)

    def _check(self, name: str, empty: Place) -> None:
        from pyarrow import parquet

        store, path = open_filesystem(empty)
        found = parquet.read_schema(path, filesystem=store)
        layout = (found.metadata or {}).get(_LAYOUT, b"?").decode()
        if layout != str(LAYOUT) or not found.remove_metadata().equals(schema_of(_DESCRIBED[name].chosen())):
            raise FolderError(
                f"{self.path / name} was written by another version of barnabas (layout {layout}, this one writes "
                f"{LAYOUT}): make the tables again in another --output"
            )

    def done(self) -> dict[str, Done]:
        """The files that were read, by `Segment.key`."""
        return self._manifest.read()

    def learn(self, row: dict[str, Any]) -> None:
        """Hear of the row that `write` returned, perhaps in another process."""
        self._manifest.learn(row)

    def remove(self, old: Done) -> None:
        """Take a file's rows out of all tables; first out of the list of what is done."""
        for name in (SEGMENTS.name, *(name for name in self.names if name != SEGMENTS.name)):
            (self.path / name / f"date={old.date}" / f"{old.key}.parquet").unlink(missing_ok=True)

    def verify(self) -> FolderCheck:
        """Compare the rows of the tables with what `segments` counts; of the Parquet files only the footers are read, but of
        `segments`. Raises FolderError, OSError."""
        self.check()
        problems: list[str] = []
        rows: dict[str, dict[str, Any]] = {}
        with ThreadPoolExecutor(8) as pool:  # a store answers slowly
            for path, found in pool.map(partial(_of_parquet, _rows), self.paths(SEGMENTS.name)):
                problems += [f"{path}: {found}"] if isinstance(found, str) else []
                rows |= {_done(row).key: row for row in found if isinstance(row, dict)}
            for name in self.held():
                if name != SEGMENTS.name:
                    counts = dict(pool.map(partial(_of_parquet, _row_count), self.paths(name)))
                    problems += _disagreements(name, counts, rows)
        return FolderCheck(
            len(rows), sum(row["status"] != "ok" for row in rows.values()), sum(row["exchanges"] for row in rows.values()),
            sum(row["frames"] for row in rows.values()), problems,
        )  # fmt: skip

    # one file

    def write(self, segment: Segment, before: Done | None = None) -> dict[str, Any]:
        """Read a file and put its rows in their places; returns its row of `segments`. `before`: what it was when it was
        read the last time. Raises OSError when the tables cannot be written, never for what is in the file."""
        with fetch_local(segment.path, segment.follows) as found:
            assert found is not None
            return self._write(segment, *found, before)

    def _write(self, segment: Segment, path: Path, follows: Path | None, before: Done | None) -> dict[str, Any]:
        options = [Options(_DESCRIBED[name], _DESCRIBED[name].chosen()) for name in self.names]
        name = segment.capture_id if segment.foreign else ""
        unit = SegmentTables(path, options, follows=follows, capture_id=name)
        writers: dict[str, _Writer] = {}
        row: dict[str, Any] = {}
        try:
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
                    writers[name] = _Writer(self.path, name, segment.key)
                writers[name].add(batch)
            date = date_of(row["first_ns"], row["modified_ns"])
            last = writers[SEGMENTS.name] = _Writer(self.path, SEGMENTS.name, segment.key)
            last.add(pyarrow().RecordBatch.from_pylist([row], schema=last.schema))
            for writer in writers.values():
                writer.close()
            if before is not None:
                self.remove(before)
            for name, writer in writers.items():
                writer.put(self.path / name / f"date={date}" / f"{segment.key}.parquet")
        finally:
            for writer in writers.values():
                writer.drop()
        return row


_COUNTED = {"exchanges": "exchanges", "frames": "frames"}
"""Tables, and the column of `segments` that counts their rows."""


_Read = TypeVar("_Read")


def _of_parquet(read: Callable[[Any], _Read], path: Place) -> tuple[Place, _Read | str]:
    """What `read` makes of a `pyarrow.parquet.ParquetFile`, or why the file cannot be read."""
    from pyarrow import parquet

    store, where = open_filesystem(path)
    try:
        with store.open_input_file(where) as file:
            return path, read(parquet.ParquetFile(file))
    except (OSError, ValueError) as error:  # pyarrow's own are among these
        return path, f"cannot be read: {error}"


def _rows(file: Any) -> list[dict[str, Any]]:
    return list(file.read().to_pylist())


def _row_count(file: Any) -> int:
    return int(file.metadata.num_rows)


def _disagreements(name: str, counts: dict[Place, int | str], rows: dict[str, dict[str, Any]]) -> list[str]:
    """What of a table's files does not agree with the rows of `segments`, by `Segment.key`."""
    problems = []
    by_key: dict[str, int | str] = {}
    for path, count in counts.items():
        if isinstance(count, str):
            problems.append(f"{path}: {count}")
        elif count and path.stem not in rows:
            problems.append(f"{path}: {count} rows of a file that the table segments does not list")
        by_key[path.stem] = count
    for key, row in rows.items() if name in _COUNTED else ():
        expected, found = row[_COUNTED[name]], by_key.get(key, 0)
        if found != expected and not isinstance(found, str):
            problems.append(f"{name}: {found} rows of {row['path']}, and segments counts {expected}")
    return problems


_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 64 << 20
"""A row group of a Parquet file ends with the batch that reaches one of these."""


def _is_wide(kind: Any) -> bool:
    return bool(pyarrow().types.is_integer(kind) and kind.bit_width >= 32)


class _Writer:
    """A Parquet file under a hidden name, until `put`."""

    def __init__(self, folder: Place, table: str, key: str) -> None:
        from pyarrow import parquet

        if isinstance(folder, Path):
            hidden = folder / HIDDEN
            hidden.mkdir(mode=0o700, exist_ok=True)
        else:
            hidden = Path(tempfile.gettempdir())
        self._path: Path | None = hidden / f"barnabas-{table}-{key}-{os.getpid()}-{os.urandom(4).hex()}"
        layout = {_LAYOUT: str(LAYOUT).encode(), _NAME: table.encode()}
        self.schema = schema_of(_DESCRIBED[table].chosen()).with_metadata(layout)
        self._file = open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")  # noqa: SIM115
        # Times, numbers and ids differ little from row to row: a third of the bytes of the default, and less CPU.
        types = pyarrow().types
        words = [column.name for column in self.schema if types.is_string(column.type)]
        numbers = {column.name: "DELTA_BINARY_PACKED" for column in self.schema if _is_wide(column.type)}
        self._writer = parquet.ParquetWriter(
            self._file, self.schema, compression="zstd", use_dictionary=words, column_encoding=numbers
        )
        self._batches: list[Any] = []
        self._rows = self._bytes = 0

    def add(self, batch: Any) -> None:
        self._batches.append(batch.replace_schema_metadata(self.schema.metadata))
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        """Write what was added as one row group."""
        if self._batches:
            self._writer.write_table(pyarrow().Table.from_batches(self._batches), row_group_size=self._rows)
        self._batches, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        self._write()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def put(self, there: Place) -> None:
        """The whole file appears at once."""
        assert self._path is not None
        if isinstance(there, Remote):
            there.put(self._path)
            self._path.unlink()
        else:
            there.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.replace(self._path, there)
        self._path = None

    def drop(self) -> None:
        """Let go of a file that was not put anywhere."""
        if self._path is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


class Todo(NamedTuple):
    """The work of a run: files to read (with their previous state), unchanged files, and removed ones."""

    work: list[tuple[Segment, Done | None]]
    unchanged: int
    gone: list[Done]


def todo(segments: Sequence[Segment], done: dict[str, Done]) -> Todo:
    """Files that are new or have changed; a segment also when its next one is there by now, and was not before. Of a
    foreign capture that has changed, the rows under its old name go."""
    work: list[tuple[Segment, Done | None]] = []
    paths = {str(each.path): each.key for each in segments if each.foreign}
    for segment in segments:
        before = done.get(segment.key)
        same = before is not None and before.size == segment.size
        if not segment.foreign:
            same = same and before is not None and before.modified_ns == segment.modified_ns
        if same and before is not None and not (before.continues and segment.follows):
            continue
        work.append((segment, before))
    gone = [old for key, old in done.items() if old.path in paths and paths[old.path] != key]
    keys = {each.key for each in segments}
    return Todo(work, len(segments) - len(work), [old for old in gone if old.key not in keys])
