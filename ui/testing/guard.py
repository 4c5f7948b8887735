"""Runs one command and never lets it outlive the test process.

    python -m barnabas.ui.testing.guard DIRECTORY -- COMMAND...

Standard input is a pipe held by the test process. When it closes, or the guard gets SIGTERM, or its parent is gone
(a child that the test process forked may still hold the pipe), the command gets SIGTERM, after 10 s SIGKILL, and
DIRECTORY is removed. When the command ends by itself, so does the guard, with its exit code, and DIRECTORY stays for
the log to be read.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
STOP_SECONDS = 10.0


def _die_with_guard() -> None:
    # Linux only; elsewhere a guard that is itself killed with SIGKILL leaves the command behind.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(directory: str, command: list[str]) -> int:
    """Run ``command`` until it ends or standard input closes."""
    parent = os.getppid()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_guard)
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, lambda *_: os.close(0))
    while child.poll() is None:
        if os.getppid() != parent:
            break
        try:
            readable, _, _ = select.select([0], [], [], 0.2)
            if readable and os.read(0, 4096) == b"":
                break
        except OSError:  # a signal closed it
            break
    else:
        return child.returncode
    child.terminate()
    try:
        child.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):  # the cluster's own folder, once its last node is gone
        os.rmdir(os.path.dirname(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[3:]))
