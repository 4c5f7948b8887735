"""``barnabas audit`` on recordings of real clients of pinned versions, old and new, installed for these tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import PATIENCE

pytestmark = pytest.mark.slow

CONFLUENT = """
import sys, time
from confluent_kafka import Consumer, Producer

where = {"bootstrap.servers": sys.argv[1], "log_level": 0}
producer = Producer(where)
producer.produce("orders", b"new")
producer.flush(5)
consumer = Consumer({**where, "group.id": sys.argv[2], "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
found, end = 0, time.monotonic() + float(sys.argv[3])
while not found and time.monotonic() < end:
    message = consumer.poll(0.2)
    found += message is not None and not message.error()
consumer.close()
print(found)
"""
KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer

consumer = KafkaConsumer("orders", bootstrap_servers=sys.argv[1], group_id=sys.argv[2], consumer_timeout_ms=2000)
print(len(list(consumer)))
consumer.close()
"""


@pytest.fixture(scope="module")
def mock() -> Iterator[str]:
    """A mock cluster of librdkafka's, with a topic."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    owner = confluent_kafka.Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    owner.produce("orders", b"first")
    assert owner.flush(PATIENCE) == 0
    (broker,) = owner.list_topics(timeout=PATIENCE).brokers.values()
    yield f"127.0.0.1:{broker.port}"
    del owner


def installed(folder: Path, *requirements: str) -> Path:
    """A folder with these packages. Without a package registry the test is skipped."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *requirements]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    if done.returncode and re.search("No matching distribution|Connection|timed out", done.stderr):
        pytest.skip(f"{requirements} cannot be installed here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder


def recorded(
    tmp_path: Path, mock: str, packages: Path, program: str, *options: str, seconds: float = PATIENCE / 2
) -> tuple[Path, str]:
    """The recording of a program that runs through the proxy, and what the program printed."""
    command = [sys.executable, "-m", "barnabas", "proxy", "--broker", mock, "--listen", "127.0.0.1:0", "--record", "capture"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    proxy = subprocess.Popen(
        [*command, "--no-findings", *options], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert proxy.stdout is not None
        lines = iter(proxy.stdout.readline, "")
        port = next(match[1] for line in lines if (match := re.search(r"127\.0\.0\.1:(\d+)", line)) and mock not in match[0])
        done = subprocess.run(
            [sys.executable, "-c", program, f"127.0.0.1:{port}", tmp_path.name, str(seconds)],
            env=environment | {"PYTHONPATH": str(packages)}, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
    finally:
        proxy.send_signal(signal.SIGINT)
        proxy.communicate(timeout=PATIENCE)
    return tmp_path / "capture", done.stdout.strip()


def program_of(run: Any, capture: Path, software: str) -> dict[str, dict[str, Any]]:
    """The bugs of the program with this software, by id."""
    done = run("audit", "--json", capture)
    assert done.returncode == 0, done.stderr
    programs = {program["software"]: program for program in json.loads(done.stdout)["programs"]}
    assert software in programs, list(programs)
    return {bug["id"]: bug for bug in programs[software]["bugs"]}


@pytest.mark.parametrize(
    ("version", "found", "verdicts"),
    [
        ("2.5.3", "1", {"librdkafka-4870": "fixed", "librdkafka-4806": "present", "librdkafka-4833": "fixed"}),
        ("2.6.0", "0", {"librdkafka-4870": "seen", "librdkafka-4806": "fixed", "librdkafka-5088": "fixed"}),
        ("2.6.1", "1", {"librdkafka-4870": "fixed", "librdkafka-4804": "present", "librdkafka-4783": "fixed"}),
        ("2.10.0", "1", {"librdkafka-4870": "fixed", "librdkafka-5088": "present", "librdkafka-4804": "fixed"}),
    ],
)
def test_confluent_kafka_with_an_old_broker(run, tmp_path, mock, version, found, verdicts):
    """Versions before and after librdkafka#4870, at a broker that offers what Kafka 2.6 does."""
    packages = installed(tmp_path / "packages", f"confluent-kafka=={version}", "typing-extensions")
    seconds = PATIENCE / 2 if found == "1" else 6.0
    capture, printed = recorded(tmp_path, mock, packages, CONFLUENT, "--pretend", "2.6", seconds=seconds)
    bugs = program_of(run, capture, f"confluent-kafka-python {version}-rdkafka-{version}")
    assert {id_: bugs[id_]["verdict"] for id_ in verdicts} == verdicts
    assert printed == found, "the bug keeps consumers from getting records"
    findings = run("findings", capture, "--min-severity", "high").stdout
    assert ("librdkafka#4870 of librdkafka 2.6.0 (fixed in 2.6.1)" in findings) == (verdicts["librdkafka-4870"] == "seen")


@pytest.mark.parametrize(
    ("version", "software", "verdicts"),
    [
        ("2.0.2", "probably kafka-python 2.0.2", {"kafka-python-2499": "present", "kafka-python-2607": "fixed"}),
        ("2.1.4", "kafka-python 2.1.4", {"kafka-python-2499": "fixed", "kafka-python-2607": "present"}),
        ("2.2.15", "kafka-python 2.2.15", {"kafka-python-2607": "fixed", "kafka-python-2717": "present"}),
    ],
)
def test_kafka_python_by_what_it_says_of_itself(run, tmp_path, mock, version, software, verdicts):
    packages = installed(tmp_path / "packages", f"kafka-python=={version}")
    capture, _ = recorded(tmp_path, mock, packages, KAFKA_PYTHON)
    bugs = program_of(run, capture, software)
    assert {id_: bugs[id_]["verdict"] for id_ in verdicts} == verdicts
