"""``barnabas serve``: events, summary and exit status of the command."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas.proxy.serve import Served
from barnabas.ui.cli.recordings.serve import summary_lines
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE

RECORDED = Path(__file__).parents[3] / "captures" / "serving" / "recorded"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    folder = tmp_path / "recording"
    folder.mkdir()
    shutil.copy(RECORDED / "two-members.pcapng", folder)
    return folder


class Serving:
    """The command, until it is interrupted."""

    def __init__(self, command: Any) -> None:
        self._command = command
        self.first: dict[str, Any] = json.loads(command.line("serving"))

    @property
    def bootstrap(self) -> str:
        host, port = self.first["address"]
        return f"{host}:{port}"

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        done = self._command.end()
        assert done.stderr == ""
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def serve(start, recording: Path) -> Callable[..., Serving]:
    return lambda *options: Serving(start("serve", recording, *options, "--listen", "127.0.0.1:0", "--json"))


def test_answers_are_counted_and_the_status_is_0(serve):
    serving = serve()
    assert serving.first["event"] == "serving" and serving.first["exchanges"] > 10
    topics = AdminClient({"bootstrap.servers": serving.bootstrap}).list_topics("two-confluent", timeout=PATIENCE).topics
    assert len(topics["two-confluent"].partitions) == 4
    code, events = serving.end()
    assert code == 0
    summary = events[-1]
    assert summary["event"] == "summary" and summary["misses"] == {}
    assert summary["asked"]["Metadata"] >= 1 and "Produce" in summary["never_asked"]


def test_a_miss_is_reported_and_the_status_is_1(serve):
    serving = serve()
    topics = AdminClient({"bootstrap.servers": serving.bootstrap}).list_topics("other", timeout=PATIENCE).topics
    assert topics["other"].error is not None
    code, events = serving.end()
    assert code == 1
    miss = next(event for event in events if event["event"] == "miss")
    assert miss["what"].endswith("for other") and miss["nearest"].startswith("Metadata")
    assert events[-1]["misses"] == {"Metadata": len([e for e in events if e["event"] == "miss"])}


def test_what_was_not_used_is_listed_and_the_status_is_1_where_everything_has_to_be(serve):
    serving = serve("--all-used", "--contents", "check")
    producer = Producer({"bootstrap.servers": serving.bootstrap})
    producer.produce("two-confluent", b"something else", partition=0)
    assert producer.flush(PATIENCE) == 0
    code, events = serving.end()
    assert code == 1
    unused = {each["what"]: each for each in events[-1]["unused"]}
    assert unused["39 records of two-confluent not produced again"]["count"] == 39
    (creation,) = (each for what, each in unused.items() if what.startswith("CreateTopics"))
    assert creation["count"] == len(creation["numbers"]) == 1
    (differs,) = (event for event in events if event["event"] == "produced_otherwise")
    assert (differs["topic"], differs["live"], differs["recorded"]) == ("two-confluent", "value something else", "value v0")


def test_the_summary_names_what_was_not_used(recording):
    with Served(recording) as served:
        lines = summary_lines(served)
    at = lines.index("recorded, but not used:")
    assert lines[0] == "0 answers" and lines[-1] == "0 misses"
    assert any(re.fullmatch(r"  CreateTopics v\d+ for two-confluent \(number \d+\)", line) for line in lines[at:])
    assert "  40 records of two-confluent not produced again" in lines[at:]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_while_it_reads_the_recording(recording: Path, number: int) -> None:
    program = f"""
import signal, sys
from barnabas.proxy.serve import Served
from barnabas.ui.cli import main
Served._exchanges = lambda self: signal.raise_signal({int(number)})
sys.argv = ["barnabas", "serve", {str(recording)!r}, "--listen", "127.0.0.1:0"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
