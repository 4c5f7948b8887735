"""Paths that are no plain files: nobody waits for a pipe, and the error names what the path is."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from barnabas.captures import NotACapture, open_capture, rebuild
from barnabas.captures.reading.verify import verify
from barnabas.captures.recording.index import paths
from harness import commands

RECORDING = Path(__file__).parents[2] / "decoder/findings/captures/versions-two-brokers.pcapng"


@pytest.mark.parametrize("words", [("decode",), ("findings",), ("index", "--dry-run"), ("export",)], ids=lambda words: words[0])
def test_a_pipe_is_not_waited_for(words: tuple[str, ...], tmp_path: Path) -> None:
    pipe = tmp_path / "live.pcapng"
    os.mkfifo(pipe)
    done = commands.run(*words, pipe)
    assert done.returncode == (1 if words[0] == "index" else 2)  # index reports it for each file, as any damage
    assert "it is a named pipe" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_pipes_and_directories_in_a_folder_are_no_captures_of_it(tmp_path: Path) -> None:
    shutil.copy(RECORDING, tmp_path / "a.pcapng")
    rebuild(tmp_path / "a.pcapng")
    os.mkfifo(tmp_path / "b.pcapng")
    (tmp_path / "c.pcapng").mkdir()
    (tmp_path / "d.pcapng").symlink_to(tmp_path / "nowhere")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "e.pcapng"))
        done = commands.run("decode", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1 + 8


def test_pipes_in_place_of_an_index_are_ignored(tmp_path: Path) -> None:
    segment = tmp_path / "a.pcapng"
    shutil.copy(RECORDING, segment)
    for beside in paths(segment):
        os.mkfifo(beside)
    done = commands.run("decode", segment)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1 + 8)


@pytest.mark.parametrize("read", [open_capture, verify, rebuild])
def test_the_python_api_names_paths_that_are_no_files(read: object, tmp_path: Path) -> None:
    assert callable(read)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises((OSError, NotACapture)):
            read(tmp_path / "socket")
    if read is not verify:
        (tmp_path / "empty").touch()
        with pytest.raises(NotACapture, match="the file is empty"):
            read(tmp_path / "empty")
