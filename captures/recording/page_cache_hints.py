"""Dropping written recordings from the page cache, a few MiB behind the writer.

A recording is written once and seldom read. Left alone it fills the page cache at the expense of everybody else, above all of
a broker on the same machine. Fresh pages also cost time: memory that a virtual machine has not touched yet costs up to ten
times what copying into it costs. So the kernel is asked early to write the data out, and then to free its pages.

These are hints only (`posix_fadvise`): nothing here waits for the disk, and nothing is lost where they are ignored.
"""

import os
import threading
from collections import deque
from pathlib import Path

STEP = 8 << 20
"""Bytes that are written between two hints; what is smaller stays in memory."""
_TIMES = 3
"""How often a range is named: first the disk starts, then what it has taken is dropped, and once more what it had not."""

_Range = tuple[Path, int, int]


class PageCacheHints:
    """The files of one recording, in the order in which they are written."""

    def __init__(self) -> None:
        self._path = Path()
        self._from = self._end = 0
        self._ended: list[_Range] = []  # the rest of files that are complete
        self._named: deque[list[_Range]] = deque(maxlen=_TIMES)
        self._thread: threading.Thread | None = None

    def wrote(self, path: Path, end: int) -> None:
        """The operating system has `end` bytes of this file (by the name that it will have) now."""
        if path != self._path:
            if self._end > self._from:
                self._ended.append((self._path, self._from, self._end))
            self._path, self._from = path, 0
        self._end = end
        if end - self._from < STEP or not hasattr(os, "posix_fadvise"):
            return
        if self._thread is not None and self._thread.is_alive():
            return  # a slow disk; the range grows
        self._named.append([*self._ended, (path, self._from, end)])
        self._from = end
        self._ended.clear()
        ranges = [each for named in self._named for each in named]
        # In a thread, as a disk that has much to do lets even hints wait.
        self._thread = threading.Thread(target=_name, args=(ranges,), name="page cache hints", daemon=True)
        self._thread.start()


def _name(ranges: list[_Range]) -> None:
    for path, start, end in ranges:
        for name in (path, path.with_name(path.name + ".part")):
            try:
                file = os.open(name, os.O_RDONLY)
            except OSError:
                continue  # it has its other name now, or was removed
            try:
                os.posix_fadvise(file, start, end - start, os.POSIX_FADV_DONTNEED)
            except OSError:
                pass
            finally:
                os.close(file)
            break
