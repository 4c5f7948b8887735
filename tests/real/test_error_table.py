"""The error table against the newest release."""

from __future__ import annotations

import subprocess
from pathlib import Path

from barnabas.decoder import facts
from real.broker import jar_directory

NEWEST = Path(__file__).parents[2] / ".cache" / "clients" / "kafka-clients-4.4.0.jar"


def test_errors_of_the_newest_release():
    assert NEWEST.is_file(), "Kafka's jars are fetched by: make broker"
    program = Path(__file__).parent / "java" / "ErrorCodes.java"
    done = subprocess.run(
        ["java", "-Xmx128m", "-cp", f"{NEWEST}:{jar_directory()}/*", str(program)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = [facts.ErrorFact(int(w[0]), w[1], "retriable" in w) for w in map(str.split, done.stdout.splitlines())]
    assert sorted(theirs) == sorted(facts.errors().values())
