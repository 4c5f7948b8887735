"""Marks and comments on exchanges, in a small JSON file beside the capture.

An exchange is known by its connection, correlation id and time, which stay the same when an index is made anew.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...captures import Row


class Marks:
    """Comments by exchange; "" is a mark without a comment."""

    def __init__(self, capture: Path):
        self.path = capture / "marks.json" if capture.is_dir() else capture.with_name(capture.name + ".marks.json")
        self._by_id: dict[str, str] = {}
        self.fault = ""
        """Why marks are not kept, or ""."""
        try:
            found = json.loads(self.path.read_text("utf-8"))
            self._by_id = {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError) as error:
            self.fault = f"{self.path} cannot be read: {error}"

    @staticmethod
    def _id(row: Row) -> str:
        return f"{row.connection}/{row.correlation_id}/{row.time_ns}"

    def __len__(self) -> int:
        return len(self._by_id)

    def comment(self, row: Row) -> str | None:
        """The comment on an exchange, None if it is not marked."""
        return self._by_id.get(self._id(row)) if self._by_id else None

    def set(self, row: Row, comment: str | None) -> None:
        """Mark it, or (None) take its mark away; written at once. A file that could not be read is left alone."""
        if comment is None:
            self._by_id.pop(self._id(row), None)
        else:
            self._by_id[self._id(row)] = comment
        if self.fault:
            return
        temporary = self.path.with_name(self.path.name + ".part")
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(self._by_id, file, indent=1, sort_keys=True)
            temporary.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self.fault = f"marks are not kept: {self.path}: {error.strerror or error}"
