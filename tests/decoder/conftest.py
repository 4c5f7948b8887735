"""Generated messages, every message that there is, and reference material."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.generator import Generator, triples


@pytest.fixture
def generator() -> Generator:
    return Generator(20240229)


@pytest.fixture(scope="session")
def every_triple() -> list[tuple[str, int, int]]:
    return list(triples())


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference material beside the repository; tests that need it skip where it is not."""
    folder = Path(__file__).parents[3] / "shared" / "reference"
    if not folder.is_dir():
        pytest.skip("the reference material is not beside this checkout")
    return folder


@pytest.fixture
def vectors(reference: Path) -> Callable[[str], list[dict[str, Any]]]:
    import json

    return lambda name: [json.loads(line) for line in (reference / "vectors" / name).read_text().splitlines()]
