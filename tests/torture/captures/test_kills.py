"""Recorders killed at random moments, 3 of them every day (`killed.py --count 1000` for more): nothing older than the flush
period is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("kills", [3, pytest.param(65, marks=pytest.mark.slow)])
def test_kills(kills: int) -> None:
    # In a process of its own: it forks, which one with threads must not.
    program = Path(__file__).with_name("killed.py")
    command = [sys.executable, str(program), "--count", str(kills), "--tshark", str(max(kills // 5, 2))]
    environment = os.environ | {"PYTHONPATH": str(program.parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout)
    assert (counts["kills"], counts["faulty"]) == (kills, 0)
    assert counts["there"] >= counts["due"] > 20 * kills
    assert counts["files"] >= kills - counts["at_the_start"]
