"""Tables in the format of Delta Lake, for which the library `deltalake` keeps the log: a reader has a version of a table as a whole, and the
files of that version stay until `DeltaTables.vacuum`.

    OUTPUT/TABLE/_delta_log/                                  which files are in each version of the table
    OUTPUT/TABLE/date=YYYY-MM-DD/KEY.TOKEN.parquet            of a chunk or recording; another token each time it is read
    OUTPUT/.landed/written/KEY.TOKEN.json                     what a task has written, until it is in the logs

Tasks need no library: they write files that nobody sees yet, and say so in `.landed/written`. `commit` replaces, in one version of each
table, what was there under the same key. `segments` comes last, and then the notes go: after a kill, the next `commit` completes them.
Rows that compaction has put into files with those of other keys are replaced by `capture_id` and `segment`.

240 files of 120 recordings: a run takes as much CPU as in Parquet; after compaction a query takes 0.25 s of it instead of 0.6, and the files take half
of the space.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import BarnabasError, install
from ...reading.storage import Place, list_files
from ..columns import Table, schema_of
from ..connections import CONNECTIONS
from ..event_tables import FINDINGS, HAPPENINGS
from ..segments import LAYOUT, SEGMENTS
from ..version_table import VERSIONS
from .parquet import LANDED, ParquetFile, key_of_file, put_bytes

_LOG = "_delta_log"
_WRITTEN = "written"
_LAYOUT = "barnabas layout "
_BY_FILE = (SEGMENTS.name, HAPPENINGS.name)
"""Tables that are not compacted: `segments` says what is read, file by file, and rows of `happenings` do not name theirs."""
_OF_RECORDINGS = (CONNECTIONS.name, VERSIONS.name, FINDINGS.name)
"""Tables whose files have the rows of a whole recording."""
WEEK_HOURS = 168


class MissingDelta(BarnabasError, ImportError):
    """The library deltalake is not installed; the message has the command that installs it."""


def deltalake() -> Any:
    """The module. Raises MissingDelta."""
    try:
        import deltalake
    except ImportError as error:
        raise MissingDelta(f"tables in the format delta need deltalake: {install('delta')}") from error
    return deltalake


class DeltaLogError(BarnabasError):
    """A table whose log cannot be read or written; the message has the table, and what deltalake says."""


class DataFile(NamedTuple):
    """A Parquet file: its path below the table's folder, its size in bytes and number of rows."""

    below: str
    size: int
    rows: int


class Change(NamedTuple):
    """What is in `tables` of a chunk or recording from now on: `files` by table; nothing in those that have none."""

    key: str
    capture_id: str
    tables: tuple[str, ...]
    files: dict[str, DataFile]


class Compacted(NamedTuple):
    """What compaction did with a table: small files that were joined, files that they became, old files that were removed."""

    joined: int
    became: int
    removed: int


class DeltaTables:
    """The tables of a folder. Methods that `deltalake` serves raise MissingDelta, DeltaLogError and OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def exists(self, name: str) -> bool:
        """Whether there is such a table."""
        return (self._folder / name / _LOG).exists()

    def create(self, table: Table) -> None:
        """Make an empty table."""
        import pyarrow

        schema = schema_of(table.chosen()).append(pyarrow.field("date", pyarrow.date32()))
        where = self._folder / table.name
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._asking(table.name):
            deltalake().DeltaTable.create(str(where), schema, partition_by=["date"], description=f"{_LAYOUT}{LAYOUT}")

    def schema(self, name: str) -> tuple[str, Any]:
        """The layout of a table and its columns, a `pyarrow.Schema`."""
        import pyarrow

        table = self._open(name)
        return (table.metadata().description or "").removeprefix(_LAYOUT), pyarrow.schema(table.schema().to_arrow())

    def add_columns(self, table: Table) -> None:
        """Add the columns that an older version did not have."""
        found = self._open(table.name)
        there = {field.name for field in found.schema().fields}
        wanted = deltalake().Schema.from_arrow(schema_of(table.chosen())).fields
        with self._asking(table.name):
            found.alter.add_columns([field for field in wanted if field.name not in there])

    def stamps(self, name: str) -> list[tuple[str, int, int]]:
        """The files of a table's newest version: paths below its folder, sizes and times."""
        import pyarrow

        actions = pyarrow.table(self._open(name).get_add_actions(flatten=True))
        return list(zip(*(actions[column].to_pylist() for column in ("path", "size_bytes", "modification_time")), strict=True))

    # writing

    def land(self, key: str, capture_id: str, day: str, names: Iterable[str], files: Mapping[str, ParquetFile]) -> None:
        """Put the files of a chunk or recording into the folder, for `commit`. `names`: all tables that could have one."""
        landed, token = {}, os.urandom(8).hex()
        for name, file in files.items():
            below = f"date={day}/{key}.{token}.parquet"
            file.put(self._folder / name / below)
            landed[name] = DataFile(below, (self._folder / name / below).stat().st_size, file.rows)
        data = json.dumps(Change(key, capture_id, tuple(names), landed)).encode()
        put_bytes(self._folder, self._folder / LANDED / _WRITTEN / f"{key}.{token}.json", data)

    def commit(self) -> None:
        """Put what was written into the logs. Of what was written twice, the last counts."""
        notes = sorted(list_files(self._folder / LANDED / _WRITTEN, deep=False), key=lambda each: each.modified_ns)
        if not notes:
            return
        changes: dict[tuple[str, tuple[str, ...]], Change] = {}
        for note in notes:
            change = self._read(note.path)
            changes[change.key, change.tables] = change
        names = {name for change in changes.values() for name in change.tables}
        for name in sorted(names, key=lambda name: name == SEGMENTS.name):
            self._replace(name, [change for change in changes.values() if name in change.tables])
        for note in notes:
            note.path.unlink(missing_ok=True)

    def remove(self, key: str, capture_id: str, names: Iterable[str]) -> None:
        """Take the rows of a chunk or recording out of these tables."""
        for name in sorted(names, key=lambda name: name == SEGMENTS.name):
            self._replace(name, [Change(key, capture_id, (name,), {})])

    def files_of(self, name: str, key: str) -> list[Path]:
        """The files that may have rows of a chunk."""
        there = [below for below, _, _ in self.stamps(name)]
        named = [below for below in there if key_of_file(below.rpartition("/")[2]) == key]
        return [self._folder / name / below for below in named or filter(is_compacted, there)]

    def compact(self, name: str, retention_hours: int) -> Compacted:
        """Join a table's small files, and remove files that have not been part of it for `retention_hours`."""
        table = self._open(name)
        with self._asking(name):
            found = {"numFilesRemoved": 0, "numFilesAdded": 0} if name in _BY_FILE else table.optimize.compact()
            gone = table.vacuum(retention_hours, dry_run=False, enforce_retention_duration=False, full=True)
        return Compacted(found["numFilesRemoved"], found["numFilesAdded"], len(gone))

    @staticmethod
    def _read(path: Place) -> Change:
        assert isinstance(path, Path)
        change = Change(*json.loads(path.read_bytes()))
        return change._replace(tables=tuple(change.tables), files={name: DataFile(*file) for name, file in change.files.items()})

    def _open(self, name: str) -> Any:
        with self._asking(name):
            return deltalake().DeltaTable(str(self._folder / name))

    @contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """What the library raises as an error of this package, and what it writes for its owner alone, as all else in the folder."""
        from deltalake.exceptions import DeltaError

        mask = os.umask(0o077)
        try:
            yield
        except DeltaError as error:
            message = (str(error).splitlines() or [type(error).__name__])[0]
            raise DeltaLogError(f"{self._folder / name}: its Delta log cannot be used: {message}") from error
        finally:
            os.umask(mask)

    def _replace(self, name: str, changes: Iterable[Change]) -> None:
        """A version of the table with these changes, and one more for rows in compacted files."""
        from deltalake.transaction import AddAction, RemoveAction

        there = {below: size for below, size, _ in self.stamps(name)}
        by_key: dict[str, list[str]] = {}
        for below in there:
            by_key.setdefault(key_of_file(below.rpartition("/")[2]), []).append(below)
        in_compacted = self._in_compacted(name, there)
        now = time.time_ns() // 10**6
        actions: list[AddAction | RemoveAction] = []
        rewritten: list[tuple[Change, str]] = []
        for change in changes:
            file, before = change.files.get(name), by_key.get(change.key, [])
            if file is not None and file.below in there:
                continue  # a run that was killed has done this
            if not before and (rows := in_compacted(change)):
                rewritten.append((change, rows))
                continue
            for below in before:
                actions.append(RemoveAction(below, True, now, there[below], {"date": _date(below)}))
            if file is not None:
                stats = json.dumps({"numRecords": file.rows})
                actions.append(AddAction(file.below, file.size, {"date": _date(file.below)}, now, True, stats))
        table = self._open(name)
        with self._asking(name):
            if actions:
                table.create_write_transaction(actions, "append", table.schema(), ["date"])
            if rewritten:
                self._rewrite(name, rewritten)

    def _in_compacted(self, name: str, there: Iterable[str]) -> Callable[[Change], str]:
        """A function: the condition for the rows that a change replaces in compacted files, in SQL; "" if there are none."""
        from pyarrow import parquet

        def values(path: Path, column: str) -> list[str]:
            found: list[str] = parquet.read_table(path, columns=[column], partitioning=None)[column].unique().to_pylist()
            return found

        compacted = [self._folder / name / below for below in filter(is_compacted, there)]
        segments, captures = self._folder / SEGMENTS.name, set[str]()
        listed: dict[str, Path] = {}
        if compacted and name in _OF_RECORDINGS:
            captures = {capture_id for path in compacted for capture_id in values(path, "capture_id")}
        elif compacted:
            listed = {key_of_file(below.rpartition("/")[2]): segments / below for below, _, _ in self.stamps(SEGMENTS.name)}

        def rows(change: Change) -> str:
            of_capture = f"capture_id = {_quoted(change.capture_id)}"
            if change.key not in listed:
                return f"({of_capture})" if change.capture_id in captures else ""
            inside = values(listed[change.key], "segment")
            if SEGMENTS.name in change.files:
                inside += values(segments / change.files[SEGMENTS.name].below, "segment")
            return f"({of_capture} AND segment IN ({', '.join(map(_quoted, inside))}))"

        return rows

    def _rewrite(self, name: str, changes: list[tuple[Change, str]]) -> None:
        """Replace rows in compacted files; each change has the condition for them."""
        import pyarrow
        from pyarrow import parquet

        table = self._open(name)
        schema = pyarrow.schema(table.schema().to_arrow())
        where = " OR ".join(condition for _, condition in changes)
        files = [change.files[name] for change, _ in changes if name in change.files]

        def batches() -> Iterator[Any]:
            for file in files:
                day = pyarrow.scalar(date.fromisoformat(_date(file.below)), pyarrow.date32())
                for batch in parquet.ParquetFile(self._folder / name / file.below).iter_batches():
                    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {"date": pyarrow.repeat(day, batch.num_rows)}
                    yield pyarrow.RecordBatch.from_arrays([columns[column] for column in schema.names], schema=schema)

        if files:
            rows = pyarrow.RecordBatchReader.from_batches(schema, batches())
            deltalake().write_deltalake(table, rows, mode="overwrite", predicate=where)
        else:
            table.delete(where)


def _date(below: str) -> str:
    return below.partition("/")[0].removeprefix("date=")


def is_compacted(below: str) -> bool:
    """Whether `deltalake` has written a file, of whatever rows."""
    return below.rpartition("/")[2].startswith("part-")


def _quoted(text: str) -> str:
    """A string in SQL."""
    return "'" + text.replace("'", "''") + "'"
