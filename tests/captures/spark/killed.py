"""Killing `barnabas pipeline`, and what is in the folder then."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import duckdb
from harness.waiting import PATIENCE, until
from pyarrow import parquet


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process that leads a session. Spark's Python workers are in another group and live until they find their JVM
    gone, and may finish a file meanwhile: wait for that."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # it has ended
        pass
    process.communicate(timeout=PATIENCE)
    until(lambda: not of_session(process.pid), lambda: f"workers do not end: {of_session(process.pid)}")


def of_session(number: int) -> list[str]:
    """The names of the processes of a session that run."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            head, _, rest = Path("/proc", entry, "stat").read_text().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if fields[0] != "Z" and int(fields[3]) == number:
            found.append(head.partition("(")[2])
    return found


def rows(output: Path) -> list[int]:
    """The correlation ids that plain readers find, without `_spark_metadata` or anything else of Spark's."""
    table = output / "exchanges"
    if not table.is_dir():
        return []
    asked = f"select correlation_id from '{table}/**/*.parquet' order by 1"
    found = [number for (number,) in duckdb.connect().execute(asked).fetchall()]
    assert found == sorted(parquet.read_table(table, columns=["correlation_id"])["correlation_id"].to_pylist())
    assert len(found) == len(set(found))
    return found


def read_files(output: Path) -> set[tuple[str, int]]:
    """The files of a table that have rows, and when each was put there."""
    return {(path.name, path.stat().st_mtime_ns) for path in output.glob("exchanges/*/*.parquet") if path.name != "nothing.parquet"}


def files(output: Path) -> int:
    """How many files of a table there are, and hidden ones that are being written."""
    return sum(1 for each in ("exchanges/*/*.parquet", ".unfinished/barnabas-exchanges-*") for _ in output.glob(each))
