"""What a process of its own says, waited for with a bound."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import IO

from ..waiting import PATIENCE


def line(process: subprocess.Popen[str], wanted: str, seconds: float = PATIENCE, errors: bool = False) -> str:
    """The next line of its standard output, or of its errors, with its end. `wanted` says in a failure what did not come.

    A process that says nothing for so long is killed, with its group where it leads one: its children may hold the pipe.
    AssertionError then, and where it has ended without a line.
    """
    stream: IO[str] | None = process.stderr if errors else process.stdout
    assert stream is not None
    late = threading.Timer(seconds, _end, [process])
    late.daemon = True
    late.start()
    try:
        said = stream.readline()
    finally:
        late.cancel()
    assert said, f"{wanted}: nothing came within {seconds:g} s, or the process ended ({process.poll()})"
    return said


def _end(process: subprocess.Popen[str]) -> None:
    try:
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.kill()
