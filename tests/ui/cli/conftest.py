"""Running the command as a user does: in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Recorder
from harness import commands
from harness.waiting import PATIENCE
from harness.wire import with_size

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """``run("decode", path)``: exit code, stdout, stderr; the working directory is empty."""

    def call(*arguments: object, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        return commands.run(*arguments, cwd=tmp_path, timeout=timeout)

    return call


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A small recording: a produce with payload, a failed heartbeat, an acks=0 produce, one request never answered."""
    directory = tmp_path / "recording"
    recorder = Recorder(directory)
    recorder.opened(1, 1_000, client=("127.0.0.1", 50001), broker=("127.0.0.1", 9092))
    at = 1_000_000_000

    def say(direction: int, frame: bytes) -> None:
        nonlocal at
        at += 1_000_000
        recorder.data(1, direction, at, with_size(frame))

    batch = decoder.records.encode_batch(
        [decoder.records.Record(0, 1_700_000_000_000, b"the-key", b"the-secret-payload", ((b"trace", b"1"),))]
    )
    topics = [{"name": "orders", "partition_data": [{"index": 3, "records": batch}]}]
    say(0, decoder.encode_request(0, 9, {"acks": -1, "topic_data": topics}, correlation_id=1, client_id="shop"))
    say(1, decoder.encode_response(0, 9, {}, correlation_id=1))
    say(0, decoder.encode_request(12, 4, {"group_id": "g"}, correlation_id=2, client_id="shop"))
    say(1, decoder.encode_response(12, 4, {"error_code": 27}, correlation_id=2))
    say(0, decoder.encode_request(0, 9, {"acks": 0, "topic_data": topics}, correlation_id=3, client_id="shop"))
    say(0, decoder.encode_request(3, 12, {}, correlation_id=4, client_id="shop"))
    recorder.close()
    return directory
