"""`barnabas pipeline run` killed at 20 random moments, without Spark and with it: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
from barnabas import decoder
from barnabas.captures import Recorder
from pyarrow import parquet

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("BARNABAS_KILLS", "20"))
COUNT = 900


def rows(output: Path) -> list[int]:
    """What both readers find."""
    table = output / "exchanges"
    if not table.is_dir():
        return []
    asked = f"select correlation_id from '{table}/**/*.parquet' order by 1"
    found = [number for (number,) in duckdb.connect().execute(asked).fetchall()]
    assert found == sorted(parquet.read_table(table, columns=["correlation_id"])["correlation_id"].to_pylist())
    assert len(found) == len(set(found))
    return found


@pytest.mark.parametrize(("master", "step", "seconds"), [("none", "to read", 0.4), ("local[2]", "starting Spark", 12.0)])
def test_a_run_that_is_killed(
    tmp_path: Path, master: str, step: str, seconds: float, request: pytest.FixtureRequest
) -> None:
    source, output = tmp_path / "recording", tmp_path / "out"
    recorder = Recorder(source, segment_bytes=8_000)
    recorder.opened(1, 1_000, ("127.0.0.1", 50001), ("127.0.0.1", 9092))
    for number in range(COUNT):
        for direction, frame in (
            (0, decoder.encode_request(12, 4, {}, correlation_id=number, client_id="stock")),
            (1, decoder.encode_response(12, 4, {}, correlation_id=number)),
        ):
            recorder.data(1, direction, 10**18 + 10**6 * number, len(frame).to_bytes(4, "big") + frame)
    recorder.close()
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", "--input", str(source), "--output", str(output)]
    command += ["--master", master, "--tables", "exchanges,errors,connections"]
    chance, killed = random.Random(7), 0
    for _ in range(KILLS):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stderr is not None
        for line in process.stderr:
            if step in line:
                break
        time.sleep(chance.random() * seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        killed += process.returncode < 0
        rows(output)
    assert killed
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert rows(output) == list(range(COUNT))
    spark = request.getfixturevalue("spark")
    found = spark.read.parquet(str(output / "exchanges")).select("correlation_id").collect()
    assert sorted(number for (number,) in found) == list(range(COUNT))
