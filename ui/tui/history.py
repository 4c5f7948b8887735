"""The filters that were used, the newest last, kept for the next time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MOST = 200


def default_path() -> Path:
    """``$XDG_STATE_HOME/barnabas/filters``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "barnabas" / "filters"


class History:
    """`step` goes back and forth from what is being typed. A file that cannot be used is done without."""

    def __init__(self, path: Path | None = None):
        self._path = path or default_path()
        self.entries: list[str] = []
        with suppress(OSError, UnicodeDecodeError):
            self.entries = self._path.read_text("utf-8").splitlines()[-MOST:]
        self._at = len(self.entries)
        self._typed = ""

    def restart(self) -> None:
        """Behind the newest."""
        self._at, self._typed = len(self.entries), ""

    def step(self, step: int, typed: str) -> str | None:
        """The entry before (-1) or after, or what was typed behind the newest; None at the ends."""
        at = self._at + step
        if not 0 <= at <= len(self.entries):
            return None
        if self._at == len(self.entries):
            self._typed = typed
        self._at = at
        return self._typed if at == len(self.entries) else self.entries[at]

    def add(self, text: str) -> None:
        """Remember a filter, once."""
        text = text.strip()
        if not text or "\n" in text:
            return
        self.entries = [*(entry for entry in self.entries if entry != text), text][-MOST:]
        self.restart()
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write("".join(f"{entry}\n" for entry in self.entries))
