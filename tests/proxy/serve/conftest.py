"""Small recordings of real clients and a real broker, as copies that may be written beside."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

RECORDED = Path(__file__).parents[2] / "captures" / "serving" / "recorded"


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[str], Path]:
    """``recorded("transactions")``: a folder with that recording."""

    def copy(name: str) -> Path:
        folder = tmp_path / f"recorded-{name}"
        folder.mkdir()
        shutil.copy(RECORDED / f"{name}.pcapng", folder)
        return folder

    return copy
