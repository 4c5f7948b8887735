"""`barnabas pipeline run` killed at 20 random moments, without Spark and with it: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from barnabas.captures.tables.output.folder import Folder
from harness.recordings import as_pcap, heartbeats
from harness.waiting import until

from .killed import files, kill, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("BARNABAS_KILLS", "20"))
COUNT = 900


@pytest.mark.parametrize(
    ("master", "step", "seconds", "kind"),
    [
        ("none", "to read", 2.0, "recordings"),
        ("local[2]", "starting Spark", 12.0, "recordings"),
        ("local[2]", "starting Spark", 12.0, "pcaps"),
    ],
)
def test_a_run_that_is_killed(
    tmp_path: Path, master: str, step: str, seconds: float, kind: str, request: pytest.FixtureRequest
) -> None:
    source, output = tmp_path / "captures", tmp_path / "out"
    for first in range(0, COUNT, 50):
        if kind == "pcaps":
            as_pcap(heartbeats(tmp_path / "made" / f"{first}", 50, first=first), source / f"{first}.pcap")
        else:
            heartbeats(source / f"from-{first}", 50, first=first, segment_bytes=2_000)
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(source)]
    command += ["--master", master, "--tables", "exchanges,errors,connections"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    there = os.environ | {"TMPDIR": str(temporary)}
    chance, killed, inside = random.Random(7), 0, 0
    while killed < KILLS:
        process = subprocess.Popen(
            [*command, "--output", str(output)], stderr=subprocess.PIPE, text=True, start_new_session=True, env=there
        )
        assert process.stderr is not None
        for line in process.stderr:
            if step in line:
                break
        before = files(output)
        if killed % 2:  # while it writes
            until(
                lambda process=process, output=output, before=before: (
                    process.poll() is not None or files(output) > before
                ),  # type: ignore[misc]
                "nothing is written",
                pause=0.005,
            )
            time.sleep(chance.random() * seconds / 20)
        else:
            time.sleep(chance.random() * seconds)
        kill(process)
        found = rows(output)
        if process.returncode < 0:
            killed += 1
            inside += 0 < len(found) < COUNT
        else:  # it was sooner: into another folder, so that the next ones have something to do
            assert process.returncode == 0 and found == list(range(COUNT))
            output = output.with_name(f"out-{killed}-{time.time_ns()}")
    assert inside
    done = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True, env=there)
    assert done.returncode == 0, done.stderr
    assert rows(output) == list(range(COUNT)) and Folder(output).verify().problems == []
    assert not list(temporary.iterdir())  # what killed sessions left is gone, too
    spark = request.getfixturevalue("spark")
    found = spark.read.parquet(str(output / "exchanges")).select("correlation_id").collect()
    assert sorted(number for (number,) in found) == list(range(COUNT))
