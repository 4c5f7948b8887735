"""Recordings as tables: one segment in, Arrow record batches out. No Spark here; Spark, reports and views use it alike.

The header table `exchanges` comes from the index alone (NumPy over its 64-byte records), so no frame is read and
nothing is decoded. docs/tables.md describes every column. Needs pyarrow and numpy: `pip install 'barnabas[spark]'`.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..decoder import State, facts
from .index import CHANGED, CONTINUED, STATE_MASK, STATES, UNDECODED, Index
from .indexing import Identity, read_identity
from .pcapng import NotACapture
from .reader import CaptureFile

EXCHANGES = {
    "capture_id": "string",
    "segment": "string",
    "number": "int64",
    "time_ns": "int64",
    "connection": "int64",
    "client": "string",
    "broker": "string",
    "api": "string",
    "api_key": "int16",
    "api_version": "int16",
    "correlation_id": "int32",
    "client_id": "string",
    "request_size": "int32",
    "response_size": "int32",
    "latency_ns": "int64",
    "state": "string",
    "error_code": "int16",
    "error": "string",
    "undecoded": "bool",
    "changed": "bool",
}
"""The columns of the table `exchanges` and their Arrow types, in order."""

TABLES = {"exchanges": EXCHANGES}
BATCH_ROWS = 65536


class MissingLibrary(ImportError):
    """A library of the extra `spark` is not installed; the text says how to install it."""


class Segment(NamedTuple):
    """A closed segment of a recording. `key` names it uniquely and the same way every time."""

    path: Path
    capture_id: str
    number: int
    size: int

    @property
    def key(self) -> str:
        return f"{self.capture_id}-{self.number:06d}"


class Found(NamedTuple):
    """What a folder holds: closed segments, how many are still written to, and a line per file left out."""

    segments: list[Segment]
    live: int
    left_out: list[str]


def chosen(table: str, columns: Sequence[str] | None = None) -> list[str]:
    """The columns to read, all of the table's by default. Raises ValueError for an unknown table or column."""
    known = TABLES.get(table)
    if known is None:
        raise ValueError(f"no table is called {table!r}; there is: {', '.join(TABLES)}")
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise ValueError(f"table {table} has no column {unknown[0]!r}; it has: {', '.join(known)}")
    return list(dict.fromkeys(columns)) if columns else list(known)


def schema(table: str = "exchanges", columns: Sequence[str] | None = None) -> Any:
    """The `pyarrow.Schema` of a table, or of some of its columns. Every field may be null for Arrow."""
    pa = _arrow()
    return pa.schema([(name, _type(pa, TABLES[table][name])) for name in chosen(table, columns)])


def find_segments(path: str | Path) -> Found:
    """The closed segments of all recordings in a folder and below it (or in one file), in a fixed order.

    A `.part` file counts as closed once its recorder is gone. A segment that is there twice counts once.
    Raises FileNotFoundError when there is no such path.
    """
    path = Path(path)
    files = [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else None
    if files is None:
        raise FileNotFoundError(f"{path}: no such file or folder")
    found: dict[tuple[str, int], Segment] = {}
    live, left_out = 0, []
    for file in files:
        if not file.name.endswith((".pcapng", ".pcapng.part", ".pcap", ".cap")) or not file.is_file():
            continue
        try:
            own, written = _identity(file)
            size = file.stat().st_size
        except (NotACapture, OSError) as error:
            left_out.append(str(error) if isinstance(error, NotACapture) else f"{file}: {error.strerror or error}")
            continue
        if own is None:
            left_out.append(f"{file}: not recorded by barnabas")
        elif written:
            live += 1
        elif own in found:
            left_out.append(f"{file}: the same segment as {found[own].path}")
        else:
            found[own] = Segment(file, own.recording, own.number, size)
    return Found([found[key] for key in sorted(found)], live, left_out)


def exchanges(
    segment_path: str | Path, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[Any]:
    """Yield the `pyarrow.RecordBatch`es of one capture file's exchanges, in the order of its index.

    A damaged or torn file gives what can be read of it, perhaps nothing, and never raises. An exchange that goes on
    in the next segment is left to that one, if it is there. `capture_id` is the recording's identity, for a foreign
    capture its file name. Raises ValueError for unknown columns and `MissingLibrary`, both before the first batch.
    """
    wanted = chosen("exchanges", columns)
    fields = schema("exchanges", wanted)
    return _exchanges(Path(segment_path), wanted, fields, batch_rows)


def _exchanges(path: Path, wanted: list[str], fields: Any, batch_rows: int) -> Iterator[Any]:
    pa, np = _arrow(), _numpy()
    try:
        file = CaptureFile(path)
    except (NotACapture, OSError):
        return
    try:
        after = _successor(path, file.own)
        if file.rebuilt and after is not None:
            file.hide(after)
        if not file.index.count:
            return
        records = file.index.array()
        numbers = np.arange(len(records), dtype=np.int64)
        if after is not None:
            numbers = numbers[records["flags"] & CONTINUED == 0]
        names = (file.own.recording if file.own else path.name, path.name.removesuffix(".part"))
        for start in range(0, len(numbers), batch_rows):
            some = numbers[start : start + batch_rows]
            batch = _Batch(pa, np, file.index, records[some], some, names)
            arrays = [batch.column(name).cast(fields.field(name).type) for name in wanted]
            yield pa.RecordBatch.from_arrays(arrays, schema=fields)
    finally:
        file.close()


class _Batch:
    """Some records of an index as Arrow columns."""

    def __init__(self, pa: Any, np: Any, index: Index, records: Any, numbers: Any, names: tuple[str, str]) -> None:
        self._pa, self._np, self._index, self._records, self._numbers = pa, np, index, records, numbers
        self._names = names
        self._states = records["flags"] & STATE_MASK

    def column(self, name: str) -> Any:
        """The Arrow array of a column of `EXCHANGES`; its type may still be wider than the declared one."""
        pa, records = self._pa, self._records
        if name in ("capture_id", "segment"):
            return pa.repeat(self._names[name == "segment"], len(records))
        special: Callable[[], Any] | None = getattr(self, f"_{name}", None)
        if special is not None:
            return special()
        field = "error" if name == "error_code" else name
        return pa.array(self._np.ascontiguousarray(records[field]))

    def _number(self) -> Any:
        return self._pa.array(self._numbers)

    def _present(self, name: str, there: str) -> Any:
        """A field that is null where another one is negative."""
        mask = self._records[there] < 0
        return self._pa.array(self._np.ascontiguousarray(self._records[name]), mask=mask)

    def _latency_ns(self) -> Any:
        return self._present("latency_ns", "latency_ns")

    def _request_size(self) -> Any:
        return self._present("request_size", "request_offset")

    def _response_size(self) -> Any:
        return self._present("response_size", "response_offset")

    def _named(self, values: Any, name: Callable[[int], str | None]) -> Any:
        """Strings for numbers: each different number is looked up once."""
        different, places = self._np.unique(values, return_inverse=True)
        texts = self._pa.array([name(int(value)) for value in different], self._pa.string())
        return texts.take(self._pa.array(places.reshape(-1)))

    def _client(self) -> Any:
        ends = self._index.connections
        return self._named(self._records["connection"], lambda n: ends[n].client if n in ends else "")

    def _broker(self) -> Any:
        ends = self._index.connections
        return self._named(self._records["connection"], lambda n: ends[n].broker if n in ends else "")

    def _client_id(self) -> Any:
        return self._named(self._records["client_id"], self._index.string)

    def _api(self) -> Any:
        orphan = self._states == STATES.index(State.ORPHAN)
        # An orphan's API is not known: no name. Keys are 16 bits, so this number is none.
        keys = self._np.where(orphan, 1 << 16, self._records["api_key"].astype(self._np.int32))
        return self._named(keys, lambda key: "" if key == 1 << 16 else facts.api_name(key))

    def _state(self) -> Any:
        return self._named(self._states, lambda number: str(STATES[number]))

    def _error(self) -> Any:
        return self._named(self._records["error"], lambda code: facts.error_name(code) if code else None)

    def _undecoded(self) -> Any:
        return self._pa.array(self._records["flags"] & UNDECODED != 0)

    def _changed(self) -> Any:
        return self._pa.array(self._records["flags"] & CHANGED != 0)


def _identity(path: Path) -> tuple[Identity | None, bool]:
    """Whose segment a file is, and whether a recorder still writes it. Raises `NotACapture`, OSError."""
    with open(path, "rb") as file:
        own = read_identity(file, str(path))
        if not path.name.endswith(".part"):
            return own, False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return own, True
        return own, False


def _successor(path: Path, own: Identity | None) -> set[tuple[int, int, int]] | None:
    """What the next segment of the same recording carries over from this one; None when it is not beside it.

    Names are ordered by time, so it is nearly always the very next file.
    """
    if own is None:
        return None
    name = path.name.removesuffix(".part")
    for other in sorted(_segments_beside(path), key=lambda p: p.name):
        if other.name.removesuffix(".part") <= name:
            continue
        try:
            if _identity(other)[0] == (own.recording, own.number + 1):
                file = CaptureFile(other)
                try:
                    return file.carried()
                finally:
                    file.close()
        except (NotACapture, OSError):
            continue
    return None


def _segments_beside(path: Path) -> Iterable[Path]:
    try:
        return [p for p in path.parent.iterdir() if p.name.endswith((".pcapng", ".pcapng.part"))]
    except OSError:
        return []


def _type(pa: Any, name: str) -> Any:
    return pa.bool_() if name == "bool" else getattr(pa, name)()


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingLibrary("tables need pyarrow: pip install 'barnabas[spark]'") from error
    return pyarrow


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise MissingLibrary("tables need numpy: pip install 'barnabas[spark]'") from error
    return numpy
