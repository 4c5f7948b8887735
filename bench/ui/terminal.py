"""A program in a pseudo terminal, with somebody at its keys who has a stopwatch."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence


class Terminal:
    """`command` in a terminal of `size` (columns, lines). Times are seconds."""

    def __init__(self, command: Sequence[str], size: tuple[int, int] = (160, 48)):
        self.began = time.perf_counter()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", COLUMNS=str(size[0]), LINES=str(size[1]))
            os.execvp(command[0], list(command))
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.written = 0
        self._tail = b""
        self._ticks = os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, seconds: float) -> bytes:
        """What came within so long."""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return b""
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:
            return b""
        self.written += len(data)
        self._tail = (self._tail + data)[-60_000:]
        return data

    def until(self, pattern: bytes, seconds: float = 30.0) -> float:
        """When the pattern came; TimeoutError if it did not."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            if re.search(pattern, self._tail):
                return time.perf_counter()
            self.read(0.002)
        raise TimeoutError(f"{pattern!r} did not come; the last was {self._tail[-300:]!r}")

    def rest(self, seconds: float) -> None:
        """Read, and do nothing, for so long."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self.read(min(left, 0.02))

    def press(self, keys: bytes) -> float:
        """Press keys; what was read before is forgotten. When that was."""
        while self.read(0):
            pass
        self._tail = b""
        os.write(self._fd, keys)
        return time.perf_counter()

    def latencies(self, keys: Sequence[bytes], pattern: bytes, seconds: float, gap: float = 0.05) -> list[float]:
        """From each key to the first output behind it that holds the pattern, sorted; one that took 3 s counts as that."""
        found, end, i = [], time.perf_counter() + seconds, 0
        while time.perf_counter() < end:
            began = self.press(keys[i % len(keys)])
            i += 1
            try:
                found.append(self.until(pattern, 3.0) - began)
            except TimeoutError:
                found.append(3.0)
            self.rest(gap)
        return sorted(found)

    def cpu(self) -> float:
        """Processor time of the program so far."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / self._ticks

    def share(self, seconds: float) -> float:
        """Processor time of so many seconds in which nobody presses a key, in percent of a core."""
        before, at = self.cpu(), time.perf_counter()
        self.rest(seconds)
        return round(100 * (self.cpu() - before) / (time.perf_counter() - at), 1)

    def memory(self) -> int:
        """Bytes in memory that are the program's own: mapped files are not counted."""
        with open(f"/proc/{self.pid}/status") as file:
            found = dict(line.split(":", 1) for line in file)
        return int(found["RssAnon"].split()[0]) * 1024

    def close(self) -> None:
        """End the program, by Q and then by force."""
        with contextlib.suppress(OSError):
            os.write(self._fd, b"\x1bQ")
        end = time.perf_counter() + 3
        while time.perf_counter() < end:
            self.read(0.05)
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                break
        else:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)
