"""Which error codes the clients of a release know, by Kafka's own classes of that release."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from barnabas.decoder import facts
from barnabas.plugins.translation.error_codes import changes
from real.old_broker import jar_directory


@pytest.mark.parametrize(("release", "api", "version"), [("0.8.2.2", "Fetch", 0), ("0.10.2.2", "Fetch", 3)])
def test_nothing_is_said_that_the_release_does_not_know(release, api, version):
    program = Path(__file__).parent / "java" / "ErrorCodes.java"
    done = subprocess.run(
        ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{jar_directory(release)}/*", str(program)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    known = {int(line.split()[0]) for line in done.stdout.splitlines()}
    changed = changes(facts.api_key(api), version)
    # Fetch 0 was the newest until 0.8.2, Fetch 3 until 0.10.2. Java's table of 0.8.2 lacks what only consumers met, which
    # were in Scala then; the newest code is the same.
    assert max(code for code in facts.errors() if code not in changed) == max(known)
    assert max(changed.values()) <= max(known)
    assert not set(changed) & known
