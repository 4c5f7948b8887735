"""Writing a file whole or not at all: under a temporary name beside it, then renamed."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which is at `path` when the block ends, readable by its owner only. If the block raises,
    nothing is left and what was there before stays. ``-`` is standard output; a device or a pipe is written as it is.
    May raise OSError.
    """
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(os.path.realpath(path))  # through a symbolic link, which stays
    if target.exists() and not target.is_file():
        if target.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        with open(target, "wb") as file:
            yield file
        return
    handle, name = tempfile.mkstemp(prefix=".barnabas-", suffix=".part", dir=target.parent)
    try:
        with open(handle, "wb", buffering=1 << 18) as file:
            yield file
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
