"""The Go program of both/, with franz-go and sarama: built once into .cache, and run; skips where there is no go."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from harness.waiting import PATIENCE
from real.brokers.broker import REPOSITORY

SOURCES = Path(__file__).with_name("both")
BUILT = REPOSITORY / ".cache" / "go"
BUILD_SECONDS = 1200
LIBRARIES = ("franz-go", "sarama")


@cache
def _program() -> Path:
    if shutil.which("go") is None:
        pytest.skip("no go on the PATH")
    sources = sorted(SOURCES.iterdir())
    folder = BUILT / hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        if not (folder / source.name).exists():  # go adds to go.mod what its requirements require
            shutil.copy(source, folder)
    command = ["go", "build", "-mod=mod", "-o", "program", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if "dial tcp" in done.stderr or "lookup " in done.stderr:
        pytest.skip(f"the Go clients cannot be fetched: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder / "program"


def connect(library: str, bootstrap: str, seconds: float, ca: Path, own: tuple[Path, Path] | None, old: bool) -> None:
    """Connect with TLS, until it works or the time is over. `own`: certificate and key; `old`: TLS 1.2 at most."""
    words = [library, "connect", bootstrap, str(seconds), str(ca), *map(str, own or ()), *(["old"] if old else [])]
    done = subprocess.run([_program(), *words], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


def group(library: str, bootstrap: str, client_id: str, topic: str, values: list[str]) -> list[str]:
    """The values that a group read after they were sent."""
    words = [library, "group", bootstrap, client_id, topic, *values]
    done = subprocess.run([_program(), *words], capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
