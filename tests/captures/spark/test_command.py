"""`barnabas pipeline run` as a user runs it: what it prints, how it ends, and that no JVM outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Recorder
from pyarrow import parquet

pytestmark = pytest.mark.spark


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    recorder = Recorder(tmp_path / "recording")
    recorder.opened(1, 1_000, ("127.0.0.1", 50001), ("127.0.0.1", 9092))
    for number in range(5):
        for direction, frame in (
            (0, decoder.encode_request(12, 4, {}, correlation_id=number, client_id="\x1b[31mstock")),
            (1, decoder.encode_response(12, 4, {"error_code": 25 * (number == 3)}, correlation_id=number)),
        ):
            recorder.data(1, direction, 2_000 + 1_000_000 * number, len(frame).to_bytes(4, "big") + frame)
    recorder.close()
    return tmp_path / "recording"


def start(source: Path, output: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", "--input", str(source), "--output", str(output)]
    return subprocess.Popen(
        [*command, *more],
        cwd=source.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def nobody_left(group: int) -> bool:
    """No process of the group is alive, the JVM and Spark's Python workers included."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_run_writes_the_table_and_prints_the_report(recording: Path, tmp_path: Path) -> None:
    process = start(recording, tmp_path / "out", "--json", "--master", "local[1]")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert nobody_left(process.pid)
    document = json.loads(stdout)
    assert (document["requests"], document["errors"], document["error_rate"]) == (5, 1, 0.2)
    assert [line["client_id"] for line in document["by_api_and_client"]] == ["\x1b[31mstock"]
    assert parquet.read_table(tmp_path / "out" / "exchanges").num_rows == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "recording"]
    # Steps only: nothing of what the JVM says about itself.
    steps = [line.split(" s  ", 1)[1] for line in stderr.splitlines()]
    assert [step.split(":")[0].split(",")[0] for step in steps if ":" not in step] == [
        "1 segment",
        "starting Spark",
        "writing the table",
        "computing the report",
        "stopping Spark",
        f"the table is in {tmp_path / 'out' / 'exchanges'}",
    ]


@pytest.mark.parametrize("step", ["starting Spark", "writing the table"])
def test_an_interrupt_leaves_nothing_behind(recording: Path, tmp_path: Path, step: str) -> None:
    process = start(recording, tmp_path / "out")
    assert process.stderr is not None
    for line in process.stderr:
        if step in line:
            break
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == "barnabas: interrupted; the table holds whole segments only, run again to complete it\n"
    assert nobody_left(process.pid)
    assert {path.name for path in (tmp_path / "out").iterdir()} <= {".barnabas.lock", "exchanges"}


def test_mistakes_end_with_one_line_and_status_2(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    process = start(tmp_path / "empty", tmp_path / "out")
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (2, "")
    assert stderr.startswith(f"barnabas: {tmp_path / 'empty'}: no recording is in it") and stderr.count("\n") == 1


def test_the_report_for_people_shows_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from barnabas.captures.spark.report import Line, Report
    from barnabas.ui.cli.pipeline import _show

    total = Line(None, None, 12_345, 29, 1, 2, 7e5, 1.1e9)
    _show(Report(total, [Line("Heartbeat", "\x1b[31m[red]x", 12_345, 29, 0, 0, 999.0, None), total]))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\\x1b[31m[red]x" in shown and "(none)" in shown
    for text in ("12,345", "0.23%", "1 µs", "1.10 s", "responses without a request: 1", "undecoded exchanges: 2"):
        assert text in shown
