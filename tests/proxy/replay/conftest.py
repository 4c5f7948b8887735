"""A scripted broker and a recording to replay to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from barnabas.decoder.codec.message import Message
from harness.peers.scripted_broker import Answer, ReceivedRequest, ScriptedBroker, StartBroker, TimedRecording


@pytest.fixture
def start_broker() -> Iterator[StartBroker]:
    """``start_broker(answers, offers=...)``: a scripted broker."""
    made: list[ScriptedBroker] = []

    def one(answers: Callable[[Message, ReceivedRequest], Answer], offers: dict[str, tuple[int, int]] | None = None) -> ScriptedBroker:
        made.append(ScriptedBroker(answers, offers))
        return made[-1]

    yield one
    for broker in made:
        broker.stop()


@pytest.fixture
def recording(tmp_path: Path) -> TimedRecording:
    """A recording to be made; ``done()`` gives its folder."""
    return TimedRecording(tmp_path / "rec")
