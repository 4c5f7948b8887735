"""The folder of tables that the pipeline writes, and in which plain readers find every file's rows once.

    OUTPUT/TABLE/date=YYYY-MM-DD/CAPTURE-NUMBER.parquet

One Parquet file (zstd) per table and file of a capture, named by what was read, so that reading it again replaces the same
rows. A file is written under a hidden name beside the tables and put in its place by one rename; the one of the table
`segments` comes last, and says that all are there. So a reader never sees half a file or a row twice, whatever was killed,
and the table `segments` is the list of what is done. `date` is the day (UTC) on which the file's first exchange began.

In a store (`captures.storage`) a file is written on this machine, and put in its place as a whole.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..storage import Place, Remote, listed, opened, place
from . import files
from .arrow import pyarrow, schema_of
from .manifest import Done, Manifest, date_of, is_table
from .reading import TABLES, Options
from .remote import fetched
from .segments import Segment
from .unit import Unit

HIDDEN = ".unfinished"
_EMPTY = "date=1970-01-01/nothing.parquet"
_LAYOUT, _NAME = b"barnabas.layout", b"barnabas.table"
_DESCRIBED = {table.name: table for table in TABLES}
DEFAULT = tuple(name for name in _DESCRIBED if name not in ("records", "happenings"))
"""The tables that are made unless others are asked for."""


class FolderError(Exception):
    """The folder cannot be used: one line for the user, with the remedy."""


class Folder:
    """The folder of tables `output`, with the tables `names` (`segments` is always one of them)."""

    def __init__(self, output: str | Place, names: Iterable[str] = DEFAULT) -> None:
        self.path = place(output)
        self._manifest = Manifest(self.path)
        asked = set(names) | {files.TABLE.name}
        unknown = asked - set(_DESCRIBED)
        if unknown:
            raise ValueError(f"no table is called {min(unknown)!r}; there is: {', '.join(_DESCRIBED)}")
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
            if any(each.path.name.endswith(".parquet") for each in listed(self.path / name, deep=False)):
                raise FolderError(
                    f"{self.path / name} holds other Parquet files, perhaps of an older version: choose another --output"
                )
        held = self.held()
        if held and set(held) != set(self.names) and self.done():
            raise FolderError(
                f"{self.path} has the tables {', '.join(held)}, and other ones are asked for: give --tables "
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
        return [each.path for each in listed(self.path / name) if is_table(each)]

    def held(self) -> tuple[str, ...]:
        """The tables that are there."""
        return tuple(name for name in _DESCRIBED if (self.path / name / _EMPTY).exists())

    def check(self) -> None:
        """FolderError when this is no folder of tables, or when they are of another version."""
        if not self.held():
            raise FolderError(
                f"{self.path}: no tables are in it; make them with: barnabas pipeline run --output {self.path}"
            )
        for name in self.held():
            self._check(name, self.path / name / _EMPTY)

    def _check(self, name: str, empty: Place) -> None:
        from pyarrow import parquet

        store, path = opened(empty)
        found = parquet.read_schema(path, filesystem=store)
        layout = (found.metadata or {}).get(_LAYOUT, b"?").decode()
        if layout != str(files.LAYOUT) or not found.remove_metadata().equals(schema_of(_DESCRIBED[name].chosen())):
            raise FolderError(
                f"{self.path / name} was written by another version of barnabas (layout {layout}, this one writes "
                f"{files.LAYOUT}): make the tables anew into another --output"
            )

    def done(self) -> dict[str, Done]:
        """The files that were read, by `Segment.key`."""
        return self._manifest.read()

    def learn(self, row: dict[str, Any]) -> None:
        """Hear of the row that `write` returned, perhaps in another process."""
        self._manifest.learn(row)

    def remove(self, old: Done) -> None:
        """Take a file's rows out of all tables; first out of the list of what is done."""
        for name in (files.TABLE.name, *(name for name in self.names if name != files.TABLE.name)):
            (self.path / name / f"date={old.date}" / f"{old.key}.parquet").unlink(missing_ok=True)

    # one file

    def write(self, segment: Segment, before: Done | None = None) -> dict[str, Any]:
        """Read a file and put its rows in their places; returns its row of `segments`. `before`: what it was when it was
        read the last time. Raises OSError when the tables cannot be written, never for what is in the file."""
        with fetched(segment.path, segment.follows) as found:
            assert found is not None
            return self._write(segment, *found, before)

    def _write(self, segment: Segment, path: Path, follows: Path | None, before: Done | None) -> dict[str, Any]:
        options = [Options(_DESCRIBED[name], _DESCRIBED[name].chosen()) for name in self.names]
        name = segment.capture_id if segment.foreign else ""
        unit = Unit(path, options, follows=follows, capture_id=name)
        writers: dict[str, _Writer] = {}
        said: dict[str, Any] = {}
        try:
            for name, batch in unit:
                if name == files.TABLE.name:
                    # As it was found: it may have grown meanwhile, and is then read again.
                    (said,) = batch.to_pylist()
                    said |= {
                        "capture_id": segment.capture_id, "sequence": segment.number, "size_bytes": segment.size,
                        "modified_ns": segment.modified_ns, "path": str(segment.path),
                    }  # fmt: skip
                    continue
                if name not in writers:
                    writers[name] = _Writer(self.path, name, segment.key)
                writers[name].add(batch)
            date = date_of(said["first_ns"], said["modified_ns"])
            last = writers[files.TABLE.name] = _Writer(self.path, files.TABLE.name, segment.key)
            last.add(pyarrow().RecordBatch.from_pylist([said], schema=last.schema))
            for writer in writers.values():
                writer.close()
            if before is not None:
                self.remove(before)
            for name, writer in writers.items():
                writer.put(self.path / name / f"date={date}" / f"{segment.key}.parquet")
        finally:
            for writer in writers.values():
                writer.drop()
        return said


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
        layout = {_LAYOUT: str(files.LAYOUT).encode(), _NAME: table.encode()}
        self.schema = schema_of(_DESCRIBED[table].chosen()).with_metadata(layout)
        self._file = open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")  # noqa: SIM115
        self._writer = parquet.ParquetWriter(self._file, self.schema, compression="zstd")

    def add(self, batch: Any) -> None:
        self._writer.write_batch(batch.replace_schema_metadata(self.schema.metadata))

    def close(self) -> None:
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
    """What a run has to do: files to read (with what they were before), what stays as it is, what goes."""

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
