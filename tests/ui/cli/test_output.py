"""Output that cannot be written: the reader of a pipe has gone, or the disk is full."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.ui.cli import COMMANDS
from harness import commands
from harness.peers.pcap import as_pcap
from harness.recordings import RecordingBuilder
from harness.waiting import PATIENCE

PRINTING = [
    *(("--version",), ("--help",), ("ui", "recording"), ("ui", "--list-keys"), ("decode", "recording"), ("decode", "recording", "--json")),
    *(("decode", "--hex", "00120000000000010003666f6f", "--request"), ("findings", "recording"), ("findings", "--list")),
    *(("versions", "recording"), ("compat", "recording", "--against", "4.0"), ("explain", "35"), ("diff", "recording", "recording")),
    *(("audit", "recording"), ("audit", "--list")),
    *(("index", "recording"), ("export", "recording"), ("export", "recording", "--as", "parquet"), ("export", "recording", "--exchange", "1")),
    *(("replay", "recording", "--broker", "127.0.0.1:1", "--dry-run"), ("report", "recording", "--json"), ("report", "recording")),
    *(("pipeline", "run", "recording", "--output", "tables", "--master", "none", "--json"), ("config", "example")),
    *(("rules", "recipes"), ("rules", "recipes", "leader-election"), ("plugins", "list"), ("translate", "4.3", "0.10.2")),
    *(("filter", "fields"), ("schema", "show", "Metadata"), ("encode", "{}", "--api", "Metadata"), ("man",)),
    ("transparent", "up", "--port", "9092", "--dry-run"),
    *((name, "--help") for name in ("demo", "proxy", "sniff", "feed", "crosscheck", "import", "redact", "cut", "merge", "serve", "control")),
]  # fmt: skip
"""Something that each command prints: of some with little and with much output."""
NOTES = ("report", "pipeline", "replay")
"""Commands that print notes on standard error first."""
cases = pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)


def test_every_command_is_tried() -> None:
    assert {words[0] for words in PRINTING} == {*COMMANDS, "--help", "--version"}


@cases
def test_a_reader_that_has_gone_ends_every_command_silently(recording: Path, arguments: tuple[str, ...]) -> None:
    done = commands.run_bytes(*arguments, cwd=recording.parent, into=commands.CLOSED_PIPE)
    assert done.returncode == 141
    assert arguments[0] in NOTES or done.stderr == b""
    assert b"Error" not in done.stderr and b"cannot" not in done.stderr and b"ignored" not in done.stderr


@cases
def test_a_full_disk_is_one_line(recording: Path, arguments: tuple[str, ...]) -> None:
    done = commands.run_bytes(*arguments, cwd=recording.parent, into="/dev/full")
    assert done.returncode == 1, done.stderr
    *notes, last = done.stderr.decode().splitlines()
    assert last == "barnabas: standard output cannot be written: No space left on device"
    assert arguments[0] in NOTES or not notes
    assert "Error" not in done.stderr.decode() and "ignored" not in done.stderr.decode()


def test_a_reader_that_goes_in_the_middle(tmp_path: Path) -> None:
    with RecordingBuilder(tmp_path / "recording") as recording:
        for _ in range(5000):
            recording.exchange("Heartbeat", 4, {"group_id": "g"}, {})
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", "decode", "recording"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout and run.stderr
        assert b"Client" in run.stdout.readline()
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 141


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "recording", "-o", "/dev/full"),
        ("export", "recording", "--as", "parquet", "-o", "/dev/full"),
        ("export", "recording", "--exchange", "1", "-o", "/dev/full"),
        ("compat", "recording", "--against", "4.0", "--html", "/dev/full"),
        ("report", "recording", "--html", "/dev/full"),
    ],
    ids=" ".join,
)
def test_a_file_on_a_full_disk_is_named(
    run: Callable[..., subprocess.CompletedProcess[str]], recording: Path, arguments: tuple[str, ...]
) -> None:
    done = run(*arguments)
    assert done.returncode == 1 and done.stdout == "", done
    assert done.stderr.splitlines()[-1].endswith("/dev/full cannot be written: No space left on device"), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("cut", "recording", "-o", "out"), ("redact", "recording", "-o", "out"), ("merge", "recording", "-o", "out"), ("import", "dump.pcap", "-o", "out")],
    ids=lambda words: words[0],
)
def test_a_recording_that_the_disk_does_not_take(recording: Path, arguments: tuple[str, ...]) -> None:
    """The most that a process may write to a file stands for a full disk."""
    as_pcap(next(recording.glob("*.pcapng")), recording.parent / "dump.pcap")
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))\n"
        "from barnabas.ui.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=recording.parent, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 1, done
    assert done.stderr.splitlines()[-1] == "barnabas: out cannot be written: File too large"
