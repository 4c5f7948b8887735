"""Opening regular files only: a pipe or device in a folder, or named by mistake, must not block."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from ...errors import BarnabasError

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
AnyPath = str | os.PathLike[str]


class NotAFile(BarnabasError, OSError):
    """The path exists, but is no regular file."""


def open_fd(path: AnyPath) -> int:
    """A file descriptor to read a file by. Raises OSError; `NotAFile` for pipes, sockets and devices, at once."""
    # `open` itself would wait for the writer of a pipe.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        kind = stat.S_IFMT(os.fstat(fd).st_mode)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if kind != stat.S_IFREG:
            what = _KINDS.get(kind, "no file")
            raise NotAFile(errno.EINVAL, f"it is {what}, not a file", os.fspath(path))
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_file(path: AnyPath) -> BinaryIO:
    """A file to read. Raises as `open_fd`."""
    return open(open_fd(path), "rb")
