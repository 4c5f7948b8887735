"""`barnabas -v` and `barnabas --log-file`: what the processes of a proxy log."""

from __future__ import annotations

import json
from pathlib import Path


def test_all_processes_log_to_one_file(run, tmp_path: Path) -> None:
    done = run("--log-file", "log", "demo", "--headless", "--seconds", "1", "--record", "recorded")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "log").read_text("utf-8").splitlines()]
    begun = {line["process"]: line["message"] for line in lines if line["logger"] == "barnabas.proxy.processes.child"}
    assert {"process loop begins", "process observer begins"} <= set(begun.values())
    owner = lines[0]["process"]
    assert lines[0]["message"].startswith("barnabas ")
    assert owner not in begun
    assert any(line["process"] == owner and line["message"].startswith("Listening: ") for line in lines)
    assert {line["level"] for line in lines} <= {"info", "warning"}


def test_verbose_logs_to_stderr(run) -> None:
    assert " INFO " not in run("schema", "release", "4.0").stderr
    assert " INFO " in run("-v", "schema", "release", "4.0").stderr


def test_a_log_file_that_cannot_be_written_ends_it_at_once(run) -> None:
    done = run("--log-file", "none/log", "schema", "release", "4.0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("barnabas: --log-file ")
    assert "choose another file" in done.stderr
