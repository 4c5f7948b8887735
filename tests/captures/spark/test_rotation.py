"""The same traffic gives the same tables and reports, however often recorders rotate, how many there are, and where it is computed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture, reports, tables
from barnabas.captures.reports.duck import Duck
from barnabas.captures.spark import pipeline
from barnabas.captures.tables.columns import json_text
from barnabas.captures.tables.output.folder import Folder
from barnabas.captures.tables.output.inspection import Inspection
from harness.peers.pcap import as_pcap
from traffic.fleets.rotated import CLUSTER_ID, TOPICS, record, steps

pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")

pytestmark = pytest.mark.xdist_group("rotation")  # what is recorded and read is shared
OF_FILES = {"capture_id", "segment", "number", "connection"}
"""Columns that name a file or recording, and numbers that recorders give."""
SIZES = {"one": 64 << 20, "fifteen": 64_000, "two hundred": 3_400}
MANY = pytest.param("two hundred", marks=pytest.mark.slow)
MADE = ("exchanges", "frames", "errors", "batches", "groups", "throttles", "connections", "findings")
COUNTING_FILES = {"files": None, "summary": ("captures",), "errors": ("captures",), "findings": ("captures", "findings")}
"""Reports, or columns of reports, that count captures."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One recorder that rotated once, fifteen and two hundred times; three, one for each broker; and a packet capture of it all."""
    top, made = tmp_path_factory.mktemp("rotated"), steps()
    found = {name: record(top / name, made, size) for name, size in SIZES.items()}
    for broker in range(3):
        record(top / "three recorders" / f"broker-{broker}", made, 64_000, broker)
    counts = [len(list(path.glob("*.pcapng"))) for path in found.values()]
    assert counts[:2] == [1, 15] and counts[2] > 200
    (top / "pcap").mkdir()
    as_pcap(next(found["one"].glob("*.pcapng")), top / "pcap" / "traffic.pcap")
    return {**found, **{name: top / name for name in ("three recorders", "pcap")}}


@pytest.fixture(scope="module")
def read(recorded: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The tables of one of them, made once."""
    top = tmp_path_factory.mktemp("tables")

    def folder(name: str) -> Path:
        if not (top / name).exists():
            pipeline.run("none", str(recorded[name]), str(top / name))
        return top / name

    return folder


def rows(folder: Path, table: str) -> list[str]:
    """The rows of a table without what names files, in an order of their own."""
    place = f"read_parquet('{folder / table}/**/*.parquet', hive_partitioning = false)"
    names = [row[0] for row in duckdb.sql(f"DESCRIBE SELECT * FROM {place}").fetchall() if row[0] not in left_out(table)]
    columns = ", ".join(f'"{name}"' for name in names)
    return sorted(repr(dict(zip(names, row, strict=True))) for row in duckdb.sql(f"SELECT {columns} FROM {place}").fetchall())


def left_out(table: str) -> set[str]:
    return OF_FILES | {"exchanges"} if table == "findings" else OF_FILES  # links to files


def reported(folder: Path) -> dict[str, Any]:
    with Duck(folder) as engine:
        made, without = reports.make(engine, against="4.0")
    assert not without
    found: dict[str, Any] = {}
    for report in made:
        counting = COUNTING_FILES.get(report.name, ())
        if counting is not None:
            found[report.name] = [{name: row[name] for name in row if name not in counting} for row in report.rows]
    return found


def test_the_traffic_names_everything_only_once(recorded: dict[str, Path]) -> None:
    """Else the comparisons below would be about nothing."""
    naming = {18, 3}
    with open_capture(recorded["two hundred"]) as capture:
        found = [row for row in capture.rows() if row.api_key in naming]
        by_id = [row for row in capture.rows() if (row.api_key, row.api_version) in {(0, 13), (1, 13)}]
        carried = sum(row.carried for row in capture.rows())
    assert len(found) == 18 and len(by_id) > 1000 and carried > 20
    assert {row.segment for row in by_id} - {row.segment for row in found}


@pytest.mark.parametrize("name", ["fifteen", "three recorders", MANY])
def test_tables_do_not_depend_on_rotation(read: Callable[[str], Path], name: str) -> None:
    one, other = read("one"), read(name)
    for table in MADE:
        assert rows(other, table) == rows(one, table), table
        assert rows(one, table) or table == "throttles"
    batches = f"read_parquet('{other / 'batches'}/**/*.parquet', hive_partitioning = false)"
    assert {row[0] for row in duckdb.sql(f"SELECT DISTINCT topic FROM {batches}").fetchall()} == set(TOPICS)
    seen = f"read_parquet('{other / 'exchanges'}/**/*.parquet', hive_partitioning = false)"
    ids = duckdb.sql(f"SELECT DISTINCT cluster_id, broker, broker_id FROM {seen} ORDER BY 2").fetchall()
    assert ids == [(CLUSTER_ID, f"kafka-{n}:9092", n) for n in (1, 2, 3)]
    if name != "three recorders":  # a row per recording
        assert rows(other, "versions") == rows(one, "versions")


@pytest.mark.parametrize("name", ["fifteen", "three recorders", MANY])
def test_reports_do_not_depend_on_rotation(read: Callable[[str], Path], name: str) -> None:
    one, other = reported(read("one")), reported(read(name))
    assert other == one
    assert one["compatibility"] and one["groups"] and one["errors"]


@pytest.mark.parametrize("name", ["fifteen", "pcap", MANY])
def test_tables_are_those_of_an_export(recorded: dict[str, Path], read: Callable[[str], Path], name: str) -> None:
    """What the pipeline makes of many files, `barnabas export` and `findings` make of the capture as a whole."""
    with open_capture(recorded[name]) as capture:
        for table in (*MADE, "versions"):
            described = tables.described(table)
            columns = [column for column in described.chosen() if column.name not in left_out(table)]
            exported = tables.Rows(capture, tables.Options(described, columns))
            texts = {column.name for column in columns if column.type == "json"}
            expected = [{c.name: json_text(row[c.name]) if c.name in texts else row[c.name] for c in columns} for row in exported]
            assert sorted(map(repr, expected)) == rows(read(name), table), table
            assert expected or table == "throttles"


def test_the_packets_of_a_segment_are_looked_at_once(
    recorded: dict[str, Path], read: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For findings, a run goes on from where the last one was."""
    looked: list[str] = []
    before = Inspection.read
    monkeypatch.setattr(Inspection, "read", lambda self, path: looked.append(path.name) or before(self, path))
    source, output = tmp_path / "captures", tmp_path / "tables"
    source.mkdir()
    files = sorted(recorded["fifteen"].glob("*.pcapng"))
    for some in (files[:3], files[3:4], files[4:]):
        for file in some:
            shutil.copy2(file, source)
        pipeline.run("none", str(source), str(output), names=("findings",))
    assert looked == [file.name for file in files]
    assert rows(output, "findings") == rows(read("one"), "findings")


def test_run_after_run_gives_what_one_run_gives(recorded: dict[str, Path], read: Callable[[str], Path], tmp_path: Path) -> None:
    """Each run reads what is new; the last segments come before the first, which has the names."""
    source, output = tmp_path / "captures", tmp_path / "tables"
    source.mkdir()
    files = sorted(recorded["fifteen"].glob("*.pcapng"))
    for some in (files[9:], files[4:9], files[:1], files[1:4]):
        for file in some:
            for each in (file, file.with_suffix(".index"), file.with_suffix(".strings")):
                shutil.copy2(each, source)
        done = pipeline.run("none", str(source), str(output))
        assert done.read and not done.damaged
    for table in (*MADE, "versions", "topics"):
        assert rows(output, table) == rows(read("one"), table), table
    again = pipeline.run("none", str(source), str(output))
    assert (again.read, again.recordings) == (0, 0)


def test_names_that_a_killed_run_learned_reach_the_files_that_lacked_them(
    recorded: dict[str, Path], read: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run reads the segments without names, the next is killed once it has learned the names, the third one completes it."""
    source, output = tmp_path / "captures", tmp_path / "tables"
    source.mkdir()
    files = sorted(recorded["fifteen"].glob("*.*"))
    first = files[0].stem
    for file in files:
        if file.stem != first:
            shutil.copy2(file, source)
    pipeline.run("none", str(source), str(output))
    assert rows(output, "batches") != rows(read("one"), "batches")
    for file in files:
        if file.stem == first:
            shutil.copy2(file, source)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run("none", str(source), str(output))
    pipeline.run("none", str(source), str(output))
    for table in (*MADE, "versions", "topics"):
        assert rows(output, table) == rows(read("one"), table), table


def test_a_cluster_may_be_named(recorded: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "tables"
    pipeline.run("none", str(recorded["one"]), str(output), names=("exchanges", "connections"), cluster="east")
    for table in ("exchanges", "connections", "segments"):
        place = f"read_parquet('{output / table}/**/*.parquet', hive_partitioning = false)"
        assert duckdb.sql(f"SELECT DISTINCT cluster_id FROM {place}").fetchall() == [("east",)]


def test_clusters_with_equal_producer_ids_and_groups_are_apart(tmp_path: Path) -> None:
    """Two clusters, made alike: what one sent is not a retry of what the other did, and a group of each is a group of its own."""
    output, made = tmp_path / "tables", steps(600)
    for name in ("east", "west"):
        record(tmp_path / name, made)
        pipeline.run("none", str(tmp_path / name), str(output), cluster=name)
    found = reported(output)
    assert {row["repeated"] for row in found["producers"]} == {0}
    assert sorted((row["cluster_id"], row["group_id"]) for row in found["groups"]) == [
        (cluster, f"group-{n}") for cluster in ("east", "west") for n in range(3)
    ]
    alone = {row["group_id"]: row["generations"] for row in found["groups"] if row["cluster_id"] == "east"}
    assert alone == {row["group_id"]: row["generations"] for row in found["groups"] if row["cluster_id"] == "west"}


@pytest.mark.spark
def test_spark_makes_the_same_tables(recorded: dict[str, Path], read: Callable[[str], Path], spark: Any, tmp_path: Path) -> None:
    done = pipeline.run(spark, str(recorded["fifteen"]), str(tmp_path / "tables"))
    assert done.recordings == 1 and not done.damaged
    for table in (*MADE, "versions", "topics", "brokers"):
        assert rows(tmp_path / "tables", table) == rows(read("fifteen"), table), table
    assert json.loads(json.dumps(done.to_dict()))["recordings"] == 1
