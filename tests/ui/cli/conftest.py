"""Running the command as a user does: in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from barnabas import decoder
from harness import commands
from harness.recordings import RecordingBuilder
from harness.run.lines import line
from harness.waiting import PATIENCE

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """``run("decode", path)``: exit code, stdout, stderr; the working directory is empty."""

    def call(*arguments: object, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        return commands.run(*arguments, cwd=tmp_path, timeout=timeout)

    return call


class Started:
    """A command in a process of its own."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *map(str, arguments)],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip

    def line(self, what: str, errors: bool = False) -> str:
        """The next line of its output, or of its errors; `what` it should be, for the text of a failure."""
        return line(self.process, what, errors=errors)

    def end(self, how: signal.Signals = signal.SIGINT) -> subprocess.CompletedProcess[str]:
        """End it: its status, and what it has printed since."""
        self.process.send_signal(how)
        out, errors = self.process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, errors)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """``start("proxy", "--broker", ...)``: a command that runs until it is ended, at the latest with the test."""
    started: list[Started] = []

    def call(*arguments: object) -> Started:
        started.append(Started(tmp_path, *arguments))
        return started[-1]

    yield call
    for each in started:
        with each.process as process:
            process.kill()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A small recording: a produce with payload, a failed heartbeat, an acks=0 produce, one request never answered."""
    directory = tmp_path / "recording"
    batch = decoder.records.encode_batch(
        [decoder.records.Record(0, 1_700_000_000_000, b"the-key", b"the-secret-payload", ((b"trace", b"1"),))]
    )
    topics = [{"name": "orders", "partition_data": [{"index": 3, "records": batch}]}]
    with RecordingBuilder(directory, client_id="shop", start_ns=1_000_000_000) as recording:
        written = [{"name": "orders", "partition_responses": [{"index": 3, "base_offset": 0}]}]
        recording.exchange("Produce", 9, {"acks": -1, "topic_data": topics}, {"responses": written})
        recording.exchange("Heartbeat", 4, {"group_id": "g"}, {"error_code": 27})
        recording.request("Produce", 9, {"acks": 0, "topic_data": topics})
        recording.request("Metadata", 12, {})
    return directory
