"""`barnabas pipeline run` as a user runs it: what it prints, how it ends, and that no JVM outlives it."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import duckdb
import pytest
from barnabas.captures.spark import pipeline
from harness.recordings import heartbeats
from harness.waiting import PATIENCE, until
from pyarrow import parquet

from .killed import of_session

pytestmark = pytest.mark.spark
TABLES = ("exchanges", "errors", "connections")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return heartbeats(tmp_path / "recording", 5, error=lambda number: number == 3, client_id="\x1b[31mstock")


def start(source: Path, output: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(source), "--output", str(output)]
    return subprocess.Popen(
        [*command, *more],
        cwd=source.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def nobody_is_left(group: int) -> None:
    """No process of the group is alive, the JVM and Spark's Python workers included."""

    def gone() -> bool:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        return False

    until(gone, lambda: f"processes are left: {of_session(group)}")


@pytest.mark.parametrize(
    ("master", "around"),
    [("none", []), pytest.param("local[1]", ["starting Spark", "stopping Spark"], marks=pytest.mark.slow)],
)
def test_run_writes_the_tables(recording: Path, tmp_path: Path, master: str, around: list[str]) -> None:
    process = start(recording, tmp_path / "out", "--json", "--master", master, "--tables", "exchanges,errors")
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    nobody_is_left(process.pid)
    document = json.loads(stdout)
    assert (document["read"], document["tables"], document["damaged"]) == (1, ["exchanges", "errors", "segments"], [])
    assert parquet.read_table(tmp_path / "out" / "exchanges").num_rows == 5
    assert parquet.read_table(tmp_path / "out" / "errors").num_rows == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "recording"]
    # Steps only: nothing of the JVM's own output.
    steps = [line.split(" s  ", 1)[1] for line in stderr.splitlines()]
    progress = ("looking for names: ", "reading: ", "connections, versions and findings: ")  # on a slow machine
    assert [step.split(",")[0] for step in steps if not step.startswith(progress)] == ["1 file to read", *around]


@pytest.mark.slow
def test_a_folder_of_the_package_s_name_does_no_harm(recording: Path, tmp_path: Path) -> None:
    """Spark's Python workers find it in the current folder, before the package."""
    (recording.parent / "barnabas").mkdir()
    script = Path(sysconfig.get_path("scripts")) / "barnabas"
    command = [sys.executable, script, "pipeline", "run", recording, "--output", tmp_path / "out", "--tables", "findings"]
    done = subprocess.run(command, cwd=recording.parent, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "out" / "findings").rglob("*.parquet"))


def test_a_dry_run_writes_nothing(recording: Path, tmp_path: Path) -> None:
    process = start(recording, tmp_path / "out", "--dry-run")
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    assert stdout.startswith("would read 1 file (") and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """Plain readers find no row twice after every kill, and every row once after a run that ends."""
    heartbeats(tmp_path / "recording", 900, error=lambda number: number % 9 == 3, segment_bytes=8_000)
    output = tmp_path / "out"
    # The same without a command line: processes that are there at once, so that kills fall into the work.
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(
        ["barnabas.captures.spark.pipeline", "barnabas.captures.tables.output.folder", "pyarrow.parquet", "numpy"]
    )

    def begin() -> Any:
        process = forks.Process(
            target=pipeline.run, args=(pipeline.NO_SPARK, tmp_path / "recording", output), kwargs={"names": TABLES}
        )
        process.start()
        return process

    def rows(table: str) -> list[tuple[int, ...]]:
        if not (output / table).is_dir():
            return []
        kept = [int(n) for n in parquet.read_table(output / table, columns=["correlation_id"])[0].to_pylist()]
        asked = f"select correlation_id from '{output / table}/**/*.parquet' order by 1"
        assert [n for (n,) in duckdb.connect().execute(asked).fetchall()] == sorted(kept)
        return sorted(kept)

    chance = random.Random(7)
    kills = 0
    for number in range(12):
        process = begin()
        if number:  # the first one waits for the fork server
            process.join(chance.random() * 0.15)
        process.kill()
        process.join(PATIENCE)
        kills += process.exitcode != 0
        for table in ("exchanges", "errors"):
            found = rows(table)
            assert len(found) == len(set(found))
    assert kills
    process = begin()
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert rows("exchanges") == list(range(900))
    assert rows("errors") == [n for n in range(900) if n % 9 == 3]
    assert not (output / ".unfinished").exists()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["starting Spark", "looking for names"])
def test_an_interrupt_leaves_nothing_behind(recording: Path, tmp_path: Path, step: str) -> None:
    process = start(recording, tmp_path / "out")
    assert process.stderr is not None
    for line in process.stderr:
        if step in line:
            break
    until(lambda: "java" in of_session(process.pid), "the JVM does not start")
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert stderr == "barnabas: interrupted; the tables contain only whole files: run again to complete them\n"
    nobody_is_left(process.pid)
    assert not list((tmp_path / "out").glob("*/*/.*"))


def test_mistakes_end_with_one_line_and_status_2(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    process = start(tmp_path / "empty", tmp_path / "out")
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stdout) == (2, "")
    assert stderr.startswith(f"barnabas: {tmp_path / 'empty'}: it contains no capture") and stderr.count("\n") == 1


def checked(output: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "barnabas", "pipeline", "check", str(output), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else {"refused": done.stderr}


def test_the_rows_are_checked(recording: Path, tmp_path: Path) -> None:
    """Rows that are missing, too many, of no file, and files that are damaged."""
    output = tmp_path / "out"
    heartbeats(tmp_path / "recording" / "more", 7)
    pipeline.run(pipeline.NO_SPARK, recording, output, names=["exchanges", "frames"])
    assert checked(output) == (0, {"files": 2, "damaged": 0, "exchanges": 12, "frames": 24, "problems": []})
    first, second = sorted((output / "exchanges").glob("date=2*/*.parquet"))
    rows = parquet.read_table(first)
    whole = first.read_bytes()
    for changed, words in ((rows.slice(1), f"exchanges: {rows.num_rows - 1} rows of"), (None, "exchanges: 0 rows of"), (b"x", "cannot be read")):
        if changed is None:
            first.unlink()
        elif isinstance(changed, bytes):
            first.write_bytes(changed)
        else:
            parquet.write_table(changed, first)
        status, found = checked(output)
        assert status == 1 and len(found["problems"]) == 1 and words in found["problems"][0]
        first.write_bytes(whole)
    next((output / "segments").glob(f"date=2*/{second.name}")).unlink()
    status, found = checked(output)
    assert status == 1 and all("does not list" in line for line in found["problems"]) and len(found["problems"]) == 2
    status, found = checked(tmp_path)
    assert status == 2 and "it contains no tables" in found["refused"]
