"""Captures of other tools in the pipeline: who reads them for their names, and how often."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from barnabas.captures.spark import pipeline
from barnabas.captures.tables.output.folder import Folder
from barnabas.decoder.records import Record, encode_batch
from harness.recordings import RecordingBuilder, as_pcap, heartbeats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ["exchanges", "errors", "connections", "findings"]
_opened: Counter[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and str(arguments[0]).endswith((".pcap", ".pcap.gz")):
        _opened[Path(arguments[0]).name] += 1


sys.addaudithook(_hook)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often this process has opened each pcap."""
    counter = Counter[str]()
    monkeypatch.setattr(f"{__name__}._opened", counter)
    return counter


def beats(tmp_path: Path, name: str, first: int, error: bool = False) -> Path:
    """A capture of five heartbeats, the correlation ids of which begin with `first`."""
    place = tmp_path / "made" / f"{name}-{error}"
    return as_pcap(heartbeats(place, 5, first=first, error=lambda number: error), tmp_path / f"{name}-{error}.pcap")


def rows(output: Path, table: str = "exchanges") -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = duckdb.sql(f"SELECT correlation_id, error_code FROM '{output}/{table}/**/*.parquet' ORDER BY ALL").fetchall()
    return found


def expected(*captures: tuple[int, bool]) -> list[tuple[int, int]]:
    return sorted((number, 25 * error) for first, error in captures for number in range(first, first + 5))


@pytest.mark.parametrize("master", ["none", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_folder_that_changes(tmp_path: Path, master: str, opened: Counter[str], request: pytest.FixtureRequest) -> None:
    """Copies, touched files, other content of the same size, files that go: the rows are right, and no file is read for its name twice."""
    engine = request.getfixturevalue("spark") if master == "spark" else pipeline.NO_SPARK
    source, output = tmp_path / "captures", tmp_path / "out"
    source.mkdir()
    old, new, other = (beats(tmp_path, name, first, error) for name, first, error in (("a", 0, False), ("a", 0, True), ("b", 10, False)))
    assert old.stat().st_size == new.stat().st_size
    a, b, copy = source / "a.pcap", source / "b.pcap", source / "copy.pcap"
    shutil.copy(old, a)
    shutil.copy(other, b)
    shutil.copy(old, copy)

    def run() -> pipeline.PipelineResult:
        opened.clear()
        done = pipeline.run(engine, source, output, names=NAMES)
        if master == "spark":
            assert not opened  # in the driver
        assert Folder(output).verify().problems == []
        return done

    done = run()
    assert done.read == 2 and done.left_out == [f"{copy}: the same capture as {a}"]
    assert rows(output) == expected((0, False), (10, False))
    assert master == "spark" or (opened["copy.pcap"] and opened["a.pcap"])  # that they are counted
    assert run().read == 0 and not opened
    os.utime(b, ns=(1, 1))
    assert run().read == 0 and rows(output) == expected((0, False), (10, False))
    assert run().read == 0 and not opened  # what was touched is known by then
    shutil.copy(new, a)
    done = run()
    assert (done.read, done.removed, done.left_out) == (1, 0, [])  # the old content is in the copy
    assert rows(output) == expected((0, False), (0, True), (10, False)) and len(rows(output, "errors")) == 5
    copy.write_bytes(new.read_bytes())
    done = run()
    assert (done.read, done.removed) == (0, 1) and done.left_out == [f"{copy}: the same capture as {a}"]
    assert rows(output) == expected((0, True), (10, False))  # the first content is nowhere now
    b.unlink()
    shutil.copy(other, copy)
    assert run().read == 0 and rows(output) == expected((0, True), (10, False))
    shutil.copy(old, copy)
    assert run().read == 1 and rows(output) == expected((0, False), (0, True), (10, False))  # rows of files that are gone are kept
    assert run().read == 0 and not opened
    copy.unlink()
    shutil.copy(other, a)
    done = run()
    assert (done.read, done.removed) == (0, 1) and rows(output) == expected((0, False), (10, False))
    (output / ".fingerprints").write_text("damaged")
    assert run().read == 0 and rows(output) == expected((0, False), (10, False))


def test_content_that_is_gone(tmp_path: Path) -> None:
    """Of a file that has other content, the rows of the old one go."""
    source, output = tmp_path / "captures", tmp_path / "out"
    source.mkdir()
    for error in (False, True):
        shutil.copy(beats(tmp_path, "a", 0, error), source / "a.pcap")
        pipeline.run(pipeline.NO_SPARK, source, output, names=NAMES)
        assert rows(output) == expected((0, error))


def test_names_of_topics_that_come_later(tmp_path: Path) -> None:
    """A capture that is read again for them keeps its own name in all tables."""
    source, output, topic_id = tmp_path / "captures", tmp_path / "out", bytes(15) + b"\1"
    with RecordingBuilder(tmp_path / "made" / "produce") as recording:
        part = {"index": 0, "records": encode_batch([Record(offset=0, timestamp=10**12, key=None, value=b"v")])}
        asked = {"acks": -1, "topic_data": [{"topic_id": topic_id, "partition_data": [part]}]}
        recording.exchange("Produce", 13, asked, {"responses": [{"topic_id": topic_id, "partition_responses": [{"index": 0}]}]})
    as_pcap(tmp_path / "made" / "produce", source / "a.pcap")
    pipeline.run(pipeline.NO_SPARK, source, output, names=["exchanges", "batches"])
    with RecordingBuilder(tmp_path / "made" / "names") as recording:
        recording.exchange("Metadata", 12, {"topics": None}, {"topics": [{"name": "orders", "topic_id": topic_id, "partitions": []}]})
    as_pcap(tmp_path / "made" / "names", source / "b.pcap")
    pipeline.run(pipeline.NO_SPARK, source, output)
    asked_of = f"SELECT topic, capture_id IN (SELECT capture_id FROM '{output}/segments/**/*.parquet') FROM '{output}/batches/**/*.parquet'"
    assert duckdb.sql(asked_of).fetchall() == [("orders", True)]


@pytest.mark.spark
def test_the_planner_of_a_stream(tmp_path: Path, opened: Counter[str], spark: SparkSession) -> None:
    """It reads no capture: tasks have named those that have been still for a minute, and read them."""
    from barnabas.captures.spark.pipeline_source import _Following
    from barnabas.captures.spark.steps import OnSpark

    source, output = tmp_path / "captures", tmp_path / "out"
    source.mkdir()
    for name, first in (("a", 0), ("b", 10)):
        shutil.copy(beats(tmp_path, name, first), source / f"{name}.pcap")
    os.utime(source / "a.pcap", ns=(10**9, 10**9))
    folder = Folder(output, NAMES)
    folder.prepare()
    opened.clear()
    following = _Following(folder, str(source), 64, "")
    start = following.initialOffset()
    assert following.latestOffset(start) == start
    pipeline._name_settled(folder, source, OnSpark(spark, folder, lambda text: None))
    (part,) = following.partitions(start, following.latestOffset(start))
    assert [each.path.name for each in part.chunk.segments] == ["a.pcap"] and not opened


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_over_a_capture_that_changes(tmp_path: Path, opened: Counter[str], spark: SparkSession) -> None:
    source, output = tmp_path / "captures", tmp_path / "out"
    source.mkdir()
    for number, error in enumerate((False, True)):
        shutil.copy(beats(tmp_path, "a", 0, error), source / "a.pcap")
        os.utime(source / "a.pcap", ns=(number, number))
        opened.clear()
        pipeline.stream(spark, source, output, names=NAMES, once=True)
        assert rows(output) == expected((0, error)) and not opened
        assert Folder(output).verify().problems == []
