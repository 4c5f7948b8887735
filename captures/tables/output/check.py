"""Comparing the rows of all tables with what the table `segments` counts. Of most Parquet files only the footers are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ...reading.storage import Place, open_filesystem
from ..connections import CONNECTIONS
from ..segments import SEGMENTS
from .delta import is_compacted
from .manifest import key_of
from .parquet import key_of_file

_COUNTED = {"exchanges": "exchanges", "frames": "frames"}
"""Tables, and the column of `segments` that counts their rows."""
_Read = TypeVar("_Read")


class FolderCheck(NamedTuple):
    """What a check of all tables found: files of captures, those of them that are damaged, exchanges and frames as the table
    `segments` counts them, and what does not agree, a line each."""

    files: int
    damaged: int
    exchanges: int
    frames: int
    problems: list[str]


def check(tables: Mapping[str, Iterable[Place]]) -> FolderCheck:
    """Check the Parquet files of each table. Raises OSError."""
    problems: list[str] = []
    rows: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(8) as pool:  # a store answers slowly
        for path, found in pool.map(partial(_of_parquet, _rows), tables[SEGMENTS.name]):
            problems += [f"{path}: {found}"] if isinstance(found, str) else []
            rows |= {key_of(row): row | {"chunk": key_of_file(path.name)} for row in found if isinstance(row, dict)}
        known = rows.keys() | {row["capture_id"] for row in rows.values()} | {row["chunk"] for row in rows.values()}
        for name, paths in tables.items():
            if name != SEGMENTS.name:
                counts = dict(pool.map(partial(_of_parquet, _row_count), paths))
                problems += _disagreements(name, counts, rows, known)
        if CONNECTIONS.name in tables:
            problems += _connections(dict(pool.map(partial(_of_parquet, _exchanges), tables[CONNECTIONS.name])), rows)
    return FolderCheck(
        len(rows), sum(row["status"] != "ok" for row in rows.values()), sum(row["exchanges"] for row in rows.values()),
        sum(row["frames"] for row in rows.values()), problems,
    )  # fmt: skip


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


def _exchanges(file: Any) -> Counter[str]:
    """Exchanges by recording."""
    found: Counter[str] = Counter()
    for row in file.read(["capture_id", "exchanges"]).to_pylist():
        found[row["capture_id"]] += row["exchanges"]
    return found


def _disagreements(
    name: str, counts: dict[Place, int | str], rows: dict[str, dict[str, Any]], known: set[str]
) -> list[str]:
    """What of a table's files does not agree with the rows of `segments`, by `Segment.key`. `known`: files, chunks and recordings."""
    problems = []
    by_chunk: dict[str, int | str] = {}
    compacted: int | None = None
    for path, count in counts.items():
        key = key_of_file(path.name)
        if isinstance(count, str):
            problems.append(f"{path}: {count}")
        elif is_compacted(path.name):
            compacted = (compacted or 0) + count
            continue
        elif count and key not in known:
            problems.append(f"{path}: {count} rows of a file that the table segments does not list")
        by_chunk[key] = count
    chunks: dict[str, list[dict[str, Any]]] = {}
    for row in rows.values() if name in _COUNTED else ():
        chunks.setdefault(row["chunk"], []).append(row)
    together = 0
    for chunk, inside in chunks.items():
        expected, found = sum(row[_COUNTED[name]] for row in inside), by_chunk.get(chunk, 0)
        if compacted is not None and chunk not in by_chunk:
            together += expected
        elif found != expected and not isinstance(found, str):
            paths = inside[0]["path"] + f" to {inside[-1]['path']}" * (len(inside) > 1)
            problems.append(f"{name}: {found} rows of {paths}, and segments counts {expected}")
    if name in _COUNTED and compacted is not None and together != compacted:
        problems.append(f"{name}: {compacted} rows in compacted files, and segments counts {together}")
    return problems


def _connections(sums: dict[Place, Counter[str] | str], rows: dict[str, dict[str, Any]]) -> list[str]:
    """Recordings whose connections do not have as many exchanges as their files."""
    expected: Counter[str] = Counter()
    for row in rows.values():
        expected[row["capture_id"]] += row["exchanges"]
    found: Counter[str] = sum((each for each in sums.values() if isinstance(each, Counter)), Counter())
    return [
        f"{CONNECTIONS.name}: {found[capture_id]} exchanges of the recording {capture_id}, and segments counts {count}"
        for capture_id, count in sorted(expected.items())
        if found[capture_id] != count
    ]
