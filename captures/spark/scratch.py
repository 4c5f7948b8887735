"""The folder in which a session, its JVM and their temporary files live; and those that killed sessions have left.

A folder belongs to who holds the lock of the file `OWNER` in it, and a lock ends with its process, however that ends. So
the next session can tell which folders nobody needs any more: those with a lock that is free, and that no process names on
its command line, as their JVMs do. A folder without that file is nobody's to remove: a failed session's log is kept so.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "barnabas-spark-"
OWNER = ".owner"


@contextmanager
def signals_held() -> Iterator[None]:
    """Put Ctrl-C off to the end of the body."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if seen:
        raise KeyboardInterrupt


class Scratch:
    """A folder that is removed in the end, but for the files in `kept`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: list[Path] = []


@contextmanager
def scratch() -> Iterator[Scratch]:
    """A new folder of this process. What killed processes of this user have left is removed first."""
    sweep(Path(tempfile.gettempdir()))
    made = Scratch(Path(tempfile.mkdtemp(prefix=PREFIX)))
    # Nobody sees the file before it is locked; programs that are started do not hold it.
    taking = made.path / f"{OWNER}.taking"
    lock = os.open(taking, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        taking.rename(made.path / OWNER)
        yield made
    finally:
        with signals_held():
            for entry in made.path.iterdir() if made.path.is_dir() else ():
                if entry not in made.kept and entry.name != OWNER:
                    _remove(entry)
            (made.path / OWNER).unlink(missing_ok=True)
            with suppress(OSError):  # something is kept
                made.path.rmdir()
            os.close(lock)


def sweep(place: Path) -> list[Path]:
    """Remove the folders in `place` whose owners are gone; which they were. What cannot be removed stays."""
    removed = []
    for entry in sorted(place.glob(f"{PREFIX}*")):
        try:
            status = entry.lstat()
            if status.st_uid != os.getuid() or entry.is_symlink():
                continue
            lock = os.open(entry / OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # nobody's, or gone
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _named(entry):
                _remove(entry)
                removed.append(entry)
        except OSError:  # somebody works in it, or sweeps it
            continue
        finally:
            os.close(lock)
    return removed


def _named(folder: Path) -> bool:
    """Whether a process has the folder on its command line: a JVM that has yet to notice that its session is gone."""
    wanted = os.fsencode(folder)
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            if entry.isdigit() and wanted in Path("/proc", entry, "cmdline").read_bytes():
                return True
        except OSError:  # it has ended
            continue
    return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
