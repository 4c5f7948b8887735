"""Only one run writes to a folder of tables at a time: a file lock guards it, in a store an object that is refreshed."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..reading.storage import Place, Remote
from ..tables.output.folder import Folder
from . import PipelineError

LOCK = ".barnabas.lock"
_FRESH_SECONDS = 60.0
"""A lock object older than this belongs to a killed run."""
_REFRESH_SECONDS = 10.0


@contextmanager
def lock_output(folder: Folder) -> Iterator[None]:
    """Hold the output folder for this run, made if need be, and clear what a killed run left there."""
    output = folder.path
    try:
        with held(output):
            folder.prepare()
            yield
            folder.finish()
    except OSError as error:
        raise PipelineError(f"cannot write to {output}: {error.strerror or error}; the next run continues from there") from error


@contextmanager
def held(output: Place) -> Iterator[None]:
    """Hold the folder, made if need be. Raises `PipelineError` where another run holds it."""
    with _lock(output) if isinstance(output, Path) else _lease(output / LOCK):
        yield


@contextmanager
def _lock(output: Path) -> Iterator[None]:
    try:
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(output / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise PipelineError(f"cannot write to {output}: {error.strerror}; choose another --output") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise PipelineError(f"{output}: another pipeline run is writing there; wait for it") from error
        except OSError as error:
            raise PipelineError(
                f"{output}: its file system has no locks ({error.strerror}), so a second run could not be refused: choose another "
                "--output, or mount it with locks (on NFS: version 4, or lockd)"
            ) from error
        yield
    finally:
        os.close(lock)


@contextmanager
def _lease(lock: Remote) -> Iterator[None]:
    """A store has no locks. Of two that start within a moment the one whose object was overwritten gives up."""
    mine = os.urandom(16).hex().encode()
    for each in lock.parent.files(deep=False):
        if each.path == lock and time.time() - each.modified_ns / 1e9 < _FRESH_SECONDS:
            raise PipelineError(
                f"{lock.parent}: another pipeline run is writing there; wait for it, or, if it was killed, for "
                f"{_FRESH_SECONDS:.0f} seconds"
            )
    lock.write(mine)
    over = threading.Event()

    def refresh() -> None:
        while not over.wait(_REFRESH_SECONDS):
            try:
                if lock.read() == mine:
                    lock.write(mine)
            except OSError:  # the run itself finds out
                continue

    thread = threading.Thread(target=refresh, name="pipeline-lease", daemon=True)
    thread.start()
    try:
        if lock.read() != mine:
            raise PipelineError(f"{lock.parent}: another pipeline run has begun to write there; wait for it")
        yield
    finally:
        over.set()
        thread.join()
        if lock.read() == mine:
            lock.unlink(missing_ok=True)
