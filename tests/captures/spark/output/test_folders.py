"""Reports over several folders of tables, and folders that an older version wrote."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from barnabas.captures import reports
from barnabas.captures.reports.duck import Duck
from barnabas.captures.spark import PipelineError, pipeline
from barnabas.captures.tables.output.folder import Folder, FolderError, TableFormat
from harness.commands import run
from harness.recordings import heartbeats
from pyarrow import parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DROPPED = {"exchanges": "broker_id", "connections": "software_version", "segments": "unnamed"}
"""A column that an older version did not have, by table."""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The tables of two recordings, and of both together."""
    for name, count in (("one", 8), ("other", 5)):
        heartbeats(tmp_path / "captures" / name, count)
        pipeline.run(pipeline.NO_SPARK, tmp_path / "captures" / name, tmp_path / name)
    pipeline.run(pipeline.NO_SPARK, tmp_path / "captures", tmp_path / "both")
    return tmp_path / "one", tmp_path / "other", tmp_path / "both"


def reported(engine: reports.QueryEngine) -> dict[str, list[dict[str, Any]]]:
    return {each.name: each.rows for each in reports.make(engine, against="4.0")[0]}


def age(folder: Path, layout: bytes = b"1") -> None:
    """Make the tables those of an older version."""
    for table, column in DROPPED.items():
        for path in folder.glob(f"{table}/*/*.parquet"):
            found = parquet.read_table(path, partitioning=None)
            metadata = found.schema.metadata | {b"barnabas.layout": layout}
            parquet.write_table(found.drop_columns([column]).replace_schema_metadata(metadata), path)


def test_reports_over_several_folders(folders: tuple[Path, Path, Path]) -> None:
    one, other, both = folders
    with Duck(one, other) as apart, Duck(both) as together:
        assert reported(apart) == reported(together)
        assert apart.query("SELECT count(*) AS n FROM exchanges") == [{"n": 13}]


@pytest.mark.spark
@pytest.mark.slow
def test_reports_over_several_folders_on_spark(folders: tuple[Path, Path, Path], spark: SparkSession) -> None:
    from barnabas.captures.spark.engine import Spark

    one, other, _ = folders
    age(one)
    with Duck(one, other) as engine:
        expected = {name: len(rows) for name, rows in reported(engine).items()}
    found = Spark(spark, one, other)
    assert {name: len(rows) for name, rows in reported(found).items()} == expected
    assert found.query("SELECT count(*) AS n, count(unnamed) AS known FROM segments") == [{"n": 2, "known": 1}]


def test_columns_that_older_tables_lack_are_null(folders: tuple[Path, Path, Path]) -> None:
    one, other, _ = folders
    age(one)
    with Duck(one) as old:
        assert all(old.query(f"SELECT count({column}) AS n FROM {table}") == [{"n": 0}] for table, column in DROPPED.items())
        assert old.query("SELECT count(*) AS n FROM exchanges") == [{"n": 8}] and reported(old)["summary"][0]["requests"] == 8
    with Duck(one, other) as mixed:
        assert mixed.query("SELECT count(*) AS n, count(unnamed) AS known FROM segments") == [{"n": 2, "known": 1}]
    with pytest.raises(FolderError, match="layout 1, this one writes 2"):  # columns may mean something else there
        pipeline.run(pipeline.NO_SPARK, one.parent / "captures" / "one", one)
    for path in one.glob("exchanges/*/nothing.parquet"):
        table = parquet.read_table(path, partitioning=None)
        parquet.write_table(table.set_column(0, "capture_id", table["time_ns"]), path)
    with pytest.raises(FolderError, match="written by another version"):
        Duck(one)


def test_a_run_adds_the_columns_that_are_new(folders: tuple[Path, Path, Path]) -> None:
    one, other, _ = folders
    age(one, b"2")
    done = pipeline.run(pipeline.NO_SPARK, one.parent / "captures", one)
    assert done.read == 1 and done.unchanged == 1
    found = duckdb.sql(f"SELECT count(*), count(unnamed) FROM read_parquet('{one}/segments/**/*.parquet', union_by_name = true)").fetchall()
    assert found == [(2, 1)]
    assert pipeline.run(pipeline.NO_SPARK, one.parent / "captures", one).read == 0
    with Duck(one) as engine, Duck(other) as alone:
        assert engine.query("SELECT count(*) AS n FROM exchanges") == [{"n": 13}]
        assert engine.tables == alone.tables


@pytest.mark.parametrize("table_format", TableFormat)
def test_tables_that_are_asked_for_later(tmp_path: Path, table_format: TableFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are read again for them, also when a run that did so was killed, and later runs go on with all tables."""
    if table_format is TableFormat.DELTA:
        pytest.importorskip("deltalake")
    source, output = tmp_path / "captures", tmp_path / "tables"
    heartbeats(source / "one", 40, segment_bytes=2_000)
    pipeline.run(pipeline.NO_SPARK, source, output, names=["exchanges", "findings"], table_format=table_format)
    names = ["exchanges", "findings", "frames", "connections", "versions", "happenings"]

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write_recording", killed)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(pipeline.NO_SPARK, source, output, names=names)
    heartbeats(source / "other", 5, first=40)
    assert pipeline.run(pipeline.NO_SPARK, source, output).read > 2
    pipeline.run(pipeline.NO_SPARK, source, tmp_path / "at-once", names=names)
    with Duck(output) as engine, Duck(tmp_path / "at-once") as other:
        assert engine.tables == other.tables
        for name in engine.tables:
            asked = f"SELECT count(*) AS n FROM {name}"
            assert engine.query(asked) == other.query(asked), name
    assert Folder(output).verify().problems == []
    assert pipeline.run(pipeline.NO_SPARK, source, output).read == 0
    shutil.rmtree(source / "one")
    done = pipeline.run(pipeline.NO_SPARK, source, output, names=[*names, "batches"])
    assert "that are gone: batches will not have their rows" in done.left_out[0]


def test_a_capture_in_two_folders_is_refused(folders: tuple[Path, Path, Path]) -> None:
    one, other, both = folders
    found = run("report", one, other, "--json", "--only", "summary")
    assert found.returncode == 0 and '"requests": 13' in found.stdout
    found = run("report", one, both)
    assert found.returncode == 2 and "which would count twice: report on them separately" in found.stderr


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    heartbeats(tmp_path / "captures", 3)

    def flock(file: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", flock)
        with pytest.raises(PipelineError, match=r"its file system has no locks .*: choose another --output"):
            pipeline.run(pipeline.NO_SPARK, tmp_path / "captures", tmp_path / "out")
    assert pipeline.run(pipeline.NO_SPARK, tmp_path / "captures", tmp_path / "out").read == 1
