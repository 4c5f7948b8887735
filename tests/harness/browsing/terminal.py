"""A program in a pseudo terminal, and somebody at its keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.waiting import PATIENCE, attempts

_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;:?<>=$ ]*[@-~]|[=>78]|\]22;[a-z]*\x07)")


class Terminal:
    """`written`: all bytes that came out of it."""

    def __init__(self, process: subprocess.Popen[bytes], master: int):
        self.process, self.written = process, b""
        self._master, self._from = master, 0

    def press(self, keys: str | bytes) -> None:
        """Press keys; what was drawn before counts no more for `until`."""
        while self._read(0):
            pass
        self._from = len(self.written)
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def until(self, wanted: str) -> str:
        """Wait for words."""
        for left in attempts(pause=0):
            if wanted in self.words():
                return self.words()
            if not self._read(left):
                break
        raise AssertionError(f"{wanted!r} did not come: {self.words()[-2000:]}")

    def words(self) -> str:
        """What was drawn since the last keys, without the sequences between."""
        return _SEQUENCE.sub(b"", self.written[self._from :]).decode("utf-8", "replace")

    def ends(self) -> int:
        """Read until the program ends; its exit status."""
        while self._read(PATIENCE):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(seconds, 0))
        try:
            data = os.read(self._master, 1 << 16) if ready else b""
        except OSError:  # nobody writes any more
            data = b""
        self.written += data
        return bool(data)


@contextmanager
def terminal(command: Sequence[str], folder: Path, size: tuple[int, int] = (120, 40), **environment: str) -> Iterator[Terminal]:
    """``with terminal([...], tmp_path) as screen``: `command` in a terminal of `size` (columns, lines)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, start_new_session=True,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": str(size[0]), "LINES": str(size[1])} | environment,
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
