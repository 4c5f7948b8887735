"""A run of the tests that is interrupted, or killed, leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from harness.peers.namespaces import missing
from harness.run.session import NAME
from harness.waiting import PATIENCE, until

TESTS = Path(__file__).parents[2]
# A test that leaves everything it can: a process in a session of its own, files, and where it may a network namespace.
LEAVES = """
import json, os, subprocess, sys, tempfile, time
from pathlib import Path

def test_it():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    namespace = "barnabas-" + os.environ["BARNABAS_TEST_SESSION"] + "-left"
    if {root}:
        subprocess.run(["ip", "netns", "add", namespace], check=True)
    left = {{"pid": child.pid, "files": [tempfile.mkdtemp(), os.environ["BARNABAS_TEST_BROKERS"]], "namespace": namespace}}
    Path({note!r}).with_suffix(".new").write_text(json.dumps(left))
    Path({note!r}).with_suffix(".new").rename({note!r})
    time.sleep(1000)
"""


def begin(folder: Path, workers: int) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """A pytest run in a process group of its own, once its test has left things; and what these are."""
    note = folder / "note"
    (folder / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(TESTS)!r})\nfrom harness.run import session\n"
        "def pytest_configure(config):\n    session.install(config)\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(LEAVES.format(root=not missing(), note=str(note)))
    inherited = ("PYTEST_", "BARNABAS_TEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(inherited)}
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-p", "no:cacheprovider"],
        cwd=folder, env=environment | {"TMPDIR": str(folder)}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    until(lambda: note.exists() or run.poll() is not None, "the test has not begun")
    assert note.exists(), run.communicate()[0]
    return run, json.loads(note.read_text())


def still_there(left: dict[str, Any]) -> list[Any]:
    """What of it has not gone."""
    process = Path(f"/proc/{left['pid']}/cmdline")
    try:
        runs = bool(process.read_bytes())  # a zombie has no command line
    except OSError:
        runs = False
    files = [each for each in left["files"] if Path(each).exists()]
    namespace = Path("/run/netns", left["namespace"])
    return [left["pid"]] * runs + files + [namespace] * namespace.exists()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by /proc")
@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_leaves_nothing(tmp_path: Path, workers: int) -> None:
    run, left = begin(tmp_path, workers)
    assert len(still_there(left)) == 3 + (not missing())
    os.killpg(run.pid, signal.SIGINT)
    output, _ = run.communicate(timeout=PATIENCE)
    assert still_there(left) == [], output
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert list(tmp_path.glob("barnabas-tests-*")) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by /proc")
def test_the_next_run_cleans_up_after_one_that_was_killed(tmp_path: Path) -> None:
    run, left = begin(tmp_path, 0)
    run.kill()
    run.communicate()
    assert len(still_there(left)) == 3 + (not missing())
    program = "from harness.run import session; session.start().clean_up()"
    environment = {name: value for name, value in os.environ.items() if name != NAME}
    subprocess.run([sys.executable, "-c", program], cwd=TESTS, env=environment | {"TMPDIR": str(tmp_path)}, check=True)
    assert still_there(left) == []


def test_temporary_files_are_those_of_the_run() -> None:
    assert Path(tempfile.gettempdir()).name == f"barnabas-tests-{os.environ[NAME]}"
