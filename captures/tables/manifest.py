"""Which files of captures are done: what the table `segments` of a folder says, kept together in one file.

The table is the truth; `.manifest` beside it only spares the next run opening a Parquet file per file of a capture. An
entry counts while the Parquet file it was made of has the same size and time.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ..storage import Listed, Place, opened, stamp, stamps
from . import files
from .arrow import pyarrow

NAME = ".manifest"
_COLUMNS = ("capture_id", "sequence", "path", "size_bytes", "modified_ns", "continues", "first_ns", "status")
_Stamp = tuple[str, int, int]


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
    """Likewise of a path below the table's folder."""
    return below.startswith("date=") and below.endswith(".parquet") and below.count("/") == 1


class Manifest:
    """What is done in a folder of tables. Once read, only what came since is opened."""

    def __init__(self, folder: Place) -> None:
        self._folder = folder
        self._held: dict[_Stamp, Done] | None = None
        self._saved = True
        self._told: dict[str, Done] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Manifest, (self._folder,)  # a task needs none of it

    def learn(self, row: dict[str, Any]) -> None:
        """A row of `segments` that was written just now, so that it need not be read."""
        done = _done(row)
        self._told[f"date={done.date}/{done.key}.parquet"] = done

    def read(self) -> dict[str, Done]:
        """The files that were read, by `Segment.key`."""
        if self._held is None:
            self._held = self._kept()
        there = {each for each in stamps(self._folder / files.TABLE.name, (".parquet",)) if is_one(each[0])}
        new = there.difference(self._held)
        self._saved = self._saved and not new and len(there) == len(self._held)
        held = {each: done for each, done in self._held.items() if each in there}
        held |= {each: self._told[each[0]] for each in new if each[0] in self._told}
        untold = [each for each in new if each not in held]
        with ThreadPoolExecutor(8) as pool:  # a store answers slowly
            held |= zip(untold, pool.map(self._read, untold), strict=True)
        self._held = held
        return {done.key: done for done in held.values() if done.key}

    def save(self) -> None:
        """Write it down, if it is not what the file says. Raises OSError."""
        if self._held is None:
            self.read()
        assert self._held is not None
        held = {each: done for each, done in self._held.items() if each[0] not in self._told}
        for name, done in self._told.items():  # these alone are looked at, and not all that are there
            try:
                held[name, *stamp(self._folder / files.TABLE.name / name)] = done
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
        there = self._folder / NAME
        if isinstance(there, Path):
            beside = there.with_name(f"{NAME}.{os.getpid()}")
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(sink.getvalue())
            os.replace(beside, there)
        else:
            there.write(sink.getvalue())
        self._saved = True

    def _read(self, each: _Stamp) -> Done:
        """What a Parquet file of the table `segments` says in its row; of one that is empty there is no key."""
        from pyarrow import parquet

        store, path = opened(self._folder / files.TABLE.name / each[0])
        with store.open_input_file(path) as file:
            rows = parquet.ParquetFile(file).read(list(_COLUMNS)).to_pylist()
        return _done(rows[0]) if rows else Done("", "", 0, 0, 0, "", False)

    def _kept(self) -> dict[_Stamp, Done]:
        from pyarrow import parquet

        try:
            there = self._folder / NAME
            if not there.exists():  # asked first: pyarrow ends the process where Azure lets nobody read
                return {}
            data = there.read_bytes() if isinstance(there, Path) else there.read()
            table = parquet.read_table(pyarrow().BufferReader(data))
            lists = [_list(table[name]) for name in (*(f"stamp_{n}" for n in range(3)), *Done._fields)]
        except (OSError, KeyError, ValueError):  # none, or another version's: the table tells all
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
