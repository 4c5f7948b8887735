"""``barnabas export`` from outside, and what it writes run against brokers that others made (librdkafka's)."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.ui.cli.common.failure import Failure
from harness import commands
from harness.run.lines import line
from harness.waiting import PATIENCE
from harness.wire import with_size


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas.ui.demo.cluster", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    try:
        yield json.loads(line(process, "the mock cluster"))["bootstrap"]
    finally:
        process.stdin.close()
        process.wait(PATIENCE)


def recorded(directory: Path, broker: str) -> Path:
    """A recording of a few requests to a broker: Metadata, and a Produce that fails."""
    host, _, port = broker.rpartition(":")
    batch = decoder.records.encode_batch([decoder.records.Record(0, 1_700_000_000_000, b"key", b"the-payload", ())])

    def produce(topic: str) -> dict[str, object]:
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        return {"acks": -1, "timeout_ms": 5000, "topic_data": topics}

    asked = [(18, 0, {}), (3, 9, {"topics": [{"name": "orders"}]}), (18, 0, {}), (0, 7, produce("nowhere"))]
    recorder = Recorder(directory)
    with socket.create_connection((host, int(port)), PATIENCE) as connection, connection.makefile("rb") as stream:
        recorder.opened(1, 1000, client=connection.getsockname(), broker=connection.getpeername())
        for number, (key, version, fields) in enumerate(asked):
            frame = decoder.encode_request(key, version, fields, correlation_id=number, client_id='it\'s "me"\n')
            recorder.data(1, 0, 2000 + 10 * number, with_size(frame))
            connection.sendall(with_size(frame))
            size = stream.read(4)
            recorder.data(1, 1, 2005 + 10 * number, size + stream.read(int.from_bytes(size, "big")))
    recorder.close()
    return directory


def test_programs_and_cases_run(run, tmp_path: Path, cluster: str) -> None:
    capture = recorded(tmp_path / "recording", cluster)
    for number in (2, 4):
        for form, name in (("python", f"ask{number}.py"), ("pytest", f"test_ask{number}.py")):
            done = run("export", capture, "--exchange", number, "--as", form, "-o", name)
            assert done.returncode == 0 and not done.stdout, done.stderr
            assert "the-payload" not in (tmp_path / name).read_text()
        done = subprocess.run(
            [sys.executable, f"ask{number}.py", cluster], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr
        printed = json.loads(done.stdout)
        if number == 2:
            assert [topic["name"] for topic in printed["topics"]] == ["orders"]
        else:
            (topic,) = printed["responses"]
            assert topic["partition_responses"][0]["error_code"] == 3
    environment = {**os.environ, "BARNABAS_BROKER": cluster}
    case = (tmp_path / "test_ask4.py").read_text()
    (tmp_path / "test_wrong4.py").write_text(case.replace("error_code': 3", "error_code': 0"))
    cases = ["test_ask2.py", "test_ask4.py", "test_wrong4.py"]
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *cases]
    done = subprocess.run(pytest_run, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert done.returncode == 1 and "1 failed, 2 passed" in done.stdout, done.stdout
    assert "FAILED test_wrong4.py::" in done.stdout, "the case has to be able to fail"


def test_tables_in_files(run, tmp_path: Path, recording: Path) -> None:
    done = run(
        "export", recording, "--columns", "api,error", "--filter", "api != Metadata", "--limit", 2, "-o", "a.csv"
    )
    assert done.returncode == 0 and "2 rows of exchanges in a.csv" in done.stderr
    with open(tmp_path / "a.csv", newline="") as file:
        assert list(csv.reader(file)) == [["api", "error"], ["Produce", ""], ["Heartbeat", "REBALANCE_IN_PROGRESS"]]
    bodies = run("export", recording, "--bodies", "--filter", "api == Produce")
    assert [json.loads(line)["request"]["acks"] for line in bodies.stdout.splitlines()] == [-1, 0]
    hidden = run("export", recording, "-t", "records").stdout + bodies.stdout
    assert "the-secret-payload" not in hidden and b"the-secret-payload".hex() not in hidden
    shown = run("export", recording, "-t", "records", "--show-values", "-o", "r.parquet")
    assert shown.returncode == 0, shown.stderr
    from pyarrow import parquet

    assert parquet.read_table(tmp_path / "r.parquet").column("value").to_pylist() == ["the-secret-payload"] * 2
    assert "errors: one row per" in run("export", "--list").stdout


@pytest.mark.parametrize(
    ("name", "form", "message"),
    [("x.html", [], "no format has names like this"), ("x.csv", ["--as", "jsonl"], "is a name for csv"), ("x.py", ["--as", "csv"], "python")],
)
def test_a_file_whose_name_says_another_format_is_not_written(run, tmp_path: Path, recording: Path, name: str, form: list[str], message: str) -> None:
    done = run("export", recording, "-o", name, *form)
    assert done.returncode == 2 and message in done.stderr and not (tmp_path / name).exists()


def test_names_that_fit_a_format(run, tmp_path: Path, recording: Path) -> None:
    for name, form in (("rows.json", ["--as", "jsonl"]), ("rows.html", ["--as", "csv"]), ("rows", [])):
        assert run("export", recording, "-o", name, *form).returncode == 0 and (tmp_path / name).exists()


def test_a_missing_pyarrow_is_named_with_the_extra(
    tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused = commands.here("export", recording, "-o", tmp_path / "x.parquet")
    assert isinstance(refused.exception, Failure) and "pip install '.[report]'" in str(refused.exception)
    assert not (tmp_path / "x.parquet").exists()
    done = commands.here("export", recording, "-o", tmp_path / "x.csv")
    assert done.exit_code == 0, done.output
