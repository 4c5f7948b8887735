"""Writing a file whole or not at all: under a temporary name beside it, then renamed.

An existing file is replaced only on request, and nothing is written through a symbolic link.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ...errors import BarnabasError

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_DEVICES = Path("/dev")
_SUFFIX = ".part"
_SETTLED_SECONDS = 60.0
"""A file under a temporary name that is younger than this may still be written."""


class OutputExists(BarnabasError, FileExistsError):
    """The output exists already, and may not be replaced."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EEXIST, "it already exists", str(path))


@contextmanager
def written(path: Path, force: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which is at `path` when the block ends, readable by its owner only. If the block raises,
    nothing is left and what was there before stays. ``-`` is standard output; a device or a pipe is written as it is.
    `force`: replace a file, or a symbolic link, that is there; else `OutputExists`. May raise OSError.
    """
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory", str(path))
    if (path.exists() and not path.is_file()) or _DEVICES in path.absolute().parents:
        with open(path, "wb") as file:
            yield file
        return
    if not force and os.path.lexists(path):
        raise OutputExists(path)
    with _beside(path, ".barnabas-", force) as file:
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """As `written` with `force`, beside files of ours: also a device's or a pipe's place is taken, and what a killed process left
    behind for `path` is removed. OSError for a directory."""
    prefix = f".{path.name}."
    for left in os.scandir(path.parent):
        if left.name.startswith(prefix) and left.name.endswith(_SUFFIX):
            with suppress(OSError):
                if time.time() - left.stat(follow_symlinks=False).st_mtime > _SETTLED_SECONDS:
                    os.unlink(left)
    with _beside(path, prefix, True) as file:
        yield file


@contextmanager
def _beside(path: Path, prefix: str, force: bool) -> Iterator[BinaryIO]:
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=_SUFFIX, dir=path.parent)
    try:
        with open(handle, "wb", buffering=1 << 18) as file:
            yield file
        _put(name, path, force)
    except BaseException:
        os.unlink(name)
        raise


def _put(name: str, path: Path, force: bool) -> None:
    """Give a complete file its name."""
    if force:
        os.replace(name, path)  # a link's place is taken, what it leads to stays
        return
    try:
        os.link(name, path, follow_symlinks=False)  # unlike a rename, this takes nobody's place
    except FileExistsError:
        raise OutputExists(path) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise OutputExists(path) from None
        os.rename(name, path)
        return
    os.unlink(name)
