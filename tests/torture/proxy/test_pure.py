"""The relay without the accelerator: the same cuts, strays and ids, in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "chosen"),
    [("test_strays.py", "mixed or without_end"), ("test_cuts.py", "anywhere"), ("test_correlation.py", "test_ids")],
)
def test_without_the_accelerator(module: str, chosen: str) -> None:
    program = (
        "import sys, pytest; from barnabas.proxy.relay.correlation import Queue, PlainQueue; assert Queue is PlainQueue;"
        "sys.exit(pytest.main(['-q', '-n', '0', '-p', 'no:cacheprovider', '-m', '', *sys.argv[1:]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(HERE / module), "-k", chosen],
        env=os.environ | {"BARNABAS_PURE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "skipped" not in done.stdout
