"""A child process that prints JSON lines and ends when its standard input is closed."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from typing import Any

from ...errors import BarnabasError
from ...proxy.processes.interpreter import python


class ChildFailed(BarnabasError, RuntimeError):
    """The process ended before it printed the line that was awaited."""


class ChildProcess:
    """``python -m MODULE ARGS...`` of this package, with our interpreter."""

    def __init__(self, module: str, *arguments: str):
        self.module = module
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by `stop`
        self._process = subprocess.Popen(
            python(f"ui.demo.{module}", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Ctrl-C goes to the whole terminal: these processes end by their standard input, in order.
            start_new_session=True,
        )
        self._rest = b""

    def line(self, seconds: float) -> dict[str, Any]:
        """The next line of JSON; ChildFailed if none comes in time."""
        assert self._process.stdout
        until = time.monotonic() + seconds
        fd = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            ready, _, _ = select.select([fd], [], [], max(0.0, until - time.monotonic()))
            data = os.read(fd, 65536) if ready else b""
            if not data:
                raise ChildFailed(f"the {self.module} process did not answer within {seconds:.0f} s")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def error(self) -> str:
        """The last line on its standard error, until `stop`."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]

    def close_input(self) -> None:
        """Ask it to end."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()

    def stop(self, seconds: float = 10.0) -> None:
        """End it: by its standard input, then by force."""
        self.close_input()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._errors.close()
