"""The load of bench/relay: its client and sink (load.c), what is measured of them, and processes beside them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from frames import Shape

Started = Iterator[tuple[int, list[int]]]
"""A candidate that runs: its port, and the pids whose CPU time is its cost."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port} after {seconds} s")


@contextmanager
def process(command: list[str], port: int) -> Started:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield port, [child.pid]
    finally:
        child.terminate()
        child.wait()


def children(module: str = "", of: int | None = None) -> set[int]:
    """The pids of this process's children, or of those `of` another; with `module`, of those that run this module of the product."""
    of = of or os.getpid()
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent == of and (not module or module.encode() in command):
            found.add(int(stat.parent.name))
    return found


def cpu_seconds(pids: list[int]) -> float:
    """Time that the processes' threads have had on a processor so far; to the nanosecond, unlike their `stat`."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(task.read_text().split()[0])
            except OSError:
                continue
    return total / 1e9


def build(folder: Path) -> None:
    """Compile the programs into `folder`."""
    for name in ("load", "yardstick"):
        subprocess.run(["cc", "-O2", "-o", str(folder / name), str(Path(__file__).with_name(f"{name}.c"))], check=True)


class Load(NamedTuple):
    """The programs in `folder` with the frames of a shape; `check`: every byte is compared."""

    folder: Path
    shape: Shape
    check: bool = False

    @property
    def _files(self) -> list[str]:
        return [str(self.folder / "request"), str(self.folder / "response")]

    @contextmanager
    def sink(self) -> Iterator[int]:
        """The port of a running sink."""
        for file, frame in zip(self._files, (self.shape.request, self.shape.response), strict=True):
            Path(file).write_bytes(frame)
        port = free_port()
        words = [str(self.folder / "load"), "sink", str(port), *self._files, *(["check"] if self.check else [])]
        with process(words, port):
            yield port

    def measure(self, port: int, seconds: float) -> dict[str, float]:
        """What the client has measured through a port."""
        numbers = str(self.shape.depth), str(self.shape.connections), str(seconds)
        command = [str(self.folder / "load"), "run", "127.0.0.1", str(port), *self._files, *numbers]
        done = subprocess.run([*command, *(["check"] if self.check else [])], capture_output=True, text=True, timeout=90)
        if done.returncode not in (0, 3) or not done.stdout:
            raise RuntimeError(done.stderr.strip() or f"ended with {done.returncode}")
        found: dict[str, float] = json.loads(done.stdout)
        return found

    def warm(self, port: int) -> None:
        """Wait until a candidate moves frames: one that listens may still be starting, which is not what is measured."""
        for _ in range(40):
            try:
                if self.measure(port, 0.25)["frames"] > 10:
                    return
            except (RuntimeError, subprocess.TimeoutExpired):
                continue
