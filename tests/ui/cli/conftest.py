"""Running the command as a user does: in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas import decoder
from harness import commands
from harness.recordings import RecordingBuilder
from harness.waiting import PATIENCE

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
    batch = decoder.records.encode_batch(
        [decoder.records.Record(0, 1_700_000_000_000, b"the-key", b"the-secret-payload", ((b"trace", b"1"),))]
    )
    topics = [{"name": "orders", "partition_data": [{"index": 3, "records": batch}]}]
    with RecordingBuilder(directory, client_id="shop", start_ns=1_000_000_000) as recording:
        recording.exchange("Produce", 9, {"acks": -1, "topic_data": topics}, {})
        recording.exchange("Heartbeat", 4, {"group_id": "g"}, {"error_code": 27})
        recording.request("Produce", 9, {"acks": 0, "topic_data": topics})
        recording.request("Metadata", 12, {})
    return directory
