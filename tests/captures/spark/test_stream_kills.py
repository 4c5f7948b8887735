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
from barnabas import decoder
from barnabas.captures import Recorder
from harness.wire import with_size

from .killed import files, kill, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("BARNABAS_KILLS", "20"))


def start(source: Path, output: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "barnabas", "pipeline", "stream", "--input", str(source), "--output", str(output)]
    command += ["--master", "local[2]", "--tables", "exchanges,errors,connections", *more]
    temporary = source.with_name("temporary")
    temporary.mkdir(exist_ok=True)
    there = os.environ | {"TMPDIR": str(temporary)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=there
    )


def test_a_stream_that_is_killed(tmp_path: Path, spark: SparkSession) -> None:
    source, output = tmp_path / "recording", tmp_path / "out"
    over = threading.Event()
    count = 0

    def record() -> None:
        nonlocal count
        recorder = Recorder(source, segment_bytes=20_000)
        recorder.opened(1, 1_000, ("127.0.0.1", 50001), ("127.0.0.1", 9092))
        while not over.wait(0.02):
            for direction, frame in (
                (0, decoder.encode_request(12, 4, {}, correlation_id=count, client_id="stock")),
                (1, decoder.encode_response(12, 4, {}, correlation_id=count)),
            ):
                recorder.data(1, direction, 10**18 + 10**6 * count, with_size(frame))
            count += 1
        recorder.close()

    recording = threading.Thread(target=record)
    recording.start()
    try:
        chance = random.Random(11)
        while not source.is_dir():
            time.sleep(0.05)
        for _ in range(KILLS):
            process = start(source, output, "--every", "0.5")
            assert process.stdout is not None
            for line in process.stdout:
                if "following" in line:
                    break
            before = files(output)
            while files(output) <= before:  # it has begun to write
                assert process.poll() is None
                time.sleep(0.02)
            time.sleep(chance.random() * 2)
            kill(process)
            found = rows(output)
            assert found
    finally:
        over.set()
        recording.join()
    process = start(source, output, "--once")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert rows(output) == list(range(count)) and count > 100
    assert not list((tmp_path / "temporary").iterdir())
    found = spark.read.parquet(str(output / "exchanges")).select("correlation_id").collect()
    assert sorted(number for (number,) in found) == list(range(count))
