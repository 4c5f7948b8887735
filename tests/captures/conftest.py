"""tshark as an independent judge of what is written."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.waiting import PATIENCE

PORT = 9092


@pytest.fixture(scope="session")
def tshark() -> Callable[..., list[str]]:
    """`tshark(path, filter, *options)`: the lines tshark prints for the packets that the filter lets through."""
    program = shutil.which("tshark")
    if program is None:
        pytest.fail("tshark is not installed, and these tests need it as a judge: apt-get install tshark")

    def run(path: Path, display_filter: str = "", *options: str) -> list[str]:
        command = [program, "-n", "-r", str(path), "-d", f"tcp.port=={PORT},kafka", *options]
        if display_filter:
            command += ["-Y", display_filter]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0 or "cut short in the middle of a packet" in done.stderr, done.stderr
        return [line for line in done.stdout.splitlines() if line.strip()]

    return run


@pytest.fixture
def complaints(tshark: Callable[..., list[str]]) -> Callable[[Path], list[str]]:
    """`complaints(path)`: whatever tshark finds wrong with a capture, bad checksums included."""

    def run(path: Path) -> list[str]:
        return tshark(
            path,
            "_ws.malformed || tcp.analysis.flags || ip.checksum.status == 0 || tcp.checksum.status == 0",
            "-o",
            "tcp.check_checksum:TRUE",
            "-o",
            "ip.check_checksum:TRUE",
        )

    return run
