"""A played broker and a recording to replay to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from barnabas.decoder.codec.message import Message
from harness.peers.scripted_broker import Answer, Heard, Play, Played, Tape


@pytest.fixture
def play() -> Iterator[Play]:
    """``play(answers, offers=...)``: a broker that is played."""
    made: list[Played] = []

    def one(
        answers: Callable[[Message, Heard], Answer], offers: dict[str, tuple[int, int]] | None = None
    ) -> Played:
        made.append(Played(answers, offers))
        return made[-1]

    yield one
    for played in made:
        played.stop()


@pytest.fixture
def tape(tmp_path: Path) -> Tape:
    """A recording to be made; ``done()`` gives its folder."""
    return Tape(tmp_path / "rec")
