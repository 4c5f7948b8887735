"""Which hook a host is running: a few bytes of shared memory, as a host that hangs or dies cannot be asked."""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import NamedTuple

from ....ring.wakeup import shared_memory

_LAYOUT = struct.Struct("=qqqii")


class Running(NamedTuple):
    """What the memory holds. `begun_ns`: monotonic, 0: no hook runs. `question`: that it is about, 0: none."""

    serial: int
    begun_ns: int
    question: int
    plugin: int
    hook: int

    def seconds(self) -> float:
        """How long the hook has been running, 0 if none is."""
        return (time.monotonic_ns() - self.begun_ns) / 1e9 if self.begun_ns else 0.0


class RunningHook:
    """The memory of one host, which writes it; the relay reads it."""

    def __init__(self, fd: int) -> None:
        """Maps it; the descriptor may be closed."""
        self._map = mmap.mmap(fd, mmap.PAGESIZE)
        self._serial = 0

    @staticmethod
    def create() -> int:
        """A file descriptor of a new one."""
        return shared_memory("barnabas-running-hook", mmap.PAGESIZE)

    def begin(self, plugin: int, hook: int, question: int) -> None:
        self._serial += 1
        _LAYOUT.pack_into(self._map, 0, self._serial, time.monotonic_ns(), question, plugin, hook)

    def end(self) -> None:
        _LAYOUT.pack_into(self._map, 0, self._serial, 0, 0, -1, -1)

    def read(self) -> Running:
        return Running(*_LAYOUT.unpack_from(self._map, 0))

    def close(self) -> None:
        self._map.close()


def new_running_hook() -> tuple[RunningHook, int]:
    """A new one and the descriptor to hand on; close that afterwards."""
    fd = RunningHook.create()
    try:
        return RunningHook(fd), fd
    except BaseException:
        os.close(fd)
        raise
