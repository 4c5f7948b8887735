"""A bell: one file descriptor that wakes another process or thread. `sound` wakes, `hush` resets it.

An eventfd where there is one; elsewhere a FIFO that is open at both ends under one descriptor and whose name was removed, so that it
can be handed over in the same way. Sounding never waits: a full pipe has been sounded already.
"""

from __future__ import annotations

import os
import sys
import tempfile

from .polling import PORTABLE

_ONE = (1).to_bytes(8, sys.byteorder)
_MOST = 4096


def new_bell() -> int:
    """A new bell, non-blocking and not inherited."""
    if not PORTABLE and hasattr(os, "eventfd"):
        return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    with tempfile.TemporaryDirectory(prefix="barnabas-") as directory:
        path = os.path.join(directory, "bell")
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def sound(fd: int) -> None:
    """Wake the process or thread that polls for it."""
    try:
        os.write(fd, _ONE)
    except BlockingIOError:
        pass


def hush(fd: int) -> None:
    """Reset it."""
    try:
        os.read(fd, _MOST)
    except BlockingIOError:
        pass


def shared_memory(name: str, size: int) -> int:
    """A file descriptor of memory that other processes can map, and that is gone with the last of them. size: bytes."""
    if not PORTABLE and hasattr(os, "memfd_create"):
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
    else:
        fast = "/dev/shm"  # in memory, where it exists
        fd, path = tempfile.mkstemp(prefix=f"{name}-", dir=fast if os.access(fast, os.W_OK) else None)
        os.unlink(path)
    os.ftruncate(fd, size)
    return fd
