"""Wireshark beside what is tested: capturing on the loopback interface, and what tshark reads of a file."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from harness.waiting import PATIENCE, until

LAST = b"the last packet of this capture"


@cache
def missing() -> str:
    """Why nothing can be captured here; empty if it can."""
    if shutil.which("dumpcap") is None:
        return "dumpcap is not installed (apt-get install wireshark-common)"
    command = ["dumpcap", "-q", "-i", "lo", "-a", "duration:0", "-w", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no right to capture: {done.stderr.strip()[:200]}"


@contextmanager
def tap(file: Path, ports: Iterable[int], *options: str) -> Iterator[None]:
    """Capture what these loopback ports send and receive."""
    marker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    marker.bind(("127.0.0.1", 0))
    only = " or ".join([f"udp port {marker.getsockname()[1]}", *(f"tcp port {port}" for port in ports)])
    words = ["dumpcap", "-q", "-i", "lo", "-B", "64", "-w", str(file), "-f", only, *options]
    capturing = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert capturing.stderr is not None
    try:
        for line in capturing.stderr:
            if line.startswith("File:"):  # from now on
                break
        yield
        # what comes after all others is there: so are they
        marker.sendto(LAST, marker.getsockname())
        until(lambda: LAST in file.read_bytes(), lambda: f"{file} has {file.stat().st_size} bytes")
    finally:
        capturing.terminate()
        capturing.stderr.read()
        capturing.stderr.close()
        capturing.wait()
        marker.close()


def tshark(capture: Path, *arguments: str, torn: bool = False) -> list[str]:
    """The lines that tshark prints of a capture without looking up names. `torn`: its end may be missing."""
    words = ["tshark", "-n", "-r", str(capture), *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert not done.returncode or (torn and "cut short in the middle of a packet" in done.stderr), done.stderr
    return done.stdout.splitlines()
