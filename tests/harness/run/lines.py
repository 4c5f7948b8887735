"""Lines from a process, awaited with a bound."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import IO

from ..waiting import PATIENCE


def line(process: subprocess.Popen[str], wanted: str, seconds: float = PATIENCE, errors: bool = False) -> str:
    """The next line of its stdout (or stderr), with the newline. `wanted` names the line in a failure.

    A process that writes nothing for so long is killed, with its group if it leads one, as its children may hold the pipe.
    AssertionError then, and if it has ended without a line.
    """
    stream: IO[str] | None = process.stderr if errors else process.stdout
    assert stream is not None
    late = threading.Timer(seconds, _end, [process])
    late.daemon = True
    late.start()
    try:
        found = stream.readline()
    finally:
        late.cancel()
    assert found, f"{wanted}: nothing came within {seconds:g} s, or the process ended ({process.poll()})"
    return found


def _end(process: subprocess.Popen[str]) -> None:
    try:
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.kill()
