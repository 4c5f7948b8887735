"""Progress of long reads: on stderr, on a terminal only, after the first second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ...safe import visible

FIRST_SECONDS = 1.0
EVERY_SECONDS = 0.2
_ERASE = "\r\x1b[K"


class Progress:
    """``with Progress(lambda: read, lambda: total, "name") as progress:`` and call `tick` now and then (cheap)."""

    def __init__(self, done: Callable[[], int], total: Callable[[], int], name: str) -> None:
        self._done, self._total = done, total
        self._name = visible(name)
        self._begun = time.monotonic()
        self._next = self._begun + FIRST_SECONDS if sys.stderr.isatty() else float("inf")
        self._shown = False

    def tick(self) -> None:
        """Show the line again if it is time."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY_SECONDS
        self._shown = True
        print(_ERASE + self.line(now - self._begun), end="", file=sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """The text after so many seconds."""
        done, total = self._done(), self._total()
        left = (total - done) * seconds / done if done else 0.0
        share = f"{min(done / total, 1.0):.0%}" if total else ""
        return f"{self._name}: {done / 1e6:.1f} of {total / 1e6:.1f} MB {share}, {left:.0f} s left"

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            print(_ERASE, end="", file=sys.stderr, flush=True)


class Bar:
    """A bar on stderr, only on a terminal: share, bytes, time left, and a few words. `total` 0: nobody knows."""

    def __init__(self, name: str, total: int) -> None:
        self._next = 0.0
        self._bar: Any = None
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[words]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(visible(name), total=total or None, words="")

    def of(self, done: int, total: int) -> None:
        """Show how far it is of a total that is only known on the way."""
        if self._bar is not None and time.monotonic() >= self._next:
            self._bar.update(self._task, total=total or None)
            self.show(done, "")

    def show(self, done: int, words: str) -> None:
        """Show how far it is; cheap when called often."""
        now = time.monotonic()
        if self._bar is not None and now >= self._next:
            self._next = now + EVERY_SECONDS
            self._bar.update(self._task, completed=done, words=words)

    def __enter__(self) -> Bar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
