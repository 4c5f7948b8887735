"""Tables in the format delta: the same rows as in Parquet, whatever is read again, compacted or killed, and readers that began before."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from barnabas.captures import reports
from barnabas.captures.reports.duck import Duck
from barnabas.captures.spark import pipeline
from barnabas.captures.tables.output.delta import DeltaLogError, DeltaTables
from barnabas.captures.tables.output.folder import DEFAULT, Folder, FolderError, TableFormat
from barnabas.errors import BarnabasError
from harness.commands import run
from harness.recordings import heartbeats
from harness.run.slices import thin
from scapy.utils import rdpcap, wrpcap
from traffic.fleets.rotated import record, steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DeltaTable = pytest.importorskip("deltalake").DeltaTable
NAMES = (*DEFAULT, "happenings")
Rows = dict[str, list[str]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifteen segments; the names of topics and the cluster are in some of them only."""
    return record(tmp_path_factory.mktemp("recorded") / "fifteen", steps(700), 20_000)


@pytest.fixture(scope="module")
def in_parquet(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What all of it gives in Parquet, in one run."""
    output = tmp_path_factory.mktemp("parquet") / "tables"
    pipeline.run(pipeline.NO_SPARK, recorded, output, names=NAMES)
    return {name: shown(duckdb.sql(f"SELECT * FROM read_parquet('{output}/{name}/*/*.parquet')").to_arrow_table()) for name in NAMES}


def shown(table: Any) -> list[str]:
    """Rows in an order of their own, without what says where a capture was."""
    return sorted(str({name: row[name] for name in sorted(row) if name != "path"}) for row in table.to_pylist())


def by_deltalake(output: Path) -> Rows:
    return {name: shown(DeltaTable(str(output / name)).to_pyarrow_table()) for name in NAMES}


def copy(files: list[Path], to: Path) -> None:
    to.mkdir(exist_ok=True)
    for file in files:
        for each in file.parent.glob(f"{file.stem}.*"):
            shutil.copy2(each, to)


def test_run_after_run_and_compaction_give_what_parquet_has(recorded: Path, in_parquet: Rows, tmp_path: Path) -> None:
    """The last segments come first, so that rows of compacted files have to be replaced when the names are known."""
    source, output = tmp_path / "captures", tmp_path / "tables"
    files = sorted(recorded.glob("*.pcapng"))
    parts = (files[9:], files[4:7], files[7:9], files[:1], files[1:4])
    for number, some in enumerate(parts):
        copy(some, source)
        done = pipeline.run(pipeline.NO_SPARK, source, output, names=NAMES, table_format=TableFormat.DELTA)
        assert done.read and not done.damaged
        found = pipeline.compact(output, 0)
        assert found["frames"].became or number in (0, 1)
        assert Folder(output).verify().problems == []
    assert by_deltalake(output) == in_parquet
    with Duck(output) as engine:
        names = [name for name in NAMES if name in engine.tables]
        assert {name: engine.query(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in names} == {
            name: len(rows) for name, rows in in_parquet.items()
        }
        assert not reports.make(engine, against="4.0")[1]
    assert pipeline.run(pipeline.NO_SPARK, source, output, names=NAMES).read == 0
    assert {path.stat().st_mode & 0o077 for path in output.rglob("*") if path.is_file()} == {0}


def test_a_reader_that_began_before_sees_what_was_there(recorded: Path, in_parquet: Rows, tmp_path: Path) -> None:
    source, output = tmp_path / "captures", tmp_path / "tables"
    files = sorted(recorded.glob("*.pcapng"))
    copy(files[:-4], source)
    pipeline.run(pipeline.NO_SPARK, source, output, names=NAMES, table_format=TableFormat.DELTA)
    opened = {name: DeltaTable(str(output / name)) for name in NAMES}
    before = by_deltalake(output)
    with Duck(output) as engine:
        copy(files[-4:], source)
        pipeline.run(pipeline.NO_SPARK, source, output)
        pipeline.compact(output)
        for name, table in opened.items():
            assert engine.query(f"SELECT count(*) AS n FROM {name}") == [{"n": len(before[name])}]
            assert shown(table.to_pyarrow_table()) == before[name]
    assert by_deltalake(output) == in_parquet != before
    assert DeltaTable(str(output / "frames")).version() > opened["frames"].version()


@pytest.mark.parametrize("place", thin(range(8), 2))
def test_a_run_killed_between_two_tables(recorded: Path, in_parquet: Rows, tmp_path: Path, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No table ever has rows twice, and the next run completes all."""
    source, output = tmp_path / "captures", tmp_path / "tables"
    files = sorted(recorded.glob("*.pcapng"))
    copy(files[:-6], source)
    pipeline.run(pipeline.NO_SPARK, source, output, names=NAMES, table_format=TableFormat.DELTA)
    if place % 2:
        pipeline.compact(output, 0)
    copy(files[-6:], source)
    before, calls = DeltaTables._replace, iter(range(100))

    def killed(self: DeltaTables, *arguments: Any) -> None:
        if next(calls) == place:
            raise KeyboardInterrupt
        before(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTables, "_replace", killed)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(pipeline.NO_SPARK, source, output)
    for name, rows in by_deltalake(output).items():
        assert len(rows) == len(set(rows)), name
    if place % 3 == 0:
        pipeline.compact(output, 0)
    pipeline.run(pipeline.NO_SPARK, source, output)
    assert by_deltalake(output) == in_parquet and Folder(output).verify().problems == []


def test_a_capture_of_another_tool_that_grows(recorded: Path, tmp_path: Path) -> None:
    """Its name is made of its bytes, so that its old rows go."""
    source, output = tmp_path / "captures", tmp_path / "tables"
    source.mkdir()
    packets = rdpcap(str(sorted(recorded.glob("*.pcapng"))[0]))
    for count in (len(packets) // 2, len(packets)):
        wrpcap(str(source / "one.pcap"), packets[:count])
        shutil.copy(source / "one.pcap", tmp_path)
        pipeline.run(pipeline.NO_SPARK, source, output, table_format=TableFormat.DELTA)
        pipeline.run(pipeline.NO_SPARK, source, tmp_path / f"parquet-{count}")
        pipeline.compact(output, 0)
        with Duck(output) as engine, Duck(tmp_path / f"parquet-{count}") as other:
            for name in engine.tables:
                asked = f"SELECT count(*) AS n FROM {name}"
                assert engine.query(asked) == other.query(asked), name


def test_columns_that_are_new(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that an older version made has the columns of this one after a run."""
    from barnabas.captures.tables.output import delta

    source, output = tmp_path / "captures", tmp_path / "tables"
    heartbeats(source / "one", 5)
    whole = delta.schema_of
    with monkeypatch.context() as patched:
        patched.setattr(delta, "schema_of", lambda columns: whole([each for each in columns if each.name != "broker_id"]))
        DeltaTables(output).create(next(table for table in reports.sources.TABLES if table.name == "exchanges"))
    assert "broker_id" not in {field.name for field in DeltaTable(str(output / "exchanges")).schema().fields}
    pipeline.run(pipeline.NO_SPARK, source, output, names=["exchanges"], table_format=TableFormat.DELTA)
    assert DeltaTable(str(output / "exchanges")).to_pyarrow_table(columns=["broker_id"]).num_rows == 5


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = tmp_path / "captures", tmp_path / "tables"
    heartbeats(source / "one", 5)
    pipeline.run(pipeline.NO_SPARK, source, tmp_path / "parquet", names=["exchanges"])
    with pytest.raises(FolderError, match=r"contains tables in the format parquet: choose another --output, or --format parquet"):
        pipeline.run(pipeline.NO_SPARK, source, tmp_path / "parquet", names=["exchanges"], table_format=TableFormat.DELTA)
    with pytest.raises(FolderError, match="is in a store, but tables in the format delta need a folder"):
        Folder("s3://fleet/tables?region=eu-west-1", table_format=TableFormat.DELTA)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "deltalake", None)
        with pytest.raises(BarnabasError, match=r"need deltalake: run pip install '.\[delta\]'"):
            pipeline.run(pipeline.NO_SPARK, source, output, table_format=TableFormat.DELTA)
    pipeline.run(pipeline.NO_SPARK, source, output, names=["exchanges"], table_format=TableFormat.DELTA)
    log = output / "exchanges" / "_delta_log" / "00000000000000000001.json"
    log.write_text("nothing")
    with pytest.raises(DeltaLogError, match="exchanges: its Delta log cannot be used: "):
        Duck(output)


def test_the_commands(recorded: Path, tmp_path: Path) -> None:
    output = tmp_path / "tables"
    made = run("pipeline", "run", recorded, "-o", output, "--master", "none", "--format", "delta", "--tables", "frames,connections")
    assert made.returncode == 0, made.stderr
    found = run("pipeline", "compact", output)
    assert found.returncode == 0 and "segments: 0 files joined into 0; 0 old files removed" in found.stdout, found.stderr
    assert run("pipeline", "check", output).returncode == 0
    assert run("report", output, "--only", "files").returncode == 0
    pipeline.run(pipeline.NO_SPARK, recorded, tmp_path / "parquet", names=["frames"])
    found = run("pipeline", "compact", tmp_path / "parquet")
    assert found.returncode == 0 and found.stdout.startswith("nothing to compact: in the format parquet")
    found = run("pipeline", "compact", tmp_path)
    assert found.returncode == 2 and "it contains no tables" in found.stderr


@pytest.mark.spark
@pytest.mark.parametrize("stream", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_spark_writes_and_reads_the_same(recorded: Path, in_parquet: Rows, spark: SparkSession, tmp_path: Path, stream: bool) -> None:
    from barnabas.captures.spark.engine import Spark

    output = tmp_path / "tables"
    make: Callable[..., Any] = pipeline.stream if stream else pipeline.run
    more = {"once": True} if stream else {}
    make(spark, recorded, output, names=NAMES, table_format=TableFormat.DELTA, **more)
    assert by_deltalake(output) == in_parquet and Folder(output).verify().problems == []
    engine = Spark(spark, output)
    for name in ("frames", "throttles", "connections"):
        assert engine.query(f"SELECT count(*) AS n FROM {name}") == [{"n": len(in_parquet[name])}]
