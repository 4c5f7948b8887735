"""``barnabas replay``: its options, its plan, and what it says when there is no target."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Recorder
from barnabas.decoder import encode_request, encode_response
from barnabas.decoder.schema import facts
from barnabas.decoder.wire.frame import Direction
from barnabas.proxy.replay.settings import Pace
from barnabas.ui.cli.common.failure import Failure
from barnabas.ui.cli.recordings.replay import pace_of
from harness import commands
from harness.wire import with_size

START = 1_700_000_000_000_000_000
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    recorder = Recorder(tmp_path / "rec")
    recorder.opened(1, START, client=("127.0.0.1", 40000), broker=("127.0.0.1", 9092))
    calls: list[tuple[str, int, dict[str, Any]]] = [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("Metadata", 1, {"topics": [{"name": "orders\x1b[2J"}]}),
        ("Heartbeat", 4, {"group_id": "g", "generation_id": 3, "member_id": "m"}),
        ("DeleteTopics", 1, {"topic_names": ["orders"]}),
    ]
    for number, (api, version, fields) in enumerate(calls):
        key, at = facts.api_key(api), START + number * 1_000_000
        recorder.data(1, Direction.REQUEST, at, with_size(encode_request(key, version, fields, correlation_id=number)))
        answer = encode_response(key, version, {}, correlation_id=number)
        recorder.data(1, Direction.RESPONSE, at + 1000, with_size(answer))
    recorder.close()
    return tmp_path / "rec"


def barnabas(*arguments: object) -> subprocess.CompletedProcess[str]:
    return commands.run(*arguments)


def test_a_dry_run_connects_to_nobody(capture: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:
        to = f"127.0.0.1:{target.getsockname()[1]}"
        done = barnabas("replay", capture, "--broker", to, "--dry-run", "--topic-map", "orders=o")
        target.setblocking(False)
        with pytest.raises(BlockingIOError):  # a connection would wait to be accepted
            target.accept()
    assert done.returncode == 0, done.stderr
    assert "versions are as recorded: a dry run does not ask the brokers" in done.stderr
    summary, *lines = done.stdout.splitlines()
    assert summary == f"would send 2 requests of 1 client on 1 connection to {to} in 0.0 s; 2 left out"
    assert len(lines) == 4 and "\x1b" not in done.stdout
    assert "SaslHandshake v1  left out: a login" in lines[0]
    assert "the target's generation, member id" in lines[2]
    assert "DeleteTopics v1  left out: it alters or deletes; --include-admin sends it" in lines[3]


def test_a_dry_run_as_json(capture: Path) -> None:
    options = ("--dry-run", "--json", "--include-admin", "--topic-map", "orders=o", "--group-map", "g=h")
    done = barnabas("replay", capture, "--broker", NOWHERE, *options)
    summary, *rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert summary == {
        "requests": 3, "left_out": 1, "clients": 1, "connections": 1, "broker": NOWHERE, "seconds": 0.003, "rounds": 1,
    }  # fmt: skip
    assert [row["api"] for row in rows] == ["SaslHandshake", "Metadata", "Heartbeat", "DeleteTopics"]
    assert rows[0]["send_version"] is None and rows[0]["skipped"]
    assert rows[2]["renamed"] == ["group g = h"] and rows[2]["mapped"] == ["generation", "member id"]
    assert rows[3]["renamed"] == ["topic orders = o"] and rows[3]["skipped"] is None


@pytest.mark.parametrize(
    ("options", "when"),
    [
        (("--speed", "max"), "as fast as responses arrive"),
        (("--speed", "0.001x"), "in 3.0 s"),
        (("--speed", "1/s", "--loop", "3"), "in 2.0 s, 3 times"),
    ],
)
def test_a_dry_run_says_how_long_it_would_take(capture: Path, options: tuple[str, ...], when: str) -> None:
    done = barnabas("replay", capture, "--broker", NOWHERE, "--dry-run", "--include-admin", *options)
    summary = done.stdout.splitlines()[0]
    assert summary == f"would send 3 requests of 1 client on 1 connection to {NOWHERE} {when}; 1 left out"


def test_speeds() -> None:
    assert pace_of("1x") == Pace(1.0) and pace_of("0.5x") == Pace(0.5)
    assert pace_of("max") == Pace(0.0) and pace_of("2000/s") == Pace(0.0, 2000.0)
    for wrong in ("0x", "x", "-1x", "1", "1 x", "0/s"):
        with pytest.raises(Failure):
            pace_of(wrong)
