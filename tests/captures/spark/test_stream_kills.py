"""`barnabas pipeline stream` killed at random moments while something is recorded: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from barnabas.captures.tables.output.folder import Folder
from harness.recordings import RecordingBuilder
from harness.waiting import until

from .killed import kill, read_files, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("BARNABAS_KILLS", "20"))


def start(source: Path, output: Path, output_file: Path, *more: str) -> subprocess.Popen[str]:
    """`output_file`: takes what it prints."""
    command = [sys.executable, "-m", "barnabas", "pipeline", "stream", str(source), "--output", str(output)]
    command += ["--master", "local[2]", "--tables", "exchanges,errors,connections", *more]
    temporary = source.with_name("temporary")
    temporary.mkdir(exist_ok=True)
    there = os.environ | {"TMPDIR": str(temporary)}
    with output_file.open("w") as file:
        return subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=there
        )


def test_a_stream_that_is_killed(tmp_path: Path, spark: SparkSession) -> None:
    source, output, output_file = tmp_path / "recording", tmp_path / "out", tmp_path / "output.txt"
    over = threading.Event()
    count = 0

    def record() -> None:
        nonlocal count
        with RecordingBuilder(source, segment_bytes=20_000) as recording:
            while not over.wait(0.02):
                recording.exchange("Heartbeat", 4, {}, {}, correlation_id=count)
                count += 1

    recording = threading.Thread(target=record)
    recording.start()
    try:
        chance = random.Random(11)
        until(source.is_dir, "nothing is recorded")
        for _ in range(KILLS):
            process = start(source, output, output_file, "--every", "0.5")
            until(lambda: "following" in output_file.read_text(), output_file.read_text)
            before = read_files(output)
            until(lambda before=before: read_files(output) != before, output_file.read_text)  # type: ignore[misc]
            time.sleep(chance.random() * 2)
            kill(process)
            found = rows(output)
            assert found
    finally:
        over.set()
        recording.join()
    assert start(source, output, output_file, "--once").wait() == 0, output_file.read_text()
    assert rows(output) == list(range(count)) and count > 100 and Folder(output).verify().problems == []
    assert not list((tmp_path / "temporary").iterdir())
    found = spark.read.parquet(str(output / "exchanges")).select("correlation_id").collect()
    assert sorted(number for (number,) in found) == list(range(count))
