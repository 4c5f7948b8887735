"""Temporary folders of sessions: gone with the session, or, if that was killed, when the next one starts; never one in use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from barnabas.captures.spark import session as made
from harness.run.lines import line
from harness.waiting import PATIENCE


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def owner() -> tuple[int, Path]:
    """A process that has a folder: its number, and the folder."""
    read, write = os.pipe()
    number = os.fork()
    if not number:
        try:
            with made.scratch() as found:
                (found.path / "blockmgr").mkdir()
                (found.path / "blockmgr" / "shuffle").write_bytes(bytes(100))
                os.write(write, os.fsencode(found.path) + b"\n")
                signal.pause()
        finally:
            os._exit(1)
    os.close(write)
    with open(read, "rb") as file:
        return number, Path(os.fsdecode(file.readline().rstrip()))


def test_a_folder_goes_with_its_session(place: Path) -> None:
    with made.scratch() as found:
        (found.path / "warehouse").mkdir()
        (found.path / "spark.log").write_text("log")
        assert made.sweep(place) == []
        assert found.path.is_dir()
    assert not list(place.iterdir())


def test_kept_files_stay(place: Path) -> None:
    with made.scratch() as found:
        log = found.path / "spark.log"
        log.write_text("why it failed")
        (found.path / "more").write_text("")
        found.kept.append(log)
    assert made.sweep(place) == []
    assert list(found.path.iterdir()) == [log]


def test_a_killed_session_s_folder_is_removed_by_the_next_one(place: Path) -> None:
    number, path = owner()
    try:
        assert made.sweep(place) == [] and (path / "blockmgr" / "shuffle").exists()  # it lives
    finally:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
    assert path.is_dir()
    with made.scratch() as found:
        assert list(place.iterdir()) == [found.path]


def test_a_folder_that_a_process_names_is_in_use(place: Path) -> None:
    number, path = owner()
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, f"-Djava.io.tmpdir={path}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as jvm:  # fmt: skip
        line(jvm, "that it runs")
        assert made.sweep(place) == [] and path.is_dir()
        jvm.communicate(timeout=PATIENCE)
    assert made.sweep(place) == [path]


def test_others_are_left_alone(place: Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / made.OWNER).touch()
    (place / f"{made.PREFIX}link").symlink_to(elsewhere)
    (place / f"{made.PREFIX}older").mkdir()
    (place / f"{made.PREFIX}older" / "file").touch()
    (place / f"{made.PREFIX}file").touch()
    with made.scratch():
        pass
    assert len(list(place.iterdir())) == 4 and (elsewhere / made.OWNER).exists()


def test_a_folder_whose_process_was_killed_as_it_began_or_ended_is_removed(place: Path) -> None:
    empty, other = place / f"{made.PREFIX}empty", place / f"{made.PREFIX}other"
    empty.mkdir()
    other.mkdir()
    (other / "file").touch()
    assert made.sweep(place) == [empty] and not empty.exists() and other.exists()
