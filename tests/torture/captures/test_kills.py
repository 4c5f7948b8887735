"""Recorders killed at 15 random moments, 50 where it may take longer (`killed.py --count 1000` for more): nothing older than the flush period is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kills", [15, pytest.param(50, marks=pytest.mark.slow)])
def test_kills(kills: int) -> None:
    # In a process of its own: it forks, which one with threads must not.
    program = Path(__file__).with_name("killed.py")
    done = subprocess.run(
        [sys.executable, str(program), "--count", str(kills), "--tshark", str(kills // 5)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["kills"] == kills
    assert told["faulty"] == 0
    assert told["there"] >= told["due"] > 20 * kills
    assert told["files"] >= 0.9 * kills
