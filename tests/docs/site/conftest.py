"""The documentation site, built once for the tests of its pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "-f", ROOT / "mkdocs.yml", "-d", folder],
        capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
