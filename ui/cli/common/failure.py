"""What a command reports to the user instead of a traceback."""

from __future__ import annotations

import os
from pathlib import Path

from ....errors import BarnabasError


class Failure(BarnabasError):
    """Something the user can mend: one line that says what, where and what to do next. Exit status 2."""


def write_text(path: Path, text: str) -> None:
    """Write a file that only its owner can read. Raises Failure."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror or error}") from None
