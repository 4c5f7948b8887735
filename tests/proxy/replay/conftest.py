"""A scripted broker and a recording to replay to it."""

from __future__ import annotations

import time
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
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """``pass_time(seconds)``: the replay's clock is so much later from now on, however long the test really takes."""
    passed_ns, monotonic_ns = [0], time.monotonic_ns
    monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic_ns() + passed_ns[0])

    def go_on(seconds: float) -> None:
        passed_ns[0] += int(seconds * 1e9)

    return go_on


@pytest.fixture
def recording(tmp_path: Path) -> TimedRecording:
    """A recording to be made; ``done()`` gives its folder."""
    return TimedRecording(tmp_path / "rec")
