"""The list of files that were read into a folder of tables, and the plan of what to read next."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ...reading.storage import Listed, Place, open_filesystem, stamp, stamps
from ..columns import pyarrow
from ..segments import SEGMENTS, Segment

MANIFEST = ".manifest"
_COLUMNS = (
    "capture_id", "sequence", "path", "size_bytes", "modified_ns", "continues", "first_ns", "status", "cluster_id", "unnamed"
)  # fmt: skip
_Stamp = tuple[str, int, int]


class Done(NamedTuple):
    """A file that was read: as it was then, and where its rows are. `cluster_id`: "" if unknown; `unnamed`: as in `segments`."""

    key: str
    path: str
    size: int
    modified_ns: int
    continues: int
    date: str
    unreadable: bool
    cluster_id: str
    unnamed: int

    @property
    def capture_id(self) -> str:
        return self.key.rpartition("-")[0]

    @property
    def sequence(self) -> int:
        return int(self.key.rpartition("-")[2])


def date_of(first_ns: int | None, modified_ns: int) -> str:
    """The day, in UTC, of the first exchange; without one, of the file."""
    return datetime.fromtimestamp((modified_ns if first_ns is None else first_ns) // 10**9, UTC).strftime("%Y-%m-%d")


def is_table(each: Listed) -> bool:
    """Whether a file below a table's folder is one of the pipeline's."""
    return is_one("/".join(str(each.path).rsplit("/", 2)[1:]))


def is_one(below: str) -> bool:
    """Whether a path below the table's folder is one of the pipeline's."""
    return below.startswith("date=") and below.endswith(".parquet") and below.count("/") == 1


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
        done = done_of(row)
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
        return done_of(rows[0]) if rows else Done("", "", 0, 0, 0, "", False, "", 0)

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


def done_of(row: dict[str, Any]) -> Done:
    """The entry of a row of `segments`."""
    return Done(
        f"{row['capture_id']}-{row['sequence']:06d}", row["path"], row["size_bytes"], row["modified_ns"], row["continues"],
        date_of(row["first_ns"], row["modified_ns"]), row["status"] == "unreadable",
        row["cluster_id"] or "", row["unnamed"],
    )  # fmt: skip


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
