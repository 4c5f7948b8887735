"""Progress of long work: one line on stderr, on a terminal only, after the first second."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from ...safe import visible

FIRST_SECONDS = 1.0
EVERY_SECONDS = 0.2
_ERASE = "\r\x1b[K"


class Progress:
    """``with Progress("name") as progress:`` and call `show` now and then (cheap)."""

    def __init__(self, name: str) -> None:
        self._name = visible(name)
        self._begun = time.monotonic()
        self._next = self._begun + FIRST_SECONDS if sys.stderr.isatty() else float("inf")
        self._shown = False

    def show(self, done: int, total: int, words: str = "") -> None:
        """Show how many bytes are done, if it is time for that. `total` 0: not known; `words`: shown behind them."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY_SECONDS
        self._shown = True
        print(_ERASE + self.line(done, total, now - self._begun, words), end="", file=sys.stderr, flush=True)

    def line(self, done: int, total: int, seconds: float, words: str = "") -> str:
        """The text after so many seconds."""
        parts = [f"{done / 1e6:.1f} MB"]
        if total:
            left = (total - done) * seconds / done if done else 0.0
            parts = [f"{done / 1e6:.1f} of {total / 1e6:.1f} MB {min(done / total, 1.0):.0%}", f"{max(left, 0.0):.0f} s left"]
        return f"{self._name}: {', '.join([*parts, *filter(None, [words])])}"

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            print(_ERASE, end="", file=sys.stderr, flush=True)
