"""A proxy of the module: each test has its own version of its plugins' file loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .stage import Stage


@pytest.fixture(scope="module")
def make_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Stage]]:
    """``make_stage(**settings)``; closed behind the module."""
    made: list[Stage] = []

    def make(**settings: Any) -> Stage:
        made.append(Stage(tmp_path_factory.mktemp("plugins"), **settings))
        return made[-1]

    yield make
    for stage in made:
        stage.close()
