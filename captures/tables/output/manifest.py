"""The list of files that were read into a folder of tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ...reading.storage import Place, open_filesystem, stamp, stamps
from ..columns import pyarrow
from ..segments import SEGMENTS
from .delta import DeltaTables
from .parquet import key_of_file, put_bytes

MANIFEST = ".manifest"
_COLUMNS = (
    "capture_id", "sequence", "path", "size_bytes", "modified_ns", "continues", "first_ns", "status", "cluster_id", "unnamed"
)  # fmt: skip
_Stamp = tuple[str, int, int]


class Done(NamedTuple):
    """A file that was read: as it was then, and where its rows are: ``TABLE/date=DATE/CHUNK.parquet``. `cluster_id`: "" if unknown;
    `unnamed`: as in `segments`."""

    key: str
    path: str
    size: int
    modified_ns: int
    continues: int
    unreadable: bool
    cluster_id: str
    unnamed: int
    date: str
    chunk: str

    @property
    def capture_id(self) -> str:
        return self.key.rpartition("-")[0]

    @property
    def sequence(self) -> int:
        return int(self.key.rpartition("-")[2])


def date_of(first_ns: int | None, modified_ns: int) -> str:
    """The day, in UTC, of the first exchange; without one, of the file."""
    return datetime.fromtimestamp((modified_ns if first_ns is None else first_ns) // 10**9, UTC).strftime("%Y-%m-%d")


def is_one(below: str) -> bool:
    """Whether a path below the table's folder is one of the pipeline's."""
    return below.startswith("date=") and below.endswith(".parquet") and below.count("/") == 1


class Written(NamedTuple):
    """What a task wrote of a chunk: the day and name of its Parquet files, and its rows of `segments`."""

    date: str
    chunk: str
    rows: list[dict[str, Any]]


class Manifest:
    """The list of files already read into a folder of tables. Once read, only new entries are opened.

    The table `segments` is authoritative; `.manifest` beside it only spares the next run opening all its Parquet files. An
    entry counts while the Parquet file it was made of has the same size and time.
    """

    def __init__(self, folder: Place, delta: DeltaTables | None = None) -> None:
        self._folder, self._delta = folder, delta
        self._held: dict[_Stamp, list[Done]] | None = None
        self._saved = True
        self._announced: dict[str, list[Done]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Manifest, (self._folder, self._delta)  # a task needs none of it

    def learn(self, written: Written) -> None:
        """What was written just now, so that it need not be read."""
        place = f"date={written.date}/{written.chunk}.parquet"
        self._announced[place] = [_done(row, place) for row in written.rows]

    def _there(self) -> set[_Stamp]:
        """The Parquet files of the table `segments`."""
        if self._delta is not None:
            return set(self._delta.stamps(SEGMENTS.name)) if self._delta.exists(SEGMENTS.name) else set()
        return {each for each in stamps(self._folder / SEGMENTS.name, (".parquet",)) if is_one(each[0])}

    def read(self) -> dict[str, Done]:
        """The files that were read, by `Segment.key`."""
        if self._held is None:
            self._held = self._kept()
        there = self._there()
        new = there.difference(self._held)
        self._saved = self._saved and not new and len(there) == len(self._held)
        held = {each: done for each, done in self._held.items() if each in there}
        held |= {each: self._announced[_place(each)] for each in new if _place(each) in self._announced}
        unread = [each for each in new if each not in held]
        with ThreadPoolExecutor(8) as pool:  # a store answers slowly
            held |= zip(unread, pool.map(self._read, unread), strict=True)
        self._held = held
        return {done.key: done for some in held.values() for done in some}

    def save(self) -> None:
        """Write it, unless the file has it already. Raises OSError."""
        if self._held is None or self._delta is not None:
            self.read()
        assert self._held is not None
        announced = self._announced if self._delta is None else {}
        held = {each: done for each, done in self._held.items() if each[0] not in announced}
        for name, done in announced.items():  # these alone are looked at, and not all that are there
            try:
                held[name, *stamp(self._folder / SEGMENTS.name / name)] = done
            except FileNotFoundError:
                continue
        if self._saved and held == self._held:
            return
        self._held = held
        pa = pyarrow()
        from pyarrow import parquet

        stamped = [(each, done) for each, some in held.items() for done in some or [_NOTHING]]
        columns = {f"stamp_{n}": [each[n] for each, _ in stamped] for n in range(3)}
        columns |= {name: [done[n] for _, done in stamped] for n, name in enumerate(Done._fields)}
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.table(columns), sink, compression="zstd")
        put_bytes(self._folder, self._folder / MANIFEST, sink.getvalue().to_pybytes())
        self._saved = True

    def _read(self, each: _Stamp) -> list[Done]:
        """The rows of a Parquet file of the table `segments`."""
        from pyarrow import parquet

        store, path = open_filesystem(self._folder / SEGMENTS.name / each[0])
        with store.open_input_file(path) as file:
            return [_done(row, each[0]) for row in parquet.ParquetFile(file).read(list(_COLUMNS)).to_pylist()]

    def _kept(self) -> dict[_Stamp, list[Done]]:
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
        kept: dict[_Stamp, list[Done]] = {}
        for each in zip(*lists, strict=True):
            some, done = kept.setdefault(each[:3], []), Done._make(each[3:])
            if done.key:
                some.append(done)
        return kept


_NOTHING = Done("", "", 0, 0, 0, False, "", 0, "", "")
"""In the manifest: a Parquet file without rows."""


def key_of(row: dict[str, Any]) -> str:
    """The `Segment.key` of a row of `segments`."""
    return f"{row['capture_id']}-{row['sequence']:06d}"


def _place(each: _Stamp) -> str:
    """The place of a Parquet file, without the token that its name may have."""
    day, _, name = each[0].partition("/")
    return f"{day}/{key_of_file(name)}.parquet"


def _list(column: Any) -> list[Any]:
    text = pyarrow().types.is_string(column.type) or pyarrow().types.is_boolean(column.type)
    return list(column.to_pylist() if text else column.to_numpy().tolist())


def _done(row: dict[str, Any], place: str) -> Done:
    """The entry of a row of `segments`, which is at this place below the table's folder."""
    date, _, name = place.removeprefix("date=").partition("/")
    return Done(
        key_of(row), row["path"], row["size_bytes"], row["modified_ns"], row["continues"], row["status"] == "unreadable",
        row.get("cluster_id") or "", row.get("unnamed") or 0, date, key_of_file(name),
    )  # fmt: skip
