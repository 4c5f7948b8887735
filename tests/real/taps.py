"""Capturing on the loopback interface, beside what is tested."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


@cache
def missing() -> str:
    """Why nothing can be captured here; empty if it can."""
    if shutil.which("dumpcap") is None:
        return "dumpcap is not installed (apt-get install wireshark-common)"
    done = subprocess.run(
        ["dumpcap", "-q", "-i", "lo", "-a", "duration:0", "-w", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else f"no right to capture: {done.stderr.strip()[:200]}"


@contextmanager
def tap(file: Path, ports: Iterable[int], *options: str) -> Iterator[None]:
    """Capture what these loopback ports send and receive."""
    only = " or ".join(f"tcp port {port}" for port in ports)
    words = ["dumpcap", "-q", "-i", "lo", "-B", "64", "-w", str(file), "-f", only, *options]
    capturing = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert capturing.stderr is not None
    try:
        for line in capturing.stderr:
            if line.startswith("File:"):  # from now on
                break
        yield
        sizes = [-1]
        while len(sizes) < 4 or sizes[-4] != sizes[-1]:  # it takes packets from the kernel four times a second
            time.sleep(0.2)
            sizes.append(file.stat().st_size)
    finally:
        capturing.terminate()
        capturing.stderr.read()
        capturing.stderr.close()
        capturing.wait()
