"""Each target of the accelerator over its corpus, and over a few mutations of it; in the slow run under sanitizers, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from barnabas.proxy.native.accelerator import native
from harness.waiting import PATIENCE
from torture.decoder import sanitized
from torture.native import targets

TESTS = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(native is None, reason="the accelerator is not built")
CASES = [pytest.param(name, path, id=f"{name}-{path.name}") for name in targets.TARGETS for path, _ in targets.inputs(name)]
REFUSED: set[str] = set()
"""Inputs of the corpus that are refused: none, as all were read once."""


@pytest.mark.parametrize(("name", "path"), CASES)
def test_the_corpus(name: str, path: Path) -> None:
    data = path.read_bytes()
    assert len(data) < 4096
    assert targets.tried(name, data) == (path.name not in REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("name", targets.TARGETS)
def test_mutations(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torture.native.targets", name, "--runs", "300"],
        cwd=TESTS, capture_output=True, text=True, timeout=4 * PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    read, _, refused = done.stdout.split(": ")[1].partition(" read, ")
    assert int(read) > 100 and int(read) + int(refused.split()[0]) > 300


def test_an_input_that_ends_the_process_is_kept(tmp_path: Path) -> None:
    """What a target was given when it went wrong stands in a file, which is named."""
    program = (
        "import sys; from torture.native import targets; import ctypes;"
        "targets.TARGETS['record_areas'] = lambda data: ctypes.string_at(0);"
        "targets.main(['record_areas', '--runs', '1'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=TESTS, env={"TMPDIR": str(tmp_path)}, capture_output=True, timeout=PATIENCE
    )
    assert done.returncode < 0
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith("barnabas-record_areas-") and kept.read_bytes() in [data for _, data in targets.inputs("record_areas")]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sanitized.library("libasan.so") is None, reason="gcc with its sanitizer libraries is not here")
@pytest.mark.parametrize("what", [("targets", "--runs", "2000"), ("no-memory",)], ids=lambda what: what[0])
def test_under_sanitizers(what: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torture.decoder.sanitized", *what], cwd=TESTS, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
