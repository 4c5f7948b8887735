"""The story: a recording with one exchange of every kind that the screens must show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.captures import Capture, open_capture
from traffic.every_kind import NUMBERS, write_story


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's settings or history are read or written."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="session")
def story_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("story") / "run"
    write_story(path)
    return path


@pytest.fixture
def story(story_path: Path) -> Iterator[Capture]:
    with open_capture(story_path) as capture:
        yield capture


@pytest.fixture(scope="session")
def numbers() -> dict[str, int]:
    """The row of each exchange of the story, by what it is."""
    return NUMBERS
