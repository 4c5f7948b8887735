"""What stands where a file is expected: a named pipe is not waited for, and nothing that is there is overwritten by mistake."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.captures.pcap.regular_files import NotAFile, open_file
from harness.commands import run as command

READING = (
    ("decode",), ("findings",), ("versions",), ("compat", "--against", "4.3"), ("index",), ("index", "--dry-run"), ("export",),
    ("import", "-o", "out"), ("redact", "-o", "out"), ("cut", "-o", "out.pcapng", "--filter", "err"), ("diff",), ("replay", "--dry-run"),
)  # fmt: skip


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "capture.pcapng"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_named_pipe_is_no_capture(pipe: Path, words: tuple[str, ...]) -> None:
    """Nobody writes to it: whoever opens it would wait for ever."""
    more = [pipe] if words[0] == "diff" else ["--broker", "127.0.0.1:9"] if words[0] == "replay" else []
    done = command(words[0], pipe, *words[1:], *more, cwd=pipe.parent)
    assert done.returncode != 0 and "named pipe" in done.stderr + done.stdout, done.stderr
    assert "Traceback" not in done.stderr


def test_pipes_in_a_recording(recording: Path) -> None:
    """In the place of a segment's index, and of a segment: the rest is read as ever."""
    expected = command("decode", recording).stdout
    for index in recording.glob("*.idx"):
        index.unlink()
        os.mkfifo(index)
    for name in ("flight.json", "zz.pcapng", "zz.pcapng.strings"):
        os.mkfifo(recording / name)
    done = command("decode", recording)
    assert done.stdout == expected and expected.count("\n") > 2, done.stderr
    findings = command("findings", recording)
    assert findings.returncode == 0 and "Traceback" not in findings.stderr


@pytest.fixture
def others(tmp_path: Path) -> Iterator[dict[str, Path]]:
    folder = tmp_path / "f"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(folder / "s"))
        yield {"pipe": folder / "pipe", "socket": folder / "s", "device": Path("/dev/zero"), "folder": folder}


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
def test_only_files_are_opened(others: dict[str, Path], kind: str) -> None:
    with pytest.raises(IsADirectoryError if kind == "folder" else OSError):
        open_file(others[kind])
    if kind in ("pipe", "device"):
        with pytest.raises(NotAFile):
            open_file(others[kind])


def test_export_replaces_nothing_silently(recording: Path, tmp_path: Path) -> None:
    mine, link, other = tmp_path / "mine.csv", tmp_path / "link.csv", tmp_path / "other"
    one = tmp_path / "mine.json"
    mine.write_text("mine")
    one.write_text("mine")
    other.write_text("theirs")
    link.symlink_to(other)
    for target, more in ((mine, ()), (link, ()), (one, ("--exchange", "1", "--as", "json"))):
        done = command("export", recording, "-o", target, *more)
        assert done.returncode != 0 and "already exists" in done.stderr and "--force" in done.stderr
    assert (mine.read_text(), one.read_text(), other.read_text()) == ("mine", "mine", "theirs")
    for target in (mine, link):
        assert command("export", recording, "-o", target, "--force").returncode == 0
        assert target.read_text().startswith("capture_id") and not target.is_symlink()
    assert other.read_text() == "theirs"
    assert command("export", recording, "-o", "/dev/null").returncode == 0
