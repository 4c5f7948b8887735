"""`pipeline run --format delta` and `pipeline compact` killed at 20 random moments each: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from barnabas.captures.reports.duck import Duck
from barnabas.captures.spark import pipeline
from barnabas.captures.spark.engine import Spark
from barnabas.captures.tables.output.folder import Folder, TableFormat
from harness.recordings import heartbeats
from harness.waiting import PATIENCE, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]
DeltaTable = pytest.importorskip("deltalake").DeltaTable
KILLS = int(os.environ.get("BARNABAS_KILLS", "20"))
COUNT, EACH = 600, 30
NAMES = ["exchanges", "frames", "connections"]
NUMBERS = "SELECT correlation_id FROM exchanges ORDER BY 1"


def start(*arguments: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "barnabas", "pipeline", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True)


def versions(output: Path) -> int:
    """Files of the logs, and of rows: what changes while one writes."""
    return sum(1 for each in ("*/_delta_log/*.json", "*/*/*.parquet", ".landed/written/*") for _ in output.glob(each))


def kill_at_random(process: subprocess.Popen[str], output: Path, chance: random.Random, seconds: float) -> bool:
    """Kill it soon after it has begun to write; whether it was not sooner."""
    before = versions(output)
    until(lambda: process.poll() is not None or versions(output) != before, "nothing is written", pause=0.002)
    time.sleep(chance.random() * seconds)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, -signal.SIGKILL), said
    return process.returncode != 0


def numbers(output: Path, spark: SparkSession) -> list[int]:
    """The correlation ids that DuckDB, Spark and deltalake find, in which none is twice."""
    with Duck(output) as engine:
        found = [row["correlation_id"] for row in engine.query(NUMBERS)]
    assert found == [row["correlation_id"] for row in Spark(spark, output).query(NUMBERS)]
    assert found == sorted(DeltaTable(str(output / "exchanges")).to_pyarrow_table()["correlation_id"].to_pylist())
    assert len(found) == len(set(found))
    return found


def test_commits_that_are_killed(tmp_path: Path, spark: SparkSession) -> None:
    source, output = tmp_path / "captures", tmp_path / "out"
    options = ("run", source, "--master", "none", "--tables", ",".join(NAMES), "--format", "delta", "--output")
    chance, killed, inside, first = random.Random(7), 0, 0, 0
    while killed < KILLS:
        if first == COUNT:
            output, first = output.with_name(f"out-{killed}-{time.time_ns()}"), EACH
        else:  # more of it is there each time, so that rows of chunks and recordings are replaced
            heartbeats(source / f"from-{first}", EACH, first=first, segment_bytes=1_000)
            first += EACH
        there = numbers(output, spark) if (output / "exchanges" / "_delta_log").exists() else []
        if kill_at_random(start(*options, output), output, chance, 0.6):
            killed += 1
            found = numbers(output, spark) if (output / "exchanges" / "_delta_log").exists() and Folder(output).held() else []
            assert set(found) >= set(there)
            inside += found != there
    done = start(*options, output)
    assert done.wait(PATIENCE) == 0, done.communicate()
    assert inside
    assert numbers(output, spark) == list(range(len(list(source.iterdir())) * EACH)) and Folder(output).verify().problems == []


def test_compaction_that_is_killed(tmp_path: Path, spark: SparkSession) -> None:
    source, output = tmp_path / "captures", tmp_path / "out"
    chance, killed, first = random.Random(11), 0, 0
    while killed < KILLS:
        for _ in range(3):
            heartbeats(source / f"from-{first}", 10, first=first, segment_bytes=1_000)
            first += 10
        pipeline.run(pipeline.NO_SPARK, source, output, names=NAMES, table_format=TableFormat.DELTA)
        killed += kill_at_random(start("compact", output, "--retention", 0), output, chance, 0.25)
        assert numbers(output, spark) == list(range(first))
    done = start("compact", output, "--retention", 0)
    assert done.wait(PATIENCE) == 0, done.communicate()
    assert numbers(output, spark) == list(range(first)) and Folder(output).verify().problems == []
    assert {len(Folder(output).paths(name)) for name in NAMES} == {1}
