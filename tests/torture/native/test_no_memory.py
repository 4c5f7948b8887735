"""Without memory the accelerator raises MemoryError or does without: each of its allocations fails once, in turn."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from barnabas.proxy.native.accelerator import native
from harness.waiting import PATIENCE

TESTS = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(native is None, reason="the accelerator is not built")
@pytest.mark.skipif(importlib.util.find_spec("_testcapi") is None, reason="this Python has no hooks of its memory")
def test_every_allocation_fails_once() -> None:
    """With Python's own checks of memory: what is freed twice, or written behind its end, ends the process."""
    program = str(Path(__file__).with_name("no_memory.py"))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", program],
        env=os.environ | {"PYTHONMALLOC": "debug", "PYTHONPATH": str(TESTS), "BARNABAS_PURE": ""},
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    failed = {name: int(count) for name, _, count in (line.rpartition(": ") for line in done.stdout.splitlines())}
    assert len(failed) == 17 and all(failed.values()), failed
